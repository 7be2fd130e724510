//! Regions: memory that ranks register by themselves, accessed by key over shared memory, over datagrams that are lost, and
//! over both. This program is its rank program, too.

#[path = "program/one_sided.rs"]
mod one_sided;
mod program;

use core::error::Error;
use core::ptr::NonNull;
use core::time::Duration;
use std::process::ExitCode;
use std::{env, thread};

use one_sided::{Outcome, check, everywhere, expect_death, pattern};
use rustix::process::{Signal, getpid, kill_process};
use unisono::collective::SystemOperation;
use unisono::raw::statistics;
use unisono::zerocopy::{FromBytes, IntoBytes};
use unisono::{AccumulateOperation, Failure, RKey, Rank, Region, RemoteRegion, Rights, Tag, WindowError, World};

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        return play();
    }
    program::run_tests(&[
        ("data_is_put_and_got", || everywhere("data")),
        ("updates_are_atomic", || everywhere("updates")),
        ("memory_of_programs_is_accessed", || everywhere("registered")),
        ("rights_are_kept", || everywhere("rights")),
        ("forged_keys_are_refused", || everywhere("forged")),
        ("revoked_regions_are_not_accessed", || everywhere("revoked")),
        ("regions_of_one_use_end_with_it", || everywhere("once")),
        ("refusals_are_reported_by_their_region", || everywhere("attributed")),
        ("ranks_without_regions_refuse", || everywhere("stray")),
        ("ranks_that_poll_their_region_let_others_write_it", || everywhere("polled")),
        ("owner_that_dies_ends_operations", || expect_death("death")),
    ])
}

fn play() -> ExitCode {
    let part = env::args().nth(1).unwrap_or_default();
    let world = World::join().expect("a job");
    let played = match &*part {
        "data" => data(&world),
        "updates" => updates(&world),
        "registered" => registered(&world),
        "rights" => rights(&world),
        "forged" => forged(&world),
        "revoked" => revoked(&world),
        "once" => once(&world),
        "attributed" => attributed(&world),
        "stray" => stray(&world),
        "polled" => polled(&world),
        _ => death(&world),
    };
    if let Err(error) = played {
        eprintln!("rank {}: {error}", world.rank());
        return ExitCode::FAILURE;
    }
    if part == "death" {
        println!("failed");
        let _ = world.finish();
    } else {
        println!("right");
        world.finish().expect("all ranks finish");
    }
    ExitCode::SUCCESS
}

fn all() -> Rights {
    Rights::READ | Rights::WRITE | Rights::ATOMIC
}

fn keys(world: &World, region: &Region) -> Result<Vec<RKey>, Box<dyn Error>> {
    let mut keys = vec![RKey::NONE; world.size() as usize];
    world.all_gather_into(&[region.rkey()], &mut keys[..])?;
    Ok(keys)
}

/// The regions of all ranks, by their keys.
fn import(world: &World, region: &Region) -> Result<Vec<RemoteRegion>, Box<dyn Error>> {
    let keys = keys(world, region)?;
    Ok(keys.iter().map(|key| world.import_region(key)).collect::<Result<_, _>>()?)
}

/// Each rank writes to the next one's region at odd places, and reads it back.
fn data(world: &World) -> Outcome {
    const BYTES: usize = 200_001;
    let region = world.allocate_region(BYTES, Rights::READ | Rights::WRITE)?;
    let all = import(world, &region)?;
    let (rank, size) = (world.rank().0, world.size());
    let next = &all[((rank + 1) % size) as usize];
    check(next.rank() == Rank((rank + 1) % size) && next.bytes() == BYTES, "the key names rank and length")?;
    for (offset, bytes) in [(0, 1), (7, 8), (3, 1400), (1, 5000), (13, 70_000), (0, BYTES), (BYTES, 0)] {
        next.put(&pattern(rank, bytes), offset)?;
        next.flush()?;
        world.barrier()?;
        let mut own = vec![0; bytes];
        region.read(offset, &mut own)?;
        check(own == pattern((rank + size - 1) % size, bytes), "the region holds what was put")?;
        let mut there = vec![0; bytes];
        next.get(&mut there, offset)?;
        check(there == pattern(rank, bytes), "a get returns what was put")?;
        world.barrier()?;
    }
    let puts = [0, 90_000].map(|offset| next.request_put(&pattern(rank + 1, 4000), offset));
    puts.into_iter().try_for_each(|put| put?.wait())?;
    let gets = [0, 90_000].map(|offset| next.request_get::<u8>(4000, offset));
    for get in gets {
        check(get?.wait()? == pattern(rank + 1, 4000), "requests end one by one")?;
    }
    let outside = next.put(&[1_u8; 2], BYTES - 1);
    check(matches!(outside, Err(WindowError::OutOfBounds(_))), "a put beyond the end")?;
    world.barrier()?;
    region.revoke()?;
    Ok(())
}

