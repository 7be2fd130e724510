//! Ends of incarnations: which peers are notified, and when.

use alloc::rc::Rc;
use core::cell::Cell;

use unisono_core::device::{Device as _, DeviceQueue, Token as _};
use unisono_core::endpoint::Event;
use unisono_core::endpoint::peer::PeerState;
use unisono_core::ids::Incarnation;
use unisono_core::progress::make_progress;
use unisono_core::wire::{DatagramKind, Header};
use unisono_tests::sim::node::{SimProcess, job};
use unisono_tests::sim::{Config, Network, NodeId, TamperVerdict};

const SECOND: u64 = 1_000_000_000;

fn run(network: &Network, nodes: &mut [SimProcess<64>], until: u64, mut saw: impl FnMut(NodeId, Event)) {
    while let Some(step) = network.step_until(until) {
        let node = &mut nodes[step.node.0 as usize];
        for event in node.drive(step.lane) {
            saw(node.id, event);
        }
    }
}

#[test]
fn abort_reaches_peers_after_bye() {
    let network = Network::new(3, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    nodes[0].send(NodeId(1), b"a start").expect("room");
    run(&network, &mut nodes, SECOND, |_, _| {});
    network.tamper(|passing| match Header::<32>::parse(passing.bytes) {
        Ok(header) if header.kind == DatagramKind::Bye => TamperVerdict::Take,
        _ => TamperVerdict::Pass,
    });
    nodes[0].endpoint.shutdown();
    // The first Bye leaves, and is lost.
    nodes[0].drive(DeviceQueue::Polled);
    assert!(!nodes[0].endpoint.is_closed());
    nodes[0].endpoint.abort();
    nodes[0].wake();
    let mut reported = false;
    run(&network, &mut nodes, 2 * SECOND, |node, event| {
        reported |= (node, event) == (NodeId(1), Event::PeerFailed(NodeId(0).into()));
    });
    assert!(reported, "no second Bye is sent to a peer");
}

#[test]
fn a_peer_that_does_not_answer_gets_a_bye_in_each_of_three_rounds() {
    let network = Network::new(3, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    nodes[0].send(NodeId(1), b"a start").expect("room");
    run(&network, &mut nodes, SECOND, |_, _| {});
    let lost = Rc::new(Cell::new(0));
    let count = Rc::clone(&lost);
    network.tamper(move |passing| match Header::<32>::parse(passing.bytes) {
        Ok(header) if header.kind == DatagramKind::Bye => {
            count.set(count.get() + 1);
            TamperVerdict::Take
        }
        _ => TamperVerdict::Pass,
    });
    nodes[0].endpoint.shutdown();
    nodes[0].wake();
    run(&network, &mut nodes, 2 * SECOND, |_, _| {});
    assert!(nodes[0].endpoint.is_closed());
    assert_eq!(lost.get(), 3);
}

#[test]
fn a_failed_peer_is_owed_nothing_although_the_device_still_has_its_datagram() {
    let network = Network::new(3, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    nodes[0].send(NodeId(1), b"a start").expect("room");
    run(&network, &mut nodes, SECOND, |_, _| {});
    nodes[0].send(NodeId(1), b"a message").expect("room");
    let (now, mut device) = (network.now(), network.device(NodeId(0)));
    let SimProcess { endpoint, inbox, .. } = &mut nodes[0];
    let mut token = device.token(DeviceQueue::Polled).expect("the ring is empty");
    let (ticket, room) = (token.ticket(), token.header_room());
    let datagram = endpoint.transmit_batch(now, DeviceQueue::Polled, inbox, |batch| batch.poll_transmit(ticket, room));
    token.post(&datagram.expect("a message is queued"), None);
    assert!(!endpoint.is_acknowledged());
    endpoint.fail(now, NodeId(1).into());
    assert!(endpoint.is_acknowledged());
}

/// Node 1 sends Bye or Abort to node 0, to which its next incarnation is added before it polls events.
fn ends_and_is_added_again(abort: bool) -> (SimProcess<64>, Vec<Event>) {
    let network = Network::new(3, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    nodes[0].send(NodeId(1), b"a start").expect("room");
    run(&network, &mut nodes, SECOND, |_, _| {});
    if abort {
        nodes[1].endpoint.abort()
    } else {
        nodes[1].endpoint.shutdown()
    }
    nodes[1].wake();
    let peer = NodeId(1).into();
    while nodes[0].endpoint.peer_state(peer) == PeerState::Alive {
        let step = network.step_until(2 * SECOND).expect("the end of an incarnation is reported");
        if step.node == NodeId(1) {
            nodes[1].drive(step.lane);
            continue;
        }
        let (now, mut device) = (network.now(), network.device(NodeId(0)));
        let SimProcess { endpoint, memory, inbox, .. } = &mut nodes[0];
        make_progress(now, DeviceQueue::Polled, endpoint, &mut device, memory, inbox, 64);
    }
    let (now, mut node) = (network.now(), nodes.swap_remove(0));
    node.endpoint.add_peer(now, peer, Incarnation(0x5000), 1400);
    let events = core::iter::from_fn(|| node.endpoint.poll_event(now)).collect();
    assert_eq!(node.endpoint.peer_state(peer), PeerState::Alive);
    (node, events)
}

#[test]
fn end_of_an_incarnation_is_reported_after_the_next_began() {
    let peer = NodeId(1).into();
    assert_eq!(ends_and_is_added_again(false).1, [Event::PeerFinished(peer)]);
    let (mut node, events) = ends_and_is_added_again(true);
    assert_eq!(events, [Event::PeerFailed(peer)]);
    // The end of the next incarnation is reported, too.
    node.endpoint.fail(2 * SECOND, peer);
    assert_eq!(node.endpoint.poll_event(2 * SECOND), Some(Event::PeerFailed(peer)));
}

#[test]
fn a_rank_that_leaves_notifies_those_that_it_never_met() {
    let end = |contacts_all: bool, aborts: bool| {
        let network = Network::new(3, Config::default());
        let mut nodes = job::<64>(&network, 3, |_, _| {});
        nodes[0].send(NodeId(1), b"a start").expect("room");
        run(&network, &mut nodes, SECOND, |_, _| {});
        if contacts_all {
            nodes[0].endpoint.contact_all();
        }
        if aborts {
            nodes[0].endpoint.abort()
        } else {
            nodes[0].endpoint.shutdown()
        }
        nodes[0].wake();
        run(&network, &mut nodes, 2 * SECOND, |_, _| {});
        assert!(nodes[0].endpoint.is_closed());
        [1, 2].map(|node: usize| nodes[node].endpoint.peer_state(NodeId(0).into()))
    };
    assert_eq!(end(true, false), [PeerState::Finished; 2]);
    assert_eq!(end(true, true), [PeerState::Failed; 2]);
    assert_eq!(end(false, false), [PeerState::Finished, PeerState::Alive]);
}

/// A Reset that names an incarnation which its sender or its receiver has not got.
#[test]
fn a_reset_of_another_incarnation_ends_nothing() {
    for (of_sender, of_receiver, state) in
        [(1, 0, PeerState::Alive), (0, 1, PeerState::Alive), (0, 0, PeerState::Failed)]
    {
        let network = Network::new(3, Config::default());
        let mut nodes = job::<64>(&network, 2, |_, _| {});
        let is_forged = Rc::new(Cell::new(false));
        let forged = Rc::clone(&is_forged);
        network.tamper(move |passing| {
            if let Ok(header) = Header::<32>::parse(passing.bytes)
                && header.kind == DatagramKind::Acknowledge
                && !forged.replace(true)
            {
                let expected = Incarnation(header.expected.0 ^ of_receiver);
                let psn = header.incarnation.0 ^ of_sender;
                Header { kind: DatagramKind::Reset, expected, psn, ..header }.emit(passing.bytes);
            }
            TamperVerdict::Pass
        });
        nodes[0].send(NodeId(1), b"a start").expect("room");
        run(&network, &mut nodes, SECOND, |_, _| {});
        assert!(is_forged.get());
        assert_eq!(nodes[0].endpoint.peer_state(NodeId(1).into()), state, "{of_sender} {of_receiver}");
    }
}
