//! Arm's MPS2 board with a Cortex-M4 (AN386): from reset to `main`, a clock, a debugger to talk to, the memory it shares, its heart.
#![no_std]

pub mod clock;
pub mod heartbeat;
pub mod semihosting;
pub mod shared;
pub mod stack;
mod start;
