//! Bar 2: the time of a repair, in the simulated network and over real UDP.

use core::error::Error;
use std::process::ExitCode;

use clap::Parser;
use unisono_core::device::TxReason;
use unisono_tests::harness::report::{Limit, Report, quantile};
use unisono_tests::scenarios::repair::udp::{self, UdpRepairs};
use unisono_tests::scenarios::repair::{ROUND_TRIP_NS, Repairs, stream, tail};

/// Loses single datagrams of a stream, and the last ones of bursts, and times their repair.
#[derive(Parser)]
struct Options {
    /// Losses of each sort.
    #[arg(long, default_value_t = 2000)]
    losses: usize,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Over real UDP sockets on loopback, with random loss beneath the checksum: reported, not judged.
    #[arg(long)]
    udp: bool,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    let mut report = Report::new(2, options.json);
    if options.udp {
        print_udp(&mut report, "single", options.losses, udp::stream(options.seed, options.losses)?);
        print_udp(&mut report, "tail", options.losses, udp::tail(options.seed, options.losses)?);
        return Ok(report.end());
    }
    let single = stream(options.seed, options.losses);
    print(&mut report, "single", options.losses, &single, [Limit::Most(2.0), Limit::None]);
    let probes = single.counters.sent_for(TxReason::Probe) + single.counters.sent_for(TxReason::ResentProbe);
    report.figure("probes", "single", probes as f64, "datagrams", Limit::Most(0.0));
    let tails = tail(options.seed, options.losses);
    print(&mut report, "tail", options.losses, &tails, [Limit::None, Limit::Most(4.0)]);
    Ok(report.end())
}

fn print_udp(report: &mut Report, of: &str, losses: usize, measured: UdpRepairs) {
    let sorted = |times: Vec<u64>| {
        let mut times: Vec<f64> = times.into_iter().map(|ns| ns as f64 / 1000.0).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let round_trip = quantile(&sorted(measured.round_trips_ns), 0.5);
    let by = |cause: TxReason| measured.repairs.iter().filter(|(_, by)| *by == cause).count() as f64;
    let times = sorted(measured.repairs.iter().map(|(ns, _)| *ns).collect());
    report.figure("repaired", of, times.len() as f64, "losses", Limit::Least(losses as f64));
    report.figure("unrepaired", of, measured.unrepaired as f64, "losses", Limit::Most(0.0));
    report.figure("round_trip_p50", of, round_trip, "us", Limit::None);
    for (name, share) in [("repair_p50", 0.5), ("repair_p99", 0.99), ("repair_max", 1.0)] {
        let time = quantile(&times, share);
        report.figure(name, of, time, "us", Limit::None);
        report.figure(&format!("{name}_rtt"), of, time / round_trip, "round trips", Limit::None);
    }
    report.figure("repaired_by_nack", of, by(TxReason::ResentNack), "losses", Limit::None);
    report.figure("repaired_by_probe", of, by(TxReason::ResentProbe), "losses", Limit::None);
    let sent = |cause| measured.counters.sent_for(cause) as f64;
    report.figure("probes", of, sent(TxReason::Probe), "datagrams", Limit::None);
    report.figure("data_sent", of, measured.counters.data_sent() as f64, "datagrams", Limit::None);
    report.figure("spurious", of, measured.counters.spurious as f64, "datagrams", Limit::None);
    report.figure("injected", of, measured.lost[0] as f64, "datagrams", Limit::None);
    report.figure("kernel_lost", of, measured.lost[1] as f64, "datagrams", Limit::Most(0.0));
}

fn print(report: &mut Report, of: &str, losses: usize, repairs: &Repairs, [median, most]: [Limit; 2]) {
    let mut times: Vec<f64> = repairs.times_ns.iter().map(|ns| *ns as f64 / ROUND_TRIP_NS as f64).collect();
    times.sort_by(f64::total_cmp);
    report.figure("repaired", of, times.len() as f64, "losses", Limit::Least(losses as f64));
    report.figure("unrepaired", of, repairs.unrepaired as f64, "losses", Limit::Most(0.0));
    report.figure("repair_p50", of, quantile(&times, 0.5), "round trips", median);
    report.figure("repair_p99", of, quantile(&times, 0.99), "round trips", Limit::None);
    report.figure("repair_max", of, quantile(&times, 1.0), "round trips", most);
    report.figure("data_sent", of, repairs.counters.data_sent() as f64, "datagrams", Limit::None);
    report.figure("spurious", of, repairs.counters.spurious as f64, "datagrams", Limit::None);
}
