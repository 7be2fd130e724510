mod faults;
mod parts;
mod small_broadcast;

use core::sync::atomic::{AtomicU64, Ordering};

use unisono_core::collective::{DataExecutor as _, Order};

use super::*;
use crate::reduction_ops::tests::{Number, apart, combined, epsilon, kernels, numbers, random};
use crate::reduction_ops::{self, Element, Kernel, ReduceOperation};
use crate::slot_collectives::data_executor::{
    Builtin, CollectiveBuffers, DataError, NoReduction, ReductionOp, RemoteMemory,
};
use crate::testing::TestAreas;
use core::ptr::NonNull;

const WAYS: [SlotAlgorithm; 3] = [SlotAlgorithm::Flat, SlotAlgorithm::Parallel, SlotAlgorithm::Pull];

/// Ranks are threads: their memory is this process's.
struct SameProcess;

impl RemoteMemory for SameProcess {
    unsafe fn pull(&mut self, _: Rank, address: u64, into: NonNull<u8>, bytes: usize) -> Result<(), DataError> {
        let from: *const u8 = core::ptr::with_exposed_provenance(address as usize);
        // SAFETY: the other thread exposes this memory until this rank has finished with it.
        unsafe { into.as_ptr().copy_from_nonoverlapping(from, bytes) };
        Ok(())
    }
}

/// r(l, r) = the strings l and r of 4 bytes each joined: first byte of l, last of r, and how many were joined. Not
/// commutative.
struct Joined;

impl ReductionOp for Joined {
    unsafe fn combine(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
        for at in (0..bytes).step_by(4) {
            // SAFETY: this element begins within the `bytes` bytes of both operands, which the caller answers for.
            let [l, r] = [left, right].map(|from| unsafe { from.add(at) }.cast::<[u8; 4]>());
            // SAFETY: this element's 4 bytes lie within the `bytes` bytes of the left operand, which the caller answers
            // for.
            let l = unsafe { l.read_unaligned() };
            // SAFETY: this element's 4 bytes lie within the `bytes` bytes of the right operand, which the caller
            // answers for.
            let r = unsafe { r.read_unaligned() };
            assert_eq!(l[1].wrapping_add(1), r[0], "operands are not adjacent");
            let joined = [l[0], r[1], l[2].wrapping_add(r[2]), l[3]];
            // SAFETY: this element begins within the `bytes` bytes of the result, which the caller answers for.
            let to = unsafe { into.add(at) }.cast::<[u8; 4]>();
            // SAFETY: this element's 4 bytes lie within the `bytes` bytes of the result, which the caller answers for.
            unsafe { to.write_unaligned(joined) };
        }
    }
}

fn plan(verb: CollectiveKind, rank: u32, size: u32, bytes: usize) -> CollectiveSpec {
    CollectiveSpec {
        collective: verb,
        rank: Rank(rank),
        size,
        root: Rank(0),
        bytes,
        grain: 1,
        order: Order::Any,
        in_place: false,
        reduction_id: 0,
    }
}

/// Blocks until the collective is complete.
fn complete<O: ReductionOp>(
    flags: &mut SlotCollectives<'_>,
    plan: &CollectiveSpec,
    buffers: &mut CollectiveBuffers<'_, O, SameProcess>,
) {
    let id = CollectiveId { context: 0, sequence: flags.call.id.sequence.wrapping_add(1) };
    flags.start(id, plan);
    loop {
        match flags.poll() {
            Poll::Request(step, op) => {
                buffers.execute(op).unwrap();
                flags.handle_done(step);
            }
            Poll::Pending => std::thread::yield_now(),
            Poll::Complete => return,
            Poll::Failed(failure) => panic!("{failure}"),
        }
        assert!(flags.published.count <= 4, "{plan:?}");
        flags.published().for_each(drop);
    }
}

/// Runs `body` for every rank in a thread of its own.
fn in_threads(ground: &TestAreas, first: u32, body: impl Fn(SlotCollectives<'_>, u32) + Sync) {
    ground.areas.initialize(ground.segment(), first).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..ground.areas.ranks {
            let (body, flags) =
                (&body, SlotCollectives::new(ground.segment(), ground.areas, rank, true, first).unwrap());
            scope.spawn(move || body(flags, rank));
        }
    });
}

