//! A messenger over an endpoint: the handler of its messages, and its events.

use super::operations::SendFailure;
use super::{Messenger, MessengerStorage, Payload};
use crate::counters::Counters;
use crate::counters::Metric;
use crate::endpoint::operation::OperationError;
use crate::endpoint::storage::Storage;
use crate::endpoint::{Event, Handler, Verdict};
use crate::ids::PeerId;
use crate::pool::Pool;
use crate::transport::{EndpointHost, EndpointTransport, Token};

/// The handler of an endpoint's messages that hands them to a messenger.
#[derive(Debug)]
pub struct MessengerHandler<'a, S: MessengerStorage> {
    /// The messenger.
    pub messenger: &'a mut Messenger<S>,
    /// Counts the endpoint's events.
    pub counters: &'a mut Counters,
}

impl<S: MessengerStorage> Handler for MessengerHandler<'_, S> {
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        match self.messenger.handle(from, head, bytes) {
            Payload::Copy { to, start } if to.bytes > 0 => {
                Verdict::Place { to, start: u16::try_from(start).unwrap_or(u16::MAX) }
            }
            Payload::Copy { .. } | Payload::Nothing => Verdict::Release,
            Payload::ProtocolViolation => {
                self.messenger.violator = Some(from);
                Verdict::Release
            }
        }
    }

    fn record(&mut self, what: Metric) {
        self.counters.count(what);
    }

    fn record_all(&mut self, what: Metric, times: u32) {
        self.counters.count_all(what, times);
    }
}

impl<M: MessengerStorage> Messenger<M> {
    /// Handles an event of the endpoint. Receives from any source end with a failed peer.
    pub fn handle_endpoint_event<S, O, P, H, const W: usize, const BITS: u32>(
        &mut self,
        transport: &mut EndpointTransport<'_, S, O, P, H, W, BITS>,
        event: Event,
    ) where
        S: Storage<W, BITS>,
        O: Pool<Token>,
        P: Pool<Token>,
        H: EndpointHost,
    {
        match event {
            Event::Completed(operation, result) => {
                let result = result.map_err(|error| match error {
                    OperationError::Refused => SendFailure::Refused,
                    OperationError::PeerFailed | OperationError::PeerFinished => SendFailure::PeerGone,
                });
                self.handle_sent(transport.tokens.operation(operation), result);
            }
            Event::Delivered(placement, _) => self.handle_delivered(transport.tokens.placement(placement)),
            Event::PeerFailed(peer) => _ = self.disconnect(transport, peer, true),
            Event::PeerFinished(peer) => _ = self.disconnect(transport, peer, false),
            Event::PeerSilent(_) => {}
        }
    }
}
