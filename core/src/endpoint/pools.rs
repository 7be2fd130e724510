//! The pools that an endpoint takes its records from, each with the lists that link its records.

mod control_queue;
mod operations;
mod placements;
mod receivers;
mod senders;

pub(super) use control_queue::ControlQueue;
pub(super) use operations::OperationPool;
pub(super) use placements::PlacementPool;
pub(super) use receivers::ReceiverPool;
pub(super) use senders::SenderPool;
