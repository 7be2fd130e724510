//! Work queues of ConnectX adapters (mlx5), written by us: unreliable datagrams without a call of libibverbs.
//!
//! libibverbs makes the queue pair and its completion queues; `mlx5dv_init_obj` says where their memory, records and registers
//! lie. From then on [`SendQueue`], [`ReceiveQueue`] and [`CompletionQueue`] write and read them, and [`Ud`] is the core's device
//! over them.
//!
//! A send entry is counted in basic blocks of 64 bytes and wraps at the end of the queue:
//!
//! ```text
//! control 16 │ datagram 48 │ data 16 …                  gathered by the adapter
//! control 16 │ datagram 48 │ length 4, bytes, padding   inline
//! ```
//!
//! Everything is big-endian. What completion queue entries say is checked: they are written by DMA.
//!
//! Sources: rdma-core 55, `providers/mlx5/mlx5dv.h` (layouts and constants), `qp.c` (what a posting stores, and in which order),
//! `cq.c` (ownership, arming), `verbs.c` (address vectors); "Mellanox Adapters Programmer's Reference Manual" (the public edition
//! for Ethernet), chapters "Work Queue Structure", "Doorbell" and "Completion Queues". Koop, dissertation, §3, for why datagrams.

mod buffers;
mod completion;
mod completion_queue;
mod path;
mod receive_queue;
mod segment;
mod send_queue;
mod ud;

pub use buffers::Buffer;
pub use completion::{Arrival, Completion, Half, Syndrome};
pub use completion_queue::{CQE, CompletionQueue, Stride};
pub use path::{Path, Source};
pub use receive_queue::ReceiveQueue;
pub use segment::{Data, Datagram, Grh, Link, Route, source_port};
pub use send_queue::{BlueFlame, Entry, Immediate, PAYLOAD_MAX, Payload, PostError, Request, SendQueue};
pub use ud::{Counts, INLINE_MAX, Options, Queues, Slabs, Ud, UdDatagram, UdToken};
