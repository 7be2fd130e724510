//! The forms of collective calls: with counts, in place, nonblocking and persistent. This program is its rank program,
//! too.

mod program;

use core::time::Duration;
use std::env;
use std::process::ExitCode;
use std::thread;

use program::{expect, run};
use unisono::collective::{CollectiveError, Partition, PartitionMut, SystemOperation, UserOperation};
use unisono::{Communicator, Rank, World};

/// Over shared memory, datagrams, and both; and with one rank.
const MEANS: [&str; 6] = [
    "-n 1",
    "-n 3",
    "-n 4 --device udp",
    "-n 5 --nodes 2 --loss 5%",
    "-n 4 --nodes 2",
    "-n 3 --device udp --broadcast multicast",
];

/// The progress thread has ended a collective of 1 MiB by then.
const ATTENDED_WITHIN: Duration = Duration::from_secs(2);

/// The exit code of the rank that exits early.
const HANGS_UP: i32 = 5;

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        match env::args().nth(1).as_deref() {
            Some("counts") => counts(&world),
            Some("places") => places(&world),
            Some("rows") => rows(&world),
            Some("again") => {
                again(&world);
                again_in_place(&world);
                again_varying(&world);
                let half = world.split_by_color(world.rank().0 % 2).expect("a communicator");
                again(&half.expect("everyone has a colour"));
            }
            Some("unattended") => unattended(&world, env::args().nth(2).as_deref() != Some("engine")),
            Some("failure") => failure(&world),
            part => panic!("no part {part:?}"),
        }
        world.finish().expect("a good end");
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("blocks_of_any_length_move_while_others_do", || everywhere("counts")),
        ("results_replace_data", || everywhere("places")),
        ("columns_of_a_matrix_move", || everywhere("rows")),
        ("what_is_prepared_once_is_started_again_and_again", || everywhere("again")),
        ("a_thread_attends_to_what_nobody_waits_for", || {
            for progress in ["engine", "thread", "hybrid"] {
                let options = format!("-n 2 --device udp --progress {progress}");
                expect(&run(&options, &format!("unattended {progress}")), 0, &[]);
            }
        }),
        ("what_failed_is_not_started_again", what_failed_is_not_started_again),
    ])
}

fn everywhere(part: &str) {
    for means in MEANS {
        expect(&run(means, part), 0, &[]);
    }
}

fn what_failed_is_not_started_again() {
    for means in ["-n 3", "-n 3 --device udp", "-n 3 --nodes 2"] {
        expect(&run(&format!("{means} --on-death tell"), "failure"), HANGS_UP, &["refused"; 2]);
    }
}

/// Element `at` of the block from `from` to `to`.
fn number(from: u32, to: u32, at: usize) -> i64 {
    i64::from(from) * 1_000_003 - i64::from(to) * 77 + at as i64 * 13
}

fn block(from: u32, to: u32, count: usize) -> Vec<i64> {
    (0..count).map(|at| number(from, to, at)).collect()
}

/// The reduction of these ranks' blocks for `to`.
fn total(from: core::ops::Range<u32>, to: u32, count: usize) -> Vec<i64> {
    (0..count).map(|at| from.clone().map(|from| number(from, to, at)).sum()).collect()
}

/// Consecutive blocks of these lengths: their total length and offsets.
fn begins(lengths: &[usize]) -> (Vec<usize>, usize) {
    let at = (0..lengths.len()).map(|rank| lengths[..rank].iter().sum()).collect();
    (at, lengths.iter().sum())
}

