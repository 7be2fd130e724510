//! The records of an endpoint, placed one after the other in memory that the program lends.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use unisono_core::endpoint::operation::Operation;
use unisono_core::endpoint::peer::Peer;
use unisono_core::endpoint::placement::Placement;
use unisono_core::endpoint::storage::Storage;
use unisono_core::endpoint::{ControlMessage, Pools, Sender};
use unisono_core::time::Nanos;
use unisono_core::window::rails::RailState;
use unisono_core::window::receive_window::ReceiveWindow;

use crate::device::{Datagram, NO_DATAGRAM};
use crate::exports::Core;

/// Segments of a window.
pub(crate) const WINDOW: usize = 64;
/// Operations in progress at a time.
pub(crate) const OPERATIONS: usize = 256;
/// Grants outstanding at a time.
const PLACEMENTS: usize = 64;
/// Control messages that wait.
const CONTROL_MESSAGES: usize = 32;
/// Most peers with unacknowledged segments at a time.
const WINDOWS_MAX: usize = 64;

/// Records in lent slices.
#[derive(Debug)]
pub(crate) struct Lent;

impl Storage<WINDOW, 32> for Lent {
    type Time = Nanos;
    type Peers = &'static mut [Peer<Nanos, 32>];
    type Senders = &'static mut [Sender<Nanos, WINDOW, 32>];
    type Rails = [RailState<Nanos>; 0];
    type Receivers = &'static mut [ReceiveWindow<WINDOW>];
    type Operations = &'static mut [Operation];
    type Placements = &'static mut [Placement];
    type ControlMessages = &'static mut [ControlMessage];
}

/// Memory that is not used yet.
pub(crate) struct Arena {
    at: *mut u8,
    left: usize,
}

impl Arena {
    /// # Safety
    /// `bytes` bytes at `start` are the program's to lend, and are used by nobody else from now on.
    pub(crate) const unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        Self { at: start.as_ptr(), left: bytes }
    }

    /// Room for `count` values, aligned.
    fn take<T>(&mut self, count: usize) -> Option<NonNull<MaybeUninit<T>>> {
        let skipped = self.at.align_offset(align_of::<T>());
        let bytes = size_of::<T>().checked_mul(count)?;
        let all = skipped.checked_add(bytes)?;
        self.left = self.left.checked_sub(all)?;
        let start = self.at.wrapping_add(skipped);
        self.at = self.at.wrapping_add(all);
        NonNull::new(start.cast())
    }

    /// One value.
    pub(crate) fn one<T>(&mut self, value: T) -> Option<&'static mut T> {
        let place = self.take::<T>(1)?;
        // SAFETY: within the lent memory, aligned, and nobody else's: each call takes other bytes.
        let place = unsafe { &mut *place.as_ptr() };
        Some(place.write(value))
    }

    /// `count` equal values.
    pub(crate) fn many<T: Clone>(&mut self, count: usize, value: &T) -> Option<&'static mut [T]> {
        let start = self.take::<T>(count)?;
        for i in 0..count {
            // SAFETY: the i-th place of those that were taken, aligned, and nobody else's.
            unsafe { start.as_ptr().wrapping_add(i).write(MaybeUninit::new(value.clone())) };
        }
        // SAFETY: all of them were written above, and no other call takes these bytes.
        Some(unsafe { core::slice::from_raw_parts_mut(start.as_ptr().cast(), count) })
    }

    /// The records for this number of ranks.
    pub(crate) fn pools(&mut self, ranks: usize) -> Option<Pools<Lent, WINDOW, 32>> {
        let windows = ranks.min(WINDOWS_MAX);
        Some(Pools {
            peers: self.many(ranks, &Peer::UNKNOWN)?,
            senders: self.many(windows, &Sender::FREE)?,
            rails: [],
            receivers: self.many(windows, &ReceiveWindow::EMPTY)?,
            operations: self.many(OPERATIONS, &Operation::FREE)?,
            placements: self.many(PLACEMENTS, &Placement::FREE)?,
            control_messages: self.many(CONTROL_MESSAGES, &ControlMessage::FREE)?,
        })
    }
}

/// Bytes that an endpoint needs for this number of ranks and receive slots.
pub(crate) fn bytes(ranks: usize, slots: usize) -> usize {
    let of = |count: usize, size: usize, align: usize| count.saturating_mul(size).saturating_add(align);
    let windows = ranks.min(WINDOWS_MAX);
    [
        of(1, size_of::<Core>(), align_of::<Core>()),
        of(ranks, size_of::<Peer<Nanos, 32>>(), align_of::<Peer<Nanos, 32>>()),
        of(windows, size_of::<Sender<Nanos, WINDOW, 32>>(), align_of::<Sender<Nanos, WINDOW, 32>>()),
        of(windows, size_of::<ReceiveWindow<WINDOW>>(), align_of::<ReceiveWindow<WINDOW>>()),
        of(OPERATIONS, size_of::<Operation>(), align_of::<Operation>()),
        of(OPERATIONS, size_of::<u64>(), align_of::<u64>()),
        of(PLACEMENTS, size_of::<Placement>(), align_of::<Placement>()),
        of(CONTROL_MESSAGES, size_of::<ControlMessage>(), align_of::<ControlMessage>()),
        of(slots, size_of_val(&NO_DATAGRAM), align_of::<Datagram>()),
    ]
    .into_iter()
    .fold(0, usize::saturating_add)
}
