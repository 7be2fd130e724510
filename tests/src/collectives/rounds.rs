//! Rounds of collectives with known contributions, so that every rank can check its result.

use core::fmt;
use core::ops::Range;

use unisono::{Communicator, Rank};
use unisono_core::collective::CollectiveKind;

use super::calls::Call;
use super::{Collective, Form, RoundError};

/// An element of a rank's contribution in a round.
fn value(of: u32, round: u32, element: usize) -> u32 {
    of.wrapping_mul(0x9e37_79b9) ^ round.wrapping_mul(0x85eb_ca6b).wrapping_add(element as u32)
}

fn fill(data: &mut [u32], of: u32, round: u32) {
    for (element, into) in data.iter_mut().enumerate() {
        *into = value(of, round, element);
    }
}

/// The buffers of a rank.
pub struct Rounds<'w> {
    world: &'w Communicator,
    /// Elements of the whole vector, a multiple of the ranks.
    count: usize,
    mine: Vec<u32>,
    theirs: Vec<u32>,
}

impl fmt::Debug for Rounds<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Rounds({} elements)", self.count)
    }
}

/// The parameters of a round on one rank.
struct Round {
    collective: Collective,
    number: u32,
    rank: u32,
    root: u32,
    /// Where each block of the whole vector begins, and its end.
    starts: Vec<usize>,
}

impl Round {
    fn own(&self) -> Range<usize> {
        self.starts[self.rank as usize]..self.starts[self.rank as usize + 1]
    }

    /// Elements that this rank contributes, and receives.
    fn lengths(&self) -> (usize, usize) {
        let (own, whole) = (self.own().len(), self.starts.last().copied().unwrap_or(0));
        let at_root = if self.rank == self.root { whole } else { 0 };
        match self.collective.kind {
            CollectiveKind::Barrier => (0, 0),
            CollectiveKind::Broadcast => (0, whole),
            CollectiveKind::Gather => (own, at_root),
            CollectiveKind::Scatter => (at_root, own),
            CollectiveKind::Allgather => (own, whole),
            CollectiveKind::Reduce => (whole, at_root),
            CollectiveKind::Allreduce | CollectiveKind::Scan | CollectiveKind::Exscan => (whole, whole),
            CollectiveKind::ReduceScatter => (whole, own),
            CollectiveKind::Alltoall => (whole, own * (self.starts.len() - 1)),
        }
    }

    /// The expected element at an index, and its rank where it is one rank's alone.
    fn expected(&self, at: usize) -> (u32, Option<u32>) {
        let of = |rank: usize, element: usize| (value(rank as u32, self.number, element), Some(rank as u32));
        let of_all = |ranks: u32, element: usize| {
            ((0..ranks).fold(0_u32, |sum, of| sum.wrapping_add(value(of, self.number, element))), None)
        };
        let (root, own, size) = (self.root as usize, self.own(), self.starts.len() - 1);
        match self.collective.kind {
            CollectiveKind::Barrier => (0, None),
            CollectiveKind::Broadcast => of(root, at),
            CollectiveKind::Gather | CollectiveKind::Allgather => {
                let block = (0..size).rev().find(|block| self.starts[*block] <= at).unwrap_or(0);
                of(block, at - self.starts[block])
            }
            CollectiveKind::Scatter => of(root, own.start + at),
            CollectiveKind::Reduce | CollectiveKind::Allreduce => of_all(size as u32, at),
            CollectiveKind::ReduceScatter => of_all(size as u32, own.start + at),
            CollectiveKind::Alltoall => of(at / own.len().max(1), own.start + at % own.len().max(1)),
            CollectiveKind::Scan => of_all(self.rank + 1, at),
            // Rank 0's buffer is left alone: its own data, or zeros.
            CollectiveKind::Exscan if self.rank == 0 && self.collective.form == Form::InPlace => of(0, at),
            CollectiveKind::Exscan => of_all(self.rank, at),
        }
    }
}

impl<'w> Rounds<'w> {
    /// Buffers for vectors of about `bytes` bytes.
    pub fn new(world: &'w Communicator, bytes: usize) -> Self {
        let count = (bytes / 4).next_multiple_of(world.size() as usize).max(world.size() as usize);
        Self { world, count, mine: vec![0; count], theirs: Vec::new() }
    }

    /// Overwrites the buffers.
    pub fn scramble(&mut self) {
        self.mine.fill(0xdead_beef);
        self.theirs.fill(0xdead_beef);
    }

    /// One round.
    ///
    /// # Errors
    /// [`RoundError`].
    pub fn round(&mut self, collective: Collective, number: u32) -> Result<(), RoundError> {
        let (world, rank, root) = (self.world, self.world.rank().0, number % self.world.size());
        let (size, is_varying) = (world.size() as usize, collective.form == Form::Varying);
        let start = |of: usize| if is_varying { self.count * of * of / (size * size) } else { self.count * of / size };
        let round = Round { collective, number, rank, root, starts: (0..=size).map(start).collect() };
        self.prepare(&round);
        let refill = |data: &mut [u32]| fill(data, rank, number);
        let call = Call { world, collective, root: Rank(root), starts: &round.starts, refill: &refill };
        call.run(&mut self.mine, &mut self.theirs)?;
        let (own, (_, gets)) = (round.own(), round.lengths());
        if self.theirs.len() > gets && collective.kind == CollectiveKind::Scatter {
            // The root's own block has stayed in its place.
            self.theirs.copy_within(own, 0);
        }
        self.theirs.truncate(gets);
        self.sample(|at| round.expected(at))
    }

    fn prepare(&mut self, round: &Round) {
        let (Collective { kind: verb, form }, (gives, gets)) = (round.collective, round.lengths());
        // A persistent collective is first started with the data of another round.
        let number = if form == Form::Persistent { !round.number } else { round.number };
        self.mine.resize(gives, 0);
        fill(&mut self.mine, round.rank, number);
        self.theirs.clear();
        self.theirs.resize(gets, 0);
        if verb == CollectiveKind::Broadcast && round.rank == round.root {
            fill(&mut self.theirs, round.rank, number);
        }
        if form == Form::InPlace {
            match verb {
                CollectiveKind::Gather | CollectiveKind::Allgather if gets > 0 => {
                    self.theirs[round.own()].copy_from_slice(&self.mine)
                }
                _ if gives > 0 => self.theirs.clone_from(&self.mine),
                _ => {}
            }
        }
    }

    /// Checks the first, a middle and the last element of the result.
    fn sample(&self, expected: impl Fn(usize) -> (u32, Option<u32>)) -> Result<(), RoundError> {
        let last = self.theirs.len().saturating_sub(1);
        for block in 0..self.world.size() as usize {
            let block = block * self.theirs.len() / self.world.size() as usize;
            for at in [block, block + last / 7, last] {
                let (right, of) = expected(at.min(last));
                if self.theirs.get(at.min(last)).is_some_and(|found| *found != right) {
                    return Err(RoundError::Wrong(of));
                }
            }
        }
        Ok(())
    }
}
