//! The `unisono` command: runs jobs, measures them and reports what this machine supports.

mod info;
mod memory;
mod offload;
mod refusal;
mod run;
mod tuning;

use clap::{Parser, Subcommand};
use std::{io::IsTerminal, process::ExitCode};
use tracing_subscriber::EnvFilter;
use unisono_launcher::agent;

/// The variable with the log filter.
const LOG: &str = "UNISONO_LOG";

/// Messaging and collective communication on clusters.
#[derive(Parser, Debug)]
#[command(name = "unisono", version, propagate_version = true, arg_required_else_help = true)]
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
    /// Start the ranks of this host for a launcher on another host
    #[command(hide = true)]
    Agent,
    /// Run a bare-metal image as a rank of a launcher
    #[command(hide = true)]
    StandIn(run::StandIn),
}

fn main() -> ExitCode {
    let command = Command::parse();
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

fn fail(reason: &dyn core::fmt::Display, code: u8) -> ExitCode {
    eprintln!("unisono: {reason}");
    ExitCode::from(code)
}

/// Initializes logging to the standard error: warnings only, unless the variable sets a filter.
fn log() -> Result<(), Box<dyn core::error::Error>> {
    let filter = match std::env::var(LOG) {
        Ok(text) => EnvFilter::try_new(text)?,
        Err(std::env::VarError::NotPresent) => EnvFilter::new("warn"),
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
}
