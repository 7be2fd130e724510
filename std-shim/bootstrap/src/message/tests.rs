use super::*;
use crate::agreement::{AgreementId, RankRanges};
use crate::location::Location;
use crate::peer_record::{Digests, RAILS_MAX};
use crate::waits::{CONDITIONS_MAX, DESCRIPTION_MAX, WAITS_MAX, Wait, WaitCondition};
use core::net::SocketAddr;
use proptest::prelude::*;

const NAME: AgreementId = AgreementId { first: Rank(1), context: 2, generation: 3, round: 4 };

fn lanes() -> [SocketAddr; 2] {
    [SocketAddr::from(([10, 0, 0, 1], 7)), SocketAddr::from(([0; 16], 9))]
}

fn entry() -> PeerRecord {
    PeerRecord {
        incarnation: Incarnation(7),
        node: 3,
        location: Location { socket: Some(1), ..Location::default() },
        link_megabits: 1000,
        mtu: 1472,
        addresses: lanes(),
        further_rails: Vec::new(),
        initial_rails: 1,
        rails_max: 1,
        checksums: true,
        digests: Digests { tuning: 1, transport: 2 },
    }
}

fn longest_entry() -> PeerRecord {
    let most = u32::MAX;
    let lane = SocketAddr::from(([0xff; 16], u16::MAX));
    let digests = Digests { tuning: most, transport: most };
    PeerRecord {
        incarnation: Incarnation(most),
        node: most,
        location: Location {
            switch: Some(most),
            socket: Some(most),
            numa: Some(most),
            cache: Some(most),
            rail: Some(most),
            group: Some(most),
        },
        link_megabits: most,
        mtu: most,
        addresses: [lane; 2],
        further_rails: vec![[lane; 2]; RAILS_MAX - 1],
        initial_rails: u8::MAX,
        rails_max: u8::MAX,
        checksums: true,
        digests,
    }
}

fn many_rails() -> PeerRecord {
    PeerRecord { further_rails: vec![lanes(); RAILS_MAX], ..entry() }
}

fn every_client_message() -> Vec<ClientMessage> {
    let (rank, asker) = (Rank(5), Rank(6));
    let offer = LocalRecord {
        location: Location::default(),
        link_megabits: 1000,
        incarnation: Incarnation(1),
        addresses: lanes(),
        further_rails: Vec::new(),
        rails_max: 1,
        checksums: true,
        mtu: 65507,
        digests: Digests { tuning: 3, transport: 4 },
    };
    vec![
        ClientMessage::Join {
            version: Version::CURRENT,
            offer: offer.clone(),
            pid: 77,
            node: Some(2),
            host: "node7".to_owned(),
        },
        ClientMessage::Join { version: Version::CURRENT, offer, pid: 77, node: None, host: String::new() },
        ClientMessage::QueryLiveness(rank),
        ClientMessage::Fence(None),
        ClientMessage::Fence(Some(vec![[u32::MAX; 8]; FENCE_RECORDS_MAX])),
        ClientMessage::Abort(-3),
        ClientMessage::Put { key: b"k".to_vec(), value: vec![1; VALUE_MAX] },
        ClientMessage::Get { key: vec![2; KEY_MAX] },
        ClientMessage::Finish,
        ClientMessage::Started { rank, pid: 9 },
        ClientMessage::Ended { rank, ending: Ending::Signalled(11), reason: "why".to_owned() },
        ClientMessage::Liveness { rank, asker, alive: true },
        ClientMessage::Vote(Vote {
            id: NAME,
            members: RankRanges(vec![(u32::MAX, u32::MAX); RANGES_MAX]),
            failed: RankRanges(vec![(u32::MAX, u32::MAX); RANGES_MAX]),
            maximum: 8,
            words: vec![u64::MAX - 5; WORDS_MAX],
        }),
        ClientMessage::Cause(rank),
        ClientMessage::Leave,
        ClientMessage::Waits(WaitReport::default()),
        ClientMessage::Waits(longest_report()),
        ClientMessage::QueryPolling(rank),
        ClientMessage::Polling { asker, milliseconds: u64::MAX },
        ClientMessage::Rail { rail: 3, lanes: lanes() },
    ]
}

