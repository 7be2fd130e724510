//! The reason of a disagreement: the call of another rank that differs from this rank's, which that rank is asked for.

use core::time::Duration;
use std::time::Instant;

use super::call_log::CollectiveCall;
use super::error::CollectiveError;
use crate::world::communicator::Communicator;
use crate::world::progress::WaitFor;
use unisono_bootstrap::Rank;

/// How long an answer is waited for: a rank that disagrees is in the same collective, or computes.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

impl Communicator {
    /// The error of a call, which is recorded: with the calls of both ranks if they disagree and the other one answers.
    #[cold]
    pub(in crate::world) fn explained(&self, error: CollectiveError) -> CollectiveError {
        self.log.lock().record_failure();
        let (rank, collective, sequence) = match error {
            CollectiveError::Disagrees { rank, collective, sequence, calls: None } => (rank, collective, sequence),
            // A live rank that takes no more part may have noticed a disagreement first, and asks this one.
            CollectiveError::Missing { rank, collective, sequence } if self.takes_part(rank) => {
                (rank, collective, sequence)
            }
            _ => return error,
        };
        let calls = self.difference(rank);
        calls.map_or(error, |calls| CollectiveError::Disagrees { rank, collective, sequence, calls: Some(calls) })
    }

    /// Whether a member has neither failed nor finished, to the knowledge of this rank.
    fn takes_part(&self, rank: Rank) -> bool {
        let there = self.members.world_rank(rank).filter(|_| rank != self.rank);
        there.is_some_and(|there| self.shared.lock().takes_part(there))
    }

    /// The first call in which a rank is known to differ from this one: its number, this rank's and the other's.
    fn difference(&self, rank: Rank) -> Option<(u32, CollectiveCall, CollectiveCall)> {
        let there = self.members.world_rank(rank)?;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let numbers = self.log.lock().changes();
        numbers.into_iter().find_map(|number| {
            let own = self.log.lock().call(number)?;
            let other = self.ask_call(there, number, deadline)?;
            (own != other).then_some((number, own, other))
        })
    }

    /// The call of this number at another rank; `None`: it did not call any, does not know it any more or does not
    /// answer in time.
    fn ask_call(&self, there: Rank, number: u32, deadline: Instant) -> Option<CollectiveCall> {
        if Instant::now() >= deadline {
            return None;
        }
        self.shared.with_process(|process| process.ask_call(there, self.context, number));
        self.shared.wait_until(WaitFor::Rank(there), |process| match process.answered_call(self.context, number) {
            Some(answer) => Some(answer),
            None => (process.aborted.is_some() || Instant::now() >= deadline).then_some(None),
        })
    }
}
