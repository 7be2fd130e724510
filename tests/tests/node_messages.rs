//! Messages of nodes without an operating system, tested on the host: several nodes in one process, a thread each, and
//! arbitrary entries in their rings.

use core::ptr::NonNull;
use std::thread::{Builder, JoinHandle};

use proptest::prelude::*;
use unisono_core::ids::RemoteKey;
use unisono_core::rma::atomic::{AtomicKind, AtomicOperation, Width};
use unisono_core::rma::header::{ElementUpdate, RmaHeader, RmaMessage};
use unisono_core::rma::region::Refusal;
use unisono_core::rma::{RKey, RemoteSpan};
use unisono_node::group::Group;
use unisono_node::member::Member;
use unisono_node::messages::remote_access::Rights;
use unisono_node::messages::{Completed, MessageError, MessageStorage, Messages, Mode, Request, SLOT, Status};
use unisono_node::self_check::messages::{self, ExchangeBuffers};
use unisono_shmem::am_header::{self, EAGER, EAGER_WITH_HEADER, FRAGMENT, HEADER, HELLO, REMOTE_ACCESS, STEP};
use unisono_shmem::layout::{PAGE, SegmentLayout, SegmentSizes, WaitMode};
use unisono_shmem::rank_slot::{Occupant, RankSlot};
use unisono_shmem::ring::{Consumer, Producer};
use unisono_shmem::segment::{Segment, SharedBytes, Site};

const REQUESTS: usize = 64;
type Memory = MessageStorage<'static, 4, 4200, REQUESTS, 8>;

/// A segment that lives as long as the tests.
fn segment(ranks: u32) -> (Segment<'static>, SegmentLayout) {
    let sizes = SegmentSizes {
        collective_area: PAGE as u32,
        pool: PAGE as u32,
        ..SegmentSizes::of_node(ranks, WaitMode::Dedicated)
    };
    let layout = SegmentLayout::new(sizes).expect("sizes that fit");
    let memory = Vec::leak(vec![0_u64; layout.bytes() / 8]);
    // SAFETY: it is never freed, and used through segments alone.
    let segment = unsafe { Segment::new(NonNull::from(memory).cast(), layout.bytes()) };
    layout.write_header(segment).expect("as long as the layout");
    (segment, layout)
}

fn join(segment: Segment<'static>, local: u32) -> Member<'static> {
    Member::join(segment, local, Occupant { rank: local, incarnation: 77 + local, process: 0 })
        .expect("a free rank slot")
}

/// A thread with room for a store, which is built on the stack here.
fn roomy<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().stack_size(1 << 26).spawn(body).expect("a thread")
}

fn node(member: Member<'static>) -> Messages<'static> {
    Messages::new(member, Box::leak(Box::<Memory>::default()).slices()).expect("the storage is large enough")
}

fn exchange_buffers(quarry: &'static [u8]) -> ExchangeBuffers<'static> {
    let posted = [(); messages::POSTED].map(|()| memory(messages::POSTED_LONGEST));
    ExchangeBuffers { pattern: quarry, into: memory(messages::LONGEST), posted }
}

fn memory(bytes: usize) -> &'static mut [u8] {
    Vec::leak(vec![0; bytes])
}

/// Bytes that depend on their offset.
fn pattern(bytes: usize, seed: u8) -> &'static [u8] {
    Vec::leak((0..bytes).map(|at| (at * 31 + at / 256) as u8 ^ seed).collect())
}

