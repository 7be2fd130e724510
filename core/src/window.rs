//! Sliding windows, sending and receiving, and the machines that they consist of. They know no peer.

pub mod congestion;
mod contradictions;
mod credit_edge;
pub mod loss;
mod probe_timer;
pub mod rails;
pub mod receive_state;
pub mod receive_window;
pub mod rtt;
pub mod segment_ring;
pub mod send_window;
