//! Compares collectives on strided buffers (`MPI_Type_vector`) with a sequential oracle: every form, each rank with its
//! own layouts.

use core::fmt;

use unisono::collective::{
    AsView, AsViewMut, CollectiveError, Partition, PartitionMut, SystemOperation, UserOperation, Vector, View, ViewMut,
};
use unisono::{Communicator, Rank};

/// Elements of a block: none, one, some in a slot, in a chunk and in several.
const LENGTHS: [usize; 6] = [0, 1, 12, 210, 3000, 30_030];
/// Filler between elements.
const GAP: u64 = u64::MAX;

/// A strided buffer, and the offsets of its elements.
#[derive(Clone, Debug)]
struct StridedBuffer {
    data: Vec<u64>,
    count: usize,
    vector: Vector,
    at: Vec<usize>,
}

impl StridedBuffer {
    /// `elements` elements in a random strided layout.
    fn new(elements: usize, random: &mut fastrand::Rng, given: impl Fn(usize) -> u64) -> Self {
        let mut part =
            |of: usize| (1..=random.usize(1..=of.max(1))).rev().find(|part| of.is_multiple_of(*part)).unwrap_or(1);
        let row = part(elements);
        let rows = part(elements / row);
        let count = elements / row / rows;
        let gaps = [(); 2].map(|()| random.usize(..4).saturating_sub(1));
        let (stride, extent) = if random.bool() {
            let stride = row + gaps[0];
            (stride, (rows - 1) * stride + row + gaps[1])
        } else {
            let extent = row + gaps[0];
            (count.saturating_sub(1) * extent + row + gaps[1], extent)
        };
        let begins = (0..count).flat_map(|v| (0..rows).map(move |r| v * extent + r * stride));
        let at: Vec<usize> = begins.flat_map(|begin| begin..begin + row).collect();
        let mut data = vec![GAP; at.iter().max().map_or(0, |last| last + 1) + gaps[1]];
        at.iter().enumerate().for_each(|(i, at)| data[*at] = given(i));
        Self { data, count, vector: Vector::new(rows, row, stride).resized(extent), at }
    }

    /// Whether its elements are the expected ones and the gaps are untouched.
    fn holds(&self, expected: impl Fn(usize) -> u64) -> bool {
        let mut data = self.data.clone();
        let right = self.at.iter().enumerate().all(|(i, at)| core::mem::replace(&mut data[*at], GAP) == expected(i));
        right && data.iter().all(|value| *value == GAP)
    }
}

impl AsView<u64> for StridedBuffer {
    fn as_view(&self) -> View<'_, u64> {
        View::new(&self.data, self.count, self.vector).expect("within")
    }
}

impl AsViewMut<u64> for StridedBuffer {
    fn as_view_mut(&mut self) -> ViewMut<'_, u64> {
        ViewMut::new(&mut self.data, self.count, self.vector).expect("within, and apart")
    }
}

/// Element i of a rank's contribution.
fn contribution(rank: u32, i: usize) -> u64 {
    u64::from(rank + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i as u64).wrapping_mul(0xd134_2543_de82_ef95) >> 1
}

/// Composition of the maps x ↦ a·x + b modulo 2³², which does not commute.
fn then(left: &u64, right: &u64) -> u64 {
    let [a, b] = [left >> 32, left & 0xffff_ffff];
    let [c, d] = [right >> 32, right & 0xffff_ffff];
    (a.wrapping_mul(c) << 32) | (c.wrapping_mul(b).wrapping_add(d) & 0xffff_ffff)
}

/// Compares results of collectives with the expected ones.
pub struct StridedOracle<'w> {
    world: &'w Communicator,
    random: fastrand::Rng,
    compared: u64,
    wrong: u64,
}

impl fmt::Debug for StridedOracle<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Views({} of {} wrong)", self.wrong, self.compared)
    }
}