fn updates(world: &World) -> Outcome {
    const ROUNDS: u64 = 300;
    let region = world.allocate_region(64, all())?;
    let counters = import(world, &region)?;
    let sum = SystemOperation::sum();
    for round in 0..ROUNDS {
        let to = &counters[round as usize % counters.len()];
        to.fetch_and_op(1_u64, 0, sum)?;
        to.accumulate(&[2_u32, 3], 8, sum)?;
        // A spin on a word of any rank.
        loop {
            let old = to.fetch_and_op(0_u64, 16, AccumulateOperation::NoOp)?;
            if to.compare_and_swap(old, old + 1, 16)? == old {
                break;
            }
        }
    }
    counters.iter().try_for_each(RemoteRegion::flush)?;
    world.barrier()?;
    let (mut count, mut pair, mut spun) = ([0_u64], [0_u32; 2], [0_u64]);
    region.read(0, &mut count)?;
    region.read(8, &mut pair)?;
    region.read(16, &mut spun)?;
    let mine = (0..ROUNDS).filter(|round| round % u64::from(world.size()) == u64::from(world.rank().0)).count() as u64;
    let each = mine * u64::from(world.size());
    check((count, spun) == ([each], [each]), "every update counts once")?;
    check(pair == [2 * each as u32, 3 * each as u32], "and so does every accumulate")?;
    let misaligned = counters[0].fetch_and_op(1_u64, 4, sum);
    check(matches!(misaligned, Err(WindowError::Misaligned(Rank(0)))), "a misaligned update")?;
    world.barrier()?;
    Ok(())
}

fn registered(world: &World) -> Outcome {
    let (rank, size) = (world.rank().0, world.size());
    let mut memory = vec![0_u8; 50_000];
    let start = NonNull::from(memory.as_mut_slice()).cast();
    // SAFETY: the memory is not used otherwise before the region is revoked.
    let region = unsafe { world.register_region(start, memory.len(), Rights::WRITE) }?;
    let all = import(world, &region)?;
    let next = &all[((rank + 1) % size) as usize];
    next.put(&pattern(rank, 49_000), 500)?;
    next.flush()?;
    world.barrier()?;
    region.revoke()?;
    check(memory[500..49_500] == pattern((rank + size - 1) % size, 49_000), "the memory holds what was put")
}

fn rights(world: &World) -> Outcome {
    let sum = SystemOperation::sum();
    for (granted, [reads, writes, updates]) in [
        (Rights::READ, [true, false, false]),
        (Rights::WRITE, [false, true, false]),
        (Rights::ATOMIC, [false, false, true]),
    ] {
        let region = world.allocate_region(64, granted)?;
        for there in import(world, &region)? {
            let refused = Err(WindowError::NoRight(there.rank()));
            let got = there.get(&mut [0_u64], 0);
            check(got == if reads { Ok(()) } else { refused }, "a get")?;
            let put = there.put(&[0_u64], 0).and_then(|()| there.flush());
            check(put == if writes { Ok(()) } else { refused }, "a put")?;
            let updated = there.fetch_and_op(0_u64, 0, sum).map(|_| ());
            check(updated == if updates { Ok(()) } else { refused }, "an update")?;
        }
        world.barrier()?;
        region.revoke()?;
    }
    Ok(())
}

/// The value of a statistic of this rank.
fn statistic(world: &World, name: &str) -> u64 {
    let place = statistics().iter().position(|statistic| statistic.name == name).expect("a statistic");
    world.raw_statistics().value(place).expect("a value")
}

/// Keys with any bit changed give access to nothing. An adapter compares its own 32 bits only.
fn forged(world: &World) -> Outcome {
    let region = world.allocate_region(64, all())?;
    region.write(0, &[7_u64; 8])?;
    let keys = keys(world, &region)?;
    let honest = keys[keys.len() - 1];
    for bit in 0..8 * size_of::<RKey>() {
        let mut bytes = [0_u8; size_of::<RKey>()];
        bytes.copy_from_slice(honest.as_bytes());
        bytes[bit / 8] ^= 1 << (bit % 8);
        let forged = RKey::read_from_bytes(&bytes).expect("as long");
        // It may name a rank that does not exist, or say another length.
        let Ok(there) = world.import_region(&forged) else { continue };
        let posted = statistic(world, "native_posted");
        let written = there.put(&[0_u64], 0).and_then(|()| there.flush());
        let is_key = bit < 64 || (256..272).contains(&bit) || (288..320).contains(&bit);
        let is_native = written.is_ok() && statistic(world, "native_posted") > posted;
        check(
            !is_key || is_native || matches!(written, Err(WindowError::Revoked(_))),
            &format!("a put under another key: {bit}, {written:?}"),
        )?;
        // Bytes of the length, and of the adapter's key, grant nothing.
        let beyond = there.put(&[0_u64; 9], 0).and_then(|()| there.flush());
        check(beyond.is_err(), "a put beyond the end")?;
    }
    world.barrier()?;
    let mut own = [0_u64; 8];
    region.read(0, &mut own)?;
    check(own[1..] == [7; 7], "nothing else was written")?;
    world.barrier()?;
    let there = world.import_region(&honest)?;
    there.put(&[9_u64], 8)?;
    there.flush()?;
    world.barrier()?;
    Ok(())
}

