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
const WISH: &str = "/dev/cpu_dma_latency";

/// No processor sleeps until this is dropped.
#[derive(Debug)]
pub struct Awake {
    _wish: File,
}

impl Awake {
    /// Requests it. `None`: the system refuses; prints why.
    pub fn begin() -> Option<Self> {
        Self::wish()
            .inspect_err(|error| {
                eprintln!("cannot keep processors from sleeping, so figures may vary more: {WISH}: {error}")
            })
            .ok()
    }

    fn wish() -> io::Result<Self> {
        let mut wish = File::options().write(true).open(WISH)?;
        wish.write_all(&0_i32.to_ne_bytes())?;
        Ok(Self { _wish: wish })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_system_accepts_the_request() {
        let may = File::options().read(true).write(true).open(WISH).is_ok();
        let awake = Awake::begin();
        assert_eq!(awake.is_some(), may);
        if awake.is_some() {
            let mut least = [1; 4];
            let mut heard = File::open(WISH).expect("it can be opened");
            heard.read_exact(&mut least).expect("an answer");
            assert_eq!(i32::from_ne_bytes(least), 0);
        }
    }
}
