//! Scenarios of the endpoint over the simulated network.

extern crate alloc;

use alloc::rc::Rc;
use core::cell::RefCell;

use unisono_core::device::{Device, DeviceQueue, TxReason};
use unisono_core::endpoint::Event;
use unisono_core::endpoint::operation::OperationError;
use unisono_core::ids::RemoteKey;
use unisono_core::span::Span;
use unisono_core::wire::{DatagramKind, Flags, Header};
use unisono_tests::sim::node::{SimProcess, job};
use unisono_tests::sim::{Completion, Config, DatagramFate, Link, Network, NodeId};
use unisono_udp::fault_injection::{Faults, Probability};

const SECOND: u64 = 1_000_000_000;

fn chance(value: f64) -> Probability {
    Probability::new(value).expect("a probability")
}

fn faulty() -> Faults {
    Faults {
        loss: chance(0.05),
        reorder: chance(0.05),
        duplicate: chance(0.02),
        corrupt: chance(0.01),
        ..Faults::default()
    }
}

/// Steps the job until `done` returns true; fails at the deadline.
fn run<const W: usize>(
    network: &Network,
    nodes: &mut [SimProcess<W>],
    deadline: u64,
    mut done: impl FnMut(&mut SimProcess<W>, Vec<Event>) -> bool,
) -> bool {
    while let Some(step) = network.step_until(deadline) {
        let node = &mut nodes[step.node.0 as usize];
        let events = node.drive(step.lane);
        if done(node, events) {
            return true;
        }
    }
    false
}

fn message(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes.max(4)).map(|i| if i < 4 { number.to_le_bytes()[i] } else { (number as usize * 31 + i) as u8 }).collect()
}

fn messages_arrive_in_order(config: Config, seed: u64) -> Vec<SimProcess<64>> {
    let network = Network::new(seed, config);
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    let (mut sent, mut received, mut completed) = (0_u32, 0_u32, 0_u32);
    let count = 3000;
    let finished = run(&network, &mut nodes, 20 * SECOND, |node, events| {
        if node.id == NodeId(0) {
            completed += events.iter().filter(|event| matches!(event, Event::Completed(_, Ok(())))).count() as u32;
            while sent < count && node.send(NodeId(1), &message(sent, sent as usize * 7 % 1400)).is_ok() {
                sent += 1;
            }
        } else {
            for (_, bytes) in node.take_messages() {
                assert_eq!(bytes, message(received, received as usize * 7 % 1400), "message {received}");
                received += 1;
            }
        }
        received == count && completed == count
    });
    assert!(finished, "{received} of {count} received, {completed} completed, {:?}", nodes[0].inbox.counters);
    nodes
}

#[test]
fn messages_arrive_once_and_in_order_without_faults() {
    let nodes = messages_arrive_in_order(Config::default(), 1);
    assert_eq!(nodes[0].inbox.counters.data_sent(), 3000);
    assert_eq!(nodes[0].inbox.counters.sent_for(TxReason::Probe), 0);
}

/// Sends a message there and back `trips` times. Returns the datagrams of each side that were acknowledgements only,
/// and probes.
fn ping_pong(network: &Network, nodes: &mut [SimProcess<64>], trips: u32) -> [[u64; 2]; 2] {
    let counts = |nodes: &[SimProcess<64>]| {
        [TxReason::Acknowledge, TxReason::Probe].map(|cause| [0, 1].map(|i| nodes[i].inbox.counters.sent_for(cause)))
    };
    let before = counts(nodes);
    let mut left = 2 * trips;
    nodes[0].send(NodeId(1), b"there").expect("room");
    let finished = run(network, nodes, network.now() + SECOND, |node, _| {
        for (from, _) in node.take_messages() {
            left -= 1;
            if left > 0 {
                node.send(NodeId(from.0), b"and back").expect("room");
            }
        }
        left == 0
    });
    assert!(finished, "{left} of {} did not come", 2 * trips);
    let after = counts(nodes);
    core::array::from_fn(|cause| core::array::from_fn(|i| after[cause][i] - before[cause][i]))
}

