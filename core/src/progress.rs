//! The progress loop, which joins an endpoint and any device.

use crate::counters::Metric;
use crate::device::{Device, DeviceQueue, Memory, Posting, Received, Slot, Token};
use crate::endpoint::storage::Storage;
use crate::endpoint::{Endpoint, Handler, PredictedBatch, TxBurst, Verdict};
use crate::time::Time;

/// One round: receives at most `budget` datagrams from the queue, handles completions, device events and timers, and
/// posts at most `budget` datagrams. The host adds clock, locks and sleep. Returns whether any datagram was received or
/// posted.
pub fn make_progress<S, D, M, const W: usize, const BITS: u32>(
    now: <S::Time as Time>::Instant,
    queue: DeviceQueue,
    endpoint: &mut Endpoint<S, W, BITS>,
    device: &mut D,
    memory: &M,
    handler: &mut impl Handler,
    budget: u32,
) -> bool
where
    S: Storage<W, BITS>,
    D: Device,
    M: Memory<Address = D::Address>,
{
    let mut moved = receive(now, queue, endpoint, device, memory, handler, budget);
    endpoint.handle_completed(now, queue, device.completed(queue));
    while let Some(fact) = device.poll_event() {
        endpoint.handle_device_event(now, fact);
    }
    if endpoint.poll_timeout(now).is_some_and(|at| S::Time::is_due(now, at)) {
        endpoint.handle_timeout(now);
    }
    moved |= transmit(now, queue, endpoint, device, memory, handler, budget);
    endpoint.handle_round(now);
    moved
}

/// The receiving half of a round: at most `budget` datagrams from the queue. Returns whether there were any.
pub fn receive<S, D, M, const W: usize, const BITS: u32>(
    now: <S::Time as Time>::Instant,
    queue: DeviceQueue,
    endpoint: &mut Endpoint<S, W, BITS>,
    device: &mut D,
    memory: &M,
    handler: &mut impl Handler,
    budget: u32,
) -> bool
where
    S: Storage<W, BITS>,
    D: Device,
    M: Memory<Address = D::Address>,
{
    let (mut received, mut verdict, mut course) = (false, Verdict::Release, PredictedBatch::NONE);
    for _ in 0..budget {
        let (slot, is_taken) = match &device.receive(queue) {
            Some(datagram) => {
                (datagram.slot(), endpoint.handle_next(now, datagram, handler, &mut verdict, &mut course))
            }
            None => break,
        };
        carry_out(device, memory, slot, &verdict);
        if !is_taken {
            carry_out_held(now, endpoint, device, memory, handler);
        }
        received = true;
    }
    endpoint.commit_batch(now, handler, &mut course);
    // A peer that ended between rounds leaves held datagrams to be released.
    carry_out_held(now, endpoint, device, memory, handler);
    received
}

/// Handles every held datagram that is in order now, or not needed any more.
#[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
fn carry_out_held<S, D, M, const W: usize, const BITS: u32>(
    now: <S::Time as Time>::Instant,
    endpoint: &mut Endpoint<S, W, BITS>,
    device: &mut D,
    memory: &M,
    handler: &mut impl Handler,
) where
    S: Storage<W, BITS>,
    D: Device,
    M: Memory<Address = D::Address>,
{
    while let Some(slot) = endpoint.poll_deferred() {
        let verdict = endpoint.handle_held(now, &device.held(slot), handler);
        carry_out(device, memory, slot, &verdict);
    }
}

/// The sending half of a round: posts at most `budget` datagrams. Returns whether there were any.
pub fn transmit<S, D, M, const W: usize, const BITS: u32>(
    now: <S::Time as Time>::Instant,
    queue: DeviceQueue,
    endpoint: &mut Endpoint<S, W, BITS>,
    device: &mut D,
    memory: &M,
    handler: &mut impl Handler,
    budget: u32,
) -> bool
where
    S: Storage<W, BITS>,
    D: Device,
    M: Memory<Address = D::Address>,
{
    let (mut posted, mut waiting, mut run) = (false, false, TxBurst::NONE);
    for _ in 0..budget {
        let Some(mut token) = device.token(queue) else { break };
        let posting = Posting { queue, ticket: token.ticket() };
        // By reference: a copy of larger words right after its parts were written stalls the processor.
        let Some(transmit) = &endpoint.poll_next(now, posting, token.header_room(), handler, &mut run) else { break };
        token.post(transmit, transmit.payload.and_then(|span| memory.address(span)));
        (posted, waiting) = (true, true);
        // It is counted together with the rest of its burst.
        if run.is_part() {
            continue;
        }
        let (cause, payload) = (transmit.reason, transmit.payload.map_or(0, |span| span.bytes));
        let bytes = u32::from(transmit.header_bytes).saturating_add(payload);
        // The device sends the last queued datagram before the endpoint handles what was deferred.
        if endpoint.is_last(&mut run) {
            device.flush(queue);
            waiting = false;
        }
        handler.record(Metric::Sent { cause, bytes });
    }
    endpoint.commit_burst(&mut run, handler);
    if waiting {
        device.flush(queue);
    }
    if posted {
        endpoint.handle_completed(now, queue, device.completed(queue));
    }
    posted
}

#[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
fn carry_out<D: Device, M: Memory<Address = D::Address>>(device: &mut D, memory: &M, slot: Slot, verdict: &Verdict) {
    match *verdict {
        Verdict::Release => {}
        Verdict::Hold => return device.hold(slot),
        Verdict::Place { to, start } => {
            if let Some(address) = memory.address(to) {
                device.place(slot, start, to.bytes, address);
            }
        }
    }
    device.release(slot);
}
