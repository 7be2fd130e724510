//! Sends that were complete when their handle was made. The handle is a number that names the message: it needs no
//! object, and the message can still be cancelled.

use core::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use unisono::raw::SentMessage;

use crate::abi::*;
use crate::communicator::world_communicator;

/// The bit of such handles. No address of a program has it.
const NUMBER: usize = 1 << (usize::BITS - 1);

/// Those that are being cancelled, and how many they are.
static CANCELLED: Mutex<Vec<SentMessage>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

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
    let Some(world) = world_communicator() else { return };
    let mut cancelled = CANCELLED.lock();
    if !cancelled.contains(&message) {
        cancelled.push(message);
        COUNT.store(cancelled.len(), Ordering::Relaxed);
        world.library().raw_cancel_send(message);
    }
}

/// Whether a message was cancelled; waits until that is decided, or makes progress once. `None`: it is not decided.
#[inline]
pub fn result(message: SentMessage, waits: bool) -> Option<bool> {
    if COUNT.load(Ordering::Relaxed) == 0 { Some(false) } else { result_of_cancelled(message, waits) }
}

#[cold]
fn result_of_cancelled(message: SentMessage, waits: bool) -> Option<bool> {
    match world_communicator() {
        Some(world) if CANCELLED.lock().contains(&message) => world.library().raw_cancel_result(message, waits),
        _ => Some(false),
    }
}

/// The handle of a message is gone.
#[inline]
pub fn forget(message: SentMessage) {
    if COUNT.load(Ordering::Relaxed) > 0 {
        forget_cancelled(message);
    }
}

#[cold]
fn forget_cancelled(message: SentMessage) {
    let mut cancelled = CANCELLED.lock();
    if let Some(place) = cancelled.iter().position(|other| *other == message) {
        cancelled.swap_remove(place);
        COUNT.store(cancelled.len(), Ordering::Relaxed);
        if let Some(world) = world_communicator() {
            world.library().raw_forget_cancelled(message);
        }
    }
}
