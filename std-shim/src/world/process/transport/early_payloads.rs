//! Memory for messages of collectives that arrive before their receive: one buffer per slot of the core's transport,
//! allocated on first use.

use unisono_core::span::{Region, Span};

use crate::world::process::bounce_buffers::EAGER_MAX;
use unisono_memory::memory_regions::Regions;

/// The region that the core's spans of these buffers name, [`EAGER_MAX`] bytes each. No registered region has this
/// number.
pub(in crate::world) const EARLY_PAYLOADS: Region = Region::new(u32::MAX, 0);

/// The buffers.
#[derive(Debug, Default)]
pub(in crate::world) struct EarlyPayloads {
    buffers: Vec<Option<Region>>,
}

impl EarlyPayloads {
    /// The span in registered memory: that of a buffer, or the given one. `None`: the system has no memory.
    pub(in crate::world) fn resolve(&mut self, span: Span, regions: &mut Regions) -> Option<Span> {
        if span.region != EARLY_PAYLOADS {
            return Some(span);
        }
        let (slot, offset) = (span.offset / EAGER_MAX, span.offset % EAGER_MAX);
        if self.buffers.len() <= slot {
            self.buffers.resize(slot + 1, None);
        }
        let buffer = self.buffers.get_mut(slot)?;
        if buffer.is_none() {
            *buffer = regions.allocate(EAGER_MAX).ok();
        }
        Some(Span { region: (*buffer)?, offset, ..span })
    }
}
