//! Windows: the same operations over shared memory, over datagrams that are lost, and over both. This program is its
//! rank program, too.

#[path = "program/one_sided.rs"]
mod one_sided;
mod program;

use core::ptr::NonNull;
use core::time::Duration;
use std::process::ExitCode;
use std::time::Instant;
use std::{env, thread};

use one_sided::{Outcome, check, everywhere, expect_death, means_or, pattern};
use program::{expect, run};
use rustix::process::{Pid, Signal, getpid, kill_process};
use unisono::collective::{Complex, SystemOperation, ValueIndex, View, ViewMut};
use unisono::{AccumulateOperation, Datatype, Failure, LockKind, Rank, Tag, Window, WindowError, World};

/// How long the target of [`computing`] computes.
const COMPUTING: Duration = Duration::from_secs(4);
/// Rank 0 waits for this long after the barrier, so that rank 1 has left it.
const LEAVING: Duration = Duration::from_secs(1);
/// Three operations have ended by then. The progress thread sleeps for at most 250 ms before each of them.
const SERVED_WITHIN: Duration = Duration::from_millis(2500);

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        return play();
    }
    program::run_tests(&[
        ("data_is_put_and_got", || everywhere("data")),
        ("datatypes_describe_the_target_as_well", || everywhere("typed")),
        ("updates_are_atomic", || everywhere("updates")),
        ("locks_exclude", || everywhere("locks")),
        ("epochs_order_accesses", || everywhere("epochs")),
        ("bad_accesses_are_refused", || everywhere("refusals")),
        ("requests_end_one_by_one", || everywhere("requests")),
        ("memory_of_programs_is_accessed", || everywhere("created")),
        ("memory_is_attached_and_detached", || everywhere("dynamic")),
        ("operations_span_attached_pieces", || everywhere("spanning")),
        ("ranks_that_poll_their_own_memory_answer_others", || everywhere("polled")),
        ("ranks_that_poll_under_their_own_lock_let_others_have_it", || everywhere("contended")),
        ("ranks_that_compute_answer_by_their_progress_thread", || {
            for means in means_or(&["-n 2 --device udp"]) {
                for progress in ["engine", "thread", "hybrid"] {
                    let options = format!("{means} --progress {progress}");
                    expect(&run(&options, &format!("computing {progress}")), 0, &["right"; 2]);
                }
            }
        }),
        ("target_that_dies_ends_operations", || expect_death("death")),
        ("fence_that_lacks_an_operation_fails_at_all", fence_that_lacks_an_operation_fails_at_all),
    ])
}

fn fence_that_lacks_an_operation_fails_at_all() {
    // Rank 0 has what it needs of rank 1 before it dies.
    for barrier in ["combining-tree", "token-tree"] {
        expect(&run(&format!("-n 3 --nodes 2 --on-death tell --barrier {barrier}"), "fenced"), 137, &["failed"; 2]);
    }
}

fn play() -> ExitCode {
    let part = env::args().nth(1).unwrap_or_default();
    let world = World::join().expect("a job");
    let played = match &*part {
        "data" => data(&world),
        "typed" => typed(&world),
        "updates" => updates(&world),
        "locks" => locks(&world),
        "epochs" => epochs(&world),
        "refusals" => refusals(&world),
        "requests" => requests(&world),
        "created" => created(&world),
        "dynamic" => dynamic(&world),
        "spanning" => spanning(&world),
        "polled" => polled(&world),
        "contended" => contended(&world),
        "computing" => computing(&world, env::args().nth(2).as_deref() != Some("engine")),
        "fenced" => fenced(&world),
        _ => death(&world),
    };
    if let Err(error) = played {
        eprintln!("rank {}: {error}", world.rank());
        return ExitCode::FAILURE;
    }
    if matches!(&*part, "death" | "fenced") {
        println!("failed");
        let _ = world.finish();
    } else {
        println!("right");
        world.finish().expect("all ranks finish");
    }
    ExitCode::SUCCESS
}

