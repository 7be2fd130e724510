//! The choice of a collective's schedule, cached, and the layout of its blocks.

use alloc::sync::Arc;
use core::ptr::NonNull;

use unisono_core::collective::token_tree::header::TreeShape;
use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
use unisono_core::ids::{Rank, StepId};
use unisono_core::schedule;
use unisono_core::schedule::{
    BlockMap, GroupLevels, GroupStep, HierarchicalPlan, Layout, Schedule, Step, StepOperation,
};

use crate::environment::Subgroups;
use crate::environment::tuning::{
    Carrier, Composed, Decision, MULTICAST_NAME, MulticastUse, Tuning, rdma_name, tree_name,
};
use crate::world::collective::error::CollectiveError;
use crate::world::collective::partition::{BLOCK_MAX, BlockTable, BlockTables, Shape};
use crate::world::collective::record::CollectiveRecord;

/// Bytes of the longest message: lengths on the wire have 32 bits.
const MESSAGE_MAX: usize = 1 << 30;
/// Number of cached schedules.
const CACHE_ENTRIES: usize = 64;

/// Steps of the longest flat schedule whose steps are stored.
const FLAT_STORED_MAX: u32 = 64;
/// The same, of one over subgroups, whose steps take longer to compute.
const COMPOSED_STORED_MAX: u32 = 512;

/// An alltoall by remote writes.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct RdmaPlan {
    pub(in crate::world) blocks: u32,
    /// Number of steps that the adapter executes if it can.
    pub(in crate::world) native_steps: u16,
}

/// A rank's schedule.
#[derive(Debug)]
pub(in crate::world) enum AnyPlan {
    Flat(Box<schedule::Plan>),
    Composed(Box<HierarchicalPlan<Arc<[u32]>>>),
    /// No schedule: the communicator's tree of this shape executes it.
    Tree(TreeShape),
    /// No schedule: remote writes execute it.
    Rdma(RdmaPlan),
}

impl AnyPlan {
    pub(in crate::world) fn blocks(&self) -> u32 {
        match self {
            Self::Flat(plan) => plan.blocks(),
            Self::Composed(plan) => plan.blocks(),
            Self::Tree(_) => 1,
            Self::Rdma(plan) => plan.blocks,
        }
    }

    pub(in crate::world) fn scratch_blocks(&self) -> u32 {
        match self {
            Self::Flat(plan) => plan.scratch_blocks(),
            Self::Composed(plan) => plan.scratch_blocks(),
            Self::Tree(_) | Self::Rdma(_) => 0,
        }
    }

    fn spec(&self) -> Option<&schedule::Spec> {
        match self {
            Self::Flat(plan) => Some(plan.spec()),
            Self::Composed(plan) => Some(plan.spec()),
            Self::Tree(_) | Self::Rdma(_) => None,
        }
    }

    fn segments(&self) -> u32 {
        self.spec().map_or(1, |spec| spec.segments)
    }

    fn steps(&self) -> u32 {
        match self {
            Self::Flat(plan) => plan.steps(),
            Self::Composed(plan) => plan.steps(),
            Self::Tree(_) | Self::Rdma(_) => 0,
        }
    }

    fn step(&self, i: u32) -> Option<Step> {
        match self {
            Self::Flat(plan) => plan.step(i),
            Self::Composed(plan) => plan.step(i),
            Self::Tree(_) | Self::Rdma(_) => None,
        }
    }
}

/// The subgroups of a communicator.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::world) struct Groups<'a> {
    pub(in crate::world) subgroups: Option<&'a Arc<Subgroups>>,
    /// The levels whose subgroups of this rank execute their steps in shared memory.
    pub(in crate::world) levels: GroupLevels,
}

/// A step that a subgroup of this rank executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct GroupStepPlace {
    step: u32,
    /// The level of the subgroup.
    pub(in crate::world) level: u32,
    /// Its number among the collective's steps of that level.
    pub(in crate::world) number: u32,
}

/// A rank's schedule for one collective, computed once for all equal calls.
#[derive(Clone, Debug)]
pub(in crate::world) struct CachedSchedule(Arc<ScheduleEntry>);

