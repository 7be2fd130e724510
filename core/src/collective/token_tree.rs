//! Barrier and allreduce along a tree whose root moves to the rank that enters last.
//!
//! Source: Mamidala, Liu, Panda, "Efficient Barrier and Allreduce on IBA clusters using hardware multicast and adaptive
//! algorithms" (2004), §4; Mamidala's dissertation (2008), ch. 7. In a combining tree every rank acknowledges to its
//! parent, and the root releases all; a leaf that enters last adds a hop per level. Here the root holds a token. It
//! passes the token to the child that is missing, and so on down, so that the last rank to enter finds it and releases
//! all ranks by one multicast: the delay after its entering does not depend on the number of ranks. The source has one
//! token and leaves two equally late ranks open; here a token can be divided.
//!
//! # Rules
//! Ranks are in preorder ([`Position`]). A token has a claim, a range of ranks that contains the subtree of its holder,
//! and a number of units; the root's claims all ranks.
//!
//! 1. A rank that has entered, has no token, and whose children have all acknowledged sends an [`Body::Ack`] with its
//!    subtree's value, once, and keeps the value.
//! 2. A token at a rank that has not entered waits for it.
//! 3. A holder that has entered: when no child is missing, it releases its claim. When at most as many children are
//!    missing as the token has units, and no Ack has arrived for one hop (`patience`), it divides the token among
//!    them. Their claims tile its own, each with at least one unit. A holder never sends an Ack.
//! 4. A token that crosses an Ack: its receiver releases, and the sender of the token ignores the Ack.
//! 5. A rank leaves when the claims of the releases it has tile all ranks. It combines their values in rank order, so
//!    that every rank has the same bits. The claims, and with them the association of floating-point sums, differ from
//!    call to call.
//! 6. A rank that lacks a release asks the child whose claim covers the first gap, else its parent, and asks again.
//!    A release that goes along the tree is passed on by each rank, also where it is known already; one that answers
//!    an Ask is not.
//! 7. Messages report which epochs have been left ([`Message::left`], [`Message::all_left`]). Releases are kept until
//!    every rank has left their epoch; a rank that [ends](TokenTree::end) before sends them to its neighbours. A rank
//!    has at most [`TokenTree::OPEN`] epochs open.
//!
//! With 0 units this is the combining tree of the same degree, which does not adapt.
//!
//! # Memory
//! A rank that enters epoch e has left all epochs up to e − `OPEN`. So every rank has entered e − `OPEN` and has left all
//! epochs up to e − 2·`OPEN`, and the messages of epoch e say so. Hence `S` = 2·`OPEN` records hold all epochs of which a
//! message may arrive or a release be asked for.

mod epoch;
pub mod header;
mod message;
mod neighbour;
mod operands;
mod position;
mod releases;

#[cfg(test)]
mod tests;

pub use self::message::{Body, Epoch, Message, Payload, Release, Token};
pub use self::operands::{Combination, Operand};
pub use self::position::{Position, RankRange};

use self::epoch::{EpochState, Surroundings};
use self::neighbour::{Neighbour, Neighbours};
use crate::ids::Rank;
use crate::time::Time;

/// How the releases of a rank reach all ranks. Each rank has its own, which may change between any two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReleasePath {
    /// By a multicast to all other ranks, which may lose, double and reorder it.
    Multicast,
    /// From neighbour to neighbour along the tree, by the messages that also carry Acks.
    Tree,
    /// Both: until this rank knows that its multicasts reach all ranks.
    Both,
}

/// The parameters of a tree, equal on all its ranks. Times in units of 64 ns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TreeConfig {
    /// Ranks.
    pub size: u32,
    /// Children of a rank, at most; 8 in the source.
    pub degree: u32,
    /// Units of the root's token: the number of releases at most. 0 is a combining tree, whose root never passes it.
    pub units: u8,
    /// How the releases of a rank reach all ranks at first.
    pub path: ReleasePath,
    /// How long no Ack may arrive before a token is passed: about one hop.
    pub patience: u32,
    /// How long a rank waits for a release before it asks for it; doubles up to 32 times as long. `None`: no rank ever
    /// sends by multicast, and no release is lost.
    pub repair: Option<u32>,
}

