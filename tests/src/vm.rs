//! A virtual machine with Soft-RoCE devices: made of Debian's packages, booted by QEMU, judged by its serial line.
//!
//! [`Parts::fetch`] brings kernel, QEMU and rdma-core into a folder, once; [`Parts::boot`] runs a command in a fresh
//! machine whose devices `rxe0`.. are ends of a wire with an MTU of 4200 bytes. The command is a shell line; the
//! programs that it needs are shared with the machine as `/host`. QEMU ends with status 0 whatever happened: the
//! verdict is a line of the machine's first process (`tests/vm/init`), and a machine without one failed.

mod cpio;
mod initramfs;
mod machine;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use core::error::Error;
use core::time::Duration;

use crate::harness::packages::install;

pub use machine::{Processor, Verdict};

/// Machines that are started at most for one command. An emulated kernel hangs once in some hundred boots, in its own
/// self-tests or in bringing its processors together.
const BOOTS: u32 = 3;

/// Result with an error message.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// The parts of a machine.
#[derive(Debug)]
pub struct Parts {
    /// Unpacked packages.
    packages: PathBuf,
    initramfs: PathBuf,
    /// The folder that the machine mounts as `/host`.
    share: PathBuf,
    /// Whether KVM works is tried once for each folder, and written down here.
    tried: PathBuf,
}

/// A task of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// Soft-RoCE devices, 1..=4.
    pub devices: u32,
    /// A line for the shell.
    pub command: &'a str,
    /// The command is ended then; the machine a little later.
    pub limit: Duration,
    /// The processor that executes it.
    pub processor: Processor,
}

impl Parts {
    /// Brings what is missing into `folder`, and builds the initial file system.
    pub fn fetch(folder: &Path) -> Outcome<Self> {
        let packages = folder.join("root");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/fetch");
        let status = Command::new(&script).arg(&packages).status()?;
        if !status.success() {
            let needs = "it needs Debian 12's apt and dpkg, a package index (apt-get update)";
            return Err(format!("{} failed: {status}: {needs} and: {}", script.display(), install("xz-utils")).into());
        }
        let (initramfs, share) = (folder.join("initramfs"), folder.join("share"));
        fs::create_dir_all(&share)?;
        initramfs::build(&packages, &initramfs)?;
        Ok(Self { packages, initramfs, share, tried: folder.join("processor") })
    }

    /// KVM where a machine boots with it, else emulation: a host may have the device and yet run nothing on it.
    pub fn processor(&self) -> Processor {
        match fs::read_to_string(&self.tried).as_deref() {
            Ok("kvm") => return Processor::Own,
            Ok(_) => return Processor::Emulated,
            Err(_) => {}
        }
        let limit = Duration::from_secs(2);
        let task = Task { devices: 1, command: "true", limit, processor: Processor::Own };
        let works = Path::new("/dev/kvm").exists()
            && self.start(&task, &mut |_| {}).is_ok_and(|verdict| verdict.is_some_and(|verdict| verdict.status == 0));
        // Unwritten, it is tried again.
        let _ = fs::write(&self.tried, if works { "kvm" } else { "tcg" });
        if works { Processor::Own } else { Processor::Emulated }
    }

    /// Lets the machine have a program, as `/host/NAME`.
    pub fn share(&self, program: &Path, name: &str) -> io::Result<()> {
        let to = self.share.join(name);
        let _ = fs::remove_file(&to);
        fs::hard_link(program, &to).or_else(|_| fs::copy(program, &to).map(drop))
    }

    /// Runs a command in a fresh machine. Every line of it goes to `each` as it comes. A machine that does not come to
    /// the command has shown nothing of it: another takes its place, three in all. A command that began is not run
    /// again.
    pub fn boot(&self, task: &Task<'_>, mut each: impl FnMut(&str)) -> Outcome<Verdict> {
        for hung in 0..BOOTS {
            if let Some(verdict) = self.start(task, &mut each)? {
                return Ok(Verdict { hung, ..verdict });
            }
        }
        Err(format!("{BOOTS} machines did not come up").into())
    }

    fn start(&self, task: &Task<'_>, each: &mut impl FnMut(&str)) -> Outcome<Option<Verdict>> {
        fs::write(self.share.join("command"), task.command)?;
        machine::boot(self, task, each)
    }
}
