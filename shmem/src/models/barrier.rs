//! loom models of the barriers: data that a rank wrote before one are visible to the others after it, and may be
//! overwritten after the next.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use loom::model::Builder;

use super::assert_ranks_need;
use crate::barrier::{Barrier, BarrierStatus, FlatBarrier, Shape};
use crate::collective_area::{CollectiveAreas, Members};
use crate::segment::{Memory, STRIDE, Segment, Site};

/// Polls of a barrier before a rank stops for good, as if it were killed. A poll that fails only adds order, so one
/// suffices, except under a preemption bound: a second poll lets a rank run on where it would have to be preempted.
const fn looks(preemptions: Option<usize>) -> u32 {
    if preemptions.is_some() { 2 } else { 1 }
}
/// The word of every rank before the first barrier: it wraps in the second.
const FIRST: u32 = u32::MAX - 1;

/// Areas of one word, followed by two cells for each rank.
fn areas(ranks: u32) -> CollectiveAreas {
    CollectiveAreas {
        ranks,
        members: Members::ALL,
        offset: 0,
        stride: 4,
        line: 0,
        slots: 1,
        inline: 16,
        bulk: 0,
        chunk: 0,
        oversubscribed: false,
    }
}

/// The same areas with two lines each.
fn lines(ranks: u32) -> CollectiveAreas {
    CollectiveAreas { stride: 12, inline: 0, bulk: 8 + STRIDE, ..areas(ranks) }
}

/// Checks after each barrier the value that every rank wrote before it, in the cell of two barriers ago.
fn run(
    segment: Segment<'_>,
    areas: &CollectiveAreas,
    rank: u32,
    epochs: u32,
    mut wait: impl FnMut(u32) -> bool,
) -> bool {
    let cell = |of: u32, epoch: u32| segment.shared_bytes(areas.end() + (2 * of + epoch % 2) as usize * 4, 4).unwrap();
    for epoch in 1..=epochs {
        cell(rank, epoch).write(&(epoch * 10 + rank).to_le_bytes()).unwrap();
        if !wait(FIRST.wrapping_add(epoch)) {
            return false;
        }
        for of in 0..areas.ranks {
            let mut value = [0; 4];
            cell(of, epoch).read(&mut value).unwrap();
            assert_eq!(u32::from_le_bytes(value), epoch * 10 + of);
        }
    }
    true
}

/// Which barrier.
#[derive(Clone, Copy)]
enum Kind {
    Flat,
    /// Rank 0 arrives last, if it can.
    Led,
    /// Of two, whose words move to other lines from one barrier to the next.
    Moving,
    Of(Shape<'static>),
}

/// Every rank in a thread; in some execution a rank must complete all epochs.
fn explore(name: &str, preemptions: Option<usize>, ranks: u32, epochs: u32, kind: Kind) {
    let through = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&through);
    let of_kind = if matches!(kind, Kind::Moving) { lines(ranks) } else { areas(ranks) };
    let look = move |poll: &mut dyn FnMut() -> bool| (0..looks(preemptions)).any(|_| poll());
    let body = move |memory: &Memory, rank: u32| {
        let (segment, areas) = (memory.segment(), of_kind);
        let complete = match kind {
            Kind::Flat => {
                let flat = FlatBarrier::new(segment, &areas, rank).unwrap();
                run(segment, &areas, rank, epochs, |epoch| {
                    flat.arrive(epoch);
                    let mut from = 0;
                    look(&mut || flat.poll(epoch, &mut from))
                })
            }
            Kind::Led => {
                let flat = FlatBarrier::new(segment, &areas, rank).unwrap();
                run(segment, &areas, rank, epochs, |epoch| {
                    let mut from = 0;
                    let is_last = rank == 0 && look(&mut || flat.poll_others(epoch, &mut from));
                    flat.arrive(epoch);
                    from = 0;
                    is_last || look(&mut || flat.poll(epoch, &mut from))
                })
            }
            Kind::Moving => run(segment, &areas, rank, epochs, |epoch| {
                let on = |epoch: u32| {
                    FlatBarrier::on_lines(segment, &areas, rank, [epoch % 2, epoch / 2 % 2])
                        .and_then(|flat| flat.pair())
                        .unwrap()
                };
                // It publishes the barrier at its next line, too.
                let (now, next) = (on(epoch), on(epoch.wrapping_add(1)));
                next.arrive(epoch);
                now.arrive(epoch);
                look(&mut || now.poll(epoch))
            }),
            Kind::Of(shape) => {
                let mut barrier = Barrier::new(segment, areas, rank, shape, FIRST).unwrap();
                run(segment, &areas, rank, epochs, |_| {
                    barrier.start();
                    look(&mut || match barrier.poll() {
                        BarrierStatus::Complete => true,
                        BarrierStatus::WaitsFor(_) => {
                            if preemptions.is_some() {
                                loom::thread::yield_now();
                            }
                            false
                        }
                        BarrierStatus::Corrupt(rank) => panic!("rank {rank} has a corrupt phase"),
                    })
                })
            }
        };
        through.fetch_or(complete, Ordering::Relaxed);
    };
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    let sites: &[Site] = match kind {
        Kind::Flat => &[Site::Arrive, Site::Arrived],
        Kind::Led => &[Site::Arrive, Site::Arrived, Site::OthersArrived],
        Kind::Moving => &[Site::PairArrive, Site::PairArrived],
        Kind::Of(_) => &[Site::PhasePublish, Site::PhasePoll],
    };
    assert_ranks_need(name, &builder, sites, (ranks, of_kind.end() + ranks as usize * 8, FIRST), body);
    assert!(seen.load(Ordering::Relaxed), "{name}: no rank completes");
}

#[test]
fn flat_flags_of_two() {
    explore("flat flags, 2 ranks, 3 epochs", None, 2, 3, Kind::Flat);
}

#[test]
fn flat_flags_of_three() {
    explore("flat flags, 3 ranks, 2 epochs, 3 preemptions", Some(3), 3, 2, Kind::Flat);
}

#[test]
fn moving_flags_of_two() {
    explore("moving flags, 2 ranks, 3 epochs", None, 2, 3, Kind::Moving);
}

#[test]
fn led_flags_of_two() {
    explore("led flags, 2 ranks, 3 epochs", None, 2, 3, Kind::Led);
}

#[test]
fn led_flags_of_three() {
    explore("led flags, 3 ranks, 2 epochs, 2 preemptions", Some(2), 3, 2, Kind::Led);
}

#[test]
fn dissemination_of_three() {
    explore("dissemination, 3 ranks, 1 preemption", Some(1), 3, 1, Kind::Of(Shape::Dissemination));
}

#[test]
fn tree_of_three() {
    explore("tree, 3 ranks", None, 3, 1, Kind::Of(Shape::Tree(2)));
}

#[test]
fn sockets_of_three() {
    explore("sockets, 3 ranks", None, 3, 1, Kind::Of(Shape::Sockets(&[0, 0, 1])));
}
