//! A queue of the device: a send ring, and a socket for each rail.

use alloc::sync::Arc;
use std::io;

use unisono_core::device::Slot;
use unisono_core::ids::Rail;

use super::{
    address_table::AddressTable,
    arrival_waiter::ArrivalWaiter,
    counters::UdpCounters,
    faulty_link::FaultyLink,
    receive_pool::{Batch, ReceivePool},
    send_ring::SendRing,
    socket::Socket,
    transmitter::{LinkState, Transmitter},
};

/// A socket, and what was received on it.
pub(super) struct RailSocket {
    pub(super) socket: Arc<Socket>,
    batch: Batch,
    link: Option<FaultyLink>,
}

impl RailSocket {
    /// `link`: the fault injection, if there is any.
    pub(super) fn new(socket: Socket, batch: Batch, link: Option<FaultyLink>) -> Self {
        Self { socket: Arc::new(socket), batch, link }
    }
}

/// The sockets of a queue, with its send ring.
pub(super) struct SocketQueue {
    pub(super) ring: SendRing,
    pub(super) waiter: ArrivalWaiter,
    /// By rail; at least one.
    pub(super) rails: Vec<RailSocket>,
    /// Rails that there is room for.
    rails_max: usize,
    /// The rail that is polled first next time.
    next: usize,
}

impl SocketQueue {
    pub(super) fn new(ring: SendRing, rails: Vec<RailSocket>, rails_max: usize) -> io::Result<Self> {
        let sockets = rails.iter().map(|rail| Arc::clone(&rail.socket)).collect();
        let waiter = ArrivalWaiter::new(sockets, rails.len() < rails_max)?;
        Ok(Self { ring, waiter, rails, rails_max, next: 0 })
    }

    /// Adds a rail. The caller has checked that there is room.
    pub(super) fn add(&mut self, rail: RailSocket) -> io::Result<()> {
        self.waiter.add(Arc::clone(&rail.socket))?;
        self.rails.push(rail);
        Ok(())
    }

    /// Undoes [`add`](Self::add).
    pub(super) fn remove_last(&mut self) {
        if let Some(rail) = self.rails.pop() {
            self.waiter.remove(&rail.socket);
        }
    }

    /// Sends what is posted, through the transmitter of each rail; what is posted for a rail that is not open is lost. Calls `answer` with the state of the links.
    pub(super) fn flush(
        &mut self,
        transmitters: &mut [Transmitter],
        table: &AddressTable,
        counters: &UdpCounters,
        mut answer: impl FnMut(Rail, LinkState),
    ) {
        if self.ring.is_empty() {
            return;
        }
        let count = self.rails_max;
        for ((rail, way), transmitter) in (0..).map(Rail).zip(&mut self.rails).zip(transmitters) {
            let posted = self.ring.with_checksums(rail, count);
            if posted.is_empty() {
                continue;
            }
            let leaving = match &mut way.link {
                None => posted,
                // SAFETY: heads lie in the ring; of payload, the creator of its table promised that it stays unchanged
                // until the posting ends (`Regions::new`), which it does below.
                Some(link) => unsafe { link.inject(posted, counters) },
            };
            // SAFETY: heads lie in the ring, and frames of a faulty link belong to it, which is borrowed; of payload, the
            // creator of its table promised that it stays until the posting ends (`Regions::new`), which it does below.
            answer(rail, unsafe { transmitter.send(&way.socket, table, leaving, counters) });
        }
        self.ring.finish();
    }

    /// The next datagram, of each rail in turn. As [`ReceivePool::next`] says, there may be more if there is none.
    #[inline(always)]
    pub(super) fn receive(&mut self, pool: &mut ReceivePool, counters: &UdpCounters) -> Option<Slot> {
        match &mut *self.rails {
            [only] => pool.next(&mut only.batch, &only.socket, counters),
            _ => self.receive_in_turn(pool, counters),
        }
    }

    fn receive_in_turn(&mut self, pool: &mut ReceivePool, counters: &UdpCounters) -> Option<Slot> {
        let count = self.rails.len();
        for _ in 0..count {
            let rail = self.rails.get_mut(self.next)?;
            let slot = pool.next(&mut rail.batch, &rail.socket, counters);
            if slot.is_none() || rail.batch.is_drained() {
                self.next = (self.next + 1) % count;
            }
            if slot.is_some() {
                return slot;
            }
        }
        None
    }

    /// The next datagram that was taken from the kernel.
    pub(super) fn receive_taken(&mut self, pool: &mut ReceivePool, counters: &UdpCounters) -> Option<Slot> {
        self.rails.iter_mut().find_map(|rail| pool.next_checked(&mut rail.batch, counters))
    }

    /// Takes a batch of each rail from the kernel. What was taken before must have been handed out.
    pub(super) fn take(&mut self, pool: &mut ReceivePool, counters: &UdpCounters) {
        self.rails.iter_mut().for_each(|rail| pool.take(&mut rail.batch, &rail.socket, counters));
    }

    /// Whether all that was taken from the kernel has been handed out.
    pub(super) fn is_drained(&self) -> bool {
        self.rails.iter().all(|rail| rail.batch.is_drained())
    }

    /// Whether something may wait to be received; asks the kernel once for each rail if nothing does.
    pub(super) fn poll(&mut self, pool: &mut ReceivePool, counters: &UdpCounters) -> bool {
        self.rails.iter_mut().any(|rail| pool.poll(&mut rail.batch, &rail.socket, counters))
    }

    /// Whether a datagram waits here, or may wait in the kernel although it was asked.
    pub(super) fn may_have_more(&self) -> bool {
        self.rails.iter().any(|rail| rail.batch.may_have_more())
    }

    /// Sends the reordered frames: after a number of idle polls, or at once.
    pub(super) fn flush_idle(
        &mut self,
        at_once: bool,
        transmitters: &mut [Transmitter],
        table: &AddressTable,
        counters: &UdpCounters,
    ) {
        for (way, transmitter) in self.rails.iter_mut().zip(transmitters) {
            let Some(link) = &mut way.link else { continue };
            if at_once || link.count_idle_poll() {
                let leaving = link.flush_idle();
                // SAFETY: all pieces are frames that belong to the link, which is borrowed.
                unsafe { transmitter.send(&way.socket, table, leaving, counters) };
            }
        }
    }
}