/// Each rank writes to the next one's window at odd places, and reads from the one before.
fn data(world: &World) -> Outcome {
    const BYTES: usize = 400_000;
    let window = world.allocate_window(BYTES)?;
    let (rank, size) = (world.rank().0, world.size());
    let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
    for (offset, bytes) in [(0, 1), (7, 8), (3, 1400), (1, 5000), (13, 70_000), (0, BYTES), (BYTES, 0)] {
        window.write(0, &vec![0_u8; BYTES])?;
        window.fence()?;
        window.put(&pattern(rank, bytes), next, offset)?;
        window.fence()?;
        let mut own = vec![0; BYTES];
        window.read(0, &mut own)?;
        let mut wanted = vec![0; BYTES];
        wanted[offset..offset + bytes].copy_from_slice(&pattern(before.0, bytes));
        check(own == wanted, "the window holds what was put")?;
        let mut there = vec![0; bytes];
        window.get(&mut there, next, offset)?;
        check(there == pattern(rank, bytes), "a get returns what was put")?;
        window.fence()?;
    }
    // Columns of a matrix: what a view names lies one after the other in the window.
    let (mut matrix, column) = ([[0_u32; 5]; 7], Datatype::of::<u32>().vector(7, 2, 5)?);
    matrix.iter_mut().zip(0..).for_each(|(row, i)| *row = [rank * 100 + i; 5]);
    window.put(&View::of(matrix.as_flattened(), 1, &column)?, next, 8)?;
    window.fence()?;
    let (mut back, mut words) = ([[9_u32; 5]; 7], [0; 14]);
    window.get(&mut ViewMut::of(back.as_flattened_mut(), 1, &column)?, next, 8)?;
    window.read(8, &mut words)?;
    check(back.iter().zip(0..).all(|(row, i)| row[..2] == [rank * 100 + i; 2] && row[2..] == [9; 3]), "columns")?;
    check((0..14).all(|i| words[i as usize] == before.0 * 100 + i / 2), "the elements of columns")?;
    window.fence()?;
    let sum = SystemOperation::sum();
    let view = View::of(matrix.as_flattened(), 1, &column)?;
    window.accumulate(&view, next, 8, sum)?;
    let old = window.request_get_accumulate(&view, next, 8, sum)?.wait()?;
    check((0..14).all(|i| old[i as usize] == 2 * (rank * 100 + i / 2)), "columns are added, and returned")?;
    window.fence()?;
    // Puts of one rank to the same place arrive in order, also where more are under way than a connection of an adapter
    // takes, and where connections come and go.
    for round in 1..=20_u32 {
        for to in [next, before] {
            for i in 0..200 {
                window.put(&[round << 16 | i], to, if to == next { 16 } else { 20 })?;
            }
        }
        for to in [next, before] {
            let mut last = [0_u32];
            window.flush(to)?;
            window.get(&mut last, to, if to == next { 16 } else { 20 })?;
            check(last == [round << 16 | 199], "puts keep their order")?;
        }
    }
    check(window.bytes_of(next)? == BYTES, "lengths are known")?;
    window.free()?;
    Ok(())
}

/// Columns of one's own matrix become columns of the next rank's, and rows of its blocks, back and forth.
fn typed(world: &World) -> Outcome {
    const SIDE: usize = 70;
    let bytes = SIDE * SIDE * 8;
    let window = world.allocate_window(bytes)?;
    let (rank, size) = (u64::from(world.rank().0), u64::from(world.size()));
    let (next, before) = (Rank(((rank + 1) % size) as u32), (rank + size - 1) % size);
    let column = Datatype::of::<u64>().vector(SIDE, 1, SIDE as isize)?;
    // Columns one after the other.
    let columns = column.resized(0, 8)?;
    let matrix: Vec<u64> = (0..SIDE * SIDE).map(|i| rank << 32 | i as u64).collect();
    let theirs = |i: usize| before << 32 | i as u64;

    // Transposed: rows become columns, 70 blocks of 8 bytes each.
    window.put_typed(&matrix[..], next, 0, SIDE, &columns)?;
    window.fence()?;
    let mut own = vec![0_u64; SIDE * SIDE];
    window.read(0, &mut own)?;
    check((0..SIDE * SIDE).all(|i| own[i] == theirs(i % SIDE * SIDE + i / SIDE)), "the transposed matrix")?;
    let mut back = vec![0_u64; SIDE * SIDE];
    window.get_typed(&mut back[..], next, 0, SIDE, &columns)?;
    check(back == matrix, "a get transposes it back")?;
    window.fence()?;

    // A strided part of this rank's memory to a strided one there, from a view to a view.
    let mut got = vec![9_u64; SIDE * SIDE];
    window.put_typed(&View::of(&matrix, 1, &column)?, next, 8 * (SIDE - 1), 1, &column)?;
    window.get_typed(&mut ViewMut::of(&mut got, 1, &column)?, next, 8 * (SIDE - 1), 1, &column)?;
    check((0..SIDE * SIDE).all(|i| got[i] == if i % SIDE == 0 { matrix[i] } else { 9 }), "columns of both")?;
    window.fence()?;

    // All ranks add to the even elements of the first column's rows at rank 0.
    let even = Datatype::of::<u64>().vector(SIDE / 2, 1, 2)?;
    window.write(0, &vec![0_u64; SIDE * SIDE])?;
    window.fence()?;
    window.accumulate_typed(&vec![rank + 1; SIDE / 2], Rank(0), 0, 1, &even, SystemOperation::sum())?;
    window.fence()?;
    let mut sums = vec![0_u64; SIDE];
    window.get(&mut sums, Rank(0), 0)?;
    let sum = size * (size + 1) / 2;
    check((0..SIDE).all(|i| sums[i] == if i % 2 == 0 { sum } else { 0 }), "sums between gaps")?;
    window.fence()?;

    let refused = |result: Result<(), WindowError>, wanted: &str| {
        check(
            result.as_ref().is_err_and(|error| format!("{error:?}").starts_with(wanted)),
            &format!("{wanted}: {result:?}"),
        )
    };
    refused(window.put_typed(&matrix[1..], next, 0, SIDE, &columns), "SizesDiffer")?;
    window.put_typed(&matrix[..SIDE], next, 8, 1, &column)?;
    refused(window.put_typed(&matrix[..SIDE], next, 8 * SIDE, 1, &column), "OutOfBounds")?;
    let backwards = Datatype::of::<u64>().hvector(2, 1, -8)?;
    refused(window.put_typed(&matrix[..2], next, 0, 1, &backwards), "OutOfBounds")?;
    window.get_typed(&mut back[..2], next, bytes - 8, 1, &backwards)?;
    let split = Datatype::bytes(4)?.vector(2, 1, 2)?;
    let update = window.accumulate_typed(&[1_u64], next, 0, 1, &split, SystemOperation::sum());
    refused(update, "Unsupported")?;
    window.fence()?;
    window.free()?;
    Ok(())
}

