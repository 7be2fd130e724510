//! Images for Arm's MPS2 development board: builds them with Debian's compiler, checks their symbols, and runs them in
//! an emulator.

use core::error::Error;
use core::time::Duration;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use crate::bare_metal::{emulator, target};
use crate::harness::packages::missing_program;

const TARGET: &str = "thumbv7em-none-eabihf";
/// Debian's `rustc-web`: the compiler whose source package `rust-web-src` has libcore for any target.
const COMPILER: &str = "/usr/bin/rustc";
/// The packages of compiler and source.
const COMPILER_PACKAGES: &str = "rustc-web rust-web-src";
/// The symbol that the image's panic handler refers to and nothing defines (linker/mps2/src/start.rs).
const PANIC_MARK: &str = "a_panic_path_is_left_in_the_image";
/// Parts of demangled names that must not occur: panics, formatting, and every form of allocator.
const FORBIDDEN: [&str; 11] = [
    "core::panicking",
    "core::fmt",
    "rust_begin_unwind",
    "alloc::",
    "liballoc",
    "__rust_alloc",
    "__rust_realloc",
    "__rdl_",
    "__rg_",
    "malloc",
    "std::",
];
/// Names that must occur: a stripped image would pass for a clean one.
const EXPECTED: [&str; 2] = ["reset", "main"];

/// Result of a step.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// Paths of the tools.
#[derive(Clone, Debug)]
pub struct Toolchain {
    workspace: PathBuf,
    target: PathBuf,
    linker: PathBuf,
}

impl Toolchain {
    /// Looks for compiler, linker and libcore's source.
    ///
    /// # Errors
    /// One is missing.
    pub fn find() -> Outcome<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the tests have no parent folder")?;
        let source = sysroot(COMPILER)?.join("lib/rustlib/src/rust/library/core/src/lib.rs");
        if !source.exists() {
            let error = std::io::ErrorKind::NotFound.into();
            return Err(missing_program(&source.display().to_string(), &error, COMPILER_PACKAGES).into());
        }
        let linker =
            sysroot("rustc")?.join(format!("lib/rustlib/{}-unknown-linux-gnu/bin/rust-lld", std::env::consts::ARCH));
        if !linker.exists() {
            return Err(format!("{} is missing: it comes with rustup's toolchain", linker.display()).into());
        }
        Ok(Self { workspace: root.join("linker"), target: target(), linker })
    }

    /// Builds the image of this name with more arguments for its compiler. `None` when it does not link because a panic
    /// can be reached.
    ///
    /// # Errors
    /// It does not build.
    pub fn build(&self, name: &str, more: &[&str]) -> Outcome<Option<PathBuf>> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args([
            "rustc",
            "--release",
            "-Zbuild-std=core",
            "-Zbuild-std-features=optimize_for_size",
            "--locked",
            "--target",
            TARGET,
        ]);
        cargo.arg("--manifest-path").arg(self.workspace.join("mps2/Cargo.toml"));
        cargo.arg("--target-dir").arg(self.target.join("image"));
        cargo.args(["--bin", name, "--", "-Dwarnings"]).args(more);
        cargo.env("RUSTC", COMPILER).env("RUSTC_BOOTSTRAP", "1");
        cargo.env("CARGO_TARGET_THUMBV7EM_NONE_EABIHF_LINKER", &self.linker);
        let ambient =
            ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTUP_TOOLCHAIN"];
        for (name, _) in std::env::vars_os() {
            // Settings of this workspace do not apply to images.
            if name.to_str().is_some_and(|name| ambient.contains(&name) || name.starts_with("CARGO_PROFILE_")) {
                cargo.env_remove(name);
            }
        }
        let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(Some(self.target.join("image").join(TARGET).join("release").join(name)))
        } else if said.contains(PANIC_MARK) {
            Ok(None)
        } else {
            Err(format!("the image does not build:\n{said}").into())
        }
    }

    /// Links once more with the mark left undefined, and lists the source lines that call panicking functions.
    pub fn explain_panics(&self, name: &str) -> Box<dyn Error> {
        let lines = || -> Outcome<String> {
            let image = self
                .build(name, &["-Clink-arg=--emit-relocs", "-Clink-arg=--unresolved-symbols=ignore-all"])?
                .ok_or("it does not link")?;
            panic_callers(&image)
        };
        match lines() {
            Ok(lines) => format!("panics can be reached from\n{lines}").into(),
            Err(error) => format!("a panic can be reached; who calls it is not known: {error}").into(),
        }
    }

    /// Starts an image with more arguments for the emulator.
    ///
    /// # Errors
    /// The emulator is missing.
    pub fn start(&self, image: &Path, more: &[String]) -> Outcome<Child> {
        let emulator = emulator("arm");
        let mut parts = emulator.split(' ');
        let mut qemu = Command::new(parts.next().unwrap_or_default());
        qemu.args(parts).args(["-display", "none", "-monitor", "none", "-serial", "none"]).args(more);
        qemu.args(["-semihosting-config", "enable=on,target=native", "-kernel"]).arg(image);
        qemu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        qemu.spawn().map_err(|error| {
            let folder = target().join("qemu-arm");
            format!("{emulator}: {error}; linker/fetch-qemu {} fetches it", folder.display()).into()
        })
    }
}

/// Waits for the end of an image, at most `limit`, and prints its report. Its exit status is its verdict.
///
/// # Errors
/// It does not end, or reports a failure.
pub fn check_run(child: Child, limit: Duration) -> Outcome<()> {
    for line in wait_for_report(child, limit)?.lines() {
        match line.split_once(' ') {
            Some((name, value)) => println!("{name:<16} {value}"),
            None => println!("{line}"),
        }
    }
    Ok(())
}