#[derive(Debug)]
struct ScheduleEntry {
    plan: CollectiveSpec,
    varying: bool,
    /// The subgroups of its communicator.
    subgroups: Option<Arc<Subgroups>>,
    schedule: AnyPlan,
    /// Whether the root may broadcast by multicast instead, and the leaders that receive it; if there are none, all
    /// ranks do.
    is_multicast: bool,
    leaders: Box<[Rank]>,
    /// Which algorithm it is, and why.
    record: CollectiveRecord,
    /// The steps, unless there are too many.
    steps: Box<[Step]>,
    /// The levels at which subgroups were to have steps of their own, and these steps, in order.
    levels: GroupLevels,
    group_steps: Box<[GroupStepPlace]>,
    /// The tree that executes the steps of the leaders of the last level.
    tree: Option<TreeShape>,
    /// A digest of everything that ranks must agree on.
    digest: u32,
}

impl CachedSchedule {
    /// A digest of everything that ranks must agree on.
    pub(in crate::world) fn digest(&self) -> u32 {
        self.0.digest
    }

    /// Bytes of the vector.
    pub(in crate::world) fn bytes(&self) -> usize {
        self.0.plan.bytes
    }

    /// Bytes of an element that is reduced.
    pub(in crate::world) fn grain(&self) -> usize {
        self.0.plan.grain
    }

    /// The order in which operands are combined.
    pub(in crate::world) fn order(&self) -> Order {
        self.0.plan.order
    }

    /// Which of the steps of its subgroups a step is. `None`: it is another step.
    pub(in crate::world) fn group_step(&self, step: StepId) -> Option<GroupStepPlace> {
        let steps = &self.0.group_steps;
        steps.get(steps.binary_search_by_key(&step.0, |place| place.step).ok()?).copied()
    }

    /// The number of steps that this rank's subgroup of a level executes.
    pub(in crate::world) fn group_steps_of(&self, level: u32) -> u32 {
        self.0.group_steps.iter().filter(|place| place.level == level).count() as u32
    }

    /// The last level, and the tree that executes the steps of its leaders.
    pub(in crate::world) fn leaders_tree(&self) -> Option<(u32, TreeShape)> {
        let AnyPlan::Composed(plan) = self.schedule() else { return None };
        Some((plan.levels().wrapping_sub(1), self.0.tree?))
    }

    /// Which algorithm it is, and why.
    pub(in crate::world) fn record(&self) -> CollectiveRecord {
        self.0.record
    }

    pub(in crate::world) fn schedule(&self) -> &AnyPlan {
        &self.0.schedule
    }

    /// Whether the root may broadcast by multicast instead.
    pub(in crate::world) fn is_multicast(&self) -> bool {
        self.0.is_multicast
    }

    /// The ranks that receive it by multicast, and forward it; if there are none, all ranks do.
    pub(in crate::world) fn leaders(&self) -> &[Rank] {
        &self.0.leaders
    }

    /// Whether multicast replaces a step.
    pub(in crate::world) fn is_of_leaders(&self, step: StepId) -> bool {
        match self.schedule() {
            AnyPlan::Composed(plan) => plan.is_of_leaders(step.0),
            AnyPlan::Flat(_) | AnyPlan::Tree(_) | AnyPlan::Rdma(_) => false,
        }
    }

    pub(in crate::world) fn root(&self) -> Rank {
        self.0.plan.root
    }

    /// Number of ranks.
    pub(in crate::world) fn size(&self) -> u32 {
        self.0.plan.size
    }

    pub(in crate::world) fn rank(&self) -> Rank {
        self.0.plan.rank
    }

    pub(in crate::world) fn kind(&self) -> CollectiveKind {
        self.0.plan.collective
    }
}

impl Schedule for CachedSchedule {
    fn collective(&self) -> CollectiveKind {
        self.0.plan.collective
    }

    fn steps(&self) -> u32 {
        self.0.schedule.steps()
    }

    #[inline]
    fn step(&self, i: u32) -> Option<Step> {
        match self.0.steps.get(i as usize) {
            Some(step) => Some(*step),
            None => self.0.schedule.step(i),
        }
    }
}

