//! Credit that is returned, carried by data, and granted to peers that have none.

extern crate alloc;

use alloc::rc::Rc;
use core::cell::RefCell;

use unisono_core::device::DeviceQueue;
use unisono_core::time::units;
use unisono_core::wire::{DatagramKind, Flags, Header};
use unisono_tests::sim::node::{SimProcess, job};
use unisono_tests::sim::{Config, DatagramFate, Network, NodeId, TamperVerdict};

const SECOND: u64 = 1_000_000_000;

fn run(network: &Network, nodes: &mut [SimProcess<64>], until: u64) {
    while let Some(step) = network.step_until(until) {
        nodes[step.node.0 as usize].drive(step.lane);
    }
}

#[test]
fn grant_that_was_given_back_long_ago_voids_no_newer_one() {
    let network = Network::new(3, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    let given_back: Rc<RefCell<Vec<u8>>> = Rc::default();
    let taken = Rc::clone(&given_back);
    // The notice is on its way for long.
    network.tamper(move |passing| match Header::<32>::parse(passing.bytes) {
        Ok(header) if header.kind == DatagramKind::Acknowledge && header.flags.contains(Flags::DRAINED) => {
            taken.borrow_mut().clone_from(passing.bytes);
            TamperVerdict::Take
        }
        _ => TamperVerdict::Pass,
    });
    for _ in 0..8 {
        nodes[0].send(NodeId(1), &[7; 500]).expect("room");
    }
    run(&network, &mut nodes, SECOND);
    assert!(!given_back.borrow().is_empty(), "an idle sender gives its grant back");
    let late = given_back.take();
    // A new grant, then the notice, then what the receiver believes it has granted.
    nodes[0].send(NodeId(1), &[7; 500]).expect("room");
    run(&network, &mut nodes, network.now() + 100_000);
    let credit: Rc<RefCell<Option<u16>>> = Rc::default();
    let seen = Rc::clone(&credit);
    network.watch(move |sighting| {
        if (sighting.what, sighting.from) == (DatagramFate::Sent, NodeId(1))
            && let Ok(header) = Header::<32>::parse(sighting.head)
            && header.kind == DatagramKind::Eager
        {
            *seen.borrow_mut() = Some(header.credit);
        }
    });
    network.tamper(|_| TamperVerdict::Pass);
    network.forge(NodeId(0), NodeId(1), DeviceQueue::Polled, &late);
    run(&network, &mut nodes, network.now() + 100_000);
    nodes[1].send(NodeId(0), b"says what is granted").expect("room");
    run(&network, &mut nodes, network.now() + 100_000);
    assert!(credit.borrow().is_some_and(|credit| credit > 0), "{credit:?}");
}

/// Rank 1 answers each message of rank 0.
#[test]
fn data_carry_new_credit_once_half_of_it_is_used() {
    let network = Network::new(4, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    let carried: Rc<RefCell<Vec<u16>>> = Rc::default();
    let seen = Rc::clone(&carried);
    network.watch(move |sighting| {
        if (sighting.what, sighting.from) == (DatagramFate::Sent, NodeId(1))
            && let Ok(header) = Header::<32>::parse(sighting.head)
            && header.kind == DatagramKind::Eager
        {
            seen.borrow_mut().push(header.credit);
        }
    });
    for _ in 0..100 {
        nodes[0].send(NodeId(1), b"there").expect("room");
        let end = network.now() + 30_000;
        while let Some(step) = network.step_until(end) {
            let node = &mut nodes[step.node.0 as usize];
            node.drive(step.lane);
            if !node.take_messages().is_empty() && node.id == NodeId(1) {
                node.send(NodeId(0), b"and back").expect("room");
            }
        }
    }
    let carried = carried.take();
    let share = carried[0];
    let used_or_renewed = |pair: &[u16]| pair[1] + 1 == pair[0] || pair[1] == share;
    assert!(carried.windows(2).all(used_or_renewed), "{carried:?}");
    assert_eq!(carried.iter().min(), Some(&(share / 2)), "{carried:?}");
}

/// The messages of all senders wait for the receiver's next round.
#[test]
fn grant_to_peers_without_credit_waits_for_a_sixteenth_of_the_granularity() {
    const GRANULARITY_NS: u64 = 10_000;
    const BUSY_NS: u64 = 2 * GRANULARITY_NS;
    for senders in 1..4_u32 {
        let network = Network::new(5, Config::default());
        let mut nodes = job::<64>(&network, senders + 1, |config, _| config.granularity = units(GRANULARITY_NS));
        let granted: Rc<RefCell<Vec<(NodeId, u64)>>> = Rc::default();
        let seen = Rc::clone(&granted);
        network.watch(move |sighting| {
            if (sighting.what, sighting.from) == (DatagramFate::Sent, NodeId(0))
                && Header::<32>::parse(sighting.head).is_ok_and(|header| header.credit > 0)
            {
                seen.borrow_mut().push((sighting.to, sighting.at));
            }
        });
        network.busy(NodeId(0), BUSY_NS);
        for sender in &mut nodes[1..] {
            sender.send(NodeId(0), b"first").expect("room");
        }
        run(&network, &mut nodes, BUSY_NS + GRANULARITY_NS / 8);
        let granted = granted.take();
        let to: Vec<NodeId> = granted.iter().map(|(to, _)| *to).collect();
        assert_eq!(to, (1..=senders).map(NodeId).collect::<Vec<_>>(), "{granted:?}");
        // A message may carry the grant until then.
        assert!(granted.iter().all(|(_, at)| *at >= BUSY_NS + GRANULARITY_NS / 32), "{granted:?}");
    }
}
