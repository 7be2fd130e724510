//! Composition of the stages of each collective.

use super::arrivals::Arrivals;
use super::stage::{Part, Placement, Stage, Unit, View};
use super::{GroupLevels, HierarchicalPlan, HierarchyOptions, Leaders, LowerTrees, root_of};
use crate::collective::{CollectiveKind, Order};
use crate::schedule::algorithm::tree::{Down, Tree, TreeData, Up};
use crate::schedule::hierarchy::{GROUPINGS, Subgroup};
use crate::schedule::plan::PhaseKind;
use crate::schedule::radix::{Radix, quotient};
use crate::schedule::spec::check;
use crate::schedule::{Algorithm, BlockBuffer, Hierarchy, Plan, Rank, Spec, Unsupported};

/// A buffer, and a block in it.
pub(super) type Place = (BlockBuffer, u32);

pub(super) const INPUT: Place = (BlockBuffer::Input, 0);
pub(super) const OUTPUT: Place = (BlockBuffer::Output, 0);

impl<T: AsRef<[u32]>> HierarchicalPlan<T> {
    /// Builds the schedule of `spec.rank` over the subgroups of `hierarchy`.
    ///
    /// # Errors
    /// All ranks of a group get the same result. [`Unsupported::Unavailable`]: an alltoall of the leaders that forwards
    /// blocks; [`Unsupported::Brackets`]: a fixed order must not depend on the groups; [`Unsupported::Order`]: the groups
    /// are not contiguous, and the operation does not commute or the collective is a scan;
    /// [`Unsupported::Varying`]: leaders do not know the blocks' sizes, or would have to sort them;
    /// [`Unsupported::Rank`]: `spec.size` is not the hierarchy's. The others are those of [`Plan::new`].
    pub fn new(spec: Spec, options: impl Into<HierarchyOptions>, hierarchy: Hierarchy<T>) -> Result<Self, Unsupported> {
        Self::build(spec, options.into(), hierarchy, GroupLevels::NONE)
    }

