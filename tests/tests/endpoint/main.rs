//! The endpoint over the simulated network and over UDP.

extern crate alloc;

mod busy_receiver;
mod clock_wrap;
mod conservation;
mod credit;
mod hostile;
mod messages;
mod readiness;
mod remote_access;
mod restart;
mod shutdown;
mod two_queues;
mod window_pool;
