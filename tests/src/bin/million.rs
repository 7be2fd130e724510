//! A million endpoints in one process: jobs of four, each rank sends to the next one under faults.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use unisono_core::device::{Device, DeviceQueue};
use unisono_core::endpoint::operation::Operation;
use unisono_core::endpoint::peer::Peer;
use unisono_core::endpoint::placement::Placement;
use unisono_core::endpoint::storage::Arrays;
use unisono_core::endpoint::{Config, ControlMessage, Endpoint, Handler, Pools, Sender, Verdict};
use unisono_core::ids::{Incarnation, PeerId};
use unisono_core::progress::make_progress;
use unisono_core::time::Nanos;
use unisono_core::window::receive_window::ReceiveWindow;
use unisono_tests::harness::report::{Limit, Report};
use unisono_tests::sim::{self, Network, NodeId};
use unisono_udp::fault_injection::{Faults, Probability};

/// Ranks of a job, segments of a window.
const RANKS: u32 = 4;
const W: usize = 4;
/// Messages that each rank sends to the next one.
const MESSAGES: u32 = 3;

type Small = Endpoint<Arrays<Nanos, { RANKS as usize }, 2, 4, 1, 4>, W, 32>;

/// Runs many small jobs in parallel in the simulated network.
#[derive(Parser)]
struct Options {
    /// Endpoints.
    #[arg(long, default_value_t = 1 << 20)]
    endpoints: u32,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Counts messages that arrive in order from the previous rank.
struct Inbox {
    next: u32,
    wrong: u32,
}

impl Handler for Inbox {
    fn handle_eager(&mut self, _: PeerId, head: &[u8], _: u32) -> Verdict {
        let number = head.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        self.wrong += u32::from(number != Some(self.next));
        self.next += 1;
        Verdict::Release
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::new(0, options.json);
    let started = Instant::now();
    let chance = |value| Probability::new(value).expect("a probability");
    let faults = Faults { loss: chance(0.05), reorder: chance(0.05), duplicate: chance(0.02), ..Faults::default() };
    let network = Network::new(options.seed, sim::Config { faults, ..sim::Config::default() });
    let count = options.endpoints.next_multiple_of(RANKS);
    let mut nodes: Vec<(Small, Inbox)> = (0..count)
        .map(|_| {
            let id = network.add_node();
            (endpoint(&network, id), Inbox { next: 0, wrong: 0 })
        })
        .collect();
    for node in 0..count {
        network.wake_at(NodeId(node), 0);
    }
    let mut finished = 0_u32;
    while finished < count
        && let Some(step) = network.step_until(10_000_000_000)
    {
        let (endpoint, inbox) = &mut nodes[step.node.0 as usize];
        let before = inbox.next;
        let mut device = network.device(step.node).in_job(first(step.node));
        let memory = network.memory(step.node);
        while make_progress(step.at, DeviceQueue::Polled, endpoint, &mut device, &memory, inbox, 16) {}
        while endpoint.poll_event(step.at).is_some() {}
        if let Some(at) = endpoint.poll_timeout(step.at) {
            network.wake_at(step.node, at);
        }
        finished += u32::from(before < MESSAGES && inbox.next == MESSAGES);
    }
    let wrong: u64 = nodes.iter().map(|(_, inbox)| u64::from(inbox.wrong)).sum();
    report.figure("endpoints", "one process", f64::from(count), "endpoints", Limit::None);
    report.figure("finished", "every message", f64::from(finished), "endpoints", Limit::Least(f64::from(count)));
    report.figure("misordered", "messages", wrong as f64, "messages", Limit::Most(0.0));
    report.figure("time", "wall clock", started.elapsed().as_secs_f64(), "s", Limit::None);
    report.figure("size", "an endpoint", size_of::<Small>() as f64, "bytes", Limit::None);
    report.end()
}

const fn first(node: NodeId) -> NodeId {
    NodeId(node.0 - node.0 % RANKS)
}

/// An endpoint that is connected to its job and sends to the next rank.
fn endpoint(network: &Network, id: NodeId) -> Small {
    let limits = network.device(id).limits();
    let rank = id.0 % RANKS;
    let mut endpoint = Small::new(
        0,
        Config::new(PeerId(rank), Incarnation(id.0 + 1), &limits),
        Pools {
            peers: [Peer::UNKNOWN; RANKS as usize],
            senders: [Sender::FREE; 2],
            rails: [],
            receivers: [ReceiveWindow::EMPTY; 2],
            operations: [Operation::FREE; 4],
            placements: [Placement::FREE; 1],
            control_messages: [ControlMessage::FREE; 4],
        },
    );
    for peer in (0..RANKS).filter(|peer| *peer != rank) {
        endpoint.add_peer(0, PeerId(peer), Incarnation(first(id).0 + peer + 1), limits.mtu);
    }
    for number in 0..MESSAGES {
        let sent = endpoint.send(0, PeerId((rank + 1) % RANKS), &number.to_le_bytes(), None);
        assert!(sent.is_ok(), "there is room for {MESSAGES} operations");
    }
    endpoint
}
