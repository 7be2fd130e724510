//! The rendezvous of announced messages, of both classes: payloads are fetched, or granted memory and placed there.

use super::operations::{PullSource, ReceiveOp, ReceiveState, SendState};
use super::{Class, Messenger, MessengerStorage};
use crate::ids::{Port, ReceiveId};
use crate::list::List;
use crate::message::collective_transport::StepHeader;
use crate::transport::{Fetch, Grant, Progress, Transport, TransportError};

/// The result of a listed receive's turn.
enum Pulled {
    /// It is listed no more.
    Done,
    /// Some of it was copied; the rest has its turn after other work.
    Partly,
    /// The transport has no room.
    Full,
}

impl<S: MessengerStorage> Messenger<S> {
    /// Point-to-point matching asks for the payload of a matched message.
    pub(super) fn pull_message(&mut self, receive: ReceiveId, user: u32, at: Option<u64>) {
        match self.messages.receive(user).map(|op| op.state) {
            Some(ReceiveState::Awaited) => self.messages.pull(user, PullSource::Message { receive, at }),
            _ => self.matching.cancel_pull(receive),
        }
    }

    /// Places the payloads for which receivers have granted memory. Returns whether anything moved.
    pub(super) fn place_granted(&mut self, transport: &mut impl Transport, class: Class) -> bool {
        let mut moved = false;
        let (operations, _) = self.parts(class);
        while let Some(i) = operations.placing.pop(operations.sends.as_mut(), |send| &mut send.link) {
            let token = operations.token(i);
            let Some(send) = operations.send(i) else { break };
            let SendState::Granted { grant, more } = send.state else { continue };
            let most = if more { transport.grant_limit(send.to) } else { usize::MAX };
            let part = send.payload.part(send.placed, most);
            let placed = transport.place(send.to, grant, part, token, send.port);
            if placed == Err(TransportError::Full) {
                operations.placing.push_front(operations.sends.as_mut(), i, |send| &mut send.link);
                break;
            }
            moved = true;
            send.placed = send.placed.saturating_add(part.bytes);
            send.state = SendState::Open;
            if placed == Ok(Progress::Pending) {
                send.uses = send.uses.wrapping_add(1);
            }
            if !more {
                operations.finish_send(i, None);
            }
        }
        moved
    }

    /// Fetches or grants the payloads of matched messages. Returns whether anything moved.
    pub(super) fn pull_matched(&mut self, transport: &mut impl Transport, class: Class) -> bool {
        let mut moved = false;
        while let Some(i) = self.parts(class).0.pop_starved() {
            match self.pull(transport, class, i) {
                Pulled::Full => {
                    self.parts(class).0.starve(i, true);
                    break;
                }
                pulled => moved |= self.relist(class, i, pulled),
            }
        }
        let (operations, _) = self.parts(class);
        let mut all = core::mem::replace(&mut operations.pulling, List::EMPTY);
        while let Some(i) = self.parts(class).0.pop_pulled(&mut all) {
            let pulled = self.pull(transport, class, i);
            moved |= self.relist(class, i, pulled);
        }
        moved
    }

    /// Lists a receive again that is not done. Returns whether it moved.
    fn relist(&mut self, class: Class, i: u32, pulled: Pulled) -> bool {
        let (operations, _) = self.parts(class);
        match pulled {
            Pulled::Done => {}
            Pulled::Partly => operations.relist_pulled(i),
            Pulled::Full => {
                operations.starve(i, false);
                return false;
            }
        }
        true
    }

    fn pull(&mut self, transport: &mut impl Transport, class: Class, i: u32) -> Pulled {
        let (operations, outbox) = self.parts(class);
        let token = operations.token(i);
        let Some(op) = operations.receive(i) else { return Pulled::Done };
        let ReceiveOp { into, arrived, state: ReceiveState::Pulling(source), status: Some(status), .. } = *op else {
            return Pulled::Done;
        };
        let from = status.envelope.source;
        let whole = into.part(0, usize::try_from(status.bytes).unwrap_or(usize::MAX));
        // It is answered by a FIN or a CTS.
        if outbox.is_full() {
            return Pulled::Full;
        }
        let fetched = match source.at() {
            // Nothing, or what the transport has read by itself.
            _ if arrived >= whole.bytes => Fetch::Complete,
            Some(at) => transport.fetch(from, at, whole, arrived, token),
            None => Fetch::Unreachable,
        };
        match fetched {
            Fetch::Copied(bytes) if !mutant!("fin_early") => {
                op.arrived = arrived.saturating_add(bytes);
                return Pulled::Partly;
            }
            Fetch::Started(part) if !mutant!("fetch_unfinished") => {
                op.state = ReceiveState::Fetching { part, source };
                return Pulled::Done;
            }
            Fetch::Complete | Fetch::Copied(_) | Fetch::Started(_) => {
                operations.end_receive(i, Ok(status));
                match source {
                    PullSource::Message { receive, .. } => self.matching.fetched(receive),
                    PullSource::Step { key, .. } if !mutant!("fin_forgotten") => {
                        self.post(transport, from, StepHeader::fin(key).as_ref(), None, (class, Port::ONLY));
                    }
                    PullSource::Step { .. } => {}
                }
                return Pulled::Done;
            }
            Fetch::Invalid => {
                self.violator = Some(from);
                return Pulled::Done;
            }
            // All of it is sent, also what was copied.
            Fetch::Unreachable if source.at().is_some() && !mutant!("rest_granted") => {
                (op.arrived, op.state) = (0, ReceiveState::Pulling(source.unreachable()));
            }
            Fetch::Unreachable => {}
        }
        let (source, arrived) = (source.unreachable(), op.arrived);
        let part = whole.part(arrived, transport.grant_limit(from));
        let Grant { placement, key } = match transport.grant(from, part, token) {
            Ok(grant) => grant,
            Err(TransportError::Full) => return Pulled::Full,
            // The peer's end is about to be reported.
            Err(TransportError::PeerGone) => return Pulled::Done,
        };
        let more = arrived.saturating_add(part.bytes) < whole.bytes;
        op.state = ReceiveState::Granted { placement, part: part.bytes, source };
        if mutant!("delivered_early") && !more {
            operations.end_receive(i, Ok(status));
        }
        match source {
            PullSource::Message { receive, .. } => {
                let granted = match more {
                    true => self.matching.grant_part(receive, placement, key),
                    false => self.matching.grant(receive, placement, key),
                };
                if let Some((to, head)) = granted {
                    self.post(transport, to, head.as_ref(), None, (class, Port::ONLY));
                }
            }
            PullSource::Step { key: of, .. } => {
                self.post(transport, from, StepHeader::cts(of, placement, key).as_ref(), None, (class, Port::ONLY));
            }
        }
        if mutant!("grants_twice") {
            self.parts(class).0.pull(i, source);
        }
        Pulled::Done
    }
}
