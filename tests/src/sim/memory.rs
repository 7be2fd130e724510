//! Memory of the simulated nodes: regions are byte vectors, addresses are indices.

use alloc::rc::Rc;
use core::cell::RefCell;

use unisono_core::{
    device::Memory,
    span::{Region, Span},
};

use super::{NodeId, fabric::Fabric};

/// Bytes of one region, as the simulated devices name them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SimAddress {
    region: Region,
    offset: usize,
    bytes: u32,
}

#[derive(Debug, Default)]
struct SimRegion {
    /// Starts at 1: the default region is never valid.
    generation: u32,
    node: Option<u32>,
    bytes: Vec<u8>,
}

/// The regions of all nodes.
#[derive(Debug, Default)]
pub(super) struct SimRegions {
    all: Vec<SimRegion>,
    free: Vec<u32>,
}

impl SimRegions {
    fn make(&mut self, node: u32, bytes: usize) -> Region {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(SimRegion { generation: 1, ..SimRegion::default() });
            u32::try_from(self.all.len() - 1).expect("fewer than 2^32 regions")
        });
        let store = &mut self.all[index as usize];
        store.node = Some(node);
        store.bytes.resize(bytes, 0);
        Region::new(index, store.generation)
    }

    fn of_node(&self, node: u32, region: Region) -> Option<&[u8]> {
        let store = self.all.get(region.index() as usize)?;
        (store.node == Some(node) && store.generation == region.generation()).then_some(&store.bytes[..])
    }

    fn retire(&mut self, node: u32, region: Region) {
        if self.of_node(node, region).is_some() {
            let store = &mut self.all[region.index() as usize];
            *store = SimRegion { generation: store.generation.wrapping_add(1), ..SimRegion::default() };
            self.free.push(region.index());
        }
    }

    pub(super) fn retire_all(&mut self, node: u32) {
        for index in 0..self.all.len() {
            let region = Region::new(index as u32, self.all[index].generation);
            self.retire(node, region);
        }
    }

    fn address(&self, node: u32, span: Span) -> Option<SimAddress> {
        let end = span.offset.checked_add(span.bytes as usize)?;
        let bytes = self.of_node(node, span.region)?;
        (end <= bytes.len()).then_some(SimAddress { region: span.region, offset: span.offset, bytes: span.bytes })
    }

    /// `None` when the region was retired since the address was made.
    pub(super) fn read(&self, address: SimAddress) -> Option<&[u8]> {
        let store = self.all.get(address.region.index() as usize)?;
        if store.generation != address.region.generation() {
            return None;
        }
        store.bytes.get(address.offset..)?.get(..address.bytes as usize)
    }

    /// As [`read`](Self::read). At most as many bytes as the address covers.
    pub(super) fn write(&mut self, address: SimAddress, from: &[u8]) -> Option<()> {
        let store = self.all.get_mut(address.region.index() as usize)?;
        if store.generation != address.region.generation() || from.len() > address.bytes as usize {
            return None;
        }
        store.bytes.get_mut(address.offset..)?.get_mut(..from.len())?.copy_from_slice(from);
        Some(())
    }
}

/// The memory of one node.
#[derive(Clone, Debug)]
pub struct SimMemory {
    fabric: Rc<RefCell<Fabric>>,
    node: u32,
}

impl SimMemory {
    pub(super) const fn new(fabric: Rc<RefCell<Fabric>>, node: NodeId) -> Self {
        Self { fabric, node: node.0 }
    }

    /// A new region of zeros.
    pub fn make(&mut self, bytes: usize) -> Region {
        self.fabric.borrow_mut().stores.make(self.node, bytes)
    }

    /// Retires a region.
    pub fn retire(&mut self, region: Region) {
        self.fabric.borrow_mut().stores.retire(self.node, region);
    }

    /// Copies out a span; `None` where [`address`](Memory::address) returns `None`.
    pub fn read(&self, span: Span) -> Option<Vec<u8>> {
        let address = self.address(span)?;
        self.fabric.borrow().stores.read(address).map(<[u8]>::to_vec)
    }

    /// Copies bytes into a region; `None` when they do not fit in it or it was retired.
    pub fn write(&mut self, region: Region, offset: usize, bytes: &[u8]) -> Option<()> {
        let address = self.address(Span { region, offset, bytes: u32::try_from(bytes.len()).ok()? })?;
        self.fabric.borrow_mut().stores.write(address, bytes)
    }
}

impl Memory for SimMemory {
    type Address = SimAddress;

    fn address(&self, span: Span) -> Option<SimAddress> {
        self.fabric.borrow().stores.address(self.node, span)
    }
}
