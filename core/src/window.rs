//! One peer's sliding windows: the sending half with repair, congestion control and its probe timer, and the receiving
//! half.

pub mod congestion;
pub mod receive_state;
pub mod receive_window;
pub mod rtt;
pub mod send_window;
