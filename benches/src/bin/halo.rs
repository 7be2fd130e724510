//! Exchanges a halo column of a matrix between two ranks: by a view, and by a copy that the program packs and unpacks.
//!
//!     unisono run -n 2 -- target/release/halo [--bytes 1048576] [--rounds 60]
//!
//! Rank 0 prints a line of JSON per width of the column in elements: the medians of both, and their ratio (the packed
//! copy's time divided by the view's).

use std::time::Instant;

use clap::Parser;
use serde_json::json;
use unisono::collective::{View, ViewMut};
use unisono::{Datatype, Rank, Tag, World};

#[derive(Parser)]
struct Options {
    /// Bytes of the column.
    #[arg(long, default_value_t = 1 << 20)]
    bytes: usize,
    /// Rounds of each kind, which alternate.
    #[arg(long, default_value_t = 60)]
    rounds: usize,
}

/// Elements of a row between two columns.
const GAP: usize = 61;

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let Options { bytes, rounds } = Options::parse();
    let world = World::join()?;
    if world.size() != 2 {
        return Err("halo needs 2 ranks".into());
    }
    let other = Rank(1 - world.rank().0);
    for width in [1, 4, 16, 64, 512] {
        let (rows, stride) = (bytes / 8 / width, width + GAP);
        let column = Datatype::of::<f64>().vector(rows, width, stride as isize)?;
        let own: Vec<f64> = (0..rows * stride).map(|i| (i * 2 + world.rank().0 as usize) as f64).collect();
        let (mut halo, mut by_hand) = (vec![0.0; rows * stride], vec![0.0; rows * stride]);
        let (mut packed, mut arrived) = (vec![0.0; rows * width], vec![0.0; rows * width]);
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            world.barrier()?;
            let begin = Instant::now();
            let (view, mut into) = (View::of(&own, 1, &column)?, ViewMut::of(&mut halo, 1, &column)?);
            world.send_receive_into(&view, other, Tag(0), &mut into, other, Tag(0))?;
            times[0].push(begin.elapsed());
            world.barrier()?;
            let begin = Instant::now();
            for (from, to) in own.chunks(stride).zip(packed.chunks_mut(width)) {
                to.copy_from_slice(&from[..width]);
            }
            world.send_receive_into(&packed, other, Tag(0), &mut arrived, other, Tag(0))?;
            for (from, to) in arrived.chunks(width).zip(by_hand.chunks_mut(stride)) {
                to[..width].copy_from_slice(from);
            }
            times[1].push(begin.elapsed());
        }
        if halo != by_hand {
            return Err("the view and the copy differ".into());
        }
        let [view, copy] = times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2].as_nanos() as u64
        });
        if world.rank() == Rank(0) {
            println!(
                "{}",
                json!({
                    "bench": "halo", "device": world.device_to(other).to_string(), "bytes": bytes, "width": width,
                    "view_ns_p50": view, "packed_ns_p50": copy, "ratio": copy as f64 / view as f64,
                })
            );
        }
    }
    world.finish()?;
    Ok(())
}