/// Calls each form of a collective in turn, each with its own buffers, and checks the result.
macro_rules! each_form {
    ($self:ident, $blocking:ident, $immediate:ident, $persistent:ident,
     ($given:expr, $of_given:expr), ($taken:expr, $before:expr), ($($rest:expr),*), $expected:expr) => {{
        let world = $self.world;
        for form in 0..3 {
            let mut data = StridedBuffer::new($given, &mut $self.random, $of_given);
            let mut into = StridedBuffer::new($taken, &mut $self.random, $before);
            match form {
                0 => world.$blocking(&data, &mut into $(, $rest)*)?,
                1 => world.scope(|scope| scope.$immediate(&data, &mut into $(, $rest)*)?.wait())?,
                _ => world.scope(|scope| {
                    let mut request = scope.$persistent(&mut data, &mut into $(, $rest)*)?;
                    (0..2).try_for_each(|_| request.start().and_then(|()| request.wait()))
                })?,
            }
            $self.count(data.holds($of_given) && into.holds($expected), stringify!($blocking));
        }
    }};
}

/// Calls a collective in its blocking or its immediate form.
macro_rules! one_form {
    ($world:ident, $is_blocking:ident, $blocking:ident, $immediate:ident, ($($argument:expr),*)) => {
        if $is_blocking {
            $world.$blocking($($argument),*)?;
        } else {
            $world.scope(|scope| scope.$immediate($($argument),*)?.wait())?;
        }
    };
}

/// As `each_form`, for forms with one buffer.
macro_rules! each_in_place {
    ($self:ident, $blocking:ident, $immediate:ident, ($given:expr, $of_given:expr), ($($rest:expr),*), $expected:expr) => {{
        let world = $self.world;
        for is_blocking in [true, false] {
            let mut data = StridedBuffer::new($given, &mut $self.random, $of_given);
            one_form!(world, is_blocking, $blocking, $immediate, (&mut data $(, $rest)*));
            $self.count(data.holds($expected), stringify!($blocking));
        }
    }};
}

impl<'w> StridedOracle<'w> {
    /// For this rank of a communicator; layouts differ from rank to rank.
    pub fn new(world: &'w Communicator, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed << 16 | u64::from(world.rank().0));
        Self { world, random, compared: 0, wrong: 0 }
    }

    /// Runs all collectives. All ranks call this. Returns how many results were compared, and how many were wrong.
    ///
    /// # Errors
    /// That of a collective.
    pub fn run(mut self) -> Result<(u64, u64), CollectiveError> {
        for block in LENGTHS {
            self.check_data_movement(block)?;
            self.check_reductions(block)?;
            self.in_place(block)?;
            self.varying(block)?;
        }
        Ok((self.compared, self.wrong))
    }

    fn count(&mut self, right: bool, what: &str) {
        self.compared += 1;
        if !right {
            self.wrong += 1;
            eprintln!("rank {} of {}: {what} of rows is wrong", self.world.rank(), self.world.size());
        }
    }

    /// This rank, how many there are, a root, and elements of a block for each.
    fn place(&self, block: usize) -> (u32, u32, u32, usize) {
        let (rank, size) = (self.world.rank().0, self.world.size());
        (rank, size, block as u32 % size, block * size as usize)
    }

