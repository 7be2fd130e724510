//! Configuration of a simulated network.

use core::num::NonZeroU64;

use unisono_udp::fault_injection::Faults;

use super::adapter::AdapterCost;
use super::subnet_manager::SubnetDelays;

/// Bytes of checksum that each datagram carries besides header and payload.
pub const CHECKSUM: u32 = 4;

/// When a posting is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Completion {
    /// With the flush, as a socket does.
    #[default]
    Flush,
    /// This many nanoseconds after the flush, as an adapter does: acknowledgements may come earlier. The network checks
    /// that the payload was not changed meanwhile.
    After(u64),
}

/// How a node is connected. The same for all nodes unless [`Network::set_link`](super::Network::set_link) says
/// otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Rate towards the node, checksum and `overhead` included. `None`: unlimited, and no queue.
    pub ingress_bytes_per_s: Option<NonZeroU64>,
    /// Rate from the node.
    pub egress_bytes_per_s: Option<NonZeroU64>,
    /// Nanoseconds from a sender to the queue before this node.
    pub propagation_ns: u64,
    /// Upper bound in nanoseconds of a random delay, drawn for each datagram.
    pub jitter_ns: u64,
    /// Datagrams that can wait for the ingress link; those beyond are dropped.
    pub queue: u32,
    /// Bytes that each datagram costs on the link besides its own and the checksum's (66 on Ethernet with IPv4 and
    /// UDP).
    pub overhead: u32,
}

impl Default for Link {
    /// 5 µs and no limit of rate: a round trip takes 10 µs.
    fn default() -> Self {
        Self {
            ingress_bytes_per_s: None,
            egress_bytes_per_s: None,
            propagation_ns: 5_000,
            jitter_ns: 0,
            queue: 1024,
            overhead: 0,
        }
    }
}

/// A network: its devices, its links and its faults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// Largest datagram, checksum excluded; with adapters, largest message over a connection.
    pub mtu: u32,
    /// Datagrams that a lane of a device keeps until they are received and released.
    pub receive_slots: u32,
    /// Datagrams that a device can set aside.
    pub holdable: u32,
    /// Postings of a lane that may be unfinished.
    pub ring: u32,
    /// Whether there is an interrupt lane.
    pub interrupts: bool,
    /// Shortest useful timeout in nanoseconds.
    pub granularity_ns: u32,
    /// When postings are finished.
    pub completion: Completion,
    /// Whether a payload may change before its posting is finished, as memory does that peers write.
    pub exposes_memory: bool,
    /// Links of each node, 1 to 8.
    pub rails: u8,
    /// Multicast groups that a device can be a member of.
    pub groups: u32,
    /// Nanoseconds until the network knows a new member, without a subnet manager.
    pub join_ns: u64,
    /// A subnet manager handles the requests of members.
    pub subnet: Option<SubnetDelays>,
    /// The links.
    pub link: Link,
    /// The adapters; `None`: they cost nothing.
    pub adapter: Option<AdapterCost>,
    /// Faults of frames in transit. The seed is drawn from the network's.
    pub faults: Faults,
    /// Nanoseconds without a frame between two nodes after which frames held back for reordering leave.
    pub overtaking_ns: u64,
}

impl Default for Config {
    /// A network that loses nothing until a queue is full.
    fn default() -> Self {
        Self {
            mtu: 1468,
            receive_slots: 256,
            holdable: 64,
            ring: 64,
            exposes_memory: false,
            interrupts: true,
            granularity_ns: 10_000,
            completion: Completion::Flush,
            rails: 1,
            groups: 8,
            join_ns: 0,
            subnet: None,
            link: Link::default(),
            adapter: None,
            faults: Faults::default(),
            overtaking_ns: 20_000,
        }
    }
}
