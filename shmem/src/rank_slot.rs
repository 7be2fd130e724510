//! Rank slots: one per rank of the node, written only by that rank. A slot records which process or bare-metal node is
//! the rank.
//!
//! ```text
//! word 0   state: free, active, retired (no further collectives), left, or failed; for a process that has ended,
//!          the proxy of a bare-metal node writes "failed"
//!      1   rank in the job
//!      2   incarnation
//!      3   process id, for people: liveness is the record lock's (`host::liveness`)
//!      4   heartbeats: counts up as long as a rank without a process is alive; 0 for a process
//!      5…  integrity words: a change means that some process writes out of bounds
//! ```

use crate::layout::Layout;
use crate::segment::{STRIDE, Segment, Site, Word};

const FREE: u32 = 0;
const TAKEN: u32 = u32::from_le_bytes(*b"SITS");
const RETIRED: u32 = u32::from_le_bytes(*b"DONE");
const LEFT: u32 = u32::from_le_bytes(*b"LEFT");
const FAILED: u32 = u32::from_le_bytes(*b"FAIL");
/// Words of a slot.
const WORDS: usize = STRIDE / 4;
/// Words that identify the occupant.
const FACTS: usize = 4;
/// The word that counts heartbeats.
const BEATS: usize = 4;

/// The occupant of a rank slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sitter {
    /// Its rank in the job.
    pub rank: u32,
    /// Its incarnation.
    pub incarnation: u32,
    /// Its process id; 0 for a node without processes.
    pub process: u32,
}

/// The state of a rank slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Occupant {
    /// No rank has joined yet.
    Nobody,
    /// The rank has joined.
    Sits(Sitter),
    /// The rank has joined and takes part in no further collective.
    Retired(Sitter),
    /// The rank has left in order.
    Left(Sitter),
    /// The rank has failed.
    Failed(Sitter),
    /// The words hold values that no rank writes.
    Garbage,
}

/// A view of one rank's slot, for any rank of the node.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    words: &'a [Word; WORDS],
}

impl<'a> Seat<'a> {
    /// The slot of a rank of the node. `None`: there is no such rank.
    pub fn of(segment: Segment<'a>, layout: &Layout, local: u32) -> Option<Self> {
        let words = segment.words(layout.seat(local)?.at, WORDS)?;
        Some(Self { words: words.try_into().ok()? })
    }

    /// Whether the rank has joined and takes part in no further collective. One load.
    pub fn has_retired(&self) -> bool {
        [RETIRED, LEFT, FAILED].contains(&self.words[0].acquire(Site::Plain))
    }

    /// The state of the slot. An occupant is reported only if all integrity words match its incarnation.
    pub fn occupant(&self) -> Occupant {
        let [state, rank, incarnation, process, ..] = self.words;
        let state = state.acquire(Site::Plain);
        let [rank, incarnation, process] = [rank, incarnation, process].map(|word| word.acquire(Site::Plain));
        let sitter = Sitter { rank, incarnation, process };
        match state {
            FREE => Occupant::Nobody,
            _ if !self.canary_sings(incarnation) => Occupant::Garbage,
            TAKEN => Occupant::Sits(sitter),
            RETIRED => Occupant::Retired(sitter),
            LEFT => Occupant::Left(sitter),
            FAILED => Occupant::Failed(sitter),
            _ => Occupant::Garbage,
        }
    }

    /// Heartbeats of a rank without a process. One load.
    pub fn beats(&self) -> u32 {
        self.words[BEATS].acquire(Site::Plain)
    }

    /// Claims the slot. `None`: it is not free. The caller holds the slot's lock, so no other process claims it at the
    /// same time.
    pub fn take(self, sitter: Sitter) -> Option<Own<'a>> {
        if self.occupant() != Occupant::Nobody {
            return None;
        }
        let own = Own { seat: self, sitter };
        own.write(TAKEN);
        Some(own)
    }

    /// Marks the rank as failed for ranks that cannot ask the operating system. The caller has seen the rank join and
    /// then its process end, so the rank no longer writes. A rank that has left in order stays so.
    pub fn bury(&self) {
        let state = self.words[0].acquire(Site::Plain);
        if [TAKEN, RETIRED].contains(&state) {
            self.words[0].publish(FAILED, Site::Plain);
        }
    }

    fn canary_sings(&self, incarnation: u32) -> bool {
        let mut words = self.words.iter().enumerate().skip(BEATS + 1);
        words.all(|(index, word)| word.acquire(Site::Plain) == canary(incarnation, index))
    }
}

/// This rank's own slot and the values written there, which are remembered and never read back.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    seat: Seat<'a>,
    sitter: Sitter,
}

