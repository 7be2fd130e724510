//! Requests of messages and collectives, started once and again and again, and sends from a buffer. This program is its
//! rank program, too.

extern crate alloc;

mod program;

use alloc::sync::Arc;
use std::env;
use std::process::ExitCode;

use program::{expect, run};
use unisono::prelude::*;
use unisono::{Datatype, Field};

const MEANS: [&str; 4] = ["-n 1", "-n 3 --device shm", "-n 4 --device udp --loss 3%", "-n 4 --nodes 2"];
/// Message lengths in words: in a ring entry, in the bulk area, by rendezvous.
const KINDS: [usize; 3] = [1, 700, 40_000];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let ended = World::join().map_err(Error::from).and_then(|world| {
            match env::args().nth(1).as_deref() {
                Some("together") => together(&world)?,
                Some("persistent") => {
                    persistent(&world)?;
                    wildcards(&world)?;
                }
                Some("buffered") => buffered(&world)?,
                Some("exchanges") => {
                    typed_blocks(&world)?;
                    graphs(&world)?;
                    attributes(&world)?;
                }
                part => panic!("{part:?} is no part"),
            }
            Ok(world.finish()?)
        });
        return ended.map_or_else(|error| panic!("{error:?}"), |()| ExitCode::SUCCESS);
    }
    program::run_tests(&[
        ("messages_and_collectives_are_waited_for_together", || everywhere("together")),
        ("persistent_messages_are_started_again_and_again", || everywhere("persistent")),
        ("buffered_sends_return_before_their_receives_are_posted", || everywhere("buffered")),
        ("blocks_are_exchanged_with_all_and_with_neighbours", || everywhere("exchanges")),
    ])
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

fn persistent(world: &World) -> Result<(), Error> {
    let [next, previous] = neighbours(world);
    let columns = |matrix: &mut [u32]| matrix.chunks(3).map(|row| row[1]).collect::<Vec<u32>>();
    for words in KINDS {
        let mut matrices = [vec![0; 3 * words], vec![0; 3 * words]];
        let [(sent, received), (plain, other)] = [(0, 0), (1, 1)].map(|_| (vec![0; words], vec![0; words]));
        let (mut plain, mut other, mut ready, mut posted) = (plain, other, sent, received);
        let [from, into] = &mut matrices;
        let column = Vector::new(words, 1, 3);
        let mut from = ViewMut::new(&mut from[1..], 1, column)?;
        let mut into = ViewMut::new(&mut into[1..], 1, column)?;
        world.scope(|scope| {
            let mut send = scope.persistent_send(&mut from, next, Tag(1))?;
            let mut receive = scope.persistent_receive_into(&mut into, previous, Tag(1))?;
            let mut synchronous = scope.persistent_synchronous_send(&mut plain, next, Tag(2))?;
            let mut from_any = scope.persistent_receive_into(&mut other, None, Tag(2))?;
            let mut ready = scope.persistent_ready_send(&mut ready, next, Tag(3))?;
            let mut posted = scope.persistent_receive_into(&mut posted, previous, Tag(3))?;
            assert_eq!((send.wait(), receive.test()), (Ok(Status::EMPTY), Some(Ok(Status::EMPTY))), "none was started");
            for round in 0..5 {
                let values = data(world.rank(), words, round);
                send.data()?.iter_mut().step_by(3).zip(&values).for_each(|(to, value)| *to = *value);
                synchronous.data()?.copy_from_slice(&values);
                ready.data()?.copy_from_slice(&values);
                let all: [&mut dyn AnyPersistent; 6] =
                    [&mut receive, &mut from_any, &mut posted, &mut send, &mut synchronous, &mut ready];
                start_all(all)?;
                let again: [&mut dyn AnyPersistent; 1] = [&mut synchronous];
                let failed = RequestFailed { index: 0, failure: Failure::UnderWay.into() };
                assert_eq!(start_all(again), Err(failed));
                assert_eq!((receive.data().err(), receive.start()), (Some(Failure::UnderWay), Err(Failure::UnderWay)));
                let all: [&dyn AnyRequest; 6] = [&receive, &from_any, &posted, &send, &synchronous, &ready];
                let statuses = match round {
                    0 => wait_all(all)?,
                    1 => {
                        let mut statuses = [Status::EMPTY; 6];
                        while let Some((index, status)) = wait_any(all)? {
                            statuses[index] = status;
                        }
                        statuses.to_vec()
                    }
                    2 => loop {
                        if let Some(ended) = test_all(all) {
                            break ended?;
                        }
                    },
                    3 => {
                        let mut ended = Vec::new();
                        while ended.len() < 6 {
                            ended.extend(wait_some(all)?);
                        }
                        ended.sort_unstable_by_key(|(index, _)| *index);
                        ended.into_iter().map(|(_, status)| status).collect()
                    }
                    _ => vec![
                        receive.wait()?,
                        from_any.wait()?,
                        posted.wait()?,
                        send.wait()?,
                        synchronous.wait()?,
                        ready.wait()?,
                    ],
                };
                let status = |tag| Status { source: previous, tag: Tag(tag), bytes: 4 * words };
                let empty = Status::EMPTY;
                assert_eq!(statuses, [status(1), status(2), status(3), empty, empty, empty]);
                let values = data(previous, words, round);
                let column: Vec<u32> = receive.data()?.iter().step_by(3).copied().collect();
                assert_eq!(
                    (column, from_any.data()?, posted.data()?),
                    (values.clone(), &mut *values.clone(), &mut *values.clone())
                );
            }
            // One that is under way is dropped, and one is withdrawn.
            receive.start()?;
            send.start()?;
            drop(send);
            from_any.start()?;
            assert!(from_any.cancel() && from_any.data().is_ok());
            Ok::<(), Error>(())
        })?;
        assert_eq!(columns(&mut matrices[1]), data(previous, words, 4));
        assert!(matrices[1].iter().step_by(3).all(|gap| *gap == 0));
        world.barrier()?;
    }
    Ok(())
}

