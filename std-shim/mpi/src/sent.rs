//! Sends that were complete when their handle was made. The handle is a number that names the message: it needs no
//! object, and the message can still be cancelled.

use core::sync::atomic::{AtomicBool, Ordering};

use unisono::raw::SentMessage;

use crate::abi::*;
use crate::communicator::world_communicator;

/// The bit of such handles. No address of a program has it.
const NUMBER: usize = 1 << (usize::BITS - 1);

/// Whether the program has cancelled such a message: only then the library is asked about any.
static HAS_CANCELLED: AtomicBool = AtomicBool::new(false);

/// The handle of a message.
#[inline]
pub const fn handle_of(message: SentMessage) -> MPI_Request {
    MPI_Request(NUMBER | message.to_bits() as usize)
}

/// The message that a handle names.
#[inline]
pub const fn message_of(handle: MPI_Request) -> Option<SentMessage> {
    if handle.0 & NUMBER == 0 { None } else { Some(SentMessage::from_bits((handle.0 & !NUMBER) as u64)) }
}

/// Starts to cancel a message.
pub fn cancel(message: SentMessage) {
    if let Some(world) = world_communicator() {
        HAS_CANCELLED.store(true, Ordering::Relaxed);
        world.library().raw_cancel_send(message);
    }
}

/// Whether a message was cancelled; waits until that is decided, or makes progress once. `None`: it is not decided.
#[inline]
pub fn result(message: SentMessage, waits: bool) -> Option<bool> {
    if HAS_CANCELLED.load(Ordering::Relaxed) { result_of_cancelled(message, waits) } else { Some(false) }
}

#[cold]
fn result_of_cancelled(message: SentMessage, waits: bool) -> Option<bool> {
    world_communicator().map_or(Some(false), |world| world.library().raw_cancel_result(message, waits))
}

/// The handle of a message is gone.
#[inline]
pub fn forget(message: SentMessage) {
    if HAS_CANCELLED.load(Ordering::Relaxed)
        && let Some(world) = world_communicator()
    {
        world.library().raw_forget_cancelled(message);
    }
}
