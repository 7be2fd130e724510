//! Messages and collectives of noncontiguous buffers, compared with packed ones.

mod job;

use core::num::NonZero;

use job::{EVERY_WAY, job_in_grants, job_over};
use unisono::collective::{CollectiveError, SystemOperation, View, ViewMut};
use unisono::{ArrayOrder, Datatype, Field, Rank, Tag, World, wait_all};

const TAG: Tag = Tag(1);
/// Filler between the elements.
const GAP: u32 = u32::MAX;

/// A layout of `u32`s, and how many of it.
fn layouts(scale: usize) -> Vec<(Datatype, usize)> {
    let word = Datatype::of::<u32>();
    let column = word.vector(3 * scale, 1, 5).expect("small");
    let tile = word.subarray(&[6, scale + 3, 4], &[3, scale, 2], &[1, 2, 1], ArrayOrder::RowMajor).expect("small");
    let places: Vec<isize> = (0..2 * scale as isize).map(|i| i * 7 + i % 3).collect();
    let scattered = word.indexed_block(2, &places).expect("small");
    let long = word.vector(2, 20 * scale, 20 * scale as isize + 1).expect("small");
    let record = Datatype::structure(&[
        Field { count: 1, offset: 4, datatype: &word },
        Field { count: 1, offset: 12, datatype: &word.contiguous(2).expect("small") },
    ]);
    let records = record.and_then(|record| record.resized(0, 24)).expect("small");
    let side_by_side = column.resized(0, 4).expect("small");
    vec![(column, 1), (tile, 2), (scattered, 1), (long, 1), (records, 2 * scale), (side_by_side, 3), (word, scale)]
}

/// Elements that `count` of it name, in order.
fn elements(datatype: &Datatype, count: usize) -> Vec<usize> {
    let (all, mut places) = (datatype.contiguous(count).expect("small"), Vec::new());
    all.for_each_run(0, usize::MAX, |run| {
        for i in 0..run.count {
            let at = (run.offset + run.stride * i as isize) as usize / 4;
            places.extend(at..at + run.bytes / 4);
        }
        core::ops::ControlFlow::Continue(())
    });
    places
}

/// A buffer with these elements, and filler.
fn filled(places: &[usize], value: impl Fn(usize) -> u32) -> Vec<u32> {
    let mut data = vec![GAP; places.iter().max().map_or(0, |last| last + 2)];
    places.iter().enumerate().for_each(|(i, at)| data[*at] = value(i));
    data
}

fn value(rank: Rank, i: usize) -> u32 {
    (i as u32).wrapping_mul(0x9e37_79b9) ^ rank.0 << 8
}

/// Every layout to every other one of the same length, by every kind of call.
fn exchange(world: &World, scale: usize) {
    let (own, other) = (world.rank(), Rank(1 - world.rank().0));
    for (datatype, count) in layouts(scale) {
        let places = elements(&datatype, count);
        let bytes = places.len() * 4;
        let data = filled(&places, |i| value(own, i));
        let view = View::of(&data, count, &datatype).expect("within");
        let packed: Vec<u32> = (0..places.len()).map(|i| value(other, i)).collect();
        // Into a slice.
        let mut slice = vec![0; places.len()];
        let status = world.send_receive_into(&view, other, TAG, &mut slice, other, TAG).expect("arrives");
        assert_eq!((status.bytes, &slice), (bytes, &packed));
        // From a slice, into a view.
        let expected = filled(&places, |i| value(other, i));
        let mut into = filled(&places, |_| 0);
        let own_packed: Vec<u32> = (0..places.len()).map(|i| value(own, i)).collect();
        world.scope(|scope| {
            let mut into = ViewMut::of(&mut into, count, &datatype).expect("within, and apart");
            let both = world.scope(|inner| {
                let receive = inner.immediate_receive_into(&mut into, other, TAG).expect("posted");
                let send = scope.immediate_send(&own_packed, other, TAG).expect("started");
                let ended = wait_all(&[receive]).expect("arrives");
                send.wait().expect("arrives");
                ended
            });
            assert_eq!(both[0].bytes, bytes);
        });
        assert_eq!(into, expected);
        // From a view, into a view; blocking, and synchronous one way.
        let mut into = filled(&places, |_| 0);
        let mut target = ViewMut::of(&mut into, count, &datatype).expect("within, and apart");
        if own == Rank(0) {
            world.synchronous_send(&view, other, TAG).expect("matched");
            let message = world.matched_probe(other, TAG).expect("a message");
            assert_eq!(message.receive_into(&mut target).expect("arrives").bytes, bytes);
        } else {
            world.receive_into(&mut target, None, None).expect("arrives");
            world.send(&view, other, TAG).expect("sent");
        }
        assert_eq!(into, expected);
        // To oneself.
        let mut into = filled(&places, |_| 0);
        let mut target = ViewMut::of(&mut into, count, &datatype).expect("within, and apart");
        world.send_receive_into(&view, own, TAG, &mut target, own, TAG).expect("arrives");
        assert_eq!(into, data);
    }
}

