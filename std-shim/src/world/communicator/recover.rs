//! Recovery after a failure, as in ULFM: revoke a communicator, agree, and shrink it to the live members (Bland,
//! Bouteiller, Herault, Bosilca, Dongarra 2013, "Post-failure recovery of MPI communication capability").
//!
//! The rendezvous server decides agreements, since it knows which ranks live and lasts as long as the job. It decides
//! each one once, when every member has voted or is dead (`unisono_bootstrap`), and sends all live members
//! that same decision.

use core::sync::atomic::Ordering;

use super::Communicator;
use crate::world::collective::engine::context::{AgreedContext, CreationOrder, Round, WINDOW};
use crate::world::collective::intra_node::communicator_slots::{LeasedSlots, are_spare};
use crate::world::group::Group;
use crate::world::progress::WaitFor;
use crate::world::request::Failure;
use crate::world::watchdog::BlockedOn;
use unisono_bootstrap::{AgreementId, AgreementOutcome, Rank, RankRanges, Vote, WORDS_MAX};

/// Words of a window of contexts.
const FREE_WORDS: usize = WINDOW as usize / 64;
const _: () = assert!(FREE_WORDS < WORDS_MAX);
/// Bit offset of the free slots in the word that follows them.
const SLOTS_SHIFT: u32 = 8;

/// Why the members could not agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AgreeError {
    /// The rendezvous server is gone: the launcher, or rank 0 where another launcher started the job.
    #[error("the rendezvous server, which decides agreements, is gone: restart the job")]
    NoServer,
    /// The members, or the failed ones, form more ranges of consecutive ranks than a vote can carry.
    #[error("cannot agree: the members or the failed ranks form too many ranges of ranks")]
    Scattered,
    /// The other members treat this rank as failed.
    #[error("the other members treat this rank as failed: it cannot take part any more")]
    Excluded,
    /// Every context is in use at some member.
    #[error("no context is free at all members: drop communicators that are no longer used")]
    NoContext,
    /// The job was aborted, or this process has finished.
    #[error(transparent)]
    Ended(#[from] Failure),
}

/// The decision of an agreement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// The bitwise AND of all members' flags, including those of members that failed after they voted.
    pub flags: u64,
    /// Members that have failed or finished.
    pub failed: Group,
}

