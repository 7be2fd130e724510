//! A ring against a model queue, and against corrupt memory.

use alloc::collections::VecDeque;
use core::ptr::NonNull;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

extern crate alloc;

/// Zeros, and the segment made of them.
struct Zeros(Vec<u64>);

impl Zeros {
    fn new(bytes: usize) -> Self {
        Self(vec![0; bytes.div_ceil(8)])
    }

    fn segment(&mut self) -> Segment<'_> {
        let bytes = self.0.len() * 8;
        // SAFETY: the vector is borrowed for as long as the segment lives, and aligned to 8.
        unsafe { Segment::new(NonNull::from(self.0.as_mut_slice()).cast(), bytes) }
    }
}

fn area(entries: u32, bulk: u32) -> Area {
    Area { offset: 64, bytes: STRIDE + entries as usize * LINE + bulk as usize }
}

fn ends(segment: Segment<'_>, entries: u32, bulk: u32) -> (Producer<'_>, Consumer<'_>) {
    let area = area(entries, bulk);
    let producer = Producer::new(segment, area, entries, bulk, 0).unwrap();
    (producer, Consumer::new(segment, area, entries, bulk, 0).unwrap())
}

fn pattern(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (number as usize * 31 + i * 7) as u8).collect()
}

fn put(producer: &mut Producer<'_>, number: u32, bytes: usize, inline: bool) -> Result<(), PutError> {
    let (payload, note) = (pattern(number, bytes), [number, !number]);
    if inline {
        return producer.put(note, &payload);
    }
    producer.put_piece(note, bytes as u32, |piece| piece.write(&payload).unwrap())
}

fn contents(entry: &Entry<'_>) -> Vec<u8> {
    let mut bytes = vec![0; entry.payload.bytes()];
    entry.payload.read(&mut bytes).unwrap();
    bytes
}

#[test]
fn each_end_notices_that_what_it_wrote_is_gone_and_the_producer_that_the_consumer_lies() {
    let (entries, bulk) = (4, 256);
    let mut memory = Zeros::new(area(entries, bulk).bytes + 64);
    let segment = memory.segment();
    let (mut producer, mut consumer) = ends(segment, entries, bulk);
    for number in 0..3 * entries {
        for inline in [true, false] {
            put(&mut producer, number, 8, inline).unwrap();
        }
        consumer.poll().unwrap().unwrap();
        consumer.consume();
        assert!(producer.is_intact() && consumer.is_intact());
        let words = [area(entries, bulk).offset, area(entries, bulk).offset + 4].map(|at| segment.word(at).unwrap());
        let turn = producer.parts.turn(producer.next.wrapping_sub(1)).unwrap();
        for (word, producers) in [(words[0], false), (words[1], false), (turn, true)] {
            let before = word.own();
            word.publish(before ^ 1 << 20, Site::Plain);
            assert_eq!(producer.is_intact(), !producers);
            assert_eq!(producer.is_tail_plausible(), producers);
            assert_eq!(consumer.is_intact(), producers);
            word.publish(before, Site::Plain);
        }
        consumer.poll().unwrap().unwrap();
        consumer.consume();
    }
}

#[test]
fn what_others_write_into_an_entry_is_no_message() {
    let (entries, bulk) = (4, 256);
    let mut memory = Zeros::new(area(entries, bulk).bytes + 64);
    let segment = memory.segment();
    let (mut producer, mut consumer) = ends(segment, entries, bulk);
    for number in 0..2 * entries {
        put(&mut producer, number, 8, number % 2 == 0).unwrap();
        let entry = area(entries, bulk).offset + STRIDE + LINE * consumer.parts.slot(number);
        let words = &segment.words(entry, 4).unwrap()[1..];
        for (word, bit) in words.iter().flat_map(|word| (0..32).map(move |bit| (word, bit))) {
            let before = word.own();
            for value in [before ^ 1 << bit, 0, u32::MAX].into_iter().filter(|value| *value != before) {
                word.publish(value, Site::Plain);
                assert!(matches!(consumer.poll(), Err(Corrupted)), "{value:x} for {before:x} in entry {number}");
            }
            word.publish(before, Site::Plain);
        }
        words.iter().for_each(|word| word.publish(0, Site::Plain));
        assert!(matches!(consumer.poll(), Err(Corrupted)));
        words.iter().for_each(|word| word.publish(u32::MAX, Site::Plain));
        assert!(matches!(consumer.poll(), Err(Corrupted)));
        let (length, note) = if number % 2 == 0 { (8, [number, !number]) } else { (PIECE, [number, !number]) };
        for (word, value) in words.iter().zip([seal(length, note, number), note[0], note[1]]) {
            word.publish(value, Site::Plain);
        }
        assert_eq!(contents(&consumer.poll().unwrap().unwrap()), pattern(number, 8));
        consumer.consume();
    }
}

