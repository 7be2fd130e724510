//! Requests of messages and collectives, started once and again and again, and sends from a buffer. This program is its
//! rank program, too.

mod program;

use std::env;
use std::process::ExitCode;

use program::{expect, run};
use unisono::prelude::*;

const MEANS: [&str; 4] = ["-n 1", "-n 3 --device shm", "-n 4 --device udp --loss 3%", "-n 4 --nodes 2"];
/// Message lengths in words: in a ring entry, in the bulk area, by rendezvous.
const KINDS: [usize; 3] = [1, 700, 40_000];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let ended = World::join().map_err(Error::from).and_then(|world| {
            match env::args().nth(1).as_deref() {
                Some("together") => together(&world)?,
                part => panic!("{part:?} is no part"),
            }
            Ok(world.finish()?)
        });
        return ended.map_or_else(|error| panic!("{error:?}"), |()| ExitCode::SUCCESS);
    }
    program::run_tests(&[("messages_and_collectives_are_waited_for_together", || everywhere("together"))])
}

fn everywhere(part: &str) {
    MEANS.iter().for_each(|means| expect(&run(means, part), 0, &[]));
}

/// The ranks after and before this one.
fn neighbours(world: &World) -> [Rank; 2] {
    let (own, size) = (world.rank().0, world.size());
    [Rank((own + 1) % size), Rank((own + size - 1) % size)]
}

fn data(rank: Rank, words: usize, round: u32) -> Vec<u32> {
    (0..words as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ (rank.0 << 8) ^ round).collect()
}

fn together(world: &World) -> Result<(), Error> {
    let ([next, previous], size) = (neighbours(world), world.size());
    for words in KINDS {
        let (sent, mut received, mut total) = (data(world.rank(), words, 0), vec![0; words], vec![1; words]);
        world.scope(|scope| {
            let total = scope.immediate_all_reduce_in_place(&mut total, SystemOperation::sum())?;
            let receive = scope.immediate_receive_into(&mut received, previous, Tag(1))?;
            let barrier = scope.immediate_barrier()?;
            let send = scope.immediate_send(&sent, next, Tag(1))?;
            let all: [&dyn AnyRequest; 4] = [&total, &receive, &barrier, &send];
            let mut first = wait_some(all)?;
            first.extend(core::iter::from_fn(|| wait_any(all).transpose()).collect::<Result<Vec<_>, _>>()?);
            first.sort_unstable_by_key(|(index, _)| *index);
            let status = Status { source: previous, tag: Tag(1), bytes: 4 * words };
            assert_eq!(first, [(0, Status::EMPTY), (1, status), (2, Status::EMPTY), (3, Status::EMPTY)]);
            Ok::<(), Error>(())
        })?;
        assert_eq!((received, total), (data(previous, words, 0), vec![size; words]));
    }
    Ok(())
}
