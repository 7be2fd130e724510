//! The `unisono` command: runs jobs, measures them and reports what this machine supports.

mod info;
mod memory;
mod offload;
mod refusal;
mod run;
mod tuning;
mod units;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::{env, io::IsTerminal, process::ExitCode};
use tracing_subscriber::EnvFilter;
use unisono_launcher::agent;

/// The variable with the log filter.
const LOG: &str = "UNISONO_LOG";

/// The variable of a rank: a launcher reads its output.
const RANK: &str = "UNISONO_RANK";

/// Messaging and collective communication on clusters.
#[derive(Parser, Debug)]
#[command(name = "unisono", version, propagate_version = true)]
struct Command {
    #[command(subcommand)]
    what: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Run a program as the ranks of a job, on this host or on several
    Run(Box<run::Options>),
    /// Report the devices and limits of this machine, or the algorithms of collectives
    Info(Box<info::Options>),
    /// Measure latency, bandwidth, collectives and more: run it as the program of `unisono run`
    Bench(unisono_bench::Options),
    /// Measure the algorithms of the collectives of a job, and print a table for --tuning of those that are faster than
    /// the selected ones
    Tune(unisono_bench::tune::Options),
    /// Start the ranks of this host for a launcher on another host
    #[command(hide = true)]
    Agent,
    /// Run a bare-metal image as a rank of a launcher
    #[command(hide = true)]
    StandIn(run::StandIn),
}

fn main() -> ExitCode {
    let mut command = with_examples(with_variables(with_negative_numbers(Command::command())));
    if env::args_os().len() == 1 {
        return match command.print_help() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 1),
        };
    }
    let matches = command.get_matches();
    let command = Command::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if !matches!(command.what, Action::Run(_) | Action::Agent | Action::StandIn(_)) && env::var_os(RANK).is_none() {
        end_with_reader();
    }
    if let Err(reason) = log() {
        return fail(&format_args!("{LOG}: {reason}"), 2);
    }
    match command.what {
        Action::Run(options) => run::run(*options).unwrap_or_else(|refusal| fail(&refusal.reason, refusal.code)),
        Action::Info(options) => match info::print(*options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(refusal) => fail(&refusal.reason, refusal.code),
        },
        Action::Bench(options) => match unisono_bench::run(options) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => fail(&"the received data differ from the sent data", 1),
            Err(error) => fail(&error, 1),
        },
        Action::Tune(options) => match unisono_bench::tune::run(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 1),
        },
        Action::StandIn(options) => match run::run_proxy(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 1),
        },
        Action::Agent => match agent::run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 1),
        },
    }
}

/// Options whose values are numbers take negative ones, so that the error names the value, not an unknown option.
pub(crate) fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let allow = |option: clap::Arg| {
        let takes = option.get_action().takes_values() && !option.is_positional();
        if takes { option.allow_negative_numbers(true) } else { option }
    };
    command.mut_args(allow).mut_subcommands(with_negative_numbers)
}

/// Names the variable of each option of `unisono run` in its help.
fn with_variables(command: clap::Command) -> clap::Command {
    let name = |option: clap::Arg| {
        // Which library a program is linked with is no setting of the job.
        let long = option.get_long().filter(|long| *long != "mpi");
        let variable = long.map(|long| format!("UNISONO_{}", long.to_uppercase().replace('-', "_")));
        match (variable, option.get_help().map(ToString::to_string)) {
            (Some(variable), Some(help)) => option.help(format!("{help} [variable: {variable}]")),
            _ => option,
        }
    };
    command.mut_subcommand("run", |run| run.mut_args(name))
}

/// The end of the help of each command.
const EXAMPLES: [(&str, &str); 3] = [
    (
        "run",
        "Examples:
  unisono run -n 4 -- ./program argument
  unisono run -n 4 --device udp --loss 5% --seed 7 -- ./program
  unisono run --hosts a:8,b:8 --on-death tell --stats -- ./program",
    ),
    (
        "info",
        "Examples:
  unisono info
  unisono info --collectives -n 16 --nodes 4 --bytes 8 --bytes 1M",
    ),
    (
        "bench",
        "Examples:
  unisono run -n 2 -- unisono bench latency --bytes 8
  unisono run -n 4 --device udp -- unisono bench collective all_reduce --bytes 4K
  unisono bench sweep latency all_reduce --ranks 2,4 --against --plot sweep.svg --csv sweep.csv",
    ),
];

/// Shows examples at the end of the help.
fn with_examples(command: clap::Command) -> clap::Command {
    let all = |command: clap::Command, (name, examples): (&str, &'static str)| {
        command.mut_subcommand(name, |one| one.after_help(examples))
    };
    let command = EXAMPLES.into_iter().fold(command, all);
    command.after_help("Example:\n  unisono run -n 4 -- ./program\n\n`unisono COMMAND --help` shows the options.")
}

/// Ends this process quietly when the reader of its output is gone, as other commands in a pipeline do.
fn end_with_reader() {
    // SAFETY: the default action replaces that of the start of this process; no thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn fail(reason: &dyn core::fmt::Display, code: u8) -> ExitCode {
    eprintln!("unisono: {reason}");
    ExitCode::from(code)
}

/// Initializes logging to the standard error: warnings only, unless the variable sets a filter.
fn log() -> Result<(), Box<dyn core::error::Error>> {
    let filter = match env::var(LOG) {
        Ok(text) => EnvFilter::try_new(text)?,
        Err(env::VarError::NotPresent) => EnvFilter::new("warn"),
        Err(error) => return Err(error.into()),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_sound() {
        Command::command().debug_assert();
    }

    #[test]
    fn the_help_of_every_option_names_its_variable() {
        let mut command = with_variables(Command::command());
        let run = command.find_subcommand_mut("run").expect("a command");
        let help = run.render_long_help().to_string();
        let names: Vec<&str> =
            help.split("UNISONO_").skip(1).filter_map(|rest| rest.split([']', ',', '\n']).next()).collect();
        for option in ["DEVICE", "ON_DEATH", "STUCK", "UNREACHABLE", "TUNING", "REDUCE_SCATTER"] {
            assert!(names.contains(&option), "{option}: {help}");
        }
        for heading in ["Placement", "Transport", "Failures", "Algorithms of collectives"] {
            assert!(help.contains(heading), "{heading}: {help}");
        }
        for name in names {
            let name = std::ffi::OsString::from(format!("UNISONO_{name}"));
            let unknown = unisono::Settings::from_variables([(name.clone(), "?".into())]);
            assert!(!matches!(unknown, Err(unisono::SettingsError::Unknown { .. })), "{name:?} is no setting");
        }
    }

    #[test]
    fn examples_of_the_help_are_understood() {
        for (name, examples) in EXAMPLES {
            let help = with_examples(Command::command()).find_subcommand_mut(name).expect("a command").render_help();
            assert!(help.to_string().contains(examples), "{name}");
            for line in examples.lines().filter(|line| line.starts_with("  ")) {
                let parsed = Command::command().try_get_matches_from(line.split_whitespace());
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
            }
        }
    }

    #[test]
    fn every_spelling_of_a_collective_is_taken() {
        for name in ["allreduce", "all-reduce", "all_reduce"] {
            let line = ["unisono", "run", "-n", "2", &format!("--{name}"), "ring", "program"];
            assert!(Command::command().try_get_matches_from(line).is_ok(), "{name}");
            let line = ["unisono", "bench", "collective", name, "--bytes", "8"];
            assert!(Command::command().try_get_matches_from(line).is_ok(), "{name}");
        }
    }
}
