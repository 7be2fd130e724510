//! Bar 7: memory of an idle peer, in the core's records and in the device's address table.
//!
//! `(RSS with 1 048 576 peers − RSS with 16 384) ÷ 1 032 192`, each in a process of its own.

use core::{
    error::Error,
    net::{IpAddr, Ipv4Addr},
};
use std::{
    env, fs,
    process::{Command, ExitCode},
};

use clap::Parser;
use unisono_core::device::Device;
use unisono_core::endpoint::Config;
use unisono_core::ids::{Incarnation, PeerId};
use unisono_memory::endpoint_storage::{EndpointSizes, ProcessEndpoint};
use unisono_tests::harness::report::{Limit, Report};
use unisono_udp::{MTU_MAX, Options as UdpOptions, Path, Udp};

const MANY: u32 = 1 << 20;
const FEW: u32 = 1 << 14;

/// Bytes of resident memory that each idle peer costs.
#[derive(Parser)]
struct Options {
    /// Only prints the resident memory in bytes of a process with this number of peers.
    #[arg(long, hide = true)]
    peers: Option<u32>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

fn resident() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmRSS")?.parse()?;
    Ok(kib << 10)
}

/// Resident memory of a process with this number of peers, each with an address and an incarnation of its own.
fn fill(peers: u32) -> Result<u64, Box<dyn Error>> {
    let mut device = Udp::bind(&UdpOptions::new(Ipv4Addr::LOCALHOST.into(), peers))?;
    let limits = device.limits();
    let config = Config::new(PeerId(0), Incarnation(1), &limits);
    let mut endpoint = ProcessEndpoint::new(0, config, EndpointSizes::of_job(peers as usize).pools());
    for rank in 1..peers {
        let address = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + rank));
        let [polled, interrupt] = [1024 + (rank % 60_000) as u16, 1025 + (rank % 60_000) as u16];
        device.set_path(PeerId(rank), Path { address, polled, interrupt }, MTU_MAX)?;
        endpoint.add_peer(0, PeerId(rank), Incarnation(rank.wrapping_mul(0x9e37_79b9) | 1), limits.mtu);
    }
    let bytes = resident()?;
    let known = (1..peers).filter(|rank| endpoint.incarnation(PeerId(*rank)).is_some()).count();
    if known as u32 + 1 != peers {
        return Err(format!("only {known} peers were added").into());
    }
    Ok(bytes)
}

fn measure(peers: u32) -> Result<u64, Box<dyn Error>> {
    let output = Command::new(env::current_exe()?).args(["--peers", &peers.to_string()]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    if let Some(peers) = options.peers {
        println!("{}", fill(peers)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::new(7, options.json);
    let (many, few) = (measure(MANY)?, measure(FEW)?);
    report.figure("resident", "1048576 peers", many as f64, "bytes", Limit::None);
    report.figure("resident", "16384 peers", few as f64, "bytes", Limit::None);
    let each = many.saturating_sub(few) as f64 / f64::from(MANY - FEW);
    report.figure("idle_peer", "", each, "bytes", Limit::Most(64.0));
    Ok(report.end())
}