/// A tree cannot have these parameters: there is no such rank or degree, `units` exceeds the records `M`, `S` is no
/// power of two from 2 on, or releases are sent by multicast and never asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InvalidTree;

/// Why a rank cannot enter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EnterError {
    /// [`TokenTree::OPEN`] epochs are open: enter when one was left.
    Busy,
    /// This rank has failed; final.
    Failed(Rank),
}

/// What the host must do before the next call. It copies the values of a message that it sends: the machine may reuse
/// their operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Combine two values.
    Combine {
        /// The epoch of the operands.
        epoch: Epoch,
        /// The operands.
        combination: Combination,
    },
    /// Copy a value.
    Copy {
        /// The epoch of the operands.
        epoch: Epoch,
        /// The source.
        from: Operand,
        /// The destination.
        into: Operand,
    },
    /// Send a message to a neighbour in the tree, reliably and in order.
    Send {
        /// The receiver.
        to: Rank,
        /// The message.
        message: Message,
        /// Its values, of the message's epoch.
        payload: Payload,
    },
    /// Send a release to all other ranks, once.
    Multicast {
        /// The message.
        message: Message,
        /// Its value, of the message's epoch.
        payload: Payload,
    },
    /// Every rank has entered, and the output holds the result. Requested once per epoch; epochs may end in any order.
    Leave {
        /// The epoch.
        epoch: Epoch,
    },
    /// A rank failed before this epoch could be left.
    Fail {
        /// The epoch.
        epoch: Epoch,
        /// The failed rank.
        rank: Rank,
    },
}

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arrival {
    /// Before the next call the host copies the message's values to these operands of its epoch. `None` for a value that
    /// is not needed.
    Store(Payload),
    /// The sender broke the protocol; the message was dropped.
    ProtocolViolation,
}

/// A message breaks the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Violation;

/// One rank's part in the calls on a tree: barriers and allreduces, in the same order on all ranks.
///
/// The host calls `enter` for each call of the user and `handle_*` with events, then `poll` until it returns `None`. It
/// hands over all messages that have arrived before it polls, so that fewer tokens cross Acks. When a deadline of
/// [`Self::deadlines`] has passed it calls [`Self::handle_timeout`]. Messages between two ranks are reliable and in
/// order.
///
/// `M` is the number of releases of an epoch, at least the units of the tree; `S` the number of epochs with a record,
/// twice [`Self::OPEN`] and a power of two. Work per call is O(`S` · `M` + degree).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TokenTree<T: Time, const M: usize, const S: usize> {
    position: Position,
    units: u8,
    path: ReleasePath,
    patience: u32,
    repair: Option<u32>,
    /// The next epoch to enter.
    next: Epoch,
    /// The first epoch that this rank has not left.
    left: Epoch,
    /// The first epoch that may not have been left by every rank.
    all_left: Epoch,
    epochs: [Option<EpochState<T, M>>; S],
    failed: Option<Rank>,
}

impl<T: Time, const M: usize, const S: usize> TokenTree<T, M, S> {
    /// The number of epochs that a rank may have entered and not left.
    pub const OPEN: u32 = S as u32 / 2;

    /// The part of `rank`; its first call has the number `first`.
    ///
    /// # Errors
    /// The parameters contradict each other or the storage.
    pub fn new(rank: Rank, config: &TreeConfig, first: Epoch) -> Result<Self, InvalidTree> {
        let TreeConfig { size, degree, units, path, patience, repair } = *config;
        let position = Position::new(rank, size, degree).ok_or(InvalidTree)?;
        let is_repaired = path == ReleasePath::Tree || repair.is_some();
        if M == 0 || usize::from(units) > M || S < 2 || !S.is_power_of_two() || !is_repaired {
            return Err(InvalidTree);
        }
        let (next, left, all_left) = (first, first, first);
        let epochs = [None; S];
        Ok(Self { position, units, path, patience, repair, next, left, all_left, epochs, failed: None })
    }

