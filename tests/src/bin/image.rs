//! Builds the bare-metal image, proves that no panic, formatting or allocator is left in it, and runs it in an emulator.
//!
//! `cargo run -p unisono-tests --bin image`. Ends with status 1 when anything is missing or wrong. What has to be
//! installed: docs/building.md.

use core::error::Error;
use core::time::Duration;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;

const TARGET: &str = "thumbv7em-none-eabihf";
const PACKAGE: &str = "unisono-mps2";
/// Debian's `rustc-web`: the compiler whose source package `rust-web-src` has libcore for any target.
const COMPILER: &str = "/usr/bin/rustc";
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
/// The emulated run takes about a second; a hung one is ended.
const RUN_LIMIT: Duration = Duration::from_secs(60);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match prove() {
        Ok(()) => {
            println!("verdict          passed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("verdict          FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn prove() -> Outcome<()> {
    let bench = Bench::find()?;
    let started = Instant::now();
    if bench.build(&["--cfg", "mutant=\"panic\""])?.is_some() {
        return Err("an image with a planted panic links: the check is blind".into());
    }
    println!("control          an image with a planted panic does not link ({:.1} s)", started.elapsed().as_secs_f64());
    let started = Instant::now();
    let image = bench.build(&[])?.ok_or_else(|| bench.explain_panics())?;
    println!("image            {} ({TARGET}, {:.1} s)", image.display(), started.elapsed().as_secs_f64());
    print_sizes(&image)?;
    check_symbols(&image)?;
    bench.run(&image)
}

/// Where everything lies.
struct Bench {
    workspace: PathBuf,
    target: PathBuf,
    linker: PathBuf,
}

impl Bench {
    fn find() -> Outcome<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the tests have no parent folder")?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let source = sysroot(COMPILER)?.join("lib/rustlib/src/rust/library/core/src/lib.rs");
        if !source.exists() {
            return Err(format!("{} is missing: apt-get install rustc-web rust-web-src", source.display()).into());
        }
        let linker =
            sysroot("rustc")?.join(format!("lib/rustlib/{}-unknown-linux-gnu/bin/rust-lld", std::env::consts::ARCH));
        if !linker.exists() {
            return Err(format!("{} is missing: it comes with rustup's toolchain", linker.display()).into());
        }
        Ok(Self { workspace: root.join("linker"), target, linker })
    }

    /// Builds the image with more arguments for its compiler. `None` when it does not link because a panic can be reached.
    fn build(&self, more: &[&str]) -> Outcome<Option<PathBuf>> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["rustc", "--release", "-Zbuild-std=core", "--locked", "--target", TARGET]);
        cargo.arg("--manifest-path").arg(self.workspace.join("mps2/Cargo.toml"));
        cargo.arg("--target-dir").arg(self.target.join("image"));
        cargo.args(["--", "-Dwarnings"]).args(more);
        cargo.env("RUSTC", COMPILER).env("RUSTC_BOOTSTRAP", "1");
        cargo.env("CARGO_TARGET_THUMBV7EM_NONE_EABIHF_LINKER", &self.linker);
        for ambient in
            ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTUP_TOOLCHAIN"]
        {
            cargo.env_remove(ambient);
        }
        let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(Some(self.target.join("image").join(TARGET).join("release").join(PACKAGE)))
        } else if said.contains(PANIC_MARK) {
            Ok(None)
        } else {
            Err(format!("the image does not build:\n{said}").into())
        }
    }

    /// Links once more, with the mark left open, and names the source lines that call what panics.
    fn explain_panics(&self) -> Box<dyn Error> {
        let lines = || -> Outcome<String> {
            let image = self
                .build(&["-Clink-arg=--emit-relocs", "-Clink-arg=--unresolved-symbols=ignore-all"])?
                .ok_or("it does not link")?;
            panic_callers(&image)
        };
        match lines() {
            Ok(lines) => format!("panics can be reached from\n{lines}").into(),
            Err(error) => format!("a panic can be reached; who calls it is not known: {error}").into(),
        }
    }

    /// Runs the image and prints what it reports. Its exit status is its verdict.
    fn run(&self, image: &Path) -> Outcome<()> {
        let fetched = self.target.join("qemu-arm/usr/bin/qemu-system-arm");
        let emulator = if fetched.exists() { fetched } else { "qemu-system-arm".into() };
        let mut qemu = Command::new(&emulator);
        qemu.args(["-M", "mps2-an386", "-display", "none", "-monitor", "none", "-serial", "none"]);
        // One instruction takes 2⁵ ns of virtual time, near the board's 25 MHz: every run is the same run.
        qemu.args(["-icount", "shift=5", "-semihosting-config", "enable=on,target=native", "-kernel"]).arg(image);
        let started = Instant::now();
        let mut child =
            qemu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| {
                format!(
                    "{}: {error}; linker/fetch-qemu {} fetches it",
                    emulator.display(),
                    self.target.join("qemu-arm").display()
                )
            })?;
        while child.try_wait()?.is_none() {
            if started.elapsed() > RUN_LIMIT {
                child.kill()?;
                return Err(format!("the image does not end within {} s", RUN_LIMIT.as_secs()).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let Output { status, stdout, stderr } = child.wait_with_output()?;
        let report = [stderr, stdout].concat();
        for line in String::from_utf8_lossy(&report).lines() {
            match line.split_once(' ') {
                Some((name, value)) => println!("{name:<16} {value}"),
                None => println!("{line}"),
            }
        }
        println!("emulated         {:.2} s", started.elapsed().as_secs_f64());
        match status.code() {
            Some(0) => Ok(()),
            Some(2) => Err("the processor faulted".into()),
            other => Err(format!("the run did not prove its exchange (status {other:?})").into()),
        }
    }
}

/// The folder that a compiler finds its libraries in.
fn sysroot(compiler: &str) -> Outcome<PathBuf> {
    let asked = ["--print", "sysroot"];
    let output = Command::new(compiler)
        .args(asked)
        .output()
        .map_err(|error| format!("{compiler}: {error} (see docs/building.md)"))?;
    Ok(String::from_utf8(output.stdout)?.trim().into())
}

/// What a tool of binutils prints, by lines.
fn listing(tool: &str, arguments: &[&str], image: &Path) -> Outcome<String> {
    let output = Command::new(tool).args(arguments).arg(image).output().map_err(|error| format!("{tool}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        Err(format!("{tool}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }
}

/// Bytes of the image's sections, and of what is stored.
fn print_sizes(image: &Path) -> Outcome<()> {
    let listing = listing("size", &["-A", "-d"], image)?;
    let bytes = |section: &str| -> u64 {
        let mut words = listing.lines().map(str::split_whitespace);
        words.find_map(|mut words| (words.next() == Some(section)).then(|| words.next()?.parse().ok())?).unwrap_or(0)
    };
    let sections = [".vectors", ".text", ".rodata", ".data"];
    println!(
        "stored bytes     {} ({})",
        sections.map(bytes).iter().sum::<u64>(),
        sections.map(|s| format!("{s} {}", bytes(s))).join(", ")
    );
    println!(
        "memory bytes     {} (.data, .bss {}, .stack {})",
        [".data", ".bss", ".stack"].map(bytes).iter().sum::<u64>(),
        bytes(".bss"),
        bytes(".stack")
    );
    Ok(())
}

/// `nm -C`: nothing forbidden, and not nothing at all.
fn check_symbols(image: &Path) -> Outcome<()> {
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