fn revoked(world: &World) -> Outcome {
    let first = world.allocate_region(64, all())?;
    let before = import(world, &first)?;
    for there in &before {
        there.put(&[1_u64], 0)?;
        there.flush()?;
    }
    world.barrier()?;
    first.revoke()?;
    // It may take the place of the first.
    let second = world.allocate_region(64, all())?;
    world.barrier()?;
    for there in &before {
        let refused = WindowError::Revoked(there.rank());
        check(there.get(&mut [0_u64], 0) == Err(refused), "a get of a revoked region")?;
        let put = there.put(&[2_u64], 0).and_then(|()| there.flush());
        check(put == Err(refused), "a put to a revoked region")?;
        check(there.fetch_and_op(1_u64, 0, SystemOperation::sum()) == Err(refused), "an update of a revoked region")?;
    }
    world.barrier()?;
    let mut own = [1_u64; 8];
    second.read(0, &mut own)?;
    check(own == [0; 8], "another region is not touched")
}

fn once(world: &World) -> Outcome {
    let (rank, size) = (world.rank().0, world.size());
    let region = world.allocate_region(64, Rights::WRITE | Rights::ONCE)?;
    let all = import(world, &region)?;
    let next = &all[((rank + 1) % size) as usize];
    next.put(&[u64::from(rank) + 1; 8], 0)?;
    next.flush()?;
    let again = next.put(&[0_u64; 8], 0).and_then(|()| next.flush());
    check(again == Err(WindowError::Revoked(next.rank())), "a second use")?;
    world.barrier()?;
    let mut own = [0_u64; 8];
    region.read(0, &mut own)?;
    check(own == [u64::from((rank + size - 1) % size) + 1; 8], "the first use")?;
    region.revoke()?;
    type Use = fn(&RemoteRegion) -> Result<u64, WindowError>;
    let get: Use = |there| {
        let mut word = [1_u64];
        there.get(&mut word, 8).map(|()| word[0])
    };
    let uses: [(Rights, Use); 3] = [
        (Rights::READ, get),
        (Rights::ATOMIC, |there| there.fetch_and_op(5_u64, 8, SystemOperation::sum())),
        (Rights::ATOMIC, |there| {
            there.accumulate(&[5_u64], 8, SystemOperation::sum()).and_then(|()| there.flush()).map(|()| 0)
        }),
    ];
    for (right, once) in uses {
        let region = world.allocate_region(64, right | Rights::ONCE)?;
        let all = import(world, &region)?;
        let next = &all[((rank + 1) % size) as usize];
        check(once(next) == Ok(0), "a use that is answered")?;
        check(once(next) == Err(WindowError::Revoked(next.rank())), "and a second one")?;
        world.barrier()?;
        region.revoke()?;
    }
    Ok(())
}

