//! The suite on UDP sockets of this host.

use core::time::Duration;
use std::{thread, time::Instant};

use unisono::{
    region::Regions,
    udp::{Options, Udp, Woken},
};
use unisono_core::{
    device::{Lane, Memory, PeerId},
    span::{Region, Span},
};

use super::Fixture;

/// Shorter times are not worth a sleep.
const SPIN: Duration = Duration::from_micros(60);

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
        devices.into_iter().map(|device| (device, Regions::new())).collect()
    }

    fn advance(&mut self, ns: u64) {
        let (start, time) = (Instant::now(), Duration::from_nanos(ns));
        if time > SPIN {
            thread::sleep(time);
        }
        while start.elapsed() < time {
            thread::yield_now();
        }
    }

    fn wait(&mut self, device: &mut Udp, lane: Lane, ns: u64) -> bool {
        device.bell(lane).wait(Some(Duration::from_nanos(ns))) == Woken::Arrived
    }

    fn is_faulty(&self) -> bool {
        !self.options.faults.is_none()
    }

    fn make(&mut self, memory: &mut Regions, bytes: usize) -> Region {
        make(memory, bytes)
    }

    fn retire(&mut self, memory: &mut Regions, region: Region) {
        retire(memory, region);
    }

    fn write(&mut self, memory: &mut Regions, region: Region, offset: usize, bytes: &[u8]) {
        write(memory, region, offset, bytes);
    }

    fn read(&mut self, memory: &mut Regions, region: Region, offset: usize, bytes: usize) -> Vec<u8> {
        read(memory, region, offset, bytes)
    }
}

pub(super) fn make(memory: &mut Regions, bytes: usize) -> Region {
    memory.allocate(bytes).expect("a region of a test is small")
}

pub(super) fn retire(memory: &mut Regions, region: Region) {
    memory.revoke(region);
    // SAFETY: the suite retires what it lent after its ticket is complete, and what it placed into between calls of the
    // device, which copies only when it is told to.
    unsafe { memory.free(region) };
}

pub(super) fn write(memory: &mut Regions, region: Region, offset: usize, bytes: &[u8]) {
    let address = memory.address(Span { region, offset, bytes: bytes.len() as u32 });
    let address = address.expect("the suite writes within its regions");
    // SAFETY: the region lives, as its address proves, and everything runs on this thread.
    unsafe { address.write(bytes) };
}

pub(super) fn read(memory: &mut Regions, region: Region, offset: usize, bytes: usize) -> Vec<u8> {
    let address = memory.address(Span { region, offset, bytes: bytes as u32 });
    let (address, mut read) = (address.expect("the suite reads within its regions"), vec![0; bytes]);
    // SAFETY: as above.
    unsafe { address.read(&mut read) };
    read
}
