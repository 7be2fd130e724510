mod faults;
mod small_broadcast;

use core::sync::atomic::{AtomicU64, Ordering};

use unisono_core::collective::{Order, Payload as _};

use super::*;
use crate::reduction_ops::tests::{Number, apart, combined, epsilon, kernels, numbers, random};
use crate::reduction_ops::{self, Element, Kernel, Operation};
use crate::slot_collectives::data_executor::{Buffers, Builtin, Moves, Operate, Refused, Remote};
use crate::testing::Ground;
use core::ptr::NonNull;

const WAYS: [Way; 3] = [Way::Flat, Way::Parallel, Way::Pull];

/// Ranks are threads: their memory is this process's.
struct Near;

impl Remote for Near {
    unsafe fn pull(&mut self, _: Rank, address: u64, into: NonNull<u8>, bytes: usize) -> Result<(), Refused> {
        let from: *const u8 = core::ptr::with_exposed_provenance(address as usize);
        // SAFETY: the other thread lent this memory until this rank has done with it.
        unsafe { into.as_ptr().copy_from_nonoverlapping(from, bytes) };
        Ok(())
    }
}

/// r(l, r) = the strings l and r of 4 bytes each joined: first byte of l, last of r, and how many were joined. Not
/// commutative.
struct Joined;