    fn check_data_movement(&mut self, block: usize) -> Result<(), CollectiveError> {
        let (rank, _, root, whole) = self.place(block);
        let (is_root, root) = (rank == root, Rank(root));
        let own = |i| contribution(rank, i);
        let everyones = |i: usize| contribution((i / block.max(1)) as u32, i % block.max(1));
        let for_me = |i: usize| contribution((i / block.max(1)) as u32, rank as usize * block + i % block.max(1));
        let none = |_: usize| GAP;
        let at_root = if is_root { whole } else { 0 };
        each_form!(
            self,
            gather_into,
            immediate_gather_into,
            persistent_gather_into,
            (block, own),
            (at_root, none),
            (root),
            everyones
        );
        each_form!(
            self,
            scatter_into,
            immediate_scatter_into,
            persistent_scatter_into,
            (at_root, own),
            (block, none),
            (root),
            |i| contribution(root.0, rank as usize * block + i)
        );
        each_form!(
            self,
            all_gather_into,
            immediate_all_gather_into,
            persistent_all_gather_into,
            (block, own),
            (whole, none),
            (),
            everyones
        );
        each_form!(
            self,
            all_to_all_into,
            immediate_all_to_all_into,
            persistent_all_to_all_into,
            (whole, own),
            (whole, none),
            (),
            for_me
        );
        each_in_place!(self, broadcast_into, immediate_broadcast_into, (block, own), (root), |i| contribution(
            root.0, i
        ));
        let mut data = StridedBuffer::new(block, &mut self.random, own);
        self.world.scope(|scope| {
            let mut request = scope.persistent_broadcast_into(&mut data, root)?;
            (0..2).try_for_each(|_| request.start().and_then(|()| request.wait()))
        })?;
        self.count(data.holds(|i| contribution(root.0, i)), "persistent broadcast");
        Ok(())
    }

    fn check_reductions(&mut self, block: usize) -> Result<(), CollectiveError> {
        let (rank, size, root, whole) = self.place(block);
        let (at_root, root) = (if rank == root { block } else { 0 }, Rank(root));
        let (own, none) = (|i| contribution(rank, i), |_: usize| GAP);
        let sum = |ranks: u32, i| (0..ranks).fold(0, |sum: u64, rank| sum.wrapping_add(contribution(rank, i)));
        let composed =
            |ranks: u32, i| (0..ranks).map(|rank| contribution(rank, i)).reduce(|l, r| then(&l, &r)).unwrap_or(GAP);
        let (add, compose) = (SystemOperation::sum(), UserOperation::associative(then));
        each_form!(
            self,
            reduce_into,
            immediate_reduce_into,
            persistent_reduce_into,
            (block, own),
            (at_root, none),
            (add, root),
            |i| sum(size, i)
        );
        each_form!(
            self,
            reduce_into,
            immediate_reduce_into,
            persistent_reduce_into,
            (block, own),
            (at_root, none),
            (compose, root),
            |i| composed(size, i)
        );
        each_form!(
            self,
            all_reduce_into,
            immediate_all_reduce_into,
            persistent_all_reduce_into,
            (block, own),
            (block, none),
            (add),
            |i| sum(size, i)
        );
        each_form!(
            self,
            all_reduce_into,
            immediate_all_reduce_into,
            persistent_all_reduce_into,
            (block, own),
            (block, none),
            (compose),
            |i| composed(size, i)
        );
        each_form!(
            self,
            reduce_scatter_block_into,
            immediate_reduce_scatter_block_into,
            persistent_reduce_scatter_block_into,
            (whole, own),
            (block, none),
            (compose),
            |i| composed(size, rank as usize * block + i)
        );
        each_form!(
            self,
            scan_into,
            immediate_scan_into,
            persistent_scan_into,
            (block, own),
            (block, none),
            (compose),
            |i| composed(rank + 1, i)
        );
        each_form!(
            self,
            exclusive_scan_into,
            immediate_exclusive_scan_into,
            persistent_exclusive_scan_into,
            (block, own),
            (block, |i| i as u64),
            (add),
            |i| if rank == 0 { i as u64 } else { sum(rank, i) }
        );
        Ok(())
    }

