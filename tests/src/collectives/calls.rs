//! Calls each form of each collective.

use unisono::collective::{CollectiveError, Partition, PartitionMut, SystemOperation};
use unisono::{Communicator, Rank};
use unisono_core::collective::CollectiveKind;

use super::{Collective, Form};

type Called = Result<(), CollectiveError>;

/// A call: communicator, collective, root and blocks.
pub(super) struct Call<'c> {
    pub(super) world: &'c Communicator,
    pub(super) collective: Collective,
    pub(super) root: Rank,
    /// Where each block of the whole vector begins, and its end.
    pub(super) starts: &'c [usize],
    /// Writes the input of the second start of a persistent collective.
    pub(super) refill: &'c dyn Fn(&mut [u32]),
}

impl Call<'_> {
    /// Runs the call. Forms with one buffer use the second one.
    pub(super) fn run(&self, mine: &mut [u32], theirs: &mut [u32]) -> Called {
        match self.collective.form {
            Form::Blocking => self.blocking(mine, theirs),
            Form::Immediate => self.immediate(mine, theirs),
            Form::Persistent => self.persistent(mine, theirs),
            Form::InPlace => self.in_place(theirs),
            Form::Varying => self.varying(mine, theirs),
        }
    }

    fn blocking(&self, mine: &[u32], theirs: &mut [u32]) -> Called {
        let (world, root, sum) = (self.world, self.root, SystemOperation::sum());
        match self.collective.kind {
            CollectiveKind::Barrier => world.barrier(),
            CollectiveKind::Broadcast => world.broadcast_into(theirs, root),
            CollectiveKind::Gather => world.gather_into(mine, theirs, root),
            CollectiveKind::Scatter => world.scatter_into(mine, theirs, root),
            CollectiveKind::Allgather => world.all_gather_into(mine, theirs),
            CollectiveKind::Alltoall => world.all_to_all_into(mine, theirs),
            CollectiveKind::Reduce => world.reduce_into(mine, theirs, sum, root),
            CollectiveKind::Allreduce => world.all_reduce_into(mine, theirs, sum),
            CollectiveKind::ReduceScatter => world.reduce_scatter_block_into(mine, theirs, sum),
            CollectiveKind::Scan => world.scan_into(mine, theirs, sum),
            CollectiveKind::Exscan => world.exclusive_scan_into(mine, theirs, sum),
        }
    }

    fn immediate(&self, mine: &[u32], theirs: &mut [u32]) -> Called {
        let (root, sum) = (self.root, SystemOperation::sum());
        self.world.scope(|scope| {
            let request = match self.collective.kind {
                CollectiveKind::Barrier => scope.immediate_barrier(),
                CollectiveKind::Broadcast => scope.immediate_broadcast_into(theirs, root),
                CollectiveKind::Gather => scope.immediate_gather_into(mine, theirs, root),
                CollectiveKind::Scatter => scope.immediate_scatter_into(mine, theirs, root),
                CollectiveKind::Allgather => scope.immediate_all_gather_into(mine, theirs),
                CollectiveKind::Alltoall => scope.immediate_all_to_all_into(mine, theirs),
                CollectiveKind::Reduce => scope.immediate_reduce_into(mine, theirs, sum, root),
                CollectiveKind::Allreduce => scope.immediate_all_reduce_into(mine, theirs, sum),
                CollectiveKind::ReduceScatter => scope.immediate_reduce_scatter_block_into(mine, theirs, sum),
                CollectiveKind::Scan => scope.immediate_scan_into(mine, theirs, sum),
                CollectiveKind::Exscan => scope.immediate_exclusive_scan_into(mine, theirs, sum),
            };
            request?.wait()
        })
    }

    fn persistent(&self, mine: &mut [u32], theirs: &mut [u32]) -> Called {
        let (root, sum) = (self.root, SystemOperation::sum());
        self.world.scope(|scope| {
            let request = match self.collective.kind {
                CollectiveKind::Barrier => {
                    let mut barrier = scope.persistent_barrier()?;
                    return (0..2).try_for_each(|_| {
                        barrier.start()?;
                        barrier.wait()
                    });
                }
                CollectiveKind::Broadcast => scope.persistent_broadcast_into(theirs, root),
                CollectiveKind::Gather => scope.persistent_gather_into(mine, theirs, root),
                CollectiveKind::Scatter => scope.persistent_scatter_into(mine, theirs, root),
                CollectiveKind::Allgather => scope.persistent_all_gather_into(mine, theirs),
                CollectiveKind::Alltoall => scope.persistent_all_to_all_into(mine, theirs),
                CollectiveKind::Reduce => scope.persistent_reduce_into(mine, theirs, sum, root),
                CollectiveKind::Allreduce => scope.persistent_all_reduce_into(mine, theirs, sum),
                CollectiveKind::ReduceScatter => scope.persistent_reduce_scatter_block_into(mine, theirs, sum),
                CollectiveKind::Scan => scope.persistent_scan_into(mine, theirs, sum),
                CollectiveKind::Exscan => scope.persistent_exclusive_scan_into(mine, theirs, sum),
            };
            let mut request = request?;
            request.start()?;
            request.wait()?;
            (self.refill)(request.data()?);
            request.start()?;
            request.wait()
        })
    }

    fn in_place(&self, data: &mut [u32]) -> Called {
        let (world, root, sum) = (self.world, self.root, SystemOperation::sum());
        match self.collective.kind {
            CollectiveKind::Barrier | CollectiveKind::Broadcast => Ok(()),
            CollectiveKind::Gather => world.gather_in_place(data, root),
            CollectiveKind::Scatter => world.scatter_in_place(data, root),
            CollectiveKind::Allgather => world.all_gather_in_place(data),
            CollectiveKind::Alltoall => world.all_to_all_in_place(data),
            CollectiveKind::Reduce => world.reduce_in_place(data, sum, root),
            CollectiveKind::Allreduce => world.all_reduce_in_place(data, sum),
            CollectiveKind::ReduceScatter => world.reduce_scatter_block_in_place(data, sum),
            CollectiveKind::Scan => world.scan_in_place(data, sum),
            CollectiveKind::Exscan => world.exclusive_scan_in_place(data, sum),
        }
    }

    fn varying(&self, mine: &[u32], theirs: &mut [u32]) -> Called {
        let (world, root) = (self.world, self.root);
        let (size, rank) = (world.size() as usize, world.rank());
        let counts: Vec<usize> = self.starts.windows(2).map(|of| of[1] - of[0]).collect();
        // Ranks other than the root have no blocks.
        let given = || Partition::new(mine, &counts, &self.starts[..size]);
        let is_root = rank == root;
        match self.collective.kind {
            CollectiveKind::Gather if is_root => {
                world.gather_varcount_into(mine, PartitionMut::new(theirs, &counts, &self.starts[..size])?, root)
            }
            CollectiveKind::Gather => world.gather_varcount_into(mine, PartitionMut::new(theirs, &[], &[])?, root),
            CollectiveKind::Scatter if is_root => world.scatter_varcount_into(&given()?, theirs, root),
            CollectiveKind::Scatter => world.scatter_varcount_into(&Partition::new(mine, &[], &[])?, theirs, root),
            CollectiveKind::Allgather => {
                world.all_gather_varcount_into(mine, PartitionMut::new(theirs, &counts, &self.starts[..size])?)
            }
            CollectiveKind::Alltoall => {
                let own = counts[rank.0 as usize];
                let places: Vec<usize> = (0..size).map(|of| of * own).collect();
                world.all_to_all_varcount_into(&given()?, PartitionMut::new(theirs, &vec![own; size], &places)?)
            }
            CollectiveKind::ReduceScatter => {
                world.reduce_scatter_varcount_into(&given()?, theirs, SystemOperation::sum())
            }
            CollectiveKind::Barrier
            | CollectiveKind::Broadcast
            | CollectiveKind::Reduce
            | CollectiveKind::Allreduce
            | CollectiveKind::Scan
            | CollectiveKind::Exscan => Ok(()),
        }
    }
}
