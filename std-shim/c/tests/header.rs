//! The header: it is what cbindgen makes of the library, and C and C++ compilers accept it without a warning.

use std::env;
use std::path::Path;
use std::process::Command;

/// The header, as cbindgen makes it, without the sections that only Rust programs need.
fn made() -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let settings = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("settings");
    let bindings = cbindgen::Builder::new().with_crate(here).with_config(settings).generate().expect("bindings");
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).expect("text");
    let (mut kept, mut is_safety) = (String::new(), false);
    for line in text.lines() {
        let comment = line.trim_start();
        is_safety = comment.starts_with("//") && (is_safety || comment == "// # Safety");
        if is_safety {
            continue;
        }
        // The empty line before the section.
        kept.push_str(line);
        kept.push('\n');
    }
    kept.replace("//\nenum", "enum").replace("//\nunisono_result", "unisono_result").replace("//\nconst", "const")
}

#[test]
fn header_is_what_the_library_exports() {
    let (here, made) = (Path::new(env!("CARGO_MANIFEST_DIR")), made());
    let header = std::fs::read_to_string(here.join("include/unisono.h")).unwrap_or_default();
    if header != made {
        let new = env::temp_dir().join("unisono.h");
        std::fs::write(&new, made).expect("written");
        panic!("include/unisono.h is out of date: cp {} {}/include/unisono.h", new.display(), here.display());
    }
}

#[test]
fn header_compiles_as_c_and_as_cpp() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("program.c");
    std::fs::write(&program, "#include <unisono.h>\n#include <unisono.h>\nint main(void) { return 0; }\n")
        .expect("written");
    for (compiler, language, standard) in [("gcc", "c", "c11"), ("g++", "c++", "c++17")] {
        let mut command = Command::new(compiler);
        command.args(["-x", language, &format!("-std={standard}"), "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        let output = command.arg("-fsyntax-only").arg("-I").arg(&include).arg(&program).output().expect(compiler);
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
