//! Programs that check themselves, which the proofs run on processes and nodes alike.

pub mod collectives;
pub mod messages;
pub mod remote_access;
