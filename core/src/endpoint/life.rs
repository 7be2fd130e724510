//! Lives: meeting, resetting, failing, leaving.

use super::{Endpoint, Leaving, Notice, Now, ORPHAN, READY};
use crate::counters::{Happened, Reason};
use crate::device::{Cause, Fact, HEAD, Lane, PeerId, Transmit};
use crate::list::NONE;
use crate::operation::OperationError;
use crate::peer::{
    Incarnation, LAP, Life, NEWS, NO_WINDOW, PARTED, Peer, TOLD, TOUCHED, WANTS, WATCHED, WINDOWLESS, first_psn,
};
use crate::psn::Psn;
use crate::receive_window::Early;
use crate::storage::Storage;
use crate::time::Time;
use crate::wire::{Flags, HEADER, Header, Kind};

/// Records looked at in one call, where a search goes over all peers.
const STRIDE: u32 = 64;
/// Rounds of Byes.
const FAREWELLS: u8 = 3;

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Bootstrap names a peer's present life; `mtu` is the largest datagram, checksum excluded, that both ends and the
    /// path take. Only this replaces an incarnation: what is under way towards another life of that rank fails.
    pub fn meet(&mut self, now: Now<S, W, BITS>, peer: PeerId, incarnation: Incarnation, mtu: u32) {
        let own = self.config.incarnation;
        let Some(record) = self.peers.as_ref().get(peer.0 as usize) else { return };
        if peer == self.config.rank || record.life() != Life::Unmet && record.incarnation == incarnation {
            return;
        }
        if record.is_alive() {
            self.end(now, peer.0, Life::Failed);
        }
        let Some(record) = self.peer_mut(peer.0) else { return };
        let inbound = crate::inbound::Inbound::new(first_psn(incarnation, own));
        *record = Peer::met(incarnation, inbound, first_psn(own, incarnation), record);
        record.mtu = mtu.min(u32::from(u16::MAX)) as u16;
    }

    /// What is known of a peer's present life.
    pub fn life(&self, peer: PeerId) -> Life {
        self.peers.as_ref().get(peer.0 as usize).map_or(Life::Unmet, |peer| peer.life())
    }

    /// The incarnation that bootstrap named, while it is not known to have ended.
    pub fn incarnation(&self, peer: PeerId) -> Option<Incarnation> {
        self.peers.as_ref().get(peer.0 as usize).filter(|peer| peer.is_alive()).map(|peer| peer.incarnation)
    }

    /// The peer is known to be dead: final for its incarnation. Everything that needs it fails, and the others are told.
    pub fn fail(&mut self, now: Now<S, W, BITS>, peer: PeerId) {
        let Some(record) = self.peers.as_ref().get(peer.0 as usize).filter(|peer| peer.is_alive()) else { return };
        let incarnation = record.incarnation;
        self.end(now, peer.0, Life::Failed);
        self.flood(peer.0, incarnation);
    }

    /// What the peer acknowledges contradicts what was sent to it: it is ended, and told.
    pub(super) fn give_up(&mut self, now: Now<S, W, BITS>, peer: u32) {
        let Some(expected) = self.peers.as_ref().get(peer as usize).map(|peer| peer.incarnation) else { return };
        self.end(now, peer, Life::Failed);
        self.notify(Notice { to: peer, kind: Kind::Abort, expected, ..Notice::FREE });
    }

    /// The device reports a link or a path. Without a path a peer is as good as dead; a link that is down may come up
    /// again: what is lost meanwhile is repaired, and silence is judged as always.
    pub fn handle_fact(&mut self, now: Now<S, W, BITS>, fact: Fact) {
        match fact {
            Fact::NoPath(peer) => self.fail(now, peer),
            Fact::Path { .. } | Fact::Down | Fact::Up => {}
        }
    }

    /// Notices the peer's silence from now on, or no more. Returns false when no send window is free for it: ask again. Where
    /// peers outnumber windows, ask from time to time in any case: sends take windows from watched peers that answer, and
    /// watched peers share what is left: four times in the configured silence each is given one, and asked at once.
    pub fn watch(&mut self, now: Now<S, W, BITS>, peer: PeerId, on: bool) -> bool {
        let Some(record) = self.peers.as_mut().get_mut(peer.0 as usize).filter(|peer| peer.is_alive()) else {
            return true;
        };
        if !on {
            record.unset(WATCHED);
            return true;
        }
        if S::Time::since(now, self.lap_since).is_some_and(|since| since >= self.config.silence >> 2) {
            self.lap_since = S::Time::stamp(now);
            self.lap ^= LAP;
        }
        let asked = record.has(WATCHED) && record.has(LAP) == (self.lap == LAP);
        record.set(WATCHED | TOUCHED);
        let mut sender = u32::from(record.sender());
        if sender == u32::from(NO_WINDOW) {
            let (scarce, pace) = (self.free_senders.is_empty(), self.pace());
            if scarce && asked {
                return true;
            }
            let Some(taken) = self.take_sender(now, peer.0, true) else { return false };
            sender = taken;
            if scarce && let Some(record) = self.senders.as_mut().get_mut(taken as usize) {
                record.window.inquire(now, &pace);
                let lap = self.lap;
                if let Some(peer) = self.peer_mut(peer.0) {
                    peer.unset(LAP);
                    peer.set(lap);
                }
            }
        }
        self.settle_sender(now, sender);
        true
    }

    /// Says Bye to everyone it had to do with, once everything has been acknowledged, and lingers for the others' Byes.
    pub fn leave(&mut self) {
        if self.leaving == Leaving::No {
            self.leaving = Leaving::Telling { kind: Kind::Bye, rank: 0, round: 0 };
        }
    }

    /// Gives up: tells everyone it had to do with that they need not wait, those too that were told Bye. No more data leaves:
    /// memory is free as soon as the device has finished what was posted.
    pub fn abort(&mut self) {
        if self.leaving != Leaving::No {
            for peer in self.peers.as_mut() {
                peer.unset(TOLD);
            }
        }
        self.leaving = Leaving::Telling { kind: Kind::Abort, rank: 0, round: FAREWELLS - 1 };
    }

    /// Whether nothing but last words leaves.
    pub(super) const fn gives_up(&self) -> bool {
        matches!(
            self.leaving,
            Leaving::Telling { kind: Kind::Abort, .. } | Leaving::Lingering { kind: Kind::Abort, .. } | Leaving::Gone
        )
    }

    /// Whether [`leave`](Self::leave) or [`abort`](Self::abort) has come to its end.
    pub fn is_gone(&self) -> bool {
        self.leaving == Leaving::Gone
    }

    /// The life that the reset echoes is over: replaced by the sender's, or the sender itself has given up on this process.
    /// It counts while that life is what is still believed.
    pub(super) fn handle_reset(
        &mut self,
        now: Now<S, W, BITS>,
        header: &Header<BITS>,
        above: &mut impl super::Above,
    ) -> Result<(), Reason> {
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(Reason::UnknownPeer)?;
        #[cfg(not(mutant = "reset_unchecked"))]
        let counts = header.expected == self.config.incarnation && header.psn == peer.incarnation.0;
        #[cfg(mutant = "reset_unchecked")]
        let counts = header.expected == self.config.incarnation;
        if !counts || !peer.is_alive() {
            return Err(Reason::Stale);
        }
        self.end(now, header.rank, Life::Failed);
        above.saw(Happened::Accepted { kind: header.kind, bytes: HEADER as u32 });
        Ok(())
    }

    /// A datagram of another life, of its sender or of this process.
    pub(super) fn handle_other_life(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) -> Result<(), Reason> {
        let peer = self.peers.as_ref().get(header.rank as usize).ok_or(Reason::UnknownPeer)?;
        if header.incarnation == peer.incarnation {
            self.send_reset(now, header);
        }
        Err(Reason::Stale)
    }

    /// Answers a datagram that expects another life of this process, or that a dead one sent.
    pub(super) fn send_reset(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        if header.kind == Kind::Reset || header.kind == Kind::Abort {
            return;
        }
        if S::Time::since(now, self.reset).is_some_and(|since| since < self.config.granularity) {
            return;
        }
        self.reset = S::Time::stamp(now);
        self.notify(Notice {
            to: header.rank,
            kind: Kind::Reset,
            expected: header.incarnation,
            psn: header.expected.0,
            ..Notice::FREE
        });
    }

    pub(super) fn handle_bye(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        let Some(peer) = self.peer_mut(header.rank) else { return };
        if peer.inbound.next() != header.psn() {
            // Something is missing after all: it is asked for, and the Bye comes again.
            peer.inbound.handle_gap();
            self.list_ack(header.rank);
            return;
        }
        self.end(now, header.rank, Life::Parted);
    }

    pub(super) fn handle_obituary(&mut self, now: Now<S, W, BITS>, header: &Header<BITS>) {
        let named = self.peers.as_ref().get(header.psn as usize).filter(|peer| peer.is_alive());
        if named.is_some_and(|peer| peer.incarnation.0 == header.acknowledged) {
            self.fail(now, PeerId(header.psn));
        }
    }

    /// The peer's life has ended one way or the other: everything that needs it fails.
    pub(super) fn end(&mut self, now: Now<S, W, BITS>, rank: u32, life: Life) {
        let error = if life == Life::Parted { OperationError::Parted } else { OperationError::PeerFailed };
        let Some(peer) = self.peers.as_mut().get_mut(rank as usize).filter(|peer| peer.is_alive()) else { return };
        peer.set_life(life);
        peer.unset(WATCHED);
        let (sender, receiver) = (u32::from(peer.sender()), u32::from(peer.receiver));
        peer.leave_sender(Psn::new(0));
        peer.receiver = NO_WINDOW;
        let windowless = peer.has(WINDOWLESS);
        peer.unset(WINDOWLESS);
        self.forget_grant(rank);
        if windowless {
            self.leave_windowless(rank);
        }
        while let Some(first) = self.queued(rank) {
            self.dequeue(rank);
            let operations = self.operations.as_mut();
            let Some(operation) = operations.get_mut(first as usize) else { break };
            operation.error = Some(error);
            operation.parts = operation.sent;
            if operation.released == operation.parts {
                self.completed.push(operations, first, |operation| &mut operation.link);
            }
        }
        if let Some(record) = self.senders.as_mut().get_mut(sender as usize) {
            let operations = self.operations.as_mut();
            #[cfg(not(mutant = "end_forgiven"))]
            for piece in record.window.pieces() {
                if let Some(operation) = operations.get_mut(piece.operation as usize) {
                    operation.error = operation.error.or(Some(error));
                }
            }
            record.window.abandon();
            record.flags |= ORPHAN;
            self.release(now, sender);
        }
        self.abandon_receiver(receiver);
        let Some(peer) = self.peer_mut(rank) else { return };
        if !peer.has(NEWS) {
            peer.set(if life == Life::Parted { NEWS | PARTED } else { NEWS });
            self.news.push(self.peers.as_mut(), rank, |peer| &mut peer.queue);
        } else if life == Life::Failed {
            // One event for two lives: the worse one.
            peer.unset(PARTED);
        }
    }

    /// What is held for a peer that has ended is given back through [`poll_deferred`](Self::poll_deferred).
    fn abandon_receiver(&mut self, receiver: u32) {
        let receivers = self.receivers.as_mut();
        let Some(window) = receivers.get_mut(receiver as usize) else { return };
        window.owner = NONE;
        let deferred = matches!(window.front(), Early::Held(_));
        if !deferred {
            self.deferred.push(receivers, receiver, |receiver| &mut receiver.link);
        }
    }

    /// A death is flooded: to the ranks 1, 2, 4, … behind this one, as far as there is room.
    fn flood(&mut self, dead: u32, incarnation: Incarnation) {
        let size = self.peers.as_ref().len() as u32;
        let mut distance = 1;
        while distance < size {
            let sum = u64::from(self.config.rank.0).wrapping_add(u64::from(distance));
            let to = if sum >= u64::from(size) { sum.wrapping_sub(u64::from(size)) } else { sum } as u32;
            let alive = self.peers.as_ref().get(to as usize).filter(|peer| peer.is_alive());
            if let Some(peer) = alive {
                self.notify(Notice {
                    to,
                    kind: Kind::Obituary,
                    flags: Flags::empty(),
                    expected: peer.incarnation,
                    psn: dead,
                    acknowledged: incarnation.0,
                });
            }
            distance = distance.saturating_mul(2);
        }
    }

    /// A send window for the peer: a free one, one that has been idle, or, `watching`, one that watches a peer that answers.
    pub(super) fn take_sender(&mut self, now: Now<S, W, BITS>, to: u32, watching: bool) -> Option<u32> {
        let i = match self.free_senders.pop(self.senders.as_mut(), |sender| &mut sender.link) {
            Some(i) => i,
            None => {
                self.retire_some(now, watching);
                self.free_senders.pop(self.senders.as_mut(), |sender| &mut sender.link)?
            }
        };
        let peer = self.peers.as_mut().get_mut(to as usize)?;
        let record = self.senders.as_mut().get_mut(i as usize)?;
        record.window = crate::send_window::SendWindow::new(peer.send_next());
        record.peer = to;
        record.asked = S::Time::stamp(now);
        record.silent_since = record.asked;
        peer.set_sender(i as u16);
        Some(i)
    }

    /// Looks at a few windows for one that is idle and retires it.
    fn retire_some(&mut self, now: Now<S, W, BITS>, watching: bool) {
        let count = self.senders.as_ref().len() as u32;
        for _ in 0..STRIDE.min(count) {
            self.hand = if self.hand.wrapping_add(1) < count { self.hand.wrapping_add(1) } else { 0 };
            if self.is_quiet(self.hand, watching) {
                self.retire(now, self.hand);
                return;
            }
        }
    }

    /// Whether the window has no work and its peer is not watched, or, `watching`, answers.
    pub(super) fn is_quiet(&self, sender: u32, watching: bool) -> bool {
        let Some(record) = self.senders.as_ref().get(sender as usize) else { return false };
        record.peer != NONE
            && record.flags & (READY | ORPHAN) == 0
            && record.window.is_empty()
            && !record.window.is_astray()
            && self.queued(record.peer).is_none()
            && (watching && record.window.unanswered() == 0
                || self.peers.as_ref().get(record.peer as usize).is_some_and(|peer| !peer.has(WATCHED)))
    }

    /// Gives a quiet window back to the pool, and what is left of its grant to the peer.
    pub(super) fn retire(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let Some(record) = self.senders.as_ref().get(sender as usize) else { return };
        let (to, admitted, next) = (record.peer, record.window.is_admitted(), record.window.next());
        let Some(peer) = self.peer_mut(to) else { return };
        peer.leave_sender(next);
        let expected = peer.incarnation;
        if admitted {
            let (kind, flags) = (Kind::Acknowledge, Flags::DRAINED);
            self.notify(Notice { to, kind, flags, expected, psn: next.get(), ..Notice::FREE });
        }
        self.free_sender(now, sender);
    }

    pub(super) fn free_sender(&mut self, now: Now<S, W, BITS>, sender: u32) {
        let senders = self.senders.as_mut();
        self.wheel.clear(senders, sender, |sender| &mut sender.timer);
        let Some(record) = senders.get_mut(sender as usize) else { return };
        if record.flags & (READY | super::POSTING | super::SILENT) != 0 {
            // Freed when it leaves the list it is in.
            record.flags |= ORPHAN;
            return;
        }
        *record = super::Sender::FREE;
        self.free_senders.push_front(senders, sender, |sender| &mut sender.link);
        // The first of the queues that wait for a window gets it.
        if let Some(first) = self.windowless.pop(self.operations.as_mut(), |operation| &mut operation.waiting) {
            let to = self.operations.as_ref().get(first as usize).map_or(NONE, |operation| operation.peer.0);
            if let Some(peer) = self.peer_mut(to) {
                peer.unset(WINDOWLESS);
            }
            if let Some(sender) = self.take_sender(now, to, false) {
                self.make_ready(sender);
            }
        }
    }

    /// The peer's queue does not wait for a window any more.
    fn leave_windowless(&mut self, rank: u32) {
        let mut others = crate::list::List::EMPTY;
        while let Some(i) = self.windowless.pop(self.operations.as_mut(), |operation| &mut operation.waiting) {
            if self.operations.as_ref().get(i as usize).is_some_and(|operation| operation.peer.0 != rank) {
                others.push(self.operations.as_mut(), i, |operation| &mut operation.waiting);
            }
        }
        self.windowless = others;
    }

    /// Whether a Bye or Abort may leave: a Bye waits until everything has been acknowledged.
    pub(super) fn may_tell(&self, kind: Kind) -> bool {
        #[cfg(mutant = "bye_early")]
        let kind = if kind == Kind::Bye { Kind::Abort } else { kind };
        kind != Kind::Bye || self.is_acknowledged()
    }

    /// The next Bye or Abort.
    pub(super) fn transmit_farewell(&mut self, now: Now<S, W, BITS>, head: &mut [u8; HEAD]) -> Option<Transmit> {
        let Leaving::Telling { kind, mut rank, round } = self.leaving else { return None };
        if !self.may_tell(kind) {
            return None;
        }
        let size = self.peers.as_ref().len() as u32;
        let end = rank.saturating_add(STRIDE).min(size);
        while rank < end {
            let to = rank;
            rank = rank.wrapping_add(1);
            let Some(peer) = self.peers.as_ref().get(to as usize) else { break };
            if peer.is_alive() && peer.has(TOUCHED) && !peer.has(TOLD) {
                let mut header = self.header_to(peer);
                header.kind = kind;
                let sender = self.senders.as_ref().get(usize::from(peer.sender()));
                header.psn = sender.map_or(peer.send_next(), |sender| sender.window.next()).get();
                header.emit(head);
                if let Some(peer) = self.peer_mut(to) {
                    peer.set(TOLD);
                }
                self.leaving = Leaving::Telling { kind, rank, round };
                return Some(Transmit {
                    to: PeerId(to),
                    at: Lane::Polled,
                    head: HEADER as u8,
                    payload: None,
                    solicited: false,
                    cause: Cause::Control,
                });
            }
        }
        self.leaving = if rank < size {
            Leaving::Telling { kind, rank, round }
        } else {
            let round = round.wrapping_add(1);
            Leaving::Lingering { kind, until: S::Time::after(now, self.config.granularity.saturating_mul(4)), round }
        };
        None
    }

    /// A linger has passed, or everyone has parted.
    pub(super) fn linger(&mut self, now: Now<S, W, BITS>) {
        let Leaving::Lingering { kind, until, round } = self.leaving else { return };
        if !S::Time::is_due(now, until) {
            return;
        }
        let mut missing = false;
        for peer in self.peers.as_mut() {
            missing |= peer.is_alive() && peer.has(TOLD);
            peer.unset(TOLD);
        }
        self.leaving =
            if missing && round < FAREWELLS { Leaving::Telling { kind, rank: 0, round } } else { Leaving::Gone };
    }

    /// Whether everything that was to be sent has been acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        let idle = |sender: &super::Sender<S::Time, W, BITS>| sender.window.is_acknowledged();
        self.windowless.is_empty()
            && self.senders.as_ref().iter().all(|sender| {
                sender.peer == NONE || sender.flags & ORPHAN != 0 || idle(sender) && self.queued(sender.peer).is_none()
            })
    }

    /// The peer neither has nor wants a grant any more.
    pub(super) fn forget_grant(&mut self, rank: u32) {
        let Some(peer) = self.peers.as_mut().get_mut(rank as usize) else { return };
        self.credit.give_back(u32::from(peer.granted));
        peer.granted = 0;
        if peer.has(WANTS) {
            peer.unset(WANTS);
            self.credit.leave();
        }
    }
}
