//! Cache placement of the barrier words of two ranks.
//!
//! A processor's last-level cache is distributed over the chip, and a line's address determines the part through which
//! the line travels from one core to another: between the same two cores, one line may take twice as long as another.
//! So the first barrier of two ranks is followed by short ones on each line that a word may use; each rank chooses the
//! fastest for its own word, and publishes it beside the word.
//!
//! ```text
//! barriers                                    words
//! 1                                           in their initial places
//! ROUNDS of BATCH on every line, for each     that rank's word there, the other's in its initial place
//! 1                                           initial places; beside them: the final places
//! ```
//! If that takes too long, the first rank publishes its final place before the others are through, and thereby ends the
//! trials. Before a word moves, the current number of barriers is stored at its new place.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use unisono_core::collective::{CollectiveKind, Failure, FailureCause};
use unisono_core::ids::Rank as Member;
use unisono_shmem::barrier::FlatBarrier;
use unisono_shmem::segment::{Site, Word};

use super::barrier_mode::{SPINNING, UNPLACED};
use super::{CollectiveError, Communicator, IntraNodeGroup};

/// Barriers that are timed together, and number of trials per line: the least time counts.
const BATCH: u32 = 16;
const ROUNDS: usize = 3;
/// Longest time of all trials.
const TRIALS_MAX: Duration = Duration::from_millis(2);

impl IntraNodeGroup {
    /// Executes the first barrier of two ranks, and chooses the places of their words.
    #[cold]
    pub(super) fn place_words(&self, communicator: &Communicator, epoch: u32) -> Result<(), CollectiveError> {
        let (own, home) = (self.own, self.barrier);
        self.enter_barrier(communicator, &home, epoch)?;
        let of = |rank| (0..ROUNDS).flat_map(|_| 0..self.areas.phase_lines()).map(move |line| (rank, line));
        let mut trials = of(0).chain(of(1)).peekable();
        let (started, mut quickest, mut chosen) = (Instant::now(), Duration::MAX, 0);
        while let Some((rank, line)) = trials.next() {
            let on = self.barrier_on_line(rank, line);
            let next = trials.peek().map_or(home, |(rank, line)| self.barrier_on_line(*rank, *line));
            let began = Instant::now();
            for _ in 1..BATCH {
                self.enter_barrier(communicator, &on, self.next_epoch())?;
            }
            let took = began.elapsed();
            if rank == own && took < quickest {
                (quickest, chosen) = (took, line);
            }
            if own == 0 && started.elapsed() > TRIALS_MAX {
                self.publish_line(chosen);
            }
            self.enter_before_move(communicator, &on, &next)?;
            if self.line_of(0) != 0 {
                break;
            }
        }
        self.publish_line(chosen);
        self.enter_before_move(communicator, &home, &self.barrier_on_line(own, chosen))?;
        let other = u32::from(own == 0);
        let theirs = self.line_of(other).wrapping_sub(1);
        let lines = if own == 0 { [chosen, theirs] } else { [theirs, chosen] };
        let settled = FlatBarrier::on_lines(self.node.segment(), &self.areas, own, lines);
        let Some(settled) = settled.and_then(|settled| Some((settled, settled.pair()?))) else {
            let id = self.id(communicator.call());
            let failure =
                Failure { rank: Member(other), cause: FailureCause::Corrupt, id, collective: CollectiveKind::Barrier };
            return Err(self.fail(communicator, failure.into()));
        };
        tracing::debug!(?lines, each = ?quickest / (BATCH - 1), "barriers");
        let _ = self.placed.set(settled);
        // Unless the communicator was revoked meanwhile.
        let _ = self.barrier_mode.compare_exchange(UNPLACED, SPINNING, Ordering::Relaxed, Ordering::Relaxed);
        Ok(())
    }

    /// The barrier with one rank's word on this line, and the other's in its initial place.
    fn barrier_on_line(&self, rank: u32, line: u32) -> FlatBarrier<'static> {
        let lines = if rank == 0 { [line, 0] } else { [0, line] };
        FlatBarrier::on_lines(self.node.segment(), &self.areas, self.own, lines).unwrap_or(self.barrier)
    }

    /// As [`enter_barrier`](Self::enter_barrier), before the words move to their places in `next` or to their initial
    /// places.
    fn enter_before_move(
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
        self.enter_barrier(communicator, on, epoch)
    }

    /// The word in which a rank publishes the line of its barrier word, plus one.
    fn line_word(&self, rank: u32) -> Option<&'static Word> {
        self.node.segment().word(self.areas.next_phase_line(rank))
    }

    fn line_of(&self, rank: u32) -> u32 {
        self.line_word(rank).map_or(0, |word| word.acquire(Site::Plain))
    }

    fn publish_line(&self, line: u32) {
        if self.published_line.swap(line + 1, Ordering::Relaxed) == 0
            && let Some(word) = self.line_word(self.own)
        {
            word.publish(line + 1, Site::Plain);
        }
    }

    /// Whether the line that this rank published is intact: if not, the other rank waits elsewhere.
    pub(super) fn is_placement_intact(&self) -> bool {
        self.line_of(self.own) == self.published_line.load(Ordering::Relaxed)
    }
}
