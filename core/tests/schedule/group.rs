//! All ranks' schedules of one collective, and the list of all specifications.

use unisono_core::collective::{CollectiveKind, Order};
use unisono_core::ids::{CollectiveId, Rank};
use unisono_core::schedule::{
    Algorithm, Executor, GroupLevels, HierarchicalPlan, Hierarchy, HierarchyOptions, Plan, Schedule, Spec, Step,
    Unsupported,
};

/// What a rank's schedule needs of its memory.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) spec: Spec,
    pub(crate) blocks: u32,
    pub(crate) scratch: u32,
}

pub(crate) struct Group {
    pub(crate) call: Spec,
    pub(crate) extents: Vec<Extent>,
    /// Whether there is such a schedule for blocks of different sizes.
    pub(crate) may_vary: bool,
    /// Flat schedules.
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
        let extents = plans.iter().map(|plan| Extent {
            spec: *plan.spec(),
            blocks: plan.blocks(),
            scratch: plan.scratch_blocks(),
        });
        let may_vary = Plan::new(Spec { varying: true, ..call }).is_ok();
        Ok(Self { call, extents: extents.collect(), may_vary, steps: steps.collect(), plans })
    }

    /// Schedules over subgroups; `group_levels` says of each rank which of its subgroups have steps of their own.
    pub(crate) fn nested(
        call: Spec,
        options: impl Into<HierarchyOptions>,
        groups: Hierarchy<&[u32]>,
        group_levels: impl Fn(u32) -> GroupLevels,
    ) -> Result<Self, Unsupported> {
        let options = options.into();
        let new = |rank: u32, varying| {
            let spec = Spec { rank: Rank(rank), varying, ..call };
            match group_levels(rank) {
                GroupLevels::NONE => HierarchicalPlan::new(spec, options, groups),
                levels => HierarchicalPlan::with_group_steps(spec, options, groups, levels),
            }
        };
        let plans: Vec<_> = (0..call.size).map(|rank| new(rank, call.varying)).collect();
        assert!(plans.iter().all(|plan| plan.as_ref().err() == plans[0].as_ref().err()), "{call:?} {groups:?}");
        let plans: Vec<_> = plans.into_iter().collect::<Result<_, _>>()?;
        let steps = plans.iter().map(|plan| (0..plan.steps()).map(|i| plan.step(i).expect("a step")).collect());
        let extents = plans.iter().map(|plan| Extent {
            spec: *plan.spec(),
            blocks: plan.blocks(),
            scratch: plan.scratch_blocks(),
        });
        let may_vary = new(0, true).is_ok();
        Ok(Self { call, steps: steps.collect(), extents: extents.collect(), may_vary, plans: Vec::new() })
    }

    /// One executor per rank, over the group's steps.
    pub(crate) fn executors(&self) -> Vec<Executor<Listed<'_>>> {
        self.steps.iter().map(|steps| Listed::executor(self.call.collective, steps)).collect()
    }

    pub(crate) fn size(&self) -> usize {
        self.extents.len()
    }
}

fn places(verb: CollectiveKind) -> bool {
    !matches!(verb, CollectiveKind::Barrier | CollectiveKind::Broadcast)
}

/// The orders in which schedules of the collective differ.
pub(crate) fn orders(verb: CollectiveKind) -> &'static [Order] {
    match verb {
        _ if verb.combines() => &[Order::Any, Order::Rank, Order::Fixed],
        CollectiveKind::Allgather => &[Order::Any, Order::Rank],
        _ => &[Order::Any],
    }
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
                        for order in orders(verb) {
                            for in_place in if places(verb) { vec![false, true] } else { vec![false] } {
                                let call = Spec::new(verb, algorithm, size, ports);
                                let call = Spec { radix: k + 1, root: Rank(root), order: *order, in_place, ..call };
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
