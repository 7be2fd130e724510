//! Composition of the stages of each collective.

use super::stage::{Part, Placement, Stage, Unit, View};
use super::{HierarchicalPlan, LowerTrees, root_of};
use crate::collective::{CollectiveKind, Order};
use crate::schedule::algorithm::tree::{Down, Tree, TreeData, Up};
use crate::schedule::hierarchy::Subgroup;
use crate::schedule::plan::PhaseKind;
use crate::schedule::radix::{Radix, quotient};
use crate::schedule::spec::check;
use crate::schedule::{Algorithm, BlockBuffer, Hierarchy, Plan, Rank, Spec, Unsupported};

/// A buffer, and a block in it.
type Place = (BlockBuffer, u32);

const INPUT: Place = (BlockBuffer::Input, 0);
const OUTPUT: Place = (BlockBuffer::Output, 0);

/// The numbers of stages, by level: up to the leaders and down from them.
const UP: [u32; 2] = [0, 1];
const TOP: u32 = 2;
const DOWN: [u32; 2] = [3, 4];

impl<T: AsRef<[u32]>> HierarchicalPlan<T> {
    /// Builds the schedule of `spec.rank` over the subgroups of `hierarchy`.
    ///
    /// # Errors
    /// All ranks of a group get the same result. [`Unsupported::Unavailable`]: scans, and alltoalls, in which the
    /// levels move every byte once more; [`Unsupported::Brackets`]: a fixed order must not depend on the groups;
    /// [`Unsupported::Order`]: the groups are not contiguous, and the operation does not commute;
    /// [`Unsupported::Varying`]: leaders do not know the blocks' sizes, or would have to sort them;
    /// [`Unsupported::Rank`]: `spec.size` is not the hierarchy's. The others are those of [`Plan::new`].
    pub fn new(spec: Spec, lower: LowerTrees, hierarchy: Hierarchy<T>) -> Result<Self, Unsupported> {
        let own = hierarchy.locate(spec.rank).filter(|_| hierarchy.ranks() == spec.size).ok_or(Unsupported::Rank)?;
        let root = match root_of(&spec) {
            None => None,
            Some(root) => Some((root, hierarchy.locate(root).ok_or(Unsupported::Rank)?)),
        };
        let place = Placement { hierarchy, root, own };
        check_composed(&spec, lower, place.hierarchy.is_contiguous())?;
        let mut plan =
            Self { spec, place, parts: [const { None }; super::PARTS], blocks: 1, scratch: 0, steps: 0, last: None };
        let top = plan.spec_in(Subgroup::Top, spec.collective, lower);
        check(&top)?;
        plan.blocks = match spec.collective {
            CollectiveKind::Gather
            | CollectiveKind::Scatter
            | CollectiveKind::Allgather
            | CollectiveKind::ReduceScatter => spec.size,
            _ => Plan::new(top)?.blocks(),
        };
        match spec.collective {
            CollectiveKind::Barrier => plan.barrier(lower)?,
            CollectiveKind::Broadcast => plan.broadcast(lower)?,
            CollectiveKind::Reduce => plan.reduce(lower)?,
            CollectiveKind::Allreduce => plan.allreduce(lower)?,
            CollectiveKind::ReduceScatter => plan.reduce_scatter(lower)?,
            CollectiveKind::Gather => plan.gather(lower)?,
            CollectiveKind::Scatter => plan.scatter(lower)?,
            CollectiveKind::Allgather => plan.allgather(lower)?,
            CollectiveKind::Alltoall | CollectiveKind::Scan | CollectiveKind::Exscan => {
                return Err(Unsupported::Unavailable);
            }
        }
        Ok(plan)
    }

