//! The test of a group ("multicast testing"): its root sends probes to the group until every member has answered one.
//!
//! A group is used only after the test: a member that multicast does not reach would get every segment by unicast
//! repair. Source: Mamidala's dissertation (2008), ch. 5, lazily created groups.

use crate::ids::Rank;
use crate::time::Time;

/// The state of a test.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TestState {
    /// Some members have not joined yet.
    Joining,
    /// All members have joined, and some have not answered.
    Testing,
    /// Every member has answered.
    Passed,
    /// A member cannot join, or has not answered the last probe in time, or the group was [abandoned](GroupTest::abandon).
    Failed,
}

/// What is known of a member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Member {
    /// There is no such member, or nothing is expected of it.
    #[default]
    Absent,
    Joining,
    Joined,
    Answered,
}

/// The test of a group of up to `N` members, at its root.
///
/// A probe is sent when all members have joined, and again with backoff until all have answered; after the last one the
/// test fails. Work per call is O(`N`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupTest<T: Time, const N: usize> {
    state: TestState,
    members: [Member; N],
    /// Time between the first two probes, and between any two at most, in units of 64 ns.
    interval: u32,
    max_interval: u32,
    /// Probes that are left.
    left: u32,
    deadline: Option<T::Instant>,
    is_due: bool,
}

impl<T: Time, const N: usize> GroupTest<T, N> {
    /// The test of a group of `size` members at its root, with at most `probes` probes. It fails at once if `size`
    /// exceeds `N`.
    pub fn new(now: T::Instant, root: Rank, size: u32, (probes, interval, max_interval): (u32, u32, u32)) -> Self {
        let mut members = [Member::Absent; N];
        for (rank, member) in (0..size).zip(&mut members) {
            *member = if rank == root.0 { Member::Absent } else { Member::Joining };
        }
        let state = if size as usize > N { TestState::Failed } else { TestState::Joining };
        let mut test = Self { state, members, interval, max_interval, left: probes, deadline: None, is_due: false };
        test.advance(now);
        test
    }

    /// Its state.
    pub const fn state(&self) -> TestState {
        self.state
    }

    /// A member has joined the group.
    pub fn handle_joined(&mut self, now: T::Instant, rank: Rank) {
        if let Some(member) = self.members.get_mut(rank.0 as usize).filter(|member| **member == Member::Joining) {
            *member = Member::Joined;
            self.advance(now);
        }
    }

    /// A member cannot join the group.
    pub fn handle_refused(&mut self, rank: Rank) {
        let is_awaited = self.members.get(rank.0 as usize).is_some_and(|member| *member != Member::Absent);
        if is_awaited && self.state != TestState::Passed {
            self.end(TestState::Failed);
        }
    }

    /// The group is not used any more, although it has passed.
    pub fn abandon(&mut self) {
        self.end(TestState::Failed);
    }

    /// A member has answered a probe that was sent to the group.
    pub fn handle_answer(&mut self, now: T::Instant, rank: Rank) {
        if let Some(member) = self.members.get_mut(rank.0 as usize).filter(|member| **member == Member::Joined) {
            *member = Member::Answered;
            self.advance(now);
        }
    }

    /// Whether a member has answered.
    pub fn has_answers(&self) -> bool {
        self.members.contains(&Member::Answered)
    }