#[test]
fn what_was_ahead_is_there_once() {
    let (entries, bulk) = (4, 256);
    let mut memory = Zeros::new(area(entries, bulk).bytes + 64);
    let (mut producer, mut consumer) = ends(memory.segment(), entries, bulk);
    for number in 0..3 * entries {
        let ahead = consumer.peek().unwrap();
        assert!(!ahead.has_arrived() && consumer.poll_at(&ahead).unwrap().is_none());
        put(&mut producer, number, 8, number % 2 == 0).unwrap();
        assert!(ahead.has_arrived());
        for _ in 0..2 {
            assert_eq!(contents(&consumer.poll_at(&ahead).unwrap().unwrap()), pattern(number, 8), "until it is taken");
        }
        consumer.consume();
        assert!(matches!(consumer.poll_at(&ahead), Err(Corrupted)));
        assert!(!consumer.has_message());
    }
}

/// Operations on the two ends.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(usize),
    PutPiece(usize),
    Look,
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..=INLINE).prop_map(Step::Put),
        3 => (0..300_usize).prop_map(Step::PutPiece),
        1 => Just(Step::Look),
        5 => Just(Step::Take),
    ]
}

proptest! {
    #[test]
    fn ring_is_a_queue(entries in 0..4_u32, bulk in 6..10_u32, steps in vec(step(), 0..400)) {
        let (entries, bulk) = (1 << entries, 1 << bulk);
        let mut zeros = Zeros::new(2 * area(entries, bulk).bytes);
        let (mut producer, mut consumer) = ends(zeros.segment(), entries, bulk);
        let mut oracle: VecDeque<(u32, Vec<u8>, bool)> = VecDeque::new();
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Put(bytes) | Step::PutPiece(bytes) => {
                    let inline = matches!(step, Step::Put(_));
                    match put(&mut producer, number, bytes, inline) {
                        Ok(()) => oracle.push_back((number, pattern(number, bytes), inline)),
                        Err(PutError::Full) => {
                            let lacks = !inline && oracle.iter().any(|(_, _, inline)| !inline);
                            prop_assert!(oracle.len() == entries as usize || lacks, "{} held", oracle.len());
                        }
                        Err(PutError::TooLong) => prop_assert!(!inline && bytes as u32 > producer.longest()),
                        Err(PutError::Corrupted) => prop_assert!(false, "nobody writes garbage"),
                    }
                    prop_assert!(oracle.len() <= entries as usize);
                }
                Step::Look | Step::Take => {
                    let found = consumer.poll().unwrap().map(|entry| (entry.header, contents(&entry)));
                    let expected = oracle.front().map(|(number, bytes, _)| ([*number, !number], bytes.clone()));
                    prop_assert_eq!(&found, &expected);
                    prop_assert_eq!(consumer.has_message(), expected.is_some());
                    if found.is_some() && matches!(step, Step::Take) {
                        consumer.consume();
                        oracle.pop_front();
                    }
                }
            }
            prop_assert_eq!(producer.is_drained(), Ok(oracle.is_empty()));
        }
    }

    #[test]
    fn garbage_is_an_error_or_a_message_within_bounds(
        before in 0..5_usize,
        words in vec((0..200_usize, prop_oneof![any::<u32>(), 0..12_u32, Just(u32::MAX)], any::<bool>()), 1..60),
    ) {
        const ENTRIES: u32 = 4;
        const BULK: u32 = 256;
        let mut zeros = Zeros::new(2 * area(ENTRIES, BULK).bytes);
        let segment = zeros.segment();
        let (mut producer, mut consumer) = ends(segment, ENTRIES, BULK);
        for number in 0..before {
            let _ = put(&mut producer, number as u32, number * 30, number % 2 == 0);
            let _ = consumer.poll().map(|_| consumer.consume());
        }
        for (at, value, sealed) in words {
            if let Some(word) = segment.word(at * 4) {
                word.publish(value, Site::Plain);
            }
            if sealed {
                let entry = area(ENTRIES, BULK).offset + STRIDE + LINE * consumer.parts.slot(consumer.next);
                let [turn, form, first, second, ..] = segment.words(entry, LINE / 4).unwrap() else { unreachable!() };
                let (length, note) = (form.own() & LENGTH, [first.own(), second.own()]);
                form.publish(seal(length, note, consumer.next), Site::Plain);
                turn.publish(consumer.next.wrapping_add(1), Site::Plain);
            }
            // An end that sees garbage stops. The test is that neither end runs for ever or leaves its memory.
            let mut taken = 0;
            while let Ok(Some(entry)) = consumer.poll() {
                prop_assert!(contents(&entry).len() <= BULK as usize);
                consumer.consume();
                taken += 1;
                prop_assert!(taken <= ENTRIES, "more than there are");
            }
            for number in 0..2 * ENTRIES {
                let _ = put(&mut producer, number, 40, number % 2 == 0);
            }
            let _ = producer.is_drained();
        }
    }
}

