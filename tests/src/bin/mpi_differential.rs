//! Random MPI programs over the library of unisono, and over another implementation of the standard ABI: one binary
//! runs over both, and what each rank got must equal a serial execution. A finding is shrunk, and prints the command that
//! repeats it and the folder with its instructions. Findings over the other library alone are counted as its own.

use core::time::Duration;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use clap::Parser;
use unisono_tests::differential::mpi::{FAULTS, INTERPRETER, MpiProgram};
use unisono_tests::harness::report::{Limit, Report};

/// Time limit of a run, and of its end afterwards.
const LIMIT: [&str; 2] = ["--kill-after=5", "90"];

/// Programs among which a planted fault must be found.
const PROGRAMS_PER_FAULT: u64 = 40;

/// Runs while a finding is shrunk, at most.
const ATTEMPTS: usize = 80;

/// The ways to run over unisono.
const MEANS: [&str; 5] = [
    "--device auto",
    "--device udp",
    "--nodes 2",
    "--device auto --check",
    "--device udp --loss 2% --reorder 3% --dup 2%",
];

/// The interpreters, and what they are compiled with.
const INTERPRETERS: [(&str, &str); 2] = [("interpreter", "-ULARGE"), ("interpreter-large", "-DLARGE")];

/// Makes ranks of MPICH, more than there are processors, yield to each other.
const YIELDING: [(&str, &str); 3] = [
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "1"),
    ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"),
];

/// Compares random MPI programs with their serial execution.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Programs to run.
    #[arg(long, default_value_t = 20)]
    runs: u64,
    /// Run programs for this long instead.
    #[arg(long = "for", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// Seed of the first program; each further one takes the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Steps of a program.
    #[arg(long, default_value_t = 40)]
    steps: usize,
    /// Only over this device.
    #[arg(long)]
    device: Option<String>,
    /// The `mpiexec` of another implementation of the ABI, whose library is in `../lib`.
    #[arg(long, value_name = "MPIEXEC")]
    against: Option<PathBuf>,
    /// Plant each fault in turn, and check that it is found.
    #[arg(long)]
    faults: bool,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// A way to run programs.
#[derive(Clone, Debug)]
enum Library {
    /// `unisono run` with these options.
    Unisono(String),
    /// Another `mpiexec`.
    Other(PathBuf),
}

fn main() -> io::Result<ExitCode> {
    let options = Options::parse();
    let own = std::env::current_exe()?;
    let built = own.parent().ok_or_else(|| io::Error::other("a program lies in a folder"))?.to_path_buf();
    let work = built.join("mpi-differential").join(std::process::id().to_string());
    fs::create_dir_all(&work)?;
    let bench = Bench { built, work: work.clone(), options };
    let end = if bench.options.faults { bench.faults() } else { bench.compare() };
    // Folders of findings stay.
    INTERPRETERS.iter().for_each(|(name, _)| drop(fs::remove_file(work.join(name))));
    let _ = fs::remove_dir(work);
    end
}

struct Bench {
    /// The folder of `unisono` and its library.
    built: PathBuf,
    work: PathBuf,
    options: Options,
}

impl Bench {
    fn compare(&self) -> io::Result<ExitCode> {
        let (options, began) = (&self.options, Instant::now());
        self.compile(0)?;
        let mut report = Report::new(6, options.json);
        let (mut programs, mut compared, mut findings, mut others) = (0_u64, 0_u64, 0_u64, 0_u64);
        let goes_on = |programs: u64| match options.duration {
            Some(duration) => began.elapsed() < duration,
            None => programs < options.runs,
        };
        while goes_on(programs) {
            let seed = options.seed + programs;
            let program = self.program(seed);
            let ours = self.means(seed);
            let other = options.against.clone().filter(|_| Self::is_portable(seed)).map(Library::Other);
            for library in [Some(ours), other].into_iter().flatten() {
                let folder = self.work.join(seed.to_string());
                match self.run(&library, &self.interpreter(seed), &program, &folder) {
                    Ok(results) => {
                        compared += results;
                        fs::remove_dir_all(folder)?;
                    }
                    Err(reason) => {
                        *(if matches!(library, Library::Unisono(_)) { &mut findings } else { &mut others }) += 1;
                        self.explain(&library, seed, program.clone(), &reason)?;
                    }
                }
            }
            programs += 1;
        }
        report.figure("programs", "all", programs as f64, "programs", Limit::Least(1.0));
        report.figure("compared", "all", compared as f64, "results", Limit::Least(50.0 * programs as f64));
        report.figure("findings", "unisono", findings as f64, "programs", Limit::Most(0.0));
        report.figure("findings", "other library", others as f64, "programs", Limit::None);
        report.figure("time", "all", began.elapsed().as_secs_f64(), "s", Limit::None);
        Ok(report.end())
    }

