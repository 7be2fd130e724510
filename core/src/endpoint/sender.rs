//! The record of a send window: the window, its path, and its places in the endpoint's lists.

use crate::ids::Psn;
use crate::list::{List, NONE};
use crate::path::{Path, PathParameters};
use crate::time::Time;
use crate::time::wheel::{Timer, Wheel};
use crate::window::send_window::SendWindow;

/// A send window and its links to its peer and to the endpoint's lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sender<T: Time, const W: usize, const BITS: u32> {
    pub(super) window: SendWindow<T, W, BITS>,
    pub(super) path: Path<T>,
    pub(super) peer: u32,
    /// The next free or ready sender.
    pub(super) link: u32,
    /// The next sender with uncompleted postings.
    pub(super) posted_link: u32,
    /// The next sender whose silence has to be reported.
    pub(super) event_link: u32,
    pub(super) timer: Timer,
    /// When an acknowledgement was last requested.
    pub(super) ack_requested: T::Stamp,
    /// When the first of the unanswered probes was sent.
    pub(super) silent_since: T::Stamp,
    pub(super) flags: SenderFlags,
}

bitflags::bitflags! {
    /// The lists that a send window is in, and what is known of its peer.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub(super) struct SenderFlags: u8 {
        /// In the list of ready senders.
        const READY = 1;
        /// In the list of senders with uncompleted postings.
        const POSTED = 1 << 1;
        /// Its peer has ended; freed when the last posting is completed.
        const ORPHANED = 1 << 2;
        /// In the list of senders whose silence has to be reported.
        const SILENT = 1 << 3;
        /// The latest piggybacked acknowledgement arrived within the timeout.
        const TIMELY_ACK = 1 << 4;
    }
}

impl<T: Time, const W: usize, const BITS: u32> Sender<T, W, BITS> {
    /// An unused record.
    pub const FREE: Self = Self {
        window: SendWindow::new(Psn::new(0)),
        path: Path::new(PathParameters::NONE),
        peer: NONE,
        link: NONE,
        posted_link: NONE,
        event_link: NONE,
        timer: Timer::UNSET,
        ack_requested: T::ZERO,
        silent_since: T::ZERO,
        flags: SenderFlags::empty(),
    };

    /// Passed to the timer wheel as one function, so that the wheel's code is not duplicated for each closure.
    pub(super) const fn timer(&mut self) -> &mut Timer {
        &mut self.timer
    }
}

/// The lists of send windows, and their timers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Senders {
    pub(super) free: List,
    /// First operations of the queues that wait for a free one.
    pub(super) waiting: List,
    /// Senders that can send; the first of them has sent `burst` datagrams in a row.
    pub(super) ready: List,
    pub(super) burst: u8,
    /// Senders with uncompleted postings.
    pub(super) posted: List,
    /// Senders whose peer's silence has to be reported.
    pub(super) silent: List,
    pub(super) wheel: Wheel,
    /// The clock hand of the search for an idle one.
    pub(super) clock_hand: u32,
}

impl Senders {
    pub(super) fn new<T: Time, const W: usize, const BITS: u32>(
        now: T::Instant,
        records: &mut [Sender<T, W, BITS>],
    ) -> Self {
        Self {
            free: List::of_all(records, |sender| &mut sender.link),
            waiting: List::EMPTY,
            ready: List::EMPTY,
            burst: 0,
            posted: List::EMPTY,
            silent: List::EMPTY,
            wheel: Wheel::new(T::tick(now)),
            clock_hand: 0,
        }
    }
}
