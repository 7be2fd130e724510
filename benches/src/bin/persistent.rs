//! Cost of starting a persistent collective against that of beginning an immediate one: instructions of one rank of
//! two, under callgrind, from the call until its first messages have left. Waiting is not counted.

use core::error::Error;
use core::hint::black_box;
use std::env;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use clap::{Parser, ValueEnum};
use unisono::collective::{CollectiveError, CollectiveRequest, PersistentRequest, SystemOperation};
use unisono::{Scope, World};
use unisono_benches::contenders::unisono_command::binary;
use unisono_tests::harness::report::{Limit, Report};

const CALLS: u32 = 2000;

/// Instructions per start of a persistent collective and per begin of an immediate one.
#[derive(Parser)]
struct Options {
    /// Only performs the work, as a rank.
    #[arg(long, hide = true, requires = "bytes")]
    way: Option<Way>,
    #[arg(long, hide = true)]
    bytes: Option<usize>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Way {
    Anew,
    Again,
}

/// The counted function, selected by its name.
#[inline(never)]
fn begin_the_observed<'scope>(
    scope: &'scope Scope<'scope, '_>,
    data: &'scope [u64],
    into: &'scope mut [u64],
) -> Result<CollectiveRequest<'scope>, CollectiveError> {
    scope.immediate_all_reduce_into(data, into, SystemOperation::sum())
}

/// As above.
#[inline(never)]
fn start_the_observed(request: &mut PersistentRequest<'_, u64>) -> Result<(), CollectiveError> {
    request.start()
}

fn work(way: Way, bytes: usize) -> Result<(), Box<dyn Error>> {
    let world = World::join()?;
    let (mut data, mut into) = (vec![1_u64; bytes / 8], vec![0_u64; bytes / 8]);
    match way {
        Way::Anew => {
            for _ in 0..CALLS {
                world.scope(|scope| begin_the_observed(scope, black_box(&data), &mut into)?.wait())?;
            }
        }
        Way::Again => world.scope(|scope| {
            let mut request = scope.persistent_all_reduce_into(&mut data, &mut into, SystemOperation::sum())?;
            (0..CALLS).try_for_each(|_| {
                start_the_observed(&mut request)?;
                request.wait()
            })
        })?,
    }
    if into.iter().any(|sum| *sum != u64::from(world.size())) {
        return Err("the sum is wrong".into());
    }
    world.finish()?;
    Ok(())
}

/// Instructions per call of one rank.
fn count(unisono: &Path, way: &str, bytes: &str, device: &str) -> Result<f64, Box<dyn Error>> {
    let own = env::current_exe()?;
    let mut job = Command::new(unisono);
    job.args(["run", "-n", "2", "--device", device, "--", "valgrind", "--tool=callgrind"]);
    job.args(["--callgrind-out-file=/dev/null", "--collect-atstart=no", "--toggle-collect=*the_observed*"]);
    let output = job.arg(own).args(["--way", way, "--bytes", bytes]).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let counted: Vec<f64> =
        said.lines().filter_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok()).collect();
    match counted[..] {
        [one, other] if output.status.success() => Ok((one + other) / f64::from(2 * CALLS)),
        _ => Err(format!("unexpected output of the job: {said}").into()),
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    if let (Some(way), Some(bytes)) = (options.way, options.bytes) {
        work(way, bytes)?;
        return Ok(ExitCode::SUCCESS);
    }
    let unisono = binary()?;
    let mut report = Report::new(5, options.json);
    for device in ["shm", "udp"] {
        for bytes in ["8", "1024"] {
            let (anew, again) = (count(&unisono, "anew", bytes, device)?, count(&unisono, "again", bytes, device)?);
            let of = format!("all_reduce of {bytes} B, {device}");
            report.figure("instructions_per_begin", &of, anew, "", Limit::None);
            report.figure("instructions_per_start", &of, again, "", Limit::Most(anew));
        }
    }
    Ok(report.end())
}
