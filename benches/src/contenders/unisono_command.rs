//! Runs benchmarks of the `unisono` command as a user does, and parses their figures.

use std::{
    env,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use unisono_tests::harness::lab::Lab;

/// Seconds after which a program that does not end is asked to, and those after which it is killed.
const LIMIT: [&str; 2] = ["--kill-after=5", "60"];

/// The `unisono` binary beside this one, built first where Cargo runs us.
pub fn binary() -> io::Result<PathBuf> {
    build(&["--package", "unisono-launcher", "--bin", "unisono"])?;
    Ok(env::current_exe()?.with_file_name("unisono"))
}

/// The same, with the library for MPI programs beside it.
pub fn binary_with_mpi() -> io::Result<PathBuf> {
    build(&["--package", "unisono-mpi"])?;
    binary()
}

/// Builds something beside this binary where Cargo runs us.
fn build(what: &[&str]) -> io::Result<()> {
    let Some(cargo) = env::var_os("CARGO") else { return Ok(()) };
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet"]).args(what);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    if build.status()?.success() { Ok(()) } else { Err(io::Error::other("unisono does not build")) }
}

/// Runs a benchmark on two pinned ranks over UDP, `options` given to the launcher, and returns the number under `key`.
pub fn measure(binary: &Path, options: &[&str], benchmark: &[&str], key: &str) -> io::Result<f64> {
    measure_all(binary, options, benchmark, [key]).map(|[figure]| figure)
}

/// As [`measure`], the numbers under several keys, all of one run.
pub fn measure_all<const N: usize>(
    binary: &Path,
    options: &[&str],
    benchmark: &[&str],
    keys: [&str; N],
) -> io::Result<[f64; N]> {
    let mut launcher = Command::new(binary);
    launcher.args(["run", "-n", "2", "--device", "udp", "--pin"]).args(options);
    job(launcher, binary, benchmark, "udp", keys)
}

/// Runs a benchmark on ranks of one host over shared memory, as `measure` does. Each has processors of its own unless
/// they are oversubscribed.
pub fn within_node(binary: &Path, ranks: u32, oversubscribed: bool, benchmark: &[&str], key: &str) -> io::Result<f64> {
    among(binary, "shm", ranks, oversubscribed, benchmark, key)
}

/// As [`within_node`], `options` given to the launcher.
pub fn on_node(binary: &Path, ranks: u32, options: &[&str], benchmark: &[&str], key: &str) -> io::Result<f64> {
    let mut launcher = limited(binary.as_os_str());
    launcher.args(["run", "-n", &ranks.to_string(), "--device", "shm"]).args(options);
    job(launcher, binary, benchmark, "shm", [key]).map(|[figure]| figure)
}

/// As [`within_node`], on the ranks of several simulated nodes, between which messages are datagrams, with these variables.
pub fn on_simulated_nodes(
    binary: &Path,
    [nodes, per_node]: [u32; 2],
    hierarchy: &str,
    variables: &[(&str, &str)],
    benchmark: &[&str],
    key: &str,
) -> io::Result<f64> {
    let (ranks, nodes) = ((nodes * per_node).to_string(), nodes.to_string());
    let mut launcher = limited(binary.as_os_str());
    launcher.args(["run", "-n", &ranks, "--nodes", &nodes, "--hierarchy", hierarchy]).envs(variables.iter().copied());
    job(launcher, binary, benchmark, "mixed", [key]).map(|[figure]| figure)
}

/// As [`within_node`], over any device.
pub fn among(
    binary: &Path,
    device: &str,
    ranks: u32,
    oversubscribed: bool,
    benchmark: &[&str],
    key: &str,
) -> io::Result<f64> {
    let mut launcher = limited(binary.as_os_str());
    launcher.args(["run", "-n", &ranks.to_string(), "--device", device]);
    if !oversubscribed {
        launcher.arg("--pin");
    }
    job(launcher, binary, benchmark, device, [key]).map(|[figure]| figure)
}

/// As [`within_node`], on ranks of the hosts of a lab, as many on each, `options` given to the launcher. A rank uses shared
/// memory within its host, and UDP.
pub fn on_hosts(
    binary: &Path,
    lab: &Lab<'_>,
    per_host: u32,
    options: &[String],
    benchmark: &[&str],
    key: &str,
) -> io::Result<f64> {
    let mut launcher = lab.command();
    launcher.arg("timeout").args(LIMIT).arg(binary).args(["run", "--rsh", Lab::RSH, "--hosts", &lab.places(per_host)]);
    // The system takes the cables for faster ones.
    let megabits = lab.rates.iter().sum::<f64>() / 1e6;
    launcher.args(["--device", "auto", "--link-speed", &format!("{megabits:.0}M")]).args(options);
    job(launcher, binary, benchmark, if per_host > 1 { "mixed" } else { "udp" }, [key]).map(|[figure]| figure)
}

fn job<const N: usize>(
    mut launcher: Command,
    binary: &Path,
    benchmark: &[&str],
    device: &str,
    keys: [&str; N],
) -> io::Result<[f64; N]> {
    launcher.arg("--").arg(binary).arg("bench").args(benchmark).arg("--json");
    read(launcher, |text| figures(text, device, keys))
}

/// The numbers under `keys` of the line measured over `device`.
fn figures<const N: usize>(text: &str, device: &str, keys: [&str; N]) -> Option<[f64; N]> {
    let object: serde_json::Value = serde_json::from_str(text).ok()?;
    let numbers: Vec<f64> = keys.iter().map(|key| object.get(key)?.as_f64()).collect::<Option<_>>()?;
    numbers.try_into().ok().filter(|_| object["device"] == device)
}

/// A command that is ended when it takes too long.
pub fn limited(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(LIMIT).arg(program);
    command
}

/// Runs a command and parses its output.
pub fn read<T>(mut command: Command, read: impl FnOnce(&str) -> Option<T>) -> io::Result<T> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    read(text.trim()).filter(|_| output.status.success()).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!("{command:?} ended with {}: {text}{errors}", output.status))
    })
}

#[cfg(test)]
mod tests {
    use super::figures;

    #[test]
    fn a_figure_of_another_device_is_none() {
        let text = r#"{"bench":"barrier","device":"shm","ranks":2,"bytes":0,"time_ns":140}"#;
        assert_eq!(figures(text, "shm", ["time_ns"]), Some([140.0]));
        assert_eq!(figures(text, "shm", ["time_ns", "ranks"]), Some([140.0, 2.0]));
        assert_eq!(figures(text, "udp", ["time_ns"]), None);
        assert_eq!(figures(text, "shm", ["time_ns", "one_way_ns_p50"]), None);
        assert_eq!(figures("unisono: no such device", "shm", ["time_ns"]), None);
    }
}