    fn barrier(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let load = TreeData::Nothing;
        for (subgroup, number) in self.lower_groups(UP) {
            let plan = self.tree(subgroup, lower, |tree| PhaseKind::Up(Up { tree, load }));
            self.vector(subgroup, number, plan, INPUT, OUTPUT, 0);
        }
        if self.leads(1) {
            let plan = Plan::new(self.spec_in(Subgroup::Top, CollectiveKind::Barrier, lower))?;
            self.vector(Subgroup::Top, TOP, plan, INPUT, OUTPUT, 0);
        }
        for (subgroup, number) in self.lower_groups(DOWN).rev() {
            let plan = self.tree(subgroup, lower, |tree| PhaseKind::Down(Down { tree, load }));
            self.vector(subgroup, number, plan, INPUT, OUTPUT, 0);
        }
        Ok(())
    }

    fn broadcast(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        if self.leads(1) {
            let plan = Plan::new(self.spec_in(Subgroup::Top, CollectiveKind::Broadcast, lower))?;
            self.vector(Subgroup::Top, TOP, plan, OUTPUT, OUTPUT, 0);
        }
        self.broadcast_down(lower)
    }

    fn reduce(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let is_root = self.spec.rank == self.spec.root;
        let (sum, free) = if is_root { (OUTPUT, 0) } else { self.reserve(0, self.blocks) };
        self.reduce_up(sum, free, is_root && self.spec.in_place, lower)?;
        if self.leads(1) {
            let top = self.spec_in(Subgroup::Top, CollectiveKind::Reduce, lower);
            let plan = Plan::new(Spec { in_place: true, ..top })?;
            self.vector(Subgroup::Top, TOP, plan, sum, sum, free);
        }
        Ok(())
    }

    fn allreduce(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        self.reduce_up(OUTPUT, 0, self.spec.in_place, lower)?;
        if self.leads(1) {
            let top = self.spec_in(Subgroup::Top, CollectiveKind::Allreduce, lower);
            let plan = Plan::new(Spec { in_place: true, ..top })?;
            self.vector(Subgroup::Top, TOP, plan, OUTPUT, OUTPUT, 0);
        }
        self.broadcast_down(lower)
    }

    /// The vectors are combined at the leaders, whose reduce-scatter leaves each with the blocks of its ranks.
    fn reduce_scatter(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let size = self.spec.size;
        let (sum, free) = self.reserve(0, size);
        self.reduce_up(sum, free, false, lower)?;
        let (mut sorted, mut free) = (sum, free);
        if !self.place.hierarchy.is_contiguous() {
            (sorted, free) = self.reserve(free, size);
            if self.leads(1) {
                self.push(Part::Sort { from: sum, into: sorted });
            }
        }
        let (result, free) = self.reserve(free, size);
        if self.leads(1) {
            let plan = Plan::new(self.spec_in(Subgroup::Top, CollectiveKind::ReduceScatter, lower))?;
            self.push(Part::Stage(Stage {
                plan,
                subgroup: Subgroup::Top,
                number: TOP,
                input: view(sorted, Unit::Member),
                output: view(result, Unit::Own),
                scratch: view((BlockBuffer::Scratch, free), Unit::Member),
            }));
        }
        let in_place = self.spec.in_place;
        if in_place {
            let position = result.1.wrapping_add(self.place.own.position);
            self.last = Some(position);
            self.scratch = self.scratch.max(position.wrapping_add(1));
        }
        self.scatter_down(result, in_place, lower)
    }

    fn gather(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let direct = self.spec.rank == self.spec.root && self.place.hierarchy.is_contiguous();
        let held = if direct { OUTPUT } else { self.reserve(0, self.spec.size).0 };
        self.gather_up(held, direct && self.spec.in_place, lower)?;
        if self.leads(1) {
            let plan = self.rooted(lower, |tree, load| PhaseKind::Up(Up { tree, load }))?;
            let (input, output) = (view(held, Unit::Own), view(held, Unit::Member));
            self.push(Part::Stage(Stage {
                plan,
                subgroup: Subgroup::Top,
                number: TOP,
                input,
                output,
                scratch: output,
            }));
        }
        if self.spec.rank == self.spec.root && !direct {
            self.push(Part::Unsort { from: held, into: OUTPUT });
        }
        Ok(())
    }

