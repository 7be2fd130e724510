//! loom models of the slots: payload is read as it was published, and overwritten only after every rank has read it.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use loom::model::Builder;
use unisono_core::collective::{
    CollectiveKind, CollectiveMachine as _, CollectiveSpec, DataExecutor, Order, Piece, Place, Poll,
};
use unisono_core::ids::{CollectiveId, Rank};

use super::assert_ranks_need;
#[cfg(any(mutant = "chunk_untimely", mutant = "chunk_retaken"))]
use super::in_ranks;
use crate::collective_area::{CollectiveAreas, Members};
use crate::segment::{Memory, Segment, Site};
use crate::slot_collectives::SlotCollectives;
use crate::slot_collectives::data_op::DataOp;
use crate::slot_collectives::selection::SlotAlgorithm;

/// Polls of a word before a rank stops for good, as if it were killed.
const LOOKS: u32 = 2;
/// The number of steps before the first: it wraps at once.
const FIRST: u32 = u32::MAX;

/// One slot: every step uses it again.
fn areas(ranks: u32) -> CollectiveAreas {
    CollectiveAreas {
        ranks,
        members: Members::ALL,
        offset: 0,
        stride: 32,
        line: 4,
        slots: 1,
        inline: 16,
        bulk: 32,
        chunk: 0,
        oversubscribed: false,
    }
}

/// Two slots, whose payload lies in chunks.
fn boards_with_chunks(ranks: u32) -> CollectiveAreas {
    CollectiveAreas { stride: 64, slots: 2, inline: 8, bulk: 40, chunk: 12, ..areas(ranks) }
}

/// One number in, one out; they are combined by adding.
struct Number<'a> {
    segment: Segment<'a>,
    input: u32,
    output: u32,
    exposed: usize,
}

impl Number<'_> {
    fn read(&self, piece: Piece) -> u32 {
        let mut bytes = [0; 4];
        match piece.place {
            Place::Input => return self.input,
            Place::Output => return self.output,
            Place::Shared => self.segment.shared_bytes(piece.offset, 4).unwrap().read(&mut bytes).unwrap(),
        }
        u32::from_le_bytes(bytes)
    }

    fn write(&mut self, piece: Piece, value: u32) {
        match piece.place {
            Place::Shared => self.segment.shared_bytes(piece.offset, 4).unwrap().write(&value.to_le_bytes()).unwrap(),
            Place::Input | Place::Output => self.output = value,
        }
    }
}

impl DataExecutor<DataOp> for Number<'_> {
    type Error = DataOp;

    fn execute(&mut self, op: DataOp) -> Result<(), DataOp> {
        match op {
            DataOp::Copy { from, into } => self.write(into, self.read(from)),
            DataOp::Combine { left, right, into } => self.write(into, self.read(left) + self.read(right)),
            DataOp::Expose { .. } => {}
            // The exposed buffers follow the areas.
            DataOp::Pull { of, into, .. } => {
                let exposed = Piece::new(Place::Shared, self.exposed + 4 * of.0 as usize, 4);
                self.write(into, self.read(exposed));
            }
        }
        Ok(())
    }
}

/// Runs a collective; `None`: the others did not arrive in time.
fn complete(
    flags: &mut SlotCollectives<'_>,
    (verb, bytes): (CollectiveKind, usize),
    root: u32,
    input: u32,
    segment: Segment<'_>,
    rank: u32,
) -> Option<u32> {
    let (size, mut number) = (flags.size(), Number { segment, input, output: 0, exposed: flags.areas().end() });
    let (rank, root) = (Rank(rank), Rank(root));
    let plan = CollectiveSpec {
        collective: verb,
        rank,
        size,
        root,
        bytes,
        grain: 4,
        order: Order::Any,
        in_place: false,
        reduction_id: 0,
    };
    let may_be_short = flags.is_small_broadcast(bytes, 0, root.0);
    if may_be_short && let Some(cells) = flags.small_broadcast_payload() {
        let mut number = input.to_le_bytes();
        if rank == root { cells.write(&number) } else { cells.read(&mut number) }.unwrap();
        flags.end_small_broadcast();
        return Some(u32::from_le_bytes(number));
    }
    flags.start(CollectiveId::default(), &plan);
    let mut looks = u32::from(may_be_short);
    loop {
        match flags.poll() {
            Poll::Request(step, op) => {
                number.execute(op).unwrap();
                flags.handle_done(step);
                looks = 0;
            }
            Poll::Pending if looks < LOOKS => looks += 1,
            Poll::Pending => return None,
            Poll::Complete => return Some(number.output),
            Poll::Failed(failure) => panic!("{failure}"),
        }
    }
}

/// The model's builder and body; and whether any reader completed.
type Model = (Builder, Arc<AtomicBool>);

