//! Memory registration of the software adapter: ranges and their keys.

use alloc::rc::Rc;
use core::cell::RefCell;
use core::ptr::{self, NonNull};
use std::collections::HashMap;

use unisono_core::device::Memory;
use unisono_core::span::{Region, Span};
use unisono_memory::memory_regions::{Address, Regions};
use unisono_verbs::registered_memory::RegisteredMemory;

use super::network::AdapterNetwork;

/// Registered ranges by key.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    ranges: HashMap<u32, (usize, usize)>,
    keys: u32,
}

impl Registrations {
    pub(super) fn register(&mut self, start: NonNull<u8>, bytes: usize) -> u32 {
        // Keys of adapters do not count from 0 on.
        self.keys = self.keys.wrapping_add(0x0101_0703);
        self.ranges.insert(self.keys, (start.as_ptr().expose_provenance(), bytes));
        self.keys
    }

    fn withdraw(&mut self, key: u32) {
        self.ranges.remove(&key);
    }

    /// The place of `bytes` bytes, if the key covers them.
    fn at(&self, key: u32, address: u64, bytes: usize) -> Option<*mut u8> {
        let (start, length) = *self.ranges.get(&key)?;
        let offset = usize::try_from(address).ok()?.checked_sub(start)?;
        (offset.checked_add(bytes)? <= length).then(|| ptr::with_exposed_provenance_mut(start + offset))
    }

    pub(super) fn read(&self, key: u32, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let (from, mut read) = (self.at(key, address, bytes)?, vec![0; bytes]);
        // SAFETY: the code that registered the range promised that it is valid until it is withdrawn.
        unsafe { from.copy_to_nonoverlapping(read.as_mut_ptr(), bytes) };
        Some(read)
    }

    pub(super) fn write(&self, key: u32, address: u64, bytes: &[u8]) -> Option<()> {
        let to = self.at(key, address, bytes.len())?;
        // SAFETY: the code that registered the range promised that it is valid until it is withdrawn.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Some(())
    }
}

/// Address and key of a span.
#[derive(Clone, Copy, Debug)]
pub struct AdapterAddress {
    address: Address,
    key: u32,
}

// SAFETY: addresses are of live regions, which `AdapterMemory` registers before it gives one out, and to whose bytes
// nobody makes a reference.
unsafe impl RegisteredMemory for AdapterAddress {
    fn start(self) -> NonNull<u8> {
        self.address.adjacent().unwrap_or(NonNull::dangling())
    }

    fn bytes(self) -> usize {
        self.address.bytes()
    }

    fn key(self) -> Option<u32> {
        Some(self.key)
    }
}

/// Regions that are registered with the adapter.
#[derive(Debug)]
pub struct AdapterMemory {
    regions: Regions,
    keys: HashMap<Region, u32>,
    network: Rc<RefCell<AdapterNetwork>>,
}

impl AdapterMemory {
    pub(super) fn new(network: Rc<RefCell<AdapterNetwork>>) -> Self {
        // SAFETY: everything runs on one thread, and what is retired no posting uses (`retire`).
        Self { regions: unsafe { Regions::new() }, keys: HashMap::new(), network }
    }

    /// A new region of zeros.
    pub fn make(&mut self, bytes: usize) -> Region {
        let region = self.regions.allocate(bytes).expect("a region of a test is small");
        let whole = self.regions.address(Span { region, offset: 0, bytes: bytes as u32 }).expect("it is valid");
        let key = self.network.borrow_mut().memory.register(whole.adjacent().expect("it has no layout"), bytes);
        self.keys.insert(region, key);
        region
    }

    /// Retires a region that no posting uses.
    pub fn retire(&mut self, region: Region) {
        if let Some(key) = self.keys.remove(&region) {
            self.network.borrow_mut().memory.withdraw(key);
        }
        self.regions.revoke(region);
        // SAFETY: the adapter does not know it any more, and the caller says that nobody else uses it.
        unsafe { self.regions.free(region) };
    }

    /// Copies bytes into a region, within its bounds.
    pub fn write(&mut self, region: Region, offset: usize, bytes: &[u8]) {
        let address = self.regions.address(Span { region, offset, bytes: bytes.len() as u32 });
        // SAFETY: the region lives, as its address proves, and everything runs on this thread.
        unsafe { address.expect("within the region").write(bytes) };
    }

    /// Copies bytes out of a region, within its bounds.
    pub fn read(&self, region: Region, offset: usize, bytes: usize) -> Vec<u8> {
        let (address, mut read) = (self.regions.address(Span { region, offset, bytes: bytes as u32 }), vec![0; bytes]);
        // SAFETY: the region lives, as its address proves, and everything runs on this thread.
        unsafe { address.expect("within the region").read(&mut read) };
        read
    }
}

impl Memory for AdapterMemory {
    type Address = AdapterAddress;

    fn address(&self, span: Span) -> Option<AdapterAddress> {
        Some(AdapterAddress { address: self.regions.address(span)?, key: *self.keys.get(&span.region)? })
    }
}