fn counts(world: &World) {
    let (rank, size) = (world.rank().0, world.size());
    for unit in [0, 1, 50, 4000] {
        let root = Rank(unit as u32 % size);
        // The block from rank `from` to rank `to`; every third is empty.
        let length = |from: u32, to: u32| ((from + 2 * to) % 3) as usize * unit;
        let given = |from: u32, to: u32| block(from, to, length(from, to));
        let flat = |of: &dyn Fn(u32) -> Vec<i64>| -> Vec<i64> { (0..size).flat_map(of).collect() };
        let lengths: Vec<usize> = (0..size).map(|from| length(from, 0)).collect();
        let ((at, whole), own) = (begins(&lengths), given(rank, 0));
        let outward: Vec<usize> = (0..size).map(|to| length(rank, to)).collect();
        let inward: Vec<usize> = (0..size).map(|from| length(from, rank)).collect();
        let ((out_at, _), (in_at, room)) = (begins(&outward), begins(&inward));
        let (spread, out) = (flat(&|of| given(of, 0)), flat(&|to| given(rank, to)));
        // The summed vectors have blocks of the lengths of rank 0's blocks.
        let addends = flat(&|to| block(rank, to, lengths[to as usize]));
        let (mut gathered, mut everyones, mut into) = (vec![0; whole], vec![0; whole], vec![0; room]);
        let (mut scattered, mut summed) = (vec![0; own.len()], vec![0; own.len()]);
        let mut again = summed.clone();
        world.scope(|scope| {
            let parts = PartitionMut::new(&mut gathered, &lengths, &at).expect("within");
            let all_parts = PartitionMut::new(&mut everyones, &lengths, &at).expect("within");
            let room = PartitionMut::new(&mut into, &inward, &in_at).expect("within");
            let (spread, out) = (Partition::new(&spread, &lengths, &at), Partition::new(&out, &outward, &out_at));
            let (spread, out) = (spread.expect("within"), out.expect("within"));
            let terms = Partition::new(&addends, &lengths, &at).expect("within");
            let requests = [
                scope.immediate_gather_varcount_into(&own, parts, root),
                scope.immediate_scatter_varcount_into(&spread, &mut scattered, root),
                scope.immediate_all_gather_varcount_into(&own, all_parts),
                scope.immediate_all_to_all_varcount_into(&out, room),
                scope.immediate_reduce_scatter_varcount_into(&terms, &mut summed, SystemOperation::sum()),
            ];
            let left = UserOperation::associative(|l: &i64, r: &i64| l.wrapping_add(*r));
            world.reduce_scatter_varcount_into(&terms, &mut again, left).expect("a reduce-scatter");
            for request in requests.into_iter().rev() {
                request.expect("begun").wait().expect("a good end");
            }
        });
        assert!(rank != root.0 || gathered == flat(&|of| given(of, 0)), "gather of {unit}");
        assert_eq!(scattered, own, "scatter of {unit}");
        assert_eq!(everyones, flat(&|of| given(of, 0)), "allgather of {unit}");
        assert_eq!(into, flat(&|from| given(from, rank)), "alltoall of {unit}");
        assert_eq!(summed, total(0..size, rank, own.len()), "reduce-scatter of {unit}");
        assert_eq!(again, summed, "in rank order");
    }
    let one = Partition::new(&[1_i64], &[1], &[0]).expect("within");
    let refused = world.reduce_scatter_varcount_into(&one, &mut [0; 2], SystemOperation::sum());
    let (needed, given) = if size == 1 { (8, 16) } else { (size as usize, 1) };
    assert_eq!(refused, Err(CollectiveError::Length { needed, given }));
}

