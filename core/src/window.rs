//! One peer's sliding windows: the sending half with repair and pacing, and the receiving half.

pub mod congestion;
pub mod receive_state;
pub mod receive_window;
pub mod rtt;
pub mod send_window;
