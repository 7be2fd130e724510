//! Two endpoints over rings in shared memory: messages and a placement.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use std::os::fd::AsFd;
use std::thread;
use std::time::Instant;

use unisono_core::counters::{Counters, Metric};
use unisono_core::device::{Device, DeviceQueue, Memory, TxReason};
use unisono_core::endpoint::operation::EnqueueError;
use unisono_core::endpoint::{Config, Event, Handler, Verdict};
use unisono_core::ids::{Incarnation, PeerId, PlacementId, RemoteKey};
use unisono_core::progress::make_progress;
use unisono_core::span::Span;
use unisono_memory::endpoint_storage::{EndpointSizes, ProcessEndpoint};
use unisono_memory::memory_regions::Regions;
use unisono_shmem::device::{DatagramBuffer, RingDevice, RingPair, SPARE_BUFFERS};
use unisono_shmem::host::file::{Mapping, SegmentFile};
use unisono_shmem::layout::{PAGE, SegmentLayout, SegmentSizes, WaitMode};

const MESSAGES: u32 = 5_000;
/// Bytes of the placement.
const BYTES: usize = 2_000_003;
const KEY: RemoteKey = RemoteKey(0x1234_5678_9abc_def0);
const BOUND: Duration = Duration::from_secs(60);

fn data(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (number as usize * 31 + i * 7 + (i >> 8)) as u8).collect()
}

/// Bytes of a message after its number.
const fn length(number: u32, longest: u32) -> u32 {
    number * 37 % longest
}

/// The message handler: checks the order of numbers, places payloads in one buffer.
struct Inbox {
    to: Span,
    received: u32,
    last: u32,
    counters: Counters,
}

impl Handler for Inbox {
    fn handle_eager(&mut self, _: PeerId, head: &[u8], bytes: u32) -> Verdict {
        let number = head.first_chunk().map(|number| u32::from_le_bytes(*number));
        assert_eq!(number, Some(self.received), "in order");
        self.received += 1;
        self.last = bytes - 4;
        Verdict::Place { to: self.to.part(0, bytes - 4), start: 4 }
    }

    fn record(&mut self, what: Metric) {
        self.counters.count(what);
    }
}

const fn incarnation(rank: u32) -> Incarnation {
    Incarnation(0x1000 + rank)
}

/// State that the two threads share beside the rings.
#[derive(Default)]
struct SharedProgress {
    granted: AtomicU32,
    done: AtomicU32,
}

