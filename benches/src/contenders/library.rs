//! Other messaging libraries in their best configurations: from package registries, in virtual environments under
//! `target/peers`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use unisono_tests::harness::lab::Lab;

use crate::contenders::unisono_command;

/// Benchmarks of an MPI; compiled by its own `mpicc`.
const PROGRAMS: [(&str, &str); 3] = [
    ("exchange", unisono_bench::programs::EXCHANGE),
    ("collective", unisono_bench::programs::COLLECTIVE),
    ("one_sided", unisono_bench::programs::ONE_SIDED),
];

/// Seconds after which a peer that does not end is given up, and those after which it is killed.
const LIMIT: &str = "60";
const GRACE: &str = "--kill-after=5";

/// Settings that make ranks of MPICH yield to each other.
const THROTTLE: [(&str, &str); 3] = [
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "1"),
    ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"),
];

/// A library and a way to run it.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// As in the tables.
    pub name: &'static str,
    package: Package,
    options: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// Whether it ends in reasonable time with more ranks than processors.
    crowds: bool,
    /// Whether its ranks yield to each other.
    throttled: bool,
}

/// A package, and its launcher's options for one core per rank, for more ranks than cores, and for the hosts of a
/// [`Lab`], whose list follows.
#[derive(Clone, Copy, Debug)]
struct Package {
    name: &'static str,
    version: &'static str,
    bound: &'static [&'static str],
    oversubscribed: &'static [&'static str],
    on_hosts: &'static [&'static str],
}

const MPICH: Library = Library {
    name: "",
    package: Package {
        name: "mpich",
        version: "5.0.2",
        bound: &["-bind-to", "core"],
        oversubscribed: &[],
        on_hosts: &["-launcher", "rsh", "-launcher-exec", Lab::RSH, "-localhost", Lab::OUTSIDE, "-hosts"],
    },
    options: &[],
    environment: &[],
    crowds: true,
    throttled: false,
};

const OPEN_MPI: Package = Package {
    name: "openmpi",
    version: "5.0.11",
    bound: &["--allow-run-as-root", "--bind-to", "core"],
    oversubscribed: &[
        "--allow-run-as-root",
        "--oversubscribe",
        "--bind-to",
        "none",
        "--mca",
        "mpi_yield_when_idle",
        "1",
    ],
    on_hosts: &["--prtemca", "plm_ssh_agent", Lab::RSH, "--host"],
};

/// Open MPI over shared memory: as it is, and with the collectives that are written for that.
pub const OPEN_MPI_SHM: [Library; 2] = [
    Library { name: "Open MPI sm", options: &["--mca", "pml", "ob1", "--mca", "btl", "sm,self"], ..OPEN_MPI_TCP },
    Library {
        name: "Open MPI sm, coll sm",
        options: &[
            "--mca",
            "pml",
            "ob1",
            "--mca",
            "btl",
            "sm,self",
            "--mca",
            "coll",
            "^han",
            "--mca",
            "coll_sm_priority",
            "90",
        ],
        ..OPEN_MPI_TCP
    },
];

/// MPICH over shared memory: as it is, which takes minutes per collective when the ranks outnumber the processors, and
/// with ranks that yield to each other.
pub const MPICH_SHM: [Library; 2] =
    [Library { name: "MPICH", crowds: false, ..MPICH }, Library { name: "MPICH, throttled", throttled: true, ..MPICH }];

