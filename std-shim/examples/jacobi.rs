//! Laplace's equation on a square, by Jacobi's method: every rank has a rectangle of the grid, and exchanges its edges
//! with its neighbours while it computes the interior.
//!
//! ```text
//! cargo build -p unisono --example jacobi
//! unisono run -n 4 -- target/debug/examples/jacobi
//! ```

use core::f64::consts::PI;
use core::ops::Range;

use unisono::prelude::*;

/// Inner points of the grid per side, without the boundary.
const N: usize = 24;
/// The largest change of a point at which the iteration stops.
const AT_REST: f64 = 1e-9;
/// Sweeps between two checks for that.
const SWEEPS: usize = 10;
const SWEEPS_MAX: usize = 20_000;

/// Number of sides of a rectangle: north, west, east, south. Side 3 − s is opposite side s.
const SIDES: usize = 4;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let world = World::join()?;
    let mut part = Part::new(&world)?;
    let mut sweeps = 0;
    loop {
        let mut change = [0.0];
        for _ in 0..SWEEPS {
            change[0] = part.sweep(&world)?;
        }
        sweeps += SWEEPS;
        world.all_reduce_in_place(&mut change, SystemOperation::max())?;
        if change[0] < AT_REST || sweeps >= SWEEPS_MAX {
            break;
        }
    }

    let mut error = [part.error()];
    world.all_reduce_in_place(&mut error, SystemOperation::max())?;
    // A sweep reduces the slowest error by the factor cos(π / (N + 1)): the remaining error is the change divided by 1
    // minus it.
    let bound = AT_REST / (1.0 - (PI / (N + 1) as f64).cos());
    if error[0].is_nan() || error[0] > bound {
        return Err(format!("after {sweeps} sweeps, a point is off by {:e}", error[0]).into());
    }
    if world.rank() == Rank(0) {
        let [rows, columns] = shape(world.size() as usize);
        println!(
            "{N} × {N} points on {rows} × {columns} ranks: at rest after {sweeps} sweeps, off by {:.0e}",
            error[0]
        );
    }
    world.finish()?;
    Ok(())
}

/// The solution of the boundary problem: x² − y², for which the difference scheme is exact.
fn solution(row: usize, column: usize) -> f64 {
    let at = |index: usize| index as f64 / (N + 1) as f64;
    at(column).powi(2) - at(row).powi(2)
}

/// Rows and columns of ranks, as square as possible.
fn shape(size: usize) -> [usize; 2] {
    let rows = (1..=size.isqrt()).rev().find(|rows| size.is_multiple_of(*rows)).unwrap_or(1);
    [rows, size / rows]
}

/// A rank's rectangle of the grid, with the surrounding points: boundary, or the neighbours' edges.
struct Part {
    rows: usize,
    columns: usize,
    /// Row and column of its first surrounding point in the whole grid.
    from: [usize; 2],
    neighbours: [Option<Rank>; SIDES],
    now: Vec<f64>,
    next: Vec<f64>,
    /// Copies of its own edges, to be sent, and the neighbours' edges, as they arrive.
    edges: [Vec<f64>; SIDES],
    halo: [Vec<f64>; SIDES],
}

impl Part {
    fn new(world: &World) -> Result<Self, String> {
        let (rank, size) = (world.rank().0 as usize, world.size() as usize);
        let [down, across] = shape(size);
        if across > N {
            return Err(format!("{size} ranks are too many for {N} × {N} points"));
        }
        let (row, column) = (rank / across, rank % across);
        let share = |of: usize, among: usize| of * N / among..(of + 1) * N / among;
        let (own_rows, own_columns) = (share(row, down), share(column, across));
        let (rows, columns) = (own_rows.len(), own_columns.len());
        let neighbour = |is: bool, rank: usize| is.then_some(Rank(rank as u32));
        let mut part = Self {
            rows,
            columns,
            from: [own_rows.start, own_columns.start],
            neighbours: [
                neighbour(row > 0, rank.wrapping_sub(across)),
                neighbour(column > 0, rank.wrapping_sub(1)),
                neighbour(column + 1 < across, rank + 1),
                neighbour(row + 1 < down, rank + across),
            ],
            now: vec![0.0; (rows + 2) * (columns + 2)],
            next: Vec::new(),
            edges: [columns, rows, rows, columns].map(|length| vec![0.0; length]),
            halo: [columns, rows, rows, columns].map(|length| vec![0.0; length]),
        };
        for (row, column) in (0..rows + 2).flat_map(|row| (0..columns + 2).map(move |column| (row, column))) {
            let [whole_row, whole_column] = [part.from[0] + row, part.from[1] + column];
            if [0, N + 1].contains(&whole_row) || [0, N + 1].contains(&whole_column) {
                let at = part.at(row, column);
                part.now[at] = solution(whole_row, whole_column);
            }
        }
        part.next = part.now.clone();
        Ok(part)
    }

