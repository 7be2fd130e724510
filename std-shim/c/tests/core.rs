//! The core alone, as a static library for C (`linker/c`): which functions of others it needs, and its example.

use std::path::Path;
use std::process::{Command, Stdio};

/// Functions that every C compiler demands of its environment.
const DEMANDED: [&str; 5] = ["memcpy", "memmove", "memset", "memcmp", "bcmp"];

fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn core_needs_no_library_and_delivers_over_a_faulty_wire() {
    let linker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../linker");
    let own = std::env::current_exe().expect("this program");
    let target = own.ancestors().nth(3).expect("the target folder").join("core-c");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--locked", "-p", "unisono-core-c", "--target-dir"]);
    for (name, _) in std::env::vars_os() {
        // It is built as it ships.
        if name.to_string_lossy().starts_with("CARGO_PROFILE_") {
            cargo.env_remove(name);
        }
    }
    succeed(cargo.arg(&target).current_dir(&linker));
    let library = target.join("release/libunisono_core_c.a");

    // The object of this library; the others of the archive are the compiler's own.
    let members = succeed(Command::new("ar").arg("t").arg(&library));
    let member = members.lines().find(|member| member.starts_with("unisono_core_c")).expect("its object");
    let folder = tempfile::tempdir().expect("a folder");
    succeed(Command::new("ar").arg("x").arg(&library).arg(member).current_dir(folder.path()));
    let symbols = succeed(Command::new("nm").arg("-u").arg(folder.path().join(member)));
    let others: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert!(others.iter().all(|name| DEMANDED.contains(name)), "it calls {others:?}");

    let program = folder.path().join("wire");
    let mut compile = Command::new("gcc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&program);
    compile.arg("-I").arg(linker.join("c/include")).arg(linker.join("c/examples/wire.c")).arg(&library);
    succeed(&mut compile);
    let printed = succeed(&mut Command::new(&program));
    assert!(printed.contains("1000 messages and a block"), "{printed}");
    let header = linker.join("c/include/unisono_core.h");
    succeed(Command::new("g++").args(["-std=c++17", "-Wall", "-Werror", "-fsyntax-only", "-x", "c++"]).arg(header));
}
