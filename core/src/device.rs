//! The traits that a host implements to move datagrams: [`Device`] with its [`Token`]s and [`Received`] datagrams, and
//! [`Memory`].
//!
//! The core names memory by [`Span`] and never holds an address; the host maps spans to addresses, the device copies. A
//! token is obtained before the machine is asked for a datagram, so posting cannot fail, and a full ring loses nothing
//! that was counted as sent. The verdict on a datagram precedes any copy of its payload: one copy, straight to its
//! destination, before the acknowledgement is sent. Completion is one cumulative [`Ticket`] per queue.

use core::fmt;

use crate::ids::{GroupId, PeerId, Rail};
use crate::span::Span;

/// Bytes of header room in every token, and of every received datagram's private copy.
pub const HEADER_ROOM: usize = 64;

/// A queue of the device, and of the receiver that a datagram is addressed to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DeviceQueue {
    /// Polled by the thread that makes progress.
    #[default]
    Polled,
    /// A second queue pair, socket or doorbell that a blocked thread waits on.
    Interrupt,
}

/// The n-th posting on its queue, in serial (wrapping) order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ticket(pub u32);

impl Ticket {
    /// The ticket of the next posting.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether this posting is `upto` or an earlier one, at most 2³¹ postings ago.
    pub const fn is_within(self, upto: Self) -> bool {
        upto.0.wrapping_sub(self.0) < 1 << 31
    }
}

/// The place of a datagram among all that were posted: tickets of different queues have no order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Posting {
    /// The queue that it is posted on.
    pub queue: DeviceQueue,
    /// Its place in that queue.
    pub ticket: Ticket,
}

/// A value for each queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PerQueue<V> {
    /// Of [`DeviceQueue::Polled`].
    pub polled: V,
    /// Of [`DeviceQueue::Interrupt`].
    pub interrupt: V,
}

impl<V> PerQueue<V> {
    /// The queue's value.
    #[inline]
    pub const fn get(&self, queue: DeviceQueue) -> &V {
        match queue {
            DeviceQueue::Polled => &self.polled,
            DeviceQueue::Interrupt => &self.interrupt,
        }
    }

    /// The queue's value, to be changed.
    #[inline]
    pub const fn get_mut(&mut self, queue: DeviceQueue) -> &mut V {
        match queue {
            DeviceQueue::Polled => &mut self.polled,
            DeviceQueue::Interrupt => &mut self.interrupt,
        }
    }
}

/// A received datagram in the device's memory, valid until it is released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Slot(pub u32);

/// Why a datagram is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TxReason {
    /// Data sent for the first time.
    First,
    /// Data resent because a segment that was sent later was acknowledged.
    ResentNack,
    /// Data resent because a probe was answered.
    ResentProbe,
    /// A header-only probe.
    Probe,
    /// A pure acknowledgement.
    Acknowledge,
    /// Reset, abort, bye or peer-down notification.
    Control,
}

impl TxReason {
    /// Their names, by value.
    pub const NAMES: [&str; 6] = ["first", "resent_nack", "resent_probe", "probe", "acknowledge", "control"];
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Destination {
    /// To one peer, over one rail.
    Peer {
        /// The peer.
        peer: PeerId,
        /// The rail, less than [`Limits::rails`].
        rail: Rail,
    },
    /// To all members of a multicast group. Whether a sender that is a member receives its own datagram is up to the
    /// device.
    Group(GroupId),
}

impl Destination {
    /// The peer over the first rail.
    #[inline(always)]
    pub const fn first_rail(peer: PeerId) -> Self {
        Self::Peer { peer, rail: Rail(0) }
    }

    /// The peer, for a device that has one rail and no groups: it loses datagrams with any other destination.
    #[inline(always)]
    pub const fn on_first_rail(self) -> Option<PeerId> {
        match self {
            Self::Peer { peer, rail: Rail(0) } => Some(peer),
            Self::Peer { .. } | Self::Group(_) => None,
        }
    }
}

/// The peer over the first rail.
impl From<PeerId> for Destination {
    fn from(peer: PeerId) -> Self {
        Self::first_rail(peer)
    }
}

/// Why a device is not a member of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupError {
    /// The device has no groups.
    Unsupported,
    /// The host has bound the number to no address.
    Unknown(GroupId),
    /// The device is a member of [`Limits::groups`] groups.
    Full,
    /// The operating system or the network refused it.
    Refused(GroupId),
    /// It is no member of the group that it was to leave.
    NotMember(GroupId),
}

