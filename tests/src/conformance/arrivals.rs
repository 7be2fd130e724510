//! Cases about arriving datagrams: they equal the posted ones.

use std::collections::HashSet;

use unisono_core::device::{Device, DeviceQueue, HEADER_ROOM};
use unisono_core::ids::PeerId;
use unisono_core::span::Span;

use super::{
    ContractViolation, Fixture,
    test_bench::{NODES, ROUTE, Route, TestBench, pattern},
};

fn exchange_pattern<F: Fixture>(bench: &mut TestBench<F>, head: usize, body: usize) -> Result<(), ContractViolation> {
    let bytes = pattern(head as u64, head + body);
    let arrival = bench.exchange(ROUTE, &bytes[..head], &bytes[head..])?;
    bench.device(0).release(arrival.slot);
    Ok(())
}

pub(super) fn every_length_arrives_byte_exact<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    let mtu = bench.limits().mtu as usize;
    let mut lengths: Vec<usize> = (0..=HEADER_ROOM + 8).collect();
    lengths.extend((7..17).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]));
    lengths.extend((1..40).map(|part| mtu * part / 40));
    lengths.extend([mtu - 1, mtu]);
    lengths.retain(|&length| length <= mtu);
    for length in lengths {
        let head = length.min(32);
        exchange_pattern(bench, head, length - head)?;
    }
    Ok(())
}

pub(super) fn head_and_payload_are_gathered<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    let mtu = bench.limits().mtu as usize;
    for head in (0..=HEADER_ROOM).step_by(3).chain([HEADER_ROOM]) {
        for body in [0, 1, 40, 64, 500, mtu - head] {
            exchange_pattern(bench, head, body)?;
        }
    }
    Ok(())
}

/// Runs of equal lengths with a shorter last one are what a socket may join; others it must not.
pub(super) fn datagrams_of_one_flush_keep_their_bounds<F: Fixture>(
    bench: &mut TestBench<F>,
) -> Result<(), ContractViolation> {
    let limits = bench.limits();
    let longest = limits.mtu as usize;
    let mut lengths = vec![500, 500, 500, 120, 500, 500, 501, 64, 64, 64, 64, 32, 33, 8, 9];
    lengths.extend([longest, longest, longest - 1, longest, 10, longest]);
    lengths.truncate(limits.receive_slots as usize);
    let mut sent = [HashSet::new(), HashSet::new()];
    for (number, length) in lengths.into_iter().enumerate() {
        let to = number % 5 % 2;
        let mut bytes = pattern(number as u64, length);
        bytes[0] = number as u8;
        let head = length.min(24 + number % 2 * 8);
        let route = Route { to: PeerId(2 * to as u32), ..ROUTE };
        bench.post(route, &bytes[..head], &bytes[head..])?;
        sent[to].insert(bytes);
    }
    bench.device(ROUTE.from).flush(ROUTE.lane);
    for (to, mut sent) in sent.into_iter().enumerate() {
        let node = 2 * to;
        while let Some(missing) = sent.iter().next() {
            let arrival = bench.next(node, DeviceQueue::Polled, missing.len())?;
            let contents = bench.contents(node, &arrival)?;
            bench.device(node).release(arrival.slot);
            if !sent.remove(&contents) {
                return Err(ContractViolation::Unexpected { head: arrival.head });
            }
        }
        bench.nothing_comes(node, DeviceQueue::Polled)?;
    }
    Ok(())
}

pub(super) fn placed_bytes_land_exactly<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    let longest = (bench.limits().mtu as usize).min(4000);
    let bytes = pattern(5, longest);
    let arrival = bench.exchange(ROUTE, &bytes[..24], &bytes[24..])?;
    let mut expected = vec![0x5a; longest + 100];
    let region = bench.region(0, &expected);
    let mut cursor = 0;
    let pieces = [
        (0, 0),
        (0, 1),
        (1, 1),
        (23, 2),
        (24, 8),
        (63, 2),
        (64, 64),
        (65, 200),
        (0, 100),
        (longest - 1, 1),
        (longest, 0),
        (longest / 2, longest / 4),
    ];
    for (start, length) in pieces {
        cursor += 7;
        let to = Span { region, offset: cursor, bytes: length as u32 };
        bench.place(0, arrival.slot, start as u16, to)?;
        expected[cursor..cursor + length].copy_from_slice(&bytes[start..start + length]);
        cursor += length;
        let found = bench.read(0, region, expected.len());
        if let Some(at) = (0..expected.len()).find(|&at| expected[at] != found[at]) {
            return Err(ContractViolation::Placed { at, expected: expected[at], found: found[at] });
        }
    }
    bench.device(0).release(arrival.slot);
    bench.retire(0, region);
    Ok(())
}

pub(super) fn senders_are_distinguished<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    for round in 0..4 {
        for from in 1..NODES {
            let arrival = bench.exchange(Route { from: from as usize, ..ROUTE }, &[from as u8, round, 9], &[])?;
            bench.device(0).release(arrival.slot);
            if arrival.senders != [from] {
                return Err(ContractViolation::Sender { sent: from, named: arrival.senders });
            }
        }
    }
    Ok(())
}

pub(super) fn posting_to_unknown_peer_is_lost_alone<F: Fixture>(
    bench: &mut TestBench<F>,
) -> Result<(), ContractViolation> {
    for unknown in [NODES, NODES + 1000, u32::MAX] {
        let first = pattern(1, 300);
        let second = pattern(2, 300);
        bench.post(ROUTE, &first[..32], &first[32..])?;
        bench.post(Route { to: PeerId(unknown), ..ROUTE }, &first[..32], &first[32..])?;
        let last = bench.post(ROUTE, &second[..32], &second[32..])?;
        bench.finish(ROUTE.from, ROUTE.lane, last)?;
        let mut sent = HashSet::from([first, second]);
        for _ in 0..2 {
            let arrival = bench.next(0, DeviceQueue::Polled, 300)?;
            let contents = bench.contents(0, &arrival)?;
            bench.device(0).release(arrival.slot);
            if !sent.remove(&contents) {
                return Err(ContractViolation::Unexpected { head: arrival.head });
            }
        }
        bench.nothing_comes(0, DeviceQueue::Polled)?;
    }
    Ok(())
}
