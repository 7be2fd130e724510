//! The algorithms, each a [`Phase`](super::Phase) of a plan: its steps at one rank, as a function of the step's number.

pub(super) mod alltoall_exchange;
pub(super) mod bruck;
pub(super) mod copy;
pub(super) mod direct;
pub(super) mod exchange;
pub(super) mod fold;
pub(super) mod ring;
pub(super) mod scan;
pub(super) mod tree;