/// All ranks update the same elements of rank 0.
fn updates(world: &World) -> Outcome {
    const ADDS: u64 = 100;
    let window = world.allocate_window(if world.rank() == Rank(0) { 4096 } else { 0 })?;
    let (root, size, rank) = (Rank(0), u64::from(world.size()), world.rank().0);
    let mut tickets = 0;
    for _ in 0..ADDS {
        tickets += window.fetch_and_op(1_u64, root, 0, SystemOperation::sum())?;
        window.accumulate(&[0.5_f64, 1.0, 2.0], root, 8, SystemOperation::sum())?;
        window.accumulate(&[1_u8, 1, 1], root, 33, SystemOperation::sum())?;
        window.accumulate(&[i32::try_from(rank)?], root, 40, SystemOperation::max())?;
        // A byte and a half word, by compare-and-swap; neighbours must not change.
        loop {
            let old = window.fetch_and_op(0_u16, root, 46, AccumulateOperation::NoOp)?;
            if window.compare_and_swap(old, old.wrapping_add(1), root, 46)? == old {
                break;
            }
        }
    }
    wide_updates(world, &window)?;
    let values: Vec<u64> = (0..400).collect();
    let mut old = vec![0_u64; 400];
    window.get_accumulate(&values, &mut old, root, 800, SystemOperation::sum())?;
    let shares = old.iter().zip(&values).filter(|(_, value)| **value > 0).map(|(old, value)| old / value);
    check(shares.clone().all(|share| share < size), "old values are sums of others")?;
    window.fence()?;
    let all = size * ADDS;
    let mut sum = [0];
    world.all_reduce_into(&[tickets], &mut sum, SystemOperation::sum())?;
    check(sum == [all * (all - 1) / 2], "each ticket is given once")?;
    if rank == 0 {
        let (mut floats, mut bytes, mut most, mut halves) = ([0.0_f64; 3], [0_u8; 7], [0_i32], [0_u16; 2]);
        window.read(8, &mut floats)?;
        window.read(32, &mut bytes)?;
        window.read(40, &mut most)?;
        window.read(44, &mut halves)?;
        let times = all as f64;
        check(floats == [0.5 * times, times, 2.0 * times], "sums of floats")?;
        check(bytes == [0, all as u8, all as u8, all as u8, 0, 0, 0], "sums of bytes")?;
        check(most == [world.size() as i32 - 1] && halves == [0, all as u16], "maximum and half word")?;
        let mut sums = vec![0_u64; 400];
        window.read(800, &mut sums)?;
        check(sums.iter().zip(&values).all(|(sum, value)| *sum == value * size), "sums of words")?;
    }
    let swapped = window.fetch_and_op(7_u32, Rank(0), 4000, AccumulateOperation::Replace)?;
    check(swapped == 0 || swapped == 7, "a replaced value is an earlier one")?;
    window.fence()?;
    window.free()?;
    Ok(())
}

