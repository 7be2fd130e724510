//! What the virtual machine of `--bin vm` runs: one check of the UD device at a time. Ends with status 1 when it fails.

use core::net::IpAddr;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use unisono_core::device::Cause;
use unisono_tests::bar::{Limit, Report};
use unisono_tests::conformance::{DirectFixture, Finding, Outcome as Kept, UdFixture, examine};
use unisono_tests::verbs::direct::Size;
use unisono_tests::verbs::{self, Outcome};
use unisono_verbs::ud::{Domain, Options as Ud, adapters};

/// Checks of the UD device.
#[derive(Parser, Debug)]
struct Options {
    #[command(subcommand)]
    check: Check,
}

#[derive(Subcommand, Debug)]
enum Check {
    /// The adapters, and the GID that is chosen of each
    Adapters,
    /// The conformance suite, over all adapters
    Conformance {
        /// Only the cases whose name contains this are printed
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Bytes from the first adapter to the second
    Transfer {
        /// How many
        #[arg(long, default_value_t = 100_000_000)]
        bytes: usize,
        /// At least so many datagrams are to be resent: the link is faulty
        #[arg(long, default_value_t = 0)]
        resent: u64,
    },
    /// The conformance suite, over Soft-RoCE's own queues posted directly
    DirectConformance,
    /// As `transfer`, over Soft-RoCE's own queues posted directly
    DirectTransfer {
        /// How many
        #[arg(long, default_value_t = 100_000_000)]
        bytes: usize,
        /// At least so many datagrams are to be resent: the link is faulty
        #[arg(long, default_value_t = 0)]
        resent: u64,
    },
    /// A directly posted queue pair fails, again and again, and is made anew
    DirectFailure,
    /// Datagrams to a group that all adapters joined
    Multicast {
        /// The group
        group: IpAddr,
    },
    /// A sleeping process is woken
    Interrupt,
    /// Queue pairs in error
    QueueFailure,
    /// A completion queue is overrun
    Overrun,
    /// An interface goes down and up
    LinkFailure {
        /// That of the first adapter
        interface: String,
    },
    /// Against perftest's bare loop, turn by turn
    Compare {
        /// How often
        #[arg(long, default_value_t = 10)]
        turns: usize,
        /// Fails when the bars are missed: at most 1.3 times its latency, at least 0.8 of its rate
        #[arg(long)]
        bar: bool,
    },
    /// Memory against the number of peers
    Memory,
    /// An interface is removed
    Removal {
        /// That of the first adapter
        interface: String,
    },
}

fn main() -> ExitCode {
    match run(&Options::parse().check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(check: &Check) -> Outcome<()> {
    let names = adapters()?;
    let pair = || match &*names {
        [first, second, ..] => Ok([first.as_str(), second.as_str()]),
        _ => Err("two adapters are needed"),
    };
    match check {
        Check::Adapters => {
            for name in &names {
                let domain = Domain::open(Some(name))?;
                let (gid, mtu) = (domain.gid(), domain.mtu());
                println!(
                    "{name:<8} port {}, GID {} ({:?}, index {}, interface {}), mtu {mtu}",
                    domain.port(),
                    gid.gid,
                    gid.encapsulation,
                    gid.index,
                    gid.interface
                );
            }
        }
        Check::Conformance { only } => {
            let options = Ud { receive_slots: 256, holdable: 64, ..Ud::new(3, 0x7e57) };
            return conformance(&examine(|| UdFixture::new(names.clone(), options.clone())), only);
        }
        Check::DirectConformance => {
            let size = Size { receive_slots: 255, holdable: 64, ..Size::default() };
            return conformance(&examine(|| DirectFixture::new(names.clone(), size)), "");
        }
        Check::DirectFailure => println!("made anew {} times", verbs::direct_failure(pair()?)?),
        Check::Transfer { bytes, resent } | Check::DirectTransfer { bytes, resent } => {
            let done = match check {
                Check::Transfer { .. } => verbs::transfer(pair()?, *bytes)?,
                _ => verbs::transfer_directly(pair()?, *bytes)?,
            };
            let again = [Cause::ResentNack, Cause::ResentProbe].map(|cause| done.sent.sent_for(cause));
            println!("{bytes} bytes in {:.2} s, {} wrong", done.time.as_secs_f64(), done.wrong);
            println!("resent after a gap {}, after a probe {}, needlessly {}", again[0], again[1], done.sent.spurious);
            if done.wrong > 0 || again.iter().sum::<u64>() < *resent {
                return Err("not byte for byte, or over a link without faults".into());
            }
        }
        Check::Multicast { group } => println!("{} datagrams received", verbs::multicast(&names, *group)?),
        Check::Interrupt => {
            let [slept, busy] = verbs::interrupt(pair()?)?;
            println!("slept {} ms, {} µs of processor time", slept.as_millis(), busy.as_micros());
        }
        Check::QueueFailure => println!("made anew {} times", verbs::queue_failure(pair()?)?),
        Check::Overrun => println!("overrun {} times", verbs::overrun(pair()?)?),
        Check::LinkFailure { interface } => {
            println!("traffic again after {} ms", verbs::link_failure(pair()?, interface)?.as_millis());
        }
        Check::Compare { turns, bar } => {
            let figures = verbs::compare(pair()?, *turns)?;
            let mut report = Report::new(2, false);
            for (name, unit, [ours, theirs], limit) in [
                ("one_way", "us", &figures.latency_us, Limit::Most(1.3)),
                ("delivered", "MB/s", &figures.rate, Limit::Least(0.8)),
            ] {
                report.figure(name, "unisono", verbs::median(ours), unit, Limit::None);
                report.figure(name, "perftest", verbs::median(theirs), unit, Limit::None);
                let ratios: Vec<_> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
                report.figure(name, "ratio", verbs::median(&ratios), "", if *bar { limit } else { Limit::None });
            }
            if !report.is_met() {
                return Err("a bar is missed".into());
            }
        }
        Check::Memory => return memory(&names),
        Check::Removal { interface } => {
            println!("closed after {} ms", verbs::removal(pair()?, interface)?.as_millis());
        }
    }
    Ok(())
}

fn conformance(findings: &[Finding], only: &str) -> Outcome<()> {
    let mut broken = 0;
    for finding in findings {
        broken += usize::from(matches!(finding.outcome, Kept::Broken(_)));
        if finding.case.contains(only) {
            match &finding.outcome {
                Kept::Kept => println!("kept     {}", finding.case),
                Kept::Skipped(why) => println!("skipped  {} ({why})", finding.case),
                Kept::Broken(breach) => println!("BROKEN   {}: {breach}", finding.case),
            }
        }
    }
    let kept = findings.iter().filter(|finding| finding.outcome == Kept::Kept).count();
    if broken > 0 || kept < findings.len() { Err(format!("{broken} promises broken").into()) } else { Ok(()) }
}

/// Known and active peers grow; the process's memory, and the kernel's, must not grow with known ones beyond their records.
fn memory(adapters: &[String]) -> Outcome<()> {
    let [first, second, ..] = adapters else { return Err("two adapters are needed".into()) };
    println!("{:>6} {:>6} {:>12} {:>12} {:>8}", "known", "active", "process KiB", "kernel KiB", "handles");
    let mut footprints = Vec::new();
    for (known, active) in [(1, 1), (64, 1), (1024, 1), (4096, 1), (4096, 16), (4096, 64)] {
        let one = verbs::footprint([first, second], known, active)?;
        println!("{known:>6} {active:>6} {:>12} {:>12} {:>8}", one.process_kib, one.kernel_kib, one.handles);
        footprints.push(one);
    }
    let idle = footprints[3].process_kib.saturating_sub(footprints[0].process_kib);
    println!("4095 idle peers: {idle} KiB, {:.0} bytes each", idle as f64 * 1024.0 / 4095.0);
    if idle * 1024 > 4095 * 128 || footprints[5].handles > 64 { Err("idle peers cost memory".into()) } else { Ok(()) }
}
