//! Which lines the words of two ranks lie on in their barriers.
//!
//! A processor's last cache is spread over the chip, and a line's address decides by which part of it the line travels from one core
//! to another: between the same two cores one line takes up to twice as long as another. So the first barrier of two ranks is followed
//! by short ones on each line that a word may lie on; each rank chooses the quickest for its own, and says so beside its word.
//!
//! ```text
//! barriers                                    words
//! 1                                           where they begin
//! ROUNDS of BATCH on every line, for each     that rank's there, the other's where it begins
//! 1                                           where they begin; beside them: where they lie from now on
//! ```
//! If that takes too long, the first rank says where its word will lie before the others are through, and thereby ends it. Before a
//! word moves it shows, where it moves to, how many barriers there were.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use unisono_core::collective::{Cause, Failure, Verb};
use unisono_core::ids::Rank as Member;
use unisono_shmem::barrier::FlatBarrier;
use unisono_shmem::segment::{Site, Word};

use super::{CollectiveError, Communicator, NodeGroup, SPINNING, UNSETTLED};

/// Barriers that are timed together, and how often a line is tried: the least time counts.
const BATCH: u32 = 16;
const ROUNDS: usize = 3;
/// What all may take.
const LONGEST: Duration = Duration::from_millis(2);

impl NodeGroup {
    /// The first barrier of two ranks, which this one has just entered.
    #[cold]
    pub(super) fn settle(&self, communicator: &Communicator, epoch: u32) -> Result<(), CollectiveError> {
        let (own, home) = (self.own, self.barrier);
        self.meet(communicator, &home, epoch)?;
        let of = |rank| (0..ROUNDS).flat_map(|_| 0..self.boards.lines()).map(move |line| (rank, line));
        let mut trials = of(0).chain(of(1)).peekable();
        let (started, mut quickest, mut chosen) = (Instant::now(), Duration::MAX, 0);
        while let Some((rank, line)) = trials.next() {
            let on = self.with(rank, line);
            let next = trials.peek().map_or(home, |(rank, line)| self.with(*rank, *line));
            let began = Instant::now();
            for _ in 1..BATCH {
                self.meet(communicator, &on, self.next_epoch())?;
            }
            let took = began.elapsed();
            if rank == own && took < quickest {
                (quickest, chosen) = (took, line);
            }
            if own == 0 && started.elapsed() > LONGEST {
                self.say(chosen);
            }
            self.meet_last(communicator, &on, &next)?;
            if self.said_by(0) != 0 {
                break;
            }
        }
        self.say(chosen);
        self.meet_last(communicator, &home, &self.with(own, chosen))?;
        let other = u32::from(own == 0);
        let theirs = self.said_by(other).wrapping_sub(1);
        let lines = if own == 0 { [chosen, theirs] } else { [theirs, chosen] };
        let settled = FlatBarrier::on(self.node.segment(), &self.boards, own, lines);
        let Some(settled) = settled.and_then(|settled| Some((settled, settled.pair()?))) else {
            let id = self.id(self.epoch.load(Ordering::Relaxed));
            let failure = Failure { rank: Member(other), cause: Cause::Corrupt, id, verb: Verb::Barrier };
            return Err(self.fail(communicator, failure.into()));
        };
        tracing::debug!(?lines, each = ?quickest / (BATCH - 1), "barriers");
        let _ = self.settled.set(settled);
        // Unless it was revoked meanwhile.
        let _ = self.way.compare_exchange(UNSETTLED, SPINNING, Ordering::Relaxed, Ordering::Relaxed);
        Ok(())
    }

    /// The barrier with one rank's word on this line, and the other's where it begins.
    fn with(&self, rank: u32, line: u32) -> FlatBarrier<'static> {
        let lines = if rank == 0 { [line, 0] } else { [0, line] };
        FlatBarrier::on(self.node.segment(), &self.boards, self.own, lines).unwrap_or(self.barrier)
    }

    /// As [`meet`](Self::meet), for the last time before words lie as in `next`, or where they begin.
    fn meet_last(
        &self,
        communicator: &Communicator,
        on: &FlatBarrier<'static>,
        next: &FlatBarrier<'static>,
    ) -> Result<(), CollectiveError> {
        let epoch = self.next_epoch();
        for word in [self.barrier.own(), next.own()] {
            if !core::ptr::eq(word, on.own()) {
                word.publish(epoch, Site::Plain);
            }
        }
        self.meet(communicator, on, epoch)
    }

    /// Where a rank says on which line its word lies: the line plus one.
    fn saying(&self, rank: u32) -> Option<&'static Word> {
        self.node.segment().word(self.boards.moves_to(rank))
    }

    fn said_by(&self, rank: u32) -> u32 {
        self.saying(rank).map_or(0, |word| word.acquire(Site::Plain))
    }

    fn say(&self, line: u32) {
        if self.said.swap(line + 1, Ordering::Relaxed) == 0
            && let Some(word) = self.saying(self.own)
        {
            word.publish(line + 1, Site::Plain);
        }
    }

    /// Whether what this rank said stands there: the other one waits elsewhere if not.
    pub(super) fn is_settled(&self) -> bool {
        self.said_by(self.own) == self.said.load(Ordering::Relaxed)
    }
}
