//! Without the feature `verbs` there is no adapter, and nothing is accessed natively.

use unisono_core::ids::PeerId;
use unisono_core::rma::{RKey, RmaCall};

use super::Process;
use super::remote_access::NativeMemory;
use crate::environment::TransportSettings;
use crate::world::window::memory::WindowMemory;

#[derive(Debug, Default)]
pub(in crate::world) struct NativeAccess;

impl NativeAccess {
    /// # Safety
    /// None.
    pub(super) const unsafe fn expose(&mut self, _: RKey, _: WindowMemory) {}

    pub(super) const fn conceal(&mut self, _: RKey) {}

    pub(in crate::world) const fn exposed(&self, _: RKey) -> NativeMemory {
        NativeMemory::NONE
    }

    pub(in crate::world) const fn learn(&mut self, _: PeerId, _: RKey, _: NativeMemory) {}

    pub(in crate::world) const fn reaches(&self, _: PeerId, _: RKey) -> bool {
        false
    }

    pub(in crate::world) const fn forget(&mut self, _: PeerId, _: RKey) {}

    pub(super) const fn has_failed(&self) -> bool {
        false
    }

    pub(super) const fn is_writing(&self, _: PeerId) -> bool {
        false
    }

    pub(in crate::world) const fn counts(&self) -> [u64; 2] {
        [0; 2]
    }

    pub(super) const fn disconnect(&mut self, _: PeerId) {}
}

impl Process {
    pub(super) const fn set_reliable(&mut self, _: &TransportSettings) {}

    pub(super) const fn post_natively(&mut self, _: u64, _: &RmaCall) -> bool {
        false
    }

    pub(super) const fn progress_native(&mut self, _: u64) -> bool {
        false
    }
}