/// Updates of elements of more than 8 bytes, by all ranks at once, in bytes 64 to 160 of the first one's memory.
fn wide_updates(world: &World, window: &Window) -> Outcome {
    const ADDS: u32 = 8;
    let (root, size, rank) = (Rank(0), world.size(), world.rank().0);
    let one = Complex::new(1.0_f64, -2.0);
    for i in 0..ADDS {
        window.accumulate(&[one, one], root, 64, SystemOperation::sum())?;
        let [old] = window.request_get_accumulate(&[one], root, 96, SystemOperation::sum())?.wait()?[..] else {
            return check(false, "one old element");
        };
        check(old.im() == -2.0 * old.re(), "an old element is a whole one")?;
        window.request_accumulate(&[one], root, 112, AccumulateOperation::Replace)?.wait()?;
        let own = ValueIndex::new(-f64::from(rank * ADDS + i), u64::from(rank));
        let least = window.fetch_and_op(own, root, 128, SystemOperation::min_location())?;
        check(least.value() > own.value() || least.index() >= u64::from(rank), "an old minimum")?;
    }
    let undefined = window.accumulate(&[one], root, 64, SystemOperation::max());
    check(undefined == Err(WindowError::Unsupported), "numbers without an order")?;
    // An earlier operation fails at its flush, and not here.
    let misaligned = window.accumulate(&[0_u64], root, 65, SystemOperation::sum());
    let outside = window.accumulate(&[one], root, 4088, SystemOperation::sum());
    check(outside == Err(WindowError::OutOfBounds(root)), "an element that ends outside")?;
    let found = window.fetch_and_op(one, root, 64, AccumulateOperation::NoOp)?;
    check(found.im() == -2.0 * found.re(), "a whole element is read")?;
    let flushed = misaligned.and_then(|()| window.flush(root));
    check(flushed == Err(WindowError::Misaligned(root)), "the misaligned one is reported")?;
    window.fence()?;
    if rank == 0 {
        let (mut sums, mut least) = ([Complex::default(); 4], [ValueIndex::default()]);
        window.read(64, &mut sums)?;
        window.read(128, &mut least)?;
        let all = f64::from(size * ADDS);
        let sum = Complex::new(all, -2.0 * all);
        check(sums == [sum, sum, sum, one], &format!("sums of complex numbers: {sums:?}"))?;
        let last = ValueIndex::new(1.0 - all, u64::from(size) - 1);
        check(least == [last], &format!("the least value and its rank: {least:?}"))?;
    }
    Ok(window.fence()?)
}

/// Increments that are not atomic by themselves, under a lock.
fn locks(world: &World) -> Outcome {
    const ADDS: u64 = 25;
    let window = world.allocate_window(64)?;
    let last = Rank(world.size() - 1);
    for _ in 0..ADDS {
        window.lock(LockKind::Exclusive, last)?;
        let mut value = [0_u64];
        window.get(&mut value, last, 8)?;
        window.put(&[value[0] + 1], last, 8)?;
        window.unlock(LockKind::Exclusive, last)?;
    }
    window.fence()?;
    window.lock_all()?;
    let mut value = [0_u64];
    window.get(&mut value, last, 8)?;
    window.unlock_all()?;
    check(value == [ADDS * u64::from(world.size())], "a lock excludes others")?;
    window.free()?;
    Ok(())
}

/// Post, start, complete, wait around a ring.
fn epochs(world: &World) -> Outcome {
    let window = world.allocate_window(256)?;
    let (rank, size) = (world.rank().0, world.size());
    let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
    for round in 0..20_u32 {
        window.post(&[before])?;
        window.start_epoch(&[next])?;
        window.put(&[rank * 1000 + round; 8], next, 32)?;
        window.complete()?;
        window.wait_epoch()?;
        let mut own = [0_u32; 8];
        window.read(32, &mut own)?;
        check(own == [before.0 * 1000 + round; 8], "an epoch orders a put before the wait")?;
    }
    window.free()?;
    Ok(())
}

/// Bad accesses fail, touch nothing, and later ones go on.
fn refusals(world: &World) -> Outcome {
    let window = world.allocate_window(100)?;
    let target = Rank(world.size() - 1);
    let is_outside = |result: Result<(), WindowError>| matches!(result, Err(WindowError::OutOfBounds(_)));
    check(is_outside(window.put(&[1_u8; 101], target, 0)), "a put that is too long")?;
    check(is_outside(window.put(&[1_u8], target, 100)), "a put behind the end")?;
    check(is_outside(window.get(&mut [0_u64], target, usize::MAX)), "a get out of the address space")?;
    let misaligned = window.fetch_and_op(1_u64, target, 4, SystemOperation::sum());
    check(matches!(misaligned, Err(WindowError::Misaligned(_))), "a misaligned update")?;
    let undefined = window.accumulate(&[1.0_f64], target, 8, SystemOperation::bitwise_and());
    let undefined = undefined.and_then(|()| window.flush(target));
    check(matches!(undefined, Err(WindowError::Unsupported)), "bits of a float")?;
    let nobody = window.put(&[0_u8], Rank(world.size()), 0);
    check(matches!(nobody, Err(WindowError::Failed(Failure::UnknownRank(_)))), "an unknown rank")?;
    window.fence()?;
    let mut own = [1_u8; 100];
    window.read(0, &mut own)?;
    check(own == [0; 100], "nothing was written")?;
    window.fence()?;
    check(
        window.fetch_and_op(1_u64, target, 8, SystemOperation::sum())? < u64::from(world.size()),
        "later ones go on",
    )?;
    window.fence()?;
    window.free()?;
    Ok(())
}