    fn scatter(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let is_root = self.spec.rank == self.spec.root;
        let direct = is_root && self.place.hierarchy.is_contiguous();
        let held = if direct { INPUT } else { self.reserve(0, self.spec.size).0 };
        if is_root && !direct {
            self.push(Part::Sort { from: INPUT, into: held });
        }
        if self.leads(1) {
            let plan = self.rooted(lower, |tree, load| PhaseKind::Down(Down { tree, load }))?;
            let by_member = view(held, Unit::Member);
            // A tree holds all blocks in its output; without one the root sends from its input.
            let output = if self.spec.algorithm == Algorithm::Knomial { by_member } else { view(held, Unit::Own) };
            self.push(Part::Stage(Stage {
                plan,
                subgroup: Subgroup::Top,
                number: TOP,
                input: by_member,
                output,
                scratch: by_member,
            }));
        }
        self.scatter_down(held, is_root && self.spec.in_place, lower)
    }

    fn allgather(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let direct = self.place.hierarchy.is_contiguous();
        let held = if direct { OUTPUT } else { self.reserve(0, self.spec.size).0 };
        self.gather_up(held, direct && self.spec.in_place, lower)?;
        if self.leads(1) {
            let top = self.spec_in(Subgroup::Top, CollectiveKind::Allgather, lower);
            let plan = Plan::new(Spec { in_place: true, ..top })?;
            let by_member = view(held, Unit::Member);
            self.push(Part::Stage(Stage {
                plan,
                subgroup: Subgroup::Top,
                number: TOP,
                input: by_member,
                output: by_member,
                scratch: by_member,
            }));
            if !direct {
                self.push(Part::Unsort { from: held, into: OUTPUT });
            }
        }
        self.broadcast_down(lower)
    }

    /// Reduces the input to the leaders of the last level, at `sum`. Scratch is free from block `free` on. `in_place`:
    /// the input is `sum`.
    fn reduce_up(&mut self, sum: Place, free: u32, in_place: bool, lower: LowerTrees) -> Result<(), Unsupported> {
        for (subgroup, number) in self.lower_groups(UP) {
            let (input, in_place) = if number == UP[0] { (INPUT, in_place) } else { (sum, true) };
            let spec = self.spec_in(subgroup, CollectiveKind::Reduce, lower);
            let plan = Plan::new(Spec { in_place, ..spec })?;
            self.vector(subgroup, number, plan, input, sum, free);
        }
        Ok(())
    }

    /// Broadcasts the output of the leaders of the last level.
    fn broadcast_down(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        for (subgroup, number) in self.lower_groups(DOWN).rev() {
            let plan = Plan::new(self.spec_in(subgroup, CollectiveKind::Broadcast, lower))?;
            self.vector(subgroup, number, plan, OUTPUT, OUTPUT, 0);
        }
        Ok(())
    }

    /// Gathers blocks at the leaders of the last level, by position at `held`. `in_place`: the own block is there.
    fn gather_up(&mut self, held: Place, in_place: bool, lower: LowerTrees) -> Result<(), Unsupported> {
        let all = view(held, Unit::Member);
        for (subgroup, number) in self.lower_groups(UP) {
            let (plan, input) = if number == UP[0] {
                let spec = self.spec_in(subgroup, CollectiveKind::Gather, lower);
                (Plan::new(Spec { algorithm: Algorithm::Direct, in_place, ..spec })?, view(INPUT, Unit::Blocks(1)))
            } else {
                let load = TreeData::Held { place: BlockBuffer::Output };
                (self.tree(subgroup, lower, |tree| PhaseKind::Up(Up { tree, load })), all)
            };
            self.push(Part::Stage(Stage { plan, subgroup, number, input, output: all, scratch: all }));
        }
        Ok(())
    }