/// The contribution of each rank, computed alike on all of them.
fn inputs(element: Element, count: usize, size: u32, seed: u64) -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..size).map(|_| random(element, count, &mut rng)).collect()
}

/// All of them combined, in rank order; of reals also the sum of magnitudes.
fn oracle(operation: ReduceOperation, element: Element, inputs: &[Vec<u8>]) -> Vec<(Number, f64)> {
    let magnitude = |number: Number| match number {
        Number::Real(real) => real.abs(),
        Number::Complex(complex) => apart(complex, [0.0; 2]),
        _ => 0.0,
    };
    let mut sums: Vec<_> = numbers(element, &inputs[0]).into_iter().map(|number| (number, magnitude(number))).collect();
    for input in &inputs[1..] {
        for ((sum, size), number) in sums.iter_mut().zip(numbers(element, input)) {
            *sum = combined(operation, element, *sum, number);
            *size += magnitude(number);
        }
    }
    sums
}

fn assert_close(
    found: &[u8],
    oracle: &[(Number, f64)],
    operation: ReduceOperation,
    element: Element,
    n: usize,
    what: &str,
) {
    let found = numbers(element, found);
    assert_eq!(found.len(), oracle.len(), "{what}");
    for (found, (expected, magnitude)) in found.into_iter().zip(oracle) {
        match (found, *expected) {
            (Number::Real(found), Number::Real(expected)) => {
                let room = match operation {
                    ReduceOperation::Sum => n as f64 * epsilon(element) * magnitude,
                    // Beside the relative error, that of a subnormal number of half precision.
                    ReduceOperation::Product => {
                        n as f64 * epsilon(element) * expected.abs() + n as f64 * 2.0_f64.powi(-24) * 131072.0
                    }
                    _ => 0.0,
                };
                assert!((found - expected).abs() <= room, "{what}: {found} {expected}");
            }
            (Number::Complex(found), Number::Complex(expected)) => {
                let size = if operation == ReduceOperation::Sum { *magnitude } else { apart(expected, [0.0; 2]) };
                assert!(apart(found, expected) <= 4.0 * n as f64 * epsilon(element) * size, "{what}: {found:?}");
            }
            (found, expected) => assert_eq!(found, expected, "{what}"),
        }
    }
}

/// Lengths in elements.
const COUNTS: [usize; 6] = [0, 1, 3, 7, 67, 131];

/// Ranks that take turns, in any order.
struct Group<'a> {
    flags: Vec<SlotCollectives<'a>>,
    random: fastrand::Rng,
    way: SlotAlgorithm,
    order: Order,
    kind: (ReduceOperation, Element, Kernel),
}

impl<'a> Group<'a> {
    /// Runs one collective over these inputs; returns every rank's output of `bytes` bytes.
    fn run(
        &mut self,
        verb: CollectiveKind,
        root: u32,
        inputs: &[Vec<u8>],
        bytes: usize,
        in_place: bool,
    ) -> Vec<Vec<u8>> {
        let (operation, element, _) = self.kind;
        let (size, grain) = (inputs.len() as u32, element.bytes());
        let builtin = Builtin::new(operation, element).unwrap();
        let mut outputs = if in_place { inputs.to_vec() } else { vec![vec![0; bytes]; inputs.len()] };
        let mut ranks: Vec<_> = self
            .flags
            .iter_mut()
            .zip(inputs)
            .zip(&mut outputs)
            .map(|((flags, input), output)| {
                flags.force_algorithm(Some(self.way));
                let kind = reduction_ops::kind(operation, element);
                let rank = flags.rank;
                let plan = CollectiveSpec {
                    root: Rank(root),
                    grain,
                    order: self.order,
                    in_place,
                    reduction_id: kind,
                    ..plan(verb, rank, size, bytes)
                };
                flags.start(CollectiveId { context: 0, sequence: flags.call.id.sequence.wrapping_add(1) }, &plan);
                let segment = flags.segment;
                let buffers = match in_place {
                    true => CollectiveBuffers::in_place(segment, output, builtin, SameProcess),
                    false => CollectiveBuffers::new(segment, input, output, builtin, SameProcess),
                };
                (flags, buffers)
            })
            .collect();
        while !ranks.is_empty() {
            let at = self.random.usize(..ranks.len());
            let (flags, buffers) = &mut ranks[at];
            match flags.poll() {
                Poll::Request(step, op) => {
                    buffers.execute(op).unwrap();
                    flags.handle_done(step);
                }
                Poll::Pending => {}
                Poll::Complete => drop(ranks.swap_remove(at)),
                Poll::Failed(failure) => panic!("{failure}"),
            }
        }
        outputs
    }

