//! Joining a job: connect to the rendezvous server, send this process's record and receive the table of all ranks.

use super::Membership;
use crate::{
    bootstrap::{
        connect::connect,
        entry::{Entry, Offer},
        host::Host,
        host_port::HostPort,
        link::{LinkError, Role},
        message::{Refusal, Say, Tell},
    },
    environment::{Seat, Settings, SettingsError, Switch},
    rank::Rank,
};
use alloc::collections::VecDeque;
use core::{
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};
use std::{io, time::Instant};

/// Why a process could not join its job.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// A setting is missing or wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The rendezvous server's name cannot be resolved.
    #[error("the rendezvous server's address {place} cannot be resolved ({reason}): check UNISONO_BOOTSTRAP")]
    Resolve {
        /// The address.
        place: HostPort,
        /// Why.
        reason: io::ErrorKind,
    },
    /// Rank 0 cannot listen at the address.
    #[error("rank 0 cannot listen at {place} for the rendezvous ({reason}): check UNISONO_BOOTSTRAP")]
    Serve {
        /// Where.
        place: HostPort,
        /// Why.
        reason: io::ErrorKind,
    },
    /// The rendezvous server could not be reached, or is of another job.
    #[error("cannot join through the rendezvous server at {place}: {reason}")]
    Connect {
        /// Where.
        place: HostPort,
        /// The error of the last attempt.
        reason: LinkError,
    },
    /// The server refused this process.
    #[error("rank {rank} may not join the job: {refusal}")]
    Refused {
        /// This process.
        rank: Rank,
        /// Why.
        refusal: Refusal,
    },
    /// Another rank aborted the job meanwhile.
    #[error("rank {rank} aborted the job with exit code {code}")]
    Aborted {
        /// The rank that aborted.
        rank: Rank,
        /// The exit code of the job.
        code: i32,
    },
}

impl Membership {
    /// Joins the job of the settings and waits until all its ranks have joined. Blocks, at most for
    /// [`Settings::assembly`] after the first rank has joined.
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
            verdicts: Vec::new(),
            asked: VecDeque::new(),
            connection: Some(connection),
            host,
        };
        // The server, whose join timeout starts with the first rank, reports the missing ranks: allow time for its
        // answer.
        let deadline = deadline + Duration::from_secs(2);
        let outcome = membership.assemble(settings, offer, deadline);
        match outcome {
            Ok(None) => Ok(membership),
            Ok(Some(refused)) => Err(refused),
            Err(reason) => Err(JoinError::Connect { place: place.clone(), reason }),
        }
    }

    pub(super) fn alone(seat: Seat, settings: &Settings, offer: Offer) -> Self {
        let mut lanes = offer.lanes;
        for lane in lanes.iter_mut().filter(|lane| lane.ip().is_unspecified()) {
            lane.set_ip(if lane.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        let node = settings.locality.node.unwrap_or(0);
        let entry = Entry { incarnation: offer.incarnation, node, mtu: offer.mtu, lanes, digests: offer.digests };
        let (notices, asked) = (VecDeque::new(), VecDeque::new());
        Self { seat, table: vec![entry], notices, verdicts: Vec::new(), asked, connection: None, host: None }
    }

    pub(super) fn assemble(
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
}

/// An identity of this host for jobs whose launcher does not number the nodes: the host name, the boot ID (clones may
/// share a name) and the network namespace (abstract sockets do not cross it).
fn host_identity() -> String {
    let name = rustix::system::uname();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{} {} {}", name.nodename().to_string_lossy(), boot.trim(), network.display())
}
