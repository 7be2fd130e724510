//! Cases about tokens and tickets.

use std::collections::HashSet;

use unisono_core::{
    device::{Device, DeviceQueue, Ticket, Token},
    span::Span,
};

use super::{
    ContractViolation, Fixture,
    test_bench::{ROUTE, Route, TestBench, pattern},
};

/// The ticket of a token that is dropped.
fn peek<F: Fixture>(bench: &mut TestBench<F>, lane: DeviceQueue) -> Result<Ticket, ContractViolation> {
    let ticket = bench.soon(|bench| bench.device(ROUTE.from).token(lane).map(|token| token.ticket()));
    ticket.ok_or(ContractViolation::NoToken(lane))
}

const fn next_to(expected: Ticket, found: Ticket) -> Result<(), ContractViolation> {
    if expected.0 == found.0 { Ok(()) } else { Err(ContractViolation::NotNext { expected, found }) }
}

pub(super) fn tickets_are_contiguous_and_complete<F: Fixture>(
    bench: &mut TestBench<F>,
) -> Result<(), ContractViolation> {
    let mut last = bench.device(ROUTE.from).completed(ROUTE.lane);
    for batch in [1, 2, 3, 16, 1, 40] {
        for _ in 0..batch {
            let ticket = bench.post(ROUTE, &[7; 16], &[1; 40])?;
            next_to(last.next(), ticket)?;
            last = ticket;
            let completed = bench.device(ROUTE.from).completed(ROUTE.lane);
            if !completed.is_within(last) {
                return Err(ContractViolation::Completed { before: last, found: completed });
            }
        }
        bench.finish(ROUTE.from, ROUTE.lane, last)?;
        bench.device(ROUTE.from).flush(ROUTE.lane);
        let completed = bench.device(ROUTE.from).completed(ROUTE.lane);
        if completed != last {
            return Err(ContractViolation::Completed { before: last, found: completed });
        }
        while let Some(arrival) = bench.take(0, DeviceQueue::Polled) {
            bench.device(0).release(arrival.slot);
        }
    }
    Ok(())
}

pub(super) fn unused_token_posts_nothing<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    for _ in 0..3 {
        let ticket = peek(bench, ROUTE.lane)?;
        let completed = bench.device(ROUTE.from).completed(ROUTE.lane);
        if let Some(mut token) = bench.device(ROUTE.from).token(ROUTE.lane) {
            token.header_room().fill(0xee);
        }
        bench.device(ROUTE.from).flush(ROUTE.lane);
        bench.nothing_comes(0, DeviceQueue::Polled)?;
        next_to(ticket, peek(bench, ROUTE.lane)?)?;
        let after = bench.device(ROUTE.from).completed(ROUTE.lane);
        if after != completed {
            return Err(ContractViolation::Completed { before: completed, found: after });
        }
        bench.check_link(ROUTE)?;
    }
    Ok(())
}

pub(super) fn full_ring_loses_nothing<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    let slots = bench.limits().receive_slots;
    for round in 0..3 {
        let mut missing = HashSet::new();
        let mut last = bench.device(ROUTE.from).completed(ROUTE.lane);
        // More than the receiver can keep would be lost for another reason.
        while missing.len() < slots as usize {
            let number = missing.len() as u32;
            let head = [number.to_le_bytes(), [round; 4]].concat();
            let Some(ticket) = bench.try_post(ROUTE, &head, None) else { break };
            next_to(last.next(), ticket)?;
            last = ticket;
            missing.insert(head);
        }
        bench.device(ROUTE.from).flush(ROUTE.lane);
        while !missing.is_empty() {
            let arrival = bench.next(0, DeviceQueue::Polled, 8)?;
            bench.device(0).release(arrival.slot);
            if !missing.remove(&arrival.head) {
                return Err(ContractViolation::Unexpected { head: arrival.head });
            }
        }
        bench.finish(ROUTE.from, ROUTE.lane, last)?;
        next_to(last.next(), peek(bench, ROUTE.lane)?)?;
    }
    Ok(())
}