    /// Plants each fault in the interpreter, and runs programs until one shows it.
    fn faults(&self) -> io::Result<ExitCode> {
        let mut report = Report::new(6, self.options.json);
        for fault in 1..=FAULTS {
            self.compile(fault)?;
            let found = (0..PROGRAMS_PER_FAULT).find_map(|number| {
                let seed = self.options.seed + number;
                let folder = self.work.join(seed.to_string());
                let library = Library::Unisono(MEANS[0].to_owned());
                let run = self.run(&library, &self.interpreter(seed), &self.program(seed), &folder);
                let _ = fs::remove_dir_all(folder);
                Some((number, run.err()?))
            });
            let after = found.as_ref().map_or(f64::NAN, |(number, _)| *number as f64 + 1.0);
            let limit = Limit::Most(PROGRAMS_PER_FAULT as f64);
            report.figure("found_after", &format!("fault {fault}"), after, "programs", limit);
            if let Some((_, reason)) = found {
                eprintln!("fault {fault}: {reason}");
            }
        }
        Ok(report.end())
    }

    fn program(&self, seed: u64) -> MpiProgram {
        // Few ranks for other libraries, which spin: that takes long when processors are fewer.
        let is_portable = Self::is_portable(seed);
        let ranks = 2 + fastrand::Rng::with_seed(seed).u32(0..if is_portable { 4 } else { 8 });
        MpiProgram::draw(seed, ranks, self.options.steps, is_portable)
    }

    /// The interpreter of a seed: with ordinary or with large counts.
    fn interpreter(&self, seed: u64) -> PathBuf {
        self.work.join(INTERPRETERS[(seed / 2 % 2) as usize].0)
    }

    /// Every second program is one that other libraries run, too.
    const fn is_portable(seed: u64) -> bool {
        seed.is_multiple_of(2)
    }

    fn means(&self, seed: u64) -> Library {
        Library::Unisono(match &self.options.device {
            Some(device) => format!("--device {device}"),
            None => MEANS[(seed % MEANS.len() as u64) as usize].to_owned(),
        })
    }

    /// Compiles the interpreters with the header of unisono.
    fn compile(&self, fault: usize) -> io::Result<()> {
        let wrapper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../std-shim/mpi/unisono-mpicc");
        for (name, counts) in INTERPRETERS {
            let mut command = Command::new(&wrapper);
            command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", counts, &format!("-DFAULT={fault}")]);
            command.args([INTERPRETER, "-o"]).arg(self.work.join(name)).env("UNISONO_MPI_LIB", &self.built);
            if !command.status()?.success() {
                return Err(io::Error::other("the interpreter does not compile"));
            }
        }
        Ok(())
    }

    /// Runs a program. Returns the number of compared results.
    fn run(&self, library: &Library, interpreter: &Path, program: &MpiProgram, folder: &Path) -> Result<u64, String> {
        let failed = |error: io::Error| error.to_string();
        let written = program.write();
        // There may be results of another run.
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).map_err(failed)?;
        written.save(folder).map_err(failed)?;
        let mut command = Command::new("timeout");
        command.args(LIMIT);
        let ranks = program.ranks().to_string();
        match library {
            Library::Unisono(options) => {
                command.arg(self.built.join("unisono")).args(["run", "-n", &ranks, "--mpi", "--watchdog", "30s"]);
                command.args(options.split(' ')).arg("--");
            }
            Library::Other(mpiexec) => {
                let place = mpiexec.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
                command.arg(mpiexec).args(["-n", &ranks]).env("LD_LIBRARY_PATH", place.join("lib")).envs(YIELDING);
            }
        }
        let errors = folder.join("errors");
        let output = File::create(&errors).map_err(failed)?;
        command.stdin(Stdio::null()).stdout(output.try_clone().map_err(failed)?).stderr(output);
        let ended = command.arg(interpreter).arg(folder).status().map_err(failed)?;
        let compared = written.compare(folder);
        if ended.success() {
            return compared;
        }
        let text = fs::read_to_string(&errors).unwrap_or_default();
        let text: Vec<&str> = text.lines().take(6).collect();
        let differs = compared.err().map_or(String::new(), |reason| format!("{reason}; "));
        Err(format!("{differs}{ended}: {}", text.join(" / ")))
    }

    /// Shrinks a program that fails, and prints what is left.
    fn explain(&self, library: &Library, seed: u64, program: MpiProgram, reason: &str) -> io::Result<()> {
        let name = match library {
            Library::Unisono(options) => options.clone(),
            Library::Other(mpiexec) => mpiexec.display().to_string(),
        };
        eprintln!("{name}, {} ranks, seed {seed}: {reason}", program.ranks());
        let Options { steps, .. } = self.options;
        eprintln!("again: mpi_differential --seed {seed} --runs 1 --steps {steps}");
        let (mut least, mut why, mut attempts) = (program, reason.to_owned(), 0);
        let mut length = least.len() / 2;
        let (trial, interpreter) = (self.work.join("trial"), self.interpreter(seed));
        while length > 0 && attempts < ATTEMPTS {
            let mut at = 0;
            while at < least.len() && attempts < ATTEMPTS {
                let less = least.without(at..(at + length).min(least.len()));
                match less.map(|less| (self.run(library, &interpreter, &less, &trial), less)) {
                    Some((Err(reason), less)) => (least, why) = (less, reason),
                    Some((Ok(_), _)) | None => at += length,
                }
                attempts += 1;
            }
            length /= 2;
        }
        let _ = fs::remove_dir_all(trial);
        let folder = self.work.join(seed.to_string());
        // The instructions of what is left, and its results, if it still fails.
        let still = self.run(library, &interpreter, &least, &folder).err();
        eprintln!("{} steps are left, in {}: {}", least.len(), folder.display(), still.unwrap_or(why));
        Ok(())
    }
}
