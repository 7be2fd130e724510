//! Properties of the region check and of the headers.

extern crate alloc;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::atomic::{AtomicKind, Width};
use super::header::RmaMessage;
use super::operation::RmaRequest;
use super::region::Access;
use super::*;
use crate::span::Region;

fn rights() -> impl Strategy<Value = Rights> {
    (0_u8..8).prop_map(Rights::from_bits_truncate)
}

fn span() -> impl Strategy<Value = RemoteSpan> {
    (any::<u16>(), any::<u64>(), any::<u64>())
        .prop_map(|(index, key, offset)| RemoteSpan { region: RKey { index, key: RemoteKey(key) }, offset })
}

fn stride() -> impl Strategy<Value = Stride> {
    any::<[u32; 2]>().prop_map(|[block, distance]| Stride { block, distance })
}

fn message() -> impl Strategy<Value = RmaMessage> {
    let atomic = (span(), any::<[u64; 2]>(), any::<bool>(), 0..4).prop_map(|(at, [a, b], is_short, which)| {
        let kind = match which {
            0 => AtomicKind::FetchAdd { add: a, boundaries: b },
            1 => AtomicKind::CompareSwap { compare: a, swap: b },
            2 => AtomicKind::Swap { swap: a, mask: b },
            _ => AtomicKind::MaskedCompareSwap { compare: a, swap: b, compare_mask: 0, swap_mask: 0 },
        };
        let width = if is_short { Width::Bits32 } else { Width::Bits64 };
        RmaMessage::Atomic { at, operation: AtomicOperation { width, kind } }
    });
    let grant = (any::<u32>(), any::<u64>())
        .prop_map(|(placement, key)| ReadPlacement { placement: PlacementId(placement), key: RemoteKey(key) });
    prop_oneof![
        (span(), any::<u32>()).prop_map(|(at, rest)| RmaMessage::Write { at, rest }),
        (span(), any::<u32>()).prop_map(|(at, immediate)| RmaMessage::WriteImmediate { at, immediate }),
        (span(), any::<u32>(), prop::option::of(grant)).prop_map(|(at, bytes, into)| RmaMessage::Read {
            at,
            bytes,
            into
        }),
        atomic,
        any::<[u64; 2]>().prop_map(|[compare, swap]| RmaMessage::Masks { compare, swap }),
        (span(), any::<[u8; 2]>(), any::<bool>(), prop::option::of(stride())).prop_map(
            |(at, [operation, datatype], fetch, stride)| {
                RmaMessage::Accumulate { at, update: ElementUpdate { operation, datatype }, fetch, stride }
            }
        ),
        (span(), any::<u32>(), stride()).prop_map(|(at, bytes, stride)| RmaMessage::ReadBlocks { at, bytes, stride }),
        Just(RmaMessage::Flush),
        any::<u64>().prop_map(RmaMessage::Value),
        Just(RmaMessage::Data),
        Just(RmaMessage::Done),
        (1_u8..7, any::<u32>(), any::<u16>()).prop_map(|(reason, count, region)| {
            let reason = Refusal::of(reason).expect("a reason");
            RmaMessage::Refused { reason, count, region }
        }),
        Just(RmaMessage::Retry),
        Just(RmaMessage::Flushed),
    ]
}

