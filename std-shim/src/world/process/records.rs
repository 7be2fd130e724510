//! Records that a process keeps of its operations under way, by index.

use unisono_core::ids::{PeerId, PlacementId};
use unisono_core::rma::Owner;
use unisono_core::span::Span;

use super::bounce_buffers::BounceBuffer;
use unisono_memory::memory_regions::RegionRange;

/// What the completion of an operation of the endpoint ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum OperationOwner {
    Nothing,
    /// Its payload is in a bounce buffer, which becomes free.
    Cell(BounceBuffer),
    /// Its payload is the user buffer of this request.
    Request(u32, PeerId),
    /// A use of memory by remote memory access.
    RemoteAccess(Owner),
}

/// A collective's message that was announced to a rank of this node and waits for its receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnnouncedSend {
    pub(super) to: PeerId,
    pub(super) from: Span,
    pub(super) request: u32,
}

/// Memory granted to a remote peer for a receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantedPlacement {
    pub(super) placement: PlacementId,
    pub(super) to: PeerId,
    pub(super) request: u32,
}

/// Sends that wait to be flushed together.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SendBatch {
    pub(super) sends: usize,
    /// Number of sends after which the batch is flushed: a whole number of GSO trains of the first one's length.
    pub(super) max_sends: usize,
    pub(super) bytes: usize,
}

/// A rendezvous message that arrives in fragments.
#[derive(Clone, Copy, Debug)]
pub(super) struct RendezvousReceive {
    pub(super) from: PeerId,
    pub(super) into: RegionRange,
    pub(super) placed: usize,
    pub(super) request: u32,
}

/// Stores a value at an index, and extends the table to it.
pub(super) fn put<T>(places: &mut Vec<Option<T>>, i: u32, value: T) {
    let i = i as usize;
    while places.len() <= i {
        places.push(None);
    }
    if let Some(place) = places.get_mut(i) {
        *place = Some(value);
    }
}