/// Changes the payload as soon as its ticket is complete, even before the flush: the arriving bytes must not change.
pub(super) fn payload_may_change_after_its_ticket<F: Fixture>(
    bench: &mut TestBench<F>,
) -> Result<(), ContractViolation> {
    let bytes = (bench.limits().mtu as usize).min(1000);
    for round in 0..8 {
        let (before, after) = (pattern(round, bytes), vec![0xff; bytes]);
        let region = bench.region(ROUTE.from, &before);
        let payload = Some(Span { region, offset: 0, bytes: bytes as u32 });
        let mut posted = bench.try_post(ROUTE, &[], payload).ok_or(ContractViolation::NoToken(ROUTE.lane))?;
        let change = |bench: &mut TestBench<F>| {
            let complete = posted.is_within(bench.device(ROUTE.from).completed(ROUTE.lane));
            complete.then(|| bench.overwrite(ROUTE.from, region, &after))
        };
        if change(bench).is_none() {
            bench.device(ROUTE.from).flush(ROUTE.lane);
            let completed = bench.device(ROUTE.from).completed(ROUTE.lane);
            bench.soon(change).ok_or(ContractViolation::Unfinished { posted, completed })?;
        }
        posted = bench.device(ROUTE.from).completed(ROUTE.lane);
        bench.finish(ROUTE.from, ROUTE.lane, posted)?;
        let arrival = bench.next(0, DeviceQueue::Polled, bytes)?;
        bench.compare(0, &arrival, &before)?;
        bench.device(0).release(arrival.slot);
        bench.retire(ROUTE.from, region);
    }
    Ok(())
}

pub(super) fn queues_count_their_tickets_separately<F: Fixture>(
    bench: &mut TestBench<F>,
) -> Result<(), ContractViolation> {
    let interrupt = Route { lane: DeviceQueue::Interrupt, at: DeviceQueue::Interrupt, ..ROUTE };
    for posted in [ROUTE, interrupt, ROUTE, ROUTE] {
        let before = [peek(bench, DeviceQueue::Polled)?, peek(bench, DeviceQueue::Interrupt)?];
        bench.send(posted, &[3; 8], &[])?;
        let after = [peek(bench, DeviceQueue::Polled)?, peek(bench, DeviceQueue::Interrupt)?];
        for lane in [DeviceQueue::Polled, DeviceQueue::Interrupt] {
            let before = before[lane as usize];
            let expected = if lane == posted.lane { before.next() } else { before };
            next_to(expected, after[lane as usize])?;
        }
        let arrival = bench.next(0, posted.at, 8)?;
        bench.device(0).release(arrival.slot);
    }
    Ok(())
}

/// Posts on both queues, and changes each payload as soon as the ticket on its own queue is complete.
pub(super) fn queues_complete_their_own_payloads<F: Fixture>(
    bench: &mut TestBench<F>,
) -> Result<(), ContractViolation> {
    let bytes = (bench.limits().mtu as usize).min(1000);
    let interrupt = Route { lane: DeviceQueue::Interrupt, ..ROUTE };
    for (round, (posted, completed_first)) in
        [([ROUTE, interrupt], 0), ([ROUTE, interrupt], 1), ([interrupt, ROUTE], 0), ([interrupt, ROUTE], 1)]
            .into_iter()
            .enumerate()
    {
        let mut payloads = Vec::new();
        for (which, route) in posted.into_iter().enumerate() {
            let before = pattern(2 * round as u64 + which as u64, bytes);
            let region = bench.region(ROUTE.from, &before);
            let payload = Some(Span { region, offset: 0, bytes: bytes as u32 });
            let ticket = bench.try_post(route, &[], payload).ok_or(ContractViolation::NoToken(route.lane))?;
            payloads.push((before, region, ticket));
        }
        for which in [completed_first, 1 - completed_first] {
            let (lane, (_, region, ticket)) = (posted[which].lane, &payloads[which]);
            bench.finish(ROUTE.from, lane, *ticket)?;
            bench.overwrite(ROUTE.from, *region, &vec![0xff; bytes]);
        }
        for _ in 0..2 {
            let arrival = bench.next(0, DeviceQueue::Polled, bytes)?;
            let contents = bench.contents(0, &arrival)?;
            bench.device(0).release(arrival.slot);
            let Some(which) = payloads.iter().position(|(before, ..)| *before == contents) else {
                return Err(ContractViolation::Unexpected { head: arrival.head });
            };
            let (_, region, _) = payloads.swap_remove(which);
            bench.retire(ROUTE.from, region);
        }
    }
    Ok(())
}
