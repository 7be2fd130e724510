//! Builds images without an operating system, and finds the emulators that run them.

pub mod frame_relay;
pub mod message_exchange;
pub mod mps2;

use std::path::{Path, PathBuf};
use std::process::Command;

use unisono_launcher::BareMetalRanks;

/// The host's target, named explicitly so that the flags below do not reach build scripts.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const PACKAGE: &str = "unisono-x86";
/// The image is not relocated, and has no runtime. Interrupts have stacks of their own, but what runs may be
/// interrupted anywhere.
const FLAGS: [&str; 10] = [
    "-Dwarnings",
    "-Crelocation-model=static",
    "-Cno-redzone=yes",
    "-Cforce-frame-pointers=yes",
    "-Clink-arg=-nostartfiles",
    "-Clink-arg=-nostdlib",
    "-Clink-arg=-static",
    "-Clink-arg=-no-pie",
    "-Clink-arg=-Wl,--build-id=none",
    "-Clink-arg=-Wl,-z,max-page-size=0x1000",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// The target folder.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Builds the image of an x86_64 node, and finds the emulator for it.
///
/// # Errors
/// It does not build.
pub fn build(ranks: u32) -> Result<BareMetalRanks, String> {
    build_image(ranks, PACKAGE)
}

/// As [`build`], the image of this name.
///
/// # Errors
/// It does not build.
pub fn build_image(ranks: u32, name: &str) -> Result<BareMetalRanks, String> {
    let folder = target().join("image-x86");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--package", PACKAGE, "--target", TARGET]);
    cargo.arg("--manifest-path").arg(root().join("linker/Cargo.toml")).arg("--target-dir").arg(&folder);
    for (name, _) in std::env::vars_os() {
        // Settings of this workspace do not apply to images.
        if name.to_string_lossy().starts_with("CARGO_PROFILE_") {
            cargo.env_remove(name);
        }
    }
    cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}")).env("UNISONO_IMAGE_BUILD", "1");
    // Microcontrollers need small code, this processor fast code.
    cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3");
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("the image does not build:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(BareMetalRanks { ranks, image: folder.join(TARGET).join("release").join(name), emulator: emulator("x86") })
}

/// The emulator that `linker/fetch-qemu` has unpacked, with what it needs to find its parts; else the one that is
/// installed.
pub fn emulator(architecture: &str) -> String {
    let folder = target().join(format!("qemu-{architecture}"));
    let name = if architecture == "x86" { "qemu-system-x86_64" } else { "qemu-system-arm" };
    let program = folder.join("usr/bin").join(name);
    if !program.exists() {
        return name.to_owned();
    }
    let folder = folder.display();
    format!(
        "env QEMU_MODULE_DIR={folder}/usr/lib/x86_64-linux-gnu/qemu {} -L {folder}/usr/share/qemu -L {folder}/usr/share/seabios",
        program.display()
    )
}
