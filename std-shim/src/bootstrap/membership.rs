//! A process's place in its job: joins, knows everybody, hears what happens to them.

use super::{
    connect::connect,
    entry::{Ending, Entry, Incarnation, Offer},
    host::Host,
    host_port::HostPort,
    link::{LinkError, Role, Sealed},
    message::{KEY_MAX, Refusal, Say, Tell, VALUE_MAX},
};
use crate::{
    environment::{Seat, Settings, SettingsError, Switch},
    rank::Rank,
};
use alloc::collections::VecDeque;
use core::{
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

/// An agent that does not answer for this long is dead, and so are the ranks of its node.
pub const AGENT_SILENCE: Duration = Duration::from_secs(30);
/// Most notices that wait to be read.
const NOTICES_MAX: usize = 1 << 20;

/// What happened to another process, or to the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A life of a rank is over.
    Died {
        /// The rank.
        rank: Rank,
        /// The life.
        incarnation: Incarnation,
        /// How.
        ending: Ending,
    },
    /// A rank has a new life. The table has its new line already.
    Met {
        /// The rank.
        rank: Rank,
        /// Its new line.
        entry: Entry,
    },
    /// The answer to [`Membership::ask`].
    Liveness {
        /// The rank that was asked about.
        rank: Rank,
        /// What is known.
        liveness: Liveness,
    },
    /// A rank asked for the end of the job, or its death is to end the job: this process should end.
    Aborted {
        /// The rank.
        rank: Rank,
        /// The exit code to end with.
        code: i32,
    },
    /// The connection to the rendezvous server is gone: there will be no further notice, and a process that a launcher
    /// started should end.
    Lost(LinkError),
}

/// What an agent knows of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Liveness {
    /// Its process runs, whatever it computes.
    Alive,
    /// Its process is gone.
    Dead,
    /// Nobody answered within [`AGENT_SILENCE`]: to be taken for dead.
    Unanswered,
}

/// Why a process could not join its job.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// A setting is missing.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The rendezvous server's name cannot be resolved.
    #[error("{place} cannot be resolved: {reason}")]
    Resolve {
        /// Its name.
        place: HostPort,
        /// Why.
        reason: io::ErrorKind,
    },
    /// Rank 0 cannot serve there.
    #[error("rank 0 cannot listen at {place}: {reason}")]
    Serve {
        /// Where.
        place: HostPort,
        /// Why.
        reason: io::ErrorKind,
    },
    /// The rendezvous server could not be reached, or is not ours.
    #[error("the rendezvous server at {place}: {reason}")]
    Connect {
        /// Where.
        place: HostPort,
        /// Why, at the last attempt.
        reason: LinkError,
    },
    /// The server refused this process.
    #[error("the rendezvous server refuses rank {rank}: {refusal}")]
    Refused {
        /// This process.
        rank: Rank,
        /// Why.
        refusal: Refusal,
    },
    /// Another rank asked for the end of the job meanwhile.
    #[error("rank {rank} ended the job with code {code}")]
    Aborted {
        /// Who.
        rank: Rank,
        /// With which exit code.
        code: i32,
    },
}

/// Why a question to the server has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AwaitError {
    /// The connection is gone.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A key is longer than [`KEY_MAX`] or a value than [`VALUE_MAX`].
    #[error("a key has at most {KEY_MAX} bytes and a value at most {VALUE_MAX}")]
    TooLong,
    /// The server's store is full.
    #[error("the server has no room for another value")]
    NoRoom,
    /// A rank asked for the end of the job meanwhile; [`Notice::Aborted`] waits to be read.
    #[error("the job is being ended")]
    Aborted,
}

/// A process's place in its job.
#[derive(Debug)]
pub struct Membership {
    seat: Seat,
    table: Vec<Entry>,
    notices: VecDeque<Notice>,
    asked: VecDeque<(Rank, Instant)>,
    connection: Option<Sealed>,
    host: Option<Host>,
}

impl Membership {
    /// Joins the job that the settings name and waits until all its ranks have. Blocks, at most for
    /// [`Settings::assembly`] once a rank has come.
    pub fn join(settings: &Settings, offer: Offer) -> Result<Self, JoinError> {
        let deadline = Instant::now() + settings.assembly();
        let seat = settings.seat.unwrap_or(Seat { rank: Rank(0), size: 1 });
        let Some(place) = &settings.bootstrap else {
            return Ok(Self::alone(seat, settings, offer));
        };
        let secret = settings.secret.as_ref().ok_or(SettingsError::Missing { name: "BOOTSTRAP", needs: "SECRET" })?;
        let serves = seat.rank.0 == 0 && settings.serve != Some(Switch::Off);
        let host = if serves { Some(Host::start(settings, seat, secret, place)?) } else { None };
        let key = secret.for_job(settings.job.as_str());
        let places = core::slice::from_ref(place);
        let (connection, _) = connect(places, Role::Member(seat.rank.0), &key, deadline)
            .map_err(|reason| JoinError::Connect { place: place.clone(), reason })?;
        let mut membership = Self {
            seat,
            table: Vec::new(),
            notices: VecDeque::new(),
            asked: VecDeque::new(),
            connection: Some(connection),
            host,
        };
        // The server, whose clock starts with the first rank, says who is missing: it is given the time to.
        let deadline = deadline + Duration::from_secs(2);
        let outcome = membership.assemble(settings, offer, deadline);
        match outcome {
            Ok(None) => Ok(membership),
            Ok(Some(refused)) => Err(refused),
            Err(reason) => Err(JoinError::Connect { place: place.clone(), reason }),
        }
    }

