//! Arm's MPS2 board with a Cortex-M4 (AN386): from reset to `main`, a clock, semihosting, the memory shared with
//! processes, the heartbeat.
#![no_std]

pub mod clock;
pub mod heartbeat;
pub mod semihosting;
pub mod shared;
pub mod stack;
mod start;