/// The cache of chosen schedules.
#[derive(Debug)]
pub(in crate::world) struct ScheduleCache {
    tuning: Tuning,
    carrier: Carrier,
    multicast: MulticastUse,
    entries: Box<[Option<CachedSchedule>]>,
}

impl ScheduleCache {
    /// Chooses by the user's tuning and by the cost of messages, within one node (`is_whole`) or between nodes.
    pub(in crate::world) fn new(tuning: Tuning, is_whole: bool, multicast: MulticastUse) -> Self {
        let carrier = if is_whole { Carrier::Rings } else { Carrier::Udp };
        Self { tuning, carrier, multicast, entries: vec![None; CACHE_ENTRIES].into() }
    }

    /// The schedule of a collective of a communicator with these subgroups.
    pub(in crate::world) fn schedule(
        &mut self,
        plan: &CollectiveSpec,
        varying: bool,
        groups: Groups<'_>,
    ) -> Result<CachedSchedule, CollectiveError> {
        let hash = hash(plan);
        let place = hash as usize % CACHE_ENTRIES;
        if let Some(Some(known)) = self.entries.get(place)
            && (&known.0.plan, known.0.varying, known.0.levels) == (plan, varying, groups.levels)
            && known.0.subgroups.as_ref().map(Arc::as_ptr) == groups.subgroups.map(Arc::as_ptr)
        {
            return Ok(known.clone());
        }
        let prepared = self.prepare(plan, varying, hash, groups)?;
        if let Some(known) = self.entries.get_mut(place) {
            *known = Some(prepared.clone());
        }
        Ok(prepared)
    }

