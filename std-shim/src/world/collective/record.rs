//! The record of a collective: which algorithm executed it, and what selected that.

use core::fmt;

use unisono_core::collective::CollectiveKind;
use unisono_core::schedule::Unsupported;
use unisono_shmem::slot_collectives::selection::SlotAlgorithm;

use crate::environment::tuning::{Composition, SelectedBy};
use crate::world::communicator::Communicator;

/// Which algorithm executed a collective, and what selected it.
///
/// ```
/// use unisono::prelude::*;
///
/// let world = World::join()?;
/// world.barrier()?;
/// if let Some(record) = world.last_collective() {
///     println!("{record}");
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CollectiveRecord {
    /// The collective's name.
    pub collective: &'static str,
    /// Bytes of a rank's block; of reductions and scans the vector.
    pub bytes: usize,
    /// Whether it goes through collective areas in shared memory, not over messages.
    pub is_in_slots: bool,
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// Ports and segments of a schedule.
    pub schedule: Option<(u8, u32)>,
    /// Levels of subgroups over which it is composed; 1: none.
    pub levels: u32,
    /// Whether all ranks of a subgroup lead, each a part of the vector, between the subgroups of the last level.
    pub all_lead: bool,
    /// Whether the blocks that leaders collect go down to the others in parts, as they arrive.
    pub is_in_parts: bool,
    /// What selected that a schedule is composed over them.
    pub composition: Option<Composition>,
    /// Levels at which this rank's subgroup exchanges its parts of it in shared memory.
    pub slot_levels: u32,
    /// What selected the algorithm.
    pub selected_by: SelectedBy,
    /// Why the user's override of a collective over messages is not used.
    pub override_error: Option<Unsupported>,
}

/// A collective in shared memory: its number among the user's calls, its kind, its bytes, and how it was executed.
pub(in crate::world) type ExecutedInSlots = (u32, CollectiveKind, usize, SlotAlgorithm);

/// The last collectives of a communicator by either way, with their numbers among the user's calls.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Executed {
    over_messages: Option<(u32, CollectiveRecord)>,
    in_slots: Option<ExecutedInSlots>,
}

impl CollectiveRecord {
    /// A collective in shared memory.
    pub(super) const fn in_slots(kind: CollectiveKind, bytes: usize, algorithm: SlotAlgorithm) -> Self {
        Self {
            collective: kind.name(),
            bytes,
            is_in_slots: true,
            algorithm: algorithm.name(),
            schedule: None,
            levels: 1,
            all_lead: false,
            is_in_parts: false,
            composition: None,
            slot_levels: 0,
            selected_by: SelectedBy::in_slots(kind),
            override_error: None,
        }
    }

    /// A collective over messages that no schedule executes.
    pub(super) const fn unscheduled(
        kind: CollectiveKind,
        bytes: usize,
        algorithm: &'static str,
        selected_by: SelectedBy,
    ) -> Self {
        Self {
            collective: kind.name(),
            bytes,
            is_in_slots: false,
            algorithm,
            schedule: None,
            levels: 1,
            all_lead: false,
            is_in_parts: false,
            composition: None,
            slot_levels: 0,
            selected_by,
            override_error: None,
        }
    }
}

impl fmt::Display for CollectiveRecord {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} of {} bytes by {}", self.collective, self.bytes, self.algorithm)?;
        if let Some((ports, segments)) = self.schedule {
            write!(to, ":k={ports},segments={segments}")?;
        }
        if self.levels > 1 {
            write!(to, " over {} levels", self.levels)?;
        }
        let means = if self.is_in_slots { "in shared memory" } else { "over messages" };
        write!(to, " {means}")?;
        to.write_str(if self.all_lead { ", all ranks lead" } else { "" })?;
        to.write_str(if self.is_in_parts { ", in parts" } else { "" })?;
        match self.slot_levels {
            0 => {}
            1 => write!(to, ", in shared memory within groups")?,
            levels => write!(to, ", in shared memory within groups on {levels} levels")?,
        }
        write!(to, ": {}", self.selected_by.name())?;
        self.composition.map_or(Ok(()), |composition| write!(to, "; {composition}"))?;
        self.override_error.map_or(Ok(()), |reason| write!(to, "; not the override: {reason}"))
    }
}

