//! Scans over subgroups.

use super::build::{INPUT, OUTPUT};
use super::stage::{Part, Placement};
use super::{HierarchicalPlan, LowerTrees};
use crate::collective::{CollectiveKind, Order};
use crate::schedule::{BlockBuffer, Plan, Rank, Spec, Unsupported};

impl<T: AsRef<[u32]>> HierarchicalPlan<T> {
    /// Up the levels a reduce to each leader, then an exclusive scan of the leaders of the last level. Down the levels each
    /// leader combines the result of the groups before with its own operand, from the left, and contributes it to a scan
    /// in its subgroup, after which no rank has anything left to combine.
    ///
    /// The total of a subgroup is thus at its lowest rank, the leader as in other collectives. A scan up the levels would
    /// end with the total at the last rank, which would have to lead, or to send it to the leader in a further round; and
    /// a broadcast would follow down the levels, of as many rounds as the scan that is here instead. Of the messages of
    /// that scan, those that wait for the leader's operand are a binomial broadcast; the others arrive before.
    ///
    /// A leader keeps the total of its part of each subgroup until it combines it, at the scratch block of the level; the
    /// other one of output and block 0 has its own operand, or the result of the groups before. Groups of the last rank
    /// have no total: no rank is after them.
    pub(super) fn scan(&mut self, lower: LowerTrees) -> Result<(), Unsupported> {
        let last = self.place.hierarchy.locate(Rank(self.spec.size.wrapping_sub(1))).ok_or(Unsupported::Rank)?;
        let is_exclusive = self.spec.collective == CollectiveKind::Exscan;
        let total = |level: u32| (BlockBuffer::Scratch, level);
        let highest = self.highest_level();
        let (own, before) = match (highest, is_exclusive) {
            (0, _) => (INPUT, OUTPUT),
            (_, true) if self.members(0) == 1 => (INPUT, OUTPUT),
            (_, true) => (total(0), OUTPUT),
            (_, false) => (OUTPUT, total(0)),
        };
        let operand = |level: u32| if level == 0 { own } else { total(level) };
        let (_, free) = self.reserve(0, highest.wrapping_add(1));
        if own != INPUT && (is_exclusive || !self.spec.in_place) {
            self.push(Part::Copy { from: INPUT, into: own });
        }
        for subgroup in self.lower_groups() {
            if self.place.hierarchy.subgroup(subgroup.level, &last) == subgroup {
                continue;
            }
            let spec = self.spec_in(subgroup, CollectiveKind::Reduce, lower);
            let plan = Plan::new(Spec { order: Order::Rank, ..spec })?;
            self.vector(subgroup, plan, operand(subgroup.level), total(subgroup.level.wrapping_add(1)), free);
        }
        for level in (0..=highest).rev() {
            let is_innermost_scan = level == 0 && !is_exclusive;
            let is_used = is_innermost_scan || self.members(level) != 1;
            if level != highest && self.spec.rank != Rank(0) && is_used && !mutant!("groups_before_left_out") {
                self.push(Part::Prepend { before, operand: operand(level) });
            }
            let (collective, result) =
                if level == 0 { (self.spec.collective, OUTPUT) } else { (CollectiveKind::Exscan, before) };
            // A leader's own operand of a scan is in the output.
            let in_place = if highest == 0 { self.spec.in_place } else { is_innermost_scan };
            let subgroup = self.place.hierarchy.subgroup(level, &self.place.own);
            let plan = Plan::new(Spec { in_place, ..self.spec_in(subgroup, collective, lower) })?;
            self.vector(subgroup, plan, operand(level), result, free);
        }
        Ok(())
    }

    /// Members of this rank's subgroup of this level.
    fn members(&self, level: u32) -> u32 {
        let Placement { hierarchy, own, .. } = &self.place;
        hierarchy.members(hierarchy.subgroup(level, own))
    }
}