    /// Independent of the calling rank, except for the steps.
    fn prepare(
        &self,
        plan: &CollectiveSpec,
        varying: bool,
        hash: u32,
        groups: Groups<'_>,
    ) -> Result<CachedSchedule, CollectiveError> {
        let whole =
            if has_blocks(plan.collective) { plan.bytes.saturating_mul(plan.size as usize) } else { plan.bytes };
        let least = u32::try_from(whole.div_ceil(MESSAGE_MAX)).unwrap_or(u32::MAX);
        let least = if varying { 1 } else { least };
        if let Some((shape, selected_by)) = self.tuning.tree(plan, varying, self.carrier) {
            // No schedule has as many ports.
            let release = u32::from(shape.is_multicast) << 16;
            let way = 1 << 31 | release | u32::from(shape.degree) << 8 | u32::from(shape.units);
            let over = groups.subgroups.filter(|_| !shape.is_multicast);
            let composed = over.and_then(|over| {
                let schedule = self.tuning.compose_over_tree(plan, varying, over, groups.levels)?;
                Some((over, schedule))
            });
            let levels = composed.as_ref().map_or(1, |(_, schedule)| schedule.levels());
            tracing::debug!(
                collective = plan.collective.name(),
                algorithm = tree_name(shape),
                degree = shape.degree,
                units = shape.units,
                bytes = plan.bytes,
                levels,
                selected_by = selected_by.name(),
                "tree"
            );
            let record = CollectiveRecord::unscheduled(plan.collective, plan.bytes, tree_name(shape), selected_by);
            return Ok(match composed {
                None => unscheduled(plan, AnyPlan::Tree(shape), record, mix(hash, way), groups),
                Some((over, schedule)) => {
                    let shape = TreeShape { is_of_leaders: true, ..shape };
                    let digest = mix(mix(hash, way), over.digest());
                    composed_over_tree(plan, schedule, shape, record, digest, groups)
                }
            });
        }
        if let Some((native_steps, selected_by)) = self.tuning.rdma(plan, varying, self.carrier) {
            let (collective, algorithm) = (plan.collective.name(), rdma_name(native_steps));
            let reason = selected_by.name();
            tracing::debug!(
                collective,
                algorithm,
                native_steps,
                bytes = plan.bytes,
                selected_by = reason,
                "remote writes"
            );
            let record = CollectiveRecord::unscheduled(plan.collective, plan.bytes, algorithm, selected_by);
            // No schedule and no tree has as many ports.
            let digest = mix(hash, 3 << 30 | u32::from(native_steps));
            let rdma = RdmaPlan { blocks: plan.size, native_steps };
            return Ok(unscheduled(plan, AnyPlan::Rdma(rdma), record, digest, groups));
        }
        let Groups { subgroups, levels: group_levels } = groups;
        let over = subgroups.map(Arc::as_ref);
        let multicast = self.tuning.multicast(plan, varying, self.carrier, over, self.multicast);
        let is_multicast = multicast.is_some();
        let composed = subgroups.and_then(|over| match is_multicast {
            // Who forwards to whom is read from the messages of its schedule.
            true => self.tuning.compose_always(plan, varying, self.carrier, over, least, GroupLevels::NONE),
            false => self.tuning.compose(plan, varying, self.carrier, over, least, group_levels),
        });
        // Without leaders, every rank is a member of the group.
        let is_multicast = is_multicast && composed.is_some() == subgroups.is_some();
        let leaders = subgroups.filter(|_| is_multicast).map(|over| over.leaders(plan.root).collect());
        let levels = composed.as_ref().map_or(1, |composed| composed.schedule.levels());
        let composition = composed.as_ref().map(|composed| composed.composition);
        let all_lead = composed.as_ref().is_some_and(|composed| composed.schedule.all_lead());
        let is_in_parts = composed.as_ref().is_some_and(|composed| composed.schedule.is_in_parts());
        let (schedule, selected_by, override_error) = match composed {
            Some(Composed { decision: Decision { selected_by, override_error, .. }, schedule, .. }) => {
                (AnyPlan::Composed(Box::new(schedule)), selected_by, override_error)
            }
            None => {
                let interconnect = subgroups.map_or(self.carrier.into(), |over| over.interconnect(self.carrier));
                let decision = self.tuning.decide(plan, varying, interconnect).map_err(|_| CollectiveError::TooLong)?;
                let Decision { choice, selected_by, override_error } = decision;
                let mut call = choice.spec(plan, varying);
                call.segments = call.segments.max(least);
                let flat = schedule::Plan::new(call).map_err(|_| CollectiveError::TooLong)?;
                (AnyPlan::Flat(Box::new(flat)), selected_by, override_error)
            }
        };
        let call = schedule.spec().copied().ok_or(CollectiveError::TooLong)?;
        let (collective, algorithm) = (plan.collective.name(), call.algorithm.name());
        tracing::debug!(
            collective,
            algorithm,
            ports = call.ports,
            segments = call.segments,
            bytes = plan.bytes,
            levels,
            is_multicast,
            selected_by = selected_by.name(),
            "schedule"
        );
        let group_steps = group_steps(&schedule);
        let scheduled = CollectiveRecord {
            schedule: Some((call.ports, call.segments)),
            levels,
            all_lead,
            is_in_parts,
            composition,
            slot_levels: slot_levels(&group_steps, levels),
            override_error,
            ..CollectiveRecord::unscheduled(plan.collective, plan.bytes, algorithm, selected_by)
        };
        let record = match multicast.filter(|_| is_multicast) {
            Some(selected_by) => {
                let record = CollectiveRecord::unscheduled(plan.collective, plan.bytes, MULTICAST_NAME, selected_by);
                CollectiveRecord { levels, ..record }
            }
            None => scheduled,
        };
        let way =
            u32::from(varying) << 24 | u32::from(call.ports) << 16 | u32::from(call.radix) << 8 | call.algorithm as u32;
        // No schedule has as many ports.
        let way = way | u32::from(is_multicast) << 30 | u32::from(call.order != plan.order) << 28;
        let groups = subgroups.filter(|_| levels != 1).map_or(0, |over| over.digest());
        let most = if levels == 1 { FLAT_STORED_MAX } else { COMPOSED_STORED_MAX };
        let written = if schedule.steps() <= most { schedule.steps() } else { 0 };
        Ok(CachedSchedule(Arc::new(ScheduleEntry {
            plan: *plan,
            varying,
            subgroups: subgroups.cloned(),
            steps: (0..written).filter_map(|i| schedule.step(i)).collect(),
            levels: group_levels,
            group_steps,
            tree: None,
            schedule,
            is_multicast,
            leaders: leaders.unwrap_or_default(),
            record,
            digest: mix(mix(mix(hash, way), call.segments), groups),
        })))
    }
}

