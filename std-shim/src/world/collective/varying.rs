//! Collectives of blocks that differ in length. They go by messages, on one node, too.

use unisono_core::collective::{Plan, Verb};
use unisono_shmem::payload::Moves;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::CollectiveError;
use super::call::Call;
use super::node_group::Places;
use super::partition::{Partition, PartitionMut, Table, Tables};
use crate::rank::Rank;
use crate::world::Communicator;

impl Communicator {
    /// Everyone's `data`, of any length, to its block of the root's `into`; the others' is left alone and may have no blocks.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn gather_varcount_into<T>(
        &self,
        data: &[T],
        into: PartitionMut<'_, T>,
        root: Rank,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(Verb::Gather, 0, self.root(root)?);
        let is_root = self.rank == root;
        if is_root {
            self.fits(&into.table, size_of_val(data))?;
        }
        let (output, target) = if is_root { (Some(into.table), into.data) } else { (None, Default::default()) };
        let tables = Tables { input: None, output, own: size_of_val(data) };
        self.run_varying(plan, Places::Apart(data.as_bytes(), target.as_mut_bytes()), tables)
    }

    /// Block i of the root's `data` to rank i's `into`, which is as long; the others' `data` is not looked at.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn scatter_varcount_into<T>(
        &self,
        data: &Partition<'_, T>,
        into: &mut [T],
        root: Rank,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let plan = self.plan::<T>(Verb::Scatter, 0, self.root(root)?);
        let is_root = self.rank == root;
        if is_root {
            self.fits(&data.table, size_of_val(into))?;
        }
        let (input, source) = if is_root { (Some(data.table.clone()), data.data) } else { (None, Default::default()) };
        let tables = Tables { input, output: None, own: size_of_val(into) };
        self.run_varying(plan, Places::Apart(source.as_bytes(), into.as_mut_bytes()), tables)
    }

    /// Everyone's `data`, of any length, to its block of everyone's `into`. All ranks give blocks of the same lengths.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_gather_varcount_into<T>(&self, data: &[T], into: PartitionMut<'_, T>) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        self.fits(&into.table, size_of_val(data))?;
        let mean = into.table.total() / self.size as usize;
        let plan = Plan { bytes: mean, ..self.plan::<T>(Verb::Allgather, 0, Rank(0)) };
        let tables = Tables { input: None, output: Some(into.table), own: size_of_val(data) };
        self.run_varying(plan, Places::Apart(data.as_bytes(), into.data.as_mut_bytes()), tables)
    }

    /// Block j of rank i's `data` to block i of rank j's `into`, which is as long.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn all_to_all_varcount_into<T>(
        &self,
        data: &Partition<'_, T>,
        into: PartitionMut<'_, T>,
    ) -> Result<(), CollectiveError>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let own = into.table.bytes.get(self.rank.0 as usize).copied().unwrap_or_default();
        self.fits(&data.table, own)?;
        self.fits(&into.table, own)?;
        let plan = self.plan::<T>(Verb::Alltoall, 0, Rank(0));
        let tables = Tables { input: Some(data.table.clone()), output: Some(into.table), own: 0 };
        self.run_varying(plan, Places::Apart(data.data.as_bytes(), into.data.as_mut_bytes()), tables)
    }

    /// Whether there is a block for every rank, this one's of so many bytes.
    fn fits(&self, table: &Table, own: usize) -> Result<(), CollectiveError> {
        let (needed, given) = (self.size as usize, table.bytes.len());
        if given != needed {
            return Err(CollectiveError::Length { needed, given });
        }
        match table.bytes.get(self.rank.0 as usize) {
            Some(bytes) if *bytes != own => Err(CollectiveError::Length { needed: *bytes, given: own }),
            _ => Ok(()),
        }
    }

    fn run_varying(&self, plan: Plan, places: Places<'_>, tables: Tables) -> Result<(), CollectiveError> {
        // SAFETY: what is lent outlives this call, which waits for the end.
        let begun = unsafe { self.begin(Call { plan, places, tables: Some(tables) }, Box::new(Moves)) }?;
        self.wait_for(begun)
    }
}