impl fmt::Display for GroupError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => to.write_str("the device has no multicast groups"),
            Self::Unknown(GroupId(group)) => write!(to, "multicast group {group} has no address"),
            Self::Full => to.write_str("the device is a member of as many multicast groups as it can be"),
            Self::Refused(GroupId(group)) => write!(to, "the network refused multicast group {group}"),
            Self::NotMember(GroupId(group)) => write!(to, "the device is no member of multicast group {group}"),
        }
    }
}

impl core::error::Error for GroupError {}

/// A datagram to be posted. Its first `head` bytes are in the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transmit {
    /// The receivers.
    pub to: Destination,
    /// The receiver's queue: probes of the hybrid progress mode go to its interrupt queue.
    pub queue: DeviceQueue,
    /// Bytes of the token's header room that are sent, at most [`HEADER_ROOM`].
    pub header_bytes: u8,
    /// Payload that is gathered after the header.
    pub payload: Option<Span>,
    /// Whether the receiver's interrupt queue raises an event.
    pub solicited: bool,
    /// Why it is sent; for counters.
    pub reason: TxReason,
}

impl Transmit {
    /// Bytes of the whole datagram.
    #[inline]
    pub fn bytes(&self) -> u32 {
        u32::from(self.header_bytes).saturating_add(self.payload.map_or(0, |span| span.bytes))
    }
}

/// The constants of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Largest datagram in bytes, header and payload, checksum excluded.
    pub mtu: u32,
    /// Datagrams that can be buffered without loss.
    pub receive_slots: u32,
    /// Early datagrams that [`Device::hold`] can set aside.
    pub holdable: u32,
    /// Shortest useful timeout in nanoseconds: the floor of the retransmission timeout (UDP 250 µs, simulation 10 µs).
    pub granularity_ns: u32,
    /// The link drops nothing by itself: a fixed congestion window suffices.
    pub lossless: bool,
    /// The device has an interrupt queue.
    pub interrupts: bool,
    /// Rails to each peer, at least 1. Those that are not open yet count as down.
    pub rails: u8,
    /// Multicast groups that the device can be a member of at a time; 0: [`Device::join`] is unsupported.
    pub groups: u32,
}

/// A request of the host to a device about a peer's path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathRequest {
    /// Prepare the path of each rail (address handle); a [`DeviceEvent`] follows for each.
    Resolve(PeerId),
    /// The paths are not needed for now.
    Forget(PeerId),
}

/// An event of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeviceEvent {
    /// The path is ready and carries datagrams of up to `mtu` bytes.
    Path {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: Rail,
        /// Largest datagram on this path, checksum excluded.
        mtu: u32,
    },
    /// There is no path to the peer.
    NoPath {
        /// The peer.
        peer: PeerId,
        /// The rail.
        rail: Rail,
    },
    /// The rail's link is down; postings are lost until it is up.
    Down(Rail),
    /// The rail's link is up again.
    Up(Rail),
}

/// The result of [`Device::arm`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Armed {
    /// The next datagram raises an event.
    Armed,
    /// A datagram arrived meanwhile: poll again before sleeping.
    Pending,
}

/// One free send entry. Dropped unused, it is returned.
pub trait Token {
    /// The device's address of payload: pointer, (pointer, lkey), bus address, index into a simulator.
    type Address;
    /// The ticket this posting will have.
    fn ticket(&self) -> Ticket;
    /// The header room, in memory that no other process can write.
    fn header_room(&mut self) -> &mut [u8; HEADER_ROOM];
    /// Posts `transmit.head` bytes of the header room, then the bytes of `transmit.payload`, which is at address
    /// `payload`. Cannot fail: an error of the operating system becomes a loss, counted by the device. The payload must
    /// stay unchanged until the ticket is completed.
    fn post(self, transmit: &Transmit, payload: Option<Self::Address>);
}

