//! The progress loop, which joins an endpoint and any device.

use crate::device::{Device, DeviceQueue, Memory, Received, Slot, Token};
use crate::endpoint::storage::Storage;
use crate::endpoint::{Endpoint, Handler, Verdict};
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
    endpoint.receive_batch(now, handler, |batch| {
        let mut left = budget;
        loop {
            // Held datagrams are in order now, or not needed any more.
            while let Some(slot) = batch.poll_deferred() {
                batch.handle_held(&device.held(slot));
                carry_out(device, memory, slot, batch.verdict());
            }
            if left == 0 {
                break;
            }
            let slot = match &device.receive(queue) {
                Some(datagram) => {
                    batch.handle_datagram(datagram);
                    datagram.slot()
                }
                None => break,
            };
            carry_out(device, memory, slot, batch.verdict());
            left = left.wrapping_sub(1);
        }
        left != budget
    })
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
    let posted = endpoint.transmit_batch(now, queue, handler, |batch| {
        let mut left = budget;
        while left > 0 {
            let Some(mut token) = device.token(queue) else { break };
            let ticket = token.ticket();
            // By reference: a copy of larger words right after its parts were written stalls the processor.
            let Some(transmit) = &batch.poll_transmit(ticket, token.header_room()) else { break };
            token.post(transmit, transmit.payload.and_then(|span| memory.address(span)));
            left = left.wrapping_sub(1);
        }
        let posted = left != budget;
        if posted {
            device.flush(queue);
        }
        posted
    });
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
