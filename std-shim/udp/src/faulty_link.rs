//! Fault injection for the outgoing frames of a queue on one rail.

use core::ptr::NonNull;
use std::time::Instant;

use unisono_core::device::{Destination, DeviceQueue};
use unisono_core::ids::Rail;

use super::{
    counters::UdpCounters,
    transmitter::{IoVector, TxDatagram},
};
use crate::fault_injection::{Cut, FaultInjector, Faults, ReorderQueue};

/// Consecutive empty polls of the device, with nothing sent between them, after which reordered frames leave anyway.
const IDLE_POLLS: u32 = 64;

/// A copy of a frame, so that faults can change one copy only.
#[derive(Debug)]
struct FrameCopy {
    to: Destination,
    at: DeviceQueue,
    bytes: Vec<u8>,
}

/// The stage between the send ring and the kernel.
#[derive(Debug)]
pub(super) struct FaultyLink {
    rail: Rail,
    opened: Instant,
    cut: Option<Cut>,
    injector: FaultInjector,
    delayed: ReorderQueue<FrameCopy>,
    leaving: Vec<FrameCopy>,
    datagrams: Vec<TxDatagram>,
    spare: Vec<Vec<u8>>,
    idle: u32,
}

// SAFETY: the datagrams' pieces point to frames that this same link owns, and that go with it.
unsafe impl Send for FaultyLink {}

impl FaultyLink {
    pub(super) fn new(rail: Rail, faults: Faults) -> Self {
        Self {
            rail,
            opened: Instant::now(),
            cut: faults.cut,
            injector: FaultInjector::new(faults),
            delayed: ReorderQueue::default(),
            leaving: Vec::new(),
            datagrams: Vec::new(),
            spare: Vec::new(),
            idle: 0,
        }
    }

    /// Applies the faults to these datagrams. Returns the datagrams to send now, which are valid until the link is used
    /// again.
    ///
    /// # Safety
    /// All pieces of the datagrams can be read, and they do not change during the call.
    pub(super) unsafe fn inject(&mut self, datagrams: &[TxDatagram], tally: &UdpCounters) -> &[TxDatagram] {
        self.recycle();
        self.idle = 0;
        let cut = self.cut.filter(|cut| cut.is_on(self.opened.elapsed()));
        for datagram in datagrams {
            if cut.is_some_and(|cut| cut.concerns(self.rail, datagram.to)) {
                tally.injected_cut.add(1);
                tally.rail(self.rail).injected_cut.add(1);
                continue;
            }
            let fate = self.injector.next_outcome(datagram.bytes);
            tally.injected_loss.add(u64::from(fate.first.is_none()));
            tally.injected_duplicates.add(u64::from(fate.second.is_some()));
            for passage in fate.copies() {
                let mut bytes = self.spare.pop().unwrap_or_default();
                // SAFETY: the caller promises that the pieces of each datagram can be read, and that nobody changes
                // them now.
                unsafe { collect(datagram, &mut bytes) };
                if let Some(flip) = passage.flip {
                    flip.apply(&mut bytes);
                    tally.injected_corruptions.add(1);
                }
                tally.injected_reorders.add(u64::from(passage.overtaken_by > 0));
                let frame = FrameCopy { to: datagram.to, at: datagram.at, bytes };
                let leaving = &mut self.leaving;
                self.delayed.push(frame, passage.overtaken_by, |frame| leaving.push(frame));
            }
        }
        self.leaving_datagrams()
    }

    /// Counts an empty poll. Returns whether the reordered frames are to leave now.
    pub(super) fn count_idle_poll(&mut self) -> bool {
        if self.delayed.is_empty() {
            return false;
        }
        self.idle += 1;
        self.idle >= IDLE_POLLS
    }

    /// All reordered frames, to be sent now.
    pub(super) fn flush_idle(&mut self) -> &[TxDatagram] {
        self.recycle();
        self.idle = 0;
        let leaving = &mut self.leaving;
        self.delayed.flush_idle(|frame| leaving.push(frame));
        self.leaving_datagrams()
    }

    fn recycle(&mut self) {
        self.datagrams.clear();
        self.spare.extend(self.leaving.drain(..).map(|frame| frame.bytes));
    }

    fn leaving_datagrams(&mut self) -> &[TxDatagram] {
        self.datagrams.extend(self.leaving.iter_mut().map(|frame| {
            let (start, bytes) = (NonNull::from(frame.bytes.as_mut_slice()).cast(), frame.bytes.len());
            TxDatagram { to: frame.to, at: frame.at, first: IoVector { start, bytes }, rest: None, bytes }
        }));
        &self.datagrams
    }
}

/// Copies the datagram's bytes into `to`.
///
/// # Safety
/// All pieces can be read, and they do not change during the call.
unsafe fn collect(datagram: &TxDatagram, to: &mut Vec<u8>) {
    to.clear();
    let first = [datagram.first];
    for piece in first.iter().chain(datagram.rest.iter().flatten()) {
        // SAFETY: the caller promises that each piece can be read, and that nobody changes it now.
        to.extend_from_slice(unsafe { core::slice::from_raw_parts(piece.start.as_ptr(), piece.bytes) });
    }
}