/// One end: sends all messages, places its data under the other's grant, and takes as much.
fn play(mapping: &Mapping, layout: &SegmentLayout, rank: u32, clock: Instant, progress: &[SharedProgress; 2]) {
    // SAFETY: this rank takes its own ends, and is the only user of the mapping in this process.
    let segment = unsafe { mapping.segment() };
    let mut pairs: Vec<_> = (0..2).map(|peer| RingPair::new(segment, layout, rank, peer).expect("a rank")).collect();
    let mut buffers = vec![<DatagramBuffer>::FREE; 32 + SPARE_BUFFERS];
    let mut device = RingDevice::new(layout, &mut pairs, &mut buffers);
    // SAFETY: this rank uses its regions on one thread, and frees none that its device may name.
    let (peer, limits, mut regions) = (PeerId(1 - rank), device.limits(), unsafe { Regions::new() });
    let mut make = |bytes: usize| {
        let region = regions.allocate(bytes).expect("memory");
        Span { region, offset: 0, bytes: bytes as u32 }
    };
    let (from, to, inbox) = (make(BYTES), make(BYTES), make(limits.mtu as usize));
    let source = regions.address(from).expect("it lives");
    // SAFETY: nobody else knows the region.
    unsafe { source.write(&data(rank, BYTES)) };
    let mut inbox = Inbox { to: inbox, received: 0, last: 0, counters: Counters::default() };
    let config = Config::new(PeerId(rank), incarnation(rank), &limits);
    let mut endpoint = ProcessEndpoint::new(0, config, EndpointSizes::of_job(2).pools());
    endpoint.add_peer(0, peer, incarnation(peer.0), limits.mtu);
    let placement = endpoint.grant(peer, to, KEY).expect("room");
    let [own, other] = [rank, peer.0].map(|rank| &progress[rank as usize]);
    own.granted.store(placement.0 + 1, SeqCst);
    let longest = limits.mtu - 64;
    let (mut sent, mut completed, mut placed, mut delivered, mut checked) = (0, 0, false, false, 0);
    while other.done.load(SeqCst) == 0 || own.done.load(SeqCst) == 0 {
        let now = clock.elapsed().as_nanos() as u64;
        assert!(clock.elapsed() < BOUND, "rank {rank}: {sent} sent, {} received, {delivered}", inbox.received);
        while sent < MESSAGES {
            let payload = from.part(sent, length(sent, longest));
            match endpoint.send(now, peer, &sent.to_le_bytes(), Some(payload)) {
                Ok(_) => sent += 1,
                Err(error) => {
                    assert_eq!(error, EnqueueError::Full);
                    break;
                }
            }
        }
        let granted = other.granted.load(SeqCst);
        if !placed && granted > 0 && endpoint.place(now, peer, PlacementId(granted - 1), KEY, from).is_ok() {
            placed = true;
        }
        let moved = make_progress(now, DeviceQueue::Polled, &mut endpoint, &mut device, &regions, &mut inbox, 1);
        if inbox.received > checked {
            checked = inbox.received;
            let (number, bytes) = (checked - 1, inbox.last);
            assert_eq!(bytes, length(number, longest));
            let mut found = vec![0; bytes as usize];
            // SAFETY: what was received is placed; nobody else knows the region.
            unsafe { regions.address(inbox.to.part(0, bytes)).expect("it lives").read(&mut found) };
            let expected = (0..found.len()).map(|i| {
                let i = number as usize + i;
                (peer.0 as usize * 31 + i * 7 + (i >> 8)) as u8
            });
            assert!(expected.eq(found), "message {number}");
        }
        while let Some(event) = endpoint.poll_event(now) {
            match event {
                Event::Completed(_, result) => {
                    assert_eq!(result, Ok(()));
                    completed += 1;
                }
                Event::Delivered(which, bytes) => {
                    assert_eq!((which, bytes as usize), (placement, BYTES));
                    delivered = true;
                }
                other => panic!("{other:?}"),
            }
        }
        if completed == MESSAGES + 1 && inbox.received == MESSAGES && delivered {
            own.done.store(1, SeqCst);
        }
        if !moved {
            thread::yield_now();
        }
    }
    let mut found = vec![0; BYTES];
    // SAFETY: it was delivered; nobody else knows the region.
    unsafe { regions.address(to).expect("it lives").read(&mut found) };
    assert!(found == data(peer.0, BYTES), "the placement differs");
    assert_eq!(inbox.counters.sent_for(TxReason::ResentNack), 0, "rings lose nothing: {:?}", device.losses());
    assert_eq!((device.losses().undeliverable, device.losses().corrupted), (0, 0));
}

#[test]
fn endpoints_exchange_messages_and_placements_over_rings() {
    let sizes =
        SegmentSizes { collective_area: PAGE as u32, pool: 0, ..SegmentSizes::of_node(2, WaitMode::Oversubscribed) };
    let layout = SegmentLayout::new(sizes).expect("a layout");
    let file = SegmentFile::create(&layout).expect("memory");
    let (mapping, _) = Mapping::open(file.as_fd()).expect("a segment");
    let (clock, progress) = (Instant::now(), Default::default());
    thread::scope(|scope| {
        for rank in 0..2 {
            let (mapping, layout, progress) = (&mapping, &layout, &progress);
            scope.spawn(move || play(mapping, layout, rank, clock, progress));
        }
    });
}
