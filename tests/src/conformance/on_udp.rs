//! The suite on UDP sockets of this host.

use core::time::Duration;

use unisono_core::device::DeviceQueue;
use unisono_core::ids::PeerId;
use unisono_memory::memory_regions::Regions;
use unisono_udp::{Options, Udp, WakeReason};

use super::{Fixture, real_time};

/// Devices that are all made alike, on one host.
#[derive(Debug)]
pub struct UdpFixture {
    options: Options,
}

impl UdpFixture {
    /// Devices like this; the kernel chooses the ports.
    pub const fn new(options: Options) -> Self {
        Self { options }
    }
}

impl Fixture for UdpFixture {
    type Device = Udp;
    type Memory = Regions;

    fn connect(&mut self, count: u32) -> Vec<(Udp, Regions)> {
        let bind = |_| Udp::bind(&self.options).expect("the host has UDP sockets");
        let mut devices: Vec<_> = (0..count).map(bind).collect();
        let paths: Vec<_> = devices.iter().map(|device| device.local().expect("a bound socket")).collect();
        for device in &mut devices {
            for (peer, path) in (0..).map(PeerId).zip(&paths) {
                let mtu = device.mtu();
                device.set_path(peer, *path, mtu).expect("the path of a bound socket");
            }
        }
        // SAFETY: the suite runs on one thread, and frees what its device is done with.
        devices.into_iter().map(|device| (device, unsafe { Regions::new() })).collect()
    }

    fn advance(&mut self, ns: u64) {
        real_time::sleep(ns);
    }

    fn wait(&mut self, device: &mut Udp, lane: DeviceQueue, ns: u64) -> bool {
        device.arrival_waiter(lane).wait(Some(Duration::from_nanos(ns))) == WakeReason::Arrived
    }

    fn is_faulty(&self) -> bool {
        !self.options.faults.is_none()
    }
}
