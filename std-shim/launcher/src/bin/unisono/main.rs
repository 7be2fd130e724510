//! The `unisono` command: runs jobs, and says what this machine offers.

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

/// The variable that says what is logged.
const LOG: &str = "UNISONO_LOG";

/// Messaging and collective communication on clusters.
#[derive(Parser, Debug)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Run a program as the processes of a job
    Run(Box<run::Options>),
    /// Say what unisono can use on this machine
    Info(Box<info::Options>),
    /// Measure a job from within: run it as the program of `unisono run`
    Bench(unisono_bench::Options),
    /// Start ranks for a launcher on another host
    #[command(hide = true)]
    Agent,
    /// Run an image without an operating system as a rank of a launcher
    #[command(hide = true)]
    StandIn(run::StandIn),
}

fn main() -> ExitCode {
    let command = Command::parse();
    if let Err(reason) = log() {
        return fail(&format_args!("{LOG}: {reason}"), 2);
    }
    match command.what {
        What::Run(options) => run::run(*options).unwrap_or_else(|refusal| fail(&refusal.reason, refusal.code)),
        What::Info(options) => match info::print(*options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(refusal) => fail(&refusal.reason, refusal.code),
        },
        What::Bench(options) => match unisono_bench::run(options) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => fail(&"what arrived is not what was sent", 1),
            Err(error) => fail(&error, 1),
        },
        What::StandIn(options) => match run::stand_in(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 1),
        },
        What::Agent => match agent::run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 1),
        },
    }
}

fn fail(reason: &dyn core::fmt::Display, code: u8) -> ExitCode {
    eprintln!("unisono: {reason}");
    ExitCode::from(code)
}

/// Diagnostics go to the errors: warnings, unless the variable asks for more.
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
