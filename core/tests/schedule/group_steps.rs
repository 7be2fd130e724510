//! Steps of subgroups: executed when all members have begun theirs, in the order of their numbers in that subgroup, and
//! checked to be the same collective.
//!
//! A real group does not wait for all: what ends here ends there.

use crate::memory::{Combined, Memory, Value};
use alloc::collections::BTreeSet;
use unisono_core::collective::CollectiveKind;
use unisono_core::schedule::{BlockSpan, GroupStep, Hierarchy, Step, StepOperation};

/// One rank's part in a group's collective: its number, the step's number, and the step.
pub(crate) type Part = (usize, usize, GroupStep);

/// The group steps of all ranks.
pub(crate) struct GroupSteps {
    /// Those that each rank has not executed, by level, the first one last.
    left: Vec<[Vec<(usize, GroupStep)>; Hierarchy::<()>::GROUPINGS + 1]>,
    begun: BTreeSet<(usize, usize)>,
}

impl GroupSteps {
    pub(crate) fn new<'s>(steps: impl Iterator<Item = &'s [Step]>) -> Self {
        let of = |steps: &[Step]| {
            let mut levels = [const { Vec::new() }; Hierarchy::<()>::GROUPINGS + 1];
            for (i, step) in steps.iter().enumerate().rev() {
                if let StepOperation::Group(step) = step.operation {
                    levels[step.level as usize].push((i, step));
                }
            }
            levels
        };
        Self { left: steps.map(of).collect(), begun: BTreeSet::new() }
    }

    pub(crate) fn begin(&mut self, rank: usize, i: usize) {
        self.begun.insert((rank, i));
    }

    /// A collective that all members of its subgroup have begun, in the order of their numbers.
    pub(crate) fn next(&mut self) -> Option<Vec<Part>> {
        let nexts = self.left.iter().enumerate().flat_map(|(rank, levels)| {
            levels.iter().filter_map(move |left| left.last().map(|(i, step)| (rank, *i, *step)))
        });
        let nexts: Vec<Part> = nexts.filter(|(rank, i, _)| self.begun.contains(&(*rank, *i))).collect();
        let same = |a: &GroupStep, b: &GroupStep| (a.level, a.group) == (b.level, b.group);
        let group = nexts
            .iter()
            .map(|(.., step)| *step)
            .find(|step| nexts.iter().filter(|(.., other)| same(step, other)).count() == step.members as usize)?;
        let mut parts: Vec<Part> = nexts.into_iter().filter(|(.., step)| same(&group, step)).collect();
        parts.sort_by_key(|(.., step)| step.number);
        parts.iter().for_each(|(rank, ..)| _ = self.left[*rank][group.level as usize].pop());
        Some(parts)
    }
}

/// Executes a group's collective.
pub(crate) fn execute(parts: &[Part], memories: &mut [Memory], combined: &mut Combined) -> Result<(), String> {
    let (.., first) = parts[0];
    let root = first.root as usize;
    for (number, (rank, _, step)) in (0..).zip(parts) {
        let is_same = (step.collective, step.root, step.members, step.in_place, step.each)
            == (first.collective, first.root, first.members, first.in_place, first.each);
        if !is_same || step.number != number || step.from.segment != step.into.segment {
            return Err(format!("rank {rank} executes {step:?} where others execute {first:?}"));
        }
    }
    let (leader, _, of_root) = parts[root];
    let load = |memories: &[Memory], rank: usize, span: BlockSpan| memories[rank].load(span);
    match first.collective {
        CollectiveKind::Barrier => {}
        CollectiveKind::Broadcast => {
            let values = load(memories, leader, of_root.from)?;
            for (rank, _, step) in parts.iter().filter(|(.., step)| step.number != first.root) {
                memories[*rank].store(step.into, &values)?;
            }
        }
        CollectiveKind::Reduce => {
            let all: Vec<Vec<Value>> =
                parts.iter().map(|(rank, _, step)| load(memories, *rank, step.from)).collect::<Result<_, _>>()?;
            memories[leader].store(of_root.into, &reduce(all, combined))?;
        }
        CollectiveKind::Allreduce => {
            let all: Vec<Vec<Value>> =
                parts.iter().map(|(rank, _, step)| load(memories, *rank, step.from)).collect::<Result<_, _>>()?;
            let sum = reduce(all, combined);
            for (rank, _, step) in parts {
                memories[*rank].store(step.into, &sum)?;
            }
        }
        CollectiveKind::Gather => {
            let mut all = Vec::new();
            let whole = first.each as usize;
            for (number, (rank, _, step)) in parts.iter().enumerate() {
                let is_there = number == root && first.in_place;
                let values = if is_there {
                    load(memories, leader, of_root.into)?[number * whole..(number + 1) * whole].to_vec()
                } else {
                    load(memories, *rank, step.from)?
                };
                all.extend(values);
            }
            memories[leader].store(of_root.into, &all)?;
        }
        CollectiveKind::Scatter => {
            let all = load(memories, leader, of_root.from)?;
            let whole = first.each as usize;
            for (number, (rank, _, step)) in parts.iter().enumerate() {
                if !(number == root && first.in_place) {
                    memories[*rank].store(step.into, &all[number * whole..(number + 1) * whole])?;
                }
            }
        }
        CollectiveKind::ReduceScatter => {
            let all: Vec<Vec<Value>> =
                parts.iter().map(|(rank, _, step)| load(memories, *rank, step.from)).collect::<Result<_, _>>()?;
            let (sum, whole) = (reduce(all, combined), first.each as usize);
            for (number, (rank, _, step)) in parts.iter().enumerate() {
                memories[*rank].store(step.into, &sum[number * whole..(number + 1) * whole])?;
            }
        }
        CollectiveKind::Allgather => {
            let all =
                parts.iter().map(|(rank, _, step)| load(memories, *rank, step.from)).collect::<Result<Vec<_>, _>>()?;
            let all = all.concat();
            for (rank, _, step) in parts {
                memories[*rank].store(step.into, &all)?;
            }
        }
        other => return Err(format!("a group executes no {}", other.name())),
    }
    Ok(())
}

/// Vectors combined in order.
fn reduce(all: Vec<Vec<Value>>, combined: &mut Combined) -> Vec<Value> {
    let combine = |a: Vec<Value>, b: Vec<Value>| a.into_iter().zip(b).map(|(a, b)| combined.combine(a, b)).collect();
    all.into_iter().reduce(combine).expect("a rank")
}
