//! `unisono bench transfer`: one rank sends position-dependent data, the other hashes the received data.

use core::error::Error;
use core::time::Duration;
use std::time::Instant;

use unisono::{Failure, Rank, Tag, World};
use unisono_core::counters::Counters;
use unisono_core::device::TxReason;
use unisono_core::wire::SEGMENT_HEADER;

use super::{buffer, verification};

/// Size of one message in bytes.
const MESSAGE: usize = 1 << 20;
/// Messages in flight at a time.
const OUTSTANDING: usize = 8;

const DATA: Tag = Tag(1);
const REPORT: Tag = Tag(2);

/// The result of a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) bytes: usize,
    pub(super) time: Duration,
    pub(super) hash_sent: u64,
    pub(super) hash_received: u64,
    /// Data datagrams sent, and the minimum without loss: full segments of payload.
    pub(super) data_sent: u64,
    pub(super) data_minimum: u64,
    pub(super) resent_nack: u64,
    pub(super) resent_probe: u64,
    /// Unnecessary retransmissions: the echo of an earlier transmission proved that it had arrived.
    pub(super) resent_spurious: u64,
}

/// Sends `bytes` bytes to `to`, which calls [`receive`] with as many.
pub(super) fn send(world: &World, to: Rank, bytes: usize) -> Result<Transfer, Box<dyn Error>> {
    let data = verification::data(world.rank().0, bytes)?;
    let hash_sent = verification::hash(&data);
    // Wait until the receiver is ready.
    world.receive_into(&mut [0_u8], to, REPORT)?;
    let before = world.counters();
    let started = Instant::now();
    world.scope(|scope| -> Result<(), Failure> {
        let mut requests = alloc::collections::VecDeque::new();
        for message in data.chunks(MESSAGE) {
            if requests.len() == OUTSTANDING {
                requests.pop_front().map(unisono::Request::wait).transpose()?;
            }
            requests.push_back(scope.immediate_send(message, to, DATA)?);
        }
        requests.into_iter().try_for_each(|request| request.wait().map(|_| ()))
    })?;
    let mut hash_received = [0_u64];
    world.receive_into(&mut hash_received, to, REPORT)?;
    let time = started.elapsed();
    world.receive_into(&mut hash_received, to, REPORT)?;
    let after = world.counters();
    let sent = |count: &dyn Fn(&Counters) -> u64| count(&after) - count(&before);
    let segment = world.max_datagram_bytes() - SEGMENT_HEADER;
    Ok(Transfer {
        bytes,
        time,
        hash_sent,
        hash_received: hash_received[0],
        data_sent: sent(&Counters::data_sent),
        data_minimum: if world.shares_memory_with(to) { 0 } else { bytes.div_ceil(segment) as u64 },
        resent_nack: sent(&|counters| counters.sent_for(TxReason::ResentNack)),
        resent_probe: sent(&|counters| counters.sent_for(TxReason::ResentProbe)),
        resent_spurious: sent(&|counters| counters.spurious),
    })
}

/// Receives `bytes` bytes from `from` and returns their hash to it.
pub(super) fn receive(world: &World, from: Rank, bytes: usize) -> Result<(), Box<dyn Error>> {
    let mut data = buffer::zeroed::<u8>(bytes)?;
    // Touch every page before the measurement.
    data.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    world.send(&[1_u8], from, REPORT)?;
    world.scope(|scope| -> Result<(), Failure> {
        let mut requests = alloc::collections::VecDeque::new();
        for message in data.chunks_mut(MESSAGE) {
            if requests.len() == OUTSTANDING {
                requests.pop_front().map(unisono::Request::wait).transpose()?;
            }
            requests.push_back(scope.immediate_receive_into(message, from, DATA)?);
        }
        requests.into_iter().try_for_each(|request| request.wait().map(|_| ()))
    })?;
    world.send(&[0_u64], from, REPORT)?;
    Ok(world.send(&[verification::hash(&data)], from, REPORT)?)
}