    /// This rank's position.
    pub const fn position(&self) -> &Position {
        &self.position
    }

    /// This rank's later releases travel so. Without a repair time they go along the tree whatever is set.
    pub const fn set_path(&mut self, path: ReleasePath) {
        if self.repair.is_some() {
            self.path = path;
        }
    }

    /// This rank will answer no more Asks. What it has left, and another rank perhaps has not, it sends to all its
    /// neighbours; the host polls for that.
    pub fn end(&mut self) {
        if self.repair.is_none() || mutant!("ends_silently") {
            return;
        }
        for state in self.epochs.iter_mut().flatten() {
            state.send_releases(&self.position);
        }
    }

    /// Every rank has left the epochs before this one: their buffers are free.
    pub const fn all_left(&self) -> Epoch {
        self.all_left
    }

    /// This rank enters its next call: an allreduce or, without `has_values`, a barrier, all of whose values are empty.
    ///
    /// # Errors
    /// Too many epochs are open, or a rank has failed.
    pub fn enter(&mut self, now: T::Instant, has_values: bool) -> Result<Epoch, EnterError> {
        if let Some(rank) = self.failed {
            return Err(EnterError::Failed(rank));
        }
        let (epoch, left) = (self.next, self.left);
        if epoch.since(left) >= Self::OPEN && !mutant!("opens_more") {
            return Err(EnterError::Busy);
        }
        self.open(epoch).ok_or(EnterError::Busy)?.enter(now, left, has_values);
        self.next = epoch.next();
        Ok(epoch)
    }

    /// A message from a neighbour in the tree.
    pub fn handle_message(&mut self, now: T::Instant, from: Rank, message: &Message) -> Arrival {
        match Neighbour::find(&self.position, from) {
            Some(neighbour) => self.handle(now, Some(neighbour), message),
            None => Arrival::ProtocolViolation,
        }
    }

    /// A multicast of any rank.
    pub fn handle_multicast(&mut self, now: T::Instant, message: &Message) -> Arrival {
        match message.body {
            Body::Release(Release { is_passed_on: false, .. }) => self.handle(now, None, message),
            _ => Arrival::ProtocolViolation,
        }
    }

    /// The failure detector reports that a rank of the tree has failed. Every epoch that this rank has not left fails;
    /// the first failed rank is its cause.
    pub fn handle_failed(&mut self, rank: Rank) {
        if self.failed.is_none() && !mutant!("death_ignored") {
            self.failed = Some(rank);
        }
    }