/// A refused put fails the flush of its region, and of no other.
fn attributed(world: &World) -> Outcome {
    let (rank, size) = (world.rank().0, world.size());
    let next = ((rank + 1) % size) as usize;
    let regions = [Rights::READ, all(), Rights::READ].map(|rights| world.allocate_region(64, rights));
    let [first, good, second] = regions;
    let (first, good, second) = (first?, good?, second?);
    let window = world.allocate_window(64)?;
    let [a, b, c] = [import(world, &first)?, import(world, &good)?, import(world, &second)?];
    let (a, b, c) = (&a[next], &b[next], &c[next]);
    let mut forged = [0_u8; size_of::<RKey>()];
    forged.copy_from_slice(keys(world, &good)?[next].as_bytes());
    forged[0] ^= 1;
    let forged = world.import_region(&RKey::read_from_bytes(&forged).expect("as long"))?;
    let refused = Err(WindowError::NoRight(a.rank()));
    let put = |there: &RemoteRegion| there.put(&[1_u64], 0);
    let before = statistic(world, "operations_refused");
    let counted = || statistic(world, "operations_refused") - before;
    // On this rank's own memory the put itself fails.
    if size == 1 {
        check(put(a) == refused && put(b) == Ok(()), "a put without the right")?;
    } else {
        check(put(a).and_then(|()| put(b)) == Ok(()), "puts are checked by the target")?;
        check(b.flush() == Ok(()) && a.flush() == refused, "the flush of the refused put fails, and no other")?;
        check(a.flush() == Ok(()), "once")?;
        check(put(a).and_then(|()| put(c)).and_then(|()| put(c)) == Ok(()), "puts are checked by the target")?;
        let flushed = [c.flush(), a.flush()];
        check(flushed == [refused; 2], &format!("each refused put fails its flush: {flushed:?}"))?;
        check(b.flush() == Ok(()), "and no other")?;
        check(counted() == 4, "every refused message is counted")?;
        let posted = statistic(world, "native_posted");
        put(&forged).and_then(|()| put(b))?;
        let flushed = [b.flush(), forged.flush()];
        // An adapter compares no key of 64 bits.
        let is_native = flushed[1].is_ok() && statistic(world, "native_posted") > posted;
        let expected = [Ok(()), if is_native { Ok(()) } else { Err(WindowError::Revoked(a.rank())) }];
        check(flushed == expected, &format!("nor does another key of the same region: {flushed:?}"))?;
        for _ in 0..100 {
            put(a)?;
            let flushed = thread::scope(|scope| {
                let other = scope.spawn(|| a.flush());
                [a.flush(), other.join().expect("no panic")]
            });
            check(flushed.contains(&refused), "one of two flushes at once returns the error")?;
        }
        put(a)?;
    }
    window.fence()?;
    window.put(&[1_u64], Rank(next as u32), 0)?;
    check(window.flush(Rank(next as u32)) == Ok(()), "nor that of a window")?;
    window.free()?;
    Ok(())
}

/// A key that names a rank that has no regions, as a damaged one may.
fn stray(world: &World) -> Outcome {
    let mut keys = [RKey::NONE];
    if world.rank() == Rank(0) {
        let region = world.allocate_region(64, all())?;
        keys = [region.rkey()];
        region.revoke()?;
    }
    world.broadcast_into(&mut keys, Rank(0))?;
    let mut bytes = [0_u8; size_of::<RKey>()];
    bytes.copy_from_slice(keys[0].as_bytes());
    let rank_at = size_of::<RKey>() - 4;
    bytes[rank_at..].copy_from_slice(&(world.size() - 1).to_ne_bytes());
    let there = world.import_region(&RKey::read_from_bytes(&bytes).expect("as long"))?;
    let refused = Err(WindowError::Revoked(there.rank()));
    check(there.put(&[1_u64], 0).and_then(|()| there.flush()) == refused, "a put")?;
    check(there.get(&mut [1_u64], 0) == refused, "a get")?;
    world.barrier()?;
    Ok(())
}

/// Each rank waits for a word that the one before writes, by reading its own region.
fn polled(world: &World) -> Outcome {
    let region = world.allocate_region(8, Rights::WRITE)?;
    let all = import(world, &region)?;
    let next = &all[((world.rank().0 + 1) % world.size()) as usize];
    for round in 1..=20_u64 {
        next.put(&[round], 0)?;
        let mut word = [0_u64];
        while word[0] < round {
            region.read(0, &mut word)?;
        }
    }
    next.flush()?;
    world.barrier()?;
    Ok(())
}

fn death(world: &World) -> Outcome {
    let region = world.allocate_region(1 << 20, all())?;
    let regions = import(world, &region)?;
    let last = Rank(world.size() - 1);
    if world.rank() == last {
        // All ranks have its key.
        (0..last.0).try_for_each(|rank| world.receive_into(&mut [0_u8], Rank(rank), Tag(0)).map(drop))?;
        thread::sleep(Duration::from_millis(100));
        let _ = kill_process(getpid(), Signal::KILL);
    }
    world.send(&[0_u8], last, Tag(0))?;
    let there = &regions[last.0 as usize];
    let failure = loop {
        let puts = there.put(&[1_u8; 100_000], 0).and_then(|()| there.flush());
        let got = puts.and_then(|()| there.get(&mut [0_u8; 5000], 0));
        if let Err(failure) = got.and_then(|()| there.fetch_and_op(1_u64, 0, SystemOperation::sum()).map(|_| ())) {
            break failure;
        }
    };
    let is_named = matches!(
        failure,
        WindowError::Failed(Failure::PeerFailed(rank)) | WindowError::Partial(rank) | WindowError::Unknown(rank)
            if rank == last
    );
    check(is_named, &format!("the failure names the rank: {failure}"))
}
