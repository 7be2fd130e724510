//! The suite on Soft-RoCE's own queues, posted directly.

use core::time::Duration;
use std::{thread, time::Instant};

use unisono::region::Regions;
use unisono_core::{device::Lane, span::Region};

use super::{
    Fixture,
    on_udp::{make, read, retire, write},
};
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
        let (start, time) = (Instant::now(), Duration::from_nanos(ns));
        while start.elapsed() < time {
            thread::yield_now();
        }
    }

    fn wait(&mut self, device: &mut DirectDevice, lane: Lane, ns: u64) -> bool {
        direct::wait(device, lane, Duration::from_nanos(ns))
    }

    fn is_faulty(&self) -> bool {
        false
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