    /// The members that have not joined or not answered yet.
    pub fn awaited(&self) -> impl Iterator<Item = Rank> + '_ {
        let is_awaited = |member: &Member| matches!(member, Member::Joining | Member::Joined);
        (0..).map(Rank).zip(&self.members).filter(move |(_, member)| is_awaited(member)).map(|(rank, _)| rank)
    }

    /// Nothing is expected of a member any more.
    pub fn handle_failed(&mut self, now: T::Instant, rank: Rank) {
        if let Some(member) = self.members.get_mut(rank.0 as usize) {
            *member = Member::Absent;
            self.advance(now);
        }
    }

    /// Whether a probe is to be sent to the group now.
    pub const fn poll_transmit(&mut self) -> bool {
        core::mem::replace(&mut self.is_due, false)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub const fn poll_timeout(&self) -> Option<T::Instant> {
        self.deadline
    }

    /// Sends the next probe, or fails, if the deadline has passed.
    pub fn handle_timeout(&mut self, now: T::Instant) {
        if self.state == TestState::Testing && self.deadline.is_some_and(|at| T::is_due(now, at)) {
            self.probe(now);
        }
    }

    fn advance(&mut self, now: T::Instant) {
        let has = |known: Member| self.members.contains(&known);
        match self.state {
            TestState::Joining | TestState::Testing if !has(Member::Joining) && !has(Member::Joined) => {
                self.end(TestState::Passed);
            }
            TestState::Joining if !has(Member::Joining) => {
                self.state = TestState::Testing;
                self.probe(now);
            }
            _ => {}
        }
    }

    fn probe(&mut self, now: T::Instant) {
        let Some(left) = self.left.checked_sub(1) else { return self.end(TestState::Failed) };
        (self.left, self.is_due) = (left, true);
        self.deadline = Some(T::after(now, self.interval));
        self.interval = self.interval.saturating_mul(2).min(self.max_interval);
    }

    fn end(&mut self, state: TestState) {
        (self.state, self.deadline, self.is_due) = (state, None, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Nanos;

    const UNIT: u64 = 64;

    fn test(size: u32) -> GroupTest<Nanos, 4> {
        GroupTest::new(0, Rank(1), size, (3, 10, 20))
    }

    #[test]
    fn all_members_join_and_answer() {
        let mut test = test(3);
        test.handle_answer(0, Rank(0));
        test.handle_joined(0, Rank(0));
        test.handle_joined(0, Rank(1));
        assert!(test.state() == TestState::Joining && !test.poll_transmit() && test.poll_timeout().is_none());
        assert!(!test.has_answers() && test.awaited().eq([Rank(0), Rank(2)]));
        test.handle_joined(5, Rank(2));
        assert!(test.state() == TestState::Testing && test.poll_transmit() && !test.poll_transmit());
        test.handle_answer(6, Rank(2));
        test.handle_answer(6, Rank(2));
        assert_eq!(test.state(), TestState::Testing, "an answer from before it joined does not count");
        assert!(test.has_answers() && test.awaited().eq([Rank(0)]));
        test.handle_answer(7, Rank(0));
        assert!(test.state() == TestState::Passed && test.poll_timeout().is_none());
        test.handle_refused(Rank(2));
        assert_eq!(test.state(), TestState::Passed);
    }

    #[test]
    fn probes_are_repeated_with_backoff_until_it_fails() {
        let mut test = test(2);
        test.handle_joined(0, Rank(0));
        for at in [10, 30] {
            assert!(test.poll_transmit());
            assert_eq!(test.poll_timeout(), Some(at * UNIT));
            test.handle_timeout(at * UNIT - 1);
            assert!(!test.poll_transmit());
            test.handle_timeout(at * UNIT);
        }
        assert!(test.poll_transmit() && test.state() == TestState::Testing);
        test.handle_timeout(50 * UNIT);
        assert!(test.state() == TestState::Failed && !test.poll_transmit() && test.poll_timeout().is_none());
        test.handle_answer(0, Rank(0));
        assert_eq!(test.state(), TestState::Failed);
    }

    #[test]
    fn members_that_cannot_join_and_too_many_members_fail_it() {
        let mut refused = test(3);
        refused.handle_refused(Rank(1));
        refused.handle_refused(Rank(7));
        assert_eq!(refused.state(), TestState::Joining, "neither is awaited");
        refused.handle_refused(Rank(2));
        assert_eq!(refused.state(), TestState::Failed);
        assert_eq!(test(5).state(), TestState::Failed);
        assert_eq!(test(4).state(), TestState::Joining);
    }

    #[test]
    fn members_that_fail_are_not_awaited() {
        let mut test = test(3);
        test.handle_joined(0, Rank(0));
        test.handle_failed(0, Rank(2));
        assert_eq!(test.state(), TestState::Testing);
        test.handle_failed(0, Rank(0));
        assert_eq!(test.state(), TestState::Passed);
    }
}
