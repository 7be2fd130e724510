//! Cases about receive slots and held datagrams.

use std::collections::HashSet;

use unisono_core::device::{Device, DeviceQueue, Slot};

use super::{
    ContractViolation, Fixture,
    test_bench::{Arrival, ROUTE, TestBench, pattern},
};

/// Posts numbered datagrams of `bytes` bytes and waits until they are sent.
fn send_numbered<F: Fixture>(
    bench: &mut TestBench<F>,
    first: u32,
    count: u32,
    bytes: usize,
) -> Result<(), ContractViolation> {
    let body = vec![0x11; bytes.saturating_sub(4)];
    let mut last = None;
    for number in first..first + count {
        last = Some(bench.post(ROUTE, &number.to_le_bytes(), &body)?);
    }
    last.map_or(Ok(()), |last| bench.finish(ROUTE.from, ROUTE.lane, last))
}

/// Receives and releases numbered datagrams until `count` came; each number of `first..first + count` once.
fn receive_numbered<F: Fixture>(
    bench: &mut TestBench<F>,
    first: u32,
    count: u32,
    bytes: usize,
) -> Result<(), ContractViolation> {
    let mut missing: HashSet<u32> = (first..first + count).collect();
    while !missing.is_empty() {
        let found = count as usize - missing.len();
        let Ok(arrival) = bench.next(0, DeviceQueue::Polled, bytes) else {
            return Err(ContractViolation::TooFew { expected: count as usize, found });
        };
        bench.device(0).release(arrival.slot);
        if arrival.bytes != bytes {
            return Err(ContractViolation::Length { expected: bytes, found: arrival.bytes });
        }
        let number = arrival.head.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        if !number.is_some_and(|number| missing.remove(&number)) {
            return Err(ContractViolation::Unexpected { head: arrival.head });
        }
    }
    Ok(())
}

pub(super) fn receive_slots_fill_without_loss<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    let limits = bench.limits();
    for bytes in [limits.mtu as usize, 32] {
        send_numbered(bench, 0, limits.receive_slots, bytes)?;
        receive_numbered(bench, 0, limits.receive_slots, bytes)?;
        bench.nothing_comes(0, DeviceQueue::Polled)?;
    }
    Ok(())
}

pub(super) fn released_slots_serve_again<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    let slots = bench.limits().receive_slots;
    let batch = slots.div_ceil(2);
    for round in 0..9 {
        send_numbered(bench, round * batch, batch, 40)?;
        receive_numbered(bench, round * batch, batch, 40)?;
    }
    // After an overrun too: whatever was kept is released, then there is room for as many as ever.
    send_numbered(bench, 0, 2 * slots, 40)?;
    drain(bench);
    send_numbered(bench, 9_000_000, slots, 40)?;
    receive_numbered(bench, 9_000_000, slots, 40)
}

/// Receives and releases what waits, until nothing comes any more.
fn drain<F: Fixture>(bench: &mut TestBench<F>) -> usize {
    let mut drained = 0;
    loop {
        while let Some(arrival) = bench.take(0, DeviceQueue::Polled) {
            bench.device(0).release(arrival.slot);
            drained += 1;
        }
        match bench.nothing_comes(0, DeviceQueue::Polled) {
            Ok(()) => return drained,
            Err(_) => drained += 1,
        }
    }
}

pub(super) fn slots_in_use_are_distinct<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    let count = bench.limits().receive_slots.min(4);
    for round in 0..10 {
        send_numbered(bench, 0, count, 100)?;
        let mut arrivals: Vec<Arrival> = Vec::new();
        for _ in 0..count {
            let arrival = bench.next(0, DeviceQueue::Polled, 100)?;
            if arrivals.iter().any(|other| other.slot == arrival.slot) {
                return Err(ContractViolation::SharedSlot(arrival.slot));
            }
            arrivals.push(arrival);
        }
        // In another order than they came.
        arrivals.rotate_left(round % count as usize);
        while let Some(arrival) = arrivals.pop() {
            let expected = [&arrival.head[..4], &[0x11; 96]].concat();
            bench.compare(0, &arrival, &expected)?;
            bench.device(0).release(arrival.slot);
        }
    }
    Ok(())
}

pub(super) fn held_datagrams_outlive_an_overrun<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    let limits = bench.limits();
    let bytes = (limits.mtu as usize).min(700);
    let mut held = Vec::new();
    for number in 0..limits.holdable {
        let expected = pattern(u64::from(number), bytes);
        let arrival = bench.exchange(ROUTE, &expected[..32], &expected[32..])?;
        bench.device(0).hold(arrival.slot);
        held.push((arrival.slot, expected));
    }
    check_held(bench, &held)?;
    // They occupy no receive slot: as many as ever can wait, and those beyond push nothing out.
    send_numbered(bench, 0, limits.receive_slots, 40)?;
    receive_numbered(bench, 0, limits.receive_slots, 40)?;
    send_numbered(bench, 0, 3 * limits.receive_slots, bytes)?;
    check_held(bench, &held)?;
    let found = drain(bench);
    let expected = limits.receive_slots as usize;
    if found < expected {
        return Err(ContractViolation::TooFew { expected, found });
    }
    check_held(bench, &held)?;
    // Given back from the middle out, the others keep their bytes.
    while !held.is_empty() {
        let (slot, _) = held.swap_remove(held.len() / 2);
        bench.device(0).release(slot);
        if held.len() % 8 == 0 {
            bench.check_link(ROUTE)?;
            check_held(bench, &held)?;
        }
    }
    let all = limits.holdable.min(limits.receive_slots);
    send_numbered(bench, 0, all, 40)?;
    receive_numbered(bench, 0, all, 40)
}

fn check_held<F: Fixture>(bench: &mut TestBench<F>, held: &[(Slot, Vec<u8>)]) -> Result<(), ContractViolation> {
    for (index, (slot, expected)) in held.iter().enumerate() {
        if held[..index].iter().any(|(other, _)| other == slot) {
            return Err(ContractViolation::SharedSlot(*slot));
        }
        let arrival = Arrival::of(&bench.device(0).held(*slot));
        if arrival.slot != *slot {
            return Err(ContractViolation::Renamed { before: *slot, found: arrival.slot });
        }
        if arrival.senders != [ROUTE.from as u32] {
            return Err(ContractViolation::Sender { sent: ROUTE.from as u32, named: arrival.senders });
        }
        bench.compare(0, &arrival, expected)?;
    }
    Ok(())
}
