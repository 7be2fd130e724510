//! An endpoint as a transport.

use super::{Fetch, Grant, Progress, Token, Transport, TransportError, TxPayload};
use crate::endpoint::Endpoint;
use crate::endpoint::operation::EnqueueError;
use crate::endpoint::storage::Storage;
use crate::ids::{OperationId, PeerId, PlacementId, Port, RemoteKey};
use crate::message::point_to_point::MessageHeader;
use crate::pool::Pool;
use crate::span::{RegionRange, Span};
use crate::time::Time;

/// What an endpoint's host provides to a transport.
pub trait EndpointHost {
    /// Most bytes of a message for which memory is granted at a time: the same on all ranks.
    const GRANT_LIMIT: usize = 1 << 31;

    /// A remote key that no peer can guess, of a grant of its own.
    fn next_key(&mut self) -> RemoteKey;

    /// Copies within this process's memory, as much as fits.
    fn copy(&mut self, from: Span, into: RegionRange);

    /// As [`Transport::fetch`]: a network reaches no memory of peers.
    fn fetch(&mut self, _from: PeerId, _at: u64, _into: RegionRange, _copied: usize, _token: Token) -> Fetch {
        Fetch::Unreachable
    }

    /// As [`Transport::abort_fetch`].
    fn abort_fetch(&mut self, _token: Token) {}
}

/// The owners of an endpoint's operations and placements, by record.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TokenTable<O, P> {
    operations: O,
    placements: P,
}

impl<O: Pool<Token>, P: Pool<Token>> TokenTable<O, P> {
    /// As many tokens as the endpoint has records of each kind.
    pub const fn new(operations: O, placements: P) -> Self {
        Self { operations, placements }
    }

    /// The owner of a completed operation.
    pub fn operation(&self, id: OperationId) -> Token {
        self.operations.as_ref().get(id.0 as usize).copied().unwrap_or(Token::NOBODY)
    }

    /// The owner of a delivered placement.
    pub fn placement(&self, id: PlacementId) -> Token {
        self.placements.as_ref().get(id.record()).copied().unwrap_or(Token::NOBODY)
    }
}

/// An endpoint at a point in time.
#[derive(Debug)]
pub struct EndpointTransport<'a, S: Storage<W, BITS>, O, P, H, const W: usize, const BITS: u32> {
    /// The present time.
    pub now: <S::Time as Time>::Instant,
    /// The endpoint.
    pub endpoint: &'a mut Endpoint<S, W, BITS>,
    /// The owners of its operations.
    pub tokens: &'a mut TokenTable<O, P>,
    /// The host's memory.
    pub host: &'a mut H,
}

impl<S, O, P, H, const W: usize, const BITS: u32> EndpointTransport<'_, S, O, P, H, W, BITS>
where
    S: Storage<W, BITS>,
    O: Pool<Token>,
{
    fn record(
        &mut self,
        queued: Result<OperationId, EnqueueError>,
        token: Token,
        port: Port,
    ) -> Result<Progress, TransportError> {
        let operation = queued?;
        self.endpoint.use_port(operation, port);
        if let Some(owner) = self.tokens.operations.as_mut().get_mut(operation.0 as usize) {
            *owner = token;
        }
        Ok(Progress::Pending)
    }
}

impl<S, O, P, H, const W: usize, const BITS: u32> Transport for EndpointTransport<'_, S, O, P, H, W, BITS>
where
    S: Storage<W, BITS>,
    O: Pool<Token>,
    P: Pool<Token>,
    H: EndpointHost,
{
    fn eager_limit(&self, to: PeerId) -> u32 {
        self.endpoint.longest_message(to).saturating_sub(MessageHeader::EAGER as u32)
    }

    fn send(
        &mut self,
        to: PeerId,
        head: &[u8],
        payload: Option<TxPayload>,
        port: Port,
    ) -> Result<Progress, TransportError> {
        let queued = self.endpoint.send(self.now, to, head, payload.map(|payload| payload.span));
        self.record(queued, payload.map_or(Token::NOBODY, |payload| payload.token), port)
    }

    fn grant_limit(&self, _: PeerId) -> usize {
        H::GRANT_LIMIT
    }

    fn grant(&mut self, to: PeerId, into: RegionRange, token: Token) -> Result<Grant, TransportError> {
        if !self.endpoint.can_grant() {
            return Err(TransportError::Full);
        }
        let key = self.host.next_key();
        let placement = self.endpoint.grant(to, into.span(0, usize::MAX), key)?;
        if let Some(owner) = self.tokens.placements.as_mut().get_mut(placement.record()) {
            *owner = token;
        }
        Ok(Grant { placement, key })
    }

    fn withdraw(&mut self, _: PeerId, placement: PlacementId) {
        self.endpoint.withdraw(placement);
        if let Some(owner) = self.tokens.placements.as_mut().get_mut(placement.record()) {
            *owner = Token::NOBODY;
        }
    }

    fn place(
        &mut self,
        to: PeerId,
        grant: Grant,
        from: RegionRange,
        token: Token,
        port: Port,
    ) -> Result<Progress, TransportError> {
        let queued = self.endpoint.place(self.now, to, grant.placement, grant.key, from.span(0, usize::MAX));
        self.record(queued, token, port)
    }

    fn fetch(&mut self, from: PeerId, at: u64, into: RegionRange, copied: usize, token: Token) -> Fetch {
        self.host.fetch(from, at, into, copied, token)
    }

    fn abort_fetch(&mut self, _: PeerId, token: Token) {
        self.host.abort_fetch(token);
    }

    fn copy(&mut self, from: Span, into: RegionRange) {
        self.host.copy(from, into);
    }
}
