//! The collectives, each as one round whose result is checked.

use core::fmt;

use unisono::rank::Rank;
use unisono::world::Communicator;
use unisono::world::collective::{CollectiveError, SystemOperation};

/// A collective of every kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collective {
    /// As the World names it, and all that follow.
    Barrier,
    /// From the root.
    Broadcast,
    /// To the root.
    Gather,
    /// From the root.
    Scatter,
    /// To all.
    AllGather,
    /// To the root.
    Reduce,
    /// To all.
    AllReduce,
    /// A block each.
    ReduceScatter,
    /// A block for each.
    AllToAll,
    /// Prefixes.
    Scan,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Gather,
        Self::Scatter,
        Self::AllGather,
        Self::Reduce,
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Scan,
    ];

    /// As errors name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllGather => "all_gather",
            Self::Reduce => "reduce",
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Scan => "scan",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Why a round did not end well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// It failed.
    Failed(CollectiveError),
    /// Wrong data, of this rank where it is one's alone.
    Wrong(Option<u32>),
}

impl fmt::Display for Trouble {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(to),
            Self::Wrong(Some(rank)) => write!(to, "wrong data of rank {rank}"),
            Self::Wrong(None) => to.write_str("wrong data"),
        }
    }
}

impl From<CollectiveError> for Trouble {
    fn from(error: CollectiveError) -> Self {
        Self::Failed(error)
    }
}

/// What a rank gives in a round: an element of a block for a rank.
fn value(of: u32, round: u32, element: usize) -> u32 {
    of.wrapping_mul(0x9e37_79b9) ^ round.wrapping_mul(0x85eb_ca6b).wrapping_add(element as u32)
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

impl<'w> Rounds<'w> {
    /// For vectors of about so many bytes.
    pub fn new(world: &'w Communicator, bytes: usize) -> Self {
        let count = (bytes / 4).next_multiple_of(world.size() as usize).max(world.size() as usize);
        Self { world, count, mine: vec![0; count], theirs: Vec::new() }
    }

    /// Uses the buffers for something else.
    pub fn spoil(&mut self) {
        self.mine.fill(0xdead_beef);
        self.theirs.fill(0xdead_beef);
    }

    fn fill(&mut self, round: u32, count: usize) {
        let rank = self.world.rank().0;
        self.mine.resize(count, 0);
        for (element, into) in self.mine.iter_mut().enumerate() {
            *into = value(rank, round, element);
        }
    }

    /// The first, a middle and the last element of what came.
    fn sample(&self, expected: impl Fn(usize) -> (u32, Option<u32>)) -> Result<(), Trouble> {
        let last = self.theirs.len().saturating_sub(1);
        for block in 0..self.world.size() as usize {
            let block = block * self.theirs.len() / self.world.size() as usize;
            for at in [block, block + last / 7, last] {
                let (right, of) = expected(at.min(last));
                if self.theirs.get(at.min(last)).is_some_and(|found| *found != right) {
                    return Err(Trouble::Wrong(of));
                }
            }
        }
        Ok(())
    }

    /// One round.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn round(&mut self, collective: Collective, round: u32) -> Result<(), Trouble> {
        let (world, size, whole) = (self.world, self.world.size(), self.count);
        let (rank, root, sum) = (world.rank().0, round % size, SystemOperation::sum());
        let block = whole / size as usize;
        let of_all = |element: usize, ranks: u32| {
            ((0..ranks).fold(0_u32, |sum, of| sum.wrapping_add(value(of, round, element))), None)
        };
        let blocks = |at: usize| (value((at / block) as u32, round, at % block), Some((at / block) as u32));
        match collective {
            Collective::Barrier => Ok(world.barrier()?),
            Collective::Broadcast => {
                self.theirs.resize(whole, 0);
                if rank == root {
                    for (element, into) in self.theirs.iter_mut().enumerate() {
                        *into = value(rank, round, element);
                    }
                }
                world.broadcast_into(&mut self.theirs, Rank(root))?;
                self.sample(|at| (value(root, round, at), Some(root)))
            }
            Collective::Gather => {
                self.fill(round, block);
                self.theirs.resize(if rank == root { whole } else { 0 }, 0);
                world.gather_into(&self.mine, &mut self.theirs, Rank(root))?;
                self.sample(blocks)
            }
            Collective::Scatter => {
                self.fill(round, if rank == root { whole } else { 0 });
                self.theirs.resize(block, 0);
                world.scatter_into(&self.mine, &mut self.theirs, Rank(root))?;
                self.sample(|at| (value(root, round, rank as usize * block + at), Some(root)))
            }
            Collective::AllGather => {
                self.fill(round, block);
                self.theirs.resize(whole, 0);
                world.all_gather_into(&self.mine, &mut self.theirs)?;
                self.sample(blocks)
            }
            Collective::Reduce => {
                self.fill(round, whole);
                self.theirs.resize(if rank == root { whole } else { 0 }, 0);
                world.reduce_into(&self.mine, &mut self.theirs, sum, Rank(root))?;
                self.sample(|at| of_all(at, size))
            }
            Collective::AllReduce => {
                self.fill(round, whole);
                self.theirs.resize(whole, 0);
                world.all_reduce_into(&self.mine, &mut self.theirs, sum)?;
                self.sample(|at| of_all(at, size))
            }
            Collective::ReduceScatter => {
                self.fill(round, whole);
                self.theirs.resize(block, 0);
                world.reduce_scatter_block_into(&self.mine, &mut self.theirs, sum)?;
                self.sample(|at| of_all(rank as usize * block + at, size))
            }
            Collective::AllToAll => {
                self.fill(round, whole);
                self.theirs.resize(whole, 0);
                world.all_to_all_into(&self.mine, &mut self.theirs)?;
                self.sample(|at| {
                    let of = (at / block) as u32;
                    (value(of, round, rank as usize * block + at % block), Some(of))
                })
            }
            Collective::Scan => {
                self.fill(round, whole);
                self.theirs.resize(whole, 0);
                world.scan_into(&self.mine, &mut self.theirs, sum)?;
                self.sample(|at| of_all(at, rank + 1))
            }
        }
    }
}