/// As many waits, conditions and ranges as a report may have.
fn longest_report() -> WaitReport {
    let ranges = RANGES_MAX - (CONDITIONS_MAX - WAITS_MAX) + 1;
    let any_of = |ranges| WaitCondition::AnyOf(RankRanges(vec![(u32::MAX, u32::MAX); ranges]));
    let mut waits = vec![Wait { what: "w".repeat(DESCRIPTION_MAX), conditions: vec![WaitCondition::Fence] }; WAITS_MAX];
    waits[0].conditions = vec![any_of(1); CONDITIONS_MAX - WAITS_MAX];
    waits[0].conditions.push(any_of(ranges - 1));
    WaitReport { round: u32::MAX, progress: u64::MAX, in_flight: true, waits }
}

fn every_server_message() -> Vec<ServerMessage> {
    let (rank, asker) = (Rank(5), Rank(6));
    vec![
        ServerMessage::Refused(Refusal::NoSuchRank),
        ServerMessage::Refused(Refusal::RankTaken),
        ServerMessage::Refused(Refusal::Ending),
        ServerMessage::Refused(Refusal::Version { own: Version(1, 2, 3), server: Version::CURRENT }),
        ServerMessage::Refused(Refusal::MissingRanks { count: 2, first: 1 }),
        ServerMessage::Table { first: 3, lines: vec![entry(); RECORDS_MAX] },
        ServerMessage::Table { first: u32::MAX, lines: vec![longest_entry(); RECORDS_MAX] },
        ServerMessage::Failed { rank, incarnation: Incarnation(9), ending: Ending::Exited(-1) },
        ServerMessage::Joined { rank, entry: entry() },
        ServerMessage::Liveness { rank, alive: false },
        ServerMessage::Fenced(None),
        ServerMessage::Fenced(Some(FenceDifference { ranks: [rank, asker], records: [Some([7; 8]), None] })),
        ServerMessage::Stored(true),
        ServerMessage::Value(None),
        ServerMessage::Value(Some(vec![3; 10])),
        ServerMessage::Aborted { rank, code: 4 },
        ServerMessage::FinishAck,
        ServerMessage::Welcome,
        ServerMessage::Signal { rank: Some(rank), signal: 15 },
        ServerMessage::Signal { rank: None, signal: 2 },
        ServerMessage::QueryLiveness { rank, asker },
        ServerMessage::Agreed(AgreementOutcome {
            id: NAME,
            failed: RankRanges(vec![(5, 1)]),
            maximum: 9,
            words: Vec::new(),
        }),
        ServerMessage::ConfirmWaits(7),
        ServerMessage::QueryPolling { asker },
        ServerMessage::Polling { rank, milliseconds: 8 },
        ServerMessage::Rail { rank, incarnation: Incarnation(9), rail: 3, lanes: lanes() },
    ]
}

fn frame(payload: &[u8]) -> Frame {
    Frame { payload: payload.to_vec() }
}

#[test]
fn every_message_survives_the_wire_and_fits_a_frame() {
    for said in every_client_message() {
        let payload = said.encode();
        assert!(payload.len() <= PAYLOAD_MAX);
        assert_eq!(ClientMessage::decode(&frame(&payload)), Ok(said));
    }
    for message in every_server_message() {
        let payload = message.encode();
        assert!(payload.len() <= PAYLOAD_MAX);
        assert_eq!(ServerMessage::decode(&frame(&payload)), Ok(message));
    }
}