/// A persistent receive from any rank, of the messages of all ranks, also those that are sent once.
fn wildcards(world: &World) -> Result<(), Error> {
    let (own, size, mut number, mut seen) = ([world.rank().0], world.size(), [0_u32], 0);
    world.barrier()?;
    world.scope(|scope| {
        let sends: Vec<_> =
            (0..size).map(|to| scope.immediate_send(&own, Rank(to), Tag(to))).collect::<Result<_, _>>()?;
        let mut receive = scope.persistent_receive_into(&mut number, None, None)?;
        for _ in 0..size {
            receive.start()?;
            let status = receive.wait()?;
            assert_eq!((status.tag, status.source), (Tag(world.rank().0), Rank(receive.data()?[0])));
            seen += 1 + status.source.0;
        }
        wait_all(&sends).map_err(Error::from)
    })?;
    assert_eq!(seen, size * (size + 1) / 2);
    world.barrier()?;
    Ok(())
}

/// Words of a message that waits for its receive, whatever the transport.
const LONG: usize = 100_000;

fn buffered(world: &World) -> Result<(), Error> {
    let ([next, previous], kept) = (neighbours(world), data(world.rank(), LONG, 0));
    let mut buffer = world.attach_buffer(vec![0; 4 * LONG + 4 * 700 + 8]);
    for round in 0..3 {
        for words in [1, 700, LONG] {
            buffer.buffered_send(&data(world.rank(), words, round), next, Tag(round))?;
        }
        // The receives are posted only after both barriers.
        world.barrier()?;
        if next != world.rank() {
            let more = buffer.buffered_send(&kept, next, Tag(99));
            assert!(matches!(more, Err(Failure::BufferFull { bytes: 400_000, .. })), "{more:?}");
        }
        world.barrier()?;
        for words in [1, 700, LONG] {
            let (values, _) = world.receive::<u32>(previous, Tag(round))?;
            assert_eq!(values, data(previous, words, round));
        }
        buffer.flush()?;
    }
    // A column, packed.
    buffer.buffered_send(&View::new(&kept, 1, Vector::new(5, 1, 1000))?, next, Tag(7))?;
    buffer.buffered_send::<u32>(&[], next, Tag(8))?;
    let column: Vec<u32> = data(previous, LONG, 0).into_iter().step_by(1000).take(5).collect();
    assert_eq!(world.receive::<u32>(previous, Tag(7))?.0, column);
    assert_eq!(world.receive::<u32>(previous, Tag(8))?.1.bytes, 0);
    let unknown = buffer.buffered_send(&[1_u8], Rank(world.size()), Tag(0));
    assert_eq!(unknown, Err(Failure::UnknownRank(Rank(world.size()))));
    let (sent, memory) = buffer.detach();
    sent?;
    assert_eq!(memory.len(), 402_808);
    Ok(())
}

