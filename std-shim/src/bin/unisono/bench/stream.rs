//! Messages without end, in a window that slides: what arrived is acknowledged by the window, and nobody waits for that
//! while others are under way.

use alloc::collections::VecDeque;
use core::time::Duration;
use std::time::Instant;

use unisono::rank::Rank;
use unisono::world::{Failure, Loan, Scope, Tag, World};

use super::Buffers;

const DATA: Tag = Tag(6);
/// Of the last messages: the receiver posts no more.
const LAST: Tag = Tag(7);
const ARRIVED: Tag = Tag(8);
/// Windows under way at most.
const WINDOWS: usize = 4;
/// Messages of a window: as many as make this many bytes, within bounds.
const WINDOW_BYTES: usize = 1 << 19;
/// Bytes of the sender's data in the segment, beyond one message.
const SEGMENT_BYTES: usize = 1 << 21;
const WINDOW: core::ops::RangeInclusive<usize> = 16..=128;

fn window(bytes: usize) -> usize {
    (WINDOW_BYTES / bytes.max(1)).clamp(*WINDOW.start(), *WINDOW.end())
}

/// Sends messages of `bytes` bytes from rank 0 to rank 1 for about `least`. Returns how many of them were acknowledged as
/// received, and the time that took; nothing but on rank 0.
pub(super) fn stream(
    world: &World,
    bytes: usize,
    least: Duration,
    buffers: Buffers,
) -> Result<(u64, Duration), Box<dyn core::error::Error>> {
    Ok(match world.rank() {
        Rank(0) if buffers == Buffers::Segment => {
            let mut data = world.allocate(bytes * window(bytes).min(SEGMENT_BYTES / bytes.max(1)).max(1))?;
            data.fill(7);
            send(world, &data, bytes, least)?
        }
        Rank(0) => send(world, &vec![7_u8; bytes * window(bytes)], bytes, least)?,
        Rank(1) => receive(world, bytes).map(|()| (0, Duration::ZERO))?,
        _ => (0, Duration::ZERO),
    })
}

fn send(world: &World, data: &[u8], bytes: usize, least: Duration) -> Result<(u64, Duration), Failure> {
    let mut marks = [[0_u8]; WINDOWS];
    // The receiver is ready.
    world.receive_into(&mut [0_u8], Rank(1), ARRIVED)?;
    world.scope(|scope| {
        let mut free: Vec<&mut [u8]> = marks.iter_mut().map(<[u8; 1]>::as_mut_slice).collect();
        let mut under_way = VecDeque::with_capacity(WINDOWS);
        // The first round of windows warms up.
        let (mut windows, mut started) = (0, None::<Instant>);
        let mut laps = WINDOWS;
        while laps > 0 {
            let last = started.is_some_and(|started| started.elapsed() >= least);
            if last {
                laps -= 1;
            }
            while let Some(mark) = free.pop() {
                under_way.push_back(scope.lend(mark, Rank(1), ARRIVED)?);
                send_window(scope, data, bytes, if last { LAST } else { DATA })?;
            }
            if let Some(window) = under_way.pop_front() {
                free.push(returned(window)?);
                windows += u64::from(started.is_some());
                started.get_or_insert_with(Instant::now);
            }
        }
        let (time, messages) = (started.map_or(Duration::ZERO, |started| started.elapsed()), window(bytes) as u64);
        under_way.into_iter().try_for_each(|window| returned(window).map(|_| ()))?;
        Ok((windows * messages, time))
    })
}

fn send_window<'scope>(
    scope: &'scope Scope<'scope, '_>,
    data: &'scope [u8],
    bytes: usize,
    tag: Tag,
) -> Result<(), Failure> {
    let mut requests = Vec::with_capacity(window(bytes));
    let places = (data.len() / bytes.max(1)).max(1);
    for i in 0..window(bytes) {
        let message = data.chunks_exact(bytes.max(1)).nth(i % places).unwrap_or_default();
        requests.push(scope.immediate_send(message, Rank(1), tag)?);
    }
    requests.into_iter().try_for_each(|request| request.wait().map(|_| ()))
}

fn receive(world: &World, bytes: usize) -> Result<(), Failure> {
    // Not zeros, which the system would put there page by page while the clock runs.
    let mut data = vec![1_u8; bytes * window(bytes) * WINDOWS];
    let mut parts = data.chunks_mut(bytes.max(1));
    let mut places: Vec<&mut [u8]> = (0..window(bytes) * WINDOWS).map(|_| parts.next().unwrap_or_default()).collect();
    world.scope(|scope| {
        let post = |place| scope.lend(place, Rank(0), None);
        let mut under_way: VecDeque<Loan<'_, u8>> = places.drain(..).map(post).collect::<Result<_, _>>()?;
        world.send(&[1_u8], Rank(0), ARRIVED)?;
        let mut last = false;
        while !under_way.is_empty() {
            for _ in 0..window(bytes) {
                let Some(message) = under_way.pop_front() else { break };
                let (status, place) = message.wait();
                last |= status?.tag == LAST;
                if !last {
                    under_way.push_back(post(place)?);
                }
            }
            world.send(&[1_u8], Rank(0), ARRIVED)?;
        }
        Ok(())
    })
}

fn returned<'scope>(loan: Loan<'scope, u8>) -> Result<&'scope mut [u8], Failure> {
    let (status, place) = loan.wait();
    status.map(|_| place)
}
