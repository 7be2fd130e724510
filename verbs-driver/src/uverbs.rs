//! The uverbs write interface: kernel objects that are created and mapped without libibverbs.
//!
//! rdma-core's provider for Soft-RoCE does not expose where its queues are mapped, so those that the driver writes itself
//! are created here; device, protection domain and registrations are libibverbs'.

pub(crate) mod command;
pub(crate) mod mapping;
pub(crate) mod objects;
