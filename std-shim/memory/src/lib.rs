//! The memory of an endpoint in a process: the table of registered regions, and the boxed records of the endpoint
//! itself.

extern crate alloc;

pub mod element_type;
pub mod endpoint_storage;
pub mod memory_regions;
pub mod user_buffer;
