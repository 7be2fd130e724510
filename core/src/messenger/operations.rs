//! Sends and receives under way, in the order of their class.

use super::Class;
use crate::ids::{PeerId, PlacementId, Port, ReceiveId};
use crate::list::{List, NONE};
use crate::message::collective_transport::StepKey;
use crate::message::point_to_point::Status;
use crate::pool::Pool;
use crate::span::RegionRange;
use crate::transport::{Grant, Token, Transport};

/// Why a send did not complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendFailure {
    /// The peer is gone.
    PeerGone,
    /// The message was longer than the buffer of its receive.
    Truncated,
    /// The peer expects another length, or takes no part in the collective any more.
    Refused,
}

/// Why a receive did not complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReceiveFailure {
    /// The peer is gone.
    PeerGone,
    /// The message is longer than the buffer, which may hold its beginning.
    Truncated(Status),
    /// The message of a collective has another length.
    Disagrees,
}

/// The state of a send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum SendState {
    Free,
    /// Its payload may be asked for.
    Open,
    /// The receiver granted memory for the rest of it, or only for its next part.
    Granted {
        grant: Grant,
        more: bool,
    },
    /// Its payload is not asked for any more.
    Final,
    /// Nobody waits for it, and its payload is gone: the receiver may still ask for it.
    Abandoned,
    /// Complete; the event is pending.
    Ended,
}

/// A send under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SendOp {
    pub(super) user: u32,
    pub(super) to: PeerId,
    pub(super) payload: RegionRange,
    pub(super) port: Port,
    /// Bytes of the payload that were placed.
    pub(super) placed: usize,
    pub(super) state: SendState,
    /// Operations of the transport and queued messages that read its payload.
    pub(super) uses: u16,
    pub(super) failure: Option<SendFailure>,
    /// Its receiver was asked to report it.
    pub(super) is_ack_requested: bool,
    pub(super) link: u32,
}

impl SendOp {
    /// An unused record.
    pub const FREE: Self = Self {
        user: 0,
        to: PeerId(NONE),
        payload: RegionRange::EMPTY,
        port: Port::ONLY,
        placed: 0,
        state: SendState::Free,
        uses: 0,
        failure: None,
        is_ack_requested: false,
        link: NONE,
    };
}

/// How a matched payload gets to its receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum PullSource {
    /// A point-to-point message; where its payload lies, unless it has to be sent.
    Message { receive: ReceiveId, at: Option<u64> },
    /// The message of a collective; likewise.
    Step { key: StepKey, at: Option<u64> },
}

impl PullSource {
    pub(super) const fn at(self) -> Option<u64> {
        match self {
            Self::Message { at, .. } | Self::Step { at, .. } => at,
        }
    }

    /// Of a payload that has to be sent.
    pub(super) const fn unreachable(self) -> Self {
        match self {
            Self::Message { receive, .. } => Self::Message { receive, at: None },
            Self::Step { key, .. } => Self::Step { key, at: None },
        }
    }
}

/// The state of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ReceiveState {
    Free,
    /// A point-to-point receive that is not matched.
    Posted(ReceiveId),
    /// Its message is expected, or was matched and will be pulled.
    Awaited,
    /// The payload is to be fetched or granted.
    Pulling(PullSource),
    /// The peer writes this part of the payload.
    Granted {
        placement: PlacementId,
        part: usize,
        source: PullSource,
    },
    /// The transport reads this part of the payload.
    Fetching {
        part: usize,
        source: PullSource,
    },
    /// Complete; the event is pending.
    Ended(Result<Status, ReceiveFailure>),
}

/// A receive under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveOp {
    pub(super) user: u32,
    pub(super) into: RegionRange,
    /// The message, once it is known.
    pub(super) status: Option<Status>,
    /// Bytes that have arrived.
    pub(super) arrived: usize,
    pub(super) state: ReceiveState,
    pub(super) link: u32,
}

