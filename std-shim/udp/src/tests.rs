//! Two devices on loopback.

mod groups;
mod rails;

use core::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use std::{net::UdpSocket, time::Instant};

use unisono_core::device::{
    Armed, Destination, Device, HEADER_ROOM, Memory, PathRequest, Received, Slot, Token, Transmit, TxReason,
};
use unisono_core::ids::PeerId;
use unisono_core::span::{Region, Span};

use super::*;
use crate::fault_injection::Probability;
use unisono_memory::memory_regions::Regions;

const BYTES: usize = 1 << 17;

/// Peer 0 and peer 1, each with a region of position-dependent bytes and one to receive into.
struct Pair {
    devices: [Udp; 2],
    regions: Regions,
    source: Region,
    target: Region,
}

fn options(local: &str) -> Options {
    Options { mtu: Some(9000), ..Options::new(local.parse().unwrap(), 4) }
}

fn pattern(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

impl Pair {
    fn new(options: &Options) -> Self {
        let mut devices = [(); 2].map(|()| Udp::bind(options).unwrap());
        let paths = [0, 1].map(|index: usize| devices[index].local().unwrap());
        for device in &mut devices {
            for (peer, path) in paths.iter().enumerate() {
                device.set_path(PeerId(peer as u32), *path, MTU_MAX).unwrap();
            }
        }
        // SAFETY: each side has its regions, which one thread uses, and does not free before its device is done.
        let mut regions = unsafe { Regions::new() };
        let [source, target] = [(); 2].map(|()| regions.allocate(BYTES).unwrap());
        let all = regions.address(Span { region: source, offset: 0, bytes: BYTES as u32 }).unwrap();
        // SAFETY: nobody else uses the region yet.
        unsafe { all.write(&(0..BYTES).map(pattern).collect::<Vec<_>>()) };
        Self { devices, regions, source, target }
    }

    /// Posts from peer 0 to peer 1: `head` bytes that are its number, then payload from `offset` on.
    fn post(&mut self, lane: DeviceQueue, at: DeviceQueue, number: u32, head: u8, offset: usize, bytes: u32) -> bool {
        let span = Span { region: self.source, offset, bytes };
        let payload = (bytes > 0).then_some(span);
        let Some(mut token) = self.devices[0].token(lane) else { return false };
        token.header_room().fill(0xaa);
        token.header_room()[..4].copy_from_slice(&number.to_le_bytes());
        let transmit = Transmit {
            to: PeerId(1).into(),
            queue: at,
            header_bytes: head,
            payload,
            solicited: false,
            reason: TxReason::First,
        };
        token.post(&transmit, payload.and_then(|span| self.regions.address(span)));
        true
    }

    fn target(&self, bytes: usize) -> (Address, Vec<u8>) {
        let span = Span { region: self.target, offset: 0, bytes: bytes as u32 };
        let address = self.regions.address(span).unwrap();
        let mut seen = vec![0; bytes];
        // SAFETY: single-threaded test, no call in progress.
        unsafe { address.read(&mut seen) };
        (address, seen)
    }

    /// Receives at peer 1 until `wanted` datagrams came or a second passed.
    fn receive(&mut self, lane: DeviceQueue, wanted: usize) -> Vec<(Slot, u32)> {
        let (mut got, end) = (Vec::new(), Instant::now() + Duration::from_secs(1));
        while got.len() < wanted && Instant::now() < end {
            while let Some(datagram) = self.devices[1].receive(lane) {
                assert!(datagram.is_from(PeerId(0)) && !datagram.is_from(PeerId(1)));
                got.push((datagram.slot(), datagram.bytes()));
            }
        }
        got
    }
}

/// Posts a datagram that is only a header, which begins with its number.
fn post_number(device: &mut Udp, to: Destination, number: u32) {
    let mut token = device.token(DeviceQueue::Polled).unwrap();
    token.header_room()[..4].copy_from_slice(&number.to_le_bytes());
    let transmit = Transmit {
        to,
        queue: DeviceQueue::Polled,
        header_bytes: 24,
        payload: None,
        solicited: false,
        reason: TxReason::First,
    };
    token.post(&transmit, None);
}

fn number(device: &Udp, slot: Slot) -> u32 {
    u32::from_le_bytes(*device.held(slot).prefix().first_chunk().unwrap())
}

#[test]
fn every_size_arrives_intact() {
    for (local, gso) in [("127.0.0.1", true), ("127.0.0.1", false), ("::1", true), ("::1", false)] {
        for mtu in [576, 1472, 9000, 65507] {
            let mut pair = Pair::new(&Options { gso, mtu: Some(mtu), ..options(local) });
            let most = pair.devices[0].limits().mtu - 24;
            let sizes = (0..=most).step_by(most as usize / 40 + 1).chain([1, 63, 64, 65, 1023, 1024, 1025, most]);
            for (count, bytes) in sizes.filter(|bytes| *bytes <= most).enumerate() {
                assert!(pair.post(DeviceQueue::Polled, DeviceQueue::Polled, count as u32, 24, count, bytes));
                pair.devices[0].flush(DeviceQueue::Polled);
                let got = pair.receive(DeviceQueue::Polled, 1);
                let [(slot, length)] = got[..] else { panic!("{local} {gso} {bytes}: {got:?}") };
                assert_eq!((length, number(&pair.devices[1], slot)), (24 + bytes, count as u32));
                let (to, _) = pair.target(bytes as usize);
                pair.devices[1].place(slot, 24, bytes, to);
                pair.devices[1].release(slot);
                assert!(pair.target(bytes as usize).1.iter().copied().eq((count..count + bytes as usize).map(pattern)));
            }
            let tally = pair.devices[1].counters();
            assert_eq!(tally.bad_checksum.get() + tally.truncated.get() + tally.too_short.get(), 0);
        }
    }
}

#[test]
fn batch_keeps_order_and_runs_of_any_sizes_stay_apart() {
    for gso in [true, false] {
        // A batch has room for one run of 63, but not for a second one.
        let uneven = [40, 40, 41, 41, 40, 3000, 2000, 2000];
        for (sizes, whole) in [([1000; 8], 63), ([8000; 8], BATCH), ([0; 8], BATCH), (uneven, BATCH)] {
            let mut pair = Pair::new(&Options { gso, ..options("127.0.0.1") });
            let post = |count: &usize| {
                pair.post(DeviceQueue::Polled, DeviceQueue::Polled, *count as u32, 24, 0, sizes[count % 8])
            };
            let posted = (0..=BATCH).take_while(post).count();
            assert_eq!(posted, if gso { whole } else { BATCH }, "{gso} {sizes:?}");
            pair.devices[0].flush(DeviceQueue::Polled);
            let got = pair.receive(DeviceQueue::Polled, posted);
            assert_eq!(got.len(), posted, "{gso} {sizes:?}");
            for (count, (slot, bytes)) in got.into_iter().enumerate() {
                assert_eq!((number(&pair.devices[1], slot), bytes), (count as u32, 24 + sizes[count % 8]));
                pair.devices[1].release(slot);
            }
            let calls = pair.devices[0].counters().send_calls.get();
            assert_eq!(calls, 1, "one system call for each flush");
        }
    }
}

const BATCH: usize = 64;

#[test]
fn full_ring_has_no_token_and_tickets_complete_at_flush() {
    let mut pair = Pair::new(&options("127.0.0.1"));
    let mut expected = Ticket::default();
    for round in 0..3 {
        for _ in 0..BATCH {
            expected = expected.next();
            assert_eq!(
                pair.devices[0].token(DeviceQueue::Polled).unwrap().ticket(),
                expected,
                "a dropped token goes back"
            );
            assert!(pair.post(DeviceQueue::Polled, DeviceQueue::Polled, round, 24, 0, 0));
            assert!(!expected.is_within(pair.devices[0].completed(DeviceQueue::Polled)));
        }
        assert!(
            pair.devices[0].token(DeviceQueue::Polled).is_none()
                && pair.devices[0].token(DeviceQueue::Interrupt).is_some()
        );
        pair.devices[0].flush(DeviceQueue::Polled);
        assert_eq!(pair.devices[0].completed(DeviceQueue::Polled), expected);
        assert_eq!(pair.devices[0].completed(DeviceQueue::Interrupt), Ticket::default());
    }
}

#[test]
fn held_datagrams_stay_while_others_pass() {
    for gso in [true, false] {
        let mut pair = Pair::new(&Options { gso, holdable: 100, ..options("127.0.0.1") });
        let mut held = Vec::new();
        for round in 0..100 {
            for count in 0..10 {
                assert!(pair.post(
                    DeviceQueue::Polled,
                    DeviceQueue::Polled,
                    round * 10 + count,
                    24,
                    round as usize,
                    700
                ));
            }
            pair.devices[0].flush(DeviceQueue::Polled);
            let got = pair.receive(DeviceQueue::Polled, 10);
            assert_eq!(got.len(), 10, "{gso} {round}");
            for (count, (slot, _)) in got.into_iter().enumerate() {
                if count == 3 {
                    pair.devices[1].hold(slot);
                    held.push(slot);
                } else {
                    pair.devices[1].release(slot);
                }
            }
        }
        for (round, slot) in held.into_iter().enumerate() {
            assert_eq!(number(&pair.devices[1], slot), round as u32 * 10 + 3);
            assert!(pair.devices[1].held(slot).is_from(PeerId(0)));
            let (to, _) = pair.target(700);
            pair.devices[1].place(slot, 24, 700, to);
            assert!(pair.target(700).1.iter().copied().eq((round..round + 700).map(pattern)));
            pair.devices[1].release(slot);
        }
    }
}

#[test]
fn place_outside_datagram_or_target_moves_nothing() {
    let mut pair = Pair::new(&options("127.0.0.1"));
    assert!(pair.post(DeviceQueue::Polled, DeviceQueue::Polled, 5, 24, 0, 100));
    pair.devices[0].flush(DeviceQueue::Polled);
    let (slot, _) = pair.receive(DeviceQueue::Polled, 1)[0];
    let (to, before) = pair.target(100);
    for (start, bytes) in [(25, 100), (124, 1), (u16::MAX, u32::MAX), (0, 101), (0, u32::MAX)] {
        pair.devices[1].place(slot, start, bytes, to);
    }
    for slot in [Slot(u32::MAX), Slot(7 << 16), Slot(slot.0 | 0xffff)] {
        pair.devices[1].place(slot, 0, 10, to);
        assert_eq!(pair.devices[1].held(slot).bytes(), 0);
        pair.devices[1].release(slot);
    }
    assert_eq!(pair.target(100).1, before);
}

#[test]
fn garbage_is_dropped_and_counted() {
    for gso in [true, false] {
        let mut pair = Pair::new(&Options { gso, mtu: Some(1472), ..options("127.0.0.1") });
        let to = pair.devices[1].local().unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut frame = b"a stranger's frame".to_vec();
        frame.extend(checksum::of(&frame));
        let mut broken = frame.clone();
        broken[3] ^= 1;
        for bytes in [&[][..], &[1], &[1, 2, 3], &broken, &vec![9; 1472], &vec![9; 3000], &frame] {
            stranger.send_to(bytes, SocketAddr::new(to.address, to.polled)).unwrap();
        }
        let (mut sound, end) = (0, Instant::now() + Duration::from_secs(1));
        let tally = pair.devices[1].counters();
        while tally.received.get() == 0 && Instant::now() < end {
            if let Some(datagram) = pair.devices[1].receive(DeviceQueue::Polled) {
                assert!((0..5).all(|peer| !datagram.is_from(PeerId(peer))));
                assert_eq!(datagram.prefix(), b"a stranger's frame");
                sound += 1;
                let slot = datagram.slot();
                pair.devices[1].release(slot);
            }
        }
        let too_large = u64::from(!gso);
        assert_eq!((sound, tally.too_short.get(), tally.truncated.get()), (1, 3, too_large));
        assert_eq!(tally.bad_checksum.get(), 3 - too_large);
    }
}

#[test]
fn lanes_are_apart_and_either_port_is_the_peer() {
    let mut pair = Pair::new(&options("::1"));
    assert!(pair.post(DeviceQueue::Polled, DeviceQueue::Interrupt, 1, 24, 0, 0));
    assert!(pair.post(DeviceQueue::Interrupt, DeviceQueue::Polled, 2, 24, 0, 0));
    pair.devices[0].flush(DeviceQueue::Polled);
    pair.devices[0].flush(DeviceQueue::Interrupt);
    for (lane, expected) in [(DeviceQueue::Interrupt, 1), (DeviceQueue::Polled, 2)] {
        let got = pair.receive(lane, 1);
        assert_eq!(number(&pair.devices[1], got[0].0), expected);
    }
}

#[test]
fn unreachable_and_unknown_peers_are_losses() {
    let mut pair = Pair::new(&options("127.0.0.1"));
    let [device, _] = &mut pair.devices;
    for peer in [2, 3, 4, u32::MAX] {
        let transmit = Transmit {
            to: PeerId(peer).into(),
            queue: DeviceQueue::Polled,
            header_bytes: HEADER_ROOM as u8,
            payload: None,
            solicited: false,
            reason: TxReason::Control,
        };
        device.token(DeviceQueue::Polled).unwrap().post(&transmit, None);
    }
    device.flush(DeviceQueue::Polled);
    assert_eq!(device.counters().lost_no_path.get(), 4);
    assert_eq!(device.completed(DeviceQueue::Polled), Ticket(4));
    for (peer, known) in [(1, true), (2, false), (u32::MAX, false)] {
        device.request_path(PathRequest::Resolve(PeerId(peer)));
        let fact = device.poll_event().unwrap();
        assert_eq!(matches!(fact, DeviceEvent::Path { mtu: 8996, .. }), known, "{fact:?}");
    }
    assert_eq!(device.poll_event(), None);
}

#[test]
fn full_window_waits_without_loss() {
    for mtu in [576, 1472, 9000, 65507] {
        let mut pair =
            Pair::new(&Options { mtu: Some(mtu), gso: false, receive_buffer: 1 << 20, ..options("127.0.0.1") });
        let limits = pair.devices[1].limits();
        let slots = limits.receive_slots as usize;
        for round in 0..3 {
            for count in 0..slots {
                while !pair.post(DeviceQueue::Polled, DeviceQueue::Polled, count as u32, 24, round, limits.mtu - 24) {
                    pair.devices[0].flush(DeviceQueue::Polled);
                }
            }
            pair.devices[0].flush(DeviceQueue::Polled);
            let (mut got, end) = (0, Instant::now() + Duration::from_secs(1));
            while got < slots && Instant::now() < end {
                while let Some(datagram) = pair.devices[1].receive(DeviceQueue::Polled) {
                    let slot = datagram.slot();
                    pair.devices[1].release(slot);
                    got += 1;
                }
            }
            assert_eq!(got, slots, "mtu {mtu}, round {round}");
        }
    }
}

#[test]
fn injected_faults_are_those_asked_for_and_the_checksum_finds_them() {
    for gso in [true, false] {
        let chance = |value| Probability::new(value).unwrap();
        let faults = Faults {
            loss: chance(0.05),
            reorder: chance(0.1),
            duplicate: chance(0.04),
            corrupt: chance(0.05),
            seed: 7,
            cut: None,
        };
        let mut pair = Pair::new(&Options { gso, faults, ..options("127.0.0.1") });
        let (mut numbers, sent) = (Vec::new(), 20_000);
        let take = |pair: &mut Pair, numbers: &mut Vec<u32>| {
            while let Some(datagram) = pair.devices[1].receive(DeviceQueue::Polled) {
                numbers.push(u32::from_le_bytes(*datagram.prefix().first_chunk().unwrap()));
                let slot = datagram.slot();
                pair.devices[1].release(slot);
            }
        };
        for count in 0..sent {
            while !pair.post(DeviceQueue::Polled, DeviceQueue::Polled, count, 24, 0, 300) {
                pair.devices[0].flush(DeviceQueue::Polled);
                take(&mut pair, &mut numbers);
            }
        }
        pair.devices[0].flush(DeviceQueue::Polled);
        assert!(pair.devices[0].arm(DeviceQueue::Polled) == Armed::Armed, "arming sends the reordered frames");
        let [from, to] = [0, 1].map(|index: usize| pair.devices[index].counters());
        let end = Instant::now() + Duration::from_secs(1);
        while to.received.get() + to.bad_checksum.get() < from.sent.get() && Instant::now() < end {
            take(&mut pair, &mut numbers);
        }
        assert_eq!(from.sent.get(), u64::from(sent) - from.injected_loss.get() + from.injected_duplicates.get());
        assert_eq!((to.bad_checksum.get(), to.received.get()), (from.injected_corruptions.get(), numbers.len() as u64));
        assert_eq!(to.received.get() + to.bad_checksum.get(), from.sent.get(), "only the injected losses");
        let is_close = |count: &Counter, expected: f64| (count.get() as f64 / expected - 1.0).abs() < 0.2;
        assert!(is_close(&from.injected_loss, 1000.0) && is_close(&from.injected_duplicates, 760.0));
        assert!(is_close(&from.injected_reorders, 1976.0) && is_close(&from.injected_corruptions, 988.0));
        let overtaken =
            (0..numbers.len()).map(|at| numbers[..at].iter().rev().take(40).filter(|n| **n > numbers[at]).count());
        assert!((1..=20).contains(&overtaken.max().unwrap()), "overtaken by a few");
    }
}

#[test]
fn reordered_frame_leaves_after_idle_polls() {
    let faults = Faults { reorder: Probability::new(1.0).unwrap(), ..Faults::default() };
    let mut pair = Pair::new(&Options { faults, ..options("127.0.0.1") });
    assert!(pair.post(DeviceQueue::Polled, DeviceQueue::Polled, 1, 24, 0, 10));
    pair.devices[0].flush(DeviceQueue::Polled);
    assert_eq!(pair.devices[0].counters().sent.get(), 0);
    for _ in 0..100 {
        assert!(pair.devices[0].receive(DeviceQueue::Polled).is_none());
    }
    assert_eq!(pair.receive(DeviceQueue::Polled, 1).len(), 1);
}

#[test]
fn reordered_frame_leaves_with_the_device() {
    let faults = Faults { reorder: Probability::new(1.0).unwrap(), ..Faults::default() };
    let mut pair = Pair::new(&Options { faults, ..options("127.0.0.1") });
    assert!(pair.post(DeviceQueue::Interrupt, DeviceQueue::Polled, 1, 24, 0, 10));
    pair.devices[0].flush(DeviceQueue::Interrupt);
    pair.devices[0] = Udp::bind(&options("127.0.0.1")).unwrap();
    assert_eq!(pair.receive(DeviceQueue::Polled, 1).len(), 1);
}

#[test]
fn waiter_wakes_for_arrivals_notifications_and_timeouts() {
    let mut pair = Pair::new(&options("127.0.0.1"));
    let bell = pair.devices[1].arrival_waiter(DeviceQueue::Interrupt);
    assert_eq!(bell.wait(Some(Duration::from_millis(1))), WakeReason::TimedOut);
    bell.notify();
    bell.clone().notify();
    assert_eq!(bell.wait(None), WakeReason::Notified);
    assert_eq!(bell.wait(Some(Duration::ZERO)), WakeReason::TimedOut);
    let waiting = std::thread::spawn(move || bell.wait(Some(Duration::from_secs(10))));
    assert_eq!(pair.devices[1].arm(DeviceQueue::Interrupt), Armed::Armed);
    assert!(pair.post(DeviceQueue::Polled, DeviceQueue::Interrupt, 9, 24, 0, 0));
    pair.devices[0].flush(DeviceQueue::Polled);
    assert_eq!(waiting.join().unwrap(), WakeReason::Arrived);
    assert_eq!(pair.receive(DeviceQueue::Interrupt, 1).len(), 1);
}

#[test]
fn arm_reports_datagrams_taken_but_not_handed_out() {
    let mut pair = Pair::new(&options("127.0.0.1"));
    for count in 0..3 {
        assert!(pair.post(DeviceQueue::Polled, DeviceQueue::Polled, count, 24, 0, count * 10));
    }
    pair.devices[0].flush(DeviceQueue::Polled);
    let end = Instant::now() + Duration::from_secs(1);
    while pair.devices[1].receive(DeviceQueue::Polled).is_none() && Instant::now() < end {}
    assert_eq!(pair.devices[1].arm(DeviceQueue::Polled), Armed::Pending);
    assert_eq!(pair.receive(DeviceQueue::Polled, 2).len(), 2);
    while pair.devices[1].receive(DeviceQueue::Polled).is_some() {}
    assert!(pair.devices[1].receive(DeviceQueue::Polled).is_none());
    assert_eq!(pair.devices[1].arm(DeviceQueue::Polled), Armed::Armed);
}

#[test]
fn mtu_is_bounded_and_taken_from_the_link() {
    for mtu in [0, 575, 65508, u32::MAX] {
        let refused = Udp::bind(&Options { mtu: Some(mtu), ..options("127.0.0.1") });
        assert!(matches!(refused, Err(BindError::Mtu(wrong)) if wrong == mtu));
    }
    let device = Udp::bind(&Options { mtu: None, ..options("127.0.0.1") }).unwrap();
    let loopback = socket::link_mtu("127.0.0.1".parse::<IpAddr>().unwrap()).unwrap();
    assert_eq!(device.mtu(), (loopback - 28).min(MTU_MAX));
    assert_eq!(device.limits().mtu, device.mtu() - 4);
}

#[test]
fn device_moves_between_threads() {
    static_assertions::assert_impl_all!(Udp: Send);
    static_assertions::assert_impl_all!(ArrivalWaiter: Send, Sync);
    static_assertions::assert_impl_all!(UdpCounters: Send, Sync);
}
