//! The messages of collectives: each has one send and one receive, matched by an exact [`StepKey`].
//!
//! Rooted collectives have flow control by credit of their own (Graham et al. 2010, §3): a message without credit stays
//! with its sender, and costs a slow receiver at most a header. Nothing is ever matched by order, source or tag.
//!
//! # How a message is sent
//! - **Eagerly**, if it is within the peer's limit and there is credit: its header, followed by the payload. If its
//!   receive is not posted yet, the payload is stored in a slot; a peer has credit for as many slots as are reserved
//!   for it, so that one is always free.
//! - By **rendezvous** otherwise: an RTS is sent. The receiver copies the payload, if it can read the sender's memory
//!   (FIN); otherwise it grants memory (CTS), and the sender places the payload there. An RTS that finds no free record is dropped and counted; a receive that is posted without a message, while
//!   an RTS of that peer was dropped, requests it ([`TransportKind::RtsRequest`](header::TransportKind)), and the
//!   sender repeats the RTS.
//!
//! Credit returns after a receive has consumed the payload: in the next header to the peer, or by itself when half of
//! it is due.
//!
//! # Calling contract
//! - The headers of one rank's [`CollectiveTransport`] are [handled](CollectiveTransport::handle) by the peer's in
//!   order, each once: an endpoint ensures that.
//! - Every returned [`StepHeader`] is sent, in the order of return.
//! - A payload stays unchanged until its send is complete: of an eager one when the endpoint reports completion,
//!   otherwise at [`Arrival::Fetched`], or after [`Arrival::Place`] when the endpoint reports completion.
//! - The result of [`handle`](CollectiveTransport::handle) is carried out before any other call.
//! - [`poll_action`](CollectiveTransport::poll_action) is called after all other calls, until it returns `None`.
//!
//! Every call takes constant time if keys hash to different buckets, except
//! [`cancel_send`](CollectiveTransport::cancel_send), [`cancel_receive`](CollectiveTransport::cancel_receive),
//! [`discard`](CollectiveTransport::discard) and [`disconnect`](CollectiveTransport::disconnect), which visit all
//! records. The memory is provided by the host: 16 bytes per peer, 48 per record, and the slots.

mod cancel;
pub mod header;
mod peer;
mod receive_header;
mod responses;
mod table;

#[cfg(test)]
mod tests;

use crate::ids::PeerId;
use crate::list::List;
use crate::pool::Pool;
use header::TransportKind;
use table::{EntryState, Table};

pub use header::StepHeader;
pub use peer::CollectivePeer;
pub use responses::{Arrival, Posted, ReceiveError, RecordUsage, Sent, StepSendError, TooFewSlots, TransportAction};
pub use table::Entry;

/// The identity of a message: unique between two ranks in one direction, while either may still refer to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct StepKey {
    /// The communicator.
    pub context: u32,
    /// The number of the collective in its communicator; wraps.
    pub sequence: u32,
    /// The key of the message in its schedule.
    pub step: u32,
}

/// The records that the host provides, each in its unused state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pools<P, E> {
    /// [`CollectivePeer::new`], one per rank, this one included.
    pub peers: P,
    /// [`Entry::FREE`]: sends whose RTS is not answered.
    pub sends: E,
    /// [`Entry::FREE`]: receives without a message.
    pub receives: E,
    /// [`Entry::FREE`]: slots for eager messages that arrive before their receive.
    pub slots: E,
    /// [`Entry::FREE`]: RTS headers that arrive before their receive.
    pub headers: E,
}

/// One rank's collective messages to and from all its peers. See the [module](self) for the calling contract.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CollectiveTransport<P, E> {
    peers: P,
    sends: Table<E>,
    receives: Table<E>,
    slots: Table<E>,
    headers: Table<E>,
    /// Eager messages that each peer may have in flight or in slots.
    credit: u8,
    /// Sends whose RTS is to be repeated, receives with a pending action, peers that are owed credit.
    reannounce: List,
    due: List,
    owed: List,
}

impl<P: Pool<CollectivePeer>, E: Pool<Entry>> CollectiveTransport<P, E> {
    /// Without messages. `credit`, the same on all ranks: eager messages that each peer may have here without a
    /// receive.
    ///
    /// # Errors
    /// [`TooFewSlots`]: less than `credit` for each peer.
    pub fn new(credit: u8, pools: Pools<P, E>) -> Result<Self, TooFewSlots> {
        let Pools { mut peers, sends, receives, slots, headers } = pools;
        let others = peers.as_ref().len().saturating_sub(1);
        if slots.as_ref().len() < others.saturating_mul(usize::from(credit)) {
            return Err(TooFewSlots);
        }
        for peer in peers.as_mut() {
            peer.reset(credit);
        }
        Ok(Self {
            peers,
            sends: Table::new(sends),
            receives: Table::new(receives),
            slots: Table::new(slots),
            headers: Table::new(headers),
            credit,
            reannounce: List::EMPTY,
            due: List::EMPTY,
            owed: List::EMPTY,
        })
    }

