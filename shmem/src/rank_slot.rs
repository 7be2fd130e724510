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

use crate::layout::SegmentLayout;
use crate::segment::{STRIDE, Segment, Site, Word};

const FREE: u32 = 0;
const TAKEN: u32 = u32::from_le_bytes(*b"SITS");
const RETIRED: u32 = u32::from_le_bytes(*b"DONE");
const LEFT: u32 = u32::from_le_bytes(*b"LEFT");
const FAILED: u32 = u32::from_le_bytes(*b"FAIL");
/// Words of a slot.
const WORDS: usize = STRIDE / 4;
/// Words that identify the occupant.
const IDENTITY_WORDS: usize = 4;
/// The word that counts heartbeats.
const HEARTBEAT: usize = 4;

/// The occupant of a rank slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Occupant {
    /// Its rank in the job.
    pub rank: u32,
    /// Its incarnation.
    pub incarnation: u32,
    /// Its process id; 0 for a node without processes.
    pub process: u32,
}

/// The state of a rank slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Occupancy {
    /// No rank has joined yet.
    Free,
    /// The rank has joined.
    Active(Occupant),
    /// The rank has joined and takes part in no further collective.
    Retired(Occupant),
    /// The rank has left in order.
    Left(Occupant),
    /// The rank has failed.
    Failed(Occupant),
    /// The words hold values that no rank writes.
    Corrupt,
}

/// A view of one rank's slot, for any rank of the node.
#[derive(Clone, Copy, Debug)]
pub struct RankSlot<'a> {
    words: &'a [Word; WORDS],
}

impl<'a> RankSlot<'a> {
    /// The slot of a rank of the node. `None`: there is no such rank.
    pub fn of(segment: Segment<'a>, layout: &SegmentLayout, local: u32) -> Option<Self> {
        let words = segment.words(layout.rank_slot(local)?.offset, WORDS)?;
        Some(Self { words: words.try_into().ok()? })
    }

    /// Whether the rank has joined and takes part in no further collective. One load.
    pub fn has_retired(&self) -> bool {
        [RETIRED, LEFT, FAILED].contains(&self.words[0].acquire(Site::Plain))
    }

    /// The state of the slot. An occupant is reported only if all integrity words match its incarnation.
    pub fn state(&self) -> Occupancy {
        let [state, rank, incarnation, process, ..] = self.words;
        let state = state.acquire(Site::Plain);
        let [rank, incarnation, process] = [rank, incarnation, process].map(|word| word.acquire(Site::Plain));
        let sitter = Occupant { rank, incarnation, process };
        match state {
            FREE => Occupancy::Free,
            _ if !self.integrity_words_match(incarnation) => Occupancy::Corrupt,
            TAKEN => Occupancy::Active(sitter),
            RETIRED => Occupancy::Retired(sitter),
            LEFT => Occupancy::Left(sitter),
            FAILED => Occupancy::Failed(sitter),
            _ => Occupancy::Corrupt,
        }
    }

    /// Heartbeats of a rank without a process. One load.
    pub fn heartbeats(&self) -> u32 {
        self.words[HEARTBEAT].acquire(Site::Plain)
    }

    /// Claims the slot. `None`: it is not free. The caller holds the slot's lock, so no other process claims it at the
    /// same time.
    pub fn claim(self, sitter: Occupant) -> Option<OwnedSlot<'a>> {
        if self.state() != Occupancy::Free {
            return None;
        }
        let own = OwnedSlot { slot: self, occupant: sitter };
        own.write(TAKEN);
        Some(own)
    }

    /// Marks the rank as failed for ranks that cannot ask the operating system. The caller has seen the rank join and
    /// then its process end, so the rank no longer writes. A rank that has left in order stays so.
    pub fn mark_failed(&self) {
        let state = self.words[0].acquire(Site::Plain);
        if [TAKEN, RETIRED].contains(&state) {
            self.words[0].publish(FAILED, Site::Plain);
        }
    }

    fn integrity_words_match(&self, incarnation: u32) -> bool {
        let mut words = self.words.iter().enumerate().skip(HEARTBEAT + 1);
        words.all(|(index, word)| word.acquire(Site::Plain) == integrity_word(incarnation, index))
    }
}

/// This rank's own slot and the values written there, which are remembered and never read back.
#[derive(Clone, Copy, Debug)]
pub struct OwnedSlot<'a> {
    slot: RankSlot<'a>,
    occupant: Occupant,
}

