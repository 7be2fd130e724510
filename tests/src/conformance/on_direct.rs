//! The suite on Soft-RoCE's own queues, posted directly.

use core::time::Duration;

use unisono::region::Regions;
use unisono_core::device::Lane;

use super::{Fixture, real_time};
use crate::verbs::direct::{self, DirectDevice, Size};

/// Devices on several adapters, all made alike.
#[derive(Debug)]
pub struct DirectFixture {
    adapters: Vec<String>,
    size: Size,
}

impl DirectFixture {
    /// Devices like this, on each of these adapters in turn.
    pub const fn new(adapters: Vec<String>, size: Size) -> Self {
        Self { adapters, size }
    }
}

impl Fixture for DirectFixture {
    type Device = DirectDevice;
    type Memory = Regions;

    fn connect(&mut self, count: u32) -> Vec<(DirectDevice, Regions)> {
        let devices = direct::connect(&self.adapters, count, self.size).expect("the adapters have room for devices");
        devices
            .into_iter()
            .map(|direct| (direct.regions(), direct.device))
            .map(|(regions, device)| (device, regions))
            .collect()
    }

    fn advance(&mut self, ns: u64) {
        real_time::spin(ns);
    }

    fn wait(&mut self, device: &mut DirectDevice, lane: Lane, ns: u64) -> bool {
        direct::wait(device, lane, Duration::from_nanos(ns))
    }

    fn is_faulty(&self) -> bool {
        false
    }
}