    fn alone(seat: Seat, settings: &Settings, offer: Offer) -> Self {
        let mut lanes = offer.lanes;
        for lane in lanes.iter_mut().filter(|lane| lane.ip().is_unspecified()) {
            lane.set_ip(if lane.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        let node = settings.locality.node.unwrap_or(0);
        let entry = Entry { incarnation: offer.incarnation, node, mtu: offer.mtu, lanes };
        let (notices, asked) = (VecDeque::new(), VecDeque::new());
        Self { seat, table: vec![entry], notices, asked, connection: None, host: None }
    }

    fn assemble(
        &mut self,
        settings: &Settings,
        offer: Offer,
        deadline: Instant,
    ) -> Result<Option<JoinError>, LinkError> {
        let join = Say::Join { offer, pid: std::process::id(), node: settings.locality.node, host: host_identity() };
        let Some(connection) = &mut self.connection else {
            return Ok(None);
        };
        connection.send(&join.encode())?;
        let size = usize::try_from(self.seat.size).unwrap_or(usize::MAX);
        while self.table.len() < size {
            let Some(connection) = &mut self.connection else {
                return Err(LinkError::Closed);
            };
            let frame = connection.next(deadline)?;
            match Tell::decode(&frame)? {
                Tell::Refused(refusal) => return Ok(Some(JoinError::Refused { rank: self.seat.rank, refusal })),
                Tell::Aborted { rank, code } => return Ok(Some(JoinError::Aborted { rank, code })),
                Tell::Table { first, lines } => {
                    let next = u32::try_from(self.table.len()).ok();
                    if next != Some(first) || lines.is_empty() || lines.len() > size - self.table.len() {
                        return Err(LinkError::OutOfTurn(frame.kind));
                    }
                    self.table.extend(lines);
                }
                told => self.take(told).ok_or(LinkError::OutOfTurn(frame.kind))?,
            }
        }
        Ok(None)
    }

    /// This process.
    pub const fn rank(&self) -> Rank {
        self.seat.rank
    }

    /// Ranks of the job.
    pub const fn size(&self) -> u32 {
        self.seat.size
    }

    /// Everybody's current line, by rank.
    pub fn table(&self) -> &[Entry] {
        &self.table
    }

    /// What happened next, if anything has. One system call when nothing waits: ask every few milliseconds, or when the
    /// descriptor ([`as_fd`](Self::as_fd)) is readable.
    pub fn poll(&mut self) -> Option<Notice> {
        if self.notices.is_empty() {
            self.listen();
        }
        if self.notices.is_empty()
            && let Some((rank, deadline)) = self.asked.front().copied()
            && Instant::now() >= deadline
        {
            self.asked.pop_front();
            return Some(Notice::Liveness { rank, liveness: Liveness::Unanswered });
        }
        self.notices.pop_front()
    }

    /// Notices that have arrived and wait to be read, none of which is taken away.
    pub(crate) fn heard(&mut self) -> impl Iterator<Item = &Notice> {
        self.listen();
        self.notices.iter()
    }

    /// Takes what has arrived, without waiting.
    fn listen(&mut self) {
        while let Some(connection) = &mut self.connection {
            let heard = connection.poll().and_then(|frame| match frame {
                Some(frame) => Ok(Some((frame.kind, Tell::decode(&frame)?))),
                None => Ok(None),
            });
            match heard {
                Ok(None) => return,
                Ok(Some((kind, told))) => {
                    if self.take(told).is_none() {
                        self.lose(LinkError::OutOfTurn(kind));
                    }
                    if self.notices.len() >= NOTICES_MAX {
                        return;
                    }
                }
                Err(error) => self.lose(error),
            }
        }
    }

    fn lose(&mut self, error: LinkError) {
        self.connection = None;
        self.notices.push_back(Notice::Lost(error));
    }

    /// Turns what the server tells unasked into a notice. `None`: it is the answer to something, or makes no sense.
    fn take(&mut self, told: Tell) -> Option<()> {
        let notice = match told {
            Tell::Died { rank, incarnation, ending } => Notice::Died { rank, incarnation, ending },
            Tell::Met { rank, entry } => {
                // A line that has not come yet will come in its new form.
                let line = self.table.get_mut(usize::try_from(rank.0).ok()?);
                match line {
                    Some(line) => *line = entry,
                    None => return Some(()),
                }
                Notice::Met { rank, entry }
            }
            Tell::Liveness { rank, alive } => {
                if let Some(at) = self.asked.iter().position(|(asked, _)| *asked == rank) {
                    self.asked.remove(at);
                }
                Notice::Liveness { rank, liveness: if alive { Liveness::Alive } else { Liveness::Dead } }
            }
            Tell::Aborted { rank, code } => Notice::Aborted { rank, code },
            _ => return None,
        };
        self.notices.push_back(notice);
        Some(())
    }

    /// Asks whether a rank's process lives. The answer is a [`Notice::Liveness`], at the latest after
    /// [`AGENT_SILENCE`]. A rank that has been asked about and not answered for is not asked about again.
    pub fn ask(&mut self, rank: Rank) {
        if self.asked.iter().any(|(asked, _)| *asked == rank) {
            return;
        }
        self.asked.push_back((rank, Instant::now() + AGENT_SILENCE));
        self.say(&Say::Ask(rank));
    }

    fn say(&mut self, what: &Say) {
        let sent = self.connection.as_mut().map(|connection| connection.send(&what.encode()));
        if let Some(Err(error)) = sent {
            self.lose(error);
        }
    }

    /// Waits until every rank that has neither died nor left calls this as often as this process has.
    pub fn fence(&mut self, timeout: Duration) -> Result<(), AwaitError> {
        match self.question(&Say::Fence, timeout)? {
            None | Some(Tell::Fenced) => Ok(()),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// Stores a value that every rank can [`get`](Self::get).
    pub fn put(&mut self, key: &[u8], value: &[u8], timeout: Duration) -> Result<(), AwaitError> {
        if key.len() > KEY_MAX || value.len() > VALUE_MAX {
            return Err(AwaitError::TooLong);
        }
        match self.question(&Say::Put { key: key.to_vec(), value: value.to_vec() }, timeout)? {
            Some(Tell::Stored(true)) => Ok(()),
            None | Some(Tell::Stored(false)) => Err(AwaitError::NoRoom),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// The value that was last stored under the key.
    pub fn get(&mut self, key: &[u8], timeout: Duration) -> Result<Option<Vec<u8>>, AwaitError> {
        if key.len() > KEY_MAX {
            return Err(AwaitError::TooLong);
        }
        match self.question(&Say::Get { key: key.to_vec() }, timeout)? {
            Some(Tell::Value(value)) => Ok(value),
            None => Ok(None),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// Asks for the end of the whole job. This process should then end with the code, too.
    pub fn abort(&mut self, code: i32) {
        self.say(&Say::Abort(code));
        let deadline = Instant::now() + Duration::from_secs(1);
        while let Some(connection) = &mut self.connection
            && connection.link.backlog() > 0
            && connection.link.wait(deadline).is_ok()
            && connection.link.flush().is_ok()
        {}
    }

    /// Says that this process has finished, so that its end is no death. Rank 0, if it hosts the server, waits for the
    /// others to finish, at most for the timeout.
    pub fn leave(mut self, timeout: Duration) -> Result<(), AwaitError> {
        let deadline = Instant::now() + timeout;
        let answer = self.question(&Say::Leave, timeout)?;
        if let Some(host) = &self.host {
            host.wait(deadline);
        }
        match answer {
            None | Some(Tell::Farewell) => Ok(()),
            Some(_) => Err(AwaitError::Aborted),
        }
    }

    /// Says something that has an answer and waits for it. `None` when there is no server to ask.
    fn question(&mut self, what: &Say, timeout: Duration) -> Result<Option<Tell>, AwaitError> {
        let deadline = Instant::now() + timeout;
        match &mut self.connection {
            Some(connection) => connection.send(&what.encode())?,
            None if self.seat.size == 1 => return Ok(None),
            None => return Err(LinkError::Closed.into()),
        }
        loop {
            let Some(connection) = &mut self.connection else {
                return Err(LinkError::Closed.into());
            };
            let frame = match connection.next(deadline) {
                Ok(frame) => frame,
                Err(error) => {
                    // An answer that comes later would be taken for that of another question.
                    self.lose(error);
                    return Err(error.into());
                }
            };
            match Tell::decode(&frame).map_err(LinkError::from)? {
                answer @ (Tell::Fenced | Tell::Stored(_) | Tell::Value(_) | Tell::Farewell) => return Ok(Some(answer)),
                told @ Tell::Aborted { .. } => {
                    self.take(told);
                    return Err(AwaitError::Aborted);
                }
                told => self.take(told).ok_or(LinkError::OutOfTurn(frame.kind))?,
            }
        }
    }

    /// Readable when a notice may have arrived; `None` when there is no server to hear from.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(|connection| connection.link.as_fd())
    }
}

/// What tells hosts apart where no launcher numbers the nodes: the name, and the boot so that clones of one name differ.
fn host_identity() -> String {
    let name = rustix::system::uname();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{} {}", name.nodename().to_string_lossy(), boot.trim())
}

#[cfg(test)]
mod tests;
