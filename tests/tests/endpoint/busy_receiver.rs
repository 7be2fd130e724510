//! A receiver that computes and does not poll (Koop et al. 2007, Fig. 2) is asked rarely and sent nothing again.

use unisono_core::device::TxReason;
use unisono_core::endpoint::Event;
use unisono_core::time::units;
use unisono_tests::sim::node::{SimProcess, job};
use unisono_tests::sim::{Config, Network, NodeId};

const SECOND: u64 = 1_000_000_000;
/// As over UDP.
const GRANULARITY_NS: u64 = 250_000;

/// Sends messages and waits until all are acknowledged, while the receiver computes until then. Returns the counts of
/// probes and of resent data since.
fn send_to_one_who_computes(network: &Network, nodes: &mut [SimProcess<64>], messages: u32, until: u64) -> [u64; 2] {
    let count = |node: &SimProcess<64>| {
        let resent = [TxReason::ResentNack, TxReason::ResentProbe].map(|cause| node.inbox.counters.sent_for(cause));
        [node.inbox.counters.sent_for(TxReason::Probe), resent[0] + resent[1]]
    };
    let before = count(&nodes[0]);
    if until > network.now() {
        network.busy(NodeId(1), until);
    }
    for _ in 0..messages {
        nodes[0].send(NodeId(1), &[7; 1000]).expect("room");
    }
    let mut completed = 0;
    while let Some(step) = network.step_until(until + SECOND) {
        let node = &mut nodes[step.node.0 as usize];
        let events = node.drive(step.lane);
        completed += events.iter().filter(|event| matches!(event, Event::Completed(_, Ok(())))).count() as u32;
        assert!(!events.iter().any(|event| matches!(event, Event::PeerSilent(_))), "a second is no silence");
        if completed == messages {
            break;
        }
    }
    assert_eq!(completed, messages);
    assert!(network.now() >= until);
    let after = count(&nodes[0]);
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn receiver_that_computes_for_a_second_gets_few_probes_and_no_data_again() {
    for messages in [1, 20, 100] {
        let network = Network::new(1, Config::default());
        let mut nodes = job::<64>(&network, 2, |config, _| config.granularity = units(GRANULARITY_NS));
        // Without and with an estimate of the round trip.
        for known in [false, true] {
            let until = network.now() + SECOND;
            let [probes, resent] = send_to_one_who_computes(&network, &mut nodes, messages, until);
            assert!((1..=12).contains(&probes), "{probes} probes for {messages} messages, estimate {known}");
            assert_eq!(resent, 0, "data resent for {messages} messages, estimate {known}");
            let now = network.now();
            send_to_one_who_computes(&network, &mut nodes, 500, now);
        }
    }
}