fn requests(world: &World) -> Outcome {
    let window = world.allocate_window(100_000)?;
    let (rank, size) = (world.rank().0, world.size());
    let next = Rank((rank + 1) % size);
    let puts: Vec<_> = (0..20)
        .map(|i| window.request_put(&pattern(rank + i, 4000), next, 4000 * i as usize))
        .collect::<Result<_, _>>()?;
    puts.into_iter().try_for_each(unisono::PutRequest::wait)?;
    drop(window.request_put(&[1_u8; 100], next, 90_000)?);
    window.flush(next)?;
    let gets: Vec<_> =
        (0..20_usize).map(|i| window.request_get::<u8>(4000, next, 4000 * i)).collect::<Result<_, _>>()?;
    drop(window.request_get::<u64>(100, next, 0)?);
    for (i, get) in (0..).zip(gets) {
        check(get.wait()? == pattern(rank + i, 4000), "a get returns what was put")?;
    }
    window.fence()?;
    let mut own = [0_u8; 100];
    window.read(90_000, &mut own)?;
    check(own == [1; 100], "a put that nobody waits for arrives")?;
    window.fence()?;
    // Operations on windows beside messages and collectives.
    let sum = SystemOperation::sum();
    let (sent, mut received, mut total) = ([rank], [0; 1], [1_u64]);
    world.scope(|scope| {
        let put = window.request_put(&[rank], next, 80_000)?;
        let added = window.request_accumulate(&[5_u64; 700], next, 80_008, sum)?;
        let old = window.request_get_accumulate(&[u64::from(rank); 3], next, 90_000, AccumulateOperation::Replace)?;
        let get = window.request_get::<u8>(100, next, 90_000)?;
        let receive = scope.immediate_receive_into(&mut received, None, None)?;
        let send = scope.immediate_send(&sent, next, Tag(1))?;
        let reduce = scope.immediate_all_reduce_in_place(&mut total, sum)?;
        let all: [&dyn unisono::AnyRequest; 7] = [&put, &added, &old, &get, &receive, &send, &reduce];
        let mut left = all.len();
        while left > 3 {
            left -= unisono::wait_some(all)?.len();
        }
        let statuses = unisono::wait_all(all)?;
        check(statuses.len() == 7 && unisono::wait_any(all)?.is_none(), "each is reported once")?;
        check(get.wait()?.len() == 100, "the data of a get is there")?;
        check(old.wait()? == [0x0101_0101_0101_0101; 3], "the old elements are there")
    })?;
    check(total == [u64::from(size)], "the sum")?;
    window.fence()?;
    let mut added = [0_u64; 700];
    window.read(80_008, &mut added)?;
    check(added == [5; 700], "what was accumulated")?;
    // The target reports an error of its own only where it is not accessed directly.
    let misaligned = window.request_accumulate(&[1_u64], next, 4, sum);
    let failed = misaligned.map(|request| unisono::wait_all([&request]).is_err());
    check(failed.unwrap_or(true), "a misaligned update fails")?;
    window.free()?;
    Ok(())
}

/// A window on memory of the program.
fn created(world: &World) -> Outcome {
    const WORDS: usize = 20_000;
    let mut memory = vec![0_u64; WORDS];
    // SAFETY: the vector is not used before the window is freed.
    let window = unsafe { world.create_window(NonNull::from(memory.as_mut_slice()).cast(), 8 * WORDS) }?;
    let (rank, size) = (world.rank().0, world.size());
    let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
    window.put(&pattern(rank, 8 * WORDS - 8), next, 8)?;
    window.flush(next)?;
    let mut there = vec![0; 8 * WORDS - 8];
    window.get(&mut there, next, 8)?;
    check(there == pattern(rank, there.len()), "a get returns what was put")?;
    let got = window.request_get::<u8>(50_000, next, 8)?.wait()?;
    check(got == pattern(rank, 50_000), "and so does a request")?;
    for _ in 0..50 {
        window.fetch_and_op(1_u64, Rank(0), 0, SystemOperation::sum())?;
        window.accumulate(&[2_u64], Rank(0), 0, SystemOperation::sum())?;
        window.lock(LockKind::Exclusive, next)?;
        window.unlock(LockKind::Exclusive, next)?;
    }
    window.fence()?;
    let mut own = vec![0; 8 * WORDS - 8];
    window.read(8, &mut own)?;
    check(own == pattern(before.0, own.len()), "the window holds what was put")?;
    window.free()?;
    check(memory[0] == if rank == 0 { 150 * u64::from(size) } else { 0 }, "and so does the memory")
}

