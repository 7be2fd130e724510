//! The standard ABI of MPI 5.0 over unisono: a shared library (`libmpi_abi.so.1`) that a program which was compiled for
//! that ABI loads instead of another MPI.
//!
//! `build.rs` makes the exported functions from the table of the ABI; each calls a function of [`calls`], which resolves
//! handles ([`handle`]), checks arguments, and calls the package `unisono`. What has no function there answers
//! `MPI_ERR_UNSUPPORTED_OPERATION`. A panic ends the process at the border: exported functions do not unwind.
//! `MPI_Pcontrol`, which is variadic in C, is a function of its first argument here, which the calling conventions of
//! Linux allow.

#![allow(unreachable_pub, reason = "the exported functions and their types are public to the linker only")]
#![allow(non_camel_case_types, reason = "names of the ABI")]

extern crate alloc;

mod abi;
mod attribute;
mod buffer;
mod calls;
mod collective;
mod communicator;
mod datatype;
mod error;
mod handle;
mod hardware;
mod info;
mod job;
mod operation;
mod request;
mod sent;
mod tools;
mod topology;
mod window;

mod exports {
    #![allow(non_snake_case, reason = "names of the ABI")]
    #![allow(clippy::too_many_arguments, reason = "signatures of the ABI")]

    use core::ffi::{c_char, c_int, c_void};

    use crate::abi::*;

    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}