    /// Sends a message, whose payload lies at `at` for the receiver's host. `user` identifies it in later results.
    ///
    /// # Errors
    /// [`StepSendError`]; nothing was changed.
    pub fn send(
        &mut self,
        to: PeerId,
        key: StepKey,
        (bytes, at): (u32, u64),
        user: u32,
    ) -> Result<Sent, StepSendError> {
        let peer = self.peers.as_mut().get_mut(to.0 as usize).ok_or(StepSendError::UnknownPeer)?;
        if bytes <= peer.limit() && peer.spend() {
            return Ok(Sent::Eager(StepHeader::new(TransportKind::Eager, peer.take_credit(), key)));
        }
        if self.sends.find(to.0, key).is_some() {
            return Err(StepSendError::Duplicate);
        }
        let i = self.sends.insert(to.0, key, user, bytes, EntryState::Waiting).ok_or(StepSendError::Full)?;
        self.sends.locate(i, at);
        Ok(Sent::Rts(StepHeader::rts(TransportKind::Rts, peer.take_credit(), key, bytes, at)))
    }

    /// Posts the receive of a message of exactly `bytes` bytes. `user` identifies it in later results.
    ///
    /// # Errors
    /// [`ReceiveError`]; nothing was posted.
    pub fn receive(&mut self, of: PeerId, key: StepKey, bytes: u32, user: u32) -> Result<Posted, ReceiveError> {
        let peer = self.peers.as_ref().get(of.0 as usize).ok_or(ReceiveError::UnknownPeer)?;
        if self.receives.find(of.0, key).is_some() {
            return Err(ReceiveError::Duplicate);
        }
        if let Some((slot, kept)) = self.slots.find(of.0, key) {
            let came = kept.bytes;
            self.slots.hide(slot);
            if came == bytes {
                return Ok(Posted::Early { slot });
            }
            self.release_slot(slot);
            return Err(ReceiveError::Disagrees { bytes: came });
        }
        let header = self.headers.find(of.0, key).map(|(i, header)| (i, header.bytes, header.at));
        let stage = match header {
            Some((_, came, _)) if came == bytes => EntryState::Pulling,
            Some(_) => EntryState::Refusing,
            None if peer.has_dropped() && !mutant!("want_silent") => EntryState::Wanting,
            None => EntryState::Waiting,
        };
        let i = self.receives.insert(of.0, key, user, bytes, stage).ok_or(ReceiveError::Full)?;
        if stage != EntryState::Waiting {
            self.receives.list(&mut self.due, i);
        }
        if let Some((header, came, at)) = header {
            self.headers.remove(header);
            self.receives.locate(i, at);
            if came != bytes {
                return Err(ReceiveError::Disagrees { bytes: came });
            }
        }
        Ok(Posted::Waits)
    }

    /// Reports that a slot's payload was copied.
    pub fn release_slot(&mut self, slot: u32) {
        let Some(peer) = self.slots.take(slot) else { return };
        self.return_credit(peer);
    }

    /// Returns the next pending action.
    pub fn poll_action(&mut self) -> Option<TransportAction> {
        while let Some((i, receive)) = self.receives.pop(&mut self.due) {
            let to = PeerId(receive.peer);
            match receive.state {
                EntryState::Wanting => {
                    self.receives.set(i, EntryState::Waiting);
                    return Some(self.build_send(to, TransportKind::RtsRequest, receive.key));
                }
                EntryState::Pulling => {
                    self.receives.remove(i);
                    let Entry { user, key, bytes, at, .. } = receive;
                    return Some(TransportAction::Pull { to, user, key, bytes, at });
                }
                EntryState::Refusing => {
                    self.receives.remove(i);
                    return Some(self.build_send(to, TransportKind::Refuse, receive.key));
                }
                _ => self.receives.remove(i),
            }
        }
        while let Some((i, send)) = self.sends.pop(&mut self.reannounce) {
            if send.state == EntryState::Wanting {
                self.sends.set(i, EntryState::Waiting);
                let to = PeerId(send.peer);
                let credit = self.take_credit(to);
                let head = StepHeader::rts(TransportKind::Reannounce, credit, send.key, send.bytes, send.at);
                return Some(TransportAction::Send { to, head });
            }
            self.sends.remove(i);
        }
        while let Some(i) = self.owed.pop(self.peers.as_mut(), |peer| &mut peer.link) {
            let peer = self.peers.as_mut().get_mut(i as usize)?;
            peer.listed = false;
            if peer.owes(self.credit) {
                return Some(TransportAction::Send { to: PeerId(i), head: StepHeader::credit(peer.take_credit()) });
            }
        }
        None
    }

    /// Whether [`poll_action`](Self::poll_action) may return something.
    pub const fn has_action(&self) -> bool {
        !self.due.is_empty() || !self.reannounce.is_empty() || !self.owed.is_empty()
    }

    /// Counts the records in use.
    pub fn in_use(&self) -> RecordUsage {
        RecordUsage {
            sends: self.sends.used(),
            receives: self.receives.used(),
            slots: self.slots.used(),
            headers: self.headers.used(),
        }
    }

    /// Returns one unit of credit to a peer: a receive consumed one of its eager messages.
    fn return_credit(&mut self, to: u32) {
        let Some(peer) = self.peers.as_mut().get_mut(to as usize) else { return };
        peer.take();
        if peer.owes(self.credit) && !peer.listed {
            peer.listed = true;
            self.owed.push(self.peers.as_mut(), to, |peer| &mut peer.link);
        }
    }

    fn take_credit(&mut self, to: PeerId) -> u8 {
        self.peers.as_mut().get_mut(to.0 as usize).map_or(0, CollectivePeer::take_credit)
    }

    fn build_send(&mut self, to: PeerId, kind: TransportKind, key: StepKey) -> TransportAction {
        TransportAction::Send { to, head: StepHeader::new(kind, self.take_credit(to), key) }
    }
}
