//! Soft-RoCE's work queues (rxe), written by us: its kernel module maps the queues into the process, and a posting needs no call but
//! the doorbell.
//!
//! A queue is a header and a power of two entries of a power of two bytes:
//!
//! ```text
//! log2 of an entry's bytes 4, count − 1  4 │ at 128 producer index │ at 256 consumer index │ at 384 entries …
//! ```
//!
//! Whoever puts entries in stores the producer index after them, whoever takes them out the consumer index; one entry stays
//! empty. Here [`ring`] does both, [`Queues`] are those of a queue pair, for [`raw`](crate::raw)'s device. The doorbell of a send
//! queue is a `POST_SEND` command without a request, that of arming `REQ_NOTIFY_CQ`: [`Called`] makes calls of them. Receive
//! queues have none.
//!
//! Everything is in the machine's own order of bytes, but for what travels.
//!
//! Sources: the kernel's `include/uapi/rdma/rdma_user_rxe.h` (queues, entries) and `ib_user_verbs.h` (completions, commands), the
//! same that rdma-core's `providers/rxe` uses.

mod path;
mod queue_pair;
pub mod ring;
mod syscall_doorbell;
mod wqe;

pub use path::{Path, Route};
pub use queue_pair::{Queues, Sizes};
pub use syscall_doorbell::{Call, Called};
pub use wqe::{COMPLETION, RECEIVE, SEND, send_room};
