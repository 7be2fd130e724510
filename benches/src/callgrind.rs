//! Counts executed instructions with valgrind.

use std::env;
use std::io;
use std::process::Command;

/// Instructions that this program executes when it is run with `arguments` under `valgrind --tool=callgrind`.
///
/// # Errors
/// There is no valgrind, or it failed.
pub fn instructions(arguments: &[&str]) -> io::Result<u64> {
    count(&[], arguments)
}

/// Instructions executed in functions whose names match `pattern`, and in their callees.
///
/// # Errors
/// As [`instructions`].
pub fn instructions_in(pattern: &str, arguments: &[&str]) -> io::Result<u64> {
    count(&["--collect-atstart=no", &format!("--toggle-collect={pattern}")], arguments)
}

fn count(options: &[&str], arguments: &[&str]) -> io::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(options)
        .arg(env::current_exe()?)
        .args(arguments)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected.filter(|_| output.status.success()).ok_or_else(|| io::Error::other(format!("valgrind failed: {said}")))
}