impl Communicator {
    /// Revokes this communicator for all members (`MPIX_Comm_revoke`): pending operations on it end with `Revoked` at
    /// every member, and later ones fail. Not collective. Every member that receives the revocation forwards it once,
    /// so that all live members receive it if one does. An operation that has already matched its message completes by
    /// itself.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let copy = world.duplicate()?;
    /// copy.revoke();
    /// assert_eq!(copy.send(&[1_u8], copy.rank(), Tag(1)), Err(Failure::Revoked));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn revoke(&self) {
        self.shared.with_process(|process| process.revoke_and_transmit(self.context));
    }

    /// Whether a member has revoked this communicator, to the knowledge of this rank.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert!(!world.is_revoked());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_revoked(&self) -> bool {
        self.shared.lock().expect_open(self.context).is_err()
    }

    /// Members that this rank knows to have failed or finished (`MPIX_Comm_get_failed`), at least those of the last
    /// agreement.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert_eq!(world.failed().size(), 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn failed(&self) -> Group {
        let process = self.shared.lock();
        let (dead, lost) = (&process.collectives.failed, &process.collectives.contexts.agreed_failed);
        let is_dead = |rank: &Rank| dead.contains(&(*rank).into()) || lost.contains(rank);
        Group::of(self.members.iter().filter(is_dead).collect())
    }

    /// Agrees with all live members on the bitwise AND of their flags and on the failed members (`MPIX_Comm_agree`).
    /// The result is the same at all members that return, also when members fail meanwhile or the communicator is
    /// revoked. Every live member calls it.
    ///
    /// ```no_run
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// // Whether all ranks have converged: bit 0 is the and of theirs.
    /// let agreed = world.agree(1)?;
    /// println!("{} and {} ranks failed", agreed.flags & 1, agreed.failed.size());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`AgreeError`].
    pub fn agree(&self, flags: u64) -> Result<Agreement, AgreeError> {
        let (verdict, failed) = self.vote(vec![flags], 0)?;
        Ok(Agreement { flags: verdict.words.first().copied().unwrap_or(flags), failed })
    }

    /// Makes a communicator of the live members, in the same order (`MPIX_Comm_shrink`). Every live member calls it;
    /// [`revoke`](Self::revoke) releases members that wait in another operation on this communicator. A member that
    /// fails meanwhile may belong to the new one.
    ///
    /// ```no_run
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// if let Err(failure) = world.barrier() {
    ///     eprintln!("{failure}");
    ///     world.revoke();
    ///     let survivors = world.shrink()?;
    ///     survivors.barrier()?;
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`AgreeError`].
    pub fn shrink(&self) -> Result<Self, AgreeError> {
        let order = CreationOrder { parent: self.context, number: 0 };
        let mut round = Round::First;
        loop {
            let mut process = self.shared.lock();
            let offered = process.collectives.offer_contexts(order, round, true);
            let shares_node = process.shares_its_node();
            drop(process);
            let flags = u64::from(offered.is_exclusive) | u64::from(shares_node) << 1 | offered.slots << SLOTS_SHIFT;
            let words = offered.free.into_iter().chain([flags]).collect();
            let decided = self.vote(words, offered.generation);
            let found = decided.map(|(AgreementOutcome { words, maximum: most, .. }, failed)| {
                let (free, flags) = words.split_at_checked(FREE_WORDS).unwrap_or_default();
                let (flags, mut windows) = (flags.first().copied().unwrap_or(0), (0_u32..).step_by(64).zip(free));
                let free =
                    windows.find(|(_, word)| **word != 0).map(|(at, word)| round.start() + at + word.trailing_zeros());
                (free, flags, most, failed)
            });
            let mut process = self.shared.lock();
            let is_made = found.is_ok();
            let next = found.as_ref().ok().and_then(|(_, flags, ..)| round.next(flags & 1 != 0));
            let is_over = next.is_none() || !matches!(found, Ok((None, ..)));
            let agreed = found.as_ref().ok().and_then(|(context, flags, generation, _)| {
                let (context, generation, shares_node) = ((*context)?, *generation, flags & 2 != 0);
                let (free, most) = (flags >> SLOTS_SHIFT, process.choices.hierarchy.slots());
                let (slots, has_spare_slots) = (LeasedSlots::first(free, most, generation), are_spare(free));
                Some(AgreedContext { context, generation, shares_node, slots, has_spare_slots, group: None })
            });
            agreed.iter().for_each(|agreed| process.reserve(agreed));
            process.collectives.withdraw_offer(order, &offered, is_over, is_made);
            drop(process);
            let (.., failed) = found?;
            if let Some(agreed) = agreed {
                let living = self.members.difference(&failed);
                let own = self.members.world_rank(self.rank).and_then(|own| living.number(own));
                let Some(rank) = own else {
                    // No member sends it anything there.
                    self.shared.lock().unreserve(&agreed, &living, true);
                    return Err(AgreeError::Excluded);
                };
                return Ok(self.open(agreed, living, rank));
            }
            round = next.ok_or(AgreeError::NoContext)?;
        }
    }

    /// Votes, and waits for the decision. Returns it and the failed members.
    fn vote(&self, words: Vec<u64>, most: u32) -> Result<(AgreementOutcome, Group), AgreeError> {
        let round = self.agreement_rounds.fetch_add(1, Ordering::Relaxed);
        let sorted = |group: &Group| {
            let mut ranks: Vec<Rank> = group.iter().collect();
            ranks.sort_unstable();
            RankRanges::new(ranks).ok_or(AgreeError::Scattered)
        };
        let (members, failed) = (sorted(&self.members)?, sorted(&self.failed())?);
        let generation = self.message_context.0 >> 16;
        let first = self.members.world_rank(Rank(0)).unwrap_or(Rank(0));
        let name = AgreementId { first, context: self.context, generation, round };
        let mut process = self.shared.lock();
        if let Some(failure) = process.aborted {
            return Err(failure.into());
        }
        let membership = process.membership.as_mut().ok_or(AgreeError::NoServer)?;
        membership.vote(Vote { id: name, members, failed, maximum: most, words });
        process.collectives.wait_registry.record_agreement(name);
        drop(process);
        let what = BlockedOn::Agreement { communicator: self.context };
        let verdict = self.shared.wait_until_recorded(WaitFor::Notification, what, |process| {
            process.poll_events();
            if let Some(failure) = process.aborted {
                return Some(Err(AgreeError::Ended(failure)));
            }
            let Some(membership) = &mut process.membership else { return Some(Err(AgreeError::NoServer)) };
            membership.agreement_outcome(name).map(|verdict| verdict.map_err(|_| AgreeError::NoServer))
        });
        let mut process = self.shared.lock();
        process.collectives.wait_registry.clear_agreement(name);
        let verdict = verdict?;
        let dead: Vec<Rank> = verdict.failed.below(process.size).collect();
        process.collectives.contexts.agreed_failed.extend(&dead);
        drop(process);
        let failed = Group::of(self.members.iter().filter(|rank| dead.binary_search(rank).is_ok()).collect());
        Ok((verdict, failed))
    }
}
