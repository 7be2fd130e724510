//! Bar 7: with huge pages reserved, the segment of a job uses them, as `/proc/PID/smaps` of its ranks shows; without,
//! the launcher reports it. `unisono info` reports both cases, as text and as JSON.
//!
//! Sets `vm.nr_hugepages` and restores it; a lock file keeps a second run of this program from doing so meanwhile.
//! Where setting it is not permitted, the program prints `skipped`.

use core::time::Duration;
use std::env;
use std::fs;
use std::io;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use clap::Parser;
use unisono::World;
use unisono_tests::harness::report::{Limit, Report};

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
/// Held while the number of huge pages is not the system's own.
const LOCK: &str = "unisono-huge-pages.lock";
const RANKS: u32 = 2;
const ATTEMPTS: u32 = 50;
/// Name of a segment in `smaps`.
const NAME: &str = "/memfd:unisono";

/// Runs a job with 64 huge pages reserved, and one with none.
#[derive(Parser, Clone, Copy, Debug)]
struct Options {
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// As a rank of the job.
    #[arg(long, hide = true)]
    rank: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.rank {
        return rank();
    }
    let _lock = match lock() {
        Ok(lock) => lock,
        Err(error) => {
            eprintln!("pages: cannot lock {LOCK} in {}: {error}", env::temp_dir().display());
            return ExitCode::FAILURE;
        }
    };
    let mut report = Report::new(7, options.json);
    let before = match fs::read_to_string(RESERVED).and_then(|before| reserve(before.trim()).map(|()| before)) {
        Ok(before) => before,
        Err(error) => {
            println!("skipped: {RESERVED} cannot be set: {error}");
            return ExitCode::SUCCESS;
        }
    };
    for (number, kib, said) in [("64", 2048, "2 MiB pages, reserved"), ("0", 4, "vm.nr_hugepages is 0")] {
        let of = format!("nr_hugepages = {number}");
        let (pages, log) = match reserve(number) {
            Ok(()) => job(),
            Err(error) => {
                println!("{of}: {error}");
                (Vec::new(), String::new())
            }
        };
        let right = pages.iter().filter(|page| **page == kib).count();
        report.figure("ranks_with_expected_pages", &of, right as f64, "ranks", Limit::Least(f64::from(RANKS)));
        let reports = log.lines().filter(|line| line.contains(said)).count();
        report.figure("said_by_the_launcher", &of, reports as f64, "lines", Limit::Least(1.0));
        let facts = info(&["--json"]);
        let bytes = format!("\"page_bytes\":{},", kib << 10);
        let reports = [info(&[]).contains(said), facts.contains(said) && facts.contains(&bytes)];
        let reports = reports.into_iter().filter(|reports| *reports).count();
        report.figure("said_by_info", &of, reports as f64, "forms", Limit::Least(2.0));
    }
    if let Err(error) = reserve(before.trim()) {
        println!("{RESERVED} was {}: {error}", before.trim());
        return ExitCode::FAILURE;
    }
    report.end()
}

/// Waits for any other run that changes the number of huge pages. The lock ends when the file is closed.
fn lock() -> io::Result<fs::File> {
    let file = fs::File::create(env::temp_dir().join(LOCK))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Sets the number of huge pages. The system may need some time to assemble them.
fn reserve(number: &str) -> io::Result<()> {
    let mut got = String::new();
    for _ in 0..ATTEMPTS {
        fs::write(RESERVED, number)?;
        got = fs::read_to_string(RESERVED)?;
        if got.trim() == number {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    Err(io::Error::other(format!("{} instead of {number}", got.trim())))
}

/// KiB per page of the segment on each rank, and the log of the launcher.
fn job() -> (Vec<u64>, String) {
    let own = env::current_exe().expect("this program");
    let mut command = Command::new(own.with_file_name("unisono"));
    command.args(["run", "-n", &RANKS.to_string(), "--device", "shm", "--"]).arg(own).arg("--rank");
    command.env("UNISONO_LOG", "unisono=info").stdin(Stdio::null());
    let output = command.output().expect("unisono is built beside this program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pages = text(&output.stdout).lines().filter_map(|line| line.parse().ok()).collect();
    (pages, text(&output.stderr))
}

/// Output of `unisono info`.
fn info(options: &[&str]) -> String {
    let own = env::current_exe().expect("this program");
    let mut command = Command::new(own.with_file_name("unisono"));
    let output = command.arg("info").args(options).stdin(Stdio::null()).output();
    String::from_utf8_lossy(&output.expect("unisono is built beside this program").stdout).into_owned()
}

fn rank() -> ExitCode {
    let world = World::join().expect("a job");
    let smaps = fs::read_to_string("/proc/self/smaps").expect("of this process");
    let mut own = smaps.lines().skip_while(|line| !line.contains(NAME));
    let kib = own.find_map(|line| line.strip_prefix("KernelPageSize:"));
    println!("{}", kib.unwrap_or("none").trim().trim_end_matches("kB").trim());
    world.finish().expect("all finish");
    ExitCode::SUCCESS
}
