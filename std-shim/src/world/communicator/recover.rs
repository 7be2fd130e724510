//! After a death: give a communicator up, agree, go on with those that live. Names and meaning are ULFM's (Bland, Bouteiller,
//! Herault, Bosilca, Dongarra 2013, "Post-failure recovery of MPI communication capability").
//!
//! Agreements are decided by the rendezvous server, which knows who lives and lasts as long as the job: once, when every member has
//! said its part or is dead (`bootstrap/roll/agreements.rs`). Whoever lives is told that decision and no other.

use core::sync::atomic::Ordering;

use super::create::{Agreed, first_room};
use super::{Communicator, Failure};
use crate::world::collective::context::{CONTEXTS, WINDOW};
use crate::world::group::Group;
use crate::world::progress::Awaits;
use crate::world::watchdog::Doing;
use unisono_bootstrap::{Ballot, Name, Rank, Ranks, Verdict, WORDS_MAX};

/// Words of a window of contexts.
const FREE: usize = WINDOW as usize / 64;
const _: () = assert!(FREE < WORDS_MAX);
/// Where free rooms lie in the word behind these.
const ROOMS_AT: u32 = 8;

/// Why there is no agreement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AgreeError {
    /// The rendezvous server is gone: the launcher, or rank 0 under a starter that brings none.
    #[error("the rendezvous server, which decides, is gone")]
    NoServer,
    /// The members, or those that died, are not next to each other in too many places.
    #[error("the members form too many ranges of ranks")]
    Scattered,
    /// The others take this rank for dead.
    #[error("the others take this rank for dead")]
    Excluded,
    /// Every context is in use at some member.
    #[error("members have no context in common that is free")]
    NoContext,
    /// The job is being ended, or this process has finished.
    #[error(transparent)]
    Ended(#[from] Failure),
}

/// What members have agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// The bitwise and of all that was given, also by those that died meanwhile.
    pub flags: u64,
    /// Members that have died, or left.
    pub failed: Group,
}

impl Communicator {
    /// Gives this communicator up, for all members: what is under way on it at any of them ends with `Revoked`, and so does what is
    /// called later. Not collective. Who hears of it tells all members once, so that all that live do if one does; what has met its
    /// message already ends by itself.
    pub fn revoke(&self) {
        self.shared.change(|process| process.give_up_context(self.context));
    }

    /// Whether a member has given this communicator up, as far as this one has heard.
    pub fn is_revoked(&self) -> bool {
        self.shared.lock().expect_open(self.context).is_err()
    }

    /// Members that this rank knows to have died, or left: at least those that it has agreed on with others.
    pub fn failed(&self) -> Group {
        let process = self.shared.lock();
        let (dead, lost) = (&process.collectives.dead, &process.collectives.contexts.lost);
        let is_dead = |rank: &Rank| dead.contains(&(*rank).into()) || lost.contains(rank);
        Group::of(self.members.iter().filter(is_dead).collect())
    }

    /// Agrees with all members that live on the bitwise and of their flags, and on who has died: the same for all that return, also
    /// when members die meanwhile, or the communicator is revoked. Every member that lives calls it.
    ///
    /// # Errors
    /// [`AgreeError`].
    pub fn agree(&self, flags: u64) -> Result<Agreement, AgreeError> {
        let (verdict, failed) = self.decide(vec![flags], 0)?;
        Ok(Agreement { flags: verdict.words.first().copied().unwrap_or(flags), failed })
    }

    /// A communicator of the members that live, in the same order. Every one of them calls it; who waits in something else on this
    /// communicator is freed by [`revoke`](Self::revoke). A member that dies meanwhile may be a member of it.
    ///
    /// # Errors
    /// [`AgreeError`].
    pub fn shrink(&self) -> Result<Self, AgreeError> {
        let mut first = 0;
        loop {
            let mut process = self.shared.lock();
            let offered = process.collectives.offer_contexts(self.context, first);
            let shares_node = process.shares_its_node();
            drop(process);
            let flags = u64::from(offered.is_whole) | u64::from(shares_node) << 1 | offered.rooms << ROOMS_AT;
            let words = offered.free.into_iter().chain([flags]).collect();
            let decided = self.decide(words, offered.generation);
            let found = decided.map(|(Verdict { words, most, .. }, failed)| {
                let (free, flags) = words.split_at_checked(FREE).unwrap_or_default();
                let (flags, mut windows) = (flags.first().copied().unwrap_or(0), (0_u32..).step_by(64).zip(free));
                let free = windows.find(|(_, word)| **word != 0).map(|(at, word)| first + at + word.trailing_zeros());
                (free, flags, most, failed)
            });
            let mut process = self.shared.lock();
            let is_made = found.is_ok();
            let is_over = !matches!(&found, Ok((None, flags, ..)) if flags & 1 == 0 || first + WINDOW < CONTEXTS);
            let agreed = found.as_ref().ok().and_then(|(context, flags, generation, _)| {
                let (generation, room) = (*generation, first_room(flags >> ROOMS_AT, *generation));
                Some(Agreed { context: (*context)?, generation, shares_node: flags & 2 != 0, room })
            });
            agreed.iter().for_each(|agreed| process.reserve(agreed));
            process.collectives.take_back(self.context, &offered, is_over, is_made);
            drop(process);
            let (_, flags, _, failed) = found?;
            if let Some(agreed) = agreed {
                let living = self.members.difference(&failed);
                let own = self.members.world_rank(self.rank).and_then(|own| living.number(own));
                let Some(rank) = own else {
                    // Nobody sends it anything there.
                    self.shared.lock().unreserve(&agreed, &living, true);
                    return Err(AgreeError::Excluded);
                };
                return Ok(self.open(agreed, living, rank));
            }
            if is_over {
                return Err(AgreeError::NoContext);
            }
            if flags & 1 != 0 {
                first += WINDOW;
            }
        }
    }

    /// Says this member's part, and waits for what is decided; the members that have failed.
    fn decide(&self, words: Vec<u64>, most: u32) -> Result<(Verdict, Group), AgreeError> {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        let sorted = |group: &Group| {
            let mut ranks: Vec<Rank> = group.iter().collect();
            ranks.sort_unstable();
            Ranks::new(ranks).ok_or(AgreeError::Scattered)
        };
        let (members, failed) = (sorted(&self.members)?, sorted(&self.failed())?);
        let generation = self.named.0 >> 16;
        let first = self.members.world_rank(Rank(0)).unwrap_or(Rank(0));
        let name = Name { first, context: self.context, generation, round };
        let mut process = self.shared.lock();
        if let Some(failure) = process.aborted {
            return Err(failure.into());
        }
        let membership = process.membership.as_mut().ok_or(AgreeError::NoServer)?;
        membership.vote(Ballot { name, members, failed, most, words });
        drop(process);
        let what = Doing::Agreement { communicator: self.context };
        let verdict = self.shared.until_told(Awaits::Bell, what, |process| {
            process.hear();
            if let Some(failure) = process.aborted {
                return Some(Err(AgreeError::Ended(failure)));
            }
            let Some(membership) = &mut process.membership else { return Some(Err(AgreeError::NoServer)) };
            membership.verdict(name).map(|verdict| verdict.map_err(|_| AgreeError::NoServer))
        })?;
        let mut process = self.shared.lock();
        let dead: Vec<Rank> = verdict.failed.below(process.size).collect();
        process.collectives.contexts.lost.extend(&dead);
        drop(process);
        let failed = Group::of(self.members.iter().filter(|rank| dead.binary_search(rank).is_ok()).collect());
        Ok((verdict, failed))
    }
}