fn model(
    preemptions: Option<usize>,
    epochs: u32,
    verb: CollectiveKind,
    areas: CollectiveAreas,
) -> (Model, impl Fn(&Memory, u32) + Clone + Sync + Send + 'static) {
    let through = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&through);
    let body = move |memory: &Memory, rank: u32| {
        let segment = memory.segment();
        let mut flags = SlotCollectives::new(segment, areas, rank, false, FIRST).unwrap();
        let (ranks, bytes) = (areas.ranks, if areas.chunk > 0 { areas.chunk } else { 4 });
        for epoch in 1..=epochs {
            let input = epoch * 10 + rank;
            let Some(output) = complete(&mut flags, (verb, bytes), 0, input, segment, rank) else { return };
            match verb {
                CollectiveKind::Broadcast if rank == 0 => {}
                CollectiveKind::Broadcast => assert_eq!(output, epoch * 10),
                _ => assert_eq!(output, (0..ranks).map(|rank| epoch * 10 + rank).sum()),
            }
        }
        if rank > 0 {
            through.store(true, Ordering::Relaxed);
        }
    };
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    ((builder, seen), body)
}

fn explore(name: &str, preemptions: Option<usize>, epochs: u32, verb: CollectiveKind, areas: CollectiveAreas) {
    let ((builder, seen), body) = model(preemptions, epochs, verb, areas);
    let mut sites = vec![Site::SlotPublish, Site::SlotPoll, Site::SlotDone, Site::SlotFree];
    // The first one does not take the fast path.
    if verb == CollectiveKind::Broadcast && epochs > 1 {
        sites.extend([Site::SmallBroadcastPublish, Site::SmallBroadcastPoll]);
    }
    // The next one waits until all have finished it.
    if verb == CollectiveKind::Broadcast && epochs > 2 {
        sites.push(Site::SmallBroadcastDone);
    }
    assert_ranks_need(name, &builder, &sites, (areas.ranks, areas.end(), FIRST), body);
    assert!(seen.load(Ordering::Relaxed), "{name}: no rank completes");
}

#[test]
fn broadcast_slot_of_two() {
    explore("broadcast slot, 2 ranks, 3 epochs", None, 3, CollectiveKind::Broadcast, areas(2));
}

#[test]
fn broadcast_slot_of_three() {
    explore("broadcast slot, 3 ranks, 2 epochs, 3 preemptions", Some(3), 2, CollectiveKind::Broadcast, areas(3));
}

#[cfg(not(any(mutant = "chunk_untimely", mutant = "chunk_retaken")))]
#[test]
fn broadcast_chunks_of_two() {
    explore("broadcast chunks, 2 ranks, 3 epochs", None, 3, CollectiveKind::Broadcast, boards_with_chunks(2));
}

/// The mutants: the first chunk is used before all have read it, or in turn while it is used out of turn.
#[cfg(any(mutant = "chunk_untimely", mutant = "chunk_retaken"))]
#[test]
fn chunks_written_too_early_are_noticed() {
    let areas = boards_with_chunks(2);
    let ((builder, _), body) = model(None, 3, CollectiveKind::Broadcast, areas);
    assert_eq!(super::explore(&builder, None, in_ranks((areas.ranks, areas.end(), FIRST), body)), None);
}

/// Slots of addresses, and words for pulled steps.
fn boards_with_taken(ranks: u32) -> CollectiveAreas {
    let bulk = 2 * 4 + 4 * 24 + 4 * ranks as usize;
    CollectiveAreas { stride: bulk, slots: 4, bulk, oversubscribed: true, ..areas(ranks) }
}

/// A rank's exposed buffer is its own again as soon as every other rank has pulled from it.
#[test]
fn lent_blocks_of_two() {
    let areas = boards_with_taken(2);
    let (through, mut builder) = (Arc::new(AtomicBool::new(false)), Builder::new());
    let seen = Arc::clone(&through);
    let body = move |memory: &Memory, rank: u32| {
        let segment = memory.segment();
        let mut flags = SlotCollectives::new(segment, areas, rank, true, FIRST).unwrap();
        flags.force_algorithm(Some(SlotAlgorithm::Pull));
        let exposed = segment.shared_bytes(areas.end() + 4 * rank as usize, 4).unwrap();
        let input = 10 + rank;
        exposed.write(&input.to_le_bytes()).unwrap();
        let Some(output) = complete(&mut flags, (CollectiveKind::Alltoall, 4), 0, input, segment, rank) else { return };
        assert!([10, 11].contains(&output));
        exposed.write(&[0; 4]).unwrap();
        through.store(true, Ordering::Relaxed);
    };
    builder.preemption_bound = Some(3);
    let sites = [Site::SlotPublish, Site::SlotPoll, Site::PullDone, Site::PullPoll];
    assert_ranks_need("exposed blocks, 2 ranks", &builder, &sites, (2, areas.end() + 8, FIRST), body);
    assert!(seen.load(Ordering::Relaxed), "no rank completes");
}

#[test]
fn contributions_of_two() {
    explore("allreduce, 2 ranks, 2 epochs, 4 preemptions", Some(4), 2, CollectiveKind::Allreduce, areas(2));
}
