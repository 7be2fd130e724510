//! A non-blocking stream connection of the bootstrap service (TCP, or a local socket of one host), and its mutual authentication before the first frame.
//!
//! ```text
//! client → server   "unisono" version | role 0 0 0 | number u32 | nonce 32            48 bytes
//! server → client   "unisono" version | nonce 32 | proof 32                           72 bytes
//! client → server   proof 32, then authenticated frames
//! ```
//! Each proof covers its purpose and all bytes exchanged before it, so it can be neither used elsewhere nor reflected.

pub(crate) mod connect;

use super::{
    auth::{JobKey, MacKey, PROOF_BYTES},
    frame::{Frame, FrameDecoder, FrameError, append, kind_of},
    message::Malformed,
};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;
use std::{
    io::{self, ErrorKind, Read},
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

/// The protocol and its version.
const MAGIC: [u8; 8] = *b"unisono\x03";
const HELLO: usize = 48;
const CHALLENGE: usize = 72;
/// Largest backlog in bytes for a peer that does not read.
const BACKLOG_MAX: usize = 4 << 20;
/// TCP keepalive: idle time before the first probe, and the interval of the probes; a dead connection is detected after
/// 30 s.
const KEEPALIVE: Duration = Duration::from_secs(6);
const KEEPALIVE_PROBES: u32 = 4;
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// The role of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientRole {
    /// A rank of the job.
    Member(u32),
    /// The launcher's agent on a node.
    Agent(u32),
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The other end closed the connection.
    #[error("the other end closed the connection")]
    Closed,
    /// The operating system reports an error.
    #[error("the connection broke: {0}")]
    Broken(ErrorKind),
    /// This host's loopback interface, which the address belongs to, is down.
    #[error("this host's loopback interface is down: enable it (ip link set lo up)")]
    NoLoopback,
    /// The received bytes are not valid frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame does not hold a valid message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A message is not valid at this point of the protocol.
    #[error("a message of kind {0} is not expected now")]
    Unexpected(u8),
    /// The other end uses another protocol, or another version.
    #[error("the other end does not use this version of unisono's bootstrap protocol: check its address and version")]
    Version,
    /// The other end does not know the secret of this job.
    #[error("the other end does not know the secret of this job: check UNISONO_SECRET and UNISONO_JOB")]
    Unauthenticated,
    /// The other end has stopped reading, and the send buffer is full.
    #[error("the other end has stopped reading")]
    SendBufferFull,
    /// The other end did not answer in time.
    #[error("the other end did not answer in time")]
    Timeout,
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.kind())
    }
}

#[derive(Debug)]
pub(crate) struct BufferedStream {
    stream: Socket,
    inbox: FrameDecoder,
    outbox: Vec<u8>,
    closed: bool,
}