#[test]
fn cut_or_longer_messages_are_refused() {
    fn check<M: core::fmt::Debug + PartialEq>(payload: &[u8], decode: fn(&Frame) -> Result<M, Malformed>) {
        let refused = Err(Malformed { kind: payload[0] });
        assert_eq!(decode(&frame(&[payload, &[0]].concat())), refused);
        for bytes in (1..payload.len()).rev().take(64) {
            assert_eq!(decode(&frame(&payload[..bytes])), refused);
        }
        assert_eq!(decode(&frame(&[])), Err(Malformed { kind: u8::MAX }));
    }
    every_client_message().iter().for_each(|said| check(&said.encode(), ClientMessage::decode));
    every_server_message().iter().for_each(|message| check(&message.encode(), ServerMessage::decode));
}

#[test]
fn parts_that_are_too_long_are_refused() {
    let ranks = || RankRanges(vec![(1, 2); RANGES_MAX + 1]);
    let report = |waits| ClientMessage::Waits(WaitReport { waits, ..WaitReport::default() });
    let vote = |members, failed, words| ClientMessage::Vote(Vote { id: NAME, members, failed, maximum: 0, words });
    for said in [
        ClientMessage::Put { key: vec![0; KEY_MAX + 1], value: Vec::new() },
        ClientMessage::Put { key: Vec::new(), value: vec![0; VALUE_MAX + 1] },
        ClientMessage::Get { key: vec![0; KEY_MAX + 1] },
        ClientMessage::Fence(Some(vec![[0; 8]; FENCE_RECORDS_MAX + 1])),
        vote(ranks(), RankRanges::default(), Vec::new()),
        vote(RankRanges::default(), ranks(), Vec::new()),
        vote(RankRanges::default(), RankRanges::default(), vec![0; WORDS_MAX + 1]),
        report(vec![Wait { what: String::new(), conditions: Vec::new() }; WAITS_MAX + 1]),
        report(vec![Wait { what: String::new(), conditions: vec![WaitCondition::Fence; CONDITIONS_MAX + 1] }]),
        report(vec![Wait { what: String::new(), conditions: vec![WaitCondition::AnyOf(ranks())] }]),
    ] {
        assert!(ClientMessage::decode(&frame(&said.encode())).is_err(), "{said:?}");
    }
    for message in [
        ServerMessage::Table { first: 0, lines: vec![entry(); RECORDS_MAX + 1] },
        ServerMessage::Table { first: 0, lines: vec![many_rails()] },
        ServerMessage::Joined { rank: Rank(0), entry: many_rails() },
        ServerMessage::Value(Some(vec![0; VALUE_MAX + 1])),
        ServerMessage::Agreed(AgreementOutcome { id: NAME, failed: ranks(), maximum: 0, words: Vec::new() }),
    ] {
        assert!(ServerMessage::decode(&frame(&message.encode())).is_err(), "{message:?}");
    }
    // A length of 4 GiB without the bytes.
    assert!(ClientMessage::decode(&frame(&[4, 0xff, 0xff, 0xff, 0xff, 0x0f])).is_err());
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let host = "é".repeat(TEXT_MAX);
    let offer = LocalRecord {
        location: Location::default(),
        link_megabits: 1000,
        incarnation: Incarnation(1),
        addresses: lanes(),
        further_rails: Vec::new(),
        rails_max: 1,
        checksums: true,
        mtu: 1,
        digests: Digests::default(),
    };
    let payload = ClientMessage::Join { version: Version::CURRENT, offer, pid: 1, node: None, host }.encode();
    match ClientMessage::decode(&frame(&payload)) {
        Ok(ClientMessage::Join { host, .. }) => assert_eq!(host, "é".repeat(TEXT_MAX / 2)),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(kind in 0_u8..24, rest in prop::collection::vec(any::<u8>(), 0..600)) {
        let frame = frame(&[&[kind], &rest[..]].concat());
        if let Ok(said) = ClientMessage::decode(&frame) {
            prop_assert_eq!(ClientMessage::decode(&Frame { payload: said.encode() }), Ok(said));
        }
        if let Ok(message) = ServerMessage::decode(&frame) {
            prop_assert_eq!(ServerMessage::decode(&Frame { payload: message.encode() }), Ok(message));
        }
    }
}