fn places(world: &World) {
    let (rank, size, sum) = (world.rank().0, world.size(), SystemOperation::sum());
    let ends = |count: usize| rank as usize * count..(rank as usize + 1) * count;
    for count in [0, 1, 37, 3000, 20_001] {
        let root = Rank(count as u32 % size);
        let is_root = rank == root.0;
        let what = format!("{count} elements, rank {rank} of {size}");
        let whole = |of: &dyn Fn(u32) -> Vec<i64>| -> Vec<i64> { (0..size).flat_map(of).collect() };
        let everyones = whole(&|from| block(from, 0, count));
        let mut own_in_whole = vec![0; everyones.len()];
        own_in_whole[ends(count)].copy_from_slice(&block(rank, 0, count));
        for waits in [true, false] {
            let mut gathered = if is_root { own_in_whole.clone() } else { block(rank, 0, count) };
            let mut scattered = if is_root { whole(&|to| block(rank, to, count)) } else { vec![0; count] };
            let mut all = own_in_whole.clone();
            let mut exchanged = whole(&|to| block(rank, to, count));
            let mut reduced = block(rank, 0, count);
            let (mut scanned, mut before) = (reduced.clone(), reduced.clone());
            let mut shares = exchanged.clone();
            if waits {
                world.gather_in_place(&mut gathered, root).expect("a gather");
                world.scatter_in_place(&mut scattered, root).expect("a scatter");
                world.all_gather_in_place(&mut all).expect("an allgather");
                world.all_to_all_in_place(&mut exchanged).expect("an alltoall");
                world.reduce_in_place(&mut reduced, sum, root).expect("a reduction");
                world.scan_in_place(&mut scanned, sum).expect("a scan");
                world.exclusive_scan_in_place(&mut before, sum).expect("a scan");
                world.reduce_scatter_block_in_place(&mut shares, sum).expect("a reduce-scatter");
            } else {
                world.scope(|scope| {
                    let requests = [
                        scope.immediate_gather_in_place(&mut gathered, root),
                        scope.immediate_scatter_in_place(&mut scattered, root),
                        scope.immediate_all_gather_in_place(&mut all),
                        scope.immediate_all_to_all_in_place(&mut exchanged),
                        scope.immediate_reduce_in_place(&mut reduced, sum, root),
                        scope.immediate_scan_in_place(&mut scanned, sum),
                        scope.immediate_exclusive_scan_in_place(&mut before, sum),
                        scope.immediate_reduce_scatter_block_in_place(&mut shares, sum),
                    ];
                    requests.into_iter().for_each(|request| request.expect("begun").wait().expect("a good end"));
                });
            }
            assert_eq!(gathered, if is_root { everyones.clone() } else { block(rank, 0, count) }, "gather: {what}");
            let own = if is_root { scattered[ends(count)].to_vec() } else { scattered };
            assert_eq!(own, block(root.0, rank, count), "scatter: {what}");
            assert_eq!(all, everyones, "allgather: {what}");
            assert_eq!(exchanged, whole(&|from| block(from, rank, count)), "alltoall: {what}");
            let sum_of_all = total(0..size, 0, count);
            assert_eq!(reduced, if is_root { sum_of_all } else { block(rank, 0, count) }, "reduce: {what}");
            assert_eq!(scanned, total(0..rank + 1, 0, count), "scan: {what}");
            assert_eq!(before, if rank == 0 { block(0, 0, count) } else { total(0..rank, 0, count) }, "exscan: {what}");
            assert_eq!(shares[..count], total(0..size, rank, count), "reduce-scatter: {what}");
        }
    }
    if size > 1 {
        let refused = world.all_gather_in_place(&mut vec![0_u8; size as usize + 1]);
        assert_eq!(refused, Err(CollectiveError::Length { needed: size as usize, given: size as usize + 1 }));
    }
    assert_eq!(
        world.reduce_in_place(&mut [0_i64], sum, Rank(size)),
        Err(CollectiveError::UnknownRank { rank: Rank(size), size })
    );
}

