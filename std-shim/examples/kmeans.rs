//! k-means clustering: every rank has its share of the points; an allreduce adds up the sums for the next centres.
//!
//! ```text
//! cargo build -p unisono --example kmeans
//! unisono run -n 4 -- target/debug/examples/kmeans
//! ```

use unisono::prelude::*;

const POINTS: usize = 20_000;
const K: usize = 5;
const ROUNDS: usize = 50;
const ROOT: Rank = Rank(0);

type Point = [f64; 2];

/// The centres around which the points are scattered, and which the program is to find.
const CENTRES: [Point; K] = [[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0], [5.0, 20.0]];

/// The sum of a cluster's members: x, y, and their number.
type Sum = [f64; 3];

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let world = World::join()?;
    let (rank, size) = (world.rank().0 as usize, world.size() as usize);
    let points: Vec<Point> = (rank * POINTS / size..(rank + 1) * POINTS / size).map(point).collect();

    // The root chooses some points as initial centres, and broadcasts them.
    let mut centres = [[0.0; 2]; K];
    if world.rank() == ROOT {
        centres = core::array::from_fn(point);
    }
    world.broadcast_into(&mut centres, ROOT)?;

    let mut rounds = 0;
    let members = loop {
        rounds += 1;
        let mut sums: [Sum; K] = [[0.0; 3]; K];
        for point in &points {
            let sum = &mut sums[nearest(&centres, point)];
            *sum = [sum[0] + point[0], sum[1] + point[1], sum[2] + 1.0];
        }
        // Every rank gets the same bits, so that all ranks continue or stop together.
        world.all_reduce_in_place(sums.as_flattened_mut(), SystemOperation::sum())?;

        let before = centres;
        for (centre, [x, y, count]) in centres.iter_mut().zip(sums).filter(|(_, [.., count])| *count > 0.0) {
            *centre = [x / count, y / count];
        }
        if centres == before || rounds == ROUNDS {
            break sums.iter().map(|[.., count]| count).sum::<f64>();
        }
    };

    let off = CENTRES.iter().map(|wanted| distance(wanted, &centres[nearest(&centres, wanted)]));
    if off.fold(0.0, f64::max) > 0.2 * 0.2 || members != POINTS as f64 || rounds == ROUNDS {
        return Err(format!("after {rounds} rounds, the centres of {members} points are {centres:?}").into());
    }
    if world.rank() == ROOT {
        println!("{K} clusters of {POINTS} points on {size} ranks, in {rounds} rounds: {centres:.2?}");
    }
    world.finish()?;
    Ok(())
}

/// Point `i`, the same on every rank: in a square of side 9 around its centre.
fn point(i: usize) -> Point {
    let mut random = fastrand::Rng::with_seed(i as u64);
    CENTRES[i % K].map(|at| at + 9.0 * random.f64() - 4.5)
}

fn nearest(centres: &[Point; K], point: &Point) -> usize {
    let by_distance = |a: &usize, b: &usize| distance(&centres[*a], point).total_cmp(&distance(&centres[*b], point));
    (0..K).min_by(by_distance).unwrap_or(0)
}

/// The squared distance.
fn distance(a: &Point, b: &Point) -> f64 {
    (a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2)
}