/// Rank i's block for rank j has i + j + 1 columns of a matrix, which arrive as adjacent words.
fn typed_blocks(world: &World) -> Result<(), Error> {
    let (own, size, word) = (world.rank().0 as usize, world.size() as usize, Datatype::of::<u32>());
    for height in KINDS {
        let width = |rank: usize| own + rank + 1;
        let all: usize = (0..size).map(width).sum();
        let value = |from: usize, to: usize, round: u32| from as u32 * 100 + to as u32 * 10 + round;
        let starts: Vec<usize> = (0..size).map(|rank| (0..rank).map(width).sum()).collect();
        let columns: Vec<Datatype> =
            (0..size).map(|rank| word.vector(height, width(rank), all as isize).expect("columns")).collect();
        let column = |rank: usize| Field { count: 1, offset: 4 * starts[rank] as isize, datatype: &columns[rank] };
        let adjacent = |rank: usize| Field {
            count: height * width(rank),
            offset: (4 * height * starts[rank]) as isize,
            datatype: &word,
        };
        let sent_as: Vec<Field<'_>> = (0..size).map(column).collect();
        let received_as: Vec<Field<'_>> = (0..size).map(adjacent).collect();
        let fill = |matrix: &mut [u32], round: u32| {
            for row in matrix.chunks_mut(all) {
                (0..size).for_each(|to| row[starts[to]..][..width(to)].fill(value(own, to, round)));
            }
        };
        let check = |received: &[u32], round: u32| {
            for from in 0..size {
                let block = &received[height * starts[from]..][..height * width(from)];
                assert!(block.iter().all(|word| *word == value(from, own, round)), "{from} {round}");
            }
        };
        let (mut matrix, mut received, mut unrelated) = (vec![0; all * height], vec![0; all * height], [0_u8; 64]);
        fill(&mut matrix, 0);
        world.all_to_all_w_into(
            &TypedBlocks::new(&matrix, &sent_as)?,
            TypedBlocksMut::new(&mut received, &received_as)?,
        )?;
        check(&received, 0);
        fill(&mut matrix, 1);
        let sent = TypedBlocks::new(&matrix, &sent_as)?;
        let mut sum = [1_u32];
        world.scope(|scope| {
            // Messages of a collective match no receive of the program.
            let any = scope.immediate_receive_into(&mut unrelated, None, None)?;
            let request =
                scope.immediate_all_to_all_w_into(&sent, TypedBlocksMut::new(&mut received, &received_as)?)?;
            let reduce = scope.immediate_all_reduce_in_place(&mut sum, SystemOperation::sum())?;
            let both: [&dyn AnyRequest; 2] = [&request, &reduce];
            assert_eq!(wait_all(both)?, [Status::EMPTY; 2]);
            assert_eq!((any.cancel(), request.test()), (true, Some(Ok(()))));
            Ok::<(), Error>(())
        })?;
        check(&received, 1);
        world.scope(|scope| {
            let sent = TypedBlocksMut::new(&mut matrix, &sent_as)?;
            let mut request =
                scope.persistent_all_to_all_w_into(sent, TypedBlocksMut::new(&mut received, &received_as)?)?;
            for round in 2..5 {
                fill(request.data()?, round);
                let all: [&mut dyn AnyPersistent; 1] = [&mut request];
                start_all(all)?;
                assert_eq!(
                    (request.start(), request.result()),
                    (Err(CollectiveError::UnderWay), Err(CollectiveError::UnderWay))
                );
                match round {
                    2 => request.wait()?,
                    3 => _ = wait_any([&request])?,
                    _ => while request.test().is_none() {},
                }
                check(request.result()?, round);
            }
            Ok::<(), Error>(())
        })?;
    }
    let short = world.all_to_all_w_into(&TypedBlocks::new(&[0_u8], &[])?, TypedBlocksMut::new(&mut [0_u8], &[])?);
    assert_eq!(short, Err(CollectiveError::Length { needed: size, given: 0 }));
    // Rank 0 sends one word too many, which is within its neighbours' blocks, or one too few.
    let (sent, mut received) = (vec![7_u32; 2 * size], vec![0_u32; 2 * size]);
    let blocks = |count: usize| {
        (0..size).map(|rank| Field { count, offset: 8 * rank as isize, datatype: &word }).collect::<Vec<_>>()
    };
    let from_0 = usize::from(own != 0) + 1;
    let data = TypedBlocks::new(&sent, &blocks(from_0))?;
    let ended = world.all_to_all_w_into(&data, TypedBlocksMut::new(&mut received, &blocks(2))?);
    assert_eq!(ended, Err(CollectiveError::Ended(Failure::Disagrees(Rank(0)))));
    world.barrier()?;
    Ok(())
}

