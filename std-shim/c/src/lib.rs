//! The C library of unisono. Its header, `include/unisono.h`, is made of these functions' comments by cbindgen
//! (`tests/header.rs`); docs/c.md has the rules.
//!
//! Handles are numbers that are looked up, so that a wrong or freed one is an error. Every function returns a result
//! ([`result::unisono_result`]); no panic leaves one.

extern crate alloc;

pub mod attribute;
pub mod collective_calls;
pub mod communicator;
pub mod datatype;
pub mod message;
pub mod operation;
pub mod region;
pub mod request;
pub mod result;
pub mod topology;
pub mod window;

mod collective;
mod exchange;
mod fork;
mod handle;
mod one_sided;
