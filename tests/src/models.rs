//! Models for the model checker: the shipped state machines in environments that do everything a network, a device and
//! a user may do.
//!
//! Nothing here decides what is sent, acknowledged or repaired. A model moves values between machines of
//! `unisono_core`, and states what must never be observed at their interfaces.

pub mod attached;
pub mod catalogue;
pub mod clock;
pub mod collective;
pub mod congestion;
pub mod group_pool;
pub mod lane;
pub mod message;
pub mod messenger;
pub mod multicast;
pub mod mutant;
pub mod network;
pub mod peer_lifecycle;
pub mod placements;
pub mod rails;
pub mod rma;
mod small_endpoint;
pub mod token_tree;
pub mod window;