    /// Every reduction over these inputs, against the oracle.
    fn check(&mut self, inputs: &[Vec<u8>]) {
        let (operation, element, _) = self.kind;
        let (n, bytes, grain) = (inputs.len(), inputs[0].len(), element.bytes());
        let what = format!("{operation:?} {element:?}, {bytes} bytes, {n} ranks, {:?}, {:?}", self.way, self.order);
        let is_close = |found: &[u8], inputs: &[Vec<u8>]| {
            assert_close(found, &oracle(operation, element, inputs), operation, element, n, &what);
        };
        let zero = |found: &[u8]| assert!(found.iter().all(|&byte| byte == 0), "{what}");

        let all = self.run(CollectiveKind::Allreduce, 0, inputs, bytes, false);
        is_close(&all[0], inputs);
        assert!(all.iter().all(|bits| *bits == all[0]), "other bits: {what}");
        assert_eq!(self.run(CollectiveKind::Allreduce, 0, inputs, bytes, true), all, "in place: {what}");

        let root = bytes % n;
        for (rank, found) in self.run(CollectiveKind::Reduce, root as u32, inputs, bytes, false).iter().enumerate() {
            if rank == root { is_close(found, inputs) } else { zero(found) }
        }

        // Block j of everyone's is its input, rotated by j elements.
        let rotated = |input: &Vec<u8>, by: usize| {
            let at = if bytes == 0 { 0 } else { by * grain % bytes };
            [&input[at..], &input[..at]].concat()
        };
        let blocks: Vec<Vec<u8>> =
            inputs.iter().map(|input| (0..n).flat_map(|by| rotated(input, by)).collect()).collect();
        for (rank, found) in self.run(CollectiveKind::ReduceScatter, 0, &blocks, bytes, false).iter().enumerate() {
            is_close(found, &inputs.iter().map(|input| rotated(input, rank)).collect::<Vec<_>>());
        }

        for (verb, own) in [(CollectiveKind::Scan, 1), (CollectiveKind::Exscan, 0)] {
            for (rank, found) in self.run(verb, 0, inputs, bytes, false).iter().enumerate() {
                if rank + own == 0 { zero(found) } else { is_close(found, &inputs[..rank + own]) }
            }
        }
    }
}

/// Every operation × type × ranks × length, every way: of all sizes when built for release (`.ci/run`), else of these.
const WHOLE: [u32; 2] = [2, 5];

#[test]
fn reductions_equal_the_oracle() {
    let mut checked = 0;
    for size in 1..=17_u32 {
        let whole = !cfg!(debug_assertions) || WHOLE.contains(&size);
        let ground = TestAreas::new(size);
        let first = 0_u32.wrapping_sub(100);
        ground.areas.initialize(ground.segment(), first).unwrap();
        let machine = |rank| SlotCollectives::new(ground.segment(), ground.areas, rank, true, first).unwrap();
        let mut group = Group {
            flags: (0..size).map(machine).collect(),
            random: fastrand::Rng::with_seed(u64::from(size)),
            way: SlotAlgorithm::Flat,
            order: Order::Any,
            kind: kernels().next().unwrap(),
        };
        for (case, kind) in kernels().enumerate() {
            // Elsewhere with a few of the pairs only: a chunk holds 32 to 256 elements.
            let pick = case + size as usize;
            let all: Vec<_> = COUNTS.iter().flat_map(|&count| WAYS.map(|way| (count, way))).collect();
            let one = [([3, 7][pick / 3 % 2], WAYS[pick % 3])];
            let cases = if whole || pick.is_multiple_of(28) { &all[..] } else { &one[..] };
            for (at, &(count, way)) in cases.iter().enumerate() {
                let order = if (case + at) % 2 == 0 { Order::Any } else { Order::Rank };
                (group.way, group.order, group.kind) = (way, order, kind);
                group.check(&inputs(kind.1, count, size, case as u64));
                checked += 1;
            }
        }
    }
    let sizes = if cfg!(debug_assertions) { WHOLE.len() } else { 17 };
    assert!(checked >= kernels().count() * COUNTS.len() * WAYS.len() * sizes, "{checked}");
    println!("{checked} operations, types, sizes, lengths and ways");
}

