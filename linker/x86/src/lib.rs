//! Runtime of nodes without an operating system on x86_64: everything between the loader and the image's program.
//!
//! An image links this library, `link.ld`, and a function `node_main`. [`boot`] prepares the machine and calls it; its
//! result is the image's exit code ([`exit`]). [`segment`] finds the shared memory, [`interrupts`] counts the
//! heartbeat, [`clock`] reads the time. Everything runs on one processor, and only the handlers of `boot.s` interrupt
//! it.
#![no_std]

pub mod boot;
pub mod clock;
pub mod exit;
pub mod interrupts;
mod memory;
pub mod network;
pub mod pci;
pub mod segment;
pub mod serial;
pub mod static_memory;
