//! Cases about queues and their events, paths, and spans.

use unisono_core::device::{Armed, Device, DeviceEvent, DeviceQueue, Memory, PathRequest};
use unisono_core::ids::{PeerId, Rail};
use unisono_core::span::{Region, Span};

use super::{
    ContractViolation, Fixture,
    test_bench::{NODES, ROUTE, Route, TestBench},
};

const LANES: [DeviceQueue; 2] = [DeviceQueue::Polled, DeviceQueue::Interrupt];

/// Longest wait for an event.
const EVENT_NS: u64 = 1_000_000_000;
/// After this long a datagram has arrived.
const SETTLE_NS: u64 = 1_000_000;

pub(super) fn queues_are_separate<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    for lane in LANES {
        for at in LANES {
            bench.send(Route { lane, at, ..ROUTE }, &[at as u8; 20], &[])?;
            let other = LANES[1 - at as usize];
            let arrival = bench.soon(|bench| {
                let wrong = bench.take(0, other).map(|_| Err(ContractViolation::WrongLane(other)));
                wrong.or_else(|| bench.take(0, at).map(Ok))
            });
            let arrival = arrival.ok_or(ContractViolation::Missing { bytes: 20 })??;
            bench.compare(0, &arrival, &[at as u8; 20])?;
            bench.device(0).release(arrival.slot);
        }
    }
    Ok(())
}

/// The lanes that the device has.
fn lanes<F: Fixture>(bench: &TestBench<F>) -> &'static [DeviceQueue] {
    if bench.limits().interrupts { &LANES } else { &LANES[..1] }
}

/// Polls and arms until the lane is armed, as a process does before sleeping.
fn arm_when_empty<F: Fixture>(bench: &mut TestBench<F>, lane: DeviceQueue) -> Result<(), ContractViolation> {
    let armed = bench.soon(|bench| match bench.take(0, lane) {
        Some(arrival) => Some(Err(ContractViolation::Unexpected { head: arrival.head })),
        None => (bench.device(0).arm(lane) == Armed::Armed).then_some(Ok(())),
    });
    armed.unwrap_or(Err(ContractViolation::NeverArmed(lane)))
}

/// Arms the queue and, unless a datagram waits, waits for the event.
fn sleep<F: Fixture>(bench: &mut TestBench<F>, lane: DeviceQueue, round: u32) -> Result<(), ContractViolation> {
    let armed = bench.device(0).arm(lane);
    if armed == Armed::Armed && !bench.fixture.wait(&mut bench.nodes[0].0, lane, EVENT_NS) {
        return Err(ContractViolation::WakeUpLost { lane, round });
    }
    Ok(())
}

pub(super) fn armed_lane_raises_an_event<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    for &lane in lanes(bench) {
        for round in 0..5 {
            arm_when_empty(bench, lane)?;
            bench.send(Route { at: lane, ..ROUTE }, &[round as u8; 8], &[])?;
            if !bench.fixture.wait(&mut bench.nodes[0].0, lane, EVENT_NS) {
                return Err(ContractViolation::WakeUpLost { lane, round });
            }
            let arrival = bench.next(0, lane, 8)?;
            bench.device(0).release(arrival.slot);
        }
    }
    Ok(())
}

pub(super) fn waiting_datagram_is_reported_or_raises_an_event<F: Fixture>(
    bench: &mut TestBench<F>,
) -> Result<(), ContractViolation> {
    for &lane in lanes(bench) {
        for round in 0..5 {
            bench.send(Route { at: lane, ..ROUTE }, &[1; 8], &[])?;
            bench.send(Route { at: lane, ..ROUTE }, &[2; 8], &[])?;
            let first = bench.next(0, lane, 8)?;
            // By now the second waits, too.
            bench.fixture.advance(SETTLE_NS);
            sleep(bench, lane, round)?;
            let second = bench.next(0, lane, 8)?;
            bench.device(0).release(first.slot);
            bench.device(0).release(second.slot);
        }
    }
    Ok(())
}