/// As [`check_run`], but returns the report.
///
/// # Errors
/// As there.
pub fn wait_for_report(mut child: Child, limit: Duration) -> Outcome<String> {
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > limit {
            child.kill()?;
            return Err(format!("the image does not end within {} s", limit.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let Output { status, stdout, stderr } = child.wait_with_output()?;
    let report = String::from_utf8_lossy(&[stderr, stdout].concat()).into_owned();
    match status.code() {
        Some(0) => Ok(report),
        Some(2) => Err(format!("{report}the processor faulted").into()),
        other => Err(format!("{report}the run failed (status {other:?})").into()),
    }
}

/// The folder that a compiler finds its libraries in.
fn sysroot(compiler: &str) -> Outcome<PathBuf> {
    let asked = ["--print", "sysroot"];
    let output = Command::new(compiler)
        .args(asked)
        .output()
        .map_err(|error| missing_program(compiler, &error, COMPILER_PACKAGES))?;
    Ok(String::from_utf8(output.stdout)?.trim().into())
}

/// Output of a tool of binutils.
fn listing(tool: &str, arguments: &[&str], image: &Path) -> Outcome<String> {
    let output = Command::new(tool).args(arguments).arg(image).output();
    let output = output.map_err(|error| missing_program(tool, &error, "binutils"))?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        Err(format!("{tool}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }
}

/// Bytes of a section, by name; 0 of one that is not there.
///
/// # Errors
/// binutils is missing.
pub fn sections(image: &Path) -> Outcome<impl Fn(&str) -> u64> {
    let listing = listing("size", &["-A", "-d"], image)?;
    Ok(move |section: &str| {
        let mut words = listing.lines().map(str::split_whitespace);
        words.find_map(|mut words| (words.next() == Some(section)).then(|| words.next()?.parse().ok())?).unwrap_or(0)
    })
}

/// Prints the bytes of the image's sections, and of what is stored.
///
/// # Errors
/// binutils is missing.
pub fn print_sizes(image: &Path) -> Outcome<()> {
    let bytes = sections(image)?;
    let sections = [".vectors", ".text", ".rodata", ".data"];
    println!(
        "stored bytes     {} ({})",
        sections.map(&bytes).iter().sum::<u64>(),
        sections.map(|s| format!("{s} {}", bytes(s))).join(", ")
    );
    println!(
        "memory bytes     {} (.data, .bss {}, .stack {})",
        [".data", ".bss", ".stack"].map(&bytes).iter().sum::<u64>(),
        bytes(".bss"),
        bytes(".stack")
    );
    Ok(())
}

/// Checks `nm -C`: no forbidden symbol, and the expected ones.
///
/// # Errors
/// A forbidden symbol, or a stripped image.
pub fn check_symbols(image: &Path) -> Outcome<()> {
    let names = listing("nm", &["-C"], image)?;
    let found: Vec<&str> = names.lines().filter(|line| FORBIDDEN.iter().any(|part| line.contains(part))).collect();
    if !found.is_empty() {
        return Err(format!("forbidden symbols:\n{}", found.join("\n")).into());
    }
    for expected in EXPECTED {
        if !names.lines().any(|line| line.ends_with(&format!(" {expected}"))) {
            return Err(format!("the image has no symbol {expected}: has it been stripped?").into());
        }
    }
    println!("symbols          {}, none of {}", names.lines().count(), FORBIDDEN.join(" "));
    Ok(())
}

/// The source line, with everything inlined there, of each call that leads out of our code into a panic of libcore's.
fn panic_callers(image: &Path) -> Outcome<String> {
    let number = |hex: Option<&str>| u64::from_str_radix(hex.unwrap_or_default(), 16).ok();
    let symbols = listing("nm", &["-S", "--defined-only"], image)?;
    let function_at = |address: u64| -> Option<&str> {
        symbols.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            // The lowest bit of a symbol's address marks Thumb code.
            let (start, bytes) = (number(words.next())? & !1, number(words.next())?);
            (start..start + bytes).contains(&address).then(|| words.nth(1))?
        })
    };
    let relocations = listing("readelf", &["-rW"], image)?;
    let calls: Vec<(u64, &str)> = relocations
        .lines()
        .filter_map(|line| Some((number(line.split_whitespace().next())?, line.split_whitespace().nth(4)?)))
        .collect();
    let mut leading: Vec<&str> =
        calls.iter().map(|call| call.1).filter(|callee| callee.contains("9panicking")).collect();
    let mut followed = HashSet::new();
    let mut callers = String::new();
    while let Some(callee) = leading.pop() {
        if !followed.insert(callee) {
            continue;
        }
        for (address, _) in calls.iter().filter(|call| call.1 == callee) {
            match function_at(*address) {
                // Functions of libcore (v0 mangling) only pass the panic on: who calls them?
                Some(function) if function.contains("4core") && !function.contains("unisono") => leading.push(function),
                _ => callers.push_str(&listing("addr2line", &["-fipC", "-a", &format!("{address:#x}"), "-e"], image)?),
            }
        }
    }
    Ok(callers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_missing_is_named_with_its_package() {
        let compiler = sysroot("/nonexistent/rustc").expect_err("there is none").to_string();
        let tool = listing("/nonexistent/size", &[], Path::new("image")).expect_err("there is none").to_string();
        for (error, packages) in [(compiler, COMPILER_PACKAGES), (tool, "binutils")] {
            assert!(error.starts_with("/nonexistent/"), "{error}");
            assert!(
                error.ends_with(&format!("apt-get install --no-install-recommends --no-remove {packages}")),
                "{error}"
            );
        }
    }
}