impl ReceiveOp {
    /// An unused record.
    pub const FREE: Self =
        Self { user: 0, into: RegionRange::EMPTY, status: None, arrived: 0, state: ReceiveState::Free, link: NONE };

    pub(super) fn is_from(&self, peer: PeerId) -> bool {
        self.status.is_some_and(|status| status.envelope.source == peer)
    }
}

/// The sends and receives of one class.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Operations<S, R> {
    pub(super) class: Class,
    pub(super) sends: S,
    pub(super) receives: R,
    pub(super) free_sends: List,
    pub(super) free_receives: List,
    /// Sends whose receiver granted memory.
    pub(super) placing: List,
    /// Receives whose payload is to be fetched or granted.
    pub(super) pulling: List,
    /// Those that found no room in the transport: the first is retried, and the others after it.
    pub(super) starved: List,
    ended_sends: List,
    ended_receives: List,
}

impl<S: Pool<SendOp>, R: Pool<ReceiveOp>> Operations<S, R> {
    pub(super) fn new(class: Class, mut sends: S, mut receives: R) -> Self {
        sends.as_mut().fill(SendOp::FREE);
        receives.as_mut().fill(ReceiveOp::FREE);
        let free_sends = List::of_all(sends.as_mut(), |send| &mut send.link);
        let free_receives = List::of_all(receives.as_mut(), |receive| &mut receive.link);
        Self {
            class,
            sends,
            receives,
            free_sends,
            free_receives,
            placing: List::EMPTY,
            pulling: List::EMPTY,
            starved: List::EMPTY,
            ended_sends: List::EMPTY,
            ended_receives: List::EMPTY,
        }
    }

    pub(super) const fn token(&self, i: u32) -> Token {
        self.class.token(i)
    }

    /// Takes a record. `None`: all are in use.
    pub(super) fn start_send(&mut self, user: u32, to: PeerId, payload: RegionRange) -> Option<u32> {
        let i = self.free_sends.pop(self.sends.as_mut(), |send| &mut send.link)?;
        *self.send(i)? = SendOp { user, to, payload, state: SendState::Open, ..SendOp::FREE };
        Some(i)
    }

    /// As [`start_send`](Self::start_send).
    pub(super) fn start_receive(&mut self, user: u32, into: RegionRange) -> Option<u32> {
        let i = self.free_receives.pop(self.receives.as_mut(), |receive| &mut receive.link)?;
        *self.receive(i)? = ReceiveOp { user, into, state: ReceiveState::Awaited, ..ReceiveOp::FREE };
        Some(i)
    }

    pub(super) fn send(&mut self, i: u32) -> Option<&mut SendOp> {
        self.sends.as_mut().get_mut(i as usize)
    }

    pub(super) fn receive(&mut self, i: u32) -> Option<&mut ReceiveOp> {
        self.receives.as_mut().get_mut(i as usize)
    }

    pub(super) fn free_send(&mut self, i: u32) {
        if let Some(send) = self.send(i) {
            *send = SendOp::FREE;
            self.free_sends.push_front(self.sends.as_mut(), i, |send| &mut send.link);
        }
    }

    pub(super) fn free_receive(&mut self, i: u32) {
        if let Some(receive) = self.receive(i) {
            *receive = ReceiveOp::FREE;
            self.free_receives.push_front(self.receives.as_mut(), i, |receive| &mut receive.link);
        }
    }

    /// The payload of a send is being read until [`release_send`](Self::release_send).
    pub(super) fn retain_send(&mut self, i: u32) {
        if let Some(send) = self.send(i) {
            send.uses = send.uses.wrapping_add(1);
        }
    }

    /// The payload of a send was read, or will not be.
    pub(super) fn release_send(&mut self, i: u32, failure: Option<SendFailure>) {
        if let Some(send) = self.send(i).filter(|send| send.uses > 0) {
            send.uses = send.uses.wrapping_sub(1);
            send.failure = send.failure.or(failure);
        }
        self.settle_send(i);
    }

