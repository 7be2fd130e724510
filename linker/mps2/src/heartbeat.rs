//! The heartbeat that a rank publishes while it waits.

use unisono_node::Idle;
use unisono_node::member::Member;
use unisono_shmem::segment::{Site, Word};

use crate::clock::Clock;

/// Microseconds between two beats.
const BEAT: u32 = 1000;

/// A rank's heartbeat. Reads the clock on every idle poll, so that its 24 bits suffice, and counts up every
/// millisecond.
#[derive(Debug)]
pub struct Heart<'c> {
    clock: &'c mut Clock,
    word: &'static Word,
    beats: u32,
    last: u32,
}

impl<'c> Heart<'c> {
    /// The heartbeat of this rank, whose slot is valid as long as the image runs.
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
