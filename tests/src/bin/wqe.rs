//! Bar 4 of the verbs driver: our mlx5 work queues store the same bytes as rdma-core's provider for the same requests,
//! we parse completion queue entries as it does, and every omitted barrier between the stores is detected.

use std::process::ExitCode;

use clap::Parser;
use unisono_tests::harness::report::{Limit, Report};
use unisono_tests::mlx5::{rdma_core, wqe};

/// Compares work queue entries with rdma-core's.
#[derive(Parser, Clone, Copy, Debug)]
struct Options {
    /// Random send requests.
    #[arg(long, default_value_t = 1_000_000)]
    requests: u64,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::new(4, options.json);
    match wqe::delete_each_barrier() {
        Ok(deletions) => {
            let caught = deletions.iter().filter(|deletion| deletion.noticed.is_some()).count();
            for missed in deletions.iter().filter(|deletion| deletion.noticed.is_none()) {
                eprintln!("the omission of barrier {} of {} is not detected", missed.barrier, missed.of);
            }
            let all = deletions.len() as f64;
            report.figure("deleted_barriers_caught", "", caught as f64, "barriers", Limit::Least(all.max(1.0)));
        }
        Err((of, violation)) => {
            eprintln!("{of}: {violation}");
            return ExitCode::FAILURE;
        }
    }
    let compared = rdma_core::build().and_then(|program| {
        let compared = wqe::compare(&program, options.requests, options.seed)?;
        Ok((compared, wqe::read_completions(&program, options.requests, options.seed)?))
    });
    let (compared, read) = match compared {
        Ok(both) => both,
        Err(error) => {
            eprintln!("rdma-core: {error}");
            return ExitCode::FAILURE;
        }
    };
    let least = |count: u64| Limit::Least(count as f64);
    report.figure("send_requests", "", compared.sends as f64, "requests", least(options.requests));
    // A run too short for one of them proves nothing about it.
    for (name, count) in [
        ("connected", compared.connected),
        ("wrapped", compared.wrapped),
        ("inline", compared.inline),
        ("blue_flames", compared.flames),
        ("index_turns", compared.turns),
        ("receive_requests", compared.receives),
        ("completions", read.entries),
        ("completions_of_receives", read.received),
        ("completions_of_failures", read.failed),
    ] {
        report.figure(name, "", count as f64, "", least(1));
    }
    report.figure("different_calls", "", compared.different as f64, "calls", Limit::Most(0.0));
    report.figure("completions_read_differently", "", read.different as f64, "entries", Limit::Most(0.0));
    report.end()
}