    fn at(&self, row: usize, column: usize) -> usize {
        row * (self.columns + 2) + column
    }

    /// Indices of the points of an edge (`depth` 1), or of the points beyond it (`depth` 0).
    fn side(&self, side: usize, depth: usize) -> impl Iterator<Item = usize> + use<> {
        let (rows, columns) = (self.rows, self.columns);
        let width = columns + 2;
        let (first, step, count) = match side {
            0 => (depth * width + 1, 1, columns),
            1 => (width + depth, width, rows),
            2 => (width + columns + 1 - depth, width, rows),
            _ => ((rows + 1 - depth) * width + 1, 1, columns),
        };
        (0..count).map(move |n| first + n * step)
    }

    /// One sweep over the rectangle. Returns the largest change of a point.
    fn sweep(&mut self, world: &World) -> Result<f64, Error> {
        for side in 0..SIDES {
            let own = self.side(side, 1);
            self.edges[side].iter_mut().zip(own).for_each(|(edge, at)| *edge = self.now[at]);
        }
        // Borrowed by the requests, which end with the scope.
        let (mut halo, edges) = (core::mem::take(&mut self.halo), core::mem::take(&mut self.edges));
        let inside = world.scope(|scope| {
            let mut requests = Vec::with_capacity(2 * SIDES);
            for (side, (halo, edge)) in halo.iter_mut().zip(&edges).enumerate() {
                let Some(neighbour) = self.neighbours[side] else { continue };
                // The message from the north was sent southwards.
                requests.push(scope.immediate_receive_into(halo, neighbour, Tag(SIDES as u32 - 1 - side as u32))?);
                requests.push(scope.immediate_send(edge, neighbour, Tag(side as u32))?);
            }
            scope.flush();
            let inside = self.relax(2..self.rows, 2..self.columns);
            wait_all(&requests)?;
            Ok::<f64, Error>(inside)
        })?;
        (self.halo, self.edges) = (halo, edges);

        for side in (0..SIDES).filter(|side| self.neighbours[*side].is_some()) {
            let beyond = self.side(side, 0);
            beyond.zip(&self.halo[side]).for_each(|(at, value)| self.now[at] = *value);
        }
        let (rows, columns) = (self.rows, self.columns);
        let outside = [
            self.relax(1..2, 1..columns + 1),
            self.relax(rows..rows + 1, 1..columns + 1),
            self.relax(2..rows, 1..2),
            self.relax(2..rows, columns..columns + 1),
        ];
        core::mem::swap(&mut self.now, &mut self.next);
        Ok(outside.into_iter().fold(inside, f64::max))
    }

    /// Replaces points by the mean of their neighbours. Returns the largest change.
    fn relax(&mut self, rows: Range<usize>, columns: Range<usize>) -> f64 {
        let (mut change, width) = (0.0_f64, self.columns + 2);
        for row in rows {
            for at in columns.clone().map(|column| row * width + column) {
                let mean = 0.25 * (self.now[at - width] + self.now[at - 1] + self.now[at + 1] + self.now[at + width]);
                change = change.max((mean - self.now[at]).abs());
                self.next[at] = mean;
            }
        }
        change
    }

    /// The largest distance of a point from the solution.
    fn error(&self) -> f64 {
        let points = (1..=self.rows).flat_map(|row| (1..=self.columns).map(move |column| (row, column)));
        let off = points.map(|(row, column)| {
            (self.now[self.at(row, column)] - solution(self.from[0] + row, self.from[1] + column)).abs()
        });
        off.fold(0.0, f64::max)
    }
}
