//! Runs `unisono` as a user does, and reads what it measured.

use std::{
    env, io,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The `unisono` binary beside this one, built first where Cargo runs us.
pub fn binary() -> io::Result<PathBuf> {
    if let Some(cargo) = env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", "unisono", "--bin", "unisono"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        if !build.status()?.success() {
            return Err(io::Error::other("unisono does not build"));
        }
    }
    Ok(env::current_exe()?.with_file_name("unisono"))
}

/// Runs a benchmark on two pinned ranks over UDP, `options` given to the launcher, and returns the number under `key`.
pub fn measure(binary: &PathBuf, options: &[&str], benchmark: &[&str], key: &str) -> io::Result<f64> {
    let mut command = Command::new(binary);
    command.args(["run", "-n", "2", "--device", "udp", "--pin"]).args(options).arg("--").arg(binary);
    command.arg("bench").args(benchmark).arg("--json");
    number(command, |text| serde_json::from_str::<serde_json::Value>(text).ok()?.get(key)?.as_f64())
}

/// Runs a command and reads a number from its output.
pub fn number(mut command: Command, read: impl FnOnce(&str) -> Option<f64>) -> io::Result<f64> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    read(text.trim()).filter(|_| output.status.success()).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!("{command:?} ended with {}: {text}{errors}", output.status))
    })
}
