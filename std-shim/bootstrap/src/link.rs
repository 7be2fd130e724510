//! A non-blocking TCP connection of the bootstrap service, and its mutual authentication before the first frame.
//!
//! ```text
//! client → server   "unisono" version | role 0 0 0 | number u32 | nonce 32            48 bytes
//! server → client   "unisono" version | nonce 32 | proof 32                           72 bytes
//! client → server   proof 32, then authenticated frames
//! ```
//! Each proof covers its purpose and all bytes exchanged before it, so it can be neither used elsewhere nor reflected.

use super::{
    frame::{Frame, FrameError, Inbox, append, kind_of},
    message::Malformed,
    secret::{Key, PROOF, Seal},
};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

/// The protocol and its version.
const MAGIC: [u8; 8] = *b"unisono\x02";
const HELLO: usize = 48;
const CHALLENGE: usize = 72;
/// Largest backlog in bytes for a peer that does not read.
const OUTBOX_MAX: usize = 4 << 20;
/// TCP keepalive: idle time before the first probe, and the interval of the probes; a dead connection is detected after
/// 30 s.
const KEEPALIVE: Duration = Duration::from_secs(6);
const KEEPALIVE_PROBES: u32 = 4;
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// The role of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// A rank of the job.
    Member(u32),
    /// The launcher's agent on a node.
    Agent(u32),
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// The other end closed the connection.
    #[error("the other end closed the connection")]
    Closed,
    /// The operating system reports an error.
    #[error("the connection broke: {0}")]
    Broken(ErrorKind),
    /// The received bytes are not valid frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame does not hold a valid message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A message is not valid at this point of the protocol.
    #[error("a message of kind {0} is not expected now")]
    OutOfTurn(u8),
    /// The other end uses another protocol, or another version.
    #[error("the other end does not use this version of unisono's bootstrap protocol: check its address and version")]
    Version,
    /// The other end does not know the secret of this job.
    #[error("the other end does not know the secret of this job: check UNISONO_SECRET and UNISONO_JOB")]
    Unauthenticated,
    /// The other end has stopped reading, and the send buffer is full.
    #[error("the other end has stopped reading")]
    Full,
    /// The other end did not answer in time.
    #[error("the other end did not answer in time")]
    Timeout,
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.kind())
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    stream: TcpStream,
    inbox: Inbox,
    outbox: Vec<u8>,
    ended: bool,
}

