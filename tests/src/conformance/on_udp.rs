//! The suite on UDP sockets of this host.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicU16, Ordering};
use core::time::Duration;

use unisono_core::device::DeviceQueue;
use unisono_core::ids::{GroupId, PeerId, Rail};
use unisono_memory::memory_regions::Regions;
use unisono_udp::{GroupAddress, Options, Udp, WakeReason};

use super::{Fixture, real_time};

/// Devices that are all made alike, on one host.
#[derive(Debug)]
pub struct UdpFixture {
    options: Options,
    /// Port of the groups.
    port: u16,
}

impl UdpFixture {
    /// Devices like this; the kernel chooses the ports.
    pub fn new(options: Options) -> Self {
        let process = std::process::id() as u16 % 100 * 200;
        Self { options, port: 20_000 + process + NEXT_PORT.fetch_add(1, Ordering::Relaxed) % 200 }
    }
}

/// Ports of groups, so that fixtures that run at the same time do not share one.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

impl UdpFixture {
    fn group(&self, number: u16) -> GroupAddress {
        let ip = match self.options.local {
            IpAddr::V4(_) => Ipv4Addr::new(239, 77, 3, number as u8).into(),
            IpAddr::V6(_) => Ipv6Addr::new(0xff11, 0, 0, 0, 0, 0, 0x77, number).into(),
        };
        // The loopback interface has index 1.
        let interface = u32::from(self.options.local.is_ipv6());
        GroupAddress { address: SocketAddr::new(ip, self.port), hops: 1, interface }
    }
}

impl Fixture for UdpFixture {
    type Device = Udp;
    type Memory = Regions;

    fn connect(&mut self, count: u32) -> Vec<(Udp, Regions)> {
        let bind = |_| Udp::bind(&self.options).expect("the host has UDP sockets");
        let mut devices: Vec<_> = (0..count).map(bind).collect();
        let rails = (0..=self.options.further_rails.len() as u8).map(Rail);
        let path = |device: &Udp, rail| device.local_on(rail).expect("a bound socket");
        let paths: Vec<Vec<_>> =
            devices.iter().map(|device| rails.clone().map(|rail| (rail, path(device, rail))).collect()).collect();
        for device in &mut devices {
            for (peer, paths) in (0..).map(PeerId).zip(&paths) {
                let mtu = device.mtu();
                for (rail, path) in paths {
                    device.set_rail_path(peer, *rail, *path, mtu).expect("the path of a bound socket");
                }
            }
            for number in 0..self.options.groups.min(2) {
                let address = self.group(number);
                device.set_group(GroupId(number.into()), address).expect("the address of a group");
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
