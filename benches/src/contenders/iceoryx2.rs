//! iceoryx2, zero-copy messaging between the processes of a host. Built from the registry in a workspace of its own,
//! because its dependencies are not ours.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::contenders::unisono_command;

/// As in the tables.
pub const NAME: &str = "iceoryx2";

const MANIFEST: &str = r#"[package]
name = "iceoryx2-latency"
version = "0.0.0"
edition = "2024"
publish = false

[workspace]

[[bin]]
name = "iceoryx2-latency"
path = "main.rs"

[dependencies]
iceoryx2 = "=0.10.0"
rustix = { version = "1.1.6", features = ["thread"] }
"#;

const PROGRAM: &str = include_str!("programs/iceoryx2.rs");

/// Compiles its benchmark below `place`.
///
/// # Errors
/// It does not compile, for example without a network or libclang.
pub fn prepare(place: &Path) -> io::Result<()> {
    let home = place.join(NAME);
    fs::create_dir_all(&home)?;
    for (file, text) in [("Cargo.toml", MANIFEST), ("main.rs", PROGRAM)] {
        let file = home.join(file);
        // Untouched where it is the same, so that it is compiled once.
        if fs::read_to_string(&file).is_ok_and(|old| old == text) {
            continue;
        }
        fs::write(file, text)?;
    }
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet", "--manifest-path"]).arg(home.join("Cargo.toml"));
    build.arg("--target-dir").arg(home.join("target")).stdin(Stdio::null());
    if build.status()?.success() { Ok(()) } else { Err(io::Error::other(format!("{NAME} does not build"))) }
}

/// Nanoseconds one way of 8 bytes.
///
/// # Errors
/// It fails or does not end.
pub fn latency(place: &Path) -> io::Result<f64> {
    let program: PathBuf = place.join(NAME).join("target/release/iceoryx2-latency");
    unisono_command::read(unisono_command::limited(&program), |text| text.parse().ok())
}
