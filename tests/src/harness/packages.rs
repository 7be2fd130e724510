//! Programs that a harness needs and that Debian's packages provide.

use std::io;

/// The command that installs packages without removing others.
pub fn install(packages: &str) -> String {
    format!("apt-get install --no-install-recommends --no-remove {packages}")
}

/// The message for a program or file that cannot be used, with the command that installs it.
pub fn missing_program(program: &str, error: &io::Error, packages: &str) -> String {
    format!("{program}: {error}: {}", install(packages))
}
