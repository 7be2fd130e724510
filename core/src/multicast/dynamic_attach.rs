//! Whether a rank joins the multicast group of its node's leader itself ("dynamic attach").
//!
//! Source: Mamidala's dissertation (2008), §6.3.2. There the mean is over the broadcasts for which the leader does not wait.
//! Here recent broadcasts weigh more, those for which the leader waits count as none, and an attached rank counts how long
//! it would have waited, so that it stays attached as long as that is long.

/// The parameters of a rank. Times in any unit, the same in all calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttachConfig {
    /// A rank attaches while its mean excess of waiting is greater.
    pub threshold: u32,
    /// Broadcasts before it may attach.
    pub warmup: u32,
    /// Broadcasts in a row with a mean excess of at most the threshold after which it leaves.
    pub linger: u32,
}

/// What a rank does after a broadcast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttachChange {
    /// It joins the group.
    Attach,
    /// It leaves the group.
    Detach,
}

/// How a rank gets broadcasts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum AttachState {
    /// From the leader; it has got this number.
    Following { seen: u32 },
    /// From the group, too; the mean excess has been small for this number of broadcasts.
    Attached { below: u32 },
}

/// The decision of a rank that is not its node's leader.
///
/// The host calls [`record`](Self::record) once for each broadcast, when the leader's copy has arrived, and carries out
/// what it returns. Work and memory are O(1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DynamicAttach {
    config: AttachConfig,
    state: AttachState,
    /// The mean excess, times [`WEIGHT`]; `None` before the first broadcast.
    mean: Option<u64>,
}

/// The last broadcast has a part in this of the mean.
const WEIGHT: u64 = 8;

impl DynamicAttach {
    /// A rank that gets broadcasts from its leader.
    pub const fn new(config: AttachConfig) -> Self {
        Self { config, state: AttachState::Following { seen: 0 }, mean: None }
    }

    /// Whether the rank is to be a member of the group.
    pub const fn is_attached(&self) -> bool {
        matches!(self.state, AttachState::Attached { .. })
    }

    /// The mean excess of waiting.
    pub const fn mean(&self) -> u32 {
        match self.mean {
            Some(mean) => (mean / WEIGHT) as u32,
            None => 0,
        }
    }

    /// Records a broadcast: `own` from this rank's entering the call to the arrival of the leader's copy, `leader` from
    /// the leader's entering to the arrival of the data from the network. Where the leader waited, too, the data was late
    /// and not the leader: the excess is 0.
    pub fn record(&mut self, own: u32, leader: u32) -> Option<AttachChange> {
        let excess = if leader > 0 { 0 } else { u64::from(own) };
        self.mean = Some(match self.mean {
            None => excess.saturating_mul(WEIGHT),
            Some(mean) => mean.saturating_sub(mean / WEIGHT).saturating_add(excess),
        });
        let is_above = self.mean() > self.config.threshold;
        match &mut self.state {
            AttachState::Following { seen } => {
                *seen = seen.saturating_add(1);
                let attaches = is_above && *seen >= self.config.warmup;
                attaches.then(|| {
                    self.state = AttachState::Attached { below: 0 };
                    AttachChange::Attach
                })
            }
            AttachState::Attached { below } => {
                *below = if is_above { 0 } else { below.saturating_add(1) };
                (!is_above && *below >= self.config.linger).then(|| {
                    self.state = AttachState::Following { seen: 0 };
                    AttachChange::Detach
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: AttachConfig = AttachConfig { threshold: 100, warmup: 3, linger: 4 };

    #[test]
    fn rank_whose_leader_is_late_attaches_after_the_warmup() {
        let mut rank = DynamicAttach::new(CONFIG);
        assert!([101, 101].iter().all(|wait| rank.record(*wait, 0).is_none()) && !rank.is_attached());
        assert_eq!((rank.record(101, 0), rank.mean()), (Some(AttachChange::Attach), 101));
        assert!((0..100).all(|_| rank.record(101, 0).is_none()) && rank.is_attached());
    }

    #[test]
    fn waits_up_to_the_threshold_and_waits_for_the_network_do_not_attach() {
        for (own, leader) in [(100, 0), (u32::MAX, 1)] {
            let mut rank = DynamicAttach::new(CONFIG);
            assert!((0..100).all(|_| rank.record(own, leader).is_none()) && !rank.is_attached());
        }
    }

    #[test]
    fn attached_rank_leaves_after_a_run_of_short_waits() {
        let mut rank = DynamicAttach::new(CONFIG);
        assert_eq!((0..3).filter_map(|_| rank.record(110, 0)).count(), 1);
        for _ in 0..10 {
            // Shorter than the run.
            assert!((0..3).all(|_| rank.record(0, 0).is_none()) && rank.record(1000, 0).is_none());
        }
        let broadcasts = (1..100).find(|_| rank.record(0, 0).is_some());
        assert!(broadcasts.is_some_and(|broadcasts| (4..40).contains(&broadcasts)) && !rank.is_attached());
        assert!((0..2).all(|_| rank.record(1000, 0).is_none()), "the warmup begins again");
    }
}