/// Every rank sends to the next one twice, and rank 0 to itself; then a star that rank 0 describes.
fn graphs(world: &World) -> Result<(), Error> {
    let ([next, previous], own, size) = (neighbours(world), world.rank(), world.size());
    let is_first = own == Rank(0);
    let edge = |rank, weight| Neighbour { rank, weight };
    let (mut from, mut to) = (vec![edge(previous, 5), edge(previous, 6)], vec![edge(next, 5), edge(next, 6)]);
    if is_first && size > 1 {
        from.push(edge(own, 9));
        to.insert(1, edge(own, 9));
    }
    let graph = world.graph(&from, &to)?;
    let ranks = |all: &[Neighbour]| all.iter().map(|one| Some(one.rank)).collect::<Vec<_>>();
    assert_eq!(
        (graph.sources().collect::<Vec<_>>(), graph.destinations().collect::<Vec<_>>()),
        (ranks(&from), ranks(&to))
    );
    assert_eq!(graph.source_weights(), from.iter().map(|one| one.weight).collect::<Vec<_>>());
    let (mut sent, mut received) = (vec![0; to.len()], vec![0; from.len()]);
    // The n-th edge between two ranks at one end is the n-th at the other.
    sent.iter_mut().zip(&to).for_each(|(value, edge)| *value = 100 * own.0 + edge.weight);
    let expected: Vec<u32> = from.iter().map(|edge| 100 * edge.rank.0 + edge.weight).collect();
    graph.neighbour_all_to_all_into(&sent, &mut received)?;
    assert_eq!(received, expected);
    received.fill(0);
    world.scope(|scope| {
        let request = scope.on(graph.communicator()).immediate_barrier()?;
        let exchange = scope.immediate_neighbour_all_to_all_into(&graph, &sent, &mut received)?;
        let both: [&dyn AnyRequest; 2] = [&request, &exchange];
        wait_all(both).map_err(Error::from)
    })?;
    assert_eq!(received, expected);
    let long = graph.neighbour_all_gather_into(&sent, &mut received);
    let (needed, given) = (sent.len() * received.len(), received.len());
    assert_eq!(long, Err(CollectiveError::Length { needed, given }));

    // The leaves send blocks of their own lengths to the middle, in rows of two of each three words.
    let star = |leaf: u32| (Rank(leaf), Neighbour { rank: Rank(0), weight: leaf });
    let edges: Vec<_> = (1..size).map(star).collect();
    let graph = world.graph_of_edges(if is_first { &edges } else { &[] })?;
    let weights: Vec<u32> = if is_first { (1..size).collect() } else { Vec::new() };
    assert_eq!((graph.source_weights(), graph.destination_weights().len()), (&*weights, usize::from(!is_first)));
    let own_words: Vec<u32> = vec![own.0; 2 * own.0 as usize + 1];
    let counts: Vec<usize> = weights.iter().map(|leaf| 2 * *leaf as usize + 1).collect();
    let starts: Vec<usize> = weights.iter().map(|leaf| 100 * *leaf as usize).collect();
    let mut rows = vec![0; 1000];
    let into = PartitionMut::in_rows(&mut rows, &counts, &starts, 2, 3)?;
    graph.neighbour_all_gather_varcount_into(&own_words, into)?;
    for (leaf, (count, start)) in weights.iter().zip(counts.iter().zip(&starts)) {
        let places = (0..).filter(|place| place % 3 != 2).take(*count).map(|place| start + place);
        let places: Vec<usize> = places.collect();
        assert!((*start..start + 99).all(|place| (rows[place] == *leaf) == places.contains(&place)), "{leaf}");
    }
    let unknown = world.graph_of_edges(&[(Rank(size), Rank(0).into())]).err();
    assert_eq!(unknown, Some(CreateError::Collective(CollectiveError::UnknownRank { rank: Rank(size), size })));
    Ok(())
}

/// A value is dropped with the last communicator that has it.
fn attributes(world: &World) -> Result<(), Error> {
    let (value, shared, own) = (Arc::new(()), AttributeKey::shared(), AttributeKey::new());
    let made = world.duplicate()?;
    made.set_attribute(&shared, value.clone());
    made.set_attribute(&own, value.clone());
    let copy = made.duplicate()?;
    assert!(copy.attribute(&shared).is_some() && copy.attribute(&own).is_none() && world.attribute(&shared).is_none());
    assert_eq!(Arc::strong_count(&value), 3);
    drop(made);
    assert_eq!(Arc::strong_count(&value), 2);
    drop(copy);
    assert_eq!(Arc::strong_count(&value), 1);
    Ok(())
}
