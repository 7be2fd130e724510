//! Builds the bare-metal image, proves that no panic, formatting or allocator is left in it, and runs it in an
//! emulator.
//!
//! `cargo run -p unisono-tests --bin image`. Ends with status 1 when anything is missing or wrong. Requirements:
//! docs/building.md.

use core::time::Duration;
use std::process::ExitCode;
use std::time::Instant;

use unisono_tests::bare_metal::mps2::{Outcome, Toolchain, check_run, check_symbols, print_sizes};

const IMAGE: &str = "loopback";
/// The emulated run takes about a second; a hung one is ended.
const RUN_LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    match prove() {
        Ok(()) => {
            println!("verdict          passed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("verdict          FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn prove() -> Outcome<()> {
    let bench = Toolchain::find()?;
    let started = Instant::now();
    if bench.build(IMAGE, &["--cfg", "mutant=\"panic\""])?.is_some() {
        return Err("an image with a planted panic links: the check is blind".into());
    }
    println!("control          an image with a planted panic does not link ({:.1} s)", started.elapsed().as_secs_f64());
    let started = Instant::now();
    let image = bench.build(IMAGE, &[])?.ok_or_else(|| bench.explain_panics(IMAGE))?;
    println!("image            {} ({:.1} s)", image.display(), started.elapsed().as_secs_f64());
    print_sizes(&image)?;
    check_symbols(&image)?;
    let started = Instant::now();
    // One instruction takes 2⁵ ns of virtual time, about the board's 25 MHz, and sleeping takes no real time: every run
    // is the same run.
    let child = bench.start(&image, &["-M", "mps2-an386", "-icount", "shift=5,sleep=off"].map(str::to_owned))?;
    check_run(child, RUN_LIMIT)?;
    println!("emulated         {:.2} s", started.elapsed().as_secs_f64());
    Ok(())
}
