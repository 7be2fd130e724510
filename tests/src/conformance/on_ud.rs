//! The suite on UD queue pairs of this host's adapters.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use unisono_core::device::{Device, DeviceEvent, DeviceQueue, PathRequest};
use unisono_core::ids::{GroupId, PeerId, Rail};
use unisono_memory::memory_regions::{Address, Regions};
use unisono_verbs::ud::{Domain, Ud, UdOptions, WakeReason};

use super::{Fixture, real_time};

/// Looks for an address handle, 100 µs apart.
const RESOLVING: u32 = 50_000;

/// Devices on several adapters.
#[derive(Debug)]
pub struct UdFixture {
    adapters: Vec<(String, UdOptions)>,
}

impl UdFixture {
    /// Devices on each of these adapters in turn, made so.
    pub const fn new(adapters: Vec<(String, UdOptions)>) -> Self {
        Self { adapters }
    }
}

impl Fixture for UdFixture {
    type Device = Ud<Address>;
    type Memory = Regions;

    fn connect(&mut self, count: u32) -> Vec<(Ud<Address>, Regions)> {
        let adapters = self.adapters.iter().cycle().take(count as usize);
        let mut nodes: Vec<_> = adapters
            .map(|(adapter, options)| {
                let domain = Domain::open(Some(adapter)).expect("the adapter is there");
                let mut device = Ud::new(&domain, options).expect("the adapter has room for a device");
                for group in 0..options.groups {
                    let address = match domain.gid().gid.ipv4() {
                        Some(_) => IpAddr::from(Ipv4Addr::new(239, 77, 5, group as u8)),
                        None => Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x77, 0x500 | group).into(),
                    };
                    device.set_group(GroupId(group.into()), address).expect("the address of a group");
                }
                // SAFETY: the suite runs on one thread, and frees what its device is done with.
                (device, unsafe { Regions::of(domain) })
            })
            .collect();
        let paths: Vec<_> = nodes.iter().map(|(device, _)| device.local()).collect();
        for (device, _) in &mut nodes {
            for (peer, path) in (0..).map(PeerId).zip(&paths) {
                let mtu = device.limits().mtu;
                device.set_path(peer, *path, mtu).expect("the path of a device");
                // Made on another thread; until then only short datagrams wait for it.
                device.request_path(PathRequest::Resolve(peer));
                let resolved = (0..RESOLVING).any(|_| {
                    real_time::sleep(100_000);
                    device.poll_event() == Some(DeviceEvent::Path { peer, rail: Rail(0), mtu })
                });
                assert!(resolved, "no address handle for the path of a device");
            }
        }
        nodes
    }

    fn advance(&mut self, ns: u64) {
        real_time::sleep(ns);
    }

    fn wait(&mut self, device: &mut Ud<Address>, lane: DeviceQueue, ns: u64) -> bool {
        device.arrival_waiter(lane).wait(Some(Duration::from_nanos(ns))) == WakeReason::Arrived
    }

    fn is_faulty(&self) -> bool {
        false
    }
}
