//! The initial file system of the machine: modules in loading order, tools with their libraries.

use alloc::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Outcome;
use super::cpio::Archive;

/// Modules that are wanted; those they need are found in them. `crc32_generic` is asked for by name only, at run time.
const MODULES: [&str; 11] = [
    "crc32_generic",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
    "veth",
    "bridge",
    "sch_netem",
    "virtio_pci",
    "9p",
    "9pnet_virtio",
    "dummy",
];
/// Programs of the packages, by their place there.
const TOOLS: [&str; 11] = [
    "bin/dash",
    "usr/bin/ibv_devinfo",
    "usr/bin/ibv_ud_pingpong",
    "usr/bin/ib_send_lat",
    "usr/bin/ib_send_bw",
    "usr/bin/ib_write_lat",
    "usr/bin/ucx_perftest",
    "usr/bin/fi_pingpong",
    "bin/ip",
    "sbin/tc",
    "usr/bin/rdma",
];
/// Where libraries lie, in the packages and in the machine.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Loaded by name, from folders beside the libraries: rdma-core's provider of Soft-RoCE, and UCX's transports.
const PROVIDERS: [&str; 2] = ["libibverbs/librxe-rdmav34.so", "ucx/libuct_ib.so.0"];
/// Loaded by rdma-core and by Rust's runtime; no program names them.
const LOADED: [&str; 4] = ["libibverbs.so.1", "librdmacm.so.1", "libgcc_s.so.1", "libm.so.6"];

/// Writes the file system made of `packages`.
pub(super) fn build(packages: &Path, to: &Path) -> Outcome<()> {
    let mut archive = Archive::default();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    archive.file("init", &fs::read(here.join("vm/init"))?);
    for folder in ["dev", "proc", "sys", "tmp", "run", "host", "sbin", "etc", "usr/bin", "bin"] {
        archive.directory(folder);
    }
    archive.file("bin/busybox", &fs::read(packages.join("bin/busybox"))?);
    // Not busybox: its shell prefers its own programs to those of the packages.
    archive.link("bin/sh", "../usr/bin/dash");
    archive.file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n");
    archive.file("etc/hosts", b"127.0.0.1 localhost\n");
    archive.file("etc/nsswitch.conf", b"hosts: files\n");
    archive.file("etc/libibverbs.d/rxe.driver", b"driver rxe\n");
    for (number, module) in modules(packages)?.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("modules/{number:02}-{name}"), &fs::read(module)?);
    }
    let mut libraries = BTreeSet::new();
    for tool in &TOOLS.map(|tool| packages.join(tool)) {
        let name = tool.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("usr/bin/{name}"), &fs::read(tool)?);
        libraries.extend(needs(packages, tool)?);
    }
    for name in PROVIDERS {
        let provider = packages.join(LIBRARIES).join(name);
        libraries.extend(needs(packages, &provider)?);
        archive.file(&format!("{LIBRARIES}/{name}"), &fs::read(&provider)?);
    }
    for name in LOADED {
        let places = [packages.join(LIBRARIES), Path::new("/").join(LIBRARIES), "/lib/x86_64-linux-gnu".into()];
        let found = places.iter().map(|place| place.join(name)).find(|path| path.exists());
        let found = found.ok_or_else(|| format!("{name} is nowhere in {places:?}"))?;
        libraries.extend(needs(packages, &found)?);
        libraries.insert(found);
    }
    for library in libraries {
        let name = library.file_name().unwrap_or_default().to_string_lossy();
        let folder = if name.starts_with("ld-linux") { "lib64" } else { LIBRARIES };
        archive.file(&format!("{folder}/{name}"), &fs::read(&library)?);
    }
    archive.link("lib", "usr/lib");
    Ok(fs::write(to, archive.finish())?)
}

/// The libraries that a program or library is linked with, the packages' own before those of this machine.
fn needs(packages: &Path, program: &Path) -> Outcome<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).env("LD_LIBRARY_PATH", packages.join(LIBRARIES)).output()?;
    let listing = String::from_utf8(output.stdout)?;
    if listing.contains("not found") {
        return Err(format!("{} lacks a library:\n{listing}", program.display()).into());
    }
    let paths = listing.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}

/// The wanted modules and those they need, each after what it needs.
fn modules(packages: &Path) -> Outcome<Vec<PathBuf>> {
    let (mut found, mut builtin) = (BTreeMap::new(), String::new());
    let mut folders = vec![packages.join("lib/modules")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(name) = name.strip_suffix(".ko") {
                found.insert(name.replace('-', "_"), path);
            } else if name == "modules.builtin" {
                builtin = fs::read_to_string(path)?.replace('-', "_");
            }
        }
    }
    let mut ordered = Vec::new();
    for wanted in MODULES {
        visit(wanted, &found, &builtin, &mut ordered)?;
    }
    Ok(ordered)
}

fn visit(name: &str, found: &BTreeMap<String, PathBuf>, builtin: &str, ordered: &mut Vec<PathBuf>) -> Outcome<()> {
    let Some(path) = found.get(name) else {
        let part = format!("/{name}.ko");
        return if builtin.contains(&part) { Ok(()) } else { Err(format!("the kernel has no module {name}").into()) };
    };
    if ordered.contains(path) {
        return Ok(());
    }
    let bytes = fs::read(path)?;
    for need in depends(&bytes).split(',').filter(|need| !need.is_empty()) {
        visit(&need.replace('-', "_"), found, builtin, ordered)?;
    }
    ordered.push(path.clone());
    Ok(())
}

/// The `depends` entry of a module's information, which is a list of strings that end in a zero byte.
fn depends(module: &[u8]) -> &str {
    const KEY: &[u8] = b"\0depends=";
    let start = module.windows(KEY.len()).position(|window| window == KEY).map(|at| at + KEY.len());
    let value = start.and_then(|start| module.get(start..)?.split(|byte| *byte == 0).next());
    value.and_then(|value| core::str::from_utf8(value).ok()).unwrap_or_default()
}
