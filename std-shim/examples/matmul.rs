//! Matrix product C = A · B: rows of A are scattered, B is broadcast, rows of C are gathered.
//!
//! ```text
//! cargo build -p unisono --example matmul
//! unisono run -n 4 -- target/debug/examples/matmul
//! ```

use unisono::prelude::*;

/// Rows and columns.
const N: usize = 150;
const ROOT: Rank = Rank(0);

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let world = World::join()?;
    let size = world.size() as usize;
    let is_root = world.rank() == ROOT;

    // Blocks have equal lengths: the last ranks may have rows of zeros below the matrix.
    let rows = N.div_ceil(size);
    let mut a = Vec::new();
    let mut b = vec![0.0; N * N];
    if is_root {
        a = (0..N * N).map(|at| (at / N + at % N) as f64).collect();
        a.resize(rows * size * N, 0.0);
        b = (0..N * N).map(|at| (at / N) as f64 - (at % N) as f64).collect();
    }

    let mut own = vec![0.0; rows * N];
    world.scatter_into(&a, &mut own, ROOT)?;
    world.broadcast_into(&mut b, ROOT)?;

    let mut product = vec![0.0; rows * N];
    multiply(&own, &b, &mut product);

    let mut c = if is_root { vec![0.0; rows * size * N] } else { Vec::new() };
    world.gather_into(&product, &mut c, ROOT)?;

    if is_root {
        check(&c)?;
        println!("{N} × {N} on {size} ranks, {rows} rows each: C[1][2] = {}", c[N + 2]);
    }
    world.finish()?;
    Ok(())
}

/// Multiplies row by row, with B by rows, too: every inner loop runs along memory.
fn multiply(a: &[f64], b: &[f64], c: &mut [f64]) {
    for (a, c) in a.chunks_exact(N).zip(c.chunks_exact_mut(N)) {
        for (a, b) in a.iter().zip(b.chunks_exact(N)) {
            c.iter_mut().zip(b).for_each(|(c, b)| *c += a * b);
        }
    }
}

/// With A = (i + k) and B = (k − j), C = Σ k² + (i − j) Σ k − i j N: whole numbers, exact in doubles.
fn check(c: &[f64]) -> Result<(), String> {
    let (sum, squares) = ((0..N).sum::<usize>() as f64, (0..N).map(|k| k * k).sum::<usize>() as f64);
    for (at, found) in c.iter().take(N * N).enumerate() {
        let (i, j) = ((at / N) as f64, (at % N) as f64);
        let expected = squares + (i - j) * sum - i * j * N as f64;
        if *found != expected {
            return Err(format!("C[{i}][{j}] is {found}, not {expected}"));
        }
    }
    Ok(())
}
