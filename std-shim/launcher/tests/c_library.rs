//! The C library: installed, and its examples compiled as C and as C++ and run as jobs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Where the examples and the installed library are.
struct Installed {
    folder: PathBuf,
}

fn succeed(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Builds and installs the library, and compiles the examples: NAME as C11, NAME++ as C++17, NAME.static with the static
/// library.
fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let own = env::current_exe().expect("this program");
        let profile = own.ancestors().nth(2).expect("the profile's folder");
        let name = profile.file_name().and_then(|name| name.to_str()).expect("a profile");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--package", "unisono-c", "--locked", "--offline", "--target-dir"]);
        cargo.arg(profile.parent().expect("the target folder")).current_dir(env!("CARGO_MANIFEST_DIR"));
        succeed(cargo.args(["--profile", if name == "debug" { "dev" } else { name }]));
        let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c");
        let folder = profile.join("c-library");
        succeed(Command::new("sh").arg(library.join("install.sh")).arg(&folder).arg(profile));
        let pkg = std::fs::read_to_string(folder.join("lib/pkgconfig/unisono.pc")).expect("unisono.pc");
        assert!(pkg.contains(&format!("prefix={}", folder.display())) && pkg.contains("-lunisono"), "{pkg}");
        for example in ["ring", "jacobi", "event_loop", "windows", "regions", "neighbours"] {
            let source = library.join("examples").join(format!("{example}.c"));
            for (compiler, language, standard, suffix) in [("gcc", "c", "c11", ""), ("g++", "c++", "c++17", "++")] {
                let mut compile = Command::new(compiler);
                compile.args(["-x", language, &format!("-std={standard}"), "-D_POSIX_C_SOURCE=200809L"]);
                compile.args(["-Wall", "-Werror", "-g", "-O1"]).arg("-I").arg(folder.join("include")).arg(&source);
                compile.args(["-x", "none", "-o"]).arg(folder.join(format!("{example}{suffix}")));
                compile.arg("-L").arg(folder.join("lib")).arg(format!("-Wl,-rpath,{}/lib", folder.display()));
                succeed(compile.args(["-lunisono", "-lm"]));
            }
        }
        let mut compile = Command::new("gcc");
        compile.args(["-std=c11", "-Wall", "-Werror", "-o"]).arg(folder.join("ring.static"));
        compile.arg("-I").arg(folder.join("include")).arg(library.join("examples/ring.c"));
        compile.arg(folder.join("lib/libunisono.a"));
        succeed(compile.args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"]));
        Installed { folder }
    })
}

impl Installed {
    /// Runs an example as a job, and checks that it prints this line.
    fn is_right(&self, options: &str, before: &[&str], example: &str, line: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        let (program, arguments) = example.split_once(' ').unwrap_or((example, ""));
        command.arg("run").args(options.split_whitespace()).arg("--").args(before).arg(self.folder.join(program));
        command.args(arguments.split_whitespace());
        let output = command.stdin(Stdio::null()).output().expect("unisono starts");
        let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{example} {options}: {printed}{errors}");
        assert!(printed.lines().count() == 1 && printed.contains(line), "{example} {options}: {printed}{errors}");
    }
}

const JOBS: [&str; 4] = ["-n 1", "-n 4", "-n 4 --device udp", "-n 4 --nodes 2"];

#[test]
fn token_of_the_ring_comes_back() {
    for options in JOBS {
        installed().is_right(options, &[], "ring", "ranks");
    }
    installed().is_right("-n 3 --progress thread", &[], "ring++", "the token visited 3 ranks");
    installed().is_right("-n 2", &[], "ring.static", "the token visited 2 ranks");
}

#[test]
fn jacobi_comes_to_rest() {
    for options in JOBS {
        installed().is_right(options, &[], "jacobi", "at rest after");
    }
    installed().is_right("-n 2", &[], "jacobi++", "at rest after");
}

#[test]
fn windows_are_read_and_updated() {
    for options in JOBS {
        installed().is_right(options, &[], "windows", "windows of");
    }
    installed().is_right("-n 3 --progress thread", &[], "windows++", "windows of 3 ranks");
}

#[test]
fn regions_are_accessed_by_key() {
    for options in JOBS {
        installed().is_right(options, &[], "regions", "regions of");
    }
    installed().is_right("-n 3 --progress thread", &[], "regions++", "regions of 3 ranks");
}

#[test]
fn neighbours_exchange_blocks() {
    for options in JOBS {
        installed().is_right(options, &[], "neighbours", "neighbours of");
    }
    installed().is_right("-n 6 --progress thread", &[], "neighbours++", "neighbours of 6 ranks");
}

#[test]
fn event_loop_serves_the_others() {
    for options in ["-n 4", "-n 4 --device udp", "-n 4 --nodes 2"] {
        installed().is_right(options, &[], "event_loop", "answered 150 questions");
    }
    installed().is_right("-n 2 --progress hybrid", &[], "event_loop++", "answered 50 questions");
}

/// Valgrind's memcheck: no invalid access, no use of uninitialised memory, nothing lost for good.
#[test]
fn memcheck_finds_nothing() {
    let memcheck = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    for options in ["-n 2 --device udp", "-n 2"] {
        installed().is_right(options, &memcheck, "ring", "the token visited 2 ranks");
    }
    installed().is_right("-n 2 --device udp", &memcheck, "windows", "windows of 2 ranks");
    installed().is_right("-n 2 --device udp", &memcheck, "regions", "regions of 2 ranks");
    installed().is_right("-n 2", &memcheck, "neighbours", "neighbours of 2 ranks");
    installed().is_right("-n 2 --nodes 2", &memcheck, "jacobi 8", "at rest after");
    installed().is_right("-n 2 --device udp", &memcheck, "event_loop", "answered 50 questions");
}