/// Sends a datagram and arms the queue at different moments of its way: either arming reports that it waits, or the
/// event is raised.
pub(super) fn no_wake_up_is_lost<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    for &lane in lanes(bench) {
        for round in 0..120 {
            bench.send(Route { at: lane, ..ROUTE }, &[round as u8; 8], &[])?;
            bench.fixture.advance(u64::from(round) * 100);
            let arrival = loop {
                sleep(bench, lane, round)?;
                if let Some(arrival) = bench.take(0, lane) {
                    break arrival;
                }
            };
            bench.device(0).release(arrival.slot);
        }
    }
    Ok(())
}

pub(super) fn path_requests_are_answered<F: Fixture>(bench: &mut TestBench<F>) -> Result<(), ContractViolation> {
    for (node, known) in [(1, true), (2, true), (NODES, false), (u32::MAX, false), (1, true)] {
        let peer = PeerId(node);
        resolve(bench, 0, peer, known)?;
        bench.device(0).request_path(PathRequest::Forget(peer));
        if let Some(fact) = bench.device(0).poll_event() {
            return Err(ContractViolation::PathRequest { found: format!("Forget({peer:?}) was answered by {fact:?}") });
        }
    }
    // A path that was forgotten carries datagrams again when it is asked for.
    resolve(bench, 0, PeerId(1), true)?;
    resolve(bench, 1, PeerId(0), true)?;
    bench.check_link(ROUTE)
}

/// Requests the paths to a peer; each rail must be answered for once.
fn resolve<F: Fixture>(
    bench: &mut TestBench<F>,
    node: usize,
    peer: PeerId,
    known: bool,
) -> Result<(), ContractViolation> {
    let (mtu, rails) = (bench.limits().mtu, bench.limits().rails);
    bench.device(node).request_path(PathRequest::Resolve(peer));
    let mut unanswered: Vec<_> = (0..rails).map(Rail).collect();
    while !unanswered.is_empty() {
        let answer = bench.soon(|bench| bench.device(node).poll_event());
        let rail = match answer {
            Some(DeviceEvent::Path { peer: answered, rail, mtu: path }) => {
                (known && answered == peer && path > 0 && path <= mtu).then_some(rail)
            }
            Some(DeviceEvent::NoPath { peer: answered, rail }) => (!known && answered == peer).then_some(rail),
            Some(DeviceEvent::Down(_) | DeviceEvent::Up(_)) | None => None,
        };
        let Some(place) = unanswered.iter().position(|left| Some(*left) == rail) else {
            return Err(ContractViolation::PathRequest {
                found: format!("Resolve({peer:?}) was answered by {answer:?} where {unanswered:?} were open"),
            });
        };
        unanswered.remove(place);
    }
    Ok(())
}

pub(super) fn dead_and_foreign_spans_have_no_address<F: Fixture>(
    bench: &mut TestBench<F>,
) -> Result<(), ContractViolation> {
    let check = |bench: &mut TestBench<F>, region, offset, bytes, expected| {
        let span = Span { region, offset, bytes };
        let found = bench.nodes[0].1.address(span).is_some();
        if found == expected { Ok(()) } else { Err(ContractViolation::Address { span, expected }) }
    };
    let region = bench.region(0, &[1; 100]);
    for (offset, bytes) in [(0, 100), (0, 1), (99, 1), (50, 50)] {
        check(bench, region, offset, bytes, true)?;
    }
    let outside =
        [(0, 101), (100, 1), (99, 2), (101, 0), (usize::MAX, 1), (usize::MAX - 3, 8), (1 << 32, 1), (0, u32::MAX)];
    for (offset, bytes) in outside {
        check(bench, region, offset, bytes, false)?;
    }
    for other in [
        Region::new(region.index(), region.generation().wrapping_add(1)),
        Region::new(region.index(), region.generation().wrapping_sub(1)),
        Region::new(u32::MAX, region.generation()),
        Region::default(),
    ] {
        check(bench, other, 0, 1, false)?;
    }
    bench.retire(0, region);
    check(bench, region, 0, 1, false)?;
    for _ in 0..50 {
        let again = bench.region(0, &[2; 100]);
        check(bench, again, 0, 100, true)?;
        check(bench, region, 0, 1, false)?;
        bench.retire(0, again);
        check(bench, again, 0, 1, false)?;
    }
    Ok(())
}
