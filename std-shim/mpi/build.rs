//! Generates the exports of the library from the table of the ABI (`abi/functions.txt`): each function and its profiling
//! twin (`PMPI_`) calls the function of the same name in `src/calls`, in lower case and without `MPI_`; a function
//! for large counts (`_c`) calls that of the same name without `_c`, which is generic, unless it has one of its own.
//! Those functions are declared with `pub(crate) unsafe fn`, or listed in a macro with `fn`. A function that has none answers `MPI_ERR_UNSUPPORTED_OPERATION`. Constants come from `abi/constants.txt`.

extern crate alloc;

use alloc::collections::BTreeSet;
use core::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for name in ["abi/functions.txt", "abi/constants.txt", "src/calls", "build.rs"] {
        println!("cargo:rerun-if-changed={name}");
    }
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    let functions = fs::read_to_string(root.join("abi/functions.txt")).expect("the table is checked in");
    fs::write(out.join("exports.rs"), exports(&functions, &implemented(&root.join("src/calls")))).expect("writable");
    let constants = fs::read_to_string(root.join("abi/constants.txt")).expect("the table is checked in");
    fs::write(out.join("constants.rs"), constants_of(&constants)).expect("writable");
    link_by_soname(&out);
}

/// The loader looks for the file `libmpi_abi.so.1`: a link of that name lies beside the library.
fn link_by_soname(out: &Path) {
    if let Some(profile) = out.ancestors().nth(3) {
        let link = profile.join("libmpi_abi.so.1");
        if fs::symlink_metadata(&link).is_err() {
            // A read-only folder has no link; the library can still be preloaded.
            let _ = std::os::unix::fs::symlink("libmpi_abi.so", link);
        }
    }
}

/// The functions in `src/calls`, with their modules.
fn implemented(folder: &Path) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for file in fs::read_dir(folder).expect("the folder exists") {
        let path = file.expect("readable").path();
        let module = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("readable");
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("pub(crate) unsafe fn ").or_else(|| line.strip_prefix("    fn ")) else {
                continue;
            };
            for rest in rest.split(" fn ") {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                found.insert((name, module.clone()));
            }
        }
    }
    found
}

fn exports(functions: &str, implemented: &BTreeSet<(String, String)>) -> String {
    let mut text = String::new();
    for line in functions.lines() {
        let (head, arguments) = line.trim_end_matches(')').split_once('(').expect("a prototype");
        let (returns, name) = head.split_once(' ').expect("a type and a name");
        let small = name.strip_prefix("MPI_").expect("a function of MPI").to_lowercase();
        let find = |small: &str| implemented.iter().find(|(name, _)| name == small);
        let body = find(&small).or_else(|| small.strip_suffix("_c").and_then(find));
        let mut parameters = Vec::new();
        for argument in arguments.split(", ").filter(|argument| !matches!(*argument, "void" | "...")) {
            parameters.push(parameter(argument));
        }
        let declared: Vec<_> = parameters.iter().map(|(name, kind)| format!("{name}: {kind}")).collect();
        let passed: Vec<_> = parameters.iter().map(|(name, _)| name.as_str()).collect();
        let returned = rust_type(returns, 0, false);
        for twin in [name.to_owned(), format!("P{name}")] {
            let _ = writeln!(text, "/// `{twin}` of the standard.");
            let _ = writeln!(text, "/// # Safety\n/// As the standard says.");
            let _ = writeln!(text, "#[unsafe(no_mangle)]");
            let _ = match body {
                Some((function, module)) => writeln!(
                    text,
                    "pub unsafe extern \"C\" fn {twin}({}) -> {returned} {{\n    // SAFETY: the program calls this as \
                     the standard says.\n    unsafe {{ crate::calls::{module}::{function}({}) }}\n}}",
                    declared.join(", "),
                    passed.join(", ")
                ),
                None => {
                    let unused: Vec<_> = parameters.iter().map(|(_, kind)| format!("_: {kind}")).collect();
                    writeln!(
                        text,
                        "pub unsafe extern \"C\" fn {twin}({}) -> {returned} {{\n    \
                         crate::error::unsupported(\"{name}\")\n}}",
                        unused.join(", ")
                    )
                }
            };
        }
    }
    text
}

/// Name and Rust type of a parameter in C.
fn parameter(argument: &str) -> (String, String) {
    let (kind, declared) = argument.rsplit_once(' ').expect("a type and a name");
    let constant = kind.starts_with("const ");
    let kind = kind.trim_start_matches("const ").trim();
    let stars = declared.matches('*').count();
    let bare = declared.trim_start_matches('*');
    let (name, array) = bare.split_once('[').map_or((bare, ""), |(name, array)| (name, array));
    // A row of fixed length is a pointer to its elements.
    let pointers = stars + usize::from(!array.is_empty());
    let name = match name {
        "type" | "ref" | "in" | "fn" => format!("{name}_"),
        _ => name.to_owned(),
    };
    (name, rust_type(kind, pointers, constant))
}

fn rust_type(kind: &str, pointers: usize, constant: bool) -> String {
    let (base, pointers) = match kind {
        "int" | "MPI_T_cb_safety" | "MPI_T_source_order" => ("c_int", pointers),
        "char" => ("c_char", pointers),
        "double" => ("f64", pointers),
        "void" => ("c_void", pointers),
        "MPI_Aint" => ("MPI_Aint", pointers),
        "MPI_Count" | "MPI_Offset" => ("MPI_Count", pointers),
        _ if kind.ends_with("_function") || kind.ends_with("_function_c") || kind.ends_with("_fn") => {
            ("Callback", pointers.saturating_sub(1))
        }
        _ => (kind, pointers),
    };
    let mut text = base.to_owned();
    for level in 0..pointers {
        let inner_constant = constant && level == 0;
        text = format!("*{} {text}", if inner_constant { "const" } else { "mut" });
    }
    text
}

fn constants_of(constants: &str) -> String {
    let mut text = String::new();
    for line in constants.lines() {
        let mut words = line.split(' ');
        let (Some(name), Some(kind), Some(value)) = (words.next(), words.next(), words.next()) else { continue };
        let _ = match kind {
            "int" => writeln!(text, "pub const {name}: c_int = {value};"),
            _ if kind.ends_with('*') => writeln!(text, "pub const {name}: usize = {value};"),
            "MPI_Offset" => writeln!(text, "pub const {name}: MPI_Count = {value};"),
            _ => writeln!(text, "pub const {name}: {kind} = {kind}({value});"),
        };
    }
    text
}
