//! Work queues of ConnectX adapters (mlx5), written by the driver itself: unreliable datagrams, and writes, reads and
//! atomic operations of connected queue pairs, without a call of libibverbs.
//!
//! libibverbs creates the queue pair and its completion queues; `mlx5dv_init_obj` returns the addresses of their
//! memory, records and registers. From then on [`SendQueue`], [`ReceiveQueue`] and [`CompletionQueue`] write and read
//! them. [`Mlx5Queues`] are those of a queue pair, for [`raw`](crate::raw)'s device.
//!
//! A send entry is counted in basic blocks of 64 bytes and wraps at the end of the queue:
//!
//! ```text
//! control 16 │ datagram 48 │ data 16 …                  gathered by the adapter
//! control 16 │ datagram 48 │ length 4, bytes, padding   inline
//! control 16 │ remote 16 │ …                            write, read
//! control 16 │ remote 16 │ operands 16 │ data 16        fetch-add, compare-swap
//! ```
//!
//! All fields are big-endian. Completion queue entries are untrusted input: they are written by DMA.
//!
//! Sources: rdma-core 55, `providers/mlx5/mlx5dv.h` (layouts and constants), `qp.c` (what a posting stores, and in
//! which order), `cq.c` (ownership, arming), `verbs.c` (address vectors); "Mellanox Adapters Programmer's Reference
//! Manual" (the public edition for Ethernet), chapters "Work Queue Structure", "Doorbell" and "Completion Queues".
//! Koop, dissertation, §3, for why datagrams.

mod completion;
mod completion_queue;
mod path;
mod queue_pair;
mod receive_queue;
mod segment;
mod send_queue;

pub use completion::{Completion, QueueSide, ReceiveCompletion};
pub use completion_queue::{CQE, CompletionQueue, Stride};
pub use path::Mlx5Path;
pub use queue_pair::Mlx5Queues;
pub use receive_queue::ReceiveQueue;
pub use segment::{Datagram, Grh, Link, Route, source_port};
pub use send_queue::{BlueFlame, Immediate, PAYLOAD_MAX, PostError, SendOperation, SendQueue, SendRecord, SendRequest};
