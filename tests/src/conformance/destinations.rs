//! Cases about rails and multicast groups.

use unisono_core::device::{Destination, Device, DeviceQueue, GroupError};
use unisono_core::ids::{GroupId, PeerId, Rail};

use super::{
    ContractViolation, Fixture,
    test_bench::{NODES, QUIET_NS, ROUTE, Route, TestBench, pattern},
};

/// Groups that the fixture binds where its devices have any.
const GROUPS: [GroupId; 2] = [GroupId(0), GroupId(1)];
/// After this long the network knows of a membership, or that it has ended.
const KNOWN_NS: u64 = 20_000_000;
const BYTES: usize = 300;

pub(super) fn every_rail_delivers<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    for rail in (0..bench.limits().rails).map(Rail) {
        for from in 1..NODES {
            // Distinct, so that a duplicate of an earlier one is known as such.
            let bytes = pattern(u64::from(rail.0) << 8 | u64::from(from), BYTES);
            let route = Route { from: from as usize, rail, ..ROUTE };
            let arrival = bench.exchange(route, &bytes[..32], &bytes[32..])?;
            bench.device(0).release(arrival.slot);
            if arrival.senders != [from] {
                return Err(ContractViolation::Sender { sent: from, named: arrival.senders });
            }
        }
    }
    Ok(())
}

pub(super) fn posting_to_unknown_destination_is_lost_alone<F: Fixture>(
    bench: &mut TestBench<F>,
) -> Result<(), ContractViolation> {
    let rail = bench.limits().rails;
    let peer = PeerId(0);
    let unknown = [
        Destination::Peer { peer, rail: Rail(rail) },
        Destination::Peer { peer, rail: Rail(u8::MAX) },
        Destination::Group(GroupId(u32::MAX)),
    ];
    for unknown in unknown {
        let bytes = pattern(3, BYTES);
        bench.post_to(unknown, ROUTE, &bytes[..32], &bytes[32..])?;
        let last = bench.post(ROUTE, &bytes[..32], &[])?;
        bench.finish(ROUTE.from, ROUTE.lane, last)?;
        let arrival = bench.next(0, DeviceQueue::Polled, 32)?;
        bench.compare(0, &arrival, &bytes[..32])?;
        bench.device(0).release(arrival.slot);
        bench.nothing_comes(0, DeviceQueue::Polled)?;
    }
    Ok(())
}

fn expect_group<T: PartialEq + core::fmt::Debug>(
    call: &str,
    found: Result<T, GroupError>,
    expected: Result<T, GroupError>,
) -> Result<(), ContractViolation> {
    if found == expected {
        return Ok(());
    }
    Err(ContractViolation::Group { found: format!("{call} returns {found:?} instead of {expected:?}") })
}

/// A device without groups says so; one that has some lets a member join again, and leave once.
pub(super) fn groups_are_joined_and_left<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    let supported = bench.limits().groups > 0;
    let device = bench.device(0);
    if !supported {
        for group in GROUPS {
            expect_group("join", device.join(group), Err(GroupError::Unsupported))?;
            expect_group("leave", device.leave(group), Err(GroupError::Unsupported))?;
        }
        return Ok(());
    }
    for group in GROUPS {
        expect_group("leave before join", device.leave(group), Err(GroupError::NotMember(group)))?;
        for _ in 0..3 {
            expect_group("join", device.join(group), Ok(()))?;
            expect_group("join of a member", device.join(group), Ok(()))?;
            expect_group("leave", device.leave(group), Ok(()))?;
            expect_group("leave after leave", device.leave(group), Err(GroupError::NotMember(group)))?;
        }
    }
    Ok(())
}

/// Sends to a group; exactly the named members must receive. The sender's own copy, if it gets one, is released.
fn multicast<F: Fixture>(
    bench: &mut TestBench<F>,
    from: usize,
    group: GroupId,
    receivers: &[usize],
) -> Result<(), ContractViolation> {
    for number in 0..4 {
        let bytes = pattern(number, BYTES);
        let route = Route { from, ..ROUTE };
        let last = bench.post_to(Destination::Group(group), route, &bytes[..32], &bytes[32..])?;
        bench.finish(from, DeviceQueue::Polled, last)?;
        for &node in receivers {
            let arrival = bench.next(node, DeviceQueue::Polled, BYTES)?;
            bench.compare(node, &arrival, &bytes)?;
            bench.device(node).release(arrival.slot);
            if arrival.senders != [from as u32] {
                return Err(ContractViolation::Sender { sent: from as u32, named: arrival.senders });
            }
        }
    }
    // A device may find nothing while datagrams wait.
    while let Some(own) = bench.until(QUIET_NS, |bench| bench.take(from, DeviceQueue::Polled)) {
        bench.device(from).release(own.slot);
        if own.senders != [from as u32] {
            return Err(ContractViolation::Sender { sent: from as u32, named: own.senders });
        }
    }
    (0..NODES as usize).filter(|node| *node != from).try_for_each(|node| bench.nothing_comes(node, DeviceQueue::Polled))
}

pub(super) fn members_of_a_group_receive<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    let [one, other] = GROUPS;
    for (node, group) in [(0, one), (1, one), (1, other), (2, other)] {
        expect_group("join", bench.device(node).join(group), Ok(()))?;
    }
    bench.fixture.advance(KNOWN_NS);
    multicast(bench, 1, one, &[0])?;
    multicast(bench, 1, other, &[2])?;
    multicast(bench, 0, one, &[1])?;
    expect_group("join", bench.device(2).join(one), Ok(()))?;
    bench.fixture.advance(KNOWN_NS);
    multicast(bench, 1, one, &[0, 2])?;
    expect_group("leave", bench.device(0).leave(one), Ok(()))?;
    bench.fixture.advance(KNOWN_NS);
    multicast(bench, 1, one, &[2])?;
    bench.check_link(ROUTE)
}