fn group_steps(schedule: &AnyPlan) -> Box<[GroupStepPlace]> {
    let AnyPlan::Composed(plan) = schedule else { return Box::default() };
    let mut places: Vec<GroupStepPlace> = Vec::new();
    for step in (0..plan.steps()).filter(|_| plan.has_group_steps()) {
        if let Some(StepOperation::Group(GroupStep { level, .. })) = plan.step(step).map(|step| step.operation) {
            let number = places.iter().filter(|before| before.level == level).count() as u32;
            places.push(GroupStepPlace { step, level, number });
        }
    }
    places.into()
}

/// The number of levels below the last one that have some of these steps.
fn slot_levels(steps: &[GroupStepPlace], levels: u32) -> u32 {
    (1..levels).filter(|above| steps.iter().any(|place| place.level + 1 == *above)).count() as u32
}

/// A call that no schedule executes.
fn unscheduled(
    plan: &CollectiveSpec,
    schedule: AnyPlan,
    record: CollectiveRecord,
    digest: u32,
    groups: Groups<'_>,
) -> CachedSchedule {
    CachedSchedule(Arc::new(ScheduleEntry {
        plan: *plan,
        varying: false,
        subgroups: groups.subgroups.cloned(),
        steps: Box::default(),
        levels: groups.levels,
        group_steps: Box::default(),
        tree: None,
        schedule,
        is_multicast: false,
        leaders: Box::default(),
        record,
        digest,
    }))
}

/// A call whose leaders use a tree.
fn composed_over_tree(
    plan: &CollectiveSpec,
    schedule: HierarchicalPlan<Arc<[u32]>>,
    shape: TreeShape,
    record: CollectiveRecord,
    digest: u32,
    groups: Groups<'_>,
) -> CachedSchedule {
    let levels = schedule.levels();
    let schedule = AnyPlan::Composed(Box::new(schedule));
    let group_steps = group_steps(&schedule);
    CachedSchedule(Arc::new(ScheduleEntry {
        plan: *plan,
        varying: false,
        subgroups: groups.subgroups.cloned(),
        steps: (0..schedule.steps()).filter_map(|i| schedule.step(i)).collect(),
        levels: groups.levels,
        record: CollectiveRecord { levels, slot_levels: slot_levels(&group_steps, levels), ..record },
        group_steps,
        tree: Some(shape),
        schedule,
        is_multicast: false,
        leaders: Box::default(),
        digest,
    }))
}

/// The layout of a collective's blocks in its packed bytes. The caller keeps the tables of `shape` as long as the layout is used.
pub(in crate::world) fn layout(
    plan: &CollectiveSpec,
    schedule: &AnyPlan,
    shape: &Shape,
) -> Result<Layout<'static>, CollectiveError> {
    let (blocks, segments) = (schedule.blocks(), schedule.segments());
    let (input, output, held) = match &shape.tables {
        None => equal_cuts(plan, blocks),
        Some(tables) => varying_cuts(tables)?,
    };
    Ok(Layout::new(input, output, held, blocks, plan.grain, segments))
}

