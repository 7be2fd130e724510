//! Test programs that are also the rank programs of the jobs that they launch.

use std::{
    env,
    process::{Command, ExitCode, Output, Stdio},
};

/// Runs the tests whose name contains the first argument that is not an option, all without one, but none that contains
/// the argument of a `--skip`.
pub(crate) fn run_tests(tests: &[(&str, fn())]) -> ExitCode {
    let (mut wanted, mut skipped, mut arguments) = (None, Vec::new(), env::args().skip(1));
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--skip" => skipped.extend(arguments.next()),
            _ if !argument.starts_with('-') && wanted.is_none() => wanted = Some(argument),
            _ => {}
        }
    }
    let is_chosen = |name: &str| {
        wanted.as_ref().is_none_or(|wanted| name.contains(wanted)) && !skipped.iter().any(|part| name.contains(part))
    };
    for (name, test) in tests.iter().filter(|(name, _)| is_chosen(name)) {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

/// Runs `unisono run` with these options; every rank runs this program with `part` as its arguments.
pub(crate) fn run(options: &str, part: &str) -> Output {
    command(options, part).stdin(Stdio::null()).output().expect("unisono starts")
}

/// What [`run`] runs. `TEST_LAUNCHER` names another `unisono`, in a virtual machine.
pub(crate) fn command(options: &str, part: &str) -> Command {
    let launcher = env::var_os("TEST_LAUNCHER");
    let mut command = Command::new(launcher.unwrap_or_else(|| env!("CARGO_BIN_EXE_unisono").into()));
    command.arg("run").args(options.split_whitespace()).arg("--");
    command.arg(env::current_exe().expect("this program")).args(part.split_whitespace());
    command
}

/// The job must have ended with this code and printed these lines, in any order.
pub(crate) fn expect(output: &Output, code: i32, lines: &[&str]) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    let mut found: Vec<&str> = printed.lines().collect();
    found.sort_unstable();
    assert_eq!((output.status.code(), found.as_slice()), (Some(code), lines), "{printed}\n{errors}");
}
