//! One-sided operations of rank 0 on a window of rank 1, which polls, against a round trip of messages; in turn.

use core::error::Error;
use std::time::Instant;

use unisono::collective::SystemOperation;
use unisono::{Rank, Tag, WindowError, World};

use super::buffer;
use super::latency::percentile;

const BALL: Tag = Tag(6);
/// Operations of a kind in a row.
const BATCH: usize = 100;
/// Batches of each kind.
const BATCHES: usize = 51;
/// Puts before a flush, where their rate is measured.
const OUTSTANDING: usize = 64;
/// Bytes of all batches of puts, at most; but one batch at least.
const STREAM_BYTES: usize = 4 << 30;
/// Bytes of a counter before the data.
const COUNTER: usize = 8;

/// Medians of the batches' times, in nanoseconds per operation. Zero except on rank 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OneSided {
    /// A message of 8 bytes, answered by one of all bytes.
    pub(super) messages: u64,
    pub(super) get: u64,
    /// A put and its flush.
    pub(super) put: u64,
    /// Of 8 bytes.
    pub(super) fetch_and_op: u64,
    /// One of 64 puts before a flush.
    pub(super) put_in_stream: u64,
}

/// Measures operations of `bytes` bytes. Collective.
pub(super) fn measure(world: &World, bytes: usize) -> Result<OneSided, Box<dyn Error>> {
    let window = world.allocate_window(COUNTER.saturating_add(bytes))?;
    let mut times = [const { Vec::new() }; 5];
    let streams = (STREAM_BYTES / bytes.max(1).saturating_mul(OUTSTANDING)).clamp(1, BATCHES);
    for batch in 0..BATCHES {
        match world.rank() {
            Rank(0) => {
                let mut data = buffer::zeroed::<u8>(bytes)?;
                let target = Rank(1);
                let mut batch_of = |kind: usize, count: usize, run: &mut dyn FnMut() -> Result<(), WindowError>| {
                    let started = Instant::now();
                    (0..count).try_for_each(|_| run())?;
                    times[kind].push(started.elapsed().as_nanos() as u64 / count as u64);
                    Ok::<_, WindowError>(())
                };
                batch_of(0, BATCH, &mut || {
                    world.send(&[0_u8; 8], target, BALL)?;
                    Ok(world.receive_into(&mut data, target, BALL).map(drop)?)
                })?;
                // Rank 1 waits for the next message meanwhile.
                batch_of(1, BATCH, &mut || window.get(&mut data, target, COUNTER))?;
                batch_of(2, BATCH, &mut || {
                    window.put(&data, target, COUNTER)?;
                    window.flush(target)
                })?;
                batch_of(3, BATCH, &mut || window.fetch_and_op(1_u64, target, 0, SystemOperation::sum()).map(drop))?;
                if batch < streams {
                    let started = Instant::now();
                    (0..OUTSTANDING).try_for_each(|_| window.put(&data, target, COUNTER))?;
                    window.flush(target)?;
                    times[4].push(started.elapsed().as_nanos() as u64 / OUTSTANDING as u64);
                }
            }
            Rank(1) => {
                let (mut ball, data) = ([0_u8; 8], buffer::zeroed::<u8>(bytes)?);
                for _ in 0..BATCH {
                    world.receive_into(&mut ball, Rank(0), BALL)?;
                    world.send(&data, Rank(0), BALL)?;
                }
            }
            _ => {}
        }
    }
    window.free()?;
    let [messages, get, put, fetch_and_op, put_in_stream] = times.map(|mut times| {
        times.sort_unstable();
        percentile(&times, 0.5)
    });
    Ok(OneSided { messages, get, put, fetch_and_op, put_in_stream })
}
