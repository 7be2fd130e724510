//! The ways to call a collective: with counts, in place, begun and waited for later. This program is its rank program, too.

mod program;

use std::env;
use std::process::ExitCode;

use program::{expect, run};
use unisono::rank::Rank;
use unisono::world::World;
use unisono::world::collective::{CollectiveError, Partition, PartitionMut, SystemOperation, UserOperation};

/// Over shared memory, datagrams, and both; and alone.
const MEANS: [&str; 5] = ["-n 1", "-n 3", "-n 4 --device udp", "-n 5 --nodes 2 --loss 5%", "-n 4 --nodes 2"];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        match env::args().nth(1).as_deref() {
            Some("counts") => counts(&world),
            Some("places") => places(&world),
            part => panic!("no part {part:?}"),
        }
        world.finish().expect("a good end");
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("blocks_of_any_length_move_while_others_do", || everywhere("counts")),
        ("results_replace_data", || everywhere("places")),
    ])
}

fn everywhere(part: &str) {
    for means in MEANS {
        expect(&run(means, part), 0, &[]);
    }
}

/// Element `at` of what `from` has for `to`.
fn number(from: u32, to: u32, at: usize) -> i64 {
    i64::from(from) * 1_000_003 - i64::from(to) * 77 + at as i64 * 13
}

fn block(from: u32, to: u32, count: usize) -> Vec<i64> {
    (0..count).map(|at| number(from, to, at)).collect()
}

/// What all ranks of these have for `to`, combined.
fn total(from: core::ops::Range<u32>, to: u32, count: usize) -> Vec<i64> {
    (0..count).map(|at| from.clone().map(|from| number(from, to, at)).sum()).collect()
}

/// Blocks of these lengths one behind the other, and where they begin.
fn begins(lengths: &[usize]) -> (Vec<usize>, usize) {
    let at = (0..lengths.len()).map(|rank| lengths[..rank].iter().sum()).collect();
    (at, lengths.iter().sum())
}

fn counts(world: &World) {
    let (rank, size) = (world.rank().0, world.size());
    for unit in [0, 1, 50, 4000] {
        let root = Rank(unit as u32 % size);
        // What rank `from` has for rank `to`; every third has nothing.
        let length = |from: u32, to: u32| ((from + 2 * to) % 3) as usize * unit;
        let given = |from: u32, to: u32| block(from, to, length(from, to));
        let flat = |of: &dyn Fn(u32) -> Vec<i64>| -> Vec<i64> { (0..size).flat_map(of).collect() };
        let lengths: Vec<usize> = (0..size).map(|from| length(from, 0)).collect();
        let ((at, whole), own) = (begins(&lengths), given(rank, 0));
        let outward: Vec<usize> = (0..size).map(|to| length(rank, to)).collect();
        let inward: Vec<usize> = (0..size).map(|from| length(from, rank)).collect();
        let ((out_at, _), (in_at, room)) = (begins(&outward), begins(&inward));
        let (spread, out) = (flat(&|of| given(of, 0)), flat(&|to| given(rank, to)));
        // Of the vectors that are summed, each has blocks of the lengths that rank 0 has blocks of.
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
