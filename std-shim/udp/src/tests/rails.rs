//! Several rails between two devices.

use super::*;
use crate::fault_injection::{Cut, CutTarget};

const POLLED: DeviceQueue = DeviceQueue::Polled;

/// Two devices with these rails, connected over all of them.
fn pair(locals: &[&str], options: &Options) -> [Udp; 2] {
    let mut locals = locals.iter().map(|local| local.parse().unwrap());
    let local = locals.next().unwrap();
    let options = Options { local, further_rails: locals.collect(), ..options.clone() };
    let mut devices = [(); 2].map(|()| Udp::bind(&options).unwrap());
    let rails = devices[0].open_rails();
    let path = |device: &Udp, rail| device.local_on(Rail(rail)).unwrap();
    let paths: Vec<Vec<_>> = devices.iter().map(|device| (0..rails).map(|rail| path(device, rail)).collect()).collect();
    for device in &mut devices {
        for (peer, paths) in (0..).map(PeerId).zip(&paths) {
            for (rail, path) in (0..).map(Rail).zip(paths) {
                device.set_rail_path(peer, rail, *path, MTU_MAX).unwrap();
            }
        }
    }
    devices
}

fn post(device: &mut Udp, rail: u8, number: u32) {
    post_number(device, Destination::Peer { peer: PeerId(1), rail: Rail(rail) }, number);
}

/// Rail and number of what arrives until `wanted` datagrams came or a second passed.
fn receive(device: &mut Udp, wanted: usize) -> Vec<(u8, u32)> {
    let (mut got, end) = (Vec::new(), Instant::now() + Duration::from_secs(1));
    while got.len() < wanted && Instant::now() < end {
        while let Some(datagram) = device.receive(POLLED) {
            assert!(datagram.is_from(PeerId(0)) && !datagram.is_from(PeerId(1)));
            got.push((datagram.rail().0, u32::from_le_bytes(*datagram.prefix().first_chunk().unwrap())));
            let slot = datagram.slot();
            device.release(slot);
        }
    }
    got
}

#[test]
fn each_rail_has_its_sockets_and_counters() {
    for gso in [true, false] {
        let [mut from, mut to] = pair(&["127.0.0.1", "::1", "127.0.0.2"], &Options { gso, ..options("127.0.0.1") });
        assert_eq!(from.limits().rails, 3);
        for number in 0..60 {
            post(&mut from, (number % 3) as u8, number);
        }
        from.flush(POLLED);
        let calls = from.counters().send_calls.get();
        assert_eq!(calls, 3, "one for each rail");
        let mut got = receive(&mut to, 60);
        got.sort_unstable();
        let sent = (0..3_u32).flat_map(|rail| (0..20).map(move |round| (rail as u8, 3 * round + rail)));
        assert!(got.iter().copied().eq(sent), "{got:?}");
        for rail in 0..3 {
            let (from, to) = (from.counters(), to.counters());
            let counts = (from.rails[rail].sent.get(), to.rails[rail].received.get());
            assert_eq!((counts, from.rails[rail].sent_bytes.get()), ((20, 20), 20 * 28));
        }
    }
}

#[test]
fn a_busy_rail_does_not_hide_another() {
    let [mut from, mut to] = pair(&["127.0.0.1"; 2], &options("127.0.0.1"));
    for round in 0..20 {
        for number in 0..31 {
            post(&mut from, 0, round * 31 + number);
        }
        from.flush(POLLED);
    }
    post(&mut from, 1, u32::MAX);
    from.flush(POLLED);
    let at = receive(&mut to, 621).iter().position(|(rail, _)| *rail == 1).expect("it came");
    assert!(at < 200, "after {at} of the other rail");
}

#[test]
fn arrivals_on_any_rail_wake_a_waiter() {
    for lane in [POLLED, DeviceQueue::Interrupt] {
        let [mut from, mut to] = pair(&["127.0.0.1"; 4], &options("127.0.0.1"));
        let waiter = to.arrival_waiter(lane);
        assert_eq!(waiter.wait(Some(Duration::from_millis(1))), WakeReason::TimedOut);
        assert_eq!(to.arm(lane), Armed::Armed);
        for rail in [3, 1, 0] {
            let mut token = from.token(POLLED).unwrap();
            token.header_room()[..4].copy_from_slice(&9_u32.to_le_bytes());
            let destination = Destination::Peer { peer: PeerId(1), rail: Rail(rail) };
            let transmit = Transmit {
                to: destination,
                queue: lane,
                header_bytes: 24,
                payload: None,
                solicited: false,
                reason: TxReason::First,
            };
            token.post(&transmit, None);
            from.flush(POLLED);
            assert_eq!(waiter.wait(Some(Duration::from_secs(10))), WakeReason::Arrived);
            assert!(to.poll(lane));
            let datagram = to.receive(lane).unwrap();
            let (slot, way) = (datagram.slot(), datagram.rail());
            assert_eq!(way, Rail(rail));
            to.release(slot);
            while to.receive(lane).is_some() {}
        }
        waiter.notify();
        assert_eq!(waiter.wait(None), WakeReason::Notified);
    }
}