/// Two nodes, driven by one thread.
struct Pair([Messages<'static>; 2]);

impl Pair {
    fn new() -> Self {
        let (segment, _) = segment(2);
        let members = [0, 1].map(|local| join(segment, local));
        Self(members.map(node))
    }

    /// Until nothing moves any more.
    fn settle(&mut self) {
        while self.0.iter_mut().fold(false, |moved, end| end.poll() | moved) {}
    }

    fn send(&mut self, payload: &'static [u8], tag: u32, mode: Mode) -> Request {
        self.0[0].start_send(payload, 1, tag, mode).expect("records are free")
    }

    fn receive(&mut self, room: usize, source: Option<u32>, tag: Option<u32>) -> Request {
        self.0[1].start_receive(memory(room), source, tag).expect("records are free")
    }

    fn sent(&mut self, request: Request) -> Option<Result<(), MessageError>> {
        self.0[0].take_completed(request).map(|ended| ended.result.map(drop))
    }

    fn received(&mut self, request: Request) -> Option<(Result<Status, MessageError>, &'static [u8])> {
        self.0[1].take_completed(request).map(|Completed { result, buffer }| (result, &*buffer))
    }
}

/// Runs where there is room for stores.
fn with_room(body: impl FnOnce() + Send + 'static) {
    if let Err(panic) = roomy(body).join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn messages_among_three_nodes_arrive_as_sent() {
    let (segment, _) = segment(3);
    let quarry = memory(messages::PATTERN_BYTES);
    messages::fill_pattern(quarry);
    let quarry: &'static [u8] = quarry;
    let members = [0, 1, 2].map(|local| join(segment, local));
    let ends = members.map(|member| {
        roomy(move || {
            let (mut messages, mut buffers) = (node(member), exchange_buffers(quarry));
            let mut group = Group::new(member).expect("a collective area");
            let come: Result<u32, _> = (0..130)
                .map(|burst| {
                    let come = messages::exchange(&mut messages, &mut buffers, burst, &mut std::thread::yield_now);
                    let serve = || {
                        if !messages.poll() {
                            std::thread::yield_now();
                        }
                    };
                    group.barrier(&mut { serve }).expect("all take part");
                    come
                })
                .sum();
            messages.leave(&mut std::thread::yield_now);
            come
        })
    });
    for end in ends {
        assert_eq!(end.join().expect("no panic"), Ok(130 * 2 * messages::BURST));
    }
}

#[test]
fn more_messages_than_headers_wait_at_their_sender_and_are_found() {
    with_room(|| {
        let mut pair = Pair::new();
        let (headers, held) = (u32::from(am_header::unexpected_per_peer(2)), 40);
        let payload = pattern(12, 0);
        let mut requests = Vec::new();
        for tag in 0..headers + held {
            let request = pair.send(payload, tag, Mode::Standard);
            pair.settle();
            match pair.sent(request) {
                Some(result) => assert_eq!((result, tag < headers), (Ok(()), true), "tag {tag}"),
                None => requests.push(request),
            }
        }
        assert_eq!(requests.len(), held as usize);
        // The last one first: its receiver has to ask for it.
        for tag in (0..headers + held).rev() {
            let request = pair.receive(12, if tag % 2 == 0 { Some(0) } else { None }, Some(tag));
            pair.settle();
            let (result, bytes) = pair.received(request).expect("it has come");
            assert_eq!((result, bytes), (Ok(Status { source: 0, tag, bytes: 12 }), payload));
        }
        assert!(requests.into_iter().all(|request| pair.sent(request) == Some(Ok(()))));
    });
}

#[test]
fn a_short_receive_reports_the_length_and_so_does_an_announced_send() {
    with_room(|| {
        let mut pair = Pair::new();
        for (bytes, posted) in
            [12, 500, SLOT, SLOT + 1, 20_000, 100_000].into_iter().flat_map(|bytes| [(bytes, false), (bytes, true)])
        {
            let before = posted.then(|| pair.receive(10, None, None));
            let send = pair.send(pattern(bytes, 1), 7, Mode::Standard);
            pair.settle();
            let receive = before.unwrap_or_else(|| pair.receive(10, None, None));
            pair.settle();
            let (result, _) = pair.received(receive).expect("it has ended");
            assert_eq!(result, Err(MessageError::Truncated { bytes: bytes as u64 }));
            let sent = pair.sent(send);
            let expected = if bytes > am_header::EAGER_LIMIT { Err(MessageError::RemoteTruncated(1)) } else { Ok(()) };
            assert_eq!(sent, Some(expected), "{bytes} bytes");
        }
    });
}

#[test]
fn a_synchronous_send_ends_with_its_receive_and_a_cancelled_receive_matches_nothing() {
    with_room(|| {
        let mut pair = Pair::new();
        for bytes in [0, 8, 1000, 3000, 10_000, 50_000] {
            let unwanted = pair.receive(64, Some(0), Some(99));
            let send = pair.send(pattern(bytes, 2), 1, Mode::Synchronous);
            pair.settle();
            assert_eq!(pair.sent(send), None, "{bytes} bytes");
            assert_eq!(pair.0[1].cancel(unwanted).map(|buffer| buffer.len()), Some(64));
            assert!(pair.0[1].cancel(unwanted).is_none(), "once");
            let mut found = pair.0[1].probe(None, None);
            while found == Ok(None) {
                pair.settle();
                found = pair.0[1].probe(None, None);
            }
            assert_eq!(found, Ok(Some(Status { source: 0, tag: 1, bytes })));
            let receive = pair.receive(bytes, None, None);
            pair.settle();
            assert_eq!(
                pair.received(receive).map(|(result, seen)| (result.map(|of| of.bytes), seen)),
                Some((Ok(bytes), pattern(bytes, 2)))
            );
            assert_eq!(pair.sent(send), Some(Ok(())));
            assert_eq!(pair.0[0].take_completed(send).map(|ended| ended.result), Some(Err(MessageError::NoRequest)));
        }
    });
}

#[test]
fn a_node_sends_to_itself() {
    with_room(|| {
        let mut pair = Pair::new();
        for bytes in [0, 100, 5000, 70_000] {
            let one = &mut pair.0[0];
            let receive = one.start_receive(memory(bytes), Some(0), None).expect("records are free");
            one.send(pattern(bytes, 3), 0, 5, Mode::Synchronous, &mut || {}).expect("it takes part");
            // Its last fragments are in the ring.
            while one.poll() {}
            let ended = one.take_completed(receive).expect("it is matched");
            assert_eq!((ended.result, &*ended.buffer), (Ok(Status { source: 0, tag: 5, bytes }), pattern(bytes, 3)));
        }
    });
}

#[test]
fn messages_sent_before_a_death_still_arrive_and_other_requests_fail() {
    with_room(|| {
        for (leaves, expected) in [(false, MessageError::Failed(0)), (true, MessageError::PeerFinished(0))] {
            let mut pair = Pair::new();
            let slot = {
                let member = *pair.0[0].member();
                RankSlot::of(member.segment(), &member.layout(), 0).expect("a rank slot")
            };
            let late = pair.receive(100, Some(0), Some(2));
            let anyone = pair.receive(100, None, Some(3));
            let coming = pair.receive(100_000, Some(0), Some(4));
            pair.send(pattern(20, 4), 1, Mode::Standard);
            pair.send(pattern(100_000, 4), 4, Mode::Standard);
            let towards = pair.0[1].start_send(pattern(100_000, 5), 0, 1, Mode::Standard).expect("it lives");
            let Pair([one, other]) = pair;
            let mut idle = || {};
            if leaves {
                // Its rings have room: it sends Bye at once.
                one.leave(&mut idle);
            } else {
                slot.mark_failed();
            }
            let mut other = other;
            for _ in 0..5000 {
                other.poll();
            }
            let mut result = |request: Request| other.take_completed(request).map(|ended| ended.result);
            assert_eq!(result(late), Some(Err(expected)));
            assert_eq!(result(anyone), Some(Err(expected)));
            assert_eq!(result(coming), Some(Err(expected)));
            assert_eq!(result(towards), Some(Err(expected)));
            let mut kept = [0; 20];
            assert_eq!(other.receive(&mut kept, None, None, &mut idle), Ok(Status { source: 0, tag: 1, bytes: 20 }));
            assert_eq!(other.receive(&mut kept, None, None, &mut idle), Err(expected));
            assert_eq!(other.receive(&mut kept, Some(0), None, &mut idle), Err(expected));
            assert_eq!(other.send(&kept, 0, 1, Mode::Standard, &mut idle), Err(expected));
            assert_eq!(other.probe(Some(0), None), Err(expected));
            assert!(!other.is_alive(0) && other.is_alive(1));
        }
    });
}

#[test]
fn node_aborts_when_its_rank_slot_is_overwritten() {
    with_room(|| {
        let mut pair = Pair::new();
        let receive = pair.receive(10, None, None);
        let member = *pair.0[1].member();
        let slot = member.layout().rank_slot(1).expect("a rank slot");
        member.segment().word(slot.offset + 40).expect("a word of it").publish(1, Site::Plain);
        for _ in 0..5000 {
            pair.0[1].poll();
        }
        assert_eq!(pair.received(receive).map(|(result, _)| result), Some(Err(MessageError::Overwritten)));
        assert!(matches!(pair.0[1].start_send(&[], 0, 0, Mode::Standard), Err(MessageError::Overwritten)));
        for _ in 0..5000 {
            pair.0[0].poll();
        }
        assert!(!pair.0[0].is_alive(1), "the others take it for dead");
    });
}

#[test]
fn other_entries_of_processes_are_skipped() {
    with_room(|| {
        let (segment, layout) = segment(2);
        let (_process, mut messages) = (join(segment, 0), node(join(segment, 1)));
        let mut ring = Producer::of(segment, &layout, 0, 1).expect("a ring");
        for (what, bytes) in [(HELLO, 24), (STEP, 30)] {
            ring.put([what, 0], &[0x55; 48][..bytes]).expect("room");
        }
        ring.put([EAGER, 9], b"words").expect("room");
        let mut into = [0; 5];
        let received = messages.receive(&mut into, None, None, &mut || {});
        assert_eq!((received, &into), (Ok(Status { source: 0, tag: 9, bytes: 5 }), b"words"));
    });
}

/// Arbitrary ring entries, valid or not.
/// A rank that speaks the words of remote memory access to rank 0, whatever it likes.
struct Requester {
    to: Producer<'static>,
    from: Consumer<'static>,
}

impl Requester {
    fn new(segment: Segment<'static>, layout: &SegmentLayout, rank: u32) -> Self {
        let to = Producer::of(segment, layout, rank, 0).expect("a ring");
        Self { to, from: Consumer::of(segment, layout, 0, rank).expect("a ring") }
    }

    /// Sends a request with this payload.
    fn ask(&mut self, operation: u32, message: RmaMessage, payload: &[u8]) {
        let header = RmaHeader { message, operation, retry: false, payload: payload.len() as u32 };
        let bytes = [header.emit().as_ref(), payload].concat();
        let filled = |piece: SharedBytes<'_>| _ = piece.write(&bytes);
        let length = bytes.len() as u32;
        let copy = |front: &mut [u8]| front.copy_from_slice(&bytes);
        am_header::put_with(&mut self.to, [REMOTE_ACCESS, 0], &[], length, copy, filled).expect("room");
    }

    /// The answers that have come, and their payloads.
    fn answers(&mut self) -> Vec<(u32, RmaMessage, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(entry) = self.from.poll().expect("an intact ring") {
            let mut bytes = vec![0; entry.payload.bytes()];
            entry.payload.read(&mut bytes).expect("as long");
            if entry.header[0] == REMOTE_ACCESS {
                let header = RmaHeader::parse(&bytes, bytes.len() as u32).expect("an answer");
                let payload = bytes.split_off(bytes.len() - header.payload as usize);
                all.push((header.operation, header.message, payload));
            }
            self.from.consume();
        }
        all
    }
}

fn add(at: RemoteSpan, add: u64) -> RmaMessage {
    let kind = AtomicKind::FetchAdd { add, boundaries: 0 };
    RmaMessage::Atomic { at, operation: AtomicOperation { width: Width::Bits64, kind } }
}

const fn refused(reason: Refusal) -> RmaMessage {
    RmaMessage::Refused { reason, count: 0, region: 0 }
}

#[test]
fn memory_is_accessed_under_its_key_within_its_bounds_until_it_is_revoked() {
    roomy(|| {
        let (segment, layout) = segment(2);
        let mut messages = node(join(segment, 0));
        join(segment, 1);
        let mut one = Requester::new(segment, &layout, 1);
        let rights = Rights::READ | Rights::WRITE | Rights::ATOMIC;
        let other = messages.expose(memory(64), rights, 3).expect("a free place");
        let key = messages.expose(memory(64), rights, 5 << 40).expect("a free place");
        let index = u16::from(key.to_bytes()[32]);
        let span = |key, offset| RemoteSpan { region: RKey { index, key: RemoteKey(key) }, offset };
        let at = |offset| span(5 << 40, offset);
        let read = |at, bytes| RmaMessage::Read { at, bytes, into: None };

        one.ask(1, RmaMessage::Write { at: at(60), rest: 0 }, &[7; 4]);
        one.ask(2, RmaMessage::Flush, &[]);
        one.ask(3, read(at(58), 6), &[]);
        one.ask(4, add(at(8), 30), &[]);
        one.ask(5, add(at(8), 12), &[]);
        while messages.poll() {}
        let expected = [
            (2, RmaMessage::Flushed, vec![]),
            (3, RmaMessage::Data, vec![0, 0, 7, 7, 7, 7]),
            (4, RmaMessage::Value(0), vec![]),
            (5, RmaMessage::Value(30), vec![]),
        ];
        assert_eq!(one.answers(), expected);

        one.ask(6, read(at(60), 5), &[]);
        one.ask(7, read(span(5 << 40 ^ 1, 0), 1), &[]);
        one.ask(8, add(at(4), 1), &[]);
        let update = ElementUpdate { operation: 0, datatype: 0 };
        one.ask(9, RmaMessage::Accumulate { at: at(0), update, fetch: true, stride: None }, &[1; 8]);
        one.ask(10, RmaMessage::Write { at: at(61), rest: 0 }, &[9; 4]);
        one.ask(11, RmaMessage::Flush, &[]);
        while messages.poll() {}
        let found = one.answers();
        assert!(matches!(found[0].1, RmaMessage::Refused { reason: Refusal::OutOfBounds, count: 1, .. }), "{found:?}");
        let reasons = [Refusal::OutOfBounds, Refusal::BadKey, Refusal::Misaligned, Refusal::Unsupported];
        let refusals = (6..).zip(reasons).map(|(operation, reason)| (operation, refused(reason), vec![]));
        let expected: Vec<_> = [(11, RmaMessage::Flushed, vec![])].into_iter().chain(refusals).collect();
        assert_eq!(found[1..], expected);

        let whole = messages.revoke(&key, &mut || {}).expect("it is exposed");
        assert_eq!((whole[8], &whole[58..]), (42, &[0, 0, 7, 7, 7, 7][..]));
        assert!(whole[..8].iter().chain(&whole[9..58]).all(|byte| *byte == 0), "nothing else was touched");
        assert!(messages.revoke(&key, &mut || {}).is_none() && messages.exposed(&key).is_none());
        one.ask(12, add(at(8), 1), &[]);
        while messages.poll() {}
        assert_eq!(one.answers(), [(12, refused(Refusal::BadKey), vec![])]);
        assert_eq!((messages.exposed(&other).map(|memory| memory.to_vec()), whole[8]), (Some(vec![0; 64]), 42));
        assert!(messages.is_alive(1));
    })
    .join()
    .expect("no panic");
}

/// Its ring holds two of its four answers; the memory is not given back while the others wait.
#[test]
fn rank_that_takes_no_answers_delays_those_of_no_other() {
    roomy(|| {
        let (segment, layout) = segment(3);
        let mut messages = node(join(segment, 0));
        (1..3).for_each(|rank| _ = join(segment, rank));
        let (mut mute, mut other) = (Requester::new(segment, &layout, 1), Requester::new(segment, &layout, 2));
        let long = other.to.longest() - 12;
        let key = messages.expose(memory(long as usize), Rights::READ, 5).expect("a free place");
        let at = RemoteSpan { region: RKey { index: u16::from(key.to_bytes()[32]), key: RemoteKey(5) }, offset: 0 };
        (1..5).for_each(|operation| mute.ask(operation, RmaMessage::Read { at, bytes: long, into: None }, &[]));
        while messages.poll() {}
        other.ask(1, RmaMessage::Read { at, bytes: 3, into: None }, &[]);
        other.ask(2, RmaMessage::Flush, &[]);
        while messages.poll() {}
        let answered: Vec<u32> = other.answers().iter().map(|answer| answer.0).collect();
        assert_eq!(answered, [2, 1], "a flush waits for writes alone");
        let mut rounds = 0;
        let mut come = Vec::new();
        let whole = messages.revoke(&key, &mut || {
            rounds += 1;
            if rounds == 10 {
                come.extend(mute.answers());
            }
        });
        assert_eq!(whole.map(|memory| memory.len()), Some(long as usize));
        assert!(rounds >= 10, "answers used the memory until the ring had room");
        while messages.poll() {}
        come.extend(mute.answers());
        let come: Vec<(u32, usize)> = come.iter().map(|(operation, _, payload)| (*operation, payload.len())).collect();
        assert_eq!(come.iter().map(|answer| answer.0).collect::<Vec<_>>(), [1, 2, 3, 4], "{come:?}");
    })
    .join()
    .expect("no panic");
}

fn notes() -> impl Strategy<Value = (u32, u32, Vec<u8>, bool)> {
    let kinds = prop_oneof![
        Just(HEADER),
        Just(EAGER_WITH_HEADER),
        Just(FRAGMENT),
        Just(REMOTE_ACCESS),
        Just(EAGER),
        Just(1_u32),
        0..16_u32,
        any::<u32>(),
    ];
    (kinds, prop_oneof![0..4_u32, any::<u32>()], prop::collection::vec(any::<u8>(), 0..64), any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Well-formed headers with any content, fragments for any request, words of all kinds: no panic, no endless wait,
    /// and the third rank's messages arrive.
    #[test]
    fn protocol_violation_ends_its_rank_and_no_other(all in prop::collection::vec(notes(), 1..60), kind in prop_oneof![0..13_u8, 64..86_u8]) {
        let outcome = roomy(move || {
            let (segment, layout) = segment(3);
            let (member, other) = (join(segment, 0), join(segment, 2));
            let (mut messages, mut honest) = (node(member), node(other));
            join(segment, 1);
            let mut ring = Producer::of(segment, &layout, 1, 0).expect("a ring");
            messages.expose(memory(64), Rights::all(), 0).expect("a free place");
            let waiting = messages.start_receive(memory(50), Some(1), Some(77)).expect("records are free");
            let towards = messages.start_send(pattern(30_000, 6), 1, 1, Mode::Standard).expect("it lives");
            for (what, number, mut bytes, checks) in all {
                if checks && let Some(first) = bytes.first_mut() {
                    *first = kind;
                }
                let number = if checks { am_header::checksum(&bytes) } else { number };
                // A ring that is full is emptied first.
                let _ = am_header::put_with(&mut ring, [what, number], &[], bytes.len() as u32, |front| front.copy_from_slice(&bytes), |piece| _ = piece.write(&bytes));
                messages.poll();
            }
            let sent = honest.start_send(pattern(20_000, 7), 0, 3, Mode::Synchronous).expect("it lives");
            let into = memory(20_000);
            let mut serve = || _ = honest.poll();
            let received = messages.receive(into, Some(2), Some(3), &mut serve);
            while honest.take_completed(sent).is_none() {
                messages.poll();
                honest.poll();
            }
            let alive = messages.is_alive(1);
            (received, *into == *pattern(20_000, 7), alive, messages.take_completed(waiting).is_some(), messages.take_completed(towards).is_some())
        }).join();
        let (received, whole, alive, receive_ended, send_ended) = outcome.expect("no panic");
        prop_assert_eq!(received, Ok(Status { source: 2, tag: 3, bytes: 20_000 }));
        prop_assert!(whole);
        prop_assert!(alive || receive_ended && send_ended, "what needs a rank ends with it");
    }
}