/// Runs `body` on every rank of a job over every transport.
fn everywhere_in_engine(size: u32, body: fn(&World)) {
    for over in EVERY_WAY {
        job_over(over, size, &[], |world| {
            body(&world);
            world.finish().expect("all ranks finish");
        });
    }
}

#[test]
fn views_are_sent_and_received() {
    everywhere_in_engine(2, |world| {
        exchange(world, 1);
        exchange(world, 40);
    });
}

#[test]
fn long_views_are_gathered_and_scattered() {
    for over in EVERY_WAY {
        for grant in [None, NonZero::new(100_001)] {
            job_in_grants(over, grant, 2, &[], |world| {
                exchange(&world, 1500);
                world.finish().expect("all ranks finish");
            });
        }
    }
}

#[test]
fn collectives_take_views_of_any_layout() {
    everywhere_in_engine(3, |world| {
        let (own, size) = (world.rank(), world.size() as usize);
        for (scale, root) in [(1, Rank(0)), (150, Rank(2))] {
            for (datatype, count) in layouts(scale) {
                let places = elements(&datatype, count);
                let (data, length) = (filled(&places, |i| value(own, i)), places.len());
                let view = View::of(&data, count, &datatype).expect("within");
                let gathered: Vec<u32> =
                    (0..size as u32).flat_map(|rank| (0..length).map(move |i| value(Rank(rank), i))).collect();
                let mut all = vec![0; size * length];
                world.all_gather_into(&view, &mut all).expect("all take part");
                assert_eq!(all, gathered);
                let sum = |i| (0..size as u32).fold(0_u32, |sum, rank| sum.wrapping_add(value(Rank(rank), i)));
                let expected = filled(&places, sum);
                let mut into = filled(&places, |_| 0);
                {
                    let mut into = ViewMut::of(&mut into, count, &datatype).expect("within, and apart");
                    world.all_reduce_into(&view, &mut into, SystemOperation::sum()).expect("all take part");
                }
                assert_eq!(into, expected);
                let mut into = filled(&places, |_| 0);
                world.scope(|scope| {
                    let mut into = ViewMut::of(&mut into, count, &datatype).expect("within, and apart");
                    world.scope(|inner| {
                        let sum = inner.immediate_all_reduce_into(&view, &mut into, SystemOperation::sum());
                        scope.immediate_barrier().and_then(|barrier| barrier.wait()).expect("all take part");
                        sum.and_then(|sum| sum.wait()).expect("all take part");
                    });
                });
                assert_eq!(into, expected);
                let (mut given, mut into) = (data.clone(), filled(&places, |_| 0));
                world.scope(|scope| {
                    let mut given = ViewMut::of(&mut given, count, &datatype).expect("within, and apart");
                    let mut into = ViewMut::of(&mut into, count, &datatype).expect("within, and apart");
                    world.scope(|inner| {
                        let mut again = inner
                            .persistent_reduce_into(&mut given, &mut into, SystemOperation::sum(), root)
                            .expect("prepared");
                        for _ in 0..2 {
                            again.start().and_then(|()| again.wait()).expect("all take part");
                        }
                    });
                    scope.flush();
                });
                assert_eq!(into, if own == root { expected } else { filled(&places, |_| 0) });
                let mut into = if own == root { data.clone() } else { filled(&places, |_| 0) };
                {
                    let mut into = ViewMut::of(&mut into, count, &datatype).expect("within, and apart");
                    world.broadcast_into(&mut into, root).expect("all take part");
                }
                assert_eq!(into, filled(&places, |i| value(root, i)));
            }
        }
    });
}

#[test]
fn wrong_views_are_refused() {
    let (word, mut data) = (Datatype::of::<u32>(), [0_u32; 8]);
    let twice = word.vector(2, 2, 1).expect("small");
    assert_eq!(View::of(&data, 1, &twice).map(|view| view.count()), Ok(4));
    assert_eq!(ViewMut::of(&mut data, 1, &twice).map(|_| ()), Err(CollectiveError::Overlapping));
    let long = Err(CollectiveError::Length { needed: 9, given: 8 });
    assert_eq!(View::of(&data, 9, &word).map(|view| view.count()), long);
    let before = word.hindexed_block(1, &[-4]).expect("small");
    assert!(View::of(&data, 1, &before).is_err() && ViewMut::of(&mut data, 1, &before).is_err());
    let half = Datatype::of::<u16>();
    assert!(View::of(&data, 3, &half).is_err(), "one and a half elements");
    assert_eq!(View::bytes_of(&data, 3, &half).map(|view| view.count()), Ok(6));
}