/// Pieces of memory, more than are looked up at a time, of which some are detached and others attached in their place.
fn dynamic(world: &World) -> Outcome {
    const PIECES: usize = 100;
    let mut memory = vec![[0_u64; 3]; PIECES];
    let first = NonNull::from(memory.as_mut_slice()).cast::<[u64; 3]>();
    let window = world.create_dynamic_window()?;
    let (rank, size) = (world.rank().0, world.size());
    let next = Rank((rank + 1) % size);
    let attach = |piece: usize| {
        let start = NonNull::new(first.as_ptr().wrapping_add(piece).cast()).expect("not null");
        // SAFETY: a piece of the vector, which is not used before the window is freed.
        unsafe { window.attach(start, 24) }
    };
    (0..PIECES).try_for_each(attach)?;
    window.detach(first.as_ptr().cast())?;
    check(window.detach(first.as_ptr().cast()) == Err(WindowError::OutOfBounds(world.rank())), "it was detached")?;
    let mut starts = vec![0_u64; size as usize];
    world.all_gather_into(&[first.addr().get() as u64][..], &mut starts[..])?;
    let at = |of: Rank, piece: usize| starts[of.0 as usize] as usize + 24 * piece;
    for piece in 1..PIECES {
        window.put(&[u64::from(rank)], next, at(next, piece) + 8)?;
        window.accumulate(&[1_u64], Rank(0), at(Rank(0), piece), SystemOperation::sum())?;
    }
    check(window.put(&[0_u64], next, at(next, 0)) == Err(WindowError::OutOfBounds(next)), "nothing is attached there")?;
    let beyond = window.get(&mut [0_u64; 2], next, at(next, PIECES - 1) + 16);
    check(beyond == Err(WindowError::OutOfBounds(next)), "the last piece ends")?;
    window.fence()?;
    let mut word = [0_u64];
    window.get(&mut word, next, at(next, PIECES - 1) + 8)?;
    check(word[0] == u64::from(rank), "a get returns what was put")?;
    window.fence()?;
    attach(0)?;
    window.fence()?;
    window.put(&[9_u64], next, at(next, 0))?;
    window.free()?;
    let sum = if rank == 0 { u64::from(size) } else { 0 };
    let before = u64::from((rank + size - 1) % size);
    check(memory[0] == [9, 0, 0] && memory[1..].iter().all(|piece| *piece == [sum, before, 0]), "the memory holds it")
}

