//! The window pool: more peers than windows, and jobs with more ranks than one call handles.

use unisono_core::endpoint::Event;
use unisono_core::endpoint::operation::EnqueueError;
use unisono_core::ids::{Incarnation, PeerId, PlacementId, RemoteKey};
use unisono_core::span::Span;
use unisono_tests::sim::node::{SimProcess, job};
use unisono_tests::sim::{Config, Network, NodeId};

const SECOND: u64 = 1_000_000_000;

fn run(
    network: &Network,
    nodes: &mut [SimProcess<64>],
    until: u64,
    mut done: impl FnMut(&mut SimProcess<64>, Vec<Event>) -> bool,
) -> bool {
    while let Some(step) = network.step_until(until) {
        let node = &mut nodes[step.node.0 as usize];
        let events = node.drive(step.lane);
        if done(node, events) {
            return true;
        }
    }
    false
}

#[test]
fn watched_peers_do_not_keep_windows_from_those_who_send() {
    let network = Network::new(3, Config::default());
    let mut nodes = job::<64>(&network, 5, |_, sizes| sizes.windows = 2);
    let now = network.now();
    // As many as there are windows: a receive from each of them is pending.
    for peer in [1, 2] {
        assert!(nodes[0].endpoint.watch(now, NodeId(peer).into(), true));
    }
    for peer in [3, 4, 1] {
        nodes[0].send(NodeId(peer), b"a grant").expect("room");
    }
    let mut arrived = 0;
    let all = run(&network, &mut nodes, now + SECOND, |node, _| {
        arrived += node.take_messages().len();
        arrived == 3
    });
    assert!(all, "{arrived} of 3 messages left");
    // Repeated from time to time, as waiting callers do, the watch gets its window again.
    network.crash(NodeId(2));
    let died = network.now();
    let mut silent = false;
    for look in 1..200 {
        let now = network.now();
        for peer in [1, 2] {
            nodes[0].endpoint.watch(now, NodeId(peer).into(), true);
        }
        nodes[0].wake();
        silent |= run(&network, &mut nodes, died + look * SECOND / 50, |_, events| {
            events.contains(&Event::PeerSilent(NodeId(2).into()))
        });
    }
    assert!(silent, "a death goes unnoticed");
}

#[test]
fn lacks_windows_while_none_is_free() {
    let network = Network::new(3, Config::default());
    let mut nodes = job::<64>(&network, 4, |_, sizes| sizes.windows = 2);
    assert!(!nodes[0].endpoint.lacks_windows());
    for (peer, is_last) in [(1, false), (2, true)] {
        nodes[0].send(NodeId(peer), b"takes a window").expect("room");
        assert_eq!(nodes[0].endpoint.lacks_windows(), is_last);
    }
}

#[test]
fn endpoint_of_a_large_job_sends_bye_without_being_polled_again() {
    let network = Network::new(3, Config::default());
    let mut nodes = job::<64>(&network, 400, |_, sizes| sizes.windows = 4);
    nodes[0].send(NodeId(399), b"last words").expect("room");
    run(&network, &mut nodes, SECOND, |_, _| false);
    for i in [0, 399] {
        nodes[i].endpoint.shutdown();
        nodes[i].wake();
    }
    let mut gone = 0;
    let left = run(&network, &mut nodes, 2 * SECOND, |node, events| {
        assert!(events.iter().all(|event| matches!(event, Event::PeerFinished(_))), "{events:?}");
        gone += u32::from(node.endpoint.is_closed());
        gone == 2
    });
    assert!(left, "the shutdown stops half way");
}

#[test]
fn endpoint_that_gives_up_sends_no_more_data() {
    let network = Network::new(3, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    for _ in 0..5 {
        nodes[0].send(NodeId(1), &[7; 500]).expect("room");
    }
    // An aborting endpoint takes its memory back: data sent now would be truncated.
    nodes[0].endpoint.abort();
    let mut failed = false;
    run(&network, &mut nodes, SECOND, |node, events| {
        failed |= node.id == NodeId(1) && events.contains(&Event::PeerFailed(NodeId(0).into()));
        false
    });
    assert_eq!(nodes[1].take_messages(), []);
    assert!(failed, "the other is notified");
}

#[test]
fn giving_up_is_passed_on_to_those_who_had_nothing_to_do_with_it() {
    let network = Network::new(3, Config::default());
    let mut nodes = job::<64>(&network, 4, |_, _| {});
    nodes[1].send(NodeId(2), b"the only one who knows").expect("room");
    run(&network, &mut nodes, SECOND, |_, _| false);
    nodes[2].endpoint.abort();
    nodes[2].wake();
    let mut reported = [false; 4];
    run(&network, &mut nodes, 2 * SECOND, |node, events| {
        reported[node.id.0 as usize] |= events.contains(&Event::PeerFailed(NodeId(2).into()));
        false
    });
    assert_eq!(reported, [true, true, false, true]);
}

#[test]
fn placement_that_no_datagram_can_carry_is_refused_at_once() {
    let network = Network::new(3, Config::default());
    let mut node = SimProcess::<64>::new(&network, network.add_node(), 1, |_, sizes| sizes.peers = 2);
    let from = Span { bytes: 9, ..Span::default() };
    for mtu in [0, 24, 32, 39] {
        node.endpoint.add_peer(network.now(), PeerId(1), Incarnation(mtu + 2), mtu);
        while node.endpoint.poll_event(network.now()).is_some() {}
        let placed = node.endpoint.place(network.now(), PeerId(1), PlacementId(0), RemoteKey(1), from);
        assert_eq!(placed, Err(EnqueueError::TooLong), "{mtu}");
    }
}

#[test]
fn deaths_among_more_watched_peers_than_windows_are_noticed_while_others_send() {
    const PEERS: u32 = 24;
    const DEAD: [u32; 3] = [5, 13, 22];
    let network = Network::new(3, Config::default());
    let mut nodes = job::<64>(&network, PEERS + 1, |_, sizes| sizes.windows = 4);
    for dead in DEAD {
        network.crash(NodeId(dead));
    }
    let mut silent = Vec::new();
    // Looked at every 20 ms, as processes do, and something is sent all the time.
    for look in 1..300_u64 {
        let now = network.now();
        for peer in 1..=PEERS {
            nodes[0].endpoint.watch(now, PeerId(peer), true);
        }
        for other in 0..4 {
            let to = NodeId((look * 4 + other) as u32 % PEERS + 1);
            if !DEAD.contains(&to.0) {
                nodes[0].send(to, b"busy").expect("room");
            }
        }
        nodes[0].wake();
        run(&network, &mut nodes, look * SECOND / 50, |node, events| {
            if node.id == NodeId(0) {
                for event in events {
                    if let Event::PeerSilent(peer) = event {
                        silent.push(peer.0);
                        node.endpoint.fail(network.now(), peer);
                    }
                }
            }
            false
        });
    }
    silent.sort_unstable();
    assert_eq!(silent, DEAD, "whose silence was noticed within 6 s");
}