/// Every collective, many times, waited for in any order, with others in progress.
fn again(world: &Communicator) {
    const ROUNDS: usize = 12;
    let (rank, size, sum) = (world.rank().0, world.size(), SystemOperation::sum());
    let joined = UserOperation::associative(|l: &i64, r: &i64| l.wrapping_add(*r));
    let (count, root) = (700, Rank(size - 1));
    let many = count * size as usize;
    let is_root = rank == root.0;
    let mut buffers = vec![[vec![0; count], vec![0; count]]; 11];
    let mut wide = vec![[vec![0; many], vec![0; many]]; 6];
    let mut random = fastrand::Rng::with_seed(rank.into());
    world.scope(|scope| {
        let mut narrow = buffers.iter_mut().map(|[a, b]| (&mut a[..], &mut b[..]));
        let mut pair = || narrow.next().expect("enough");
        let mut wide = wide.iter_mut().map(|[a, b]| (&mut a[..], &mut b[..]));
        let mut whole = || wide.next().expect("enough");
        let (a, w) = (pair(), whole());
        let mut barrier = scope.persistent_barrier().expect("prepared");
        let gather = scope.persistent_gather_into(a.0, w.0, root);
        let (a, w) = (pair(), whole());
        let scatter = scope.persistent_scatter_into(w.0, a.0, root);
        let (a, w) = (pair(), whole());
        let all_gather = scope.persistent_all_gather_into(a.0, w.0);
        let w = whole();
        let all_to_all = scope.persistent_all_to_all_into(w.0, w.1);
        let (a, w) = (pair(), whole());
        let shares = scope.persistent_reduce_scatter_block_into(w.0, a.0, sum);
        let (a, b, c, d) = (pair(), pair(), pair(), pair());
        let reduce = scope.persistent_reduce_into(a.0, a.1, sum, root);
        let all_reduce = scope.persistent_all_reduce_into(b.0, b.1, joined);
        let scan = scope.persistent_scan_into(c.0, c.1, sum);
        let before = scope.persistent_exclusive_scan_into(d.0, d.1, sum);
        let (a, b) = (pair(), pair());
        let broadcast = scope.persistent_broadcast_into(a.0, root);
        let in_place = scope.persistent_all_reduce_in_place(b.0, sum);
        let all =
            [gather, scatter, all_gather, all_to_all, shares, reduce, all_reduce, scan, before, broadcast, in_place];
        let mut all = all.map(|one| one.expect("prepared"));
        for round in 0..ROUNDS as u32 {
            // Rank r contributes r + 100 · round to every rank.
            let of = |rank: u32, to: u32| block(rank + 100 * round, to, count);
            let ranks = |ranks: core::ops::Range<u32>| ranks.start + 100 * round..ranks.end + 100 * round;
            let for_all: Vec<i64> = (0..size).flat_map(|to| of(rank, to)).collect();
            for (i, one) in all.iter_mut().enumerate() {
                let data = one.data().expect("at rest");
                match i {
                    1 if !is_root => {}
                    1 | 3 | 4 => data.copy_from_slice(&for_all),
                    9 if !is_root => data.fill(-1),
                    _ => data.copy_from_slice(&of(rank, 0)),
                }
                one.start().expect("started");
                assert_eq!(one.start(), Err(CollectiveError::UnderWay));
                if size > 1 {
                    assert!(one.data().is_err() && one.result().is_err());
                }
            }
            barrier.start().expect("started");
            let other = scope.immediate_barrier().expect("begun");
            let mut seen = [0_i64];
            world.all_reduce_into(&[1], &mut seen, sum).expect("a sum");
            assert_eq!(seen, [i64::from(size)]);
            let mut order: Vec<usize> = (0..all.len()).collect();
            random.shuffle(&mut order);
            for i in order {
                if round % 2 == 0 {
                    while all[i].test().is_none_or(|ended| ended.is_err()) {}
                }
                all[i].wait().expect("a good end");
            }
            other.wait().expect("a barrier");
            barrier.wait().expect("a barrier");
            assert_eq!(barrier.wait(), Ok(()), "at rest");
            let everyones: Vec<i64> = (0..size).flat_map(|from| of(from, 0)).collect();
            let exchanged: Vec<i64> = (0..size).flat_map(|from| of(from, rank)).collect();
            let expected = [
                is_root.then(|| everyones.clone()),
                Some(of(root.0, rank)),
                Some(everyones),
                Some(exchanged),
                Some(total(ranks(0..size), rank, count)),
                is_root.then(|| total(ranks(0..size), 0, count)),
                Some(total(ranks(0..size), 0, count)),
                Some(total(ranks(0..rank + 1), 0, count)),
                (rank > 0).then(|| total(ranks(0..rank), 0, count)),
                Some(of(root.0, 0)),
                Some(total(ranks(0..size), 0, count)),
            ];
            for (i, expected) in expected.into_iter().enumerate() {
                let Some(expected) = expected else { continue };
                assert_eq!(all[i].result().expect("at rest"), expected, "number {i}, round {round}");
            }
            // One request is dropped in progress, and completes; the others are dropped inactive.
            if round as usize + 1 == ROUNDS {
                all[2].start().expect("started");
            }
        }
        drop(all);
        world.barrier().expect("a barrier");
    });
}

