//! Gathers, scatters, allgathers and reduce-scatters of the parts of a vector, which differ in length where the ranks do not
//! divide it.

use core::ops::Range;

use super::*;

/// Elements of 4 bytes in a vector: less than one for each rank, in slots and chunks, whole and in rounds.
const LENGTHS: [usize; 10] = [0, 1, 2, 3, 5, 14, 15, 64, 129, 1100];
const GRAIN: usize = 4;

/// The parts of a vector of `elements` elements, as the core cuts it.
struct Parts {
    each: usize,
    bytes: usize,
}

impl Parts {
    fn new(elements: usize, size: u32) -> Self {
        Self { each: elements.div_ceil(size as usize) * GRAIN, bytes: elements * GRAIN }
    }

    fn of(&self, rank: u32) -> Range<usize> {
        let at = |rank: u32| (rank as usize * self.each).min(self.bytes);
        at(rank)..at(rank + 1)
    }
}

fn complete_parts<O: ReductionOp>(
    slots: &mut SlotCollectives<'_>,
    plan: &CollectiveSpec,
    vector: usize,
    buffers: &mut CollectiveBuffers<'_, O, SameProcess>,
) {
    slots.start_parts(CollectiveId { context: 0, sequence: slots.call.id.sequence.wrapping_add(1) }, plan, vector);
    loop {
        match slots.poll() {
            Poll::Request(step, op) => {
                buffers.execute(op).unwrap();
                slots.handle_done(step);
            }
            Poll::Pending => std::thread::yield_now(),
            Poll::Complete => return,
            Poll::Failed(failure) => panic!("{failure}"),
        }
        slots.published().for_each(drop);
    }
}

#[test]
fn parts_of_a_vector_arrive_where_they_belong() {
    for (size, ground) in
        (2..=9_u32).flat_map(|size| [TestAreas::new(size), TestAreas::oversubscribed(size)].map(|on| (size, on)))
    {
        in_threads(&ground, 0_u32.wrapping_sub(50), |mut slots, rank| {
            for (elements, way) in
                LENGTHS.into_iter().flat_map(|n| [SlotAlgorithm::Flat, SlotAlgorithm::Pull].map(|way| (n, way)))
            {
                let (segment, parts, root) = (slots.segment, Parts::new(elements, size), elements as u32 % size);
                slots.force_algorithm(Some(way));
                let of = |verb| CollectiveSpec { root: Rank(root), grain: GRAIN, ..plan(verb, rank, size, parts.each) };
                let what = format!("{elements} elements, rank {rank} of {size}, {way:?}");
                let whole = |from: u32| (0..parts.bytes).map(move |at| byte(from, 0, at));
                let own = parts.of(rank);

                // Of the root's vector, in place at the root.
                let mut vector: Vec<u8> = if rank == root { whole(root).collect() } else { vec![0; parts.bytes] };
                let (from, into) = if rank == root { (vector.clone(), own.clone()) } else { (Vec::new(), own.clone()) };
                complete_parts(
                    &mut slots,
                    &of(CollectiveKind::Scatter),
                    parts.bytes,
                    &mut CollectiveBuffers::new(segment, &from, &mut vector[into], NoReduction, SameProcess),
                );
                assert!(
                    vector[own.clone()].iter().copied().eq(whole(root).take(own.end).skip(own.start)),
                    "scatter: {what}"
                );

                let mine = vector[own.clone()].to_vec();
                let mut all = vec![0; parts.bytes];
                complete_parts(
                    &mut slots,
                    &of(CollectiveKind::Allgather),
                    parts.bytes,
                    &mut CollectiveBuffers::new(segment, &mine, &mut all, NoReduction, SameProcess),
                );
                assert!(all.iter().copied().eq(whole(root)), "allgather: {what}");

                let mut all = vec![0; if rank == root { parts.bytes } else { 0 }];
                complete_parts(
                    &mut slots,
                    &of(CollectiveKind::Gather),
                    parts.bytes,
                    &mut CollectiveBuffers::new(segment, &mine, &mut all, NoReduction, SameProcess),
                );
                assert!(rank != root || all.iter().copied().eq(whole(root)), "gather: {what}");
            }
        });
    }
}