impl Communicator {
    /// The record of the collective that was called last on this communicator, blocking or not. `None`: there was none, it
    /// did not start, or this rank is the only one. A broadcast by `multicast` goes by its schedule where the
    /// communicator's group is not usable.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// assert!(world.last_collective().is_none());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn last_collective(&self) -> Option<CollectiveRecord> {
        let call = self.call();
        if call == 0 || self.size < 2 {
            return None;
        }
        let Executed { over_messages, in_slots } = self.executed();
        let over_messages = over_messages.filter(|(number, _)| *number == call).map(|(_, record)| record);
        if self.intra_node.is_none() {
            return over_messages;
        }
        let in_slots = || {
            let (_, kind, bytes, algorithm) = in_slots.filter(|(number, ..)| *number == call)?;
            Some(CollectiveRecord::in_slots(kind, bytes, algorithm))
        };
        // Only a barrier in shared memory is in no log.
        match self.log.lock().at(call) {
            None => Some(CollectiveRecord::in_slots(CollectiveKind::Barrier, 0, SlotAlgorithm::Flat)),
            Some(logged) => over_messages.or_else(in_slots).filter(|record| record.collective == logged.name()),
        }
    }

    /// What executed the last collectives.
    pub(in crate::world) fn executed(&self) -> Executed {
        let over_messages = self.shared.with_process(|process| process.last_record(self.context));
        Executed { over_messages, in_slots: self.intra_node.as_ref().and_then(|on_node| on_node.executed()) }
    }

    /// Sets what [`executed`](Self::executed) returns.
    pub(in crate::world) fn set_executed(&self, executed: Executed) {
        self.shared.with_process(|process| process.set_last_record(self.context, executed.over_messages));
        if let Some(on_node) = &self.intra_node {
            on_node.set_executed(executed.in_slots);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::GroupMeans;

    #[test]
    fn a_record_is_printed_with_what_selected_the_algorithm() {
        let slots = CollectiveRecord::in_slots(CollectiveKind::Allreduce, 8, SlotAlgorithm::Parallel);
        assert_eq!(slots.to_string(), "all_reduce of 8 bytes by parallel in shared memory: rule");
        let barrier = CollectiveRecord::in_slots(CollectiveKind::Barrier, 0, SlotAlgorithm::Flat);
        assert_eq!(barrier.to_string(), "barrier of 0 bytes by flat in shared memory: only algorithm");
        let tree = CollectiveRecord::unscheduled(CollectiveKind::Barrier, 0, "token-tree", SelectedBy::Override);
        assert_eq!(tree.to_string(), "barrier of 0 bytes by token-tree over messages: override");
        let composed = CollectiveRecord {
            algorithm: "ring",
            schedule: Some((1, 4)),
            levels: 2,
            composition: Some(Composition {
                selected_by: SelectedBy::Override,
                means: GroupMeans::Auto,
                means_by: SelectedBy::Rule,
            }),
            override_error: Some(Unsupported::Order),
            selected_by: SelectedBy::Model,
            ..CollectiveRecord::unscheduled(CollectiveKind::Reduce, 64, "", SelectedBy::Table)
        };
        let text = composed.to_string();
        let expected = "reduce of 64 bytes by ring:k=1,segments=4 over 2 levels over messages: model; groups: override; \
             means: rule; not the override: ";
        assert!(text.starts_with(expected), "{text}");
        let leaders = CollectiveRecord { all_lead: true, is_in_parts: true, slot_levels: 1, levels: 2, ..tree };
        let expected = "barrier of 0 bytes by token-tree over 2 levels over messages, all ranks lead, in parts, \
             in shared memory within groups: override";
        assert_eq!(leaders.to_string(), expected);
    }
}