    /// As [`new`](Self::new); the members of this rank's subgroups of these levels use other means than messages among
    /// themselves, as all of them have agreed, for collectives that [can](Spec::can_have_group_steps). Above the innermost
    /// level members are fixed: where the root leads instead of one of them, or their groups have different sizes and
    /// exchange blocks, the subgroup uses messages. So do the leaders of the last level but in barriers and allreduces.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub fn with_group_steps(
        spec: Spec,
        options: impl Into<HierarchyOptions>,
        hierarchy: Hierarchy<T>,
        levels: GroupLevels,
    ) -> Result<Self, Unsupported> {
        let levels = if spec.can_have_group_steps() { levels } else { GroupLevels::NONE };
        Self::build(spec, options.into(), hierarchy, levels)
    }

    fn build(
        spec: Spec,
        HierarchyOptions { lower, in_parts, leaders }: HierarchyOptions,
        hierarchy: Hierarchy<T>,
        group_levels: GroupLevels,
    ) -> Result<Self, Unsupported> {
        let own = hierarchy.locate(spec.rank).filter(|_| hierarchy.ranks() == spec.size).ok_or(Unsupported::Rank)?;
        let root = match root_of(&spec) {
            None => None,
            Some(root) => Some((root, hierarchy.locate(root).ok_or(Unsupported::Rank)?)),
        };
        let place = Placement { hierarchy, root, own, arrivals: None };
        check_composed(&spec, lower, place.hierarchy.is_contiguous())?;
        let parts = [const { None }; super::PARTS];
        let mut plan = Self { spec, place, group_levels, parts, blocks: 1, scratch: 0, steps: 0, last: None };
        let top = plan.spec_in(plan.place.hierarchy.top(), spec.collective, lower);
        check(&top)?;
        plan.blocks = match spec.collective {
            CollectiveKind::Gather
            | CollectiveKind::Scatter
            | CollectiveKind::Allgather
            | CollectiveKind::ReduceScatter
            | CollectiveKind::Alltoall => spec.size,
            _ => Plan::new(top)?.blocks(),
        };
        if leaders == Leaders::All
            && let Some(parallel) = plan.parallel(lower)
        {
            return plan.with_all_leaders(parallel, top).map(|()| plan);
        }
        if in_parts {
            plan.place.arrivals = plan.arrivals(top)?;
        }
        match spec.collective {
            CollectiveKind::Barrier => plan.barrier(lower)?,
            CollectiveKind::Broadcast => plan.broadcast(lower)?,
            CollectiveKind::Reduce => plan.reduce(lower)?,
            CollectiveKind::Allreduce => plan.allreduce(lower)?,
            CollectiveKind::ReduceScatter => plan.reduce_scatter(lower)?,
            CollectiveKind::Gather => plan.gather(lower)?,
            CollectiveKind::Scatter => plan.scatter(lower)?,
            CollectiveKind::Allgather => plan.allgather(lower)?,
            CollectiveKind::Alltoall => plan.alltoall(lower)?,
            CollectiveKind::Scan | CollectiveKind::Exscan => plan.scan(lower)?,
        }
        Ok(plan)
    }

    /// The parts in which the blocks of the last level arrive at this rank's leader, if there are several.
    fn arrivals(&self, top: Spec) -> Result<Option<Arrivals>, Unsupported> {
        let (plan, unit, skipped) = match (top.collective, top.algorithm) {
            (CollectiveKind::Allgather, _) if self.place.hierarchy.is_contiguous() => {
                (Plan::new(Spec { in_place: true, ..top })?, Unit::Member, 0)
            }
            (CollectiveKind::Broadcast, Algorithm::Bruck | Algorithm::Ring) => {
                (Plan::new(top)?, Unit::Blocks(1), u32::from(top.rank != top.root))
            }
            _ => return Ok(None),
        };
        let all = view(OUTPUT, unit);
        let leader = Stage::new(plan, self.place.hierarchy.top(), [all, all, all]);
        Ok((top.size > 1).then(|| Arrivals::new(leader, skipped)))
    }

    fn barrier(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let load = TreeData::Nothing;
        for subgroup in self.lower_groups() {
            if self.group_barrier(subgroup) {
                continue;
            }
            let plan = self.tree(subgroup, lower, |tree| PhaseKind::Up(Up { tree, load }));
            self.vector(subgroup, plan, INPUT, OUTPUT, 0);
        }
        if let Some(top) = self.top_group()
            && !self.group_barrier(top)
        {
            let plan = Plan::new(self.spec_in(top, CollectiveKind::Barrier, lower))?;
            self.vector(top, plan, INPUT, OUTPUT, 0);
        }
        for subgroup in self.lower_groups().rev() {
            if self.group_barrier(subgroup) {
                continue;
            }
            let plan = self.tree(subgroup, lower, |tree| PhaseKind::Down(Down { tree, load }));
            self.vector(subgroup, plan, INPUT, OUTPUT, 0);
        }
        Ok(())
    }

    fn broadcast(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        if let Some(top) = self.top_group() {
            let plan = Plan::new(self.spec_in(top, CollectiveKind::Broadcast, lower))?;
            self.vector(top, plan, OUTPUT, OUTPUT, 0);
        }
        self.broadcast_down(lower)
    }

    fn reduce(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let is_root = self.spec.rank == self.spec.root;
        let (sum, free) = if is_root { (OUTPUT, 0) } else { self.reserve(0, self.blocks) };
        self.reduce_up(sum, free, is_root && self.spec.in_place, lower)?;
        if let Some(top) = self.top_group() {
            let spec = self.spec_in(top, CollectiveKind::Reduce, lower);
            let plan = Plan::new(Spec { in_place: true, ..spec })?;
            self.vector(top, plan, sum, sum, free);
        }
        Ok(())
    }

    fn allreduce(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        self.reduce_up(OUTPUT, 0, self.spec.in_place, lower)?;
        if let Some(top) = self.top_group()
            && !self.group_allreduce(top)
        {
            let spec = self.spec_in(top, CollectiveKind::Allreduce, lower);
            let plan = Plan::new(Spec { in_place: true, ..spec })?;
            self.vector(top, plan, OUTPUT, OUTPUT, 0);
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
            if self.top_group().is_some() {
                self.push(Part::Sort { from: sum, into: sorted });
            }
        }
        let (result, free) = self.reserve(free, size);
        if let Some(top) = self.top_group() {
            let plan = Plan::new(self.spec_in(top, CollectiveKind::ReduceScatter, lower))?;
            self.push(Part::Stage(Stage::new(
                plan,
                top,
                [view(sorted, Unit::Member), view(result, Unit::Own), view((BlockBuffer::Scratch, free), Unit::Member)],
            )));
        }
        let in_place = self.spec.in_place;
        if in_place {
            let position = result.1.wrapping_add(self.place.own.position());
            self.last = Some(position);
            self.scratch = self.scratch.max(position.wrapping_add(1));
        }
        self.scatter_down(result, in_place, lower)
    }

    fn gather(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let direct = self.spec.rank == self.spec.root && self.place.hierarchy.is_contiguous();
        let held = if direct { OUTPUT } else { self.reserve(0, self.spec.size).0 };
        self.gather_up(held, direct && self.spec.in_place, lower)?;
        if let Some(top) = self.top_group() {
            let plan = self.rooted(lower, |tree, load| PhaseKind::Up(Up { tree, load }))?;
            let (input, output) = (view(held, Unit::Own), view(held, Unit::Member));
            self.push(Part::Stage(Stage::new(plan, top, [input, output, output])));
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
        if let Some(top) = self.top_group() {
            let plan = self.rooted(lower, |tree, load| PhaseKind::Down(Down { tree, load }))?;
            let by_member = view(held, Unit::Member);
            // A tree holds all blocks in its output; without one the root sends from its input.
            let output = if self.spec.algorithm == Algorithm::Knomial { by_member } else { view(held, Unit::Own) };
            self.push(Part::Stage(Stage::new(plan, top, [by_member, output, by_member])));
        }
        self.scatter_down(held, is_root && self.spec.in_place, lower)
    }

    fn allgather(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let direct = self.place.hierarchy.is_contiguous();
        let held = if direct { OUTPUT } else { self.reserve(0, self.spec.size).0 };
        self.gather_up(held, direct && self.spec.in_place, lower)?;
        if let Some(top) = self.top_group() {
            let spec = self.spec_in(top, CollectiveKind::Allgather, lower);
            let plan = Plan::new(Spec { in_place: true, ..spec })?;
            let by_member = view(held, Unit::Member);
            self.push(Part::Stage(Stage::new(plan, top, [by_member, by_member, by_member])));
            if !direct {
                self.push(Part::Unsort { from: held, into: OUTPUT });
            }
        }
        self.broadcast_down(lower)
    }

    /// The blocks of all ranks of a group of the last level are collected at its leader, whose alltoall sends those of
    /// another group in one message. `rows` are the blocks of each rank that this one leads, by destination, `columns`
    /// those for each of them, by source.
    fn alltoall(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let (size, led) = (self.spec.size, self.led());
        let (mut sent, mut received, mut free) = (INPUT, OUTPUT, 0_u32);
        if !self.place.hierarchy.is_contiguous() {
            (sent, received) = ((BlockBuffer::Scratch, 0), (BlockBuffer::Scratch, size));
            free = size.wrapping_mul(2);
            self.scratch = free;
            self.push(Part::Sort { from: INPUT, into: sent });
        }
        let all = size.wrapping_mul(led);
        let (rows, free) = self.reserve(free, all);
        let (columns, _) = self.reserve(free, all);
        for subgroup in self.lower_groups() {
            let spec = self.spec_in(subgroup, CollectiveKind::Gather, lower);
            let (input, in_place) = if subgroup.level == 0 {
                (view(sent, Unit::Blocks(size)), false)
            } else {
                (view(rows, Unit::Blocks(all)), true)
            };
            let plan = Plan::new(Spec { algorithm: Algorithm::Direct, in_place, ..spec })?;
            let output = view(rows, Unit::Rows(size));
            self.push(Part::Stage(Stage::new(plan, subgroup, [input, output, output])));
        }
        if let Some(top) = self.top_group() {
            let plan = Plan::new(self.spec_in(top, CollectiveKind::Alltoall, lower))?;
            let input = view(rows, Unit::Columns { rows: led, width: size });
            let output = view(columns, Unit::Rows(led));
            self.push(Part::Stage(Stage::new(plan, top, [input, output, output])));
        }
        for subgroup in self.lower_groups().rev() {
            let spec = self.spec_in(subgroup, CollectiveKind::Scatter, lower);
            let (output, in_place) = if subgroup.level == 0 {
                (view(received, Unit::Blocks(size)), false)
            } else {
                (view(columns, Unit::Blocks(all)), true)
            };
            let plan = Plan::new(Spec { algorithm: Algorithm::Direct, in_place, ..spec })?;
            let input = view(columns, Unit::Columns { rows: size, width: led });
            self.push(Part::Stage(Stage::new(plan, subgroup, [input, output, output])));
        }
        if received != OUTPUT {
            self.push(Part::Unsort { from: received, into: OUTPUT });
        }
        Ok(())
    }

    /// The last level of which this rank is a member: it leads its subgroups of all levels before.
    pub(super) fn highest_level(&self) -> u32 {
        let top = self.place.hierarchy.top().level;
        (1..=top).rev().find(|level| self.member_of(*level).is_some()).unwrap_or(0)
    }

    /// Ranks of the largest group that this rank leads, or 1.
    fn led(&self) -> u32 {
        let Placement { hierarchy, own, .. } = &self.place;
        let level = self.highest_level();
        if level == 0 {
            return 1;
        }
        let subgroup = hierarchy.subgroup(level, own);
        let number = hierarchy.number(subgroup, own);
        hierarchy.start(subgroup, number.wrapping_add(1)).wrapping_sub(hierarchy.start(subgroup, number))
    }

    /// Reduces the input to the leaders of the last level, at `sum`. Scratch is free from block `free` on. `in_place`:
    /// the input is `sum`.
    fn reduce_up(&mut self, sum: Place, free: u32, in_place: bool, lower: LowerTrees) -> Result<(), Unsupported> {
        for subgroup in self.lower_groups() {
            if self.group_reduce(subgroup, sum) {
                continue;
            }
            let (input, in_place) = if subgroup.level == 0 { (INPUT, in_place) } else { (sum, true) };
            let spec = self.spec_in(subgroup, CollectiveKind::Reduce, lower);
            let plan = Plan::new(Spec { in_place, ..spec })?;
            self.vector(subgroup, plan, input, sum, free);
        }
        Ok(())
    }

    /// Broadcasts the output of the leaders of the last level.
    fn broadcast_down(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        for subgroup in self.lower_groups().rev() {
            if self.group_broadcast(subgroup) {
                continue;
            }
            let plan = Plan::new(self.spec_in(subgroup, CollectiveKind::Broadcast, lower))?;
            if self.place.arrivals.is_some() {
                let all = view(OUTPUT, Unit::Blocks(1));
                self.push(Part::InParts(Stage::new(plan, subgroup, [all, all, all])));
            } else {
                self.vector(subgroup, plan, OUTPUT, OUTPUT, 0);
            }
        }
        Ok(())
    }

    /// Gathers blocks at the leaders of the last level, by position at `held`. `in_place`: the own block is there.
    fn gather_up(&mut self, held: Place, in_place: bool, lower: LowerTrees) -> Result<(), Unsupported> {
        let all = view(held, Unit::Member);
        let has_all = self.spec.collective == CollectiveKind::Allgather || self.spec.rank == self.spec.root;
        let own = if self.spec.in_place && has_all { (BlockBuffer::Output, self.spec.rank.0) } else { INPUT };
        for subgroup in self.lower_groups() {
            if self.group_gather(subgroup, own, held) {
                continue;
            }
            let (plan, input) = if subgroup.level == 0 {
                let spec = self.spec_in(subgroup, CollectiveKind::Gather, lower);
                (Plan::new(Spec { algorithm: Algorithm::Direct, in_place, ..spec })?, view(own, Unit::Blocks(1)))
            } else {
                let load = TreeData::Held { place: BlockBuffer::Output };
                (self.tree(subgroup, lower, |tree| PhaseKind::Up(Up { tree, load })), all)
            };
            self.push(Part::Stage(Stage::new(plan, subgroup, [input, all, all])));
        }
        Ok(())
    }

    /// Scatters the blocks that the leaders of the last level hold by position at `held`. `in_place`: a rank's block is
    /// not copied to its output: at ranks that lead no group it arrives at `held` if that is scratch.
    fn scatter_down(&mut self, held: Place, in_place: bool, lower: LowerTrees) -> Result<(), Unsupported> {
        let all = view(held, Unit::Member);
        let is_last = self.last.is_some();
        for subgroup in self.lower_groups().rev() {
            if self.group_scatter(subgroup, held) {
                continue;
            }
            let (plan, output) = if subgroup.level == 0 {
                let spec = self.spec_in(subgroup, CollectiveKind::Scatter, lower);
                let output = if is_last { view(held, Unit::Own) } else { view(OUTPUT, Unit::Blocks(1)) };
                (Plan::new(Spec { algorithm: Algorithm::Direct, in_place, ..spec })?, output)
            } else {
                let load = TreeData::Held { place: BlockBuffer::Output };
                (self.tree(subgroup, lower, |tree| PhaseKind::Down(Down { tree, load })), all)
            };
            self.push(Part::Stage(Stage::new(plan, subgroup, [all, output, all])));
        }
        Ok(())
    }

    /// The specification of a basic collective.
    pub(super) fn spec_in(&self, subgroup: Subgroup, collective: CollectiveKind, lower: LowerTrees) -> Spec {
        let groups = &self.place.hierarchy;
        let (algorithm, ports, radix) = match collective {
            _ if subgroup == groups.top() => (self.spec.algorithm, self.spec.ports, self.spec.radix),
            CollectiveKind::Scan | CollectiveKind::Exscan => (Algorithm::Dissemination, lower.ports, lower.radix),
            _ => (Algorithm::Knomial, lower.ports, lower.radix),
        };
        Spec {
            collective,
            algorithm,
            rank: Rank(groups.number(subgroup, &self.place.own)),
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
    pub(super) fn root_in(&self, subgroup: Subgroup) -> u32 {
        let Placement { hierarchy, root, .. } = &self.place;
        match root {
            Some((_, at)) if hierarchy.subgroup(subgroup.level, at) == subgroup => hierarchy.number(subgroup, at),
            _ => 0,
        }
    }

    /// This rank's subgroup of this level, if it is the leader of all below.
    fn member_of(&self, level: u32) -> Option<Subgroup> {
        let Placement { hierarchy, root, own, .. } = &self.place;
        let subgroup = hierarchy.subgroup(level, own);
        (hierarchy.member(subgroup, hierarchy.number(subgroup, own), *root) == self.spec.rank).then_some(subgroup)
    }

    /// The leaders of the last level, if this rank is one of them.
    fn top_group(&self) -> Option<Subgroup> {
        self.member_of(self.place.hierarchy.top().level)
    }

    /// The subgroups below the last level of which this rank is a member, innermost first.
    pub(super) fn lower_groups(&self) -> impl DoubleEndedIterator<Item = Subgroup> + use<T> {
        let below = self.place.hierarchy.top().level;
        let mut groups = [None; GROUPINGS];
        for (level, group) in (0..below).zip(&mut groups) {
            *group = self.member_of(level);
        }
        groups.into_iter().flatten()
    }

    /// A tree below the last level.
    fn tree(&self, subgroup: Subgroup, lower: LowerTrees, phase: impl Fn(Tree) -> PhaseKind) -> Plan {
        let spec = self.spec_in(subgroup, self.spec.collective, lower);
        tree_plan(spec, phase)
    }

    /// A gather or scatter among the leaders of the last level, of blocks that differ in size.
    fn rooted(&self, lower: LowerTrees, phase: impl Fn(Tree, TreeData) -> PhaseKind) -> Result<Plan, Unsupported> {
        let top = self.spec_in(self.place.hierarchy.top(), self.spec.collective, lower);
        if top.algorithm == Algorithm::Knomial {
            let load = TreeData::Held { place: BlockBuffer::Output };
            return Ok(tree_plan(top, |tree| phase(tree, load)));
        }
        Plan::new(Spec { in_place: true, ..top })
    }

    /// Appends a stage that moves the whole vector. Scratch is free from block `free` on.
    pub(super) fn vector(&mut self, subgroup: Subgroup, plan: Plan, input: Place, output: Place, free: u32) {
        let unit = Unit::Blocks(quotient(self.blocks, plan.blocks()));
        let scratch = view((BlockBuffer::Scratch, free), unit);
        let (input, output) = (view(input, unit), view(output, unit));
        self.push(Part::Stage(Stage::new(plan, subgroup, [input, output, scratch])));
    }

    /// A place for `blocks` blocks of scratch from `free` on, if this rank leads a group, and the first block after it.
    pub(super) fn reserve(&mut self, free: u32, blocks: u32) -> (Place, u32) {
        let after = if self.member_of(1).is_some() { free.wrapping_add(blocks) } else { free };
        self.scratch = self.scratch.max(after);
        ((BlockBuffer::Scratch, free), after)
    }

    pub(super) fn push(&mut self, part: Part) {
        self.steps = self.steps.wrapping_add(part.len(&self.place));
        if let Part::Stage(stage) = &part {
            self.scratch = self.scratch.max(stage.scratch_end(&self.place));
        }
        if let Some(free) = self.parts.iter_mut().find(|part| part.is_none()) {
            *free = Some(part);
        }
    }
}

pub(super) const fn view((buffer, offset): Place, unit: Unit) -> View {
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

/// The most segments of a schedule over subgroups of `ranks` ranks, whose steps can be counted in 32 bits. The subgroups of
/// a rank have few more members than there are ranks. The stages up and down have at most eight steps per member, plus
/// those of a tree; a sort has one per rank. In parts it is a tree for each leader.
pub(in crate::schedule) const fn most_composed_segments(ranks: u32) -> u32 {
    match u32::MAX.checked_div(ranks.saturating_mul(256).saturating_add(2048)) {
        Some(most) => most,
        None => 1,
    }
}

/// Checks whether there is a schedule of this collective over subgroups.
fn check_composed(spec: &Spec, lower: LowerTrees, is_contiguous: bool) -> Result<(), Unsupported> {
    let forwards = spec.collective == CollectiveKind::Alltoall
        && !matches!(spec.algorithm, Algorithm::Direct | Algorithm::Pairwise);
    if forwards {
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
    if spec.segments > most_composed_segments(spec.size) {
        return Err(Unsupported::TooLong);
    }
    // A leader holds the blocks of all its ranks twice.
    let held = spec.size.checked_mul(2).and_then(|held| held.checked_mul(spec.size.saturating_add(1)));
    if spec.collective == CollectiveKind::Alltoall && held.is_none() {
        return Err(Unsupported::TooLong);
    }
    if spec.collective.combines() {
        let strided = spec.collective == CollectiveKind::ReduceScatter && spec.algorithm == Algorithm::Halving;
        let is_scan = matches!(spec.collective, CollectiveKind::Scan | CollectiveKind::Exscan);
        match spec.order {
            Order::Fixed => return Err(Unsupported::Brackets),
            Order::Any if is_scan && !is_contiguous => return Err(Unsupported::Order),
            Order::Any => {}
            Order::Rank if !is_contiguous || strided => return Err(Unsupported::Order),
            Order::Rank => {}
        }
    }
    let unknown = match spec.collective {
        CollectiveKind::Gather | CollectiveKind::Scatter | CollectiveKind::Alltoall => true,
        CollectiveKind::Allgather | CollectiveKind::ReduceScatter => !is_contiguous,
        _ => false,
    };
    if unknown && spec.varying { Err(Unsupported::Varying) } else { Ok(()) }
}