/// Not commutative, in rank order, and in any order against the sum; in place, too.
#[test]
fn parts_of_vectors_are_combined() {
    let sum = Builtin::new(ReduceOperation::Sum, Element::U32).unwrap();
    for (size, ground) in
        (2..=9_u32).flat_map(|size| [TestAreas::new(size), TestAreas::oversubscribed(size)].map(|on| (size, on)))
    {
        in_threads(&ground, 0_u32.wrapping_sub(50), |mut slots, rank| {
            for (elements, way) in
                LENGTHS.into_iter().flat_map(|n| [SlotAlgorithm::Flat, SlotAlgorithm::Pull].map(|way| (n, way)))
            {
                let (segment, parts) = (slots.segment, Parts::new(elements, size));
                slots.force_algorithm(Some(way));
                let of = |order| CollectiveSpec {
                    grain: GRAIN,
                    order,
                    ..plan(CollectiveKind::ReduceScatter, rank, size, parts.each)
                };
                let (what, own) = (format!("{elements} elements, rank {rank} of {size}, {way:?}"), parts.of(rank));
                let mine = [rank as u8, rank as u8, 1, 9].repeat(elements);
                let mut part = vec![0; own.len()];
                complete_parts(
                    &mut slots,
                    &of(Order::Rank),
                    parts.bytes,
                    &mut CollectiveBuffers::new(segment, &mine, &mut part, Joined, SameProcess),
                );
                assert_eq!(part, [0, size as u8 - 1, size as u8, 9].repeat(own.len() / GRAIN), "{what}");

                let numbers: Vec<u32> = (0..elements as u32).map(|at| at * 10 + rank).collect();
                let mut both: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
                let all = (NonNull::from(both.as_mut_slice()).cast(), both.len());
                // SAFETY: the part begins within the vector, or at its end.
                let into = (unsafe { all.0.add(own.start) }, own.len());
                // SAFETY: both are of a vector of this thread's, which nobody else accesses.
                let mut buffers = unsafe { CollectiveBuffers::from_raw(segment, all, into, sum, SameProcess) };
                if way == SlotAlgorithm::Flat {
                    let plan = CollectiveSpec { in_place: true, ..of(Order::Any) };
                    complete_parts(&mut slots, &plan, parts.bytes, &mut buffers);
                    let found =
                        both[own.clone()].chunks_exact(GRAIN).map(|it| u32::from_ne_bytes(it.try_into().unwrap()));
                    let ranks = size * (size - 1) / 2;
                    assert!(
                        found.eq((own.start / GRAIN..own.end / GRAIN).map(|at| at as u32 * 10 * size + ranks)),
                        "{what}"
                    );
                }
            }
        });
    }
}

/// Ranks that cut different vectors into parts of the same length find that they disagree.
#[test]
fn vectors_of_other_lengths_disagree() {
    let ground = TestAreas::new(2);
    ground.areas.initialize(ground.segment(), 0).unwrap();
    let mut failed = 0;
    let mut slots = [0, 1].map(|rank| SlotCollectives::new(ground.segment(), ground.areas, rank, false, 0).unwrap());
    for ((slots, rank), vector) in slots.iter_mut().zip(0..).zip([6, 7]) {
        let (input, mut output) = ([1; 4], [0; 8]);
        slots.start_parts(CollectiveId::default(), &plan(CollectiveKind::Allgather, rank, 2, 4), vector);
        let mut buffers = CollectiveBuffers::new(ground.segment(), &input, &mut output, NoReduction, SameProcess);
        loop {
            match slots.poll() {
                Poll::Request(step, op) => {
                    buffers.execute(op).unwrap();
                    slots.handle_done(step);
                }
                Poll::Failed(Failure { cause: FailureCause::Disagrees, .. }) => break failed += 1,
                _ => break,
            }
        }
    }
    assert_eq!(failed, 1);
}