impl Operate for Joined {
    unsafe fn operate(&mut self, left: NonNull<u8>, right: NonNull<u8>, into: NonNull<u8>, bytes: usize) {
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

fn plan(verb: Verb, rank: u32, size: u32, bytes: usize) -> Plan {
    Plan { verb, rank: Rank(rank), size, root: Rank(0), bytes, grain: 1, order: Order::Any, in_place: false, kind: 0 }
}

/// Blocks until the collective is complete.
fn complete<O: Operate>(flags: &mut Flags<'_>, plan: &Plan, buffers: &mut Buffers<'_, O, Near>) {
    let id = CollectiveId { context: 0, sequence: flags.id.sequence.wrapping_add(1) };
    flags.start(id, plan);
    loop {
        match flags.poll() {
            Turn::Do(step, wish) => {
                buffers.carry_out(wish).unwrap();
                flags.handle_done(step);
            }
            Turn::Pending => std::thread::yield_now(),
            Turn::Final => return,
            Turn::Failed(failure) => panic!("{failure}"),
        }
        assert!(flags.shown.count <= 4, "{plan:?}");
        flags.published().for_each(drop);
    }
}

/// Runs `body` for every rank in a thread of its own.
fn in_threads(ground: &Ground, first: u32, body: impl Fn(Flags<'_>, u32) + Sync) {
    ground.boards.write_first(ground.segment(), first).unwrap();
    std::thread::scope(|scope| {
        for rank in 0..ground.boards.ranks {
            let (body, flags) = (&body, Flags::new(ground.segment(), ground.boards, rank, true, first).unwrap());
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
fn oracle(operation: Operation, element: Element, inputs: &[Vec<u8>]) -> Vec<(Number, f64)> {
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

fn assert_near(found: &[u8], oracle: &[(Number, f64)], operation: Operation, element: Element, n: usize, what: &str) {
    let found = numbers(element, found);
    assert_eq!(found.len(), oracle.len(), "{what}");
    for (found, (expected, magnitude)) in found.into_iter().zip(oracle) {
        match (found, *expected) {
            (Number::Real(found), Number::Real(expected)) => {
                let room = match operation {
                    Operation::Sum => n as f64 * epsilon(element) * magnitude,
                    // Beside the relative error, that of a subnormal number of half precision.
                    Operation::Product => {
                        n as f64 * epsilon(element) * expected.abs() + n as f64 * 2.0_f64.powi(-24) * 131072.0
                    }
                    _ => 0.0,
                };
                assert!((found - expected).abs() <= room, "{what}: {found} {expected}");
            }
            (Number::Complex(found), Number::Complex(expected)) => {
                let size = if operation == Operation::Sum { *magnitude } else { apart(expected, [0.0; 2]) };
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
    flags: Vec<Flags<'a>>,
    random: fastrand::Rng,
    way: Way,
    order: Order,
    kind: (Operation, Element, Kernel),
}

impl<'a> Group<'a> {
    /// Runs one collective over these inputs; returns every rank's output of `bytes` bytes.
    fn run(&mut self, verb: Verb, root: u32, inputs: &[Vec<u8>], bytes: usize, in_place: bool) -> Vec<Vec<u8>> {
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
                flags.force(Some(self.way));
                let kind = reduction_ops::kind(operation, element);
                let rank = flags.rank;
                let plan = Plan {
                    root: Rank(root),
                    grain,
                    order: self.order,
                    in_place,
                    kind,
                    ..plan(verb, rank, size, bytes)
                };
                flags.start(CollectiveId { context: 0, sequence: flags.id.sequence.wrapping_add(1) }, &plan);
                let segment = flags.segment;
                let buffers = match in_place {
                    true => Buffers::in_place(segment, output, builtin, Near),
                    false => Buffers::new(segment, input, output, builtin, Near),
                };
                (flags, buffers)
            })
            .collect();
        while !ranks.is_empty() {
            let at = self.random.usize(..ranks.len());
            let (flags, buffers) = &mut ranks[at];
            match flags.poll() {
                Turn::Do(step, wish) => {
                    buffers.carry_out(wish).unwrap();
                    flags.handle_done(step);
                }
                Turn::Pending => {}
                Turn::Final => drop(ranks.swap_remove(at)),
                Turn::Failed(failure) => panic!("{failure}"),
            }
        }
        outputs
    }

    /// Every reduction over these inputs, against the oracle.
    fn check(&mut self, inputs: &[Vec<u8>]) {
        let (operation, element, _) = self.kind;
        let (n, bytes, grain) = (inputs.len(), inputs[0].len(), element.bytes());
        let what = format!("{operation:?} {element:?}, {bytes} bytes, {n} ranks, {:?}, {:?}", self.way, self.order);
        let near = |found: &[u8], inputs: &[Vec<u8>]| {
            assert_near(found, &oracle(operation, element, inputs), operation, element, n, &what);
        };
        let zero = |found: &[u8]| assert!(found.iter().all(|&byte| byte == 0), "{what}");

        let all = self.run(Verb::Allreduce, 0, inputs, bytes, false);
        near(&all[0], inputs);
        assert!(all.iter().all(|bits| *bits == all[0]), "other bits: {what}");
        assert_eq!(self.run(Verb::Allreduce, 0, inputs, bytes, true), all, "in place: {what}");

        let root = bytes % n;
        for (rank, found) in self.run(Verb::Reduce, root as u32, inputs, bytes, false).iter().enumerate() {
            if rank == root { near(found, inputs) } else { zero(found) }
        }

        // Block j of everyone's is its input, rotated by j elements.
        let rotated = |input: &Vec<u8>, by: usize| {
            let at = if bytes == 0 { 0 } else { by * grain % bytes };
            [&input[at..], &input[..at]].concat()
        };
        let blocks: Vec<Vec<u8>> =
            inputs.iter().map(|input| (0..n).flat_map(|by| rotated(input, by)).collect()).collect();
        for (rank, found) in self.run(Verb::ReduceScatter, 0, &blocks, bytes, false).iter().enumerate() {
            near(found, &inputs.iter().map(|input| rotated(input, rank)).collect::<Vec<_>>());
        }

        for (verb, own) in [(Verb::Scan, 1), (Verb::Exscan, 0)] {
            for (rank, found) in self.run(verb, 0, inputs, bytes, false).iter().enumerate() {
                if rank + own == 0 { zero(found) } else { near(found, &inputs[..rank + own]) }
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
        let ground = Ground::new(size);
        let first = 0_u32.wrapping_sub(100);
        ground.boards.write_first(ground.segment(), first).unwrap();
        let machine = |rank| Flags::new(ground.segment(), ground.boards, rank, true, first).unwrap();
        let mut group = Group {
            flags: (0..size).map(machine).collect(),
            random: fastrand::Rng::with_seed(u64::from(size)),
            way: Way::Flat,
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
        let ground = Ground::new(size);
        in_threads(&ground, 0_u32.wrapping_sub(100), |mut flags, rank| {
            for (case, (operation, element, _)) in kernels().enumerate() {
                let (count, way) =
                    (COUNTS[(case + size as usize) % COUNTS.len()], WAYS[case / COUNTS.len() % WAYS.len()]);
                let (grain, kind) = (element.bytes(), reduction_ops::kind(operation, element));
                let inputs = inputs(element, count, size, case as u64);
                let of = |verb| Plan { grain, kind, ..plan(verb, rank, size, count * grain) };
                let (mut all, mut theirs) = (vec![0; count * grain], vec![0; count * grain * size as usize]);
                let (segment, builtin) = (flags.segment, Builtin::new(operation, element).unwrap());
                flags.force(Some(way));
                let own = &inputs[rank as usize];
                complete(&mut flags, &of(Verb::Allreduce), &mut Buffers::new(segment, own, &mut all, builtin, Near));
                let what = format!("{operation:?} {element:?}, {count}, {size} ranks, {way:?}");
                assert_near(&all, &oracle(operation, element, &inputs), operation, element, size as usize, &what);
                complete(
                    &mut flags,
                    &of(Verb::Allgather),
                    &mut Buffers::new(segment, &all, &mut theirs, builtin, Near),
                );
                assert_eq!(theirs, all.repeat(size as usize), "other bits: {what}");
            }
        });
    }
}

#[test]
fn operands_are_combined_in_rank_order_where_asked() {
    for size in 1..=17_u32 {
        let ground = Ground::new(size);
        in_threads(&ground, 0, |mut flags, rank| {
            let segment = flags.segment;
            for (count, way) in COUNTS.into_iter().flat_map(|count| WAYS.map(|way| (count, way))) {
                flags.force(Some(way));
                let root = count as u32 % size;
                let of =
                    |verb| Plan { grain: 4, order: Order::Rank, root: Rank(root), ..plan(verb, rank, size, count * 4) };
                let own = [rank as u8, rank as u8, 1, 9].repeat(count);
                let joined =
                    |first: u32, last: u32| [first as u8, last as u8, (last - first + 1) as u8, 9].repeat(count);
                let mut all = vec![0; count * 4];
                complete(&mut flags, &of(Verb::Allreduce), &mut Buffers::new(segment, &own, &mut all, Joined, Near));
                assert_eq!(all, joined(0, size - 1), "{way:?}");
                let mut in_place = own.clone();
                complete(
                    &mut flags,
                    &Plan { in_place: true, ..of(Verb::Allreduce) },
                    &mut Buffers::in_place(segment, &mut in_place, Joined, Near),
                );
                assert_eq!(all, in_place, "{way:?}");
                complete(&mut flags, &of(Verb::Reduce), &mut Buffers::new(segment, &own, &mut all, Joined, Near));
                assert_eq!(all, joined(0, size - 1), "{way:?}");
                let blocks = own.repeat(size as usize);
                complete(
                    &mut flags,
                    &of(Verb::ReduceScatter),
                    &mut Buffers::new(segment, &blocks, &mut all, Joined, Near),
                );
                assert_eq!(all, joined(0, size - 1), "{way:?}");
                complete(&mut flags, &of(Verb::Scan), &mut Buffers::new(segment, &own, &mut all, Joined, Near));
                assert_eq!(all, joined(0, rank), "{way:?}");
                if rank > 0 {
                    complete(&mut flags, &of(Verb::Exscan), &mut Buffers::new(segment, &own, &mut all, Joined, Near));
                    assert_eq!(all, joined(0, rank - 1), "{way:?}");
                } else {
                    complete(&mut flags, &of(Verb::Exscan), &mut Buffers::new(segment, &own, &mut all, Joined, Near));
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
    for (size, ground) in (1..=17_u32).flat_map(|size| [Ground::new(size), Ground::crowded(size)].map(|on| (size, on)))
    {
        in_threads(&ground, 77, |mut flags, rank| {
            let (segment, n) = (flags.segment, size as usize);
            for bytes in [0, 1, 2, 7, 56, 57, 111, 256, 257, 1030, 2049] {
                for way in [Way::Flat, Way::Pull] {
                    flags.force(Some(way));
                    let root = (bytes as u32 + 1) % size;
                    let of = |verb| Plan { root: Rank(root), ..plan(verb, rank, size, bytes) };
                    let block = |from, to| (0..bytes).map(move |at| byte(from, to, at));
                    let what = format!("{bytes} bytes, rank {rank} of {size}, {way:?}");

                    let mut vector: Vec<u8> = if rank == root { block(root, 0).collect() } else { vec![0; bytes] };
                    complete(
                        &mut flags,
                        &of(Verb::Broadcast),
                        &mut Buffers::in_place(segment, &mut vector, Moves, Near),
                    );
                    assert!(vector.iter().copied().eq(block(root, 0)), "broadcast: {what}");

                    let own: Vec<u8> = block(rank, 0).collect();
                    let everyone = || (0..size).flat_map(|from| block(from, 0));
                    let mut all = vec![0; bytes * n];
                    complete(&mut flags, &of(Verb::Allgather), &mut Buffers::new(segment, &own, &mut all, Moves, Near));
                    assert!(all.iter().copied().eq(everyone()), "allgather: {what}");

                    all.fill(0);
                    complete(&mut flags, &of(Verb::Gather), &mut Buffers::new(segment, &own, &mut all, Moves, Near));
                    assert!(rank != root || all.iter().copied().eq(everyone()), "gather: {what}");

                    let parts: Vec<u8> = (0..size).flat_map(|to| block(rank, to)).collect();
                    let mut part = vec![0; bytes];
                    complete(
                        &mut flags,
                        &of(Verb::Scatter),
                        &mut Buffers::new(segment, &parts, &mut part, Moves, Near),
                    );
                    assert!(part.iter().copied().eq(block(root, rank)), "scatter: {what}");

                    complete(
                        &mut flags,
                        &of(Verb::Alltoall),
                        &mut Buffers::new(segment, &parts, &mut all, Moves, Near),
                    );
                    assert!(all.iter().copied().eq((0..size).flat_map(|from| block(from, rank))), "alltoall: {what}");
                }
            }
        });
    }
}

/// One rank's machine, driven by hand.
struct Side<'a> {
    flags: Flags<'a>,
    plan: Plan,
    memory: Vec<u8>,
}

impl<'a> Side<'a> {
    fn new(ground: &'a Ground, rank: u32, first: u32) -> Self {
        let flags = Flags::new(ground.segment(), ground.boards, rank, false, first).unwrap();
        Self { flags, plan: plan(Verb::Broadcast, rank, ground.boards.ranks, 8), memory: vec![0; 8] }
    }

    fn start(&mut self) {
        let sequence = self.flags.id.sequence + 1;
        self.flags.start(CollectiveId { context: 0, sequence }, &self.plan);
    }

    /// One poll of a small broadcast. Returns whether it is complete; if not, nothing has happened.
    fn look_short(&mut self) -> bool {
        let Plan { rank, root, bytes, kind, .. } = self.plan;
        if !self.flags.is_short(bytes, kind, root.0) {
            return false;
        }
        let Some(cells) = self.flags.short_payload() else { return false };
        if rank == root { cells.write(&self.memory) } else { cells.read(&mut self.memory) }.unwrap();
        self.flags.end_short();
        true
    }

    /// Polls until the collective pends or ends.
    fn go(&mut self) -> Turn<Wish> {
        loop {
            match self.flags.poll() {
                Turn::Do(step, wish) => {
                    let segment = self.flags.segment;
                    Buffers::in_place(segment, &mut self.memory, Moves, Near).carry_out(wish).unwrap();
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
fn ranks_that_share_processors_show_everything_before_they_read() {
    let ground = Ground::crowded(2);
    let mut sides = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    for round in 0..9 {
        for side in &mut sides {
            // Three chunks of a block.
            side.plan = Plan { verb: Verb::Allgather, bytes: 3 * 256, ..side.plan };
            side.memory = vec![0; 2 * 3 * 256];
            side.start();
        }
        assert_eq!(sides[0].go(), Turn::Pending, "{round}");
        assert_eq!([sides[1].go(), sides[0].go()], [Turn::Final; 2], "the later rank does not wait");
    }
}

#[test]
fn what_is_lent_is_taken_in_any_order() {
    let ground = Ground::crowded(4);
    let mut flags = [0, 1, 2, 3].map(|rank| Flags::new(ground.segment(), ground.boards, rank, true, 0).unwrap());
    let (segment, input) = (ground.segment(), [1, 2, 3, 4]);
    let mut outputs = [[0; 4]; 4];
    for (flags, rank) in flags.iter_mut().zip(0..) {
        flags.force(Some(Way::Pull));
        flags.start(CollectiveId::default(), &plan(Verb::Alltoall, rank, 4, 1));
    }
    // A pending rank has pulled its own block and all that are exposed.
    for (count, rank) in [2_usize, 1, 3, 0].into_iter().enumerate() {
        let mut buffers = Buffers::new(segment, &input, &mut outputs[rank], Moves, Near);
        let mut taken = 0;
        let turn = loop {
            match flags[rank].poll() {
                Turn::Do(step, wish) => {
                    buffers.carry_out(wish).unwrap();
                    taken += u32::from(!matches!(wish, Wish::Lend { .. }));
                    flags[rank].handle_done(step);
                }
                turn => break turn,
            }
        };
        assert_eq!((turn, taken), (Turn::Pending, 1 + count as u32), "{rank}");
        assert!(flags[rank].awaited().is_some_and(|awaited| awaited.rank != Rank(rank as u32)));
    }
    for rank in [2, 1, 3, 2, 1, 0, 3].into_iter().chain([2, 1, 0, 3]) {
        let mut buffers = Buffers::new(segment, &input, &mut outputs[rank], Moves, Near);
        while let Turn::Do(step, wish) = flags[rank].poll() {
            buffers.carry_out(wish).unwrap();
            flags[rank].handle_done(step);
        }
    }
    assert!(flags.iter_mut().all(|flags| flags.poll() == Turn::Final));
    assert_eq!(outputs, [1, 2, 3, 4].map(|byte| [byte; 4]));
}

#[test]
fn who_has_given_and_taken_all_waits_for_nobody_who_has_not() {
    let ground = Ground::crowded(3);
    // An earlier group that used the same areas and was at the same step.
    for (rank, of) in (0..3).flat_map(|rank| (0..3).map(move |of| (rank, of))) {
        ground.segment().word(ground.boards.taken(rank, of)).unwrap().publish(1, Site::Plain);
    }
    ground.boards.write_first(ground.segment(), 0).unwrap();
    let mut flags = [0, 1, 2].map(|rank| Flags::new(ground.segment(), ground.boards, rank, true, 0).unwrap());
    let (inputs, mut outputs) = ([[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[0; 3]; 3]);
    for (flags, rank) in flags.iter_mut().zip(0..) {
        flags.force(Some(Way::Pull));
        flags.start(CollectiveId::default(), &plan(Verb::Alltoall, rank, 3, 1));
    }
    // Executes up to `most` operations, or all that are possible.
    let mut go = |flags: &mut Flags<'_>, rank: usize, most: u32| {
        let mut buffers = Buffers::new(ground.segment(), &inputs[rank], &mut outputs[rank], Moves, Near);
        for _ in 0..most {
            let turn = flags.poll();
            let Turn::Do(step, wish) = turn else { return turn };
            buffers.carry_out(wish).unwrap();
            flags.handle_done(step);
        }
        Turn::Pending
    };
    let [one, two, three] = &mut flags;
    assert_eq!([go(one, 0, 9), go(two, 1, 9)], [Turn::Pending; 2]);
    // Exposes its buffer, and pulls from one other rank.
    assert_eq!(go(three, 2, 2), Turn::Pending);
    assert!(three.is_behind(Rank(0)) && one.is_behind(Rank(2)));
    let turns = [go(one, 0, 9), go(two, 1, 9)];
    assert!(matches!(turns, [Turn::Final, Turn::Pending] | [Turn::Pending, Turn::Final]), "{turns:?}");
    assert_eq!([go(three, 2, 9), go(one, 0, 9), go(two, 1, 9), go(three, 2, 9)], [Turn::Final; 4]);
    assert_eq!(outputs, [[1, 4, 7], [2, 5, 8], [3, 6, 9]]);
}

#[test]
fn what_was_taken_long_ago_does_not_come_to_look_new() {
    let ground = Ground::crowded(2);
    let mut flags = Flags::new(ground.segment(), ground.boards, 0, true, 0).unwrap();
    let taken = ground.segment().word(ground.boards.taken(0, 1)).unwrap();
    taken.publish(5, Site::Plain);
    for (step, is_old) in [(REFRESH - 2, false), (REFRESH - 1, true)] {
        flags.next = step;
        flags.start(CollectiveId::default(), &Plan { root: Rank(1), ..plan(Verb::Broadcast, 0, 2, 1) });
        assert_eq!(taken.own() != 5, is_old, "{step}");
    }
    assert!((1..=2 * REFRESH).contains(&REFRESH.wrapping_sub(taken.own())));
}

#[test]
fn a_root_runs_ahead_of_a_sleeper_by_the_slots_and_no_further() {
    let ground = Ground::new(2);
    let first = u32::MAX - 5;
    ground.boards.write_first(ground.segment(), first).unwrap();
    let [mut root, mut sleeper] = [0, 1].map(|rank| Side::new(&ground, rank, first));
    let mut received = 0;
    for sent in 0..1000_u64 {
        root.memory = sent.to_le_bytes().to_vec();
        root.start();
        if sent - received < u64::from(ground.boards.slots) {
            assert_eq!(root.go(), Turn::Final, "{sent}");
            continue;
        }
        assert_eq!(root.go(), Turn::Pending, "{sent}");
        let awaited = root.flags.awaited().unwrap();
        assert_eq!((awaited.rank, awaited.seen), (Rank(1), first.wrapping_add(received as u32)));
        sleeper.start();
        assert_eq!(sleeper.go(), Turn::Final);
        assert_eq!(sleeper.memory, received.to_le_bytes());
        received += 1;
        assert_eq!(root.go(), Turn::Final, "{sent}");
    }
}

#[test]
fn stamps_of_long_ago_do_not_come_to_look_new() {
    let ground = Ground::new(2);
    let [mut one, mut two] = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    for root in 0..2 {
        start_both([&mut one, &mut two], root);
        // Twice: the rank that is not the root comes first once.
        let turns = [one.go(), two.go(), one.go()];
        assert_eq!(turns[1..], [Turn::Final; 2], "{turns:?}");
    }
    // From here on only rank 0 writes, as if this number of broadcasts had passed.
    for lap in 1..=600_u32 {
        let step = lap.wrapping_mul(REFRESH / 2).wrapping_sub(1);
        for side in [&mut one, &mut two] {
            side.flags.next = step;
            side.plan.root = Rank(0);
        }
        ground.segment().word(ground.boards.done(0)).unwrap().publish(step, Site::Plain);
        ground.segment().word(ground.boards.done(1)).unwrap().publish(step, Site::Plain);
        one.flags.least = step;
        for _ in 0..2 {
            [&mut one, &mut two].into_iter().for_each(Side::start);
            assert_eq!([one.go(), two.go()], [Turn::Final; 2], "round {lap}");
        }
        for slot in 0..ground.boards.slots {
            let stamp = ground.segment().word(ground.boards.stamp(1, slot)).unwrap().own();
            let age = step.wrapping_add(3).wrapping_sub(stamp);
            assert!((1..=2 * REFRESH).contains(&age), "round {lap}: a stamp is {age} steps old");
        }
        // Rank 1 never reads how much the others have finished.
        assert!(step.wrapping_sub(two.flags.least).cast_signed() <= 2 * REFRESH as i32, "round {lap}");
    }
}

#[test]
fn a_word_of_what_was_taken_does_not_come_to_look_as_it_was_seen() {
    let (slots, from) = (16, REFRESH - 1);
    let ground = Ground::crowded(2);
    let bulk = 512 + slots as usize * 64;
    let stride = bulk + slots as usize * ground.boards.chunk;
    let ground = Ground::of(Boards { slots, bulk, stride, ..ground.boards });
    // The alltoall whose end one rank sees is as many steps before the rewrite of the word as the rewrite sets it back.
    let first = from - 65;
    ground.boards.write_first(ground.segment(), first).unwrap();
    let mut flags = [0, 1].map(|rank| Flags::new(ground.segment(), ground.boards, rank, true, first).unwrap());
    let start = |flags: &mut Flags<'_>, verb: Verb, rank: u32| {
        flags.force((verb == Verb::Alltoall).then_some(Way::Pull));
        let is_broadcast = verb == Verb::Broadcast;
        flags.start(CollectiveId::default(), &Plan { in_place: is_broadcast, ..plan(verb, rank, 2, 4) });
    };
    // The other rank reads its input after this one has returned.
    let input = [7; 8];
    let go = |flags: &mut Flags<'_>| {
        let mut output = [0; 8];
        let mut buffers = Buffers::new(ground.segment(), &input, &mut output, Moves, Near);
        loop {
            let turn = flags.poll();
            let Turn::Do(step, wish) = turn else { return turn };
            buffers.carry_out(wish).unwrap();
            flags.handle_done(step);
        }
    };
    let broadcast = |flags: &mut Flags<'_>, rank: u32| {
        start(flags, Verb::Broadcast, rank);
        assert_eq!(go(flags), Turn::Final);
    };
    let [one, two] = &mut flags;
    start(one, Verb::Alltoall, 0);
    start(two, Verb::Alltoall, 1);
    assert_eq!([go(one), go(two), go(one), go(two)], [Turn::Pending, Turn::Pending, Turn::Final, Turn::Final]);
    for _ in 0..48 {
        broadcast(one, 0);
        broadcast(two, 1);
    }
    start(one, Verb::Alltoall, 0);
    start(two, Verb::Alltoall, 1);
    assert_eq!([go(one), go(two)], [Turn::Pending; 2]);
    assert_eq!(two.state, State::Lent);
    // That rank sleeps; the other one pulls, and runs ahead.
    assert_eq!(go(one), Turn::Final);
    while one.next <= from {
        broadcast(one, 0);
    }
    assert_eq!(two.contradicting(), None);
}
