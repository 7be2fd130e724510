//! The memory bounds of a schedule against its use of memory.

use crate::group::{Group, calls};
use crate::verify::run_until;
use unisono_core::collective::CollectiveKind;
use unisono_core::schedule::{Algorithm, BlockBuffer, GroupStep, Spec, Step, StepOperation};

/// Messages and blocks that others send to `rank` while it does nothing.
fn arrive_before(group: &Group, rank: usize) -> (u32, u32) {
    let mut until = vec![usize::MAX; group.size()];
    until[rank] = 0;
    run_until(group, &group.steps, &until).unwrap_or_else(|why| panic!("{:?}: {why}", group.call)).sent_to[rank]
}

pub(crate) fn scratch(steps: &[Step]) -> u32 {
    let spans = steps.iter().flat_map(|step| match step.operation {
        StepOperation::Send { from: span, .. } | StepOperation::Receive { into: span, .. } => [span, span],
        StepOperation::Copy { from, into }
        | StepOperation::Reduce { from, into, .. }
        | StepOperation::Group(GroupStep { from, into, .. }) => [from, into],
    });
    let blocks = spans.filter(|span| span.buffer == BlockBuffer::Scratch).flat_map(|span| span.blocks.iter());
    blocks.max().map_or(0, |last| last + 1)
}

/// Whether early messages to a rank may depend on that rank through others, so that the bound is not always reached.
fn depends_on_itself(call: &Spec) -> bool {
    match call.collective {
        CollectiveKind::Barrier => call.algorithm == Algorithm::Dissemination,
        CollectiveKind::Broadcast | CollectiveKind::Allgather => {
            matches!(call.algorithm, Algorithm::Bruck | Algorithm::Ring)
        }
        CollectiveKind::Alltoall => matches!(call.algorithm, Algorithm::Bruck | Algorithm::Pairwise),
        _ => false,
    }
}

fn check(calls: impl Iterator<Item = Spec>) {
    for call in calls {
        let group = Group::new(call).expect("not refused");
        for (rank, plan) in group.plans.iter().enumerate() {
            // A block arrives in as many parts as there are segments.
            let early = (plan.early_messages(), plan.early_blocks() * call.segments);
            let measured = arrive_before(&group, rank);
            let fits =
                measured == early || (depends_on_itself(&call) && measured.0 <= early.0 && measured.1 <= early.1);
            assert!(fits, "{call:?}: {measured:?} messages and blocks arrive early at rank {rank}, not {early:?}");
            // Scratch is counted in whole vectors of blocks, of which some may be unused.
            let (scratch, used) = (plan.scratch_blocks(), scratch(&group.steps[rank]));
            let vectors = used.next_multiple_of(plan.blocks());
            assert!(used <= scratch && scratch <= vectors, "{call:?}: rank {rank} uses {used} blocks of {scratch}");
        }
    }
}

#[test]
fn no_schedule_of_up_to_9_ranks_uses_more_memory_than_it_says() {
    check(calls(1..=9, &[1, 2, 3]).into_iter());
}

#[test]
fn no_schedule_of_10_to_17_ranks_uses_more_memory_than_it_says() {
    let calls = calls(10..=17, &[1, 2, 3]).into_iter();
    check(calls.filter(|call| !call.collective.is_rooted() || call.root.0 == call.size / 2));
}

#[test]
fn no_schedule_in_segments_uses_more_memory_than_it_says() {
    check(calls(1..=6, &[1, 2]).into_iter().map(|call| Spec { segments: 3, ..call }));
}
