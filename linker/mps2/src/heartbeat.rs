//! The life that a rank shows while it waits.

use unisono_node::Idle;
use unisono_node::member::Member;
use unisono_shmem::segment::{Site, Word};

use crate::clock::Clock;

/// Microseconds between two beats.
const BEAT: u32 = 1000;

/// A rank's heart. The clock is read on every fruitless poll, so that its 24 bits suffice, and every millisecond the heart beats.
#[derive(Debug)]
pub struct Heart<'c> {
    clock: &'c mut Clock,
    word: &'static Word,
    beats: u32,
    last: u32,
}

impl<'c> Heart<'c> {
    /// That of this rank, whose seat lives as long as the board.
    pub fn new(clock: &'c mut Clock, member: &Member<'static>) -> Self {
        let last = clock.now();
        Self { clock, word: member.heart(), beats: 0, last }
    }
}

impl Idle for Heart<'_> {
    fn idle(&mut self) {
        let now = self.clock.now();
        if now.wrapping_sub(self.last) >= BEAT {
            (self.last, self.beats) = (now, self.beats.wrapping_add(1));
            self.word.publish(self.beats, Site::Plain);
        }
    }
}