/// Immediate and persistent collectives end while no thread makes a call, or not.
fn unattended(world: &Communicator, ends: bool) {
    const ELEMENTS: usize = 1 << 17;
    let [mut data, other] = [0, 0].map(|_| vec![1_i64; ELEMENTS]);
    let [mut sums, mut other_sums] = [0, 0].map(|_| vec![0_i64; ELEMENTS]);
    world.scope(|scope| {
        let sum = SystemOperation::sum();
        let mut persistent = scope.persistent_all_reduce_into(&mut data, &mut sums, sum).expect("prepared");
        for _ in 0..2 {
            persistent.start().expect("started");
            thread::sleep(ATTENDED_WITHIN);
            assert_eq!(persistent.test().is_some(), ends);
            persistent.wait().expect("a good end");
        }
        let request = scope.immediate_all_reduce_into(&other, &mut other_sums, sum).expect("begun");
        thread::sleep(ATTENDED_WITHIN);
        assert_eq!(request.test().is_some(), ends);
        request.wait().expect("a good end");
    });
    assert!([sums, other_sums].iter().flatten().all(|sum| *sum == i64::from(world.size())));
}

/// Persistent requests with blocks of many lengths are started with new data each time; gaps between blocks stay
/// unchanged.
fn again_varying(world: &Communicator) {
    const ROUNDS: u32 = 6;
    let (rank, size, sum) = (world.rank().0, world.size(), SystemOperation::sum());
    let root = Rank(size - 1);
    let is_root = rank == root.0;
    // Every third block is empty, and one element lies between two.
    let spread = |lengths: &[usize]| {
        let at: Vec<usize> = (0..lengths.len()).map(|i| i + lengths[..i].iter().sum::<usize>()).collect();
        (at, lengths.iter().sum::<usize>() + lengths.len())
    };
    let length = |from: u32, to: u32| ((from + 2 * to) % 3) as usize * 450;
    let ranks = 0..size;
    let lengths: Vec<usize> = ranks.clone().map(|of| length(of, 0)).collect();
    let outward: Vec<usize> = ranks.clone().map(|to| length(rank, to)).collect();
    let inward: Vec<usize> = ranks.clone().map(|from| length(from, rank)).collect();
    let ((at, whole), (out_at, out), (in_at, room)) = (spread(&lengths), spread(&outward), spread(&inward));
    let own = lengths[rank as usize];
    let mut given = [own, whole, own, out, whole].map(|length| vec![-1_i64; length]);
    let mut taken = [whole, own, whole, room, own].map(|length| vec![-1_i64; length]);
    world.scope(|scope| {
        let ([a, b, c, d, e], [v, w, x, y, z]) = (given.each_mut(), taken.each_mut());
        fn parts<'b>(of: &'b mut [i64], lengths: &[usize], at: &[usize]) -> PartitionMut<'b, i64> {
            PartitionMut::new(of, lengths, at).expect("within")
        }
        let mut all = [
            scope.persistent_gather_varcount_into(a, parts(v, &lengths, &at), root),
            scope.persistent_scatter_varcount_into(parts(b, &lengths, &at), w, root),
            scope.persistent_all_gather_varcount_into(c, parts(x, &lengths, &at)),
            scope.persistent_all_to_all_varcount_into(parts(d, &outward, &out_at), parts(y, &inward, &in_at)),
            scope.persistent_reduce_scatter_varcount_into(parts(e, &lengths, &at), z, sum),
        ]
        .map(|one| one.expect("prepared"));
        for round in 0..ROUNDS {
            let of = |from: u32, to: u32, count| block(from + 100 * round, to, count);
            // Blocks with an unused element between them.
            let laid = |lengths: &[usize], of: &dyn Fn(u32, usize) -> Vec<i64>| -> Vec<i64> {
                let blocks = (0..).zip(lengths).map(|(i, count)| [of(i, *count), vec![-1]].concat());
                blocks.flatten().collect()
            };
            let from_all = laid(&lengths, &|from, count| of(from, 0, count));
            let gives = [
                of(rank, 0, own),
                laid(&lengths, &|to, count| of(rank, to, count)),
                of(rank, 0, own),
                laid(&outward, &|to, count| of(rank, to, count)),
                laid(&lengths, &|to, count| of(rank, to, count)),
            ];
            for (one, gives) in all.iter_mut().zip(&gives) {
                one.data().expect("at rest").copy_from_slice(gives);
                one.start().expect("started");
                assert_eq!(one.start(), Err(CollectiveError::UnderWay));
            }
            all.iter_mut().rev().for_each(|one| one.wait().expect("a good end"));
            let expected = [
                if is_root { from_all.clone() } else { vec![-1; whole] },
                of(root.0, rank, own),
                from_all,
                laid(&inward, &|from, count| of(from, rank, count)),
                total(100 * round..100 * round + size, rank, own),
            ];
            for (i, (one, expected)) in all.iter().zip(expected).enumerate() {
                assert_eq!(
                    one.result().expect("at rest"),
                    expected,
                    "number {i}, round {round}, rank {rank} of {size}"
                );
            }
        }
    });
}

