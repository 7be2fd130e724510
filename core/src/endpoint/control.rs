//! Control datagrams that wait for a token: the endpoint sends them before everything else, in order.

use super::{Endpoint, Now};
use crate::device::{HEADER_ROOM, Transmit, TxReason};
use crate::endpoint::storage::Storage;
use crate::endpoint::transmit::control;
use crate::ids::{Incarnation, PeerId};
use crate::list::NONE;
use crate::time::Time;
use crate::wire::{Acknowledgement, DatagramKind, Flags, HEADER, Header};

/// A control datagram that waits for a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ControlMessage {
    pub(super) to: u32,
    pub(super) kind: DatagramKind,
    pub(super) flags: Flags,
    pub(super) expected: Incarnation,
    pub(super) psn: u32,
    pub(super) acknowledged: u32,
}

impl ControlMessage {
    /// An unused record.
    pub const FREE: Self = Self {
        to: NONE,
        kind: DatagramKind::Acknowledge,
        flags: Flags::empty(),
        expected: Incarnation(0),
        psn: 0,
        acknowledged: 0,
    };
}

/// The control datagrams that wait, and what limits their number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct ControlQueue<S> {
    /// Records in use: the first ones of the pool, in order.
    pub(super) count: u32,
    /// When a Reset was last sent.
    reset_sent: S,
}

impl<S> ControlQueue<S> {
    pub(super) const fn new(now: S) -> Self {
        Self { count: 0, reset_sent: now }
    }
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Queues a control message; drops it if there is no room, or if an equal one is queued.
    pub(super) fn queue_control(&mut self, notice: ControlMessage) {
        let used = self.control.count as usize;
        let notices = self.records.control_messages.as_mut();
        let same =
            |other: &&ControlMessage| other.to == notice.to && other.kind == notice.kind && other.psn == notice.psn;
        if notices.iter().take(used).any(|other| same(&other)) {
            return;
        }
        if let Some(free) = notices.get_mut(used) {
            *free = notice;
            self.control.count = self.control.count.wrapping_add(1);
        }
    }

    /// Answers a datagram that expects another incarnation of this process, or that a failed one sent.
    pub(super) fn send_reset(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        if header.kind == DatagramKind::Reset || header.kind == DatagramKind::Abort {
            return;
        }
        if S::Time::since(now, self.control.reset_sent).is_some_and(|since| since < self.config.granularity) {
            return;
        }
        self.control.reset_sent = S::Time::stamp(now);
        self.queue_control(ControlMessage {
            to: header.rank,
            kind: DatagramKind::Reset,
            expected: header.incarnation,
            psn: header.expected.0,
            ..ControlMessage::FREE
        });
    }

    /// Builds the first control datagram.
    #[inline(never)]
    pub(super) fn transmit_control(&mut self, head: &mut [u8; HEADER_ROOM]) -> Option<Transmit> {
        let notices = self.records.control_messages.as_mut();
        let notice = *notices.first()?;
        let mut behind = ControlMessage::FREE;
        for place in notices.iter_mut().take(self.control.count as usize).rev() {
            behind = core::mem::replace(place, behind);
        }
        self.control.count = self.control.count.wrapping_sub(1);
        let peer = self.records.peers.as_ref().get(notice.to as usize)?;
        let mut header = self.header_to(peer);
        header.kind = notice.kind;
        header.flags = notice.flags;
        header.expected = notice.expected;
        header.psn = notice.psn;
        let mut length = HEADER as u8;
        if notice.kind == DatagramKind::Acknowledge {
            // Without an echo: the acknowledgement that it repeats is old, and must not feed an estimator.
            let nothing = Acknowledgement { echo: None, ..Acknowledgement::piggybacked(&header) };
            length = nothing.emit(&header, head);
        } else {
            if notice.kind == DatagramKind::PeerDown {
                header.acknowledged = notice.acknowledged;
            }
            header.emit(head);
        }
        Some(control(PeerId(notice.to), length, TxReason::Control))
    }
}