/// The same, between threads: a sample.
#[test]
fn reductions_between_threads_equal_the_oracle() {
    for size in 1..=17_u32 {
        let ground = TestAreas::new(size);
        in_threads(&ground, 0_u32.wrapping_sub(100), |mut flags, rank| {
            for (case, (operation, element, _)) in kernels().enumerate() {
                let (count, way) =
                    (COUNTS[(case + size as usize) % COUNTS.len()], WAYS[case / COUNTS.len() % WAYS.len()]);
                let (grain, kind) = (element.bytes(), reduction_ops::kind(operation, element));
                let inputs = inputs(element, count, size, case as u64);
                let of = |verb| CollectiveSpec { grain, reduction_id: kind, ..plan(verb, rank, size, count * grain) };
                let (mut all, mut theirs) = (vec![0; count * grain], vec![0; count * grain * size as usize]);
                let (segment, builtin) = (flags.segment, Builtin::new(operation, element).unwrap());
                flags.force_algorithm(Some(way));
                let own = &inputs[rank as usize];
                complete(
                    &mut flags,
                    &of(CollectiveKind::Allreduce),
                    &mut CollectiveBuffers::new(segment, own, &mut all, builtin, SameProcess),
                );
                let what = format!("{operation:?} {element:?}, {count}, {size} ranks, {way:?}");
                assert_close(&all, &oracle(operation, element, &inputs), operation, element, size as usize, &what);
                complete(
                    &mut flags,
                    &of(CollectiveKind::Allgather),
                    &mut CollectiveBuffers::new(segment, &all, &mut theirs, builtin, SameProcess),
                );
                assert_eq!(theirs, all.repeat(size as usize), "other bits: {what}");
            }
        });
    }
}

#[test]
fn operands_are_combined_in_rank_order_where_asked() {
    for size in 1..=17_u32 {
        let ground = TestAreas::new(size);
        in_threads(&ground, 0, |mut flags, rank| {
            let segment = flags.segment;
            for (count, way) in COUNTS.into_iter().flat_map(|count| WAYS.map(|way| (count, way))) {
                flags.force_algorithm(Some(way));
                let root = count as u32 % size;
                let of = |verb| CollectiveSpec {
                    grain: 4,
                    order: Order::Rank,
                    root: Rank(root),
                    ..plan(verb, rank, size, count * 4)
                };
                let own = [rank as u8, rank as u8, 1, 9].repeat(count);
                let joined =
                    |first: u32, last: u32| [first as u8, last as u8, (last - first + 1) as u8, 9].repeat(count);
                let mut all = vec![0; count * 4];
                complete(
                    &mut flags,
                    &of(CollectiveKind::Allreduce),
                    &mut CollectiveBuffers::new(segment, &own, &mut all, Joined, SameProcess),
                );
                assert_eq!(all, joined(0, size - 1), "{way:?}");
                let mut in_place = own.clone();
                complete(
                    &mut flags,
                    &CollectiveSpec { in_place: true, ..of(CollectiveKind::Allreduce) },
                    &mut CollectiveBuffers::in_place(segment, &mut in_place, Joined, SameProcess),
                );
                assert_eq!(all, in_place, "{way:?}");
                complete(
                    &mut flags,
                    &of(CollectiveKind::Reduce),
                    &mut CollectiveBuffers::new(segment, &own, &mut all, Joined, SameProcess),
                );
                assert_eq!(all, joined(0, size - 1), "{way:?}");
                let blocks = own.repeat(size as usize);
                complete(
                    &mut flags,
                    &of(CollectiveKind::ReduceScatter),
                    &mut CollectiveBuffers::new(segment, &blocks, &mut all, Joined, SameProcess),
                );
                assert_eq!(all, joined(0, size - 1), "{way:?}");
                complete(
                    &mut flags,
                    &of(CollectiveKind::Scan),
                    &mut CollectiveBuffers::new(segment, &own, &mut all, Joined, SameProcess),
                );
                assert_eq!(all, joined(0, rank), "{way:?}");
                if rank > 0 {
                    complete(
                        &mut flags,
                        &of(CollectiveKind::Exscan),
                        &mut CollectiveBuffers::new(segment, &own, &mut all, Joined, SameProcess),
                    );
                    assert_eq!(all, joined(0, rank - 1), "{way:?}");
                } else {
                    complete(
                        &mut flags,
                        &of(CollectiveKind::Exscan),
                        &mut CollectiveBuffers::new(segment, &own, &mut all, Joined, SameProcess),
                    );
                }
            }
        });
    }
}

