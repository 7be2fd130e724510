//! User memory of the suite.

use unisono_core::{
    device::Memory,
    span::{Region, Span},
};
use unisono_memory::memory_regions::Regions;

use crate::{mlx5::adapter::AdapterMemory, sim::SimMemory};

/// Memory whose regions the suite creates, writes and reads.
pub trait TestMemory: Memory {
    /// A new region of zeros.
    fn make(&mut self, bytes: usize) -> Region;
    /// Retires a region.
    fn retire(&mut self, region: Region);
    /// Copies bytes into a region, within its bounds.
    fn write(&mut self, region: Region, offset: usize, bytes: &[u8]);
    /// Copies bytes out of a region, within its bounds.
    fn read(&mut self, region: Region, offset: usize, bytes: usize) -> Vec<u8>;
}

impl TestMemory for Regions {
    fn make(&mut self, bytes: usize) -> Region {
        self.allocate(bytes).expect("a region of a test is small")
    }

    fn retire(&mut self, region: Region) {
        self.revoke(region);
        // SAFETY: the suite retires a region that it posted after its ticket is complete, and a region that it placed
        // into between calls of the device, which copies only on request.
        unsafe { self.free(region) };
    }

    fn write(&mut self, region: Region, offset: usize, bytes: &[u8]) {
        let address = self.address(Span { region, offset, bytes: bytes.len() as u32 });
        let address = address.expect("the suite writes within its regions");
        // SAFETY: the region lives, as its address proves, and everything runs on this thread.
        unsafe { address.write(bytes) };
    }

    fn read(&mut self, region: Region, offset: usize, bytes: usize) -> Vec<u8> {
        let address = self.address(Span { region, offset, bytes: bytes as u32 });
        let (address, mut read) = (address.expect("the suite reads within its regions"), vec![0; bytes]);
        // SAFETY: the region lives, as its address proves, and everything runs on this thread.
        unsafe { address.read(&mut read) };
        read
    }
}

impl TestMemory for SimMemory {
    fn make(&mut self, bytes: usize) -> Region {
        Self::make(self, bytes)
    }

    fn retire(&mut self, region: Region) {
        Self::retire(self, region);
    }

    fn write(&mut self, region: Region, offset: usize, bytes: &[u8]) {
        Self::write(self, region, offset, bytes).expect("the suite writes within its regions");
    }

    fn read(&mut self, region: Region, offset: usize, bytes: usize) -> Vec<u8> {
        let span = Span { region, offset, bytes: bytes as u32 };
        Self::read(self, span).expect("the suite reads within its regions")
    }
}

impl TestMemory for AdapterMemory {
    fn make(&mut self, bytes: usize) -> Region {
        Self::make(self, bytes)
    }

    fn retire(&mut self, region: Region) {
        Self::retire(self, region);
    }

    fn write(&mut self, region: Region, offset: usize, bytes: &[u8]) {
        Self::write(self, region, offset, bytes);
    }

    fn read(&mut self, region: Region, offset: usize, bytes: usize) -> Vec<u8> {
        Self::read(self, region, offset, bytes)
    }
}
