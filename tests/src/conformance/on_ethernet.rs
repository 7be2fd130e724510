//! The suite on datagrams over `smoltcp`'s adapters, in memory.

use core::net::Ipv4Addr;

use unisono_core::device::{Armed, Device, DeviceQueue, PathRequest};
use unisono_core::ids::PeerId;
use unisono_ethernet::{
    address_table::{AddressEntry, Interface, Path},
    device::{Buffer, EthernetDevice, SPARE},
    smoltcp::wire::Ipv4Cidr,
};
use unisono_memory::memory_regions::{Address, Regions};
use unisono_udp::fault_injection::Faults;

use super::Fixture;
use crate::sim::ethernet_hub::{Hub, Port, hardware};

/// UDP payload of the largest buffer.
const BYTES: usize = 8972;

/// Devices at one hub.
#[derive(Debug)]
pub struct EthernetFixture {
    /// Bytes of the longest frame.
    frame: usize,
    slots: usize,
    holdable: usize,
    faults: Faults,
    ports: Vec<Port>,
}

impl EthernetFixture {
    /// Devices whose frames have at most `frame` bytes, of which `slots` wait, and that can hold `holdable` datagrams.
    pub const fn new(frame: usize, slots: usize, holdable: usize, faults: Faults) -> Self {
        Self { frame, slots, holdable, faults, ports: Vec::new() }
    }
}

/// The device of this number, at this port, which knows as many peers as there are.
pub fn device(port: Port, number: u8, count: u8, holdable: usize) -> EthernetDevice<'static, Port, Address, BYTES> {
    let address = |number| Ipv4Addr::new(10, 0, 0, number + 1);
    let own = Interface {
        hardware: hardware(number),
        address: Ipv4Cidr::new(address(number), 24),
        gateway: None,
        port: 7000 + u16::from(number),
    };
    // A test's devices live as long as it does.
    let neighbours = vec![AddressEntry::UNKNOWN; count.into()].leak();
    let buffers = vec![Buffer::FREE; holdable + SPARE].leak();
    let mut device = EthernetDevice::new(port, own, neighbours, buffers).expect("an interface");
    for peer in 0..count {
        let path = Path { address: address(peer), ports: [7000 + u16::from(peer); 2], mtu: device.mtu() };
        device.set_path(PeerId(peer.into()), path).expect("a path");
    }
    device
}

impl Fixture for EthernetFixture {
    type Device = EthernetDevice<'static, Port, Address, BYTES>;
    type Memory = Regions;

    fn connect(&mut self, count: u32) -> Vec<(Self::Device, Regions)> {
        let count = u8::try_from(count).expect("a few devices");
        self.ports = Hub::ports(count, self.frame, self.slots, self.faults);
        let made = self.ports.iter().cloned().zip(0..).map(|(port, number)| device(port, number, count, self.holdable));
        let mut devices: Vec<_> = made.collect();
        // Each device resolves all others.
        for asking in 0..devices.len() {
            for peer in (0..).map(PeerId).take(devices.len()).filter(|peer| peer.0 as usize != asking) {
                while devices[asking].poll_event().is_none() {
                    devices[asking].request_path(PathRequest::Resolve(peer));
                    for device in &mut devices {
                        assert!(device.receive(DeviceQueue::Polled).is_none(), "nobody sends yet");
                    }
                    self.ports[0].settle();
                }
                while devices[asking].poll_event().is_some() {}
            }
        }
        for device in &mut devices {
            assert!(device.receive(DeviceQueue::Polled).is_none(), "nobody sends yet");
        }
        // SAFETY: the suite runs on one thread, and frees what its device is done with.
        devices.into_iter().map(|device| (device, unsafe { Regions::new() })).collect()
    }

    fn advance(&mut self, _: u64) {
        if let Some(port) = self.ports.first() {
            port.settle();
        }
    }

    fn wait(&mut self, device: &mut Self::Device, lane: DeviceQueue, _: u64) -> bool {
        device.arm(lane) == Armed::Pending
    }

    fn is_faulty(&self) -> bool {
        !self.faults.is_none()
    }
}
