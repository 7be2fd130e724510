//! Postings on both queues of a device: memory returns after the completion of the queue that it was posted on.

use unisono_core::device::{Device, DeviceQueue, Posting, Ticket, Token};
use unisono_core::endpoint::Event;
use unisono_core::progress::receive;
use unisono_tests::sim::node::{SimProcess, job};
use unisono_tests::sim::{Config, Network, NodeId};

const POLLED: DeviceQueue = DeviceQueue::Polled;
const INTERRUPT: DeviceQueue = DeviceQueue::Interrupt;

/// Node 0 sends a message on each queue, and node 1 has acknowledged both. Returns the process and the messages' tickets.
fn sent_on(network: &Network, queues: [DeviceQueue; 2]) -> (SimProcess<64>, [Ticket; 2]) {
    let mut nodes = job::<64>(network, 2, |_, _| {});
    let warm_up = |nodes: &mut [SimProcess<64>]| {
        while let Some(step) = network.step_until(1_000_000) {
            nodes[step.node.0 as usize].drive(step.lane);
        }
    };
    // Credit for more than one segment arrives with the acknowledgement of the first.
    nodes[0].send(NodeId(1), b"first").expect("room");
    nodes[0].send(NodeId(1), b"second").expect("room");
    nodes[0].wake();
    warm_up(&mut nodes);
    let mut sender = nodes.swap_remove(0);
    let (now, mut device) = (network.now(), network.device(NodeId(0)));
    let tickets = queues.map(|queue| {
        sender.send(NodeId(1), b"a message").expect("room");
        let mut token = device.token(queue).expect("the ring is empty");
        let posting = Posting { queue, ticket: token.ticket() };
        let datagram = sender.endpoint.poll_transmit(now, posting, token.header_room()).expect("a message is queued");
        token.post(&datagram, None);
        device.flush(queue);
        posting.ticket
    });
    let mut receiver = nodes.swap_remove(0);
    while let Some(step) = network.step_until(now + 1_000_000) {
        if step.node == receiver.id {
            receiver.drive(step.lane);
        } else {
            let SimProcess { endpoint, memory, inbox, .. } = &mut sender;
            receive(network.now(), step.lane, endpoint, &mut device, memory, inbox, 64);
        }
    }
    (sender, tickets)
}

#[test]
fn either_queue_may_complete_first() {
    for queues in [[POLLED, INTERRUPT], [INTERRUPT, POLLED]] {
        for first in [0, 1] {
            let network = Network::new(3, Config::default());
            let (mut sender, tickets) = sent_on(&network, queues);
            let now = network.now();
            let mut complete = |which: usize| {
                sender.endpoint.handle_completed(now, queues[which], tickets[which]);
                core::iter::from_fn(|| sender.endpoint.poll_event(now))
                    .filter(|event| matches!(event, Event::Completed(_, Ok(()))))
                    .count()
            };
            // Messages complete in order: the second one waits for the first.
            let expected = if first == 0 { [1, 1] } else { [0, 2] };
            assert_eq!([complete(first), complete(1 - first)], expected, "{queues:?}, {first} completes first");
        }
    }
}
