//! Other messaging libraries, each run at its best: from package registries, in virtual environments under `target/peers`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::ours;

/// What measures an MPI; compiled by its own `mpicc`.
const EXCHANGE: &str = include_str!("peers/exchange.c");

/// Seconds after which a peer that does not end is given up.
const LIMIT: &str = "60";

/// A library and a way to run it.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// As in the tables.
    pub name: &'static str,
    package: &'static str,
    version: &'static str,
    launch: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const MPICH: Peer =
    Peer { name: "", package: "mpich", version: "5.0.2", launch: &["-bind-to", "core"], environment: &[] };

/// libfabric's reliable datagrams.
pub const RELIABLE_DATAGRAMS: Peer = Peer {
    name: "libfabric udp;ofi_rxd",
    environment: &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1"), ("FI_PROVIDER", "udp;ofi_rxd")],
    ..MPICH
};

/// libfabric over TCP.
pub const LIBFABRIC_TCP: Peer = Peer {
    name: "libfabric tcp",
    environment: &[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1"), ("FI_PROVIDER", "tcp")],
    ..MPICH
};

/// UCX over TCP.
pub const UCX_TCP: Peer = Peer {
    name: "UCX tcp",
    environment: &[("MPIR_CVAR_CH4_NETMOD", "ucx"), ("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "tcp,self")],
    ..MPICH
};

/// Open MPI over TCP.
pub const OPEN_MPI_TCP: Peer = Peer {
    name: "Open MPI tcp",
    package: "openmpi",
    version: "5.0.11",
    launch: &["--allow-run-as-root", "--bind-to", "core", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self"],
    environment: &[],
};

impl Peer {
    /// Installs it below `place`, where it is not there yet, and compiles what measures it.
    ///
    /// # Errors
    /// A command that fails, such as an installation without a network.
    pub fn prepare(&self, place: &Path) -> io::Result<()> {
        let home = self.home(place);
        if !home.join("bin/mpicc").exists() {
            fs::create_dir_all(place)?;
            run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
            let package = format!("{}=={}", self.package, self.version);
            run(Command::new(home.join("bin/pip")).args(["install", "--quiet", &package]))?;
        }
        let (source, program) = (home.join("exchange.c"), home.join("exchange"));
        fs::write(&source, EXCHANGE)?;
        run(Command::new(home.join("bin/mpicc")).arg("-O2").arg(source).arg("-o").arg(program))
    }

    /// Nanoseconds one way (`latency`) or bytes per second (`bandwidth`) of messages of `bytes` bytes.
    ///
    /// # Errors
    /// It fails, does not end, or prints no number.
    pub fn measure(&self, place: &Path, what: &str, bytes: u32) -> io::Result<f64> {
        let home = self.home(place);
        let mut command = Command::new("timeout");
        command.arg(LIMIT).arg(home.join("bin/mpiexec")).args(["-n", "2"]).args(self.launch);
        command.arg(home.join("exchange")).args([what, &bytes.to_string()]);
        command.envs(self.environment.iter().copied());
        ours::number(command, |text| text.parse().ok())
    }

    fn home(&self, place: &Path) -> PathBuf {
        place.join(self.package)
    }
}

fn run(command: &mut Command) -> io::Result<()> {
    let status = command.stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?} ended with {status}"))) }
}
