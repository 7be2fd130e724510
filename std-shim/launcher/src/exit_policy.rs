//! The exit policy of a job: which ranks failed first, whether their failure ends the job, and the launcher's exit code.
//! Pure decisions, without processes or clocks.
//!
//! A rank that fails because of another rank names it ([`ServerReport::Cause`](unisono_bootstrap::ServerReport)). The
//! first causes are the ranks at the ends of these chains. A chain may end at a rank that still runs: that rank is given
//! time to exit and to print its own error before the launcher ends the job.

use signal_hook::consts::SIGPIPE;
use unisono::environment::OnDeath;
use unisono_bootstrap::{Ending, Participation, Rank};

/// What the launcher does now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Nothing.
    Continue,
    /// Give a rank that others name as the cause of their failure time to exit.
    Wait,
    /// Report these first causes, in the order in which they failed, and end the other ranks.
    End(Vec<Rank>),
}

/// How a rank failed, for the launcher's message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RankFailure {
    /// Its process ended.
    Ended(Ending),
    /// It exited with code 0, without finishing the job.
    Unfinished,
    /// It exited with code 0 before it joined, and another rank waited for it.
    NotJoined,
    /// It dropped its World, and another rank failed because of that; it exited with code 0, or still runs.
    Left {
        /// Whether it still runs.
        runs: bool,
    },
    /// It aborted the job with this exit code.
    Aborted(i32),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct RankRecord {
    ended: Option<(Ending, Participation)>,
    left: bool,
    aborted: Option<i32>,
    cause: Option<Rank>,
}

impl RankRecord {
    /// Whether the rank failed, whatever the others do.
    fn has_failed(&self) -> bool {
        let by_exit = |(ending, participation)| match (ending, participation) {
            (Ending::Exited(0), Participation::Unfinished) => true,
            (Ending::Exited(0), Participation::None | Participation::Over) => false,
            _ => true,
        };
        self.aborted.is_some() || self.ended.is_some_and(by_exit)
    }

    /// Whether the failure of another rank may be its fault. `runs`: so may that of a rank that still runs.
    fn is_culpable(&self, runs: bool) -> bool {
        match self.ended {
            None => runs || self.left || self.aborted.is_some(),
            Some((_, participation)) => self.has_failed() || self.left || participation == Participation::None,
        }
    }

    fn failure(&self) -> Option<RankFailure> {
        match (self.aborted, self.ended) {
            (Some(code), _) => Some(RankFailure::Aborted(code)),
            (None, Some((Ending::Exited(0), Participation::Unfinished))) => Some(RankFailure::Unfinished),
            (None, Some((Ending::Exited(0), Participation::None))) => Some(RankFailure::NotJoined),
            (None, Some((Ending::Exited(0), Participation::Over))) => {
                self.left.then_some(RankFailure::Left { runs: false })
            }
            (None, Some((ending, _))) => Some(RankFailure::Ended(ending)),
            (None, None) => self.left.then_some(RankFailure::Left { runs: true }),
        }
    }
}

/// The ranks that have ended, and the launcher's exit code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExitPolicy {
    policy: OnDeath,
    ranks: Vec<RankRecord>,
    /// The ranks that failed, left or aborted, in this order.
    order: Vec<Rank>,
    running: usize,
    /// The job is being ended or interrupted: later failures are consequences.
    ending: bool,
    aborted: bool,
    code: Option<u8>,
}

impl ExitPolicy {
    pub(crate) fn new(size: u32, policy: OnDeath) -> Self {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let ranks = vec![RankRecord::default(); size];
        Self { policy, ranks, order: Vec::new(), running: size, ending: false, aborted: false, code: None }
    }

    fn rank(&self, rank: Rank) -> Option<&RankRecord> {
        self.ranks.get(usize::try_from(rank.0).ok()?)
    }

    fn rank_mut(&mut self, rank: Rank) -> Option<&mut RankRecord> {
        self.ranks.get_mut(usize::try_from(rank.0).ok()?)
    }

    fn record(&mut self, rank: Rank) {
        if !self.order.contains(&rank) {
            self.order.push(rank);
        }
    }

    /// A process has ended. Only the first report of a rank counts. Returns whether to report the failure now: the job
    /// continues after it.
    pub(crate) fn handle_ended(&mut self, rank: Rank, ending: Ending, participation: Participation) -> bool {
        let Some(record) = self.rank_mut(rank).filter(|record| record.ended.is_none()) else { return false };
        record.ended = Some((ending, participation));
        let failed = record.has_failed() && record.aborted.is_none();
        self.running -= 1;
        // What happens while the job is being ended changes nothing.
        if failed && (!self.ending || self.code.is_none()) {
            self.record(rank);
        }
        failed && !self.ending && self.policy != OnDeath::End
    }

