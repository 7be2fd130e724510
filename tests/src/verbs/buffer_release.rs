//! A buffer returns to its owner only when no posting refers to it.

use unisono_core::device::{Device, DeviceQueue, Memory, Ticket, Token, Transmit, TxReason};
use unisono_core::ids::PeerId;
use unisono_core::span::Span;
use unisono_memory::memory_regions::{Address, Regions};
use unisono_verbs::registered_memory::RegisteredMemory;
use unisono_verbs::ud::Ud;

use super::{Adapter, Outcome, connect_devices, device};

/// Datagrams of a round.
const DATAGRAMS: u32 = 64;
const BYTES: u32 = 4000;

/// Posts from registered memory, wants it back at once and ends its registration: with the queue as it is, and in
/// error. Returns how many postings were unfinished when the memory was wanted.
///
/// # Errors
/// It came back while something was posted, or the adapter missed it.
pub fn buffer_release(adapters: [Adapter<'_>; 2]) -> Outcome<u64> {
    let (mut from, mut to) = (device(adapters[0], 2)?, device(adapters[1], 2)?);
    connect_devices(&mut [&mut from, &mut to])?;
    // SAFETY: this thread alone uses the regions, and frees one when its posting has ended.
    let (mut regions, mut unfinished) = (unsafe { Regions::of(from.domain().clone()) }, 0);
    for in_error in [false, true, false] {
        let span = Span { region: regions.allocate(BYTES as usize)?, offset: 0, bytes: BYTES };
        let address = regions.address(span).ok_or("the region lives")?;
        let key = address.key().ok_or("the region is registered")?;
        let mut last = Ticket::default();
        for _ in 0..DATAGRAMS {
            last = post(&mut from, span, address)?;
        }
        if in_error {
            from.fail(DeviceQueue::Polled)?;
        }
        unfinished += u64::from(last.0.wrapping_sub(from.completed(DeviceQueue::Polled).0));
        from.settle(key);
        if from.completed(DeviceQueue::Polled) != last {
            return Err("memory came back that a posting names".into());
        }
        // SAFETY: nothing is posted any more.
        if !unsafe { regions.free(span.region) } {
            return Err("the region was freed before".into());
        }
        // An adapter that still read it would fail now.
        if !in_error && from.poll_event().is_some() {
            return Err("the adapter misses memory that went back".into());
        }
        while from.poll_event().is_some() {}
    }
    Ok(unfinished)
}

fn post(device: &mut Ud<Address>, span: Span, address: Address) -> Outcome<Ticket> {
    let token = device.token(DeviceQueue::Polled).ok_or("no free entry")?;
    let ticket = token.ticket();
    let transmit = Transmit {
        to: PeerId(1).into(),
        queue: DeviceQueue::Polled,
        header_bytes: 1,
        payload: Some(span),
        solicited: false,
        reason: TxReason::First,
    };
    token.post(&transmit, Some(address));
    Ok(ticket)
}