    /// Scatters the blocks that the leaders of the last level hold by position at `held`. `in_place`: a rank's block is
    /// not copied to its output: at ranks that lead no group it arrives at `held` if that is scratch.
    fn scatter_down(&mut self, held: Place, in_place: bool, lower: LowerTrees) -> Result<(), Unsupported> {
        let all = view(held, Unit::Member);
        let is_last = self.last.is_some();
        for (subgroup, number) in self.lower_groups(DOWN).rev() {
            let (plan, output) = if number == DOWN[0] {
                let spec = self.spec_in(subgroup, CollectiveKind::Scatter, lower);
                let output = if is_last { view(held, Unit::Own) } else { view(OUTPUT, Unit::Blocks(1)) };
                (Plan::new(Spec { algorithm: Algorithm::Direct, in_place, ..spec })?, output)
            } else {
                let load = TreeData::Held { place: BlockBuffer::Output };
                (self.tree(subgroup, lower, |tree| PhaseKind::Down(Down { tree, load })), all)
            };
            self.push(Part::Stage(Stage { plan, subgroup, number, input: all, output, scratch: all }));
        }
        Ok(())
    }

    /// The specification of a basic collective.
    fn spec_in(&self, subgroup: Subgroup, collective: CollectiveKind, lower: LowerTrees) -> Spec {
        let groups = &self.place.hierarchy;
        let (algorithm, ports, radix) = match subgroup {
            Subgroup::Top => (self.spec.algorithm, self.spec.ports, self.spec.radix),
            Subgroup::Inner(_) | Subgroup::Outer(_) => (Algorithm::Knomial, lower.ports, lower.radix),
        };
        Spec {
            collective,
            algorithm,
            rank: Rank(groups.number(subgroup, self.place.own)),
            size: groups.members(subgroup),
            root: Rank(self.root_in(subgroup)),
            ports,
            radix,
            segments: 1,
            // Leaders sort contiguous parts of an allgather.
            order: if collective == CollectiveKind::Allgather { Order::Any } else { self.spec.order },
            in_place: false,
            varying: false,
        }
    }

    /// The leader's number.
    fn root_in(&self, subgroup: Subgroup) -> u32 {
        let is_here = |inner: u32, outer: u32| match subgroup {
            Subgroup::Inner(group) => group == inner,
            Subgroup::Outer(group) => group == outer,
            Subgroup::Top => true,
        };
        match self.place.root {
            Some((_, at)) if is_here(at.inner, at.outer) => self.place.hierarchy.number(subgroup, at),
            _ => 0,
        }
    }

    /// Whether this rank takes part in level `level + 1`, or is the only member of a group without one.
    fn leads(&self, level: u32) -> bool {
        let Placement { hierarchy, root, own } = &self.place;
        let leader = |of: Subgroup| hierarchy.member(of, hierarchy.number(of, *own), *root) == self.spec.rank;
        let inner = if hierarchy.levels() == 3 { Subgroup::Outer(own.outer) } else { Subgroup::Top };
        leader(inner) && (level == 0 || leader(Subgroup::Top))
    }

    /// This rank's subgroups below the last level, innermost first, with their stages' numbers.
    fn lower_groups(&self, numbers: [u32; 2]) -> impl DoubleEndedIterator<Item = (Subgroup, u32)> + use<T> {
        let own = self.place.own;
        let outer = self.place.hierarchy.levels() == 3 && self.leads(0);
        let second = outer.then_some((Subgroup::Outer(own.outer), numbers[1]));
        core::iter::once((Subgroup::Inner(own.inner), numbers[0])).chain(second)
    }

    /// A tree below the last level.
    fn tree(&self, subgroup: Subgroup, lower: LowerTrees, phase: impl Fn(Tree) -> PhaseKind) -> Plan {
        let spec = self.spec_in(subgroup, self.spec.collective, lower);
        tree_plan(spec, phase)
    }

    /// A gather or scatter among the leaders of the last level, of blocks that differ in size.
    fn rooted(&self, lower: LowerTrees, phase: impl Fn(Tree, TreeData) -> PhaseKind) -> Result<Plan, Unsupported> {
        let top = self.spec_in(Subgroup::Top, self.spec.collective, lower);
        if top.algorithm == Algorithm::Knomial {
            let load = TreeData::Held { place: BlockBuffer::Output };
            return Ok(tree_plan(top, |tree| phase(tree, load)));
        }
        Plan::new(Spec { in_place: true, ..top })
    }

