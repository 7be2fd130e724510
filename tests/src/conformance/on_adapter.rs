//! The suite on mlx5 work queues over the software adapter.

use std::thread;

use unisono_core::device::DeviceQueue;

use super::Fixture;
use crate::mlx5::adapter::{AdapterDevice, AdapterMemory, Adapters, Config, take_event};

/// Devices on adapters that are connected with each other.
#[derive(Debug)]
pub struct AdapterFixture {
    adapters: Adapters,
    config: Config,
}

impl AdapterFixture {
    /// Adapters like this.
    pub fn new(config: Config) -> Self {
        Self { adapters: Adapters::new(config), config }
    }
}

impl Drop for AdapterFixture {
    fn drop(&mut self) {
        let troubles = self.adapters.violations();
        assert!(troubles.is_empty() || thread::panicking(), "{troubles:#?}");
    }
}

impl Fixture for AdapterFixture {
    type Device = AdapterDevice;
    type Memory = AdapterMemory;

    fn connect(&mut self, count: u32) -> Vec<(AdapterDevice, AdapterMemory)> {
        self.adapters.connect(count)
    }

    fn advance(&mut self, _: u64) {
        self.adapters.settle();
    }

    fn wait(&mut self, device: &mut AdapterDevice, lane: DeviceQueue, _: u64) -> bool {
        self.adapters.settle();
        take_event(device, lane)
    }

    fn is_faulty(&self) -> bool {
        !self.config.faults.is_none()
    }
}