proptest! {
    /// Whatever a request names, the check returns memory of the region alone, and only with the key.
    #[test]
    fn check_admits_exactly_the_bytes_of_the_region(
        start in 0_usize..64, bytes in 0_usize..64, has in rights(), key: u64,
        index in 0_u16..3, is_key in any::<bool>(), offset in prop_oneof![0_u64..70, any::<u64>()],
        length in prop_oneof![0_u32..70, any::<u32>()], needs in rights(), power in 0_u32..4, revokes in any::<bool>(),
    ) {
        let mut table = RegionTable::new(vec![RegionRecord::FREE; 2].into_boxed_slice());
        let memory = Region::new(5, 6);
        let region = table.register(memory, start, bytes, has, RemoteKey(key)).expect("room");
        if revokes {
            prop_assert!(table.revoke(region) && !table.revoke(region));
        }
        let named = RKey { index, key: if is_key { RemoteKey(key) } else { RemoteKey(!key) } };
        let at = RemoteSpan { region: named, offset };
        let found = table.check(&Access { at, bytes: length, rights: needs, alignment: 1 << power });
        let end = u128::from(offset) + u128::from(length);
        let inside = end <= bytes as u128;
        let is_aligned = inside && (start as u64 + offset).is_multiple_of(1 << power);
        let may = !revokes && named == region && has.contains(needs) && is_aligned;
        prop_assert_eq!(found.is_ok(), may, "{:?}", found);
        if let Ok(span) = found {
            prop_assert_eq!((span.region, span.offset as u64, span.bytes), (memory, start as u64 + offset, length));
        }
    }

    /// A header is parsed to what it was made of.
    #[test]
    fn headers_survive_their_bytes(message in message(), operation: u32, retry: bool, payload in 0_u32..2000) {
        let has_payload = matches!(
            message,
            RmaMessage::Write { .. }
                | RmaMessage::WriteImmediate { .. }
                | RmaMessage::Accumulate { .. }
                | RmaMessage::Data
        );
        let header = RmaHeader { message, operation, retry: false, payload: if has_payload { payload } else { 0 } };
        let retry = retry && !header.is_answer() && !matches!(message, RmaMessage::Write { .. } | RmaMessage::Flush);
        let header = RmaHeader { retry, ..header };
        let bytes = header.emit();
        let length = bytes.as_ref().len() as u32 + header.payload;
        prop_assert_eq!(RmaHeader::parse(bytes.as_ref(), length), Some(header));
        // Cut short, it is nothing.
        for cut in 0..bytes.as_ref().len() {
            prop_assert_eq!(RmaHeader::parse(&bytes.as_ref()[..cut], cut as u32), None);
        }
    }

    /// Arbitrary bytes are either no header, or exactly the bytes of one.
    #[test]
    fn bytes_that_parse_are_those_of_one_header(
        kind in prop_oneof![header::FIRST..=header::LAST, any::<u8>()], rest: [u8; 39], sparse in any::<[bool; 39]>(),
        extra in 0_u32..100,
    ) {
        let mut head = [kind; 40];
        for ((into, byte), keeps) in head[1..].iter_mut().zip(rest).zip(sparse) {
            *into = if keeps { byte } else { 0 };
        }
        if let Some(header) = RmaHeader::parse(&head, 40 + extra) {
            let bytes = header.emit();
            prop_assert_eq!(bytes.as_ref(), &head[..bytes.as_ref().len()]);
            prop_assert_eq!(bytes.as_ref().len() as u32 + header.payload, 40 + extra);
        }
    }
}

/// The storage of the tests.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Boxes;

impl RmaStorage for Boxes {
    type Regions = Box<[RegionRecord]>;
    type Operations = Box<[OperationRecord]>;
    type Targets = Box<[TargetState]>;
    type Entries = Box<[Entry]>;
    type Requesters = Box<[RequesterState]>;
}

fn machine(peers: usize) -> Rma<Boxes> {
    let pools = RmaPools {
        regions: vec![RegionRecord::FREE; 1].into(),
        operations: vec![OperationRecord::FREE; 4].into(),
        targets: vec![TargetState::FREE; peers].into(),
        entries: vec![Entry::FREE; 4].into(),
        requesters: vec![RequesterState::FREE; peers].into(),
    };
    Rma::new(pools, 2, Staging { region: Region::new(1, 1), slot: 64 })
}

const PEER: PeerId = PeerId(0);
const AT: RemoteSpan = RemoteSpan { region: RKey { index: 0, key: RemoteKey(0) }, offset: 0 };
/// Bytes of a message to the peer.
const ROOM: u32 = 100;
/// Memory of two messages.
const MEMORY: Span = Span { region: Region::new(0, 1), offset: 0, bytes: ROOM };
const ADD: RmaRequest =
    RmaRequest::Atomic(AtomicOperation { width: Width::Bits64, kind: AtomicKind::FetchAdd { add: 1, boundaries: 0 } });
const WRITE: RmaRequest = RmaRequest::Write { from: MEMORY, immediate: None };

/// A machine that starts these operations on its peer.
fn starting(requests: &[(RmaRequest, bool)]) -> Rma<Boxes> {
    let mut machine = machine(1);
    machine.connect(PEER, ROOM);
    for (user, (request, fence)) in (0..).zip(requests) {
        let call = RmaCall { to: PEER, at: AT, request: *request, fence: *fence, user };
        machine.start(&call).expect("connected");
    }
    machine
}

/// The next message of the machine.
fn next(machine: &mut Rma<Boxes>) -> Option<(RmaHeader, Owner)> {
    let Action::Send { head, payload, owner, .. } = machine.poll_action(false)? else { return None };
    let bytes = head.as_ref().len() as u32 + payload.map_or(0, |span| span.bytes);
    Some((RmaHeader::parse(head.as_ref(), bytes).expect("a header"), owner))
}

