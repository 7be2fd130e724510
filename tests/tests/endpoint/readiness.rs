//! What an endpoint says of the work that it has.

use unisono_core::device::DeviceQueue;
use unisono_tests::sim::node::{SimProcess, job};
use unisono_tests::sim::{Config, Network, NodeId};

#[test]
fn has_to_transmit_while_a_message_may_be_sent() {
    let network = Network::new(5, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    let run = |nodes: &mut [SimProcess<64>]| {
        while let Some(step) = network.step_until(1_000_000_000) {
            nodes[step.node.0 as usize].drive(step.lane);
        }
    };
    nodes[0].send(NodeId(1), b"first").expect("room");
    nodes[0].wake();
    run(&mut nodes);
    assert!(nodes.iter().all(|node| !node.endpoint.has_to_transmit()), "all is sent and acknowledged");
    nodes[0].send(NodeId(1), b"second").expect("room");
    assert!(nodes[0].endpoint.has_to_transmit(), "a message is queued");
    nodes[0].drive(DeviceQueue::Polled);
    assert!(!nodes[0].endpoint.has_to_transmit(), "it was sent");
    run(&mut nodes);
    nodes[0].endpoint.shutdown();
    assert!(nodes[0].endpoint.has_to_transmit(), "a shutdown sends its last messages");
}
