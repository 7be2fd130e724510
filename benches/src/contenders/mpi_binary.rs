//! The benchmarks of an MPI, compiled once for the standard ABI, over unisono and over MPICH; and compiled from the same
//! source over Open MPI, which does not have the ABI.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::contenders::{
    library::{self, Library, MPICH_SHM, OPEN_MPI_SHM},
    unisono_command,
};
use crate::intra_node::OURS;

/// A library under the programs.
#[derive(Clone, Copy, Debug)]
pub enum Contender {
    /// The library for MPI programs over unisono.
    Ours,
    /// MPICH runs the same binaries.
    Mpich(Library),
    /// Open MPI runs its own.
    OpenMpi(Library),
}

impl Contender {
    /// All of them: of the libraries that can be run in several ways, each way.
    pub fn all() -> Vec<Self> {
        let others = MPICH_SHM.into_iter().map(Self::Mpich).chain(OPEN_MPI_SHM.into_iter().map(Self::OpenMpi));
        [Self::Ours].into_iter().chain(others).collect()
    }

    /// As in the tables.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ours => OURS,
            Self::Mpich(library) | Self::OpenMpi(library) => library.name,
        }
    }
}

/// The compiled programs and what runs them.
#[derive(Debug)]
pub struct MpiBinaries {
    unisono: PathBuf,
    place: PathBuf,
    programs: PathBuf,
    processors: u32,
    /// Those that are installed.
    pub contenders: Vec<Contender>,
}

impl MpiBinaries {
    /// Compiles the programs, and installs MPICH and Open MPI below `place` if they are missing. Reports one that cannot
    /// be installed, and leaves it out.
    ///
    /// # Errors
    /// unisono does not build, or the programs do not compile.
    pub fn new(place: &Path, processors: u32) -> io::Result<Self> {
        let (unisono, place) = (unisono_command::binary_with_mpi()?, std::path::absolute(place)?);
        let programs = place.join("mpi-abi");
        fs::create_dir_all(&programs)?;
        let wrapper = concat!(env!("CARGO_MANIFEST_DIR"), "/../std-shim/mpi/unisono-mpicc");
        let built = unisono.parent().unwrap_or(Path::new(".")).to_path_buf();
        library::compile_programs(&programs, || {
            let mut compiler = Command::new(wrapper);
            compiler.env("UNISONO_MPI_LIB", &built);
            compiler
        })?;
        let is_there = |one: &Contender| {
            let end = match one {
                Contender::Ours => Ok(()),
                Contender::Mpich(library) => library.install(&place),
                Contender::OpenMpi(library) => library.prepare(&place),
            };
            end.inspect_err(|error| eprintln!("{} is left out: {error}", one.name())).is_ok()
        };
        let contenders = Contender::all().into_iter().filter(is_there).collect();
        Ok(Self { contenders, unisono, place, programs, processors })
    }

    /// Whether a contender ends in reasonable time on this number of ranks.
    pub fn takes(&self, who: &Contender, ranks: u32) -> bool {
        match who {
            Contender::Ours => true,
            Contender::Mpich(library) | Contender::OpenMpi(library) => library.takes(ranks, self.processors),
        }
    }

    /// A figure of messages between two ranks: `latency` in nanoseconds, `bandwidth` and `same` in bytes per second, `rate`
    /// in messages per second.
    ///
    /// # Errors
    /// The program fails, does not end, or prints no number.
    pub fn exchange(&self, who: &Contender, what: &str, bytes: u32) -> io::Result<f64> {
        self.between_two(who, "exchange", what, bytes)
    }

    /// Nanoseconds of a `get`, `put` or `fetch_and_op` on a window of another rank.
    ///
    /// # Errors
    /// The program fails, does not end, or prints no number.
    pub fn one_sided(&self, who: &Contender, what: &str, bytes: u32) -> io::Result<f64> {
        self.between_two(who, "one_sided", what, bytes)
    }

    fn between_two(&self, who: &Contender, program: &str, what: &str, bytes: u32) -> io::Result<f64> {
        let mut command = self.command(who, 2, program);
        command.args([what, &bytes.to_string()]);
        unisono_command::read(command, |text| text.parse().ok())
    }

    /// Nanoseconds of a collective in several sizes, until it fails; and why that was.
    pub fn collective(
        &self,
        who: &Contender,
        ranks: u32,
        name: &str,
        sizes: &[u32],
    ) -> (Vec<(u32, f64)>, io::Result<()>) {
        library::collective(self.command(who, ranks, "collective"), name, sizes)
    }

    fn command(&self, who: &Contender, ranks: u32, program: &str) -> Command {
        let oversubscribed = ranks > self.processors;
        match who {
            Contender::Ours => {
                let mut command = unisono_command::limited(&self.unisono);
                command.args(["run", "-n", &ranks.to_string(), "--device", "shm", "--mpi"]);
                command.args((!oversubscribed).then_some("--pin")).arg("--").arg(self.programs.join(program));
                command
            }
            Contender::Mpich(library) => {
                let mut command = library.launcher(&self.place, ranks, oversubscribed);
                command.env("LD_LIBRARY_PATH", library.home(&self.place).join("lib")).arg(self.programs.join(program));
                command
            }
            Contender::OpenMpi(library) => {
                let mut command = library.launcher(&self.place, ranks, oversubscribed);
                command.arg(library.home(&self.place).join(program));
                command
            }
        }
    }
}
