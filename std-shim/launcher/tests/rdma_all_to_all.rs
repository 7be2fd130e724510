//! Alltoalls by remote writes, between the processes of a job. This program is their rank program, too.

#[path = "program/death.rs"]
mod death;
mod program;

use core::time::Duration;
use std::env;
use std::process::ExitCode;
use std::thread;

use death::die_amid;
use program::{expect, run};
use unisono::collective::CollectiveError;
use unisono::{Communicator, Rank, World};

/// Elements of a block: one, some, and more than a datagram.
const LENGTHS: [usize; 4] = [1, 100, 1000, 40_000];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        match env::args().nth(1).as_deref() {
            Some("right") => right(&world),
            Some("differ") => differ(&world),
            Some("die") => die(&world, env::args().nth(2).and_then(|seed| seed.parse().ok()).expect("a seed")),
            _ => panic!("a part"),
        }
        world.finish().expect("a good end");
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("every_block_arrives", every_block_arrives),
        ("ranks_of_one_node_use_a_schedule", ranks_of_one_node_use_a_schedule),
        ("a_rank_that_calls_something_else_is_named", a_rank_that_calls_something_else_is_named),
        ("survivors_name_the_dead_rank", survivors_name_the_dead_rank),
    ])
}

/// Blocks that the ranks wrote to others.
fn blocks_written(options: &str) -> u64 {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let algorithm = if options.contains("--alltoall") { "" } else { "--alltoall rdma" };
    expect(&run(&format!("{options} {algorithm} --stats-file {}", file.path().display()), "right"), 0, &[]);
    let text = std::fs::read_to_string(file.path()).expect("the statistics");
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
    lines.map(|line| line["blocks_written"].as_u64().expect("a number")).sum()
}

fn every_block_arrives() {
    for (ranks, means) in [
        (2, "--device udp"),
        (5, "--device udp --loss 3% --reorder 3% --dup 2%"),
        (6, "--nodes 2"),
        (7, "--nodes 3 --progress hybrid"),
        (3, "--device udp --progress thread"),
        (4, "--device udp --loss 2% --alltoall hybrid:k=2"),
    ] {
        // On the World: of each length one call of its own, two at once, and three rounds of a persistent one.
        let least = LENGTHS.len() as u64 * (1 + 2 + 3) * ranks * (ranks - 1);
        let written = blocks_written(&format!("-n {ranks} {means}"));
        assert!(written >= least, "{means}: {written} of {least} blocks");
    }
}

fn ranks_of_one_node_use_a_schedule() {
    assert_eq!(blocks_written("-n 3"), 0);
}

fn a_rank_that_calls_something_else_is_named() {
    for means in ["-n 4 --device udp", "-n 4 --nodes 2"] {
        expect(&run(&format!("{means} --alltoall rdma"), "differ"), 0, &[]);
    }
}

fn survivors_name_the_dead_rank() {
    for seed in 0..8 {
        let means = ["--device udp", "--nodes 2"][seed % 2];
        let options = format!("-n 5 {means} --on-death tell --alltoall rdma");
        expect(&run(&options, &format!("die {seed}")), 137, &["named"; 4]);
    }
}

/// What a rank sends to another one in a round.
fn block(from: u32, to: u32, round: u32, elements: usize) -> impl Iterator<Item = u32> {
    (0..elements as u32).map(move |i| (from << 24 | to << 16 | round << 8).wrapping_add(i.wrapping_mul(0x9e37_79b1)))
}

fn given(of: &Communicator, round: u32, elements: usize) -> Vec<u32> {
    (0..of.size()).flat_map(|to| block(of.rank().0, to, round, elements)).collect()
}

fn check(of: &Communicator, round: u32, elements: usize, taken: &[u32]) {
    let wanted = (0..of.size()).flat_map(|from| block(from, of.rank().0, round, elements));
    assert!(taken.iter().copied().eq(wanted), "round {round}, {elements} elements");
}

fn right(world: &World) {
    let odd = world.split_by_color(world.rank().0 % 2).expect("a part").expect("a member");
    let duplicate = world.duplicate().expect("a duplicate");
    for elements in LENGTHS {
        for of in [world, &odd] {
            let mut taken = vec![0; elements * of.size() as usize];
            if of.rank().0 == 1 {
                // The others write into the output of a late rank only after it has entered.
                thread::sleep(Duration::from_micros(500));
            }
            of.all_to_all_into(&given(of, 1, elements), &mut taken).expect("an alltoall");
            check(of, 1, elements, &taken);
        }

        // Two at once on the World, and one on another communicator.
        let [first, second] = [2, 3].map(|round| given(world, round, elements));
        let [mut one, mut two, mut other] = [(); 3].map(|()| vec![0; elements * world.size() as usize]);
        world
            .scope(|scope| {
                let first = scope.immediate_all_to_all_into(&first, &mut one)?;
                let second = scope.immediate_all_to_all_into(&second, &mut two)?;
                duplicate.all_to_all_into(&given(world, 4, elements), &mut other)?;
                second.wait()?;
                first.wait()
            })
            .expect("three alltoalls");
        check(world, 2, elements, &one);
        check(world, 3, elements, &two);
        check(world, 4, elements, &other);

        let mut sent = given(world, 5, elements);
        let mut taken = vec![0; sent.len()];
        world
            .scope(|scope| {
                let mut rounds = scope.persistent_all_to_all_into(&mut sent, &mut taken)?;
                for round in 5..8 {
                    rounds.data()?.copy_from_slice(&given(world, round, elements));
                    rounds.start()?;
                    rounds.wait()?;
                    check(world, round, elements, rounds.result()?);
                }
                Ok::<_, CollectiveError>(())
            })
            .expect("three rounds");
    }
}

/// One rank exchanges blocks of another length: an error for every rank.
fn differ(world: &World) {
    let elements = if world.rank() == Rank(2) { 1 } else { 2 };
    let duplicate = world.duplicate().expect("a duplicate");
    world.barrier().expect("a barrier");
    let ended = duplicate.all_to_all_into(&given(world, 0, elements), &mut vec![0; elements * world.size() as usize]);
    assert!(matches!(ended, Err(CollectiveError::Disagrees { .. } | CollectiveError::Missing { .. })), "{ended:?}");
    world.barrier().expect("the World goes on");
}

/// A rank dies amid alltoalls.
fn die(world: &World, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (victim, after) = (Rank(random.u32(..world.size())), Duration::from_micros(random.u64(200..20_000)));
    die_amid(world, victim, after, |call| {
        let (round, elements) = (call & 0x7f, LENGTHS[call as usize % LENGTHS.len()]);
        let mut taken = vec![0; elements * world.size() as usize];
        world.all_to_all_into(&given(world, round, elements), &mut taken)?;
        check(world, round, elements, &taken);
        Ok(())
    });
}
