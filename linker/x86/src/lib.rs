//! Nodes without an operating system on x86_64: what an image needs between the loader and its program.
//!
//! An image links this library, `link.ld`, and a function `node_main`. [`boot`] prepares the machine and calls it; what it returns is
//! the image's exit code ([`exit`]). [`segment`] finds the shared memory, [`interrupts`] shows that the node lives, [`clock`] tells the
//! time. Everything runs on one processor, and no handler but those of `boot.s` interrupts it.
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
