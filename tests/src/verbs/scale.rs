//! Memory of known and active peers, in the process and in the kernel (seed Fig. 3).

use core::time::Duration;
use std::fs;

use unisono_core::device::{Device, DeviceQueue, Token, Transmit, TxReason};
use unisono_core::ids::PeerId;
use unisono_verbs::ud::{Path, RECORD};

use super::{Adapter, Outcome, VerbsEnd};

/// Memory of a process with an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// Resident memory that only this process has, huge pages included.
    pub process_kib: u64,
    /// Heads, room for copies and receive slots of the device: part of the process.
    pub rings_kib: u64,
    /// What the kernel uses beyond what it used before (`Slab`, `KernelStack`, `PageTables`, `Percpu`, `VmallocUsed` of
    /// `/proc/meminfo`).
    pub kernel_kib: u64,
    /// Address handles.
    pub handles: usize,
}

/// An endpoint that knows `known` peers and has sent to `active` of them.
///
/// # Errors
/// A device cannot be made.
pub fn footprint(adapters: [Adapter<'_>; 2], known: u32, active: u32) -> Outcome<Footprint> {
    let other = super::device(adapters[1], 1)?;
    let before = [process()?, kernel()?];
    let mut end = VerbsEnd::new(0, known + 1, adapters[0], std::time::Instant::now())?;
    let mtu = end.device.limits().mtu;
    for peer in 1..=known {
        // The queues of the other adapter's device stand for all peers.
        let path = Path { polled: other.local().polled, ..other.local() };
        end.device.set_path(PeerId(peer), path, mtu)?;
        let now = end.now();
        end.endpoint.add_peer(now, PeerId(peer), super::incarnation(peer), mtu);
    }
    for peer in 1..=active {
        let mut token = end.device.token(DeviceQueue::Polled).ok_or("no free entry")?;
        token.header_room()[0] = 0;
        let (to, at, cause) = (PeerId(peer), DeviceQueue::Polled, TxReason::First);
        token.post(
            &Transmit { to: to.into(), queue: at, header_bytes: 1, payload: None, solicited: false, reason: cause },
            None,
        );
    }
    end.device.flush(DeviceQueue::Polled);
    super::within(Duration::from_secs(5), "address handles", || {
        end.device.poll_event();
        Ok((end.device.handles() == active as usize).then_some(()))
    })?;
    const { assert!(RECORD <= 24) };
    let [process, kernel] = [process()?.saturating_sub(before[0]), kernel()?.saturating_sub(before[1])];
    let rings_kib = end.device.ring_bytes() as u64 >> 10;
    Ok(Footprint { process_kib: process, rings_kib, kernel_kib: kernel, handles: end.device.handles() })
}

fn process() -> Outcome<u64> {
    sum("/proc/self/status", &["RssAnon", "HugetlbPages"])
}

fn kernel() -> Outcome<u64> {
    sum("/proc/meminfo", &["Slab", "KernelStack", "PageTables", "Percpu", "VmallocUsed"])
}

/// The sum of some lines of a file of the kernel's, in KiB.
fn sum(file: &str, names: &[&str]) -> Outcome<u64> {
    let text = fs::read_to_string(file)?;
    let line = |name: &&str| {
        let line = text.lines().find_map(|line| line.strip_prefix(*name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    Ok(names.iter().map(line).sum())
}