impl<'a> Own<'a> {
    /// The word that a rank without a process increments, in an interrupt handler if it has one, as long as it is
    /// alive.
    pub const fn heart(self) -> &'a Word {
        &self.seat.words[BEATS]
    }

    fn facts(&self, state: u32) -> [u32; FACTS] {
        [state, self.sitter.rank, self.sitter.incarnation, self.sitter.process]
    }

    /// Writes every word, its state last.
    fn write(&self, state: u32) {
        let facts = self.facts(state);
        for (index, word) in self.seat.words.iter().enumerate().rev().filter(|(index, _)| *index != BEATS) {
            word.publish(facts.get(index).copied().unwrap_or(canary(self.sitter.incarnation, index)), Site::Plain);
        }
    }

    /// Whether every word still has the value that was written.
    pub fn is_intact(&self) -> bool {
        let [state, rest @ ..] = self.seat.words;
        let sits = [TAKEN, RETIRED].contains(&state.own());
        let facts = self.facts(TAKEN).into_iter().skip(1).zip(rest).all(|(fact, word)| word.own() == fact);
        sits && facts && self.seat.canary_sings(self.sitter.incarnation)
    }

    /// Announces that this rank takes part in no further collective. No effect after [`leave`](Self::leave) or
    /// [`fail`](Self::fail).
    pub fn retire(self) {
        let [state, ..] = self.seat.words;
        if ![LEFT, FAILED].contains(&state.own()) {
            state.publish(RETIRED, Site::Plain);
        }
    }

    /// Leaves in order: the end of this process is not a failure.
    pub fn leave(self) {
        self.seat.words[0].publish(LEFT, Site::Plain);
    }

    /// Marks this rank as failed although its process may go on. Rewrites every word, so it works on an overwritten
    /// slot, too.
    pub fn fail(self) {
        self.write(FAILED);
    }
}

const fn canary(incarnation: u32, index: usize) -> u32 {
    // Odd, so that cleared memory is never right.
    incarnation.wrapping_add(index as u32).wrapping_mul(0x9e37_79b9) | 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::{PAGE, Sizes, Waiting};
    use core::ptr::NonNull;

    const SITTER: Sitter = Sitter { rank: 7, incarnation: 0xdead_beef, process: 42 };

    fn layout() -> Layout {
        let sizes = Sizes::of_node(2, Waiting::Shared);
        Layout::new(Sizes { board: PAGE as u32, pool: 0, ring_bulk: 64, ..sizes }).unwrap()
    }

    fn with_segment(test: impl FnOnce(Segment<'_>)) {
        let mut memory = vec![0_u32; layout().bytes() / 4];
        // SAFETY: the vector outlives the segment and is used through it alone.
        test(unsafe { Segment::new(NonNull::from(memory.as_mut_slice()).cast(), layout().bytes()) });
    }

    #[test]
    fn the_dead_are_buried_and_those_who_left_rest() {
        with_segment(|segment| {
            let [one, other] = [0, 1].map(|local| Seat::of(segment, &layout(), local).unwrap());
            one.bury();
            assert_eq!(one.occupant(), Occupant::Nobody);
            let (own, leaves) = (one.take(SITTER).unwrap(), other.take(SITTER).unwrap());
            own.retire();
            leaves.leave();
            one.bury();
            other.bury();
            assert_eq!((one.occupant(), other.occupant()), (Occupant::Failed(SITTER), Occupant::Left(SITTER)));
        });
    }

    #[test]
    fn seat_is_taken_once_and_left() {
        with_segment(|segment| {
            let seat = |local| Seat::of(segment, &layout(), local);
            assert!(seat(2).is_none());
            let one = seat(1).unwrap();
            assert_eq!(one.occupant(), Occupant::Nobody);
            let own = one.take(SITTER).unwrap();
            assert_eq!(one.occupant(), Occupant::Sits(SITTER));
            assert!(own.is_intact() && one.take(SITTER).is_none());
            assert_eq!(seat(0).unwrap().occupant(), Occupant::Nobody);
            assert!(!one.has_retired());
            own.retire();
            assert_eq!(one.occupant(), Occupant::Retired(SITTER));
            assert!(one.has_retired() && own.is_intact());
            own.leave();
            own.retire();
            assert_eq!(one.occupant(), Occupant::Left(SITTER));
            assert!(one.take(SITTER).is_none(), "a slot is claimed once");
            own.fail();
            own.retire();
            assert_eq!(one.occupant(), Occupant::Failed(SITTER));
            assert!(one.has_retired());
        });
    }

    #[test]
    fn whoever_gives_up_says_so_on_an_overwritten_seat() {
        with_segment(|segment| {
            let seat = Seat::of(segment, &layout(), 0).unwrap();
            let own = seat.take(SITTER).unwrap();
            seat.words.iter().for_each(|word| word.publish(u32::MAX, Site::Plain));
            assert_eq!(seat.occupant(), Occupant::Garbage);
            own.fail();
            assert_eq!(seat.occupant(), Occupant::Failed(SITTER));
            assert!(!own.is_intact());
        });
    }

    #[test]
    fn every_changed_word_is_noticed_by_its_owner() {
        with_segment(|segment| {
            let seat = Seat::of(segment, &layout(), 0).unwrap();
            let own = seat.take(SITTER).unwrap();
            own.heart().publish(1, Site::Plain);
            assert!(own.is_intact() && seat.beats() == 1, "the heartbeat is not an integrity word");
            for (_, word) in seat.words.iter().enumerate().filter(|(index, _)| *index != BEATS) {
                let before = word.own();
                for bit in 0..32 {
                    word.publish(before ^ 1 << bit, Site::Plain);
                    assert!(!own.is_intact(), "bit {bit}");
                    assert_ne!(seat.occupant(), Occupant::Sits(SITTER));
                }
                word.publish(before, Site::Plain);
            }
            assert!(own.is_intact());
        });
    }
}
