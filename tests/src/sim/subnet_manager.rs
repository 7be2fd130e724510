//! The simulated subnet manager: it handles the requests of members one after the other, then programs the switches.
//!
//! Source: Mamidala's dissertation (2008), §2.2.4 and §5.2.2: a member requests, and is not notified when the routing
//! tables are programmed.

/// The delays of a subnet manager, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubnetDelays {
    /// From a process to the manager.
    pub request_ns: u64,
    /// To handle the first member of a group.
    pub create_ns: u64,
    /// To handle any other member.
    pub join_ns: u64,
    /// To handle a leaving member.
    pub leave_ns: u64,
    /// From handling a request until the switches forward to the member. Those of several requests overlap.
    pub route_ns: u64,
}

/// A subnet manager.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubnetManager {
    delays: SubnetDelays,
    /// When it has handled all requests.
    free: u64,
}

impl SubnetManager {
    pub(super) const fn new(delays: SubnetDelays) -> Self {
        Self { delays, free: 0 }
    }

    /// Handles the first member of a group. Returns from when on the switches forward to it.
    pub(super) fn create(&mut self, now: u64) -> u64 {
        self.handle(now, self.delays.create_ns)
    }

    /// Handles a further member of a group. Returns from when on the switches forward to it.
    pub(super) fn join(&mut self, now: u64) -> u64 {
        self.handle(now, self.delays.join_ns)
    }

    /// Handles a leaving member.
    pub(super) fn leave(&mut self, now: u64) {
        self.handle(now, self.delays.leave_ns);
    }

    fn handle(&mut self, now: u64, duration: u64) -> u64 {
        self.free = self.free.max(now + self.delays.request_ns) + duration;
        self.free + self.delays.route_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_handled_one_after_the_other_and_routed_in_parallel() {
        let delays = SubnetDelays { request_ns: 1, create_ns: 10, join_ns: 100, leave_ns: 1000, route_ns: 10_000 };
        let mut manager = SubnetManager::new(delays);
        assert_eq!(manager.create(0), 10_011);
        assert_eq!(manager.join(0), 10_111);
        manager.leave(50);
        assert_eq!(manager.join(60), 11_211, "after the one that leaves");
        assert_eq!(manager.join(5_000), 15_101, "it was idle");
    }
}