impl BufferedStream {
    pub(crate) fn new(stream: Socket) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        if !stream.local_addr()?.is_unix() {
            stream.set_tcp_nodelay(true)?;
            let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            stream.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES))?;
            stream.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
        }
        Ok(Self { stream, inbox: FrameDecoder::default(), outbox: Vec::new(), closed: false })
    }

    pub(crate) fn stream(&self) -> &Socket {
        &self.stream
    }

    /// Reads once into the inbox. The end of the stream is reported after the inbox is empty.
    pub(crate) fn read(&mut self) -> Result<(), ConnectionError> {
        if !self.inbox.has_room() || self.closed {
            return Ok(());
        }
        let mut arrived = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut arrived) {
                Ok(0) => self.closed = true,
                Ok(bytes) => self.inbox.fill(arrived.get(..bytes).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            return Ok(());
        }
    }

    /// Whether the other end has closed the stream.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Sends as much as the connection accepts without blocking.
    pub(crate) fn flush(&mut self) -> Result<(), ConnectionError> {
        while !self.outbox.is_empty() {
            // A program may have restored the default action of SIGPIPE.
            let sent = rustix::net::send(&self.stream, &self.outbox, rustix::net::SendFlags::NOSIGNAL);
            match sent.map_err(io::Error::from) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(bytes) => drop(self.outbox.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Unsent bytes.
    pub(crate) const fn backlog(&self) -> usize {
        self.outbox.len()
    }

    /// Waits until the connection is readable (or, with a backlog, writable), at most until the deadline.
    pub(crate) fn wait(&self, deadline: Instant) -> Result<(), ConnectionError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ConnectionError::Timeout);
        }
        let wanted = if self.outbox.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let timeout = Timespec::try_from(left).map_err(|_| ConnectionError::Timeout)?;
        match poll(&mut [PollFd::new(&self.stream, wanted)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    fn take_bytes<const N: usize>(&mut self) -> Result<Option<[u8; N]>, ConnectionError> {
        match self.inbox.take_bytes() {
            None if self.closed => Err(ConnectionError::Closed),
            taken => Ok(taken),
        }
    }

    fn await_bytes<const N: usize>(&mut self, deadline: Instant) -> Result<[u8; N], ConnectionError> {
        loop {
            self.flush()?;
            self.read()?;
            if let Some(taken) = self.take_bytes()? {
                return Ok(taken);
            }
            self.wait(deadline)?;
        }
    }

    /// The client's side of the authentication. Blocks, at most until the deadline.
    pub(crate) fn authenticate(
        mut self,
        role: ClientRole,
        key: &JobKey,
        deadline: Instant,
    ) -> Result<AuthenticatedStream, ConnectionError> {
        let mut hello = [0; HELLO];
        let (number, kind) = match role {
            ClientRole::Member(rank) => (rank, 0),
            ClientRole::Agent(node) => (node, 1),
        };
        hello[..8].copy_from_slice(&MAGIC);
        hello[8] = kind;
        hello[12..16].copy_from_slice(&number.to_le_bytes());
        getrandom::fill(&mut hello[16..]).map_err(|_| ConnectionError::Broken(ErrorKind::Other))?;
        self.outbox.extend_from_slice(&hello);
        let challenge = self.await_bytes::<CHALLENGE>(deadline)?;
        let (greeting, proof) = split_challenge(&challenge).ok_or(ConnectionError::Version)?;
        if !key.verify(b"server", &[&hello, greeting], proof) {
            return Err(ConnectionError::Unauthenticated);
        }
        self.outbox.extend_from_slice(&key.prove(b"client", &[&hello, &challenge]));
        let said: [&[u8]; 2] = [&hello, &challenge];
        let session =
            SessionKeys { send_key: key.derive(b"to server", &said), receive_key: key.derive(b"to client", &said) };
        Ok(AuthenticatedStream { stream: self, keys: session })
    }
}

/// Splits a challenge into its greeting (magic and nonce) and proof; `None` if it is of another protocol.
fn split_challenge(challenge: &[u8; CHALLENGE]) -> Option<(&[u8], &[u8; PROOF_BYTES])> {
    let (greeting, proof) = challenge.split_last_chunk()?;
    greeting.starts_with(&MAGIC).then_some((greeting, proof))
}

impl AsFd for BufferedStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The server's side of the authentication, step by step as bytes arrive.
#[derive(Debug)]
pub(crate) enum Handshake {
    /// The client's first message has not arrived.
    Hello,
    /// The challenge has been sent.
    Challenged { hello: [u8; HELLO], challenge: [u8; CHALLENGE], role: ClientRole },
}

impl Handshake {
    /// Consumes the received bytes. Returns the client's role and the session once the client has authenticated.
    pub(crate) fn advance(
        &mut self,
        link: &mut BufferedStream,
        key: &JobKey,
    ) -> Result<Option<(ClientRole, SessionKeys)>, ConnectionError> {
        if let Self::Hello = self {
            let Some(hello) = link.take_bytes::<HELLO>()? else {
                return Ok(None);
            };
            let role = role_of(&hello).ok_or(ConnectionError::Version)?;
            let mut challenge = [0; CHALLENGE];
            let (greeting, proof) = challenge.split_last_chunk_mut::<PROOF_BYTES>().ok_or(ConnectionError::Version)?;
            let (magic, nonce) = greeting.split_first_chunk_mut().ok_or(ConnectionError::Version)?;
            *magic = MAGIC;
            getrandom::fill(nonce).map_err(|_| ConnectionError::Broken(ErrorKind::Other))?;
            *proof = key.prove(b"server", &[&hello, greeting]);
            link.outbox.extend_from_slice(&challenge);
            *self = Self::Challenged { hello, challenge, role };
        }
        let Self::Challenged { hello, challenge, role } = self else {
            return Ok(None);
        };
        let Some(proof) = link.take_bytes()? else {
            return Ok(None);
        };
        let said: [&[u8]; 2] = [hello.as_slice(), challenge.as_slice()];
        if !key.verify(b"client", &said, &proof) {
            return Err(ConnectionError::Unauthenticated);
        }
        let session =
            SessionKeys { send_key: key.derive(b"to client", &said), receive_key: key.derive(b"to server", &said) };
        Ok(Some((*role, session)))
    }
}

fn role_of(hello: &[u8; HELLO]) -> Option<ClientRole> {
    let [a, b, c, d, e, f, g, h, kind, 0, 0, 0, n0, n1, n2, n3, ..] = *hello else {
        return None;
    };
    let number = u32::from_le_bytes([n0, n1, n2, n3]);
    match ([a, b, c, d, e, f, g, h] == MAGIC, kind) {
        (true, 0) => Some(ClientRole::Member(number)),
        (true, 1) => Some(ClientRole::Agent(number)),
        _ => None,
    }
}

/// The MAC keys of both directions.
#[derive(Clone)]
pub(crate) struct SessionKeys {
    send_key: MacKey,
    receive_key: MacKey,
}

impl core::fmt::Debug for SessionKeys {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.write_str("Session(hidden)")
    }
}

impl SessionKeys {
    /// Queues a frame.
    pub(crate) fn queue(&mut self, link: &mut BufferedStream, payload: &[u8]) -> Result<(), ConnectionError> {
        if link.outbox.len() > BACKLOG_MAX {
            return Err(ConnectionError::SendBufferFull);
        }
        append(&mut link.outbox, payload, &mut self.send_key)
            .ok_or(ConnectionError::Malformed(Malformed { kind: kind_of(payload) }))
    }

    /// The next frame that has arrived.
    pub(crate) fn next_frame(&mut self, link: &mut BufferedStream) -> Result<Option<Frame>, ConnectionError> {
        match link.inbox.next_frame(&mut self.receive_key)? {
            None if link.closed => Err(ConnectionError::Closed),
            frame => Ok(frame),
        }
    }
}

/// A mutually authenticated connection.
#[derive(Debug)]
pub(crate) struct AuthenticatedStream {
    pub(crate) stream: BufferedStream,
    pub(crate) keys: SessionKeys,
}

impl AuthenticatedStream {
    /// Queues a frame and sends as much as the connection accepts.
    pub(crate) fn send(&mut self, message: &[u8]) -> Result<(), ConnectionError> {
        self.keys.queue(&mut self.stream, message)?;
        self.stream.flush()
    }

    /// The next frame, if one has arrived. One read at most.
    pub(crate) fn poll(&mut self) -> Result<Option<Frame>, ConnectionError> {
        self.stream.flush()?;
        match self.keys.next_frame(&mut self.stream) {
            Ok(None) => {}
            taken => return taken,
        }
        self.stream.read()?;
        self.keys.next_frame(&mut self.stream)
    }

    /// The next frame. Blocks, at most until the deadline.
    pub(crate) fn next(&mut self, deadline: Instant) -> Result<Frame, ConnectionError> {
        loop {
            if let Some(frame) = self.poll()? {
                return Ok(frame);
            }
            self.stream.wait(deadline)?;
        }
    }
}
