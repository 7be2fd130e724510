//! The suite on the simulated network.

use unisono_core::device::DeviceQueue;

use super::Fixture;
use crate::sim::{Config, Network, SimDevice, SimMemory};

/// Devices of one simulated network.
#[derive(Debug)]
pub struct SimFixture {
    network: Network,
    config: Config,
}

impl SimFixture {
    /// A network like this.
    pub fn new(config: Config) -> Self {
        Self { network: Network::new(7, config), config }
    }
}

impl Fixture for SimFixture {
    type Device = SimDevice;
    type Memory = SimMemory;

    fn connect(&mut self, count: u32) -> Vec<(SimDevice, SimMemory)> {
        let network = &self.network;
        let node = |_| network.add_node();
        (0..count).map(node).map(|node| (network.device(node), network.memory(node))).collect()
    }

    fn advance(&mut self, ns: u64) {
        let deadline = self.network.now() + ns;
        while self.network.step_until(deadline).is_some() {}
    }

    fn wait(&mut self, device: &mut SimDevice, lane: DeviceQueue, ns: u64) -> bool {
        let deadline = self.network.now() + ns;
        loop {
            if device.take_event(lane) {
                return true;
            }
            if self.network.step_until(deadline).is_none() {
                return false;
            }
        }
    }

    fn is_faulty(&self) -> bool {
        !self.config.faults.is_none()
    }
}