    /// A held send leaves, and may be asked for again. False: it was abandoned.
    pub(super) fn reopen(&mut self, i: u32) -> bool {
        self.send(i).is_some_and(|send| {
            send.is_ack_requested = false;
            send.state != SendState::Abandoned
        })
    }

    /// The payload of a send is not asked for any more.
    pub(super) fn finish_send(&mut self, i: u32, failure: Option<SendFailure>) {
        if let Some(send) = self.send(i) {
            send.failure = send.failure.or(failure);
            match &mut send.state {
                state @ SendState::Open => *state = SendState::Final,
                SendState::Granted { more, .. } => *more = false,
                SendState::Abandoned => return self.free_send(i),
                SendState::Free | SendState::Final | SendState::Ended => {}
            }
        }
        self.settle_send(i);
    }

    /// Ends a send whose payload nobody needs any more.
    fn settle_send(&mut self, i: u32) {
        let is_over =
            |send: &&mut SendOp| send.state == SendState::Final && (send.uses == 0 || mutant!("ends_while_read"));
        if let Some(send) = self.send(i).filter(is_over) {
            send.state = SendState::Ended;
            self.ended_sends.push(self.sends.as_mut(), i, |send| &mut send.link);
        }
    }

    /// The receiver granted memory for a send. False: it has granted before what is not placed yet.
    pub(super) fn grant_send(&mut self, i: u32, grant: Grant, more: bool) -> bool {
        if self.send(i).is_some_and(|send| send.state == SendState::Abandoned) {
            if !more {
                self.free_send(i);
            }
            return true;
        }
        let Some(send) = self.send(i).filter(|send| send.state == SendState::Open) else { return false };
        send.state = SendState::Granted { grant, more };
        self.placing.push(self.sends.as_mut(), i, |send| &mut send.link);
        true
    }

    /// Lists a receive whose payload is to be fetched or granted.
    pub(super) fn pull(&mut self, i: u32, source: PullSource) {
        if let Some(receive) = self.receive(i) {
            receive.state = ReceiveState::Pulling(source);
            self.relist_pulled(i);
        }
    }

    pub(super) fn pop_pulled(&mut self, list: &mut List) -> Option<u32> {
        list.pop(self.receives.as_mut(), |receive| &mut receive.link)
    }

    pub(super) fn relist_pulled(&mut self, i: u32) {
        self.pulling.push(self.receives.as_mut(), i, |receive| &mut receive.link);
    }

    /// The next receive to be retried that found no room before.
    pub(super) fn pop_starved(&mut self) -> Option<u32> {
        self.starved.pop(self.receives.as_mut(), |receive| &mut receive.link)
    }

    /// Lists a receive that found no room: as the first one, if it has found none `again`.
    pub(super) fn starve(&mut self, i: u32, again: bool) {
        let receives = self.receives.as_mut();
        if again {
            self.starved.push_front(receives, i, |receive| &mut receive.link);
        } else {
            self.starved.push(receives, i, |receive| &mut receive.link);
        }
    }

    /// Ends a receive, which is in no list.
    pub(super) fn end_receive(&mut self, i: u32, result: Result<Status, ReceiveFailure>) {
        let is_open = |receive: &&mut ReceiveOp| !matches!(receive.state, ReceiveState::Free | ReceiveState::Ended(_));
        if let Some(receive) = self.receive(i).filter(is_open) {
            receive.state = ReceiveState::Ended(result);
            self.ended_receives.push(self.receives.as_mut(), i, |receive| &mut receive.link);
        }
    }

    /// Frees the next send that has ended.
    pub(super) fn poll_sent(&mut self) -> Option<(u32, PeerId, Result<(), SendFailure>)> {
        let i = self.ended_sends.pop(self.sends.as_mut(), |send| &mut send.link)?;
        let SendOp { user, to, failure, .. } = *self.send(i)?;
        self.free_send(i);
        Some((user, to, failure.map_or(Ok(()), Err)))
    }