    /// A rank left the job without finishing it.
    pub(crate) fn handle_left(&mut self, rank: Rank) {
        if let Some(record) = self.rank_mut(rank) {
            record.left = true;
            self.record(rank);
        }
    }

    /// A rank's operation failed because of another rank. Only its first cause counts.
    pub(crate) fn handle_cause(&mut self, rank: Rank, cause: Rank) {
        if let Some(record) = self.rank_mut(rank) {
            record.cause.get_or_insert(cause);
        }
    }

    /// A rank aborts the job, which makes the operations of all others fail.
    pub(crate) fn handle_abort(&mut self, rank: Rank, code: i32) {
        let causes = self.chain(rank, true);
        for (number, record) in (0..).zip(&mut self.ranks) {
            if record.ended.is_none() && Rank(number) != rank && !causes.contains(&Rank(number)) {
                record.cause.get_or_insert(rank);
            }
        }
        if let Some(record) = self.rank_mut(rank) {
            record.aborted.get_or_insert(code);
            self.record(rank);
            self.aborted = true;
        }
    }

    /// The user interrupts the job: further ends of ranks are not reported.
    pub(crate) const fn handle_interrupt(&mut self) {
        self.ending = true;
    }

    /// The reader of the output is gone, as in a pipeline that needs no more of it: the job ends as by SIGPIPE, without
    /// a report.
    pub(crate) fn handle_output_closed(&mut self) {
        if !self.ending {
            self.ending = true;
            self.code = Some(exit_code(Ending::Signalled(SIGPIPE).code()));
        }
    }

    /// A rank and those that it failed because of, one after the other.
    fn chain(&self, rank: Rank, runs: bool) -> Vec<Rank> {
        let mut chain = vec![rank];
        while let Some(cause) = chain.last().and_then(|last| self.rank(*last)?.cause)
            && self.rank(cause).is_some_and(|record| record.is_culpable(runs))
            && !chain.contains(&cause)
        {
            chain.push(cause);
        }
        chain
    }

    /// The first causes of all failures until now, in the order in which they failed. `runs`: a rank that still runs
    /// may be one.
    fn first_causes(&self, runs: bool) -> Vec<Rank> {
        let mut causes: Vec<Rank> = Vec::new();
        for rank in self.order.iter().filter(|rank| self.rank(**rank).is_some_and(RankRecord::has_failed)) {
            let chain = self.chain(*rank, runs);
            let last = chain.last().and_then(|last| self.rank(*last)?.cause);
            // Ranks that name each other are one cause together.
            let first = last.and_then(|cause| chain.iter().position(|rank| *rank == cause));
            let first = first.unwrap_or(chain.len() - 1);
            causes.extend(chain.get(first..).unwrap_or_default());
        }
        causes.sort_by_key(|cause| (self.order.iter().position(|rank| rank == cause).unwrap_or(usize::MAX), *cause));
        causes.dedup();
        causes
    }

    /// What to do after the events until now. `is_time_up`: no rank is waited for any longer.
    pub(crate) fn decide(&mut self, is_time_up: bool) -> Decision {
        if self.ending || (self.policy != OnDeath::End && !self.aborted) {
            return Decision::Continue;
        }
        let causes = self.first_causes(!is_time_up);
        if causes.is_empty() {
            return Decision::Continue;
        }
        let runs = |rank: &Rank| self.rank(*rank).is_some_and(|record| record.ended.is_none());
        if !is_time_up && causes.iter().any(runs) {
            return Decision::Wait;
        }
        self.code = causes.first().map(|first| self.code_of(*first));
        self.ending = true;
        Decision::End(causes)
    }

    /// How a rank failed; `None` if it did not.
    pub(crate) fn failure(&self, rank: Rank) -> Option<RankFailure> {
        self.rank(rank)?.failure()
    }

    fn code_of(&self, rank: Rank) -> u8 {
        match self.failure(rank) {
            Some(RankFailure::Ended(ending)) => exit_code(ending.code()),
            Some(RankFailure::Aborted(code)) => exit_code(code),
            Some(RankFailure::Unfinished | RankFailure::NotJoined | RankFailure::Left { .. }) | None => 1,
        }
    }

    /// Whether a rank is still running.
    pub(crate) fn is_running(&self, rank: Rank) -> bool {
        self.rank(rank).is_some_and(|record| record.ended.is_none())
    }

    /// Whether all ranks have ended.
    pub(crate) const fn is_over(&self) -> bool {
        self.running == 0
    }

    /// The launcher's exit code: that of the rank that failed first.
    pub(crate) fn code(&self) -> u8 {
        let first = || self.first_causes(false).first().map_or(0, |first| self.code_of(*first));
        self.code.unwrap_or_else(first)
    }
}

/// The exit code of a failure, as the system represents it: never 0.
fn exit_code(code: i32) -> u8 {
    u8::try_from(code & 0xff).ok().filter(|code| *code != 0).unwrap_or(1)
}

#[cfg(test)]
mod tests;