#[test]
fn a_link_that_leads_nowhere_is_down_until_it_carries_again() {
    let [mut from, mut to] = pair(&["127.0.0.1", "127.0.0.2"], &options("127.0.0.1"));
    let good = to.local_on(Rail(1)).unwrap();
    // What is bound to the loopback's address reaches nothing beyond it.
    from.set_rail_path(PeerId(1), Rail(1), Path { address: "192.0.2.1".parse().unwrap(), ..good }, MTU_MAX).unwrap();
    for number in 0..4 {
        post(&mut from, number as u8 % 2, number);
    }
    from.flush(POLLED);
    assert_eq!((from.poll_event(), from.poll_event()), (Some(DeviceEvent::Down(Rail(1))), None));
    post(&mut from, 1, 4);
    from.flush(POLLED);
    assert_eq!(from.poll_event(), None, "it is known to be down");
    from.set_rail_path(PeerId(1), Rail(1), good, MTU_MAX).unwrap();
    post(&mut from, 1, 5);
    from.flush(POLLED);
    assert_eq!((from.poll_event(), from.poll_event()), (Some(DeviceEvent::Up(Rail(1))), None));
    let mut got = receive(&mut to, 3);
    got.sort_unstable();
    assert_eq!(got, [(0, 0), (0, 2), (1, 5)]);
    let counters = from.counters();
    assert_eq!((counters.rails[1].link_downs.get(), counters.rails[1].lost.get(), counters.lost()), (1, 3, 3));
    assert_eq!((counters.rails[0].link_downs.get(), counters.rails[0].lost.get()), (0, 0));
}

#[test]
fn a_cut_rail_loses_everything_and_the_other_nothing() {
    for (lasts_ms, arrives) in [(None, false), (Some(0), true)] {
        let cut = Some(Cut { target: CutTarget::Rail(Rail(1)), after_ms: 0, lasts_ms });
        let faults = Faults { cut, ..Faults::default() };
        let [mut from, mut to] = pair(&["127.0.0.1"; 2], &Options { faults, ..options("127.0.0.1") });
        for number in 0..20 {
            post(&mut from, number as u8 % 2, number);
        }
        from.flush(POLLED);
        let wanted = if arrives { 20 } else { 10 };
        let got = receive(&mut to, wanted);
        assert_eq!(got.len(), wanted);
        assert!(arrives || got.iter().all(|(rail, _)| *rail == 0));
        let lost = from.counters().rails[1].injected_cut.get();
        assert_eq!((lost, from.counters().injected_cut.get()), if arrives { (0, 0) } else { (10, 10) });
    }
}

#[test]
fn rails_that_cannot_be_opened_are_refused() {
    let bind = |further: &[&str]| {
        let further_rails = further.iter().map(|local| local.parse().unwrap()).collect();
        Udp::bind(&Options { further_rails, ..options("127.0.0.1") })
    };
    assert!(matches!(bind(&["127.0.0.1"; 4]), Err(BindError::Rails(5))));
    let Err(error) = bind(&["240.0.0.1"]) else { panic!("an address of another host") };
    assert!(error.to_string().contains("240.0.0.1"), "{error}");
}

#[test]
fn a_rail_that_opens_later_carries_datagrams_and_wakes_waiters() {
    for first in ["127.0.0.1", "::1"] {
        let [mut from, mut to] = pair(&[first], &Options { rails_max: 2, ..options(first) });
        assert_eq!((from.limits().rails, from.open_rails()), (2, 1));
        assert_eq!((from.poll_event(), from.poll_event()), (Some(DeviceEvent::Down(Rail(1))), None));
        // Nothing leaves over another rail in its place.
        post(&mut from, 1, 0);
        post(&mut from, 0, 1);
        from.flush(POLLED);
        assert_eq!(receive(&mut to, 1), [(0, 1)]);
        let waiter = to.arrival_waiter(POLLED);
        assert!(from.local_on(Rail(1)).is_err());
        for device in [&mut from, &mut to] {
            let (rail, path) = device.open_rail("127.0.0.2".parse().unwrap()).unwrap();
            assert_eq!((rail, path), (Rail(1), device.local_on(Rail(1)).unwrap()));
            assert!(matches!(device.open_rail("127.0.0.2".parse().unwrap()), Err(BindError::Rails(3))));
        }
        assert_eq!((from.poll_event(), from.poll_event()), (Some(DeviceEvent::Up(Rail(1))), None));
        let paths = [&from, &to].map(|device| device.local_on(Rail(1)).unwrap());
        for device in [&mut from, &mut to] {
            for (peer, path) in (0..).map(PeerId).zip(paths) {
                device.set_rail_path(peer, Rail(1), path, MTU_MAX).unwrap();
            }
        }
        while to.receive(POLLED).is_some() {}
        assert_eq!(to.arm(POLLED), Armed::Armed);
        post(&mut from, 1, 2);
        from.flush(POLLED);
        assert_eq!(waiter.wait(Some(Duration::from_secs(10))), WakeReason::Arrived);
        assert_eq!(receive(&mut to, 1), [(1, 2)]);
        assert_eq!((from.counters().rails[1].sent.get(), to.counters().rails[1].received.get()), (1, 1));
    }
}

#[test]
fn a_rail_that_is_given_up_leaves_no_socket() {
    let mut device = Udp::bind(&Options { rails_max: 2, ..options("127.0.0.1") }).unwrap();
    device.open_rail("127.0.0.2".parse().unwrap()).unwrap();
    let socket = Arc::downgrade(&device.polled.rails[1].socket);
    device.polled.remove_last();
    assert!(socket.upgrade().is_none());
}

#[test]
fn a_rail_on_a_narrower_link_is_refused() {
    let mut device = Udp::bind(&Options { rails_max: 2, mtu: Some(MTU_MAX), ..options("127.0.0.1") }).unwrap();
    let refused = device.open_rail("::1".parse().unwrap());
    assert!(matches!(refused, Err(BindError::Narrow { mtu: MTU_MAX, .. })), "{refused:?}");
    assert_eq!(device.open_rails(), 1);
}