/// One rank exits; the persistent requests of the others fail, and stay failed.
fn failure(world: &World) {
    let (mut first, mut second) = ([[1_u32; 4], [0; 4]], [[1_u32; 4], [0; 4]]);
    world.scope(|scope| {
        let ([a, b], [c, d]) = (&mut first, &mut second);
        let mut one = scope.persistent_all_reduce_into(a, b, SystemOperation::sum()).expect("prepared");
        let mut other = scope.persistent_all_gather_into(&mut c[..1], &mut d[..3]).expect("prepared");
        one.start().and_then(|()| one.wait()).expect("a sum");
        if world.rank() == Rank(0) {
            std::process::exit(HANGS_UP);
        }
        let error = one.start().and_then(|()| one.wait()).expect_err("a rank is missing");
        assert!(matches!(error, CollectiveError::Missing { rank: Rank(0), .. }), "{error}");
        assert_eq!((one.wait(), one.test()), (Ok(()), Some(Ok(()))), "at rest");
        assert!(one.start() == Err(error) && other.start() == Err(error));
        assert_eq!(one.data().map(|data| data.len()), Ok(4));
        println!("refused");
    });
}

/// A matrix distributed by rows is redistributed by columns, and back.
fn rows(world: &World) {
    let (rank, size) = (world.rank().0 as usize, world.size() as usize);
    for (own, width) in [(1, 1), (3, 2), (40, 25)] {
        // size · own rows of size · width elements.
        let (height, length) = (size * own, size * width);
        let element = |row: usize, column: usize| (row * 10_000 + column) as i64;
        let mine: Vec<i64> = (0..own * length).map(|at| element(rank * own + at / length, at % length)).collect();
        let counts = vec![own * width; size];
        let columns: Vec<usize> = (0..size).map(|to| to * width).collect();
        let stacked: Vec<usize> = (0..size).map(|from| from * own * width).collect();
        let mut upright = vec![0; height * width];
        let parts = Partition::in_rows(&mine, &counts, &columns, width, length).expect("within");
        let into = PartitionMut::new(&mut upright, &counts, &stacked).expect("within");
        world.all_to_all_varcount_into(&parts, into).expect("an alltoall");
        let expected = (0..height * width).map(|at| element(at / width, rank * width + at % width));
        assert!(upright.iter().copied().eq(expected), "{own} rows of {length}, rank {rank}");

        let mut back = vec![0; own * length];
        let mut whole = vec![-1; if rank == 0 { height * length } else { 0 }];
        world.scope(|scope| {
            let parts = Partition::new(&upright, &counts, &stacked).expect("within");
            let into = PartitionMut::in_rows(&mut back, &counts, &columns, width, length).expect("within");
            let all = vec![height * width; if rank == 0 { size } else { 0 }];
            let at = if rank == 0 { &columns[..] } else { &[] };
            let gathered = PartitionMut::in_rows(&mut whole, &all, at, width, length).expect("within");
            let returned = scope.immediate_all_to_all_varcount_into(&parts, into).expect("begun");
            let gathered = scope.immediate_gather_varcount_into(&upright, gathered, Rank(0)).expect("begun");
            gathered.wait().and_then(|()| returned.wait()).expect("a good end");
        });
        assert_eq!(back, mine, "there and back");
        assert!(
            rank != 0 || whole.iter().copied().eq((0..height * length).map(|at| element(at / length, at % length)))
        );
    }
}