    /// The neighbours without whose next message this rank cannot leave an epoch; none if it has left it or has not
    /// entered. A host that watches them, and calls [`Self::handle_failed`] if one of them fails or leaves for good,
    /// learns of every failure that keeps it from leaving.
    pub fn awaited(&self, epoch: Epoch) -> impl Iterator<Item = Rank> + '_ {
        let state = self.epochs.get(Self::slot(epoch)).and_then(Option::as_ref);
        let state = state.filter(|state| state.epoch == epoch);
        let mut awaited = state.map_or(Neighbours::NONE, |state| state.awaited(&self.position));
        core::iter::from_fn(move || awaited.pop()?.rank(&self.position))
    }

    /// The deadlines of the open epochs.
    pub fn deadlines(&self) -> impl Iterator<Item = (Epoch, T::Instant)> + '_ {
        let epochs = self.epochs.iter().flatten().filter(|_| self.failed.is_none());
        epochs.filter_map(|state| Some((state.epoch, state.deadline(self.patience)?)))
    }

    /// The deadline of an epoch has passed.
    pub fn handle_timeout(&mut self, now: T::Instant, epoch: Epoch) {
        let (slot, tree) = self.split(epoch);
        if let Some(state) = slot {
            state.handle_timeout(now, tree);
        }
    }

    /// The next request; `None` when there is nothing to do until the next event.
    pub fn poll(&mut self, now: T::Instant) -> Option<Request> {
        if let Some(rank) = self.failed {
            return self.poll_failed(rank);
        }
        let mut epoch = self.all_left;
        for _ in 0..S {
            let (slot, tree) = self.split(epoch);
            if let Some(request) = slot.and_then(|state| state.poll(now, tree)) {
                if let Request::Leave { epoch } = request {
                    self.leave(epoch);
                }
                return Some(request);
            }
            epoch = epoch.next();
        }
        None
    }

    fn poll_failed(&mut self, rank: Rank) -> Option<Request> {
        for slot in &mut self.epochs {
            if let Some(state) = slot.take()
                && state.is_entered()
                && !state.is_complete()
            {
                return Some(Request::Fail { epoch: state.epoch, rank });
            }
        }
        None
    }

    fn handle(&mut self, now: T::Instant, from: Option<Neighbour>, message: &Message) -> Arrival {
        let Message { epoch, left, all_left, body } = *message;
        if self.left.is_before(all_left) {
            return Arrival::ProtocolViolation;
        }
        self.raise_all_left(all_left);
        if self.failed.is_some() || epoch.is_before(self.all_left) {
            return Arrival::Store([None; 2]);
        }
        if let (Body::Ask { gap }, Some(from)) = (body, from) {
            if let (Some(state), _) = self.split(epoch) {
                state.handle_ask(from, gap);
            }
            return Arrival::Store([None; 2]);
        }
        if self.open(epoch).is_none() {
            return Arrival::ProtocolViolation;
        }
        let position = self.position;
        let (Some(state), tree) = self.split(epoch) else { return Arrival::ProtocolViolation };
        let stored = match (body, from) {
            (Body::Ack, Some(Neighbour::Child(child))) => state.handle_ack(now, child, left),
            (Body::Token(token), Some(Neighbour::Parent)) => state.handle_token(token, left, &position),
            (Body::Release(release), from) => state.handle_release(now, from, release, left, tree),
            _ => Err(Violation),
        };
        stored.map_or(Arrival::ProtocolViolation, Arrival::Store)
    }

    /// The record of an epoch, if it has one, and its surroundings.
    fn split(&mut self, epoch: Epoch) -> (Option<&mut EpochState<T, M>>, Surroundings<'_>) {
        let Self { position, path, patience, repair, all_left, epochs, .. } = self;
        let tree = Surroundings { position, path: *path, patience: *patience, repair: *repair, all_left: *all_left };
        let slot = epochs.get_mut(Self::slot(epoch)).and_then(Option::as_mut);
        (slot.filter(|state| state.epoch == epoch), tree)
    }

    /// The record of an epoch, which is opened if there is none. `None` if it is too many epochs ahead.
    fn open(&mut self, epoch: Epoch) -> Option<&mut EpochState<T, M>> {
        if epoch.since(self.all_left) >= S as u32 {
            return None;
        }
        let slot = self.epochs.get_mut(Self::slot(epoch))?;
        Some(slot.get_or_insert_with(|| EpochState::new(epoch, &self.position, self.units)))
    }

    /// An epoch's index.
    const fn slot(epoch: Epoch) -> usize {
        epoch.0 as usize & S.wrapping_sub(1)
    }

    fn leave(&mut self, epoch: Epoch) {
        while let (Some(state), _) = self.split(self.left)
            && state.is_complete()
        {
            self.left = self.left.next();
        }
        let left_by_all = self.split(epoch).0.map(|state| state.left_by_all());
        if let Some(left_by_all) = left_by_all {
            self.raise_all_left(left_by_all.earlier(self.left));
        }
    }

    /// Frees the records of epochs that every rank has left.
    fn raise_all_left(&mut self, all_left: Epoch) {
        if self.all_left.is_before(all_left) {
            self.all_left = all_left;
            for slot in &mut self.epochs {
                if slot.as_ref().is_some_and(|state| state.epoch.is_before(all_left)) {
                    *slot = None;
                }
            }
        }
    }
}