    /// Frees the next receive that has ended.
    pub(super) fn poll_received(&mut self) -> Option<(u32, Result<Status, ReceiveFailure>)> {
        let i = self.ended_receives.pop(self.receives.as_mut(), |receive| &mut receive.link)?;
        let ReceiveOp { user, state, .. } = *self.receive(i)?;
        self.free_receive(i);
        if let ReceiveState::Ended(result) = state { Some((user, result)) } else { None }
    }

    /// Whether a payload is to be moved, or an event is pending.
    pub(super) const fn has_work(&self) -> bool {
        !self.placing.is_empty()
            || !self.pulling.is_empty()
            || !self.starved.is_empty()
            || !self.ended_sends.is_empty()
            || !self.ended_receives.is_empty()
    }

    /// Whether every record is free.
    pub(super) fn is_idle(&self) -> bool {
        let free_sends = self.sends.as_ref().iter().all(|send| send.state == SendState::Free);
        free_sends && self.receives.as_ref().iter().all(|receive| receive.state == ReceiveState::Free)
    }

    /// Keeps only those sends listed that satisfy `stays`.
    pub(super) fn unlist_placing(&mut self, stays: impl Fn(&SendOp) -> bool) {
        retain(&mut self.placing, self.sends.as_mut(), |send| &mut send.link, stays);
    }

    /// As [`unlist_placing`](Self::unlist_placing), of receives whose payload is to be fetched or granted.
    pub(super) fn unlist_pulling(&mut self, stays: impl Fn(&ReceiveOp) -> bool) {
        for list in [&mut self.pulling, &mut self.starved] {
            retain(list, self.receives.as_mut(), |receive| &mut receive.link, &stays);
        }
    }

    /// Ends the sends to a peer that is gone, once their payload is not read any more.
    pub(super) fn disconnect_sends(&mut self, peer: PeerId) {
        self.unlist_placing(|send| send.to != peer);
        for i in 0..self.sends.as_ref().len() as u32 {
            if let Some(send) = self.send(i).filter(|send| send.to == peer && send.state != SendState::Free) {
                if let SendState::Granted { .. } = send.state {
                    send.state = SendState::Open;
                }
                self.finish_send(i, Some(SendFailure::PeerGone));
            }
        }
    }

    /// Ends the receives whose message is at a peer that is gone. Returns whether there were any.
    pub(super) fn disconnect_receives(&mut self, transport: &mut impl Transport, peer: PeerId) -> bool {
        self.unlist_pulling(|receive| !receive.is_from(peer));
        let mut any = false;
        for i in 0..self.receives.as_ref().len() as u32 {
            let token = self.token(i);
            let Some(receive) = self.receive(i).filter(|receive| receive.is_from(peer)) else { continue };
            match receive.state {
                ReceiveState::Ended(_) | ReceiveState::Free => continue,
                ReceiveState::Granted { placement, .. } => transport.withdraw(peer, placement),
                ReceiveState::Fetching { .. } if mutant!("fetch_outlives_peer") => {}
                ReceiveState::Fetching { .. } => transport.abort_fetch(peer, token),
                ReceiveState::Posted(_) | ReceiveState::Awaited | ReceiveState::Pulling(_) => {}
            }
            self.end_receive(i, Err(ReceiveFailure::PeerGone));
            any = true;
        }
        any
    }
}

/// Removes the records from a list that do not `stay`.
fn retain<R>(list: &mut List, records: &mut [R], link: impl Fn(&mut R) -> &mut u32, stays: impl Fn(&R) -> bool) {
    let mut all = core::mem::replace(list, List::EMPTY);
    while let Some(i) = all.pop(records, &link) {
        if records.get(i as usize).is_some_and(&stays) {
            list.push(records, i, &link);
        }
    }
}