#[test]
fn impossible_counts_are_reported() {
    let mut zeros = Zeros::new(2 * area(2, 64).bytes);
    let segment = zeros.segment();
    let (mut producer, mut consumer) = ends(segment, 2, 64);
    assert_eq!(put(&mut producer, 0, 8, true), Ok(()));
    segment.word(64).unwrap().publish(2, Site::Plain);
    assert_eq!(producer.is_drained(), Err(Corrupted), "more taken than put");
    assert_eq!(put(&mut producer, 1, 8, true), Ok(()));
    assert_eq!(put(&mut producer, 2, 8, true), Ok(()), "the room that was known of");
    segment.word(64 + STRIDE).unwrap().publish(77, Site::Plain);
    assert!(matches!(consumer.poll(), Err(Corrupted)));
}

#[test]
fn payload_that_never_fits_is_refused() {
    let mut zeros = Zeros::new(2 * area(2, 128).bytes);
    let (mut producer, _) = ends(zeros.segment(), 2, 128);
    assert_eq!(put(&mut producer, 0, INLINE + 1, true), Err(PutError::TooLong));
    assert_eq!(producer.longest(), 64);
    assert_eq!(put(&mut producer, 0, 65, false), Err(PutError::TooLong));
    assert_eq!(put(&mut producer, 0, 64, false), Ok(()));
    assert_eq!(put(&mut producer, 1, 64, false), Ok(()));
    assert_eq!(put(&mut producer, 2, 1, true), Err(PutError::Full));
}

#[test]
fn ring_lies_within_its_area_or_is_none() {
    let mut zeros = Zeros::new(4096);
    let segment = zeros.segment();
    let whole = area(4, 256);
    assert!(Producer::new(segment, whole, 4, 256, 0).is_some());
    for (area, entries, bulk) in [
        (Area { bytes: whole.bytes - 1, ..whole }, 4, 256),
        (Area { offset: 4096, ..whole }, 4, 256),
        (Area { offset: 66, ..whole }, 4, 256),
        (whole, 3, 256),
        (whole, 4, 255),
        (whole, 4, 32),
        (whole, 8, 256),
    ] {
        assert!(Consumer::new(segment, area, entries, bulk, 0).is_none(), "{area:?} {entries} {bulk}");
    }
}
