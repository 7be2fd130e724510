//! A continuous stream of messages with a sliding window: the receiver acknowledges whole windows, while further ones
//! are in flight.

use alloc::collections::VecDeque;
use core::time::Duration;
use std::time::Instant;

use clap::ValueEnum;
use unisono::{Failure, Rank, RecvRequest, Request, Scope, Tag, World};

use super::buffer;

/// Where the sender's data is stored.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Buffers {
    Private,
    Segment,
}

/// When the sender waits for the completion of its sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reuse {
    /// After each window.
    Window,
    /// After the acknowledgement of the window, while others are in flight.
    Arrival,
}

const DATA: Tag = Tag(6);
/// The tag of the last messages, after which the receiver posts no more receives.
const LAST: Tag = Tag(7);
const ARRIVED: Tag = Tag(8);
/// Largest number of windows in flight.
const WINDOWS: usize = 4;
/// Bytes per window; sets its number of messages, within bounds.
const WINDOW_BYTES: usize = 1 << 19;
/// Largest size of the sender's data in the segment in bytes, but at least one message.
const SEGMENT_BYTES: usize = 1 << 21;
const WINDOW: core::ops::RangeInclusive<usize> = 16..=128;

/// The parameters that are equal on both sides.
#[derive(Clone, Copy)]
struct Flow {
    /// Size of a message.
    bytes: usize,
    /// Messages of a window.
    window: usize,
    reuse: Reuse,
}

impl Flow {
    /// If several windows are in flight at the sender, each has half as many bytes.
    fn new(bytes: usize, reuse: Reuse) -> Self {
        let most = if reuse == Reuse::Window { WINDOW_BYTES } else { WINDOW_BYTES / 2 };
        Self { bytes, window: (most / bytes.max(1)).clamp(*WINDOW.start(), *WINDOW.end()), reuse }
    }
}

/// Sends messages of `bytes` bytes from rank 0 to rank 1 for about `least`. Returns the number of acknowledged messages
/// and their time on rank 0; zeros elsewhere.
pub(super) fn stream(
    world: &World,
    bytes: usize,
    least: Duration,
    buffers: Buffers,
    reuse: Reuse,
) -> Result<(u64, Duration), Box<dyn core::error::Error>> {
    let flow = Flow::new(bytes, reuse);
    Ok(match world.rank() {
        Rank(0) if buffers == Buffers::Segment => {
            let mut data =
                world.allocate(bytes.saturating_mul(flow.window.min(SEGMENT_BYTES / bytes.max(1)).max(1)))?;
            data.fill(7);
            send(world, &data, flow, least)?
        }
        Rank(0) => send(world, &buffer::filled(bytes.saturating_mul(flow.window), 7)?, flow, least)?,
        Rank(1) => receive(world, flow).map(|()| (0, Duration::ZERO))?,
        _ => (0, Duration::ZERO),
    })
}

fn send(world: &World, data: &[u8], flow: Flow, least: Duration) -> Result<(u64, Duration), Failure> {
    let mut marks = [[0_u8]; WINDOWS];
    // Wait until the receiver is ready.
    world.receive_into(&mut [0_u8], Rank(1), ARRIVED)?;
    world.scope(|scope| {
        let mut free: Vec<&mut [u8]> = marks.iter_mut().map(<[u8; 1]>::as_mut_slice).collect();
        let mut under_way = VecDeque::with_capacity(WINDOWS);
        // The first round of windows warms up.
        let (mut windows, mut started) = (0, None::<Instant>);
        let mut rounds = WINDOWS;
        while rounds > 0 {
            let last = started.is_some_and(|started| started.elapsed() >= least);
            if last {
                rounds -= 1;
            }
            while let Some(mark) = free.pop() {
                let mark = scope.immediate_receive_returning(mark, Rank(1), ARRIVED)?;
                let mut sends = send_window(scope, data, flow, if last { LAST } else { DATA })?;
                if flow.reuse == Reuse::Window {
                    wait_for(core::mem::take(&mut sends))?;
                }
                under_way.push_back((mark, sends));
            }
            if let Some((mark, sends)) = under_way.pop_front() {
                free.push(wait_for_buffer(mark)?);
                wait_for(sends)?;
                windows += u64::from(started.is_some());
                started.get_or_insert_with(Instant::now);
            }
        }
        let (time, messages) = (started.map_or(Duration::ZERO, |started| started.elapsed()), flow.window as u64);
        for (mark, sends) in under_way {
            wait_for_buffer(mark)?;
            wait_for(sends)?;
        }
        Ok((windows * messages, time))
    })
}

fn send_window<'scope>(
    scope: &'scope Scope<'scope, '_>,
    data: &'scope [u8],
    Flow { bytes, window, .. }: Flow,
    tag: Tag,
) -> Result<Vec<Request<'scope>>, Failure> {
    let mut requests = Vec::with_capacity(window);
    let places = (data.len() / bytes.max(1)).max(1);
    for i in 0..window {
        let message = data.chunks_exact(bytes.max(1)).nth(i % places).unwrap_or_default();
        requests.push(scope.immediate_send(message, Rank(1), tag)?);
    }
    Ok(requests)
}

fn wait_for(requests: Vec<Request<'_>>) -> Result<(), Failure> {
    requests.into_iter().try_for_each(|request| request.wait().map(|_| ()))
}

fn receive(world: &World, Flow { bytes, window, .. }: Flow) -> Result<(), Box<dyn core::error::Error>> {
    // Written now, since the system would otherwise map the pages during the measurement.
    let mut data = buffer::filled(bytes.saturating_mul(window * WINDOWS), 1)?;
    let mut parts = data.chunks_mut(bytes.max(1));
    let mut places: Vec<&mut [u8]> = (0..window * WINDOWS).map(|_| parts.next().unwrap_or_default()).collect();
    world.scope(|scope| {
        let post = |place| scope.immediate_receive_returning(place, Rank(0), None);
        let mut under_way: VecDeque<RecvRequest<'_, u8>> = places.drain(..).map(post).collect::<Result<_, _>>()?;
        world.send(&[1_u8], Rank(0), ARRIVED)?;
        let mut last = false;
        while !under_way.is_empty() {
            for _ in 0..window {
                let Some(message) = under_way.pop_front() else { break };
                let (status, place) = message.wait();
                last |= status?.tag == LAST;
                if !last {
                    under_way.push_back(post(place)?);
                }
            }
            world.send(&[1_u8], Rank(0), ARRIVED)?;
        }
        Ok::<(), Failure>(())
    })?;
    Ok(())
}

fn wait_for_buffer<'scope>(loan: RecvRequest<'scope, u8>) -> Result<&'scope mut [u8], Failure> {
    let (status, place) = loan.wait();
    status.map(|_| place)
}
