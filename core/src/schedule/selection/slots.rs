//! The time of a group's steps through slots in shared memory, by closed forms.
//!
//! A rank writes its contribution once, and the ranks that need it read it there: a message takes two copies for each
//! receiver. Of a reduction each rank combines its share, and one rank reads all shares; of a reduce-scatter it keeps it
//! (Mamidala 2008, §9.2.2).

use super::{COMBINE_PS_PER_BYTE, LinkModel, ps};
use crate::collective::CollectiveKind;

/// The cost of a step of a group through slots. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlotModel {
    /// Time from the last rank's entry until another rank has seen it.
    pub latency_ns: u32,
    /// The part of it that occupies each rank.
    pub overhead_ns: u32,
    /// Picoseconds to copy a byte to or from a slot.
    pub ps_per_byte: u32,
    /// Ranks per processor; 0 and 1: no sharing.
    pub sharing: u16,
}

/// What messages within a group cost, and steps through slots, if the ranks of innermost groups have them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupModel {
    /// Messages.
    pub messages: LinkModel,
    /// Steps of the ranks of innermost groups.
    pub slots: Option<SlotModel>,
}

impl From<LinkModel> for GroupModel {
    /// Messages only.
    fn from(messages: LinkModel) -> Self {
        Self { messages, slots: None }
    }
}

impl SlotModel {
    /// The time of a step of `size` ranks that have `bytes` bytes each, or of a vector of which each has a part, in
    /// picoseconds. `None`: groups have no such step.
    pub(super) fn time_ps(&self, collective: CollectiveKind, size: u32, bytes: usize) -> Option<u64> {
        use CollectiveKind::{Allgather, Barrier, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
        let (size, bytes) = (u64::from(size.max(1)), bytes as u64);
        let others = size.saturating_sub(1);
        let copied = bytes.saturating_mul(u64::from(self.ps_per_byte));
        let combined = bytes.saturating_mul(u64::from(COMBINE_PS_PER_BYTE));
        let part = |whole: u64| whole.checked_div(size).unwrap_or(0);
        // The longest path, and the mean work of a rank.
        let (path, mean) = match collective {
            Barrier => (0, 0),
            Broadcast => (copied.saturating_mul(2), copied),
            Reduce => {
                let all = combined.saturating_mul(others);
                // Long vectors are combined in shares, which the root reads.
                let in_shares = part(all).saturating_add(copied).saturating_add(ps(self.latency_ns));
                (copied.saturating_add(all.min(in_shares)), copied.saturating_add(part(all)))
            }
            ReduceScatter => {
                let work = copied.saturating_add(part(combined.saturating_mul(others)));
                (work, work)
            }
            Allgather => {
                let work = copied.saturating_add(part(copied));
                (work, work)
            }
            Gather | Scatter => (copied.saturating_mul(size.saturating_add(1)), copied.saturating_mul(2)),
            _ => return None,
        };
        let waiting =
            mean.saturating_add(ps(self.overhead_ns)).saturating_mul(u64::from(self.sharing.saturating_sub(1)));
        Some(ps(self.latency_ns).saturating_add(path).saturating_add(waiting))
    }
}
