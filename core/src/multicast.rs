//! Reliable multicast: a stream of segments from a root to all members of a group, over multicast that may lose, double
//! and reorder it.
//!
//! Source: Mamidala's dissertation (2008), ch. 5, on Mamidala, Liu, Panda, "Efficient Barrier and Allreduce on IBA
//! clusters using hardware multicast and adaptive algorithms" (2004): co-roots, delayed acknowledgements, and lazily
//! created and pooled groups.
//!
//! # Rules
//! 1. The root keeps a copy of each of its last `W` segments until all living members have acknowledged it, and sends
//!    nothing beyond them.
//! 2. A member places segments in any order, delivers them in order, and acknowledges what was delivered: itself, and
//!    the edge of all members below it ([`Topology`]). A root frees at the latter edge, so that the death of a co-root
//!    loses nothing.
//! 3. A member that notices a gap reports it at once, with all that is newly missing, to the root or to its co-root. It
//!    has no timer.
//! 4. That one repairs by unicast; a root by multicast if at least half of its children lack the same segment, at most
//!    once per timeout.
//! 5. While a segment is not acknowledged, the root probes the members that lag, with backoff. A probed member answers
//!    with all that is missing, and probes the members below it that lag.
//! 6. When a member fails, it is not waited for. The members below it acknowledge to its parent, which knows the edge
//!    that it reported, and report to it at once. When the root fails, its stream ends: members may differ in what
//!    they have, and know the first segment that is missing.
//! 7. A member that joins gets the stream from the next unsent segment on. The root probes it until it answers.
//! 8. A member that reports at least 7/8 of a sample of segments missing is deaf: the host uses the group no more.
//! 9. A rank that is no leader may get calls by multicast itself: the root lists it between two calls, and its leader
//!    forwards it no later call until a list does not name it. It follows its leader up to the call that it promised, or
//!    that the root had sent, whichever is later.

mod attached;
mod datagram;
mod dynamic_attach;
mod group_policy;
mod group_pool;
mod group_test;
mod members;
mod pool_message;
mod pool_root;
mod reach;
mod receiver;
mod root;
mod stream;
mod topology;
mod unreliable;

pub use self::attached::{AttachedList, AttachedRank, AttachedRanks, Attachment, AttachmentChange, DataSource};
pub use self::datagram::{Body, Datagram, GroupKey, Probe, Report, SEGMENT_HEADER, Segment};
pub use self::dynamic_attach::{AttachChange, AttachConfig, DynamicAttach};
pub use self::group_policy::{BroadcastPath, GroupPolicy};
pub use self::group_pool::{GroupPool, Offer, SlotSet};
pub use self::group_test::{GroupTest, TestState};
pub use self::members::Audience;
pub use self::pool_message::{POOL_MESSAGE, PoolBody, PoolMessage};
pub use self::pool_root::{PoolConfig, PoolRoot};
pub use self::receiver::{Placement, Receiver};
pub use self::root::{Request, Root, WindowFull};
pub use self::stream::{Delivery, GroupMember, Ring, Stream, StreamCounters};
pub use self::topology::{AckMode, Topology};
pub use self::unreliable::{UNRELIABLE_HEADER, UnreliableHeader};

/// The parameters of a stream, equal at all its members. Times in units of 64 ns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamConfig {
    /// Who acknowledges to whom.
    pub topology: Topology,
    /// Members acknowledge each time that this number of segments was delivered, and the last one of those that are queued at the root.
    pub ack_every: u32,
    /// Floor of the probe timeout's margin.
    pub granularity: u32,
    /// Longest time between two probes.
    pub max_interval: u32,
    /// Size of a sample in acknowledged segments: a member is deaf if it reported at least 7/8 as many missing, repeated
    /// reports included. 0: no member is.
    pub deaf_sample: u32,
}
