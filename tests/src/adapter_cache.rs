//! What the cache of queue-pair contexts in adapters costs: reliable connections (RC) against datagrams (UD), after
//! Mamidala (2008), ch. 8, in the simulated network.
//!
//! A message over a connection needs the context of that connection at both ends, a datagram the one of the queue pair
//! for datagrams. The adapter cuts messages over connections into packets, and the endpoint cuts those over datagrams.
//! Acknowledgements of RC itself cost nothing, and nor do hosts, except for events.

pub mod alltoall;
pub mod one_sided;
mod parameters;
pub mod transports;

pub use parameters::{AdapterParameters, BUILT_IN, MESSAGE_BYTES};

use unisono_core::device::{Device, DeviceQueue, Memory, Token, Transmit, TxReason};
use unisono_core::ids::PeerId;
use unisono_core::span::{Region, Span};

use crate::sim::{Network, NodeId};

impl AdapterParameters {
    /// Bytes of host memory for the peers of a rank in a job of `ranks`, of which it has connections with `connected`
    /// (§8.2, "Memory Scaling of RC").
    pub const fn memory(&self, ranks: u64, connected: u64) -> u64 {
        (ranks - 1) * self.peer_bytes + connected * self.connection_bytes
    }
}

/// Posts memory from one node to another, in as many datagrams as it needs.
fn post(network: &Network, [from, to]: [NodeId; 2], region: Region, bytes: usize) {
    let (mut device, memory) = (network.device(from), network.memory(from));
    let (queue, reason, mtu) = (DeviceQueue::Polled, TxReason::First, network.path_mtu(from, to) as usize);
    for offset in (0..bytes).step_by(mtu) {
        let span = Span { region, offset, bytes: mtu.min(bytes - offset) as u32 };
        let to = PeerId::from(to).into();
        let transmit = Transmit { to, queue, header_bytes: 0, payload: Some(span), solicited: false, reason };
        device.token(queue).expect("a posting ends with its flush").post(&transmit, memory.address(span));
        device.flush(queue);
    }
}

#[cfg(test)]
mod tests {
    use super::AdapterParameters;

    #[test]
    fn memory_grows_by_a_connection_and_by_a_peer() {
        let parameters = AdapterParameters { connection_bytes: 1000, peer_bytes: 7, ..AdapterParameters::built_in() };
        assert_eq!(
            [(1, 0), (5, 0), (5, 4)].map(|(ranks, connected)| parameters.memory(ranks, connected)),
            [0, 28, 4028]
        );
    }
}
