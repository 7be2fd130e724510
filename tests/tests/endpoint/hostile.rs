//! Endpoints against a hostile network, in short runs (`--bin hostile` damages ten million datagrams).

use proptest::prelude::*;
use unisono_core::counters::DropReason;
use unisono_core::device::TxReason;
use unisono_core::endpoint::Event;
use unisono_core::ids::RemoteKey;
use unisono_core::span::Span;
use unisono_core::wire::{DatagramKind, Header};
use unisono_tests::scenarios::hostile::{Choices, lies, noise};
use unisono_tests::sim::node::{SimProcess, job};
use unisono_tests::sim::{Config, Network, NodeId, TamperVerdict};

const SECOND: u64 = 1_000_000_000;

#[test]
fn everything_arrives_when_damage_is_noticed() {
    let outcome = noise(Choices::random(11), 20_000);
    assert!(outcome.is_clean() && outcome.succeeded == outcome.ended && outcome.ended > 1000, "{outcome:?}");
    assert!(outcome.checked == outcome.damaged && outcome.damaged >= 20_000, "{outcome:?}");
}

#[test]
fn lies_end_lives_but_nothing_lasts_and_nothing_is_overwritten() {
    let outcome = lies(Choices::random(12), 20_000);
    assert!(outcome.is_clean(), "{outcome:?}");
    assert!(outcome.restarts > 5 && outcome.succeeded > 1000, "{outcome:?}");
    assert!(outcome.damaged + outcome.random >= 20_000 && outcome.random > 1000, "{outcome:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_choice_violates_anything(bytes in proptest::collection::vec(any::<u8>(), 0..6000)) {
        for phase in [noise, lies] {
            let outcome = phase(Choices::given(&bytes), 400);
            prop_assert!(outcome.is_clean(), "{:?}", outcome);
        }
    }
}

/// Whether both sides see the other's incarnation end.
fn both_end(network: &Network, nodes: &mut [SimProcess<64>]) -> bool {
    let mut ended = [false; 2];
    while let Some(step) = network.step_until(30 * SECOND) {
        let i = step.node.0 as usize;
        let events = nodes[i].drive(step.lane);
        ended[i] |= events.iter().any(|event| matches!(event, Event::PeerFailed(_)));
        if ended == [true; 2] {
            return true;
        }
    }
    false
}

#[test]
fn acknowledgement_of_what_never_arrived_ends_the_pair() {
    let network = Network::new(1, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    // The only datagram with data is lost, the answer to the probe says that it has arrived.
    network.tamper(|passing| {
        if passing.cause == Some(TxReason::First) {
            return TamperVerdict::Take;
        }
        if let (Ok(mut header), NodeId(1)) = (Header::<32>::parse(passing.bytes), passing.from)
            && header.kind == DatagramKind::Acknowledge
        {
            header.acknowledged = header.acknowledged.wrapping_add(1);
            header.emit(passing.bytes);
        }
        TamperVerdict::Pass
    });
    // The receiver waits for something, so it watches the sender.
    nodes[1].endpoint.watch(0, NodeId(0).into(), true);
    nodes[1].wake();
    nodes[0].send(NodeId(1), b"never arrives").expect("room");
    let mut done = false;
    while let Some(step) = network.step_until(SECOND) {
        let events = nodes[step.node.0 as usize].drive(step.lane);
        done |= events.iter().any(|event| matches!(event, Event::Completed(_, Ok(()))));
        if done {
            break;
        }
    }
    assert!(done, "the sender believes it");
    network.tamper(|_| TamperVerdict::Pass);
    assert!(both_end(&network, &mut nodes), "{:?}", nodes[0].inbox.counters);
}

#[test]
fn segment_that_is_never_taken_ends_the_pair() {
    let network = Network::new(1, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    // The opening says fewer bytes than follow.
    network.tamper(|passing| {
        if let Ok(header) = Header::<32>::parse(passing.bytes)
            && header.kind == DatagramKind::Open
            && let Some(bytes) = passing.bytes.get_mut(28..32)
        {
            bytes.copy_from_slice(&100_u32.to_le_bytes());
        }
        TamperVerdict::Pass
    });
    let region = nodes[1].memory.make(9000);
    let to = Span { region, offset: 0, bytes: 9000 };
    let placement = nodes[1].endpoint.grant(NodeId(0).into(), to, RemoteKey(1)).expect("room");
    let source = nodes[0].memory.make(9000);
    let from = Span { region: source, offset: 0, bytes: 9000 };
    nodes[0].endpoint.place(0, NodeId(1).into(), placement, RemoteKey(1), from).expect("room");
    nodes[0].wake();
    assert!(both_end(&network, &mut nodes), "{:?}", nodes[0].inbox.counters);
}

/// Places 9000 bytes of which the segment `index` arrives once with `at` changed to `value`; the resent one is sound.
fn placement_with_altered_segment(index: u32, at: core::ops::Range<usize>, value: u32) {
    let network = Network::new(1, Config::default());
    let mut nodes = job::<64>(&network, 2, |_, _| {});
    network.tamper(move |passing| {
        let header = Header::<32>::parse(passing.bytes);
        let original = header.is_ok_and(|header| header.kind == DatagramKind::Segment && header.flags.count() == 0);
        if original && passing.bytes.get(28..32) == Some(&index.to_le_bytes()[..]) {
            passing.bytes[at.clone()].copy_from_slice(&value.to_le_bytes());
        }
        TamperVerdict::Pass
    });
    let data: Vec<u8> = (0..9000_u32).map(|i| (i * 7 + i / 256) as u8).collect();
    let region = nodes[1].memory.make(9000);
    let to = Span { region, offset: 0, bytes: 9000 };
    let placement = nodes[1].endpoint.grant(NodeId(0).into(), to, RemoteKey(1)).expect("room");
    let source = nodes[0].memory.make(9000);
    nodes[0].memory.write(source, 0, &data).expect("room");
    let from = Span { region: source, offset: 0, bytes: 9000 };
    nodes[0].endpoint.place(0, NodeId(1).into(), placement, RemoteKey(1), from).expect("room");
    nodes[0].wake();
    let mut delivered = false;
    while let Some(step) = network.step_until(SECOND) {
        let events = nodes[step.node.0 as usize].drive(step.lane);
        delivered |= events.contains(&Event::Delivered(placement, 9000));
    }
    assert!(delivered, "the grant stays unfilled: {:?}", nodes[1].inbox.counters);
    assert_eq!(nodes[1].inbox.counters.dropped_for(DropReason::Refused), 1, "{:?}", nodes[1].inbox.counters);
    assert!(nodes[1].memory.read(to) == Some(data), "bytes differ");
}

#[test]
fn altered_segment_leaves_no_grant_unfilled() {
    // Of no grant that is out.
    placement_with_altered_segment(2, 24..28, 0x7777_0000);
    placement_with_altered_segment(2, 24..28, 0xffff);
    // In another's place.
    placement_with_altered_segment(2, 28..32, 3);
    placement_with_altered_segment(0, 28..32, 1);
}
