use super::*;
use crate::ballot::{Name, Ranks};
use crate::codec::TEXT_MAX;
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
            members: Ranks(vec![(1, 2); RANGES_MAX]),
            failed: Ranks(vec![(u32::MAX, 3); RANGES_MAX]),
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

#[test]
fn every_message_survives_the_wire_and_fits_a_frame() {
    for said in every_say() {
        let (kind, payload) = said.encode();
        assert!(payload.len() <= PAYLOAD_MAX);
        assert_eq!(Say::decode(&Frame { kind, payload }), Ok(said));
    }
    for told in every_tell() {
        let (kind, payload) = told.encode();
        assert!(payload.len() <= PAYLOAD_MAX);
        assert_eq!(Tell::decode(&Frame { kind, payload }), Ok(told));
    }
}

#[test]
fn cut_or_longer_messages_are_refused() {
    for (kind, payload) in every_say().iter().map(Say::encode) {
        let longer = [payload.as_slice(), &[0]].concat();
        assert_eq!(Say::decode(&Frame { kind, payload: longer }), Err(Malformed { kind }));
        if let Some((_, shorter)) = payload.split_last() {
            assert_eq!(Say::decode(&Frame { kind, payload: shorter.to_vec() }), Err(Malformed { kind }));
        }
    }
    for (kind, payload) in every_tell().iter().map(Tell::encode) {
        let longer = [payload.as_slice(), &[0]].concat();
        assert_eq!(Tell::decode(&Frame { kind, payload: longer }), Err(Malformed { kind }));
    }
}

#[test]
fn long_texts_are_cut_at_a_letter() {
    let host = "é".repeat(TEXT_MAX);
    let offer = Offer { incarnation: Incarnation(1), lanes: lanes(), mtu: 1, digests: Digests::default() };
    let (kind, payload) = Say::Join { offer, pid: 1, node: None, host }.encode();
    match Say::decode(&Frame { kind, payload }) {
        Ok(Say::Join { host, .. }) => assert_eq!(host, "é".repeat(TEXT_MAX / 2)),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(kind in 0_u8..90, payload in prop::collection::vec(any::<u8>(), 0..600)) {
        let frame = Frame { kind, payload };
        if let Ok(said) = Say::decode(&frame) {
            prop_assert_eq!(said.encode(), (kind, frame.payload.clone()));
        }
        if let Ok(told) = Tell::decode(&frame) {
            prop_assert_eq!(told.encode(), (kind, frame.payload.clone()));
        }
    }
}
