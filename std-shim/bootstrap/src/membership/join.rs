//! Joining a job: connect to the rendezvous server, send this process's record and receive the table of all ranks.

use super::Membership;
use crate::join_options::{JoinError, JoinOptions, Rendezvous};
use crate::{
    connect::connect,
    entry::{Entry, Offer},
    host::Host,
    link::{LinkError, Role},
    message::{Say, Tell},
    rank::Seat,
};
use alloc::collections::VecDeque;
use core::{
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};
use std::time::Instant;

impl Membership {
    /// Joins the job that the options name and waits until all its ranks have. Blocks, at most for
    /// [`JoinOptions::assembly`] once a rank has come.
    pub fn join(options: &JoinOptions, offer: Offer) -> Result<Self, JoinError> {
        let deadline = Instant::now() + options.assembly;
        let JoinOptions { seat, node, .. } = *options;
        let Some(rendezvous) = &options.rendezvous else {
            return Ok(Self::alone(seat, node, offer));
        };
        let Rendezvous { place, secret, job, serve, .. } = rendezvous;
        let serves = seat.rank.0 == 0 && *serve;
        let host = if serves { Some(Host::start(seat.size, options.assembly, rendezvous)?) } else { None };
        let key = secret.for_job(job);
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
        let outcome = membership.assemble(node, offer, deadline);
        match outcome {
            Ok(None) => Ok(membership),
            Ok(Some(refused)) => Err(refused),
            Err(reason) => Err(JoinError::Connect { place: place.clone(), reason }),
        }
    }

    pub(super) fn alone(seat: Seat, node: Option<u32>, offer: Offer) -> Self {
        let mut lanes = offer.lanes;
        for lane in lanes.iter_mut().filter(|lane| lane.ip().is_unspecified()) {
            lane.set_ip(if lane.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        let node = node.unwrap_or(0);
        let entry = Entry { incarnation: offer.incarnation, node, mtu: offer.mtu, lanes, digests: offer.digests };
        let (notices, asked) = (VecDeque::new(), VecDeque::new());
        Self { seat, table: vec![entry], notices, verdicts: Vec::new(), asked, connection: None, host: None }
    }

    pub(super) fn assemble(
        &mut self,
        node: Option<u32>,
        offer: Offer,
        deadline: Instant,
    ) -> Result<Option<JoinError>, LinkError> {
        let join = Say::Join { offer, pid: std::process::id(), node, host: host_identity() };
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
                        return Err(LinkError::OutOfTurn(frame.kind()));
                    }
                    self.table.extend(lines);
                }
                told => self.take(told).ok_or(LinkError::OutOfTurn(frame.kind()))?,
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