/// UCX over shared memory.
pub const UCX_SHM: Library = Library {
    name: "UCX posix",
    environment: &[("MPIR_CVAR_CH4_NETMOD", "ucx"), ("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "posix,cma,self")],
    ..MPICH
};

/// libfabric's reliable datagrams.
pub const RELIABLE_DATAGRAMS: Library = Library {
    name: "libfabric udp;ofi_rxd",
    environment: &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1"), ("FI_PROVIDER", "udp;ofi_rxd")],
    ..MPICH
};

/// libfabric over TCP.
pub const LIBFABRIC_TCP: Library = Library {
    name: "libfabric tcp",
    environment: &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1"), ("FI_PROVIDER", "tcp")],
    ..MPICH
};

/// UCX over TCP.
pub const UCX_TCP: Library = Library {
    name: "UCX tcp",
    environment: &[("MPIR_CVAR_CH4_NETMOD", "ucx"), ("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "tcp,self")],
    ..MPICH
};

/// All of these at more ranks than processors: as they are, and with ranks that yield to each other. The best counts.
pub const NETWORK: [Library; 7] = [
    OPEN_MPI_TCP,
    LIBFABRIC_TCP,
    Library { name: "libfabric tcp, throttled", throttled: true, ..LIBFABRIC_TCP },
    UCX_TCP,
    Library { name: "UCX tcp, throttled", throttled: true, ..UCX_TCP },
    RELIABLE_DATAGRAMS,
    Library { name: "libfabric udp;ofi_rxd, throttled", throttled: true, ..RELIABLE_DATAGRAMS },
];

/// Libraries over several hosts, with shared memory within each. Open MPI composes its collectives over the hosts, or not.
pub const HOSTS: [Library; 4] = [
    Library { name: "Open MPI", options: &["--mca", "pml", "ob1"], ..OPEN_MPI_TCP },
    Library { name: "Open MPI, no han", options: &["--mca", "pml", "ob1", "--mca", "coll", "^han"], ..OPEN_MPI_TCP },
    Library {
        name: "MPICH, libfabric tcp",
        environment: &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp")],
        throttled: true,
        ..MPICH
    },
    Library {
        name: "MPICH, UCX tcp",
        environment: &[("MPIR_CVAR_CH4_NETMOD", "ucx"), ("UCX_TLS", "tcp,self")],
        throttled: true,
        ..MPICH
    },
];

/// Open MPI over TCP.
pub const OPEN_MPI_TCP: Library = Library {
    name: "Open MPI tcp",
    package: OPEN_MPI,
    options: &["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"],
    environment: &[],
    crowds: true,
    throttled: false,
};

impl Library {
    /// Installs it below `place` if missing, and compiles its benchmarks.
    ///
    /// # Errors
    /// A command that fails, such as an installation without a network.
    pub fn prepare(&self, place: &Path) -> io::Result<()> {
        self.install(place)?;
        let home = self.home(place);
        compile_programs(&home, || Command::new(home.join("bin/mpicc")))
    }

    /// Installs it below `place` if missing.
    ///
    /// # Errors
    /// A command that fails, such as an installation without a network.
    pub fn install(&self, place: &Path) -> io::Result<()> {
        let home = self.home(place);
        if home.join("bin/mpicc").exists() {
            return Ok(());
        }
        fs::create_dir_all(place)?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        let package = format!("{}=={}", self.package.name, self.package.version);
        run(Command::new(home.join("bin/pip")).args(["install", "--quiet", &package]))
    }

    /// Whether it supports `ranks` ranks on `processors` processors.
    pub fn takes(&self, ranks: u32, processors: u32) -> bool {
        self.crowds || ranks <= processors
    }

    /// Nanoseconds one way (`latency`) or bytes per second (`bandwidth`) of messages of `bytes` bytes.
    ///
    /// # Errors
    /// It fails, does not end, or prints no number.
    pub fn measure(&self, place: &Path, what: &str, bytes: u32) -> io::Result<f64> {
        self.between_two(place, "exchange", what, bytes)
    }

    /// Nanoseconds of a `get`, `put` or `fetch_and_op` on a window, or bytes per second of puts (`stream`).
    ///
    /// # Errors
    /// It fails, does not end, or prints no number.
    pub fn one_sided(&self, place: &Path, what: &str, bytes: u32) -> io::Result<f64> {
        self.between_two(place, "one_sided", what, bytes)
    }

    fn between_two(&self, place: &Path, program: &str, what: &str, bytes: u32) -> io::Result<f64> {
        let mut command = self.command(place, 2, false, program);
        command.args([what, &bytes.to_string()]);
        unisono_command::read(command, |text| text.parse().ok())
    }

    /// Nanoseconds of a collective (`barrier` or one of `unisono bench collective`) among `ranks` ranks, of each of the
    /// sizes until it fails or is given up; and why that was. `oversubscribed`: there are more ranks than processors.
    pub fn collective(
        &self,
        place: &Path,
        ranks: u32,
        oversubscribed: bool,
        input: Input,
        name: &str,
        sizes: &[u32],
    ) -> (Vec<(u32, f64)>, io::Result<()>) {
        let mut command = self.command(place, ranks, oversubscribed, "collective");
        command.args(input.option());
        collective(command, name, sizes)
    }

    fn command(&self, place: &Path, ranks: u32, oversubscribed: bool, program: &str) -> Command {
        let mut command = self.launcher(place, ranks, oversubscribed);
        command.arg(self.home(place).join(program));
        command
    }

    /// Its launcher, which the program follows, and its environment.
    pub fn launcher(&self, place: &Path, ranks: u32, oversubscribed: bool) -> Command {
        let mut command = Command::new("timeout");
        command.args([GRACE, LIMIT]).arg(self.home(place).join("bin/mpiexec")).args(["-n", &ranks.to_string()]);
        command.args(if oversubscribed { self.package.oversubscribed } else { self.package.bound }).args(self.options);
        command.envs(self.environment.iter().copied()).envs(THROTTLE.into_iter().filter(|_| self.throttled));
        command
    }

    /// The same on ranks of the hosts of a lab, which outnumber the processors: as many on each host.
    pub fn collective_on(
        &self,
        place: &Path,
        lab: &Lab<'_>,
        per_host: u32,
        name: &str,
        sizes: &[u32],
    ) -> (Vec<(u32, f64)>, io::Result<()>) {
        let ranks = per_host * lab.hosts.len() as u32;
        let mut command = lab.command();
        command.args(["timeout", GRACE, LIMIT]).arg(self.home(place).join("bin/mpiexec"));
        command.args(["-n", &ranks.to_string()]).args(self.package.on_hosts).arg(lab.places(per_host));
        command.args(self.package.oversubscribed).args(self.options);
        command.envs(self.environment.iter().copied()).envs(THROTTLE.into_iter().filter(|_| self.throttled));
        command.arg(self.home(place).join("collective"));
        collective(command, name, sizes)
    }

    /// Its folder below `place`.
    pub fn home(&self, place: &Path) -> PathBuf {
        place.join(self.package.name)
    }
}

/// The input of a collective that is measured repeatedly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// Each call has new data, which no other rank has in its cache.
    Rewritten,
    /// All calls have the same data, as in OSU's benchmarks.
    Unchanged,
}

impl Input {
    /// The option of all benchmarks of collectives that chooses it.
    pub const fn option(self) -> Option<&'static str> {
        match self {
            Self::Rewritten => None,
            Self::Unchanged => Some("--unchanged"),
        }
    }
}

/// Compiles the benchmarks of an MPI into a folder.
///
/// # Errors
/// The compiler fails.
pub fn compile_programs(folder: &Path, compiler: impl Fn() -> Command) -> io::Result<()> {
    PROGRAMS.into_iter().try_for_each(|(name, text)| {
        let (source, program) = (folder.join(name).with_extension("c"), folder.join(name));
        fs::write(&source, text)?;
        run(compiler().arg("-O2").arg(source).arg("-o").arg(program))
    })
}

/// Runs the benchmark of collectives: the figures of a command, which `name` and sizes complete.
pub fn collective(mut command: Command, name: &str, sizes: &[u32]) -> (Vec<(u32, f64)>, io::Result<()>) {
    command.arg(name).args(sizes.iter().map(u32::to_string));
    let output = match command.stdin(Stdio::null()).stderr(Stdio::piped()).output() {
        Ok(output) => output,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let figures: Vec<(u32, f64)> = String::from_utf8_lossy(&output.stdout).lines().filter_map(figure).collect();
    let end = if output.status.success() && figures.len() == sizes.len() {
        Ok(())
    } else {
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("{command:?} ended with {}: {}", output.status, errors.trim())))
    };
    (figures, end)
}

/// A line "BYTES NANOSECONDS".
fn figure(line: &str) -> Option<(u32, f64)> {
    let (bytes, time) = line.split_once(' ')?;
    Some((bytes.parse().ok()?, time.parse().ok()?))
}

fn run(command: &mut Command) -> io::Result<()> {
    let status = command.stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?} ended with {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_of_figures_are_read() {
        assert_eq!(figure("4096 1768"), Some((4096, 1768.0)));
        assert_eq!(figure("0 18.5"), Some((0, 18.5)));
        for line in ["", "4096", "4096 ", "barrier 3", "= BAD TERMINATION OF ONE =", "8 12 13"] {
            assert_eq!(figure(line), None, "{line}");
        }
    }
}