/// A datagram, borrowed from the device. Its checksum has been verified by the link or the device.
pub trait Received {
    /// The slot that it occupies until it is released.
    fn slot(&self) -> Slot;
    /// Its length in bytes, checksum excluded.
    fn bytes(&self) -> u32;
    /// Its first [`HEADER_ROOM`] bytes, or all of them if it is shorter, in memory that no other process can write.
    fn prefix(&self) -> &[u8];
    /// Whether its source address or queue pair is that of the peer's path, on any rail.
    fn is_from(&self, peer: PeerId) -> bool;
    /// The rail that it arrived over.
    #[inline(always)]
    fn rail(&self) -> Rail {
        Rail(0)
    }
    /// Nanoseconds since the link or the kernel received it, if known.
    fn age_ns(&self) -> Option<u32>;
}

/// A device that moves datagrams. One conformance suite runs over every implementation (`unisono-tests`,
/// `conformance`).
pub trait Device {
    /// The device's address of payload.
    type Address: Copy;
    /// A free send entry.
    type Token<'a>: Token<Address = Self::Address>
    where
        Self: 'a;
    /// A received datagram.
    type Received<'a>: Received
    where
        Self: 'a;

    /// The device's constants.
    fn limits(&self) -> Limits;
    /// A free send entry of the queue, or `None` while its ring is full.
    fn token(&mut self, queue: DeviceQueue) -> Option<Self::Token<'_>>;
    /// Hands all postings of the queue to the link: one `sendmmsg`, one doorbell.
    fn flush(&mut self, queue: DeviceQueue);
    /// The latest ticket such that every posting up to it is completed, including those flushed in error. Monotonic.
    fn completed(&mut self, queue: DeviceQueue) -> Ticket;
    /// The next datagram. It stays valid after the borrow ends, until [`release`](Self::release).
    fn receive(&mut self, queue: DeviceQueue) -> Option<Self::Received<'_>>;
    /// The single copy: `bytes` bytes of the datagram from byte `start` on, to `to`. The caller has checked that the
    /// datagram has at least `start + bytes` bytes.
    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: Self::Address);
    /// Sets an early datagram aside, out of the ring, so that it occupies no receive slot. Its [`Slot`] keeps its
    /// value. The caller holds at most [`Limits::holdable`] at a time.
    fn hold(&mut self, slot: Slot);
    /// A datagram that was set aside.
    fn held(&self, slot: Slot) -> Self::Received<'_>;
    /// Frees a datagram's slot, received or held.
    fn release(&mut self, slot: Slot);
    /// Requests an event for the next datagram on the queue.
    fn arm(&mut self, queue: DeviceQueue) -> Armed;
    /// Carries out a request; [`poll_event`](Self::poll_event) returns the reply, if any.
    fn request_path(&mut self, request: PathRequest);
    /// The next event of a link or a path.
    fn poll_event(&mut self) -> Option<DeviceEvent>;
    /// Becomes a member of a group, to which it can then send, too. Datagrams to the group that are sent before the
    /// network knows of the membership may be lost. A member that joins again stays one.
    ///
    /// # Errors
    /// [`GroupError::Unsupported`] on a device without groups; see there.
    fn join(&mut self, group: GroupId) -> Result<(), GroupError> {
        let _ = group;
        Err(GroupError::Unsupported)
    }
    /// Leaves a group: no datagram to it arrives that is sent after the network knows.
    ///
    /// # Errors
    /// [`GroupError::Unsupported`] on a device without groups, [`GroupError::NotMember`].
    fn leave(&mut self, group: GroupId) -> Result<(), GroupError> {
        let _ = group;
        Err(GroupError::Unsupported)
    }
}

/// The host's table of memory regions: the only holder of user addresses.
pub trait Memory {
    /// As [`Device::Address`].
    type Address: Copy;
    /// The address of a span. `None` if the region was deregistered or the span exceeds it: then nothing is copied, and
    /// the device counts it.
    fn address(&self, span: Span) -> Option<Self::Address>;
}