impl<'a> OwnedSlot<'a> {
    /// The word that a rank without a process increments, in an interrupt handler if it has one, as long as it is
    /// alive.
    pub const fn heartbeat_word(self) -> &'a Word {
        &self.slot.words[HEARTBEAT]
    }

    fn identity(&self, state: u32) -> [u32; IDENTITY_WORDS] {
        [state, self.occupant.rank, self.occupant.incarnation, self.occupant.process]
    }

    /// Writes every word, its state last.
    fn write(&self, state: u32) {
        let facts = self.identity(state);
        for (index, word) in self.slot.words.iter().enumerate().rev().filter(|(index, _)| *index != HEARTBEAT) {
            word.publish(
                facts.get(index).copied().unwrap_or(integrity_word(self.occupant.incarnation, index)),
                Site::Plain,
            );
        }
    }

    /// Whether every word still has the value that was written.
    pub fn is_intact(&self) -> bool {
        let [state, rest @ ..] = self.slot.words;
        let sits = [TAKEN, RETIRED].contains(&state.own());
        let facts = self.identity(TAKEN).into_iter().skip(1).zip(rest).all(|(fact, word)| word.own() == fact);
        sits && facts && self.slot.integrity_words_match(self.occupant.incarnation)
    }

    /// Announces that this rank takes part in no further collective. No effect after [`leave`](Self::leave) or
    /// [`fail`](Self::fail).
    pub fn retire(self) {
        let [state, ..] = self.slot.words;
        if ![LEFT, FAILED].contains(&state.own()) {
            state.publish(RETIRED, Site::Plain);
        }
    }

    /// Leaves in order: the end of this process is not a failure.
    pub fn leave(self) {
        self.slot.words[0].publish(LEFT, Site::Plain);
    }

    /// Marks this rank as failed although its process may go on. Rewrites every word, so it works on an overwritten
    /// slot, too.
    pub fn fail(self) {
        self.write(FAILED);
    }
}

const fn integrity_word(incarnation: u32, index: usize) -> u32 {
    // Odd, so that cleared memory is never right.
    incarnation.wrapping_add(index as u32).wrapping_mul(0x9e37_79b9) | 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::{PAGE, SegmentSizes, WaitMode};
    use core::ptr::NonNull;

    const OCCUPANT: Occupant = Occupant { rank: 7, incarnation: 0xdead_beef, process: 42 };

    fn layout() -> SegmentLayout {
        let sizes = SegmentSizes::of_node(2, WaitMode::Oversubscribed);
        SegmentLayout::new(SegmentSizes { collective_area: PAGE as u32, pool: 0, ring_bulk: 64, ..sizes }).unwrap()
    }

    fn with_segment(test: impl FnOnce(Segment<'_>)) {
        let mut memory = vec![0_u32; layout().bytes() / 4];
        // SAFETY: the vector outlives the segment and is used through it alone.
        test(unsafe { Segment::new(NonNull::from(memory.as_mut_slice()).cast(), layout().bytes()) });
    }

    #[test]
    fn failed_ranks_are_marked_and_departed_ones_are_not() {
        with_segment(|segment| {
            let [one, other] = [0, 1].map(|local| RankSlot::of(segment, &layout(), local).unwrap());
            one.mark_failed();
            assert_eq!(one.state(), Occupancy::Free);
            let (own, leaves) = (one.claim(OCCUPANT).unwrap(), other.claim(OCCUPANT).unwrap());
            own.retire();
            leaves.leave();
            one.mark_failed();
            other.mark_failed();
            assert_eq!((one.state(), other.state()), (Occupancy::Failed(OCCUPANT), Occupancy::Left(OCCUPANT)));
        });
    }

    #[test]
    fn slot_is_claimed_once_and_left() {
        with_segment(|segment| {
            let slot = |local| RankSlot::of(segment, &layout(), local);
            assert!(slot(2).is_none());
            let one = slot(1).unwrap();
            assert_eq!(one.state(), Occupancy::Free);
            let own = one.claim(OCCUPANT).unwrap();
            assert_eq!(one.state(), Occupancy::Active(OCCUPANT));
            assert!(own.is_intact() && one.claim(OCCUPANT).is_none());
            assert_eq!(slot(0).unwrap().state(), Occupancy::Free);
            assert!(!one.has_retired());
            own.retire();
            assert_eq!(one.state(), Occupancy::Retired(OCCUPANT));
            assert!(one.has_retired() && own.is_intact());
            own.leave();
            own.retire();
            assert_eq!(one.state(), Occupancy::Left(OCCUPANT));
            assert!(one.claim(OCCUPANT).is_none(), "a slot is claimed once");
            own.fail();
            own.retire();
            assert_eq!(one.state(), Occupancy::Failed(OCCUPANT));
            assert!(one.has_retired());
        });
    }

    #[test]
    fn failing_rank_rewrites_an_overwritten_slot() {
        with_segment(|segment| {
            let slot = RankSlot::of(segment, &layout(), 0).unwrap();
            let own = slot.claim(OCCUPANT).unwrap();
            slot.words.iter().for_each(|word| word.publish(u32::MAX, Site::Plain));
            assert_eq!(slot.state(), Occupancy::Corrupt);
            own.fail();
            assert_eq!(slot.state(), Occupancy::Failed(OCCUPANT));
            assert!(!own.is_intact());
        });
    }

    #[test]
    fn every_changed_word_is_noticed_by_its_owner() {
        with_segment(|segment| {
            let slot = RankSlot::of(segment, &layout(), 0).unwrap();
            let own = slot.claim(OCCUPANT).unwrap();
            own.heartbeat_word().publish(1, Site::Plain);
            assert!(own.is_intact() && slot.heartbeats() == 1, "the heartbeat is not an integrity word");
            for (_, word) in slot.words.iter().enumerate().filter(|(index, _)| *index != HEARTBEAT) {
                let before = word.own();
                for bit in 0..32 {
                    word.publish(before ^ 1 << bit, Site::Plain);
                    assert!(!own.is_intact(), "bit {bit}");
                    assert_ne!(slot.state(), Occupancy::Active(OCCUPANT));
                }
                word.publish(before, Site::Plain);
            }
            assert!(own.is_intact());
        });
    }
}
