//! What the layers above need of a way to peers: an endpoint, the rings of a shared-memory segment, or this rank itself.
//!
//! A transport carries messages in order, and moves long payloads into granted memory. It owns every byte: spans name
//! memory to it, and tokens name the operations that it completes later.

mod endpoint_transport;

use crate::endpoint::GrantError;
use crate::endpoint::operation::EnqueueError;
use crate::ids::{PeerId, PlacementId, Port, RemoteKey};
use crate::span::{RegionRange, Span};

pub use endpoint_transport::{EndpointHost, EndpointTransport, TokenTable};

/// The owner of an operation: the transport returns it when the operation completes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(pub u32);

impl Token {
    /// Nobody waits for the operation.
    pub const NOBODY: Self = Self(u32::MAX);
}

/// Memory that a peer may write once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grant {
    /// The receiver's number for it.
    pub placement: PlacementId,
    /// What authorizes the sender.
    pub key: RemoteKey,
}

/// The payload of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TxPayload {
    /// Its bytes.
    pub span: Span,
    /// Its owner.
    pub token: Token,
    /// The owner continues only once it may reuse the bytes: a copy spares it the wait.
    pub is_urgent: bool,
}

/// The state of an accepted operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Progress {
    /// Its payload is not needed any more.
    Complete,
    /// The payload stays unchanged until the transport completes the token.
    Pending,
}

/// Why an operation was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransportError {
    /// There is no room: retry after progress.
    Full,
    /// The peer takes no part; the transport reports that by an event.
    PeerGone,
}

impl From<EnqueueError> for TransportError {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Full => Self::Full,
            EnqueueError::UnknownPeer
            | EnqueueError::PeerFailed
            | EnqueueError::PeerFinished
            | EnqueueError::TooLong => Self::PeerGone,
        }
    }
}

impl From<GrantError> for TransportError {
    fn from(error: GrantError) -> Self {
        match error {
            GrantError::Full => Self::Full,
            GrantError::UnknownPeer => Self::PeerGone,
        }
    }
}

/// The result of copying a payload out of the sender's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fetch {
    /// All of it was copied.
    Complete,
    /// This number of bytes was copied; the rest follows by another call.
    Copied(usize),
    /// This number of bytes is being read: the transport reports the end under the token. The rest follows by another
    /// call.
    Started(usize),
    /// This rank cannot read the payload: it has to be sent.
    Unreachable,
    /// The sender named memory that does not exist: a protocol violation.
    Invalid,
}

/// A way to peers.
pub trait Transport {
    /// Most bytes of payload that a message to this peer carries after the longest header of an eager message.
    fn eager_limit(&self, to: PeerId) -> u32;

    /// Sends a message after all earlier ones to the peer: a header, and a payload if there is one. A transport of
    /// several rails uses that of the port.
    ///
    /// # Errors
    /// [`TransportError`]; nothing was sent.
    fn send(
        &mut self,
        to: PeerId,
        head: &[u8],
        payload: Option<TxPayload>,
        port: Port,
    ) -> Result<Progress, TransportError>;

    /// Most bytes of one [`grant`](Self::grant) to this peer: the same on both sides.
    fn grant_limit(&self, peer: PeerId) -> usize;

    /// Lets a peer write to `into` once. Ends when the transport reports delivery under the token.
    ///
    /// # Errors
    /// [`TransportError`]; nothing was granted.
    fn grant(&mut self, to: PeerId, into: RegionRange, token: Token) -> Result<Grant, TransportError>;

    /// Withdraws a grant of which no delivery was reported.
    fn withdraw(&mut self, from: PeerId, placement: PlacementId);

    /// Writes a payload to memory that the peer granted, as [`send`](Self::send) over the port's rail.
    ///
    /// # Errors
    /// [`TransportError`]; nothing was started.
    fn place(
        &mut self,
        to: PeerId,
        grant: Grant,
        from: RegionRange,
        token: Token,
        port: Port,
    ) -> Result<Progress, TransportError>;

    /// Copies a payload that lies at `at` in the sender's memory, of which `copied` bytes were copied before. Where it
    /// is [`Unreachable`](Fetch::Unreachable), all of it is sent.
    fn fetch(&mut self, from: PeerId, at: u64, into: RegionRange, copied: usize, token: Token) -> Fetch;

    /// Ends a fetch that was [started](Fetch::Started) under the token, and whose end was not reported. Afterwards nothing
    /// is written to its memory, and no end of it is reported.
    fn abort_fetch(&mut self, _from: PeerId, _token: Token) {}

    /// Copies within this process's memory, as much as fits.
    fn copy(&mut self, from: Span, into: RegionRange);
}
