//! The heartbeat that a rank publishes while it waits.

use unisono_node::Idle;
use unisono_node::member::Member;
use unisono_shmem::segment::{Site, Word};

use crate::clock::Clock;

/// Microseconds between two beats.
const PERIOD_MICROS: u32 = 1000;

/// A rank's heartbeat. Reads the clock on every idle poll, so that its 24 bits suffice, and counts up every
/// millisecond.
#[derive(Debug)]
pub struct Heartbeat<'c> {
    clock: &'c mut Clock,
    word: &'static Word,
    beats: u32,
    last: u32,
}

impl<'c> Heartbeat<'c> {
    /// The heartbeat of this rank, whose slot is valid as long as the image runs.
    pub fn new(clock: &'c mut Clock, member: &Member<'static>) -> Self {
        let last = clock.now();
        Self { clock, word: member.heartbeat(), beats: 0, last }
    }
}

impl Idle for Heartbeat<'_> {
    fn idle(&mut self) {
        let now = self.clock.now();
        if now.wrapping_sub(self.last) >= PERIOD_MICROS {
            (self.last, self.beats) = (now, self.beats.wrapping_add(1));
            self.word.publish(self.beats, Site::Plain);
        }
    }
}
