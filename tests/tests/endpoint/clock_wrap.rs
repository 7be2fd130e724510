//! Endpoints that are idle for minutes or hours: every clock of the core wraps, and no timer may be lost or fire for
//! ever.

use unisono_core::device::DeviceQueue;
use unisono_tests::sim::node::{SimProcess, job};
use unisono_tests::sim::{Config, Network, NodeId};
use unisono_udp::fault_injection::{Faults, Probability};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

/// Rests that reach into every part of the wheel's range and beyond its wrap at 73 minutes.
const RESTS: [u64; 9] = [
    5 * MINUTE,
    17 * MINUTE,
    20 * MINUTE,
    35 * MINUTE,
    36 * MINUTE,
    50 * MINUTE,
    73 * MINUTE,
    74 * MINUTE,
    600 * MINUTE,
];

fn lossy() -> Config {
    let loss = Probability::new(0.3).expect("a probability");
    Config { faults: Faults { loss, ..Faults::default() }, ..Config::default() }
}

/// Sends `count` messages. Returns the time until all had arrived, if within two seconds.
fn exchange(network: &Network, nodes: &mut [SimProcess<64>], count: u32) -> Option<u64> {
    let started = network.now();
    for number in 0..count {
        nodes[0].send(NodeId(1), &number.to_le_bytes()).expect("room");
    }
    let mut arrived = 0;
    while let Some(step) = network.step_until(started + 2 * SECOND) {
        nodes[step.node.0 as usize].drive(step.lane);
        arrived += nodes[1].take_messages().len();
        if arrived == count as usize && nodes[0].endpoint.is_acknowledged() {
            return Some(network.now() - started);
        }
    }
    None
}

#[test]
fn endpoint_repairs_after_any_rest_without_calls() {
    for rest in RESTS {
        let network = Network::new(7, lossy());
        let mut nodes = job::<64>(&network, 2, |_, _| {});
        assert!(exchange(&network, &mut nodes, 20).is_some(), "before the rest");
        // Windows retire and every timer ends; then nobody is called for as long as the rest takes.
        let quiet = network.now() + SECOND;
        while let Some(step) = network.step_until(quiet) {
            nodes[step.node.0 as usize].drive(step.lane);
        }
        while network.step_until(quiet + rest).is_some() {}
        let took = exchange(&network, &mut nodes, 20);
        assert!(took.is_some(), "nothing is repaired after {} minutes", rest / MINUTE);
    }
}

#[test]
fn timers_that_were_running_go_off_after_any_rest() {
    for rest in RESTS {
        let network = Network::new(9, lossy());
        let mut nodes = job::<64>(&network, 2, |_, _| {});
        assert!(nodes[0].endpoint.watch(network.now(), NodeId(1).into(), true));
        assert!(exchange(&network, &mut nodes, 20).is_some(), "before the rest");
        // A process that computes calls nothing, although its timers run.
        let end = network.now() + rest;
        while network.step_until(end).is_some() {}
        for node in &mut nodes {
            node.drive(DeviceQueue::Polled);
        }
        assert!(exchange(&network, &mut nodes, 20).is_some(), "nothing is repaired after {} minutes", rest / MINUTE);
        // The watch goes on.
        network.crash(NodeId(1));
        let (died, mut silent) = (network.now(), false);
        while let Some(step) = network.step_until(died + 4 * SECOND) {
            let events = nodes[step.node.0 as usize].drive(step.lane);
            silent |= step.node == NodeId(0) && !events.is_empty();
        }
        assert!(silent, "the watch has stopped after {} minutes", rest / MINUTE);
    }
}
