//! All ranks' schedules of one collective, and the list of all specifications.

use unisono_core::collective::{CollectiveKind, Order};
use unisono_core::ids::{CollectiveId, Rank};
use unisono_core::schedule::{Algorithm, Executor, Plan, Schedule, Spec, Step, Unsupported};

pub(crate) struct Group {
    pub(crate) call: Spec,
    pub(crate) plans: Vec<Plan>,
    pub(crate) steps: Vec<Vec<Step>>,
}

/// The steps of a plan, possibly truncated or modified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'s> {
    verb: CollectiveKind,
    steps: &'s [Step],
}

impl<'s> Listed<'s> {
    pub(crate) fn executor(verb: CollectiveKind, steps: &'s [Step]) -> Executor<Self> {
        Executor::new(CollectiveId::default(), Self { verb, steps })
    }
}

impl Schedule for Listed<'_> {
    fn collective(&self) -> CollectiveKind {
        self.verb
    }

    fn steps(&self) -> u32 {
        self.steps.len() as u32
    }

    fn step(&self, i: u32) -> Option<Step> {
        self.steps.get(i as usize).copied()
    }
}

impl Group {
    pub(crate) fn new(call: Spec) -> Result<Self, Unsupported> {
        let plans = (0..call.size).map(|rank| Plan::new(Spec { rank: Rank(rank), ..call }));
        let plans: Vec<Plan> = plans.collect::<Result<_, _>>()?;
        let steps = plans.iter().map(|plan| (0..plan.steps()).map(|i| plan.step(i).expect("a step")).collect());
        Ok(Self { call, steps: steps.collect(), plans })
    }

    /// One executor per rank, over the group's steps.
    pub(crate) fn executors(&self) -> Vec<Executor<Listed<'_>>> {
        self.steps.iter().map(|steps| Listed::executor(self.call.collective, steps)).collect()
    }

    pub(crate) fn size(&self) -> usize {
        self.plans.len()
    }
}

fn places(verb: CollectiveKind) -> bool {
    !matches!(verb, CollectiveKind::Barrier | CollectiveKind::Broadcast)
}

/// Every accepted specification of `sizes` ranks on `ports` ports, with one segment. Each algorithm uses its own ports,
/// a tree of k + 1 branches also one port.
pub(crate) fn calls(sizes: impl Iterator<Item = u32>, ports: &[u8]) -> Vec<Spec> {
    let mut all = Vec::new();
    for size in sizes {
        for (verb, algorithm) in
            CollectiveKind::ALL.iter().flat_map(|verb| Algorithm::ALL.map(|algorithm| (*verb, algorithm)))
        {
            for k in ports {
                let tree = algorithm == Algorithm::Knomial && *k > 1;
                for ports in if tree { vec![*k, 1] } else { vec![*k] } {
                    for root in 0..if verb.is_rooted() { size } else { 1 } {
                        for order in
                            if verb.combines() { vec![Order::Any, Order::Rank, Order::Fixed] } else { vec![Order::Any] }
                        {
                            for in_place in if places(verb) { vec![false, true] } else { vec![false] } {
                                let call = Spec::new(verb, algorithm, size, ports);
                                let call = Spec { radix: k + 1, root: Rank(root), order, in_place, ..call };
                                if Plan::new(call).is_ok() {
                                    all.push(call);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    all
}
