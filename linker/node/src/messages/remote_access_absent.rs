//! A node that exposes no memory: a rank that sends requests violates the protocol, since it has no key.

use core::marker::PhantomData;

use unisono_core::ids::PeerId;
use unisono_shmem::segment::SharedBytes;

use super::rings::Rings;

/// Of no records.
#[derive(Debug)]
pub(super) struct AccessStorage<'a, const RANKS: usize>(PhantomData<&'a mut ()>);

/// Of no records.
#[derive(Debug)]
pub(super) struct AccessSlices<'a>(PhantomData<&'a mut ()>);

/// Of no memory.
#[derive(Debug)]
pub(super) struct RemoteAccess<'a>(PhantomData<&'a mut ()>);

impl<'a, const RANKS: usize> AccessStorage<'a, RANKS> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }

    pub(super) const fn slices(&'a mut self) -> AccessSlices<'a> {
        AccessSlices(PhantomData)
    }
}

impl<'a> RemoteAccess<'a> {
    pub(super) const fn new(_: AccessSlices<'a>, _: &Rings<'_>, _: u32) -> Self {
        Self(PhantomData)
    }

    pub(super) const fn handle(&mut self, _: PeerId, _: SharedBytes<'_>) -> Option<()> {
        None
    }

    pub(super) const fn disconnect(&mut self, _: PeerId) {}

    pub(super) const fn is_flushed(&self) -> bool {
        true
    }

    pub(super) const fn progress(&mut self, _: &mut Rings<'_>) -> bool {
        false
    }
}