    /// Appends a stage that moves the whole vector.
    fn vector(&mut self, subgroup: Subgroup, number: u32, plan: Plan, input: Place, output: Place, free: u32) {
        let unit = Unit::Blocks(quotient(self.blocks, plan.blocks()));
        let scratch = view((BlockBuffer::Scratch, free), unit);
        let (input, output) = (view(input, unit), view(output, unit));
        self.push(Part::Stage(Stage { plan, subgroup, number, input, output, scratch }));
    }

    /// A place for `blocks` blocks of scratch from `free` on, if this rank leads a group, and the first block after it.
    fn reserve(&mut self, free: u32, blocks: u32) -> (Place, u32) {
        let after = if self.leads(0) { free.wrapping_add(blocks) } else { free };
        self.scratch = self.scratch.max(after);
        ((BlockBuffer::Scratch, free), after)
    }

    fn push(&mut self, part: Part) {
        self.steps = self.steps.wrapping_add(part.len(&self.place));
        if let Part::Stage(stage) = &part {
            let used = stage.plan.scratch_blocks();
            if used != 0 {
                self.scratch = self.scratch.max(stage.first(&self.place, &stage.scratch, used));
            }
        }
        if let Some(free) = self.parts.iter_mut().find(|part| part.is_none()) {
            *free = Some(part);
        }
    }
}

const fn view((buffer, offset): Place, unit: Unit) -> View {
    View { buffer, offset, unit }
}

/// A plan of one phase, in a tree.
fn tree_plan(spec: Spec, phase: impl Fn(Tree) -> PhaseKind) -> Plan {
    let base = Radix::new(u32::from(spec.radix));
    let kind = phase(Tree::new(base, spec.size, spec.rank.0, spec.root.0, u32::from(spec.ports)));
    Plan {
        spec,
        phases: [Some(kind), None, None, None],
        blocks: spec.size,
        last: None,
        steps: kind.phase().len(),
        keys: kind.phase().keys(),
        early: 0,
        early_messages: 0,
    }
}

/// Checks whether there is a schedule of this collective over subgroups.
fn check_composed(spec: &Spec, lower: LowerTrees, is_contiguous: bool) -> Result<(), Unsupported> {
    if matches!(spec.collective, CollectiveKind::Alltoall | CollectiveKind::Scan | CollectiveKind::Exscan) {
        return Err(Unsupported::Unavailable);
    }
    if !(1..=Plan::PORTS).contains(&lower.ports) {
        return Err(Unsupported::Ports);
    }
    if !(2..=Plan::PORTS.wrapping_add(1)).contains(&lower.radix) {
        return Err(Unsupported::Radix);
    }
    if spec.segments == 0 {
        return Err(Unsupported::Segments);
    }
    if spec.size > Plan::RANKS {
        return Err(Unsupported::TooLong);
    }
    // Each of six stages has at most eight steps per rank, plus those of a tree, and its number in its keys.
    let steps = spec.size.wrapping_mul(64).wrapping_add(2048);
    if steps.checked_mul(spec.segments).is_none() {
        return Err(Unsupported::TooLong);
    }
    if spec.collective.combines() {
        let strided = spec.collective == CollectiveKind::ReduceScatter && spec.algorithm == Algorithm::Halving;
        match spec.order {
            Order::Any => {}
            Order::Fixed => return Err(Unsupported::Brackets),
            Order::Rank if !is_contiguous || strided => return Err(Unsupported::Order),
            Order::Rank => {}
        }
    }
    let unknown = match spec.collective {
        CollectiveKind::Gather | CollectiveKind::Scatter => true,
        CollectiveKind::Allgather | CollectiveKind::ReduceScatter => !is_contiguous,
        _ => false,
    };
    if unknown && spec.varying { Err(Unsupported::Varying) } else { Ok(()) }
}