/// Operations span attached pieces that adjoin; their order in the table is another one than in memory.
fn spanning(world: &World) -> Outcome {
    const WORDS: usize = 6000;
    let mut memory = vec![0_u64; WORDS];
    let first = NonNull::from(memory.as_mut_slice()).cast::<u8>();
    let window = world.create_dynamic_window()?;
    let (rank, size) = (world.rank().0, world.size());
    let next = Rank((rank + 1) % size);
    // Bytes of the memory where pieces begin and end. The third one is cut in an element; a hole of 8 bytes follows it.
    for (from, to) in [(24_000, 47_988), (0, 8), (47_996, 48_000), (8, 24_000), (47_988, 47_992)] {
        let start = NonNull::new(first.as_ptr().wrapping_add(from)).expect("not null");
        // SAFETY: a piece of the vector, which is not used before the window is freed.
        unsafe { window.attach(start, to - from) }?;
    }
    let mut starts = vec![0_u64; size as usize];
    world.all_gather_into(&[first.addr().get() as u64][..], &mut starts[..])?;
    let there = starts[next.0 as usize] as usize;
    let (words, mut back): (Vec<u64>, _) = ((1..=5000).collect(), vec![0_u64; 5000]);
    let sum = SystemOperation::sum();
    window.put(&words[..], next, there)?;
    window.flush(next)?;
    window.get(&mut back[..], next, there)?;
    check(back == words, "a get returns what was put")?;
    window.accumulate(&words, next, there, sum)?;
    window.get_accumulate(&words, &mut back, next, there, sum)?;
    check(back.iter().zip(&words).all(|(back, word)| *back == 2 * word), "an update returns the old elements")?;
    window.request_put(&words[..], next, there)?.wait()?;
    window.request_accumulate(&words, next, there, sum)?.wait()?;
    let old = window.request_get_accumulate(&words[..4], next, there, sum)?.wait()?;
    check(old == [2, 4, 6, 8], "so do requests")?;
    let sums = window.request_get::<u64>(5, next, there)?.wait()?;
    check(sums == [3, 6, 9, 12, 10], "and gets")?;
    let every = Datatype::of::<u64>().vector(2, 2, 2)?;
    window.put_typed(&[7_u64; 4], next, there, 1, &every)?;
    window.accumulate_typed(&[1_u64; 4], next, there, 1, &every, sum)?;
    window.flush(next)?;
    let mut four = [0_u64; 4];
    window.get_typed(&mut four, next, there, 1, &every)?;
    check(four == [8; 4], "datatypes span pieces")?;
    window.put(&[0x0102_0304_0506_0708_u64], next, there + 47_984)?;
    window.flush(next)?;
    let outside = Err(WindowError::OutOfBounds(next));
    let cut = there + 47_984;
    check(window.accumulate(&[1_u32; 2], next, cut, sum) == Ok(()), "elements that end at the border")?;
    window.flush(next)?;
    check(window.accumulate(&[1_u64], next, cut, sum) == outside, "an element in two pieces")?;
    check(window.get_accumulate(&[1_u64], &mut [0], next, cut, sum) == outside, "and its old value")?;
    check(window.fetch_and_op(1_u64, next, cut, sum).map(|_| ()) == outside, "and one alone")?;
    check(window.compare_and_swap(1_u64, 1, next, cut).map(|_| ()) == outside, "and swapped")?;
    check(window.request_accumulate(&[1_u64], next, cut, sum).map(|_| ()) == outside, "and with a request")?;
    let column = Datatype::of::<u64>().vector(2, 1, 2)?;
    let typed = window.accumulate_typed(&[1_u64; 2], next, cut - 16, 1, &column, sum);
    check(typed == outside, "and in a block, before another is changed")?;
    check(window.put(&[9_u8; 24], next, there + 47_976) == outside, "a hole behind several pieces")?;
    check(window.get(&mut [9_u8; 24], next, there + 47_976) == outside, "and none is read")?;
    let mut last = [0_u64; 2];
    window.get(&mut last, next, there + 47_976)?;
    check(last == [0, 0x0102_0305_0506_0709], "nothing else was touched")?;
    window.free()?;
    check(memory[..5] == [8, 8, 8, 8, 10] && memory[4999] == 10_000, "the memory holds it")
}

/// Ranks poll their own memory, to which others write by requests, in each way that a program may poll.
fn polled(world: &World) -> Outcome {
    let mut memory = vec![0_u64; 4];
    let start = NonNull::from(memory.as_mut_slice()).cast::<u8>();
    // SAFETY: the vector is not used before the window is freed.
    let window = unsafe { world.create_window(start, 32) }?;
    let (own, size) = (world.rank(), world.size());
    let next = Rank((own.0 + 1) % size);
    let read = || window.fetch_and_op(0_u64, own, 0, AccumulateOperation::NoOp);
    // Each rank gives the next one the number that it has got, from rank 0 on: a rank polls meanwhile.
    let ways: [&dyn Fn() -> Result<u64, WindowError>; 5] = [
        &read,
        &|| window.flush(own).and_then(|()| read()),
        &|| window.flush_all().and_then(|()| read()),
        &|| window.flush_local(own).and_then(|()| read()),
        &|| {
            window.sync();
            let mut word = [0_u64];
            window.read(0, &mut word).map(|()| word[0])
        },
    ];
    for (round, poll) in (1_u64..).zip(ways) {
        let since = Instant::now();
        let await_number = || -> Outcome {
            while poll()? != round {
                check(since.elapsed() < Duration::from_secs(60), "a rank that polls answers")?;
                thread::yield_now();
            }
            Ok(())
        };
        if own != Rank(0) {
            await_number()?;
        }
        window.put(&[round], next, 0)?;
        window.flush(next)?;
        await_number()?;
        window.fence()?;
    }
    window.free()?;
    check(memory[0] == 5, "the last number")
}

/// Each rank polls its own memory under its own lock, which the previous rank needs to write there.
fn contended(world: &World) -> Outcome {
    let mut memory = vec![0_u64; 1];
    let start = NonNull::from(memory.as_mut_slice()).cast::<u8>();
    // SAFETY: the vector is not used before the window is freed.
    let window = unsafe { world.create_window(start, 8) }?;
    let own = world.rank();
    let next = Rank((own.0 + 1) % world.size());
    for round in 1..40_u64 {
        window.lock(LockKind::Exclusive, next)?;
        window.put(&[round], next, 0)?;
        window.unlock(LockKind::Exclusive, next)?;
        let (since, mut word) = (Instant::now(), [0]);
        while word[0] != round {
            window.lock(LockKind::Exclusive, own)?;
            window.get(&mut word, own, 0)?;
            window.unlock(LockKind::Exclusive, own)?;
            check(since.elapsed() < Duration::from_secs(60), "a rank gets the lock")?;
        }
        world.barrier()?;
    }
    window.free()?;
    check(memory[0] == 39, "the last number")
}

