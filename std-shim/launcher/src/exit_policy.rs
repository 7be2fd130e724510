//! The exit policy of a job: whether the end of a rank ends the job, and the launcher's exit code. Pure decisions,
//! without processes or clocks.

use unisono::environment::OnDeath;
use unisono_bootstrap::{Ending, Rank};

/// The consequences of a rank's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RankEndAction {
    /// Print a message.
    pub(crate) report: bool,
    /// End the other ranks.
    pub(crate) end_job: bool,
}

/// The ranks that have ended, and the launcher's exit code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExitPolicy {
    policy: OnDeath,
    ended: Vec<Option<Ending>>,
    running: usize,
    ending: bool,
    code: Option<u8>,
}

impl ExitPolicy {
    pub(crate) fn new(size: u32, policy: OnDeath) -> Self {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Self { policy, ended: vec![None; size], running: size, ending: false, code: None }
    }

    /// A rank has ended. Only the first report of a rank counts.
    pub(crate) fn handle_ended(&mut self, rank: Rank, ending: Ending) -> RankEndAction {
        let slot = usize::try_from(rank.0).ok().and_then(|rank| self.ended.get_mut(rank));
        match slot {
            Some(slot @ None) => {
                *slot = Some(ending);
                self.running -= 1;
            }
            _ => return RankEndAction { report: false, end_job: false },
        }
        if ending == Ending::Exited(0) { RankEndAction { report: false, end_job: false } } else { self.fail(ending) }
    }

    /// A rank exited with code 0 without finishing the job: for the other ranks, it failed.
    pub(crate) fn handle_unfinished_exit(&mut self) -> RankEndAction {
        self.fail(Ending::Exited(0))
    }

    /// A rank aborted the job. Its code becomes the launcher's, unless the job was ending already.
    pub(crate) fn handle_abort(&mut self, code: i32) -> RankEndAction {
        let consequence = RankEndAction { report: !self.ending, end_job: !self.ending };
        if !self.ending {
            self.code = Some(exit_code(code));
        }
        self.ending = true;
        consequence
    }

    /// The user interrupts the job: further ends of ranks are not reported.
    pub(crate) const fn handle_interrupt(&mut self) {
        self.ending = true;
    }

    fn fail(&mut self, ending: Ending) -> RankEndAction {
        let consequence = RankEndAction { report: !self.ending, end_job: !self.ending && self.policy == OnDeath::End };
        if self.code.is_none() {
            self.code = Some(exit_code(ending.code()));
        }
        if consequence.end_job {
            self.ending = true;
        }
        consequence
    }

    /// Whether a rank is still running.
    pub(crate) fn is_running(&self, rank: Rank) -> bool {
        usize::try_from(rank.0).ok().and_then(|rank| self.ended.get(rank)).is_some_and(Option::is_none)
    }

    /// Whether all ranks have ended.
    pub(crate) const fn is_over(&self) -> bool {
        self.running == 0
    }

    /// The launcher's exit code: that of the first rank that failed.
    pub(crate) const fn code(&self) -> u8 {
        match self.code {
            Some(code) => code,
            None => 0,
        }
    }
}

/// The exit code of a failure, as the system represents it: never 0.
fn exit_code(code: i32) -> u8 {
    u8::try_from(code & 0xff).ok().filter(|code| *code != 0).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: RankEndAction = RankEndAction { report: false, end_job: false };
    const END: RankEndAction = RankEndAction { report: true, end_job: true };
    const TELL: RankEndAction = RankEndAction { report: true, end_job: false };

    #[test]
    fn a_job_that_ends_well_has_code_zero() {
        let mut verdict = ExitPolicy::new(2, OnDeath::End);
        assert_eq!(verdict.handle_ended(Rank(1), Ending::Exited(0)), NOTHING);
        assert!(!verdict.is_over());
        assert_eq!(verdict.handle_ended(Rank(0), Ending::Exited(0)), NOTHING);
        assert!(verdict.is_over());
        assert_eq!(verdict.code(), 0);
    }

    #[test]
    fn the_first_failure_ends_the_job_and_names_its_code() {
        let mut verdict = ExitPolicy::new(3, OnDeath::End);
        assert_eq!(verdict.handle_ended(Rank(1), Ending::Signalled(9)), END);
        assert_eq!(verdict.handle_ended(Rank(1), Ending::Exited(4)), NOTHING);
        assert_eq!(verdict.handle_ended(Rank(0), Ending::Signalled(15)), NOTHING);
        assert_eq!(verdict.handle_ended(Rank(2), Ending::Exited(5)), NOTHING);
        assert!(verdict.is_over());
        assert_eq!(verdict.code(), 137);
    }

    #[test]
    fn other_policies_report_and_continue() {
        for policy in [OnDeath::Tell, OnDeath::Silent] {
            let mut verdict = ExitPolicy::new(2, policy);
            assert_eq!(verdict.handle_ended(Rank(1), Ending::Exited(3)), TELL);
            assert!(verdict.is_running(Rank(0)));
            assert_eq!(verdict.handle_ended(Rank(0), Ending::Exited(4)), TELL);
            assert_eq!(verdict.code(), 3);
        }
    }

    #[test]
    fn an_abort_ends_any_job_with_its_code() {
        let mut verdict = ExitPolicy::new(2, OnDeath::Silent);
        assert_eq!(verdict.handle_abort(256), END);
        assert_eq!(verdict.handle_abort(7), NOTHING);
        assert_eq!(verdict.handle_ended(Rank(0), Ending::Signalled(15)), NOTHING);
        assert_eq!(verdict.code(), 1, "256 is not success");
    }

    #[test]
    fn after_an_interrupt_failures_are_not_reported_but_have_a_code() {
        let mut verdict = ExitPolicy::new(1, OnDeath::End);
        verdict.handle_interrupt();
        assert_eq!(verdict.handle_ended(Rank(0), Ending::Signalled(2)), NOTHING);
        assert_eq!(verdict.code(), 130);
    }

    #[test]
    fn a_rank_that_exits_without_finishing_fails_though_its_code_is_zero() {
        let mut verdict = ExitPolicy::new(2, OnDeath::End);
        assert_eq!(verdict.handle_ended(Rank(0), Ending::Exited(0)), NOTHING);
        assert_eq!(verdict.handle_unfinished_exit(), END);
        assert_eq!(verdict.code(), 1);
    }

    #[test]
    fn ranks_that_do_not_exist_change_nothing() {
        let mut verdict = ExitPolicy::new(1, OnDeath::End);
        assert_eq!(verdict.handle_ended(Rank(9), Ending::Exited(1)), NOTHING);
        assert!(!verdict.is_over());
        assert!(!verdict.is_running(Rank(9)));
    }
}