/// Byte `at` of the block from rank `from` to rank `to`.
fn byte(from: u32, to: u32, at: usize) -> u8 {
    (from * 31 + to * 7 + at as u32 * 3 + (at >> 8) as u32) as u8
}

#[test]
fn payload_arrives_where_it_belongs() {
    for (size, ground) in
        (1..=17_u32).flat_map(|size| [TestAreas::new(size), TestAreas::oversubscribed(size)].map(|on| (size, on)))
    {
        in_threads(&ground, 77, |mut flags, rank| {
            let (segment, n) = (flags.segment, size as usize);
            for bytes in [0, 1, 2, 7, 56, 57, 111, 256, 257, 1030, 2049] {
                for way in [SlotAlgorithm::Flat, SlotAlgorithm::Pull] {
                    flags.force_algorithm(Some(way));
                    let root = (bytes as u32 + 1) % size;
                    let of = |verb| CollectiveSpec { root: Rank(root), ..plan(verb, rank, size, bytes) };
                    let block = |from, to| (0..bytes).map(move |at| byte(from, to, at));
                    let what = format!("{bytes} bytes, rank {rank} of {size}, {way:?}");

                    let mut vector: Vec<u8> = if rank == root { block(root, 0).collect() } else { vec![0; bytes] };
                    complete(
                        &mut flags,
                        &of(CollectiveKind::Broadcast),
                        &mut CollectiveBuffers::in_place(segment, &mut vector, NoReduction, SameProcess),
                    );
                    assert!(vector.iter().copied().eq(block(root, 0)), "broadcast: {what}");

                    let own: Vec<u8> = block(rank, 0).collect();
                    let everyone = || (0..size).flat_map(|from| block(from, 0));
                    let mut all = vec![0; bytes * n];
                    complete(
                        &mut flags,
                        &of(CollectiveKind::Allgather),
                        &mut CollectiveBuffers::new(segment, &own, &mut all, NoReduction, SameProcess),
                    );
                    assert!(all.iter().copied().eq(everyone()), "allgather: {what}");

                    all.fill(0);
                    complete(
                        &mut flags,
                        &of(CollectiveKind::Gather),
                        &mut CollectiveBuffers::new(segment, &own, &mut all, NoReduction, SameProcess),
                    );
                    assert!(rank != root || all.iter().copied().eq(everyone()), "gather: {what}");

                    let parts: Vec<u8> = (0..size).flat_map(|to| block(rank, to)).collect();
                    let mut part = vec![0; bytes];
                    complete(
                        &mut flags,
                        &of(CollectiveKind::Scatter),
                        &mut CollectiveBuffers::new(segment, &parts, &mut part, NoReduction, SameProcess),
                    );
                    assert!(part.iter().copied().eq(block(root, rank)), "scatter: {what}");

                    complete(
                        &mut flags,
                        &of(CollectiveKind::Alltoall),
                        &mut CollectiveBuffers::new(segment, &parts, &mut all, NoReduction, SameProcess),
                    );
                    assert!(all.iter().copied().eq((0..size).flat_map(|from| block(from, rank))), "alltoall: {what}");
                }
            }
        });
    }
}

/// One rank's machine, driven by hand.
struct Side<'a> {
    flags: SlotCollectives<'a>,
    plan: CollectiveSpec,
    memory: Vec<u8>,
}

impl<'a> Side<'a> {
    fn new(ground: &'a TestAreas, rank: u32, first: u32) -> Self {
        let flags = SlotCollectives::new(ground.segment(), ground.areas, rank, false, first).unwrap();
        Self { flags, plan: plan(CollectiveKind::Broadcast, rank, ground.areas.ranks, 8), memory: vec![0; 8] }
    }

