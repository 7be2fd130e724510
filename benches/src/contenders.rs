//! The contenders of a comparison: unisono, the bare machine, and other libraries.

pub mod bare_udp;
pub mod hardware_floor;
pub mod iceoryx2;
pub mod library;
pub mod mpi_binary;
pub mod unisono_command;
