//! When a communicator's broadcasts go by its multicast group.
//!
//! Source: Mamidala's dissertation (2008), §5.2.2 to §5.2.4.

use super::group_test::TestState;

/// Where a communicator gets its group from, and what its root does until the group may be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupPolicy {
    /// The members make the group when the communicator is created, and wait for its test.
    Basic,
    /// The members make the group when the communicator is created, and use schedules until its test has passed.
    Lazy,
    /// The communicator takes a group of a [`GroupPool`](super::GroupPool), whose test has passed. Without one it makes
    /// its own, as [`Lazy`](Self::Lazy).
    Pool,
}

/// How the root's next broadcast goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BroadcastPath {
    /// It waits for the group.
    Wait,
    /// By messages between two ranks.
    Schedule,
    /// By the group.
    Multicast,
}

impl GroupPolicy {
    /// The path of the next broadcast over a group whose test is in this state. A group that cannot be used is never
    /// waited for.
    pub const fn path(self, group: TestState) -> BroadcastPath {
        match (group, self) {
            (TestState::Passed, _) => BroadcastPath::Multicast,
            (TestState::Joining | TestState::Testing, Self::Basic) => BroadcastPath::Wait,
            _ => BroadcastPath::Schedule,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_waits_for_the_test_and_nothing_waits_for_a_failed_one() {
        use BroadcastPath::{Multicast, Schedule, Wait};
        let states = [TestState::Joining, TestState::Testing, TestState::Passed, TestState::Failed];
        let paths = |policy: GroupPolicy| states.map(|state| policy.path(state));
        assert_eq!(paths(GroupPolicy::Basic), [Wait, Wait, Multicast, Schedule]);
        assert_eq!(paths(GroupPolicy::Lazy), [Schedule, Schedule, Multicast, Schedule]);
        assert_eq!(paths(GroupPolicy::Pool), [Schedule, Schedule, Multicast, Schedule]);
    }
}
