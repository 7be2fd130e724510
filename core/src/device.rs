//! What a rim implements so that the core can move datagrams: [`Device`], its [`Token`]s and [`Received`] datagrams, and
//! [`Memory`].
//!
//! The core names memory by [`Span`] and never holds an address; the rim maps spans, the device copies. A token is
//! obtained before the machine is asked what to send, so posting cannot fail and a full ring loses nothing that was
//! counted as sent. The verdict on a datagram precedes any movement of its payload: one copy, straight to its place,
//! before the acknowledgement leaves. Completion is one cumulative [`Ticket`] per lane.

use crate::ids::PeerId;
use crate::span::Span;

/// Bytes of room for headers in every token, and the private bytes shown of every arrival.
pub const HEAD: usize = 64;

/// A queue of the device, and of the receiver that a datagram is meant for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Lane {
    /// Read by whoever makes progress.
    #[default]
    Polled,
    /// A second queue pair, socket or doorbell that a blocked thread waits on.
    Interrupt,
}

/// The n-th posting on its lane, in serial (wrapping) order.
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

/// One received datagram held by the device, valid until it is released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Slot(pub u32);

/// Why a datagram leaves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Cause {
    /// Data sent for the first time.
    First,
    /// Data resent because something sent later arrived.
    ResentNack,
    /// Data resent because a probe was answered.
    ResentProbe,
    /// A header-only probe.
    Probe,
    /// A pure acknowledgement.
    Acknowledge,
    /// Reset, abort, bye or obituary.
    Control,
}

impl Cause {
    /// Their names, by value.
    pub const NAMES: [&str; 6] = ["first", "resent_nack", "resent_probe", "probe", "acknowledge", "control"];
}

/// A datagram that the core wants sent. Its first `head` bytes stand in the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transmit {
    /// The receiver.
    pub to: PeerId,
    /// The receiver's lane: probes of the hybrid progress mode go to its interrupt lane.
    pub at: Lane,
    /// Bytes of the token's head that are sent, at most [`HEAD`].
    pub head: u8,
    /// Bytes gathered behind the head.
    pub payload: Option<Span>,
    /// Whether the receiver's interrupt lane should raise an event.
    pub solicited: bool,
    /// Why it leaves; for counters.
    pub cause: Cause,
}

/// What a device can do. Constant for its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// Largest datagram in bytes, header and payload, checksum excluded.
    pub mtu: u32,
    /// Datagrams that can wait to be received without loss.
    pub receive_slots: u32,
    /// Early datagrams that [`Device::hold`] can set aside.
    pub holdable: u32,
    /// Shortest useful timeout in nanoseconds: the floor of the retransmission timeout (UDP 250 µs, simulation 10 µs).
    pub granularity_ns: u32,
    /// The link drops nothing by itself: a fixed window suffices.
    pub lossless: bool,
    /// The device has an interrupt lane.
    pub interrupts: bool,
}

/// What a rim asks a device to do about a peer's path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wish {
    /// Make the path ready (address handle); answered by a [`Fact`].
    Resolve(PeerId),
    /// The path is not needed for now.
    Forget(PeerId),
}

/// What a device reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fact {
    /// The path is ready and carries datagrams of up to `mtu` bytes.
    Path {
        /// The peer.
        peer: PeerId,
        /// Largest datagram on this path, checksum excluded.
        mtu: u32,
    },
    /// There is no path to the peer.
    NoPath(PeerId),
    /// The link is down; postings are lost until it is up.
    Down,
    /// The link is up again.
    Up,
}

/// Answer of [`Device::arm`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Armed {
    /// The next arrival raises an event.
    Armed,
    /// Something arrived meanwhile: poll again before sleeping.
    Pending,
}

/// One free send entry. Dropped unused, it goes back.
pub trait Token {
    /// Where payload lies, as the device names it: pointer, (pointer, lkey), bus address, index into a simulator.
    type Address;
    /// The ticket this posting will have.
    fn ticket(&self) -> Ticket;
    /// Memory that no other process can write; the header is built here.
    fn head(&mut self) -> &mut [u8; HEAD];
    /// Posts `transmit.head` bytes of the head, then the payload's `transmit.payload` bytes at `payload`. Cannot fail: an
    /// error of the operating system becomes a loss, counted by the device. The payload must stay unchanged until the
    /// ticket is completed.
    fn post(self, transmit: &Transmit, payload: Option<Self::Address>);
}

/// A datagram, borrowed from the device. Its checksum has been verified by the link or the device.
pub trait Received {
    /// Its name until it is released.
    fn slot(&self) -> Slot;
    /// Its length in bytes, checksum excluded.
    fn bytes(&self) -> u32;
    /// Its first [`HEAD`] bytes, or fewer when it is shorter, in memory that no other process can write.
    fn head(&self) -> &[u8];
    /// Whether its source address or queue pair is that of the peer's path.
    fn is_from(&self, peer: PeerId) -> bool;
    /// Nanoseconds since the link or kernel saw it, where that is known.
    fn age_ns(&self) -> Option<u32>;
}

/// A way to move datagrams. One conformance suite runs over every implementation (`unisono-tests`, `conformance`).
pub trait Device {
    /// Where payload lies, as the device names it.
    type Address: Copy;
    /// A free send entry.
    type Token<'a>: Token<Address = Self::Address>
    where
        Self: 'a;
    /// A received datagram.
    type Received<'a>: Received
    where
        Self: 'a;

    /// What it can do.
    fn limits(&self) -> Limits;
    /// A free send entry of the lane, or `None` while its ring is full.
    fn token(&mut self, lane: Lane) -> Option<Self::Token<'_>>;
    /// Hands all postings of the lane to the link: one `sendmmsg`, one doorbell.
    fn flush(&mut self, lane: Lane);
    /// Every posting up to this ticket is finished, those flushed in error included. Monotonic.
    fn completed(&mut self, lane: Lane) -> Ticket;
    /// The next datagram. It stays valid after the borrow ends, until [`release`](Self::release).
    fn receive(&mut self, lane: Lane) -> Option<Self::Received<'_>>;
    /// The one copy: `bytes` bytes of the datagram from byte `start` on, to `to`. The caller has checked that
    /// `start + bytes` is at most the datagram's length.
    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: Self::Address);
    /// Sets an early datagram aside, out of the ring, so that it occupies no receive slot. Its [`Slot`] keeps its value.
    /// The caller holds at most [`Limits::holdable`] at a time.
    fn hold(&mut self, slot: Slot);
    /// A datagram set aside earlier.
    fn held(&self, slot: Slot) -> Self::Received<'_>;
    /// Gives a datagram's memory back, received or held.
    fn release(&mut self, slot: Slot);
    /// Asks for an event at the next arrival on the lane.
    fn arm(&mut self, lane: Lane) -> Armed;
    /// Carries out a wish; the answer, if any, comes from [`poll_fact`](Self::poll_fact).
    fn ask(&mut self, wish: Wish);
    /// What happened to the link or a path.
    fn poll_fact(&mut self) -> Option<Fact>;
}

/// The rim's table of regions: the only holder of user addresses.
pub trait Memory {
    /// As [`Device::Address`].
    type Address: Copy;
    /// Where the span lies. `None` when the region's life is over or the span is outside it: nothing moves, counted.
    fn address(&self, span: Span) -> Option<Self::Address>;
}
