//! What the virtual machine of `--bin vm` runs: one check of the UD device at a time. Ends with status 1 when it fails.

use core::net::IpAddr;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use unisono_core::device::Cause;
use unisono_tests::conformance::{Outcome as Kept, UdFixture, examine};
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
                    "{name:<8} port {}, GID {} ({:?}, index {}), mtu {mtu}",
                    domain.port(),
                    gid.gid,
                    gid.encapsulation,
                    gid.index
                );
            }
        }
        Check::Conformance { only } => return conformance(&names, only),
        Check::Transfer { bytes, resent } => {
            let done = verbs::transfer(pair()?, *bytes)?;
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
        Check::Removal { interface } => {
            println!("closed after {} ms", verbs::removal(pair()?, interface)?.as_millis());
        }
    }
    Ok(())
}

fn conformance(adapters: &[String], only: &str) -> Outcome<()> {
    let options = Ud { receive_slots: 256, holdable: 64, ..Ud::new(3, 0x7e57) };
    let findings = examine(|| UdFixture::new(adapters.to_vec(), options.clone()));
    let mut broken = 0;
    for finding in &findings {
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
