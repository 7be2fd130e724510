//! Keeps processors from sleeping during a measurement.
//!
//! A hypervisor may run a virtual processor that slept on another core when it wakes. Two of them on one core, on one
//! die, or on two pass a line between each other in times that differ by ten, so that programs that are compared one
//! after the other run on different machines in effect. A processor that polls when it is idle stays where it is for
//! seconds, and takes nothing from those that run.

use std::{
    fs::File,
    io::{self, Write as _},
};

/// The CPU latency limit of Linux in microseconds, in force while the file is open
/// (`Documentation/power/pm_qos_interface`).
const PM_QOS_DEVICE: &str = "/dev/cpu_dma_latency";

/// No processor sleeps until this is dropped.
#[derive(Debug)]
pub struct CpuLatencyRequest {
    _file: File,
}

impl CpuLatencyRequest {
    /// Requests it. `None`: the system refuses; prints why.
    pub fn begin() -> Option<Self> {
        Self::request()
            .inspect_err(|error| {
                eprintln!("cannot keep processors from sleeping, so figures may vary more: {PM_QOS_DEVICE}: {error}")
            })
            .ok()
    }

    fn request() -> io::Result<Self> {
        let mut file = File::options().write(true).open(PM_QOS_DEVICE)?;
        file.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_system_accepts_the_request() {
        let may = File::options().read(true).write(true).open(PM_QOS_DEVICE).is_ok();
        let awake = CpuLatencyRequest::begin();
        assert_eq!(awake.is_some(), may);
        if awake.is_some() {
            let mut least = [1; 4];
            let mut device = File::open(PM_QOS_DEVICE).expect("it can be opened");
            device.read_exact(&mut least).expect("an answer");
            assert_eq!(i32::from_ne_bytes(least), 0);
        }
    }
}
