//! Other libraries that a sweep measures, too: an MPI whose compiler and launcher are installed.

use core::error::Error;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::{Point, is_oversubscribed};
use crate::programs::{COLLECTIVE, EXCHANGE};

/// Seconds after which a job that does not end is given up, and those after which it is killed.
const LIMIT: [&str; 2] = ["--kill-after=5", "90"];
/// Settings that make ranks of MPICH yield to each other.
const THROTTLE: [(&str, &str); 3] = [
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "1"),
    ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"),
];
/// Settings that keep messages of MPICH out of shared memory.
const REMOTE: [(&str, &str); 3] = [("MPIR_CVAR_NOLOCAL", "1"), ("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp")];

/// An MPI library, and the compiled programs that measure it.
pub(super) struct Mpi {
    pub(super) name: &'static str,
    launcher: PathBuf,
    programs: TempDir,
}

impl Mpi {
    /// Those in these folders; for the empty path those on the `PATH`.
    ///
    /// # Errors
    /// A folder has none, or a program does not compile.
    pub(super) fn find(folders: &[PathBuf]) -> Result<Vec<Self>, Box<dyn Error>> {
        let mut found = Vec::new();
        for folder in folders {
            let places = if folder.as_os_str().is_empty() { on_the_path() } else { in_folder(&folder.join("bin")) };
            if places.is_empty() {
                return Err(format!("--against: no mpicc and mpiexec in {}", shown(folder)).into());
            }
            for [compiler, launcher] in places {
                found.push(Self::new(&compiler, launcher)?);
            }
        }
        Ok(found)
    }

    fn new(compiler: &Path, launcher: PathBuf) -> Result<Self, Box<dyn Error>> {
        let output = Command::new(&launcher).arg("--version").stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let name = if said.contains("Open MPI") { "Open MPI" } else { "MPICH" };
        let programs = tempfile::tempdir()?;
        for (program, text) in [("exchange", EXCHANGE), ("collective", COLLECTIVE)] {
            let source = programs.path().join(program).with_extension("c");
            fs::write(&source, text)?;
            let mut compile = Command::new(compiler);
            let output = compile.arg("-O2").arg(&source).arg("-o").arg(programs.path().join(program)).output()?;
            if !output.status.success() {
                let errors = String::from_utf8_lossy(&output.stderr);
                return Err(format!("{}: {errors}", compiler.display()).into());
            }
        }
        Ok(Self { name, launcher, programs })
    }

    /// Measures a point in a job of its own. `remote`: ranks share no memory.
    pub(super) fn measure(&self, point: &Point, remote: bool) -> Result<f64, Box<dyn Error>> {
        let mut job = Command::new("timeout");
        job.args(LIMIT).arg(&self.launcher).args(["-n", &point.ranks.to_string()]);
        let is_oversubscribed = is_oversubscribed(point.ranks);
        if self.name == "Open MPI" {
            job.arg("--allow-run-as-root");
            if is_oversubscribed {
                job.args(["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]);
            } else {
                job.args(["--bind-to", "core"]);
            }
            if remote {
                job.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
            }
        } else {
            if !is_oversubscribed {
                job.args(["-bind-to", "core"]);
            }
            job.envs(THROTTLE.into_iter().filter(|_| is_oversubscribed));
            job.envs(REMOTE.into_iter().filter(|_| remote));
        }
        let is_message = matches!(point.name, "latency" | "bandwidth" | "rate");
        job.arg(self.programs.path().join(if is_message { "exchange" } else { "collective" }));
        let output = job.args([point.name, &point.bytes.to_string()]).stdin(Stdio::null()).output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let value = printed.lines().filter_map(|line| line.split(' ').next_back()?.parse::<f64>().ok()).next_back();
        let failed = || {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!("{} {} of {} bytes: {}: {errors}", self.name, point.name, point.bytes, output.status)
        };
        let (_, factor, _) = Point::unit(point.name);
        value.filter(|_| output.status.success()).map(|value| value * factor).ok_or_else(|| failed().into())
    }
}

/// The compilers and launchers of a folder: Debian's names of several libraries, or the only ones.
fn in_folder(folder: &Path) -> Vec<[PathBuf; 2]> {
    let pair = |suffix: &str| ["mpicc", "mpiexec"].map(|name| folder.join(format!("{name}{suffix}")));
    let is_there = |pair: &[PathBuf; 2]| pair.iter().all(|file| file.exists());
    let named: Vec<_> = [".openmpi", ".mpich"].into_iter().map(pair).filter(is_there).collect();
    if named.is_empty() { [pair("")].into_iter().filter(is_there).collect() } else { named }
}

fn on_the_path() -> Vec<[PathBuf; 2]> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| in_folder(&folder)).find(|found| !found.is_empty()).unwrap_or_default()
}

fn shown(folder: &Path) -> String {
    if folder.as_os_str().is_empty() { "the folders of PATH".to_owned() } else { folder.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_of_a_folder_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let touch = |name: &str| fs::write(folder.path().join(name), "").expect("written");
        assert!(in_folder(folder.path()).is_empty());
        touch("mpicc");
        assert!(in_folder(folder.path()).is_empty(), "without a launcher");
        touch("mpiexec");
        assert_eq!(in_folder(folder.path()).len(), 1);
        ["mpicc.mpich", "mpiexec.mpich", "mpicc.openmpi", "mpiexec.openmpi"].into_iter().for_each(touch);
        assert_eq!(in_folder(folder.path()).len(), 2);
        assert!(Mpi::find(&[folder.path().join("nowhere")]).is_err());
    }
}
