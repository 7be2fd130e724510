use super::*;
use crate::ballot::{Name, Ranks};
use crate::entry::Digests;
use core::net::SocketAddr;
use proptest::prelude::*;

const NAME: Name = Name { first: Rank(1), context: 2, generation: 3, round: 4 };

fn lanes() -> [SocketAddr; 2] {
    [SocketAddr::from(([10, 0, 0, 1], 7)), SocketAddr::from(([0; 16], 9))]
}

fn entry() -> Entry {
    Entry {
        incarnation: Incarnation(7),
        node: 3,
        mtu: 1472,
        lanes: lanes(),
        digests: Digests { tuning: 1, transport: 2 },
    }
}

fn longest_entry() -> Entry {
    let most = u32::MAX;
    let lane = SocketAddr::from(([0xff; 16], u16::MAX));
    let digests = Digests { tuning: most, transport: most };
    Entry { incarnation: Incarnation(most), node: most, mtu: most, lanes: [lane; 2], digests }
}

fn every_say() -> Vec<Say> {
    let (rank, asker) = (Rank(5), Rank(6));
    let offer =
        Offer { incarnation: Incarnation(1), lanes: lanes(), mtu: 65507, digests: Digests { tuning: 3, transport: 4 } };
    vec![
        Say::Join { offer, pid: 77, node: Some(2), host: "node7".to_owned() },
        Say::Join { offer, pid: 77, node: None, host: String::new() },
        Say::Ask(rank),
        Say::Fence,
        Say::Abort(-3),
        Say::Put { key: b"k".to_vec(), value: vec![1; VALUE_MAX] },
        Say::Get { key: vec![2; KEY_MAX] },
        Say::Leave,
        Say::Started { rank, pid: 9 },
        Say::Ended { rank, ending: Ending::Signalled(11), reason: "why".to_owned() },
        Say::Liveness { rank, asker, alive: true },
        Say::Vote(Ballot {
            name: NAME,
            members: Ranks(vec![(u32::MAX, u32::MAX); RANGES_MAX]),
            failed: Ranks(vec![(u32::MAX, u32::MAX); RANGES_MAX]),
            most: 8,
            words: vec![u64::MAX - 5; WORDS_MAX],
        }),
    ]
}

fn every_tell() -> Vec<Tell> {
    let (rank, asker) = (Rank(5), Rank(6));
    vec![
        Tell::Refused(Refusal::NoSuchRank),
        Tell::Refused(Refusal::Taken),
        Tell::Refused(Refusal::Ending),
        Tell::Refused(Refusal::Missing { count: 2, first: 1 }),
        Tell::Table { first: 3, lines: vec![entry(); LINES_MAX] },
        Tell::Table { first: u32::MAX, lines: vec![longest_entry(); LINES_MAX] },
        Tell::Died { rank, incarnation: Incarnation(9), ending: Ending::Exited(-1) },
        Tell::Met { rank, entry: entry() },
        Tell::Liveness { rank, alive: false },
        Tell::Fenced,
        Tell::Stored(true),
        Tell::Value(None),
        Tell::Value(Some(vec![3; 10])),
        Tell::Aborted { rank, code: 4 },
        Tell::Farewell,
        Tell::Welcome,
        Tell::Signal { rank: Some(rank), signal: 15 },
        Tell::Signal { rank: None, signal: 2 },
        Tell::Ask { rank, asker },
        Tell::Agreed(Verdict { name: NAME, failed: Ranks(vec![(5, 1)]), most: 9, words: Vec::new() }),
    ]
}

fn frame(payload: &[u8]) -> Frame {
    Frame { payload: payload.to_vec() }
}

#[test]
fn every_message_survives_the_wire_and_fits_a_frame() {
    for said in every_say() {
        let payload = said.encode();
        assert!(payload.len() <= PAYLOAD_MAX);
        assert_eq!(Say::decode(&frame(&payload)), Ok(said));
    }
    for told in every_tell() {
        let payload = told.encode();
        assert!(payload.len() <= PAYLOAD_MAX);
        assert_eq!(Tell::decode(&frame(&payload)), Ok(told));
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
    every_say().iter().for_each(|said| check(&said.encode(), Say::decode));
    every_tell().iter().for_each(|told| check(&told.encode(), Tell::decode));
}

#[test]
fn parts_that_are_too_long_are_refused() {
    let ranks = || Ranks(vec![(1, 2); RANGES_MAX + 1]);
    let vote = |members, failed, words| Say::Vote(Ballot { name: NAME, members, failed, most: 0, words });
    for said in [
        Say::Put { key: vec![0; KEY_MAX + 1], value: Vec::new() },
        Say::Put { key: Vec::new(), value: vec![0; VALUE_MAX + 1] },
        Say::Get { key: vec![0; KEY_MAX + 1] },
        vote(ranks(), Ranks::default(), Vec::new()),
        vote(Ranks::default(), ranks(), Vec::new()),
        vote(Ranks::default(), Ranks::default(), vec![0; WORDS_MAX + 1]),
    ] {
        assert!(Say::decode(&frame(&said.encode())).is_err(), "{said:?}");
    }
    for told in [
        Tell::Table { first: 0, lines: vec![entry(); LINES_MAX + 1] },
        Tell::Value(Some(vec![0; VALUE_MAX + 1])),
        Tell::Agreed(Verdict { name: NAME, failed: ranks(), most: 0, words: Vec::new() }),
    ] {
        assert!(Tell::decode(&frame(&told.encode())).is_err(), "{told:?}");
    }
    // A length of 4 GiB without the bytes.
    assert!(Say::decode(&frame(&[4, 0xff, 0xff, 0xff, 0xff, 0x0f])).is_err());
}

#[test]
fn long_texts_are_cut_at_a_letter() {
    let host = "é".repeat(TEXT_MAX);
    let offer = Offer { incarnation: Incarnation(1), lanes: lanes(), mtu: 1, digests: Digests::default() };
    let payload = Say::Join { offer, pid: 1, node: None, host }.encode();
    match Say::decode(&frame(&payload)) {
        Ok(Say::Join { host, .. }) => assert_eq!(host, "é".repeat(TEXT_MAX / 2)),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(kind in 0_u8..16, rest in prop::collection::vec(any::<u8>(), 0..600)) {
        let frame = frame(&[&[kind], &rest[..]].concat());
        if let Ok(said) = Say::decode(&frame) {
            prop_assert_eq!(Say::decode(&Frame { payload: said.encode() }), Ok(said));
        }
        if let Ok(told) = Tell::decode(&frame) {
            prop_assert_eq!(Tell::decode(&Frame { payload: told.encode() }), Ok(told));
        }
    }
}