/// Rank 1 computes, and makes no call of the library. Its progress thread executes the operations of rank 0 meanwhile.
/// In the mode `engine`, which has no such thread, the get does not end before the computation does: this shows that
/// nothing else executes the operations, and that the test can fail.
fn computing(world: &World, has_thread: bool) -> Outcome {
    const TARGET: Rank = Rank(1);
    let window = world.allocate_window(24)?;
    window.write(0, &[11_u64, 12, 13])?;
    // Rank 1 leaves the barrier, and begins to compute, later than this.
    let since = Instant::now();
    world.barrier()?;
    if world.rank() == TARGET {
        let begun = Instant::now();
        while begun.elapsed() < COMPUTING {}
    } else {
        check(!window.is_direct(TARGET), "the target executes the operations")?;
        thread::sleep(LEAVING);
        let mut got = [0_u64];
        window.get(&mut got, TARGET, 0)?;
        let first = since.elapsed();
        window.put(&[21_u64], TARGET, 8)?;
        window.flush(TARGET)?;
        let old = window.fetch_and_op(5_u64, TARGET, 16, SystemOperation::sum())?;
        let last = since.elapsed();
        check(got == [11] && old == 13, "results of operations on a rank that computes")?;
        let is_right = if has_thread { last < SERVED_WITHIN } else { first >= COMPUTING };
        check(is_right, &format!("with a thread: {has_thread}; the first ended after {first:?}, the last {last:?}"))?;
    }
    window.fence()?;
    let mut own = [0_u64; 3];
    window.read(0, &mut own)?;
    let wanted = if world.rank() == TARGET { [11, 21, 18] } else { [11, 12, 13] };
    check(own == wanted, "the window holds what was put and added")?;
    window.free()?;
    Ok(())
}

/// Rank 1 dies amid operations on it.
fn death(world: &World) -> Outcome {
    let window: Window = world.allocate_window(1 << 16)?;
    if world.rank() == Rank(1) {
        window.get(&mut [0_u8; 100], Rank(0), 0)?;
        kill_process(getpid(), Signal::KILL)?;
    }
    let direct = window.is_direct(Rank(1));
    for i in 0_u64.. {
        let done = match i % 3 {
            0 => window.fetch_and_op(1_u64, Rank(1), 0, SystemOperation::sum()).map(|_| ()),
            1 => window.put(&[1_u8; 3000], Rank(1), 64).and_then(|()| window.flush(Rank(1))),
            _ => window.get(&mut [0_u8; 40_000], Rank(1), 64),
        };
        match done {
            // What is mapped stays: locks and fences report the failure.
            Ok(()) if direct => break,
            Ok(()) => {}
            Err(
                WindowError::Failed(Failure::PeerFailed(Rank(1)))
                | WindowError::Unknown(Rank(1))
                | WindowError::Partial(Rank(1)),
            ) => break,
            Err(error) => return Err(error.into()),
        }
    }
    match window.fence() {
        Err(_) => Ok(()),
        Ok(()) => Err("a fence with a failed rank".into()),
    }
}

/// Rank 1 stops in a fence, and is killed while rank 2 waits for an operation on it. Rank 0 can still see the memory of
/// rank 1.
fn fenced(world: &World) -> Outcome {
    let window: Window = world.allocate_window(8)?;
    let mut process = [0];
    match world.rank() {
        Rank(0) => {
            world.receive_into(&mut process[..], Rank(1), Tag(0))?;
            at(400, Pid::from_raw(process[0]).ok_or("a process")?, Signal::KILL);
        }
        Rank(1) => {
            world.send(&[getpid().as_raw_nonzero().get()], Rank(0), Tag(0))?;
            at(100, getpid(), Signal::STOP);
        }
        _ => {
            thread::sleep(Duration::from_millis(200));
            window.accumulate(&[1_u64], Rank(1), 0, SystemOperation::sum())?;
        }
    }
    match window.fence() {
        Err(_) => Ok(()),
        Ok(()) => Err("a fence that lacks an operation".into()),
    }
}

/// Sends a process a signal after some milliseconds.
fn at(after: u64, process: Pid, signal: Signal) {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(after));
        kill_process(process, signal)
    });
}