/// In-place persistent requests are started with new data each time.
fn again_in_place(world: &Communicator) {
    const ROUNDS: u32 = 5;
    let (rank, size, sum) = (world.rank().0, world.size(), SystemOperation::sum());
    let (count, root) = (300, Rank(size - 1));
    let many = count * size as usize;
    let is_root = rank == root.0;
    let at_root = if is_root { many } else { count };
    let lengths = [at_root, at_root, many, many, count, many, count, count];
    let mut buffers = lengths.map(|length| vec![0_i64; length]);
    world.scope(|scope| {
        let [gather, scatter, all_gather, all_to_all, reduce, shares, scan, before] = buffers.each_mut();
        let mut all = [
            scope.persistent_gather_in_place(gather, root),
            scope.persistent_scatter_in_place(scatter, root),
            scope.persistent_all_gather_in_place(all_gather),
            scope.persistent_all_to_all_in_place(all_to_all),
            scope.persistent_reduce_in_place(reduce, sum, root),
            scope.persistent_reduce_scatter_block_in_place(shares, sum),
            scope.persistent_scan_in_place(scan, sum),
            scope.persistent_exclusive_scan_in_place(before, sum),
        ]
        .map(|one| one.expect("prepared"));
        for round in 0..ROUNDS {
            let of = |rank: u32, to: u32| block(rank + 100 * round, to, count);
            let ranks = |ranks: core::ops::Range<u32>| ranks.start + 100 * round..ranks.end + 100 * round;
            let for_all: Vec<i64> = (0..size).flat_map(|to| of(rank, to)).collect();
            let own = rank as usize * count..(rank as usize + 1) * count;
            for (i, one) in all.iter_mut().enumerate() {
                let data = one.data().expect("at rest");
                match i {
                    0 if is_root => data[own.clone()].copy_from_slice(&of(rank, 0)),
                    1 if !is_root => data.fill(-1),
                    2 => data[own.clone()].copy_from_slice(&of(rank, 0)),
                    1 | 3 | 5 => data.copy_from_slice(&for_all),
                    _ => data.copy_from_slice(&of(rank, 0)),
                }
                one.start().expect("started");
            }
            all.iter_mut().rev().for_each(|one| one.wait().expect("a good end"));
            let everyones: Vec<i64> = (0..size).flat_map(|from| of(from, 0)).collect();
            let expected = [
                is_root.then(|| everyones.clone()),
                Some(if is_root { for_all.clone() } else { of(root.0, rank) }),
                Some(everyones),
                Some((0..size).flat_map(|from| of(from, rank)).collect()),
                is_root.then(|| total(ranks(0..size), 0, count)),
                Some(total(ranks(0..size), rank, count)),
                Some(total(ranks(0..rank + 1), 0, count)),
                (rank > 0).then(|| total(ranks(0..rank), 0, count)),
            ];
            for (i, expected) in expected.into_iter().enumerate() {
                let Some(expected) = expected else { continue };
                let result = all[i].result().expect("at rest");
                assert_eq!(result[..expected.len()], expected, "number {i}, round {round}, rank {rank} of {size}");
            }
        }
    });
}
