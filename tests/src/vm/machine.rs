//! QEMU: one run from power-on to power-off, read from its serial line.

use core::time::Duration;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use super::{Outcome, Parts, Task};

/// From power-on until the command begins. Emulated, on a busy host, that takes half a minute.
const BOOT: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];

/// Beyond the command's limit: power off.
const END: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(30)];

/// How a machine ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Exit status of the command; 124 when it was ended, 101..=103 when the machine has no modules, devices or share.
    pub status: i32,
    /// From power-on until the command began.
    pub boot: Duration,
    /// From power-on to power-off.
    pub all: Duration,
    /// Machines before it that did not come up.
    pub hung: u32,
}

/// The processor of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Processor {
    /// The host's processor, through KVM.
    Own,
    /// QEMU's translator.
    Emulated,
}

/// Ends QEMU however the run is left.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots, reads until the machine powers off, and says how the command ended. Nothing when the machine does not come to
/// its command.
pub(super) fn boot(parts: &Parts, task: &Task<'_>, each: &mut impl FnMut(&str)) -> Outcome<Option<Verdict>> {
    let started = Instant::now();
    let mut running = Running(qemu(parts, task).spawn()?);
    let output = running.0.stdout.take().ok_or("QEMU has no serial line")?;
    let (line_to, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let Ok(line) = line else { return };
            if line_to.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                return;
            }
        }
    });
    let which = match task.processor {
        Processor::Own => 0,
        Processor::Emulated => 1,
    };
    let mut deadline = started + BOOT[which];
    let (mut status, mut boot) = (None, None);
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if line.starts_with("VM: ready") {
                    boot = Some(started.elapsed());
                    deadline = Instant::now() + task.limit + END[which];
                }
                if let Some(verdict) = line.strip_prefix("VM: EXIT rc=") {
                    status = verdict.split_whitespace().next().and_then(|code| code.parse().ok());
                }
                each(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if boot.is_none() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("the machine hangs: no verdict after {} s", started.elapsed().as_secs()).into());
            }
        }
    }
    let _ = reader.join();
    let ended = running.0.wait()?;
    let status = status.ok_or_else(|| format!("the machine gave no verdict; QEMU ended with {ended}"))?;
    Ok(Some(Verdict { status, boot: boot.unwrap_or_default(), all: started.elapsed(), hung: 0 }))
}

fn qemu(parts: &Parts, task: &Task<'_>) -> Command {
    let Parts { packages, initramfs, share, .. } = parts;
    let mut qemu = Command::new(packages.join("usr/bin/qemu-system-x86_64"));
    qemu.env("LD_LIBRARY_PATH", packages.join("usr/lib/x86_64-linux-gnu"));
    qemu.env("QEMU_MODULE_DIR", packages.join("usr/lib/x86_64-linux-gnu/qemu"));
    for firmware in ["usr/share/qemu", "usr/share/seabios"] {
        qemu.arg("-L").arg(packages.join(firmware));
    }
    match task.processor {
        Processor::Own => qemu.args(["-accel", "kvm", "-cpu", "host"]),
        Processor::Emulated => qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max"]),
    };
    qemu.args(["-M", "q35", "-smp", "2", "-m", "1024", "-nodefaults", "-no-user-config", "-no-reboot"]);
    qemu.args(["-display", "none", "-serial", "stdio"]);
    qemu.arg("-kernel").arg(packages.join("vmlinux")).arg("-initrd").arg(initramfs);
    let (devices, limit) = (task.devices, task.limit.as_secs());
    // Without `tsc` every look at the clock leaves the translated code, and waits for the other processor's. The
    // addresses of programs decide which of their jumps collide in the translator's table: with random addresses
    // latencies differ by half from run to run.
    qemu.arg("-append")
        .arg(format!("console=ttyS0 quiet panic=-1 hugepages=96 mitigations=off tsc=reliable clocksource=tsc norandmaps devices={devices} limit={limit}"));
    qemu.arg("-virtfs").arg(share_option(share));
    qemu.stdin(Stdio::null()).stdout(Stdio::piped());
    qemu
}

fn share_option(share: &Path) -> String {
    format!("local,path={},mount_tag=host,security_model=none,multidevs=remap", share.display())
}