#[test]
fn answers_acknowledge_and_the_path_is_measured_now_and_then() {
    let network = Network::new(5, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    ping_pong(&network, &mut nodes, 20);
    let [acknowledgements, probes] = ping_pong(&network, &mut nodes, 1000);
    // 1000 round trips of 10 µs; every 1.28 ms one is measured.
    assert!(acknowledgements.iter().all(|count| (4..=10).contains(count)), "{acknowledgements:?}");
    assert_eq!(probes, [0, 0]);
}

#[test]
fn path_that_became_longer_is_measured_at_once() {
    let network = Network::new(6, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    ping_pong(&network, &mut nodes, 200);
    for id in [NodeId(0), NodeId(1)] {
        network.set_link(id, Link { propagation_ns: 15_000, ..Link::default() });
    }
    // Until it is measured, every answer comes after a timeout.
    let [_, probes] = ping_pong(&network, &mut nodes, 40);
    assert!(probes.iter().all(|count| (1..=8).contains(count)), "{probes:?}");
}

#[test]
fn messages_arrive_once_and_in_order_under_faults() {
    for seed in 0..8 {
        let completion = if seed % 2 == 0 { Completion::Flush } else { Completion::After(30_000) };
        let config = Config { faults: faulty(), completion, ..Config::default() };
        let nodes = messages_arrive_in_order(config, seed);
        assert!(nodes[0].inbox.counters.data_sent() < 3800, "{:?}", nodes[0].inbox.counters);
    }
}

#[test]
fn placement_lands_in_the_granted_span_under_faults() {
    for seed in 0..4 {
        let network = Network::new(seed, Config { faults: faulty(), ..Config::default() });
        let mut nodes = job::<64>(&network, 2, |_, _| {});
        let bytes = 1_000_003_usize;
        let data = message(9, bytes);
        let region = nodes[1].memory.make(bytes + 64);
        let to = Span { region, offset: 32, bytes: bytes as u32 };
        let placement = nodes[1].endpoint.grant(NodeId(0).into(), to, RemoteKey(77)).expect("room");
        let source = nodes[0].memory.make(bytes);
        nodes[0].memory.write(source, 0, &data).expect("room");
        let from = Span { region: source, offset: 0, bytes: bytes as u32 };
        nodes[0].endpoint.place(network.now(), NodeId(1).into(), placement, RemoteKey(77), from).expect("room");
        nodes[0].wake();
        let (mut delivered, mut completed) = (false, false);
        let finished = run(&network, &mut nodes, 10 * SECOND, |_, events| {
            delivered |= events.contains(&Event::Delivered(placement, bytes as u32));
            completed |= events.iter().any(|event| matches!(event, Event::Completed(_, Ok(()))));
            delivered && completed
        });
        assert!(finished, "{:?}", nodes[0].inbox.counters);
        let all = nodes[1].memory.read(Span { region, offset: 0, bytes: bytes as u32 + 64 }).expect("alive");
        assert!(all[32..32 + bytes] == data, "bytes differ");
        assert!(all[..32].iter().chain(&all[32 + bytes..]).all(|byte| *byte == 0), "bytes outside the grant");
    }
}

/// Its sender needs the memory back.
#[test]
fn last_segment_of_a_placement_requests_an_acknowledgement() {
    let network = Network::new(5, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    // The round trip is measured.
    ping_pong(&network, &mut nodes, 20);
    let requests: Rc<RefCell<Vec<bool>>> = Rc::default();
    let seen = Rc::clone(&requests);
    network.watch(move |sighting| {
        if let (DatagramFate::Sent, Ok(header)) = (sighting.what, Header::<32>::parse(sighting.head))
            && header.kind == DatagramKind::Segment
        {
            seen.borrow_mut().push(header.flags.contains(Flags::ACK_NOW));
        }
    });
    let bytes = 3 * network.device(NodeId(0)).limits().mtu;
    let [source, target] =
        [0, 1].map(|i: usize| Span { region: nodes[i].memory.make(bytes as usize), offset: 0, bytes });
    let placement = nodes[1].endpoint.grant(NodeId(0).into(), target, RemoteKey(7)).expect("room");
    nodes[0].endpoint.place(network.now(), NodeId(1).into(), placement, RemoteKey(7), source).expect("room");
    nodes[0].wake();
    run(&network, &mut nodes, network.now() + SECOND, |_, _| false);
    assert_eq!(requests.take(), [false, false, false, true]);
}

#[test]
fn placement_under_a_wrong_key_is_refused_and_messages_go_on() {
    let network = Network::new(3, Config { faults: faulty(), ..Config::default() });
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    let region = nodes[1].memory.make(5000);
    let to = Span { region, offset: 0, bytes: 5000 };
    let placement = nodes[1].endpoint.grant(NodeId(0).into(), to, RemoteKey(1)).expect("room");
    let source = nodes[0].memory.make(5000);
    nodes[0].memory.write(source, 0, &[7; 5000]).expect("room");
    let now = network.now();
    let from = Span { region: source, offset: 0, bytes: 5000 };
    let refused = nodes[0].endpoint.place(now, NodeId(1).into(), placement, RemoteKey(2), from).expect("room");
    nodes[0].send(NodeId(1), b"after").expect("room");
    let (mut error, mut arrived) = (None, false);
    let finished = run(&network, &mut nodes, SECOND, |node, events| {
        for event in events {
            if let Event::Completed(operation, Err(why)) = event {
                assert_eq!(operation, refused);
                error = Some(why);
            }
        }
        arrived |= node.id == NodeId(1) && node.take_messages().iter().any(|(_, bytes)| bytes == b"after");
        error.is_some() && arrived
    });
    assert!(finished, "{error:?} {arrived}");
    assert_eq!(error, Some(OperationError::Refused));
    assert!(nodes[1].memory.read(to).expect("alive").iter().all(|byte| *byte == 0));
}

#[test]
fn dead_peer_is_silent_within_the_bound_and_its_operations_fail() {
    let network = Network::new(1, Config::default());
    let mut nodes = job::<64>(&network, 3, |_, _| {});
    nodes[0].send(NodeId(1), b"hello").expect("room");
    nodes[0].send(NodeId(2), b"hello").expect("room");
    run(&network, &mut nodes, 100_000, |_, _| false);
    let is_unanswered = |node: &SimProcess<64>| [1, 2].map(|peer| node.endpoint.is_unanswered(NodeId(peer).into()));
    assert_eq!(is_unanswered(&nodes[0]), [false; 2]);
    run(&network, &mut nodes, SECOND, |_, _| false);
    network.crash(NodeId(1));
    nodes[0].send(NodeId(1), b"never arrives").expect("room");
    let started = network.now();
    let mut silent = None;
    run(&network, &mut nodes, started + 4 * SECOND, |node, events| {
        if node.id == NodeId(0) && events.contains(&Event::PeerSilent(NodeId(1).into())) {
            silent.get_or_insert(network.now());
            assert_eq!(is_unanswered(node), [true, false]);
            node.endpoint.fail(network.now(), NodeId(1).into());
            node.wake();
            return true;
        }
        false
    });
    let silent = silent.expect("silence is reported");
    assert!(silent - started > 2 * SECOND && silent - started < 3 * SECOND, "after {} ns", silent - started);
    let events = nodes[0].drive(DeviceQueue::Polled);
    assert!(events.iter().any(|event| matches!(event, Event::Completed(_, Err(OperationError::PeerFailed)))));
    assert!(events.contains(&Event::PeerFailed(NodeId(1).into())));
    // The death is flooded.
    let mut reported = false;
    run(&network, &mut nodes, network.now() + SECOND, |node, events| {
        reported |= node.id == NodeId(2) && events.contains(&Event::PeerFailed(NodeId(1).into()));
        reported
    });
    assert!(reported);
}

#[test]
fn watched_peer_without_traffic_is_kept_alive_and_noticed_when_it_dies() {
    let network = Network::new(1, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    assert!(nodes[0].endpoint.watch(network.now(), NodeId(1).into(), true));
    nodes[0].wake();
    let quiet = run(&network, &mut nodes, 20 * SECOND, |_, events| !events.is_empty());
    assert!(!quiet, "nothing is reported while it answers");
    let probes = nodes[0].inbox.counters.sent_for(TxReason::Probe);
    assert!((20..=80).contains(&probes), "{probes} probes in 20 s");
    network.crash(NodeId(1));
    let noticed =
        run(&network, &mut nodes, 23 * SECOND, |_, events| events.contains(&Event::PeerSilent(NodeId(1).into())));
    assert!(noticed);
}

#[test]
fn restarted_peer_resets_and_receives_nothing_of_its_former_life() {
    let network = Network::new(5, Config { faults: faulty(), ..Config::default() });
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    for number in 0..100 {
        nodes[0].send(NodeId(1), &message(number, 900)).expect("room");
    }
    run(&network, &mut nodes, 20_000, |_, _| false);
    network.crash(NodeId(1));
    network.restart(NodeId(1));
    nodes[1] = SimProcess::new(&network, NodeId(1), 0x2001, |_, _| {});
    nodes[1].add_peer(NodeId(0), 0x1000);
    let failed = run(&network, &mut nodes, SECOND, |node, events| {
        node.id == NodeId(0) && events.contains(&Event::PeerFailed(NodeId(1).into()))
    });
    assert!(failed, "a reset ends the former life");
    assert!(nodes[1].take_messages().is_empty());
    nodes[0].add_peer(NodeId(1), 0x2001);
    nodes[0].send(NodeId(1), b"new life").expect("room");
    let mut arrived = Vec::new();
    run(&network, &mut nodes, 2 * SECOND, |node, _| {
        if node.id == NodeId(1) {
            arrived.extend(node.take_messages());
        }
        !arrived.is_empty()
    });
    assert_eq!(arrived, [(NodeId(0).into(), b"new life".to_vec())]);
}

#[test]
fn everyone_leaves_after_byes() {
    let network = Network::new(5, Config { faults: faulty(), ..Config::default() });
    let mut nodes = job::<64>(&network, 4, |_, _| {});
    for from in 0..4 {
        for to in (0..4).filter(|to| *to != from) {
            nodes[from as usize].send(NodeId(to), b"last words").expect("room");
        }
    }
    let mut received = 0;
    run(&network, &mut nodes, SECOND, |node, _| {
        received += node.take_messages().len();
        received == 12
    });
    assert_eq!(received, 12);
    for node in &mut nodes {
        node.endpoint.shutdown();
        node.wake();
    }
    let mut gone = [false; 4];
    run(&network, &mut nodes, 2 * SECOND, |node, events| {
        assert!(events.iter().all(|event| !matches!(event, Event::PeerFailed(_) | Event::PeerSilent(_))), "{events:?}");
        gone[node.id.0 as usize] |= node.endpoint.is_closed();
        gone == [true; 4]
    });
    assert_eq!(gone, [true; 4]);
}

#[test]
fn more_active_peers_than_windows_take_turns() {
    let network = Network::new(5, Config { faults: faulty(), ..Config::default() });
    let mut nodes = job::<64>(&network, 12, |_, sizes| sizes.windows = 2);
    for round in 0..20_u32 {
        for to in 1..12 {
            nodes[0].send(NodeId(to), &message(round, 100)).expect("room");
        }
    }
    let mut received = [0_u32; 12];
    run(&network, &mut nodes, 20 * SECOND, |node, _| {
        for (_, bytes) in node.take_messages() {
            assert_eq!(bytes, message(received[node.id.0 as usize], 100));
            received[node.id.0 as usize] += 1;
        }
        received[1..] == [20; 11]
    });
    assert_eq!(received[1..], [20; 11], "{:?}", nodes[0].inbox.counters);
}