#[test]
fn a_failure_says_what_the_target_may_have_done() {
    use RmaError::{Partial, PeerFailed, Unknown};
    let immediate = RmaRequest::Write { from: MEMORY, immediate: Some(3) };
    let read = RmaRequest::Read { into: Span { bytes: 8, ..MEMORY }, stride: None };
    let combined = Span { bytes: 8, ..MEMORY };
    let update = ElementUpdate { operation: 0, datatype: 0 };
    let accumulate = RmaRequest::Accumulate { from: combined, update, result: None, stride: None };
    for (request, by_sent) in [
        (WRITE, &[PeerFailed, Partial, Partial][..]),
        (immediate, &[PeerFailed, Partial, Unknown]),
        (ADD, &[PeerFailed, Unknown]),
        (accumulate, &[PeerFailed, Unknown]),
        (read, &[PeerFailed, PeerFailed]),
        (RmaRequest::Flush, &[PeerFailed, PeerFailed]),
    ] {
        for (sent, expected) in by_sent.iter().enumerate() {
            let mut machine = starting(&[(request, false)]);
            let owners: Vec<Owner> = (0..sent).map(|_| next(&mut machine).expect("a message").1).collect();
            assert_eq!(next(&mut machine.clone()).is_none(), sent + 1 == by_sent.len(), "{request:?}, {sent} sent");
            machine.disconnect(PEER);
            owners.into_iter().for_each(|owner| machine.handle_completed(owner, false));
            let ended = machine.poll_completion().expect("it has ended");
            assert_eq!(ended.result, Err(*expected), "{request:?}, {sent} sent");
        }
    }
}

#[test]
fn an_operation_behind_a_fence_waits_for_answers() {
    let mut machine = starting(&[(ADD, false), (WRITE, false)]);
    assert!((0..3).all(|_| next(&mut machine).is_some()), "an update and two messages of a write");
    let mut machine = starting(&[(ADD, false), (WRITE, true)]);
    let (asked, owner) = next(&mut machine).expect("the update");
    assert!(next(&mut machine).is_none(), "the write waits");
    machine.handle_completed(owner, true);
    assert!(next(&mut machine).is_none(), "an acknowledgement is no answer");
    let answer =
        RmaHeader { message: RmaMessage::Value(0), operation: asked.operation, retry: false, payload: 0 }.emit();
    assert_eq!(machine.handle(PEER, answer.as_ref(), answer.as_ref().len() as u32), Arrival::Nothing);
    assert!((0..2).all(|_| next(&mut machine).is_some()), "the write");
}

/// Starts a flush of a peer, and handles one from it.
fn exchange_flushes(machine: &mut Rma<Boxes>, peer: PeerId) {
    machine.connect(peer, 100);
    let at = RemoteSpan { region: RKey { index: 0, key: RemoteKey(0) }, offset: 0 };
    machine
        .start(&RmaCall { to: peer, at, request: RmaRequest::Flush, fence: false, user: peer.0 })
        .expect("connected");
    let flush = RmaHeader { message: RmaMessage::Flush, operation: 7, retry: false, payload: 0 }.emit();
    assert_eq!(machine.handle(peer, flush.as_ref(), flush.as_ref().len() as u32), Arrival::Nothing);
}

#[test]
fn a_grown_machine_is_one_that_was_made_larger() {
    let more = |count: usize| (vec![TargetState::FREE; count].into(), vec![RequesterState::FREE; count].into());
    let [mut grown, mut large] = [machine(2), machine(5)];
    for machine in [&mut grown, &mut large] {
        (0..2).for_each(|peer| exchange_flushes(machine, PeerId(peer)));
    }
    let before = grown.clone();
    for count in [0, 1, 2] {
        let (targets, requesters) = more(count);
        assert!(!grown.grow_peers(targets, requesters) && grown == before, "{count} are not more");
    }
    assert!(!grown.grow_peers(more(5).0, more(4).1) && grown == before, "as many of each");
    let (targets, requesters) = more(5);
    assert!(grown.grow_peers(targets, requesters) && grown == large);
    exchange_flushes(&mut grown, PeerId(4));
    let mut sent = 0;
    while let Some(action) = grown.poll_action(false) {
        sent += u32::from(matches!(action, Action::Send { .. }));
    }
    assert_eq!(sent, 6, "a flush to each of three peers, and an answer");
}
