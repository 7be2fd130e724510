//! loom models of the ring: two entries, three messages, across the wrap of all counts.

use loom::model::Builder;
use loom::thread;
use std::sync::Arc;

#[cfg(not(mutant = "overfill"))]
use super::assert_needs;
use crate::layout::Area;
use crate::ring::{Consumer, Producer, PutError};
#[cfg(not(mutant = "overfill"))]
use crate::segment::Site;
use crate::segment::{LINE, Memory, STRIDE};

const ENTRIES: u32 = 2;
/// The counts wrap after the first message.
const START: u32 = u32::MAX;
const MESSAGES: u32 = 3;

/// Sends three messages; `has_piece` returns whether one is in the bulk, which has `lines` lines.
fn exchange(lines: usize, has_piece: fn(u32) -> bool) {
    let bulk = (lines * LINE) as u32;
    let bytes = STRIDE + ENTRIES as usize * LINE + bulk as usize;
    let memory = Arc::new(Memory::new(bytes, START));
    let area = Area { offset: 0, bytes };
    let theirs = Arc::clone(&memory);
    let sender = thread::spawn(move || {
        let mut producer = Producer::new(theirs.segment(), area, ENTRIES, bulk, START).expect("a ring");
        for i in 0..MESSAGES {
            let payload = [i as u8 + 1; 4];
            loop {
                let put = if has_piece(i) {
                    producer.put_piece([i, !i], 4, |piece| piece.write(&payload).expect("room"))
                } else {
                    producer.put([i, !i], &payload)
                };
                match put {
                    Ok(()) => break,
                    Err(PutError::Full) => thread::yield_now(),
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
    });
    let mut consumer = Consumer::new(memory.segment(), area, ENTRIES, bulk, START).expect("a ring");
    for i in 0..MESSAGES {
        let entry = loop {
            match consumer.poll().expect("nobody writes garbage") {
                Some(entry) => break entry,
                None => thread::yield_now(),
            }
        };
        assert_eq!(entry.header, [i, !i]);
        let mut found = [0; 4];
        assert_eq!(entry.payload.bytes(), 4);
        entry.payload.read(&mut found).expect("four bytes");
        assert_eq!(found, [i as u8 + 1; 4]);
        consumer.consume();
    }
    assert!(consumer.poll().expect("nobody writes garbage").is_none());
    sender.join().expect("the sender ends");
}

#[cfg(not(mutant = "overfill"))]
const SITES: [Site; 4] = [Site::RingSpace, Site::RingPublish, Site::RingPoll, Site::RingConsume];

#[cfg(not(mutant = "overfill"))]
#[test]
fn short_messages_need_every_ordering() {
    assert_needs("ring of 2, 3 short messages", &Builder::new(), &SITES, || exchange(2, |_| false));
}

/// Two pieces fill entries and bulk alike: the orderings that guard either guard both, so none is needed alone.
#[cfg(not(mutant = "overfill"))]
#[test]
fn pieces_that_fill_entries_and_bulk_need_to_be_shown() {
    assert_needs("ring of 2, 3 pieces", &Builder::new(), &[Site::RingPublish, Site::RingPoll], || {
        exchange(2, |_| true)
    });
}

/// The second piece lies where the first did, while there is an entry for it.
#[cfg(not(mutant = "overfill"))]
#[test]
fn pieces_one_by_one_need_every_ordering() {
    let sites = [Site::BulkSpace, Site::BulkReturn, Site::RingPublish, Site::RingPoll];
    assert_needs("ring of 2, 3 pieces in one line", &Builder::new(), &sites, || exchange(1, |_| true));
}

#[cfg(not(mutant = "overfill"))]
#[test]
fn mixed_messages_need_every_ordering() {
    assert_needs("ring of 2, 3 messages, every other a piece", &Builder::new(), &SITES, || exchange(2, |i| i % 2 == 0));
}

/// One entry more than the ring has: the third message overwrites the first.
#[cfg(mutant = "overfill")]
#[test]
fn overfilled_ring_is_noticed() {
    assert_eq!(super::explore(&Builder::new(), None, || exchange(2, |_| false)), None);
}
