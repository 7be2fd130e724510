//! Bar 9: the receiver computes for a second without a call into the library (Koop et al. 2007, Fig. 2).

use core::time::Duration;
use std::net::TcpListener;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use clap::Parser;
use unisono::environment::Settings;
use unisono::{Rank, Tag, World};
use unisono_core::counters::Counters;
use unisono_core::device::TxReason;
use unisono_tests::harness::report::{Limit, Report, quantile};

const DATA: Tag = Tag(1);
const TURN: Tag = Tag(2);
/// Messages that wait while the receiver computes.
const MESSAGES: usize = 32;

/// Counts the probes to a receiver that computes, and times the answer to the first one.
#[derive(Parser)]
struct Options {
    /// Seconds of computing in engine mode.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Rounds in hybrid mode, of a tenth of a second each.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::new(9, options.json);
    let computing = Duration::from_secs_f64(options.seconds);
    let engine = job("engine", computing, 1);
    let resent =
        |counters: &Counters| counters.sent_for(TxReason::ResentNack) + counters.sent_for(TxReason::ResentProbe);
    report.figure("probes", "engine", engine.counters.sent_for(TxReason::Probe) as f64, "datagrams", Limit::Most(12.0));
    report.figure("resends", "engine", resent(&engine.counters) as f64, "datagrams", Limit::Most(0.0));
    let hybrid = job("hybrid", Duration::from_millis(100), options.rounds);
    let mut answers = hybrid.answers;
    answers.sort_by(f64::total_cmp);
    report.figure("answered", "hybrid", answers.len() as f64, "rounds", Limit::Least(options.rounds as f64));
    report.figure("answer_p50", "hybrid", quantile(&answers, 0.5), "ms", Limit::Most(1.0));
    report.figure("resends", "hybrid", resent(&hybrid.counters) as f64, "datagrams", Limit::Most(0.0));
    report.end()
}

struct Outcome {
    counters: Counters,
    /// Milliseconds from the first probe of a round to the acknowledgement of everything, while the receiver computes.
    answers: Vec<f64>,
}

fn job(mode: &str, computing: Duration, rounds: usize) -> Outcome {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let world = |rank: u32| {
        let value = |name: &str, value: String| (format!("UNISONO_{name}").into(), value.into());
        let settings = Settings::from_variables([
            value("RANK", rank.to_string()),
            value("SIZE", "2".into()),
            value("BOOTSTRAP", format!("127.0.0.1:{port}")),
            value("SECRET", "0123456789abcdef0123456789abcdef".into()),
            value("PROGRESS", mode.into()),
            value("DEVICE", "udp".into()),
        ]);
        World::join_as(&settings.expect("settings")).expect("a world")
    };
    thread::scope(|scope| {
        scope.spawn(|| receive(world(1), computing, rounds));
        send(world(0), computing, rounds)
    })
}

fn send(world: World, computing: Duration, rounds: usize) -> Outcome {
    let mut answers = Vec::new();
    for _ in 0..rounds {
        world.receive_into(&mut [0_u8], Rank(1), TURN).expect("a turn");
        let started = Instant::now();
        // The receiver's last messages are acknowledged, and it computes.
        while started.elapsed() < Duration::from_millis(10) {
            world.is_flushed();
        }
        let probes = || world.counters().sent_for(TxReason::Probe);
        let before = probes();
        for _ in 0..MESSAGES {
            world.send(&[7_u8; 100], Rank(1), DATA).expect("sent");
        }
        let mut probed = None;
        loop {
            // The probe leaves within the call, and its answer may be there when the call returns.
            let called = Instant::now();
            let flushed = world.is_flushed();
            if probed.is_none() && probes() > before {
                probed = Some(called);
            }
            if flushed {
                break;
            }
        }
        if let Some(probed) = probed.filter(|_| started.elapsed() < computing) {
            answers.push(probed.elapsed().as_secs_f64() * 1e3);
        }
    }
    let counters = world.counters();
    world.finish().expect("the other finishes");
    Outcome { counters, answers }
}

fn receive(world: World, computing: Duration, rounds: usize) {
    for _ in 0..rounds {
        world.send(&[1_u8], Rank(0), TURN).expect("sent");
        // The turn's acknowledgement is due before this process computes.
        while !world.is_flushed() {}
        let started = Instant::now();
        while started.elapsed() < computing {
            core::hint::spin_loop();
        }
        for _ in 0..MESSAGES {
            world.receive_into(&mut [0_u8; 100], Rank(0), DATA).expect("arrives");
        }
    }
    world.finish().expect("the other finishes");
}