/// Block maps of input, output and scratch.
type Cuts = (BlockMap<'static>, BlockMap<'static>, BlockMap<'static>);

fn equal_cuts(plan: &CollectiveSpec, blocks: u32) -> Cuts {
    let (one, all) = (BlockMap::equal(plan.bytes, 1), BlockMap::equal(plan.bytes, plan.size));
    match plan.collective {
        CollectiveKind::Gather | CollectiveKind::Allgather => (one, all, all),
        CollectiveKind::Scatter | CollectiveKind::ReduceScatter => (all, one, all),
        CollectiveKind::Alltoall => (all, all, all),
        _ => [BlockMap::vector(plan.bytes, blocks, plan.grain); 3].into(),
    }
}

fn varying_cuts(tables: &BlockTables) -> Result<Cuts, CollectiveError> {
    let cut = |table: &Option<Arc<BlockTable>>| match table {
        None => BlockMap::equal(tables.own, 1),
        Some(table) => {
            let [bytes, at] = [&table.bytes, &table.at].map(|list| NonNull::from(&**list));
            // SAFETY: the list belongs to a table that a collective keeps beside its layout as long as that lives, that
            // nobody changes, and that does not move.
            let bytes = unsafe { bytes.as_ref() };
            // SAFETY: the list belongs to a table that a collective keeps beside its layout as long as that lives, that
            // nobody changes, and that does not move.
            let at = unsafe { at.as_ref() };
            match table.rows {
                None => BlockMap::Table { bytes, at },
                Some((row, stride)) => BlockMap::Rows { bytes, at, row, stride },
            }
        }
    };
    let all = [&tables.input, &tables.output].into_iter().flatten().flat_map(|table| table.bytes.iter());
    if all.chain([&tables.own]).any(|bytes| *bytes > BLOCK_MAX) {
        return Err(CollectiveError::TooLong);
    }
    let (input, output) = (cut(&tables.input), cut(&tables.output));
    Ok((input, output, if tables.input.is_some() { input } else { output }))
}

/// Whether each rank has its own block.
const fn has_blocks(verb: CollectiveKind) -> bool {
    matches!(
        verb,
        CollectiveKind::Gather
            | CollectiveKind::Allgather
            | CollectiveKind::Scatter
            | CollectiveKind::ReduceScatter
            | CollectiveKind::Alltoall
    )
}

/// A hash of everything that ranks must agree on.
pub(in crate::world::collective) fn hash(plan: &CollectiveSpec) -> u32 {
    let root = if plan.collective.is_rooted() { plan.root.0 } else { 0 };
    let flags = (plan.collective as u32) << 8 | (plan.order as u32) << 1 | u32::from(plan.in_place);
    let bytes = plan.bytes as u64;
    let words = [flags, root, bytes as u32, (bytes >> 32) as u32, plan.grain as u32, plan.reduction_id];
    words.into_iter().fold(plan.size, mix)
}

/// The finalizer of Murmur3 (Appleby), applied to the previous hash and a word.
pub(in crate::world) const fn mix(before: u32, word: u32) -> u32 {
    let mut h = before.rotate_left(13).wrapping_add(word).wrapping_add(0x9e37_79b9);
    h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
    h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::ids::Rank;

    const PLAN: CollectiveSpec = CollectiveSpec {
        collective: CollectiveKind::Allreduce,
        rank: Rank(0),
        size: 4,
        root: Rank(0),
        bytes: 4096,
        grain: 8,
        order: Order::Any,
        in_place: false,
        reduction_id: 7,
    };

    fn choices() -> ScheduleCache {
        ScheduleCache::new(Tuning::default(), false, MulticastUse::Unavailable)
    }

    #[test]
    fn ranks_that_do_the_same_have_one_digest_and_others_another() {
        let digest =
            |plan: CollectiveSpec| choices().schedule(&plan, false, Groups::default()).expect("a schedule").digest();
        let mut choices = choices();
        for rank in (0..4).map(Rank) {
            assert_eq!(
                choices
                    .schedule(&CollectiveSpec { rank, ..PLAN }, false, Groups::default())
                    .expect("a schedule")
                    .digest(),
                digest(PLAN)
            );
        }
        let others = [
            CollectiveSpec { collective: CollectiveKind::Scan, ..PLAN },
            CollectiveSpec { bytes: 4104, ..PLAN },
            CollectiveSpec { reduction_id: 8, ..PLAN },
            CollectiveSpec { in_place: true, ..PLAN },
            CollectiveSpec { order: Order::Rank, ..PLAN },
            CollectiveSpec { grain: 4, ..PLAN },
        ];
        let mut digests: Vec<u32> = others.into_iter().chain([PLAN]).map(digest).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 7);
        let rooted = CollectiveSpec { collective: CollectiveKind::Reduce, ..PLAN };
        assert_ne!(digest(rooted), digest(CollectiveSpec { root: Rank(1), ..rooted }));
    }

    #[test]
    fn messages_are_cut_to_lengths_that_the_wire_has() {
        let plan = CollectiveSpec { collective: CollectiveKind::Allgather, bytes: 5 << 30, grain: 1, ..PLAN };
        let prepared = choices().schedule(&plan, false, Groups::default()).expect("a schedule");
        assert!(prepared.schedule().segments() >= 20);
    }
}
