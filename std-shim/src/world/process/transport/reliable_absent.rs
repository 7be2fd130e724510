//! Without the feature `verbs` there is no adapter, and no reliable connection.

use unisono_core::ids::PeerId;

#[derive(Debug, Default)]
pub(in crate::world) struct Reliable {}

impl Reliable {
    pub(in crate::world) const fn is_active(&self) -> bool {
        false
    }

    pub(in crate::world) const fn has_work(&self) -> bool {
        false
    }

    pub(in crate::world) const fn reads(&self) -> [u64; 2] {
        [0; 2]
    }

    pub(in crate::world) const fn disconnect(&mut self, _: PeerId) {}
}
