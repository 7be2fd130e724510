//! Mutation tests of the verification: schedules with one defect have to be detected.

use crate::group::Group;
use crate::verify::verify_steps;
use alloc::collections::BTreeMap;
use unisono_core::collective::{CollectiveKind, Order};
use unisono_core::ids::Rank;
use unisono_core::schedule::{
    Algorithm, BlockBuffer, BlockSpan, Blocks, Fold, GroupLevels, Hierarchy, LowerTrees, Spec, Step, StepOperation,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
enum Mutant {
    /// The step depends on nothing.
    NoNeeds,
    /// The step lacks the last of its dependencies.
    OneNeedLess,
    /// Its data begin one block later.
    Shifted,
    /// It moves one block less.
    Shorter,
    /// Its peer is another rank.
    OtherPeer,
    /// Its key is another one.
    OtherKey,
    /// It combines on the other side.
    OtherFold,
    /// It is omitted.
    Omitted,
}

const MUTANTS: [Mutant; 8] = [
    Mutant::NoNeeds,
    Mutant::OneNeedLess,
    Mutant::Shifted,
    Mutant::Shorter,
    Mutant::OtherPeer,
    Mutant::OtherKey,
    Mutant::OtherFold,
    Mutant::Omitted,
];

fn shift(span: &mut BlockSpan) -> bool {
    let blocks = &mut span.blocks;
    blocks.first = (blocks.first + 1) % blocks.modulus;
    !blocks.is_empty() && blocks.len() != blocks.modulus
}

fn shorten(span: &mut BlockSpan) -> bool {
    if span.blocks.last == 0 {
        return false;
    }
    span.blocks.last -= 1;
    span.blocks.run = if span.blocks.count == 1 { span.blocks.last } else { span.blocks.run };
    true
}

/// The step with this defect, or `None` if it has no such property.
fn mutate(step: &Step, mutant: Mutant, size: u32) -> Option<Step> {
    let mut wrong = *step;
    let changed = match (mutant, &mut wrong.operation) {
        (Mutant::NoNeeds, _) => {
            wrong.dependencies = 0;
            step.dependencies != 0
        }
        (Mutant::OneNeedLess, _) => {
            wrong.dependencies &= wrong.dependencies.wrapping_sub(1);
            step.dependencies != 0
        }
        (Mutant::Shifted, StepOperation::Send { from: span, .. } | StepOperation::Receive { into: span, .. }) => {
            shift(span)
        }
        (Mutant::Shifted, StepOperation::Copy { into: span, .. } | StepOperation::Reduce { into: span, .. }) => {
            shift(span)
        }
        (Mutant::Shorter, StepOperation::Copy { from, into } | StepOperation::Reduce { from, into, .. }) => {
            shorten(from) && shorten(into)
        }
        (Mutant::Shorter, StepOperation::Send { from: span, .. } | StepOperation::Receive { into: span, .. }) => {
            shorten(span)
        }
        (Mutant::OtherPeer, StepOperation::Send { to: peer, .. } | StepOperation::Receive { of: peer, .. }) => {
            *peer = Rank((peer.0 + 1) % size);
            true
        }
        (Mutant::OtherKey, StepOperation::Send { key, .. } | StepOperation::Receive { key, .. }) => {
            *key += 1;
            true
        }
        (Mutant::OtherFold, StepOperation::Reduce { fold, .. }) => {
            *fold = if *fold == Fold::Left { Fold::Right } else { Fold::Left };
            true
        }
        (Mutant::Omitted, operation) => {
            let nothing = BlockSpan { buffer: BlockBuffer::Input, blocks: Blocks::NONE, segment: 0 };
            *operation = StepOperation::Copy { from: nothing, into: nothing };
            true
        }
        _ => false,
    };
    changed.then_some(wrong)
}

/// Number of mutants, and of those that were not detected.
#[derive(Clone, Copy, Default)]
struct Count {
    all: u32,
    unnoticed: u32,
}

fn count(group: &Group, counts: &mut BTreeMap<Mutant, Count>) {
    let steps = group.steps.iter().enumerate().flat_map(|(rank, steps)| (0..steps.len()).map(move |i| (rank, i)));
    for ((rank, i), mutant) in steps.flat_map(|at| MUTANTS.map(|mutant| (at, mutant))) {
        // Commutative operands may be combined on either side.
        if mutant == Mutant::OtherFold && group.call.order == Order::Any {
            continue;
        }
        let Some(wrong) = mutate(&group.steps[rank][i], mutant, group.call.size) else { continue };
        let mut steps = group.steps.clone();
        steps[rank][i] = wrong;
        let unnoticed = verify_steps(group, &steps).is_ok();
        // A step may have redundant dependencies.
        let may = matches!(mutant, Mutant::NoNeeds | Mutant::OneNeedLess);
        assert!(may || !unnoticed, "{:?}: rank {rank}, step {i}, {mutant:?} {wrong:?}", group.call);
        let count = counts.entry(mutant).or_default();
        count.all += 1;
        count.unnoticed += u32::from(unnoticed);
    }
}

#[test]
fn every_mutant_of_a_schedule_is_noticed() {
    for (verb, algorithm) in
        CollectiveKind::ALL.iter().flat_map(|verb| Algorithm::ALL.map(|algorithm| (*verb, algorithm)))
    {
        let mut counts = BTreeMap::new();
        for (size, ports, in_place) in [(7, 2, false), (5, 2, true), (4, 1, false), (9, 2, false)] {
            let call = Spec { root: Rank(2), order: Order::Rank, in_place, ..Spec::new(verb, algorithm, size, ports) };
            let group = Group::new(call).or_else(|_| Group::new(Spec { order: Order::Any, ..call }));
            match group {
                Ok(group) if size < 9 || !verb.combines() => count(&group, &mut counts),
                _ => {}
            }
        }
        for (mutant, count) in counts {
            let most = if algorithm == Algorithm::Pairwise { count.all - 1 } else { count.all / 3 * 2 };
            assert!(count.unnoticed <= most, "{verb:?} {algorithm:?}: {} of {} {mutant:?}", count.unnoticed, count.all);
        }
    }
}

/// Over nested groups of one to four ranks, on two and on three levels.
#[test]
fn every_mutant_of_a_scan_over_subgroups_is_noticed() {
    let lower = LowerTrees { radix: 2, ports: 1 };
    let (hosts, sockets) = ([0, 0, 0, 0, 1, 1, 1, 2, 3, 3], [0, 0, 1, 1, 2, 3, 3, 4, 5, 5]);
    for (kind, algorithm) in [CollectiveKind::Scan, CollectiveKind::Exscan]
        .into_iter()
        .flat_map(|kind| [Algorithm::Dissemination, Algorithm::Ring].map(|algorithm| (kind, algorithm)))
    {
        let mut counts = BTreeMap::new();
        for (groupings, in_place) in [(&[&hosts[..]][..], false), (&[&sockets, &hosts], true)] {
            let mut table = vec![0; Hierarchy::<&[u32]>::table_len(10, groupings.len())];
            let groups = Hierarchy::new(groupings, &mut table[..]).expect("a table of that length");
            let call = Spec { order: Order::Rank, in_place, ..Spec::new(kind, algorithm, 10, 1) };
            let group =
                Group::nested(call, lower, groups.map(|table| &*table), |_| GroupLevels::NONE).expect("not refused");
            count(&group, &mut counts);
        }
        for (mutant, count) in counts {
            println!("{kind:?} {algorithm:?}: {} of {} {mutant:?} unnoticed", count.unnoticed, count.all);
            assert!(count.unnoticed <= count.all / 3 * 2, "{kind:?} {algorithm:?}: {mutant:?}");
        }
    }
}

/// With a commutative operation either side is correct, but not on one rank alone: its bits would differ.
#[test]
fn schedule_of_an_allreduce_with_other_bits_on_one_rank_is_noticed() {
    for algorithm in [Algorithm::Doubling, Algorithm::StandardExchange] {
        let group = Group::new(Spec::new(CollectiveKind::Allreduce, algorithm, 8, 1)).expect("not refused");
        let fold = group.steps[3].iter().position(|step| matches!(step.operation, StepOperation::Reduce { .. }));
        let fold = fold.expect("a reduction");
        let mut steps = group.steps.clone();
        steps[3][fold] = mutate(&steps[3][fold], Mutant::OtherFold, 8).expect("a reduction");
        let why = verify_steps(&group, &steps).expect_err("noticed");
        assert!(why.contains("other bits"), "{why}");
    }
}