    fn in_place(&mut self, block: usize) -> Result<(), CollectiveError> {
        let (rank, size, root, whole) = self.place(block);
        let (is_root, root) = (rank == root, Rank(root));
        let at_root = if is_root { whole } else { block };
        let (own, of) = (|i| contribution(rank, i), |i: usize| (i / block.max(1), i % block.max(1)));
        let composed = |ranks: u32, i| (0..ranks).map(|rank| contribution(rank, i)).reduce(|l, r| then(&l, &r));
        let compose = UserOperation::associative(then);
        // Blocks of other ranks hold filler.
        let mine = |i: usize| if of(i).0 == rank as usize { contribution(rank, of(i).1) } else { 7 };
        each_in_place!(
            self,
            gather_in_place,
            immediate_gather_in_place,
            (at_root, |i| if is_root { mine(i) } else { own(i) }),
            (root),
            |i| if is_root { contribution(of(i).0 as u32, of(i).1) } else { own(i) }
        );
        each_in_place!(self, scatter_in_place, immediate_scatter_in_place, (at_root, own), (root), |i| if is_root {
            own(i)
        } else {
            contribution(root.0, rank as usize * block + i)
        });
        each_in_place!(self, all_gather_in_place, immediate_all_gather_in_place, (whole, mine), (), |i| contribution(
            of(i).0 as u32,
            of(i).1
        ));
        each_in_place!(self, all_to_all_in_place, immediate_all_to_all_in_place, (whole, own), (), |i| contribution(
            of(i).0 as u32,
            rank as usize * block + of(i).1
        ));
        each_in_place!(self, all_reduce_in_place, immediate_all_reduce_in_place, (block, own), (compose), |i| {
            composed(size, i).unwrap_or(GAP)
        });
        each_in_place!(
            self,
            reduce_in_place,
            immediate_reduce_in_place,
            (block, own),
            (compose, root),
            |i| if is_root { composed(size, i).unwrap_or(GAP) } else { own(i) }
        );
        each_in_place!(self, scan_in_place, immediate_scan_in_place, (block, own), (compose), |i| composed(
            rank + 1,
            i
        )
        .unwrap_or(GAP));
        each_in_place!(
            self,
            exclusive_scan_in_place,
            immediate_exclusive_scan_in_place,
            (block, own),
            (compose),
            |i| composed(rank, i).unwrap_or(own(i))
        );
        Ok(())
    }

    /// Every third rank has no block.
    fn varying(&mut self, unit: usize) -> Result<(), CollectiveError> {
        let (world, (rank, size, root, _)) = (self.world, self.place(unit));
        let counts: Vec<usize> = (0..size as usize).map(|of| of % 3 * unit).collect();
        let at: Vec<usize> = (0..size as usize).map(|of| counts[..of].iter().sum()).collect();
        let (mine, whole) = (counts[rank as usize], counts.iter().sum());
        let own = |i| contribution(rank, i);
        let everyones: Vec<u64> =
            (0..size).flat_map(|of| (0..counts[of as usize]).map(move |i| contribution(of, i))).collect();
        for is_blocking in [true, false] {
            let (data, mut all) = (StridedBuffer::new(mine, &mut self.random, own), vec![GAP; whole]);
            let blocks = PartitionMut::new(&mut all, &counts, &at)?;
            one_form!(
                world,
                is_blocking,
                all_gather_varcount_into,
                immediate_all_gather_varcount_into,
                (&data, blocks)
            );
            self.count(all == everyones && data.holds(own), "all_gather_varcount_into");
            let mut part = StridedBuffer::new(mine, &mut self.random, |_| GAP);
            let blocks = Partition::new(&everyones, &counts, &at)?;
            one_form!(
                world,
                is_blocking,
                scatter_varcount_into,
                immediate_scatter_varcount_into,
                (&blocks, &mut part, Rank(root))
            );
            self.count(part.holds(own), "scatter_varcount_into");
            let mut part = StridedBuffer::new(mine, &mut self.random, |_| GAP);
            let greatest = SystemOperation::max();
            one_form!(
                world,
                is_blocking,
                reduce_scatter_varcount_into,
                immediate_reduce_scatter_varcount_into,
                (&blocks, &mut part, greatest)
            );
            self.count(part.holds(own), "reduce_scatter_varcount_into");
        }
        Ok(())
    }
}
