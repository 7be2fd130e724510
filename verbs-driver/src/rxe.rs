//! Soft-RoCE's work queues (rxe), written by the driver itself: the kernel module maps the queues into the process, and
//! a posting needs no system call except the doorbell.
//!
//! A queue is a header and a power of two entries of a power of two bytes:
//!
//! ```text
//! log2 of an entry's bytes 4, count − 1  4 │ at 128 producer index │ at 256 consumer index │ at 384 entries …
//! ```
//!
//! The producer of a queue stores the producer index after its entries, the consumer the consumer index; one entry
//! stays empty. [`ring`] implements both ends, [`RxeQueues`] are those of a queue pair, for [`raw`](crate::raw)'s
//! device, [`RxeSends`], [`RxeReceives`] and [`RxeEnded`] those of reliable connections. The doorbell of a send queue is
//! a `POST_SEND` command without a request, that of arming `REQ_NOTIFY_CQ`: [`SyscallDoorbell`] turns doorbells into
//! system calls. Receive queues have none.
//!
//! All fields are in native byte order, except those that travel on the wire.
//!
//! Sources: the kernel's `include/uapi/rdma/rdma_user_rxe.h` (queues, entries) and `ib_user_verbs.h` (completions,
//! commands), the same that rdma-core's `providers/rxe` uses.

mod path;
mod queue_pair;
mod reliable;
pub mod ring;
mod syscall_doorbell;
mod wqe;

pub use path::{RxePath, RxeRoute};
pub use queue_pair::{QueueShapes, RxeQueues};
pub use reliable::{RxeEnded, RxeReceives, RxeSends};
pub use syscall_doorbell::{DoorbellCall, SyscallDoorbell};
pub use wqe::{CQE, RECEIVE_WQE, SEND_WQE, send_room};