impl Link {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let socket = socket2::SockRef::from(&stream);
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES))?;
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
        Ok(Self { stream, inbox: Inbox::default(), outbox: Vec::new(), ended: false })
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads once into the inbox. The end of the stream is reported after the inbox is empty.
    pub(crate) fn read(&mut self) -> Result<(), LinkError> {
        if !self.inbox.has_room() || self.ended {
            return Ok(());
        }
        let mut arrived = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut arrived) {
                Ok(0) => self.ended = true,
                Ok(bytes) => self.inbox.fill(arrived.get(..bytes).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            return Ok(());
        }
    }

    /// Whether the other end has closed the stream.
    pub(crate) const fn is_ended(&self) -> bool {
        self.ended
    }

    /// Sends as much as the connection accepts without blocking.
    pub(crate) fn flush(&mut self) -> Result<(), LinkError> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(0) => return Err(LinkError::Closed),
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
    pub(crate) fn wait(&self, deadline: Instant) -> Result<(), LinkError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(LinkError::Timeout);
        }
        let wanted = if self.outbox.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let timeout = Timespec::try_from(left).map_err(|_| LinkError::Timeout)?;
        match poll(&mut [PollFd::new(&self.stream, wanted)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    fn take_plain<const N: usize>(&mut self) -> Result<Option<[u8; N]>, LinkError> {
        match self.inbox.take_plain() {
            None if self.ended => Err(LinkError::Closed),
            taken => Ok(taken),
        }
    }

    fn await_plain<const N: usize>(&mut self, deadline: Instant) -> Result<[u8; N], LinkError> {
        loop {
            self.flush()?;
            self.read()?;
            if let Some(taken) = self.take_plain()? {
                return Ok(taken);
            }
            self.wait(deadline)?;
        }
    }

    /// The client's side of the authentication. Blocks, at most until the deadline.
    pub(crate) fn greet(mut self, role: Role, key: &Key, deadline: Instant) -> Result<Sealed, LinkError> {
        let mut hello = [0; HELLO];
        let (number, kind) = match role {
            Role::Member(rank) => (rank, 0),
            Role::Agent(node) => (node, 1),
        };
        hello[..8].copy_from_slice(&MAGIC);
        hello[8] = kind;
        hello[12..16].copy_from_slice(&number.to_le_bytes());
        getrandom::fill(&mut hello[16..]).map_err(|_| LinkError::Broken(ErrorKind::Other))?;
        self.outbox.extend_from_slice(&hello);
        let challenge = self.await_plain::<CHALLENGE>(deadline)?;
        let (greeting, proof) = cut_challenge(&challenge).ok_or(LinkError::Version)?;
        if !key.accepts(b"server", &[&hello, greeting], proof) {
            return Err(LinkError::Unauthenticated);
        }
        self.outbox.extend_from_slice(&key.prove(b"client", &[&hello, &challenge]));
        let said: [&[u8]; 2] = [&hello, &challenge];
        let session = Session { sealing: key.derive(b"to server", &said), opening: key.derive(b"to client", &said) };
        Ok(Sealed { link: self, session })
    }
}

/// Splits a challenge into its greeting (magic and nonce) and proof; `None` if it is of another protocol.
fn cut_challenge(challenge: &[u8; CHALLENGE]) -> Option<(&[u8], &[u8; PROOF])> {
    let (greeting, proof) = challenge.split_last_chunk()?;
    greeting.starts_with(&MAGIC).then_some((greeting, proof))
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The server's side of the authentication, step by step as bytes arrive.
#[derive(Debug)]
pub(crate) enum Greeting {
    /// The client's first message has not arrived.
    Hello,
    /// The challenge has been sent.
    Challenged { hello: [u8; HELLO], challenge: [u8; CHALLENGE], role: Role },
}

impl Greeting {
    /// Consumes the received bytes. Returns the client's role and the session once the client has authenticated.
    pub(crate) fn advance(&mut self, link: &mut Link, key: &Key) -> Result<Option<(Role, Session)>, LinkError> {
        if let Self::Hello = self {
            let Some(hello) = link.take_plain::<HELLO>()? else {
                return Ok(None);
            };
            let role = role_of(&hello).ok_or(LinkError::Version)?;
            let mut challenge = [0; CHALLENGE];
            let (greeting, proof) = challenge.split_last_chunk_mut::<PROOF>().ok_or(LinkError::Version)?;
            let (magic, nonce) = greeting.split_first_chunk_mut().ok_or(LinkError::Version)?;
            *magic = MAGIC;
            getrandom::fill(nonce).map_err(|_| LinkError::Broken(ErrorKind::Other))?;
            *proof = key.prove(b"server", &[&hello, greeting]);
            link.outbox.extend_from_slice(&challenge);
            *self = Self::Challenged { hello, challenge, role };
        }
        let Self::Challenged { hello, challenge, role } = self else {
            return Ok(None);
        };
        let Some(proof) = link.take_plain()? else {
            return Ok(None);
        };
        let said: [&[u8]; 2] = [hello.as_slice(), challenge.as_slice()];
        if !key.accepts(b"client", &said, &proof) {
            return Err(LinkError::Unauthenticated);
        }
        let session = Session { sealing: key.derive(b"to client", &said), opening: key.derive(b"to server", &said) };
        Ok(Some((*role, session)))
    }
}

fn role_of(hello: &[u8; HELLO]) -> Option<Role> {
    let [a, b, c, d, e, f, g, h, kind, 0, 0, 0, n0, n1, n2, n3, ..] = *hello else {
        return None;
    };
    let number = u32::from_le_bytes([n0, n1, n2, n3]);
    match ([a, b, c, d, e, f, g, h] == MAGIC, kind) {
        (true, 0) => Some(Role::Member(number)),
        (true, 1) => Some(Role::Agent(number)),
        _ => None,
    }
}

/// The MAC keys of both directions.
#[derive(Clone)]
pub(crate) struct Session {
    sealing: Seal,
    opening: Seal,
}

impl core::fmt::Debug for Session {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.write_str("Session(hidden)")
    }
}

impl Session {
    /// Queues a frame.
    pub(crate) fn push(&mut self, link: &mut Link, payload: &[u8]) -> Result<(), LinkError> {
        if link.outbox.len() > OUTBOX_MAX {
            return Err(LinkError::Full);
        }
        append(&mut link.outbox, payload, &mut self.sealing)
            .ok_or(LinkError::Malformed(Malformed { kind: kind_of(payload) }))
    }

    /// The next frame that has arrived.
    pub(crate) fn frame(&mut self, link: &mut Link) -> Result<Option<Frame>, LinkError> {
        match link.inbox.take(&mut self.opening)? {
            None if link.ended => Err(LinkError::Closed),
            frame => Ok(frame),
        }
    }
}

/// A mutually authenticated connection.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) link: Link,
    pub(crate) session: Session,
}

impl Sealed {
    /// Queues a frame and sends as much as the connection accepts.
    pub(crate) fn send(&mut self, message: &[u8]) -> Result<(), LinkError> {
        self.session.push(&mut self.link, message)?;
        self.link.flush()
    }

    /// The next frame, if one has arrived. One read at most.
    pub(crate) fn poll(&mut self) -> Result<Option<Frame>, LinkError> {
        self.link.flush()?;
        match self.session.frame(&mut self.link) {
            Ok(None) => {}
            taken => return taken,
        }
        self.link.read()?;
        self.session.frame(&mut self.link)
    }

    /// The next frame. Blocks, at most until the deadline.
    pub(crate) fn next(&mut self, deadline: Instant) -> Result<Frame, LinkError> {
        loop {
            if let Some(frame) = self.poll()? {
                return Ok(frame);
            }
            self.link.wait(deadline)?;
        }
    }
}