    fn start(&mut self) {
        let sequence = self.flags.call.id.sequence + 1;
        self.flags.start(CollectiveId { context: 0, sequence }, &self.plan);
    }

    /// One poll of a small broadcast. Returns whether it is complete; if not, nothing has happened.
    fn poll_small_broadcast(&mut self) -> bool {
        let CollectiveSpec { rank, root, bytes, reduction_id: kind, .. } = self.plan;
        if !self.flags.is_small_broadcast(bytes, kind, root.0) {
            return false;
        }
        let Some(cells) = self.flags.small_broadcast_payload() else { return false };
        if rank == root { cells.write(&self.memory) } else { cells.read(&mut self.memory) }.unwrap();
        self.flags.end_small_broadcast();
        true
    }

    /// Polls until the collective pends or ends.
    fn go(&mut self) -> Poll<DataOp> {
        loop {
            match self.flags.poll() {
                Poll::Request(step, op) => {
                    let segment = self.flags.segment;
                    CollectiveBuffers::in_place(segment, &mut self.memory, NoReduction, SameProcess)
                        .execute(op)
                        .unwrap();
                    self.flags.handle_done(step);
                }
                turn => return turn,
            }
        }
    }
}

fn start_both(sides: [&mut Side<'_>; 2], root: u32) {
    for side in sides {
        side.plan.root = Rank(root);
        side.start();
    }
}

#[test]
fn oversubscribed_ranks_publish_everything_before_they_read() {
    let ground = TestAreas::oversubscribed(2);
    let mut sides = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    for round in 0..9 {
        for side in &mut sides {
            // Three chunks of a block.
            side.plan = CollectiveSpec { collective: CollectiveKind::Allgather, bytes: 3 * 256, ..side.plan };
            side.memory = vec![0; 2 * 3 * 256];
            side.start();
        }
        assert_eq!(sides[0].go(), Poll::Pending, "{round}");
        assert_eq!([sides[1].go(), sides[0].go()], [Poll::Complete; 2], "the later rank does not wait");
    }
}

#[test]
fn exposed_buffers_are_pulled_in_any_order() {
    let ground = TestAreas::oversubscribed(4);
    let mut flags =
        [0, 1, 2, 3].map(|rank| SlotCollectives::new(ground.segment(), ground.areas, rank, true, 0).unwrap());
    let (segment, input) = (ground.segment(), [1, 2, 3, 4]);
    let mut outputs = [[0; 4]; 4];
    for (flags, rank) in flags.iter_mut().zip(0..) {
        flags.force_algorithm(Some(SlotAlgorithm::Pull));
        flags.start(CollectiveId::default(), &plan(CollectiveKind::Alltoall, rank, 4, 1));
    }
    // A pending rank has pulled its own block and all that are exposed.
    for (count, rank) in [2_usize, 1, 3, 0].into_iter().enumerate() {
        let mut buffers = CollectiveBuffers::new(segment, &input, &mut outputs[rank], NoReduction, SameProcess);
        let mut taken = 0;
        let turn = loop {
            match flags[rank].poll() {
                Poll::Request(step, op) => {
                    buffers.execute(op).unwrap();
                    taken += u32::from(!matches!(op, DataOp::Expose { .. }));
                    flags[rank].handle_done(step);
                }
                turn => break turn,
            }
        };
        assert_eq!((turn, taken), (Poll::Pending, 1 + count as u32), "{rank}");
        assert!(flags[rank].awaited().is_some_and(|awaited| awaited.rank != Rank(rank as u32)));
    }
    for rank in [2, 1, 3, 2, 1, 0, 3].into_iter().chain([2, 1, 0, 3]) {
        let mut buffers = CollectiveBuffers::new(segment, &input, &mut outputs[rank], NoReduction, SameProcess);
        while let Poll::Request(step, op) = flags[rank].poll() {
            buffers.execute(op).unwrap();
            flags[rank].handle_done(step);
        }
    }
    assert!(flags.iter_mut().all(|flags| flags.poll() == Poll::Complete));
    assert_eq!(outputs, [1, 2, 3, 4].map(|byte| [byte; 4]));
}

#[test]
fn rank_with_all_pulls_done_waits_for_no_unfinished_rank() {
    let ground = TestAreas::oversubscribed(3);
    // An earlier group that used the same areas and was at the same step.
    for (rank, of) in (0..3).flat_map(|rank| (0..3).map(move |of| (rank, of))) {
        ground.segment().word(ground.areas.pulled_step(rank, of)).unwrap().publish(1, Site::Plain);
    }
    ground.areas.initialize(ground.segment(), 0).unwrap();
    let mut flags = [0, 1, 2].map(|rank| SlotCollectives::new(ground.segment(), ground.areas, rank, true, 0).unwrap());
    let (inputs, mut outputs) = ([[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[0; 3]; 3]);
    for (flags, rank) in flags.iter_mut().zip(0..) {
        flags.force_algorithm(Some(SlotAlgorithm::Pull));
        flags.start(CollectiveId::default(), &plan(CollectiveKind::Alltoall, rank, 3, 1));
    }
    // Executes up to `most` operations, or all that are possible.
    let mut go = |flags: &mut SlotCollectives<'_>, rank: usize, most: u32| {
        let mut buffers =
            CollectiveBuffers::new(ground.segment(), &inputs[rank], &mut outputs[rank], NoReduction, SameProcess);
        for _ in 0..most {
            let turn = flags.poll();
            let Poll::Request(step, op) = turn else { return turn };
            buffers.execute(op).unwrap();
            flags.handle_done(step);
        }
        Poll::Pending
    };
    let [one, two, three] = &mut flags;
    assert_eq!([go(one, 0, 9), go(two, 1, 9)], [Poll::Pending; 2]);
    // Exposes its buffer, and pulls from one other rank.
    assert_eq!(go(three, 2, 2), Poll::Pending);
    assert!(three.is_behind(Rank(0)) && one.is_behind(Rank(2)));
    let turns = [go(one, 0, 9), go(two, 1, 9)];
    assert!(matches!(turns, [Poll::Complete, Poll::Pending] | [Poll::Pending, Poll::Complete]), "{turns:?}");
    assert_eq!([go(three, 2, 9), go(one, 0, 9), go(two, 1, 9), go(three, 2, 9)], [Poll::Complete; 4]);
    assert_eq!(outputs, [[1, 4, 7], [2, 5, 8], [3, 6, 9]]);
}

#[test]
fn old_pulled_steps_do_not_look_new_after_the_wrap() {
    let ground = TestAreas::oversubscribed(2);
    let mut flags = SlotCollectives::new(ground.segment(), ground.areas, 0, true, 0).unwrap();
    let taken = ground.segment().word(ground.areas.pulled_step(0, 1)).unwrap();
    taken.publish(5, Site::Plain);
    for (step, is_old) in [(REFRESH - 2, false), (REFRESH - 1, true)] {
        flags.steps.next = step;
        flags.start(
            CollectiveId::default(),
            &CollectiveSpec { root: Rank(1), ..plan(CollectiveKind::Broadcast, 0, 2, 1) },
        );
        assert_eq!(taken.own() != 5, is_old, "{step}");
    }
    assert!((1..=2 * REFRESH).contains(&REFRESH.wrapping_sub(taken.own())));
}

#[test]
fn a_root_runs_ahead_of_a_sleeper_by_the_slots_and_no_further() {
    let ground = TestAreas::new(2);
    let first = u32::MAX - 5;
    ground.areas.initialize(ground.segment(), first).unwrap();
    let [mut root, mut sleeper] = [0, 1].map(|rank| Side::new(&ground, rank, first));
    let mut received = 0;
    for sent in 0..1000_u64 {
        root.memory = sent.to_le_bytes().to_vec();
        root.start();
        if sent - received < u64::from(ground.areas.slots) {
            assert_eq!(root.go(), Poll::Complete, "{sent}");
            continue;
        }
        assert_eq!(root.go(), Poll::Pending, "{sent}");
        let awaited = root.flags.awaited().unwrap();
        assert_eq!((awaited.rank, awaited.seen), (Rank(1), first.wrapping_add(received as u32)));
        sleeper.start();
        assert_eq!(sleeper.go(), Poll::Complete);
        assert_eq!(sleeper.memory, received.to_le_bytes());
        received += 1;
        assert_eq!(root.go(), Poll::Complete, "{sent}");
    }
}

#[test]
fn old_stamps_do_not_look_new_after_the_wrap() {
    let ground = TestAreas::new(2);
    let [mut one, mut two] = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    for root in 0..2 {
        start_both([&mut one, &mut two], root);
        // Twice: the rank that is not the root comes first once.
        let turns = [one.go(), two.go(), one.go()];
        assert_eq!(turns[1..], [Poll::Complete; 2], "{turns:?}");
    }
    // From here on only rank 0 writes, as if this number of broadcasts had passed.
    for round in 1..=600_u32 {
        let step = round.wrapping_mul(REFRESH / 2).wrapping_sub(1);
        for side in [&mut one, &mut two] {
            side.flags.steps.next = step;
            side.plan.root = Rank(0);
        }
        ground.segment().word(ground.areas.done(0)).unwrap().publish(step, Site::Plain);
        ground.segment().word(ground.areas.done(1)).unwrap().publish(step, Site::Plain);
        one.flags.steps.least_done = step;
        for _ in 0..2 {
            [&mut one, &mut two].into_iter().for_each(Side::start);
            assert_eq!([one.go(), two.go()], [Poll::Complete; 2], "round {round}");
        }
        for slot in 0..ground.areas.slots {
            let stamp = ground.segment().word(ground.areas.stamp(1, slot)).unwrap().own();
            let age = step.wrapping_add(3).wrapping_sub(stamp);
            assert!((1..=2 * REFRESH).contains(&age), "round {round}: a stamp is {age} steps old");
        }
        // Rank 1 never reads how much the others have finished.
        assert!(step.wrapping_sub(two.flags.steps.least_done).cast_signed() <= 2 * REFRESH as i32, "round {round}");
    }
}

#[test]
fn rewritten_pulled_step_differs_from_the_seen_value() {
    let (slots, from) = (16, REFRESH - 1);
    let ground = TestAreas::oversubscribed(2);
    let bulk = 512 + slots as usize * 64;
    let stride = bulk + slots as usize * ground.areas.chunk;
    let ground = TestAreas::of(CollectiveAreas { slots, bulk, stride, ..ground.areas });
    // The alltoall whose end one rank sees is as many steps before the rewrite of the word as the rewrite sets it back.
    let first = from - 65;
    ground.areas.initialize(ground.segment(), first).unwrap();
    let mut flags = [0, 1].map(|rank| SlotCollectives::new(ground.segment(), ground.areas, rank, true, first).unwrap());
    let start = |flags: &mut SlotCollectives<'_>, verb: CollectiveKind, rank: u32| {
        flags.force_algorithm((verb == CollectiveKind::Alltoall).then_some(SlotAlgorithm::Pull));
        let is_broadcast = verb == CollectiveKind::Broadcast;
        flags.start(CollectiveId::default(), &CollectiveSpec { in_place: is_broadcast, ..plan(verb, rank, 2, 4) });
    };
    // The other rank reads its input after this one has returned.
    let input = [7; 8];
    let go = |flags: &mut SlotCollectives<'_>| {
        let mut output = [0; 8];
        let mut buffers = CollectiveBuffers::new(ground.segment(), &input, &mut output, NoReduction, SameProcess);
        loop {
            let turn = flags.poll();
            let Poll::Request(step, op) = turn else { return turn };
            buffers.execute(op).unwrap();
            flags.handle_done(step);
        }
    };
    let broadcast = |flags: &mut SlotCollectives<'_>, rank: u32| {
        start(flags, CollectiveKind::Broadcast, rank);
        assert_eq!(go(flags), Poll::Complete);
    };
    let [one, two] = &mut flags;
    start(one, CollectiveKind::Alltoall, 0);
    start(two, CollectiveKind::Alltoall, 1);
    assert_eq!([go(one), go(two), go(one), go(two)], [Poll::Pending, Poll::Pending, Poll::Complete, Poll::Complete]);
    for _ in 0..48 {
        broadcast(one, 0);
        broadcast(two, 1);
    }
    start(one, CollectiveKind::Alltoall, 0);
    start(two, CollectiveKind::Alltoall, 1);
    assert_eq!([go(one), go(two)], [Poll::Pending; 2]);
    assert_eq!(two.call.state, State::AwaitReturn);
    // That rank sleeps; the other one pulls, and runs ahead.
    assert_eq!(go(one), Poll::Complete);
    while one.steps.next <= from {
        broadcast(one, 0);
    }
    assert_eq!(two.contradicting_rank(), None);
}
