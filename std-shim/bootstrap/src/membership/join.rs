//! Joining a job: connect to the rendezvous server, send this process's record and receive the table of all ranks.

use super::Membership;
use crate::join_options::{JoinError, JoinOptions, Rendezvous};
use crate::{
    message::{ClientMessage, ServerMessage},
    peer_record::LocalRecord,
    rank::JobPosition,
    rank_zero::RankZeroServer,
    stream::{ClientRole, ConnectionError, connect::connect},
    version::Version,
};
use alloc::collections::VecDeque;
use core::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};
use std::time::Instant;

impl Membership {
    /// Joins the job of the options and waits until all its ranks have joined. Blocks, at most for
    /// [`JoinOptions::assembly`] after the first rank has joined.
    pub fn join(options: &JoinOptions, offer: LocalRecord) -> Result<Self, JoinError> {
        let deadline = Instant::now() + options.assembly;
        let JoinOptions { position, node, .. } = *options;
        let Some(rendezvous) = &options.rendezvous else {
            return Ok(Self::alone(position, node, offer));
        };
        let Rendezvous { place, secret, job, serve, .. } = rendezvous;
        let serves = position.rank.0 == 0 && *serve;
        let host =
            if serves { Some(RankZeroServer::start(position.size, options.assembly, rendezvous)?) } else { None };
        let key = secret.for_job(job);
        let places = core::slice::from_ref(place);
        let (connection, _) = connect(places, ClientRole::Member(position.rank.0), &key, deadline)
            .map_err(|reason| JoinError::Connect { place: place.clone(), reason })?;
        let mut membership = Self {
            position,
            table: Vec::new(),
            events: VecDeque::new(),
            outcomes: Vec::new(),
            queries: VecDeque::new(),
            waits_at_fence: false,
            difference: None,
            connection: Some(connection),
            host,
        };
        // The server, whose join timeout starts with the first rank, reports the missing ranks: allow time for its
        // answer.
        let deadline = deadline + Duration::from_secs(2);
        let outcome = membership.receive_table(node, offer, deadline);
        match outcome {
            Ok(None) => Ok(membership),
            Ok(Some(refused)) => Err(refused),
            Err(reason) => Err(JoinError::Connect { place: place.clone(), reason }),
        }
    }

    pub(super) fn alone(position: JobPosition, node: Option<u32>, offer: LocalRecord) -> Self {
        let loopback = |lane: &SocketAddr| -> IpAddr {
            if lane.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
        };
        let entry = offer.into_record(node.unwrap_or(0), loopback);
        let (events, queries) = (VecDeque::new(), VecDeque::new());
        let (outcomes, table) = (Vec::new(), vec![entry]);
        Self {
            position,
            table,
            events,
            outcomes,
            queries,
            waits_at_fence: false,
            difference: None,
            connection: None,
            host: None,
        }
    }

    pub(super) fn receive_table(
        &mut self,
        node: Option<u32>,
        offer: LocalRecord,
        deadline: Instant,
    ) -> Result<Option<JoinError>, ConnectionError> {
        let join = ClientMessage::Join {
            version: Version::CURRENT,
            offer,
            pid: std::process::id(),
            node,
            host: host_identity(),
        };
        let Some(connection) = &mut self.connection else {
            return Ok(None);
        };
        connection.send(&join.encode())?;
        let size = usize::try_from(self.position.size).unwrap_or(usize::MAX);
        while self.table.len() < size {
            let Some(connection) = &mut self.connection else {
                return Err(ConnectionError::Closed);
            };
            let frame = connection.next(deadline)?;
            match ServerMessage::decode(&frame)? {
                ServerMessage::Refused(refusal) => {
                    return Ok(Some(JoinError::Refused { rank: self.position.rank, refusal }));
                }
                ServerMessage::Aborted { rank, code } => return Ok(Some(JoinError::Aborted { rank, code })),
                ServerMessage::Table { first, lines } => {
                    let next = u32::try_from(self.table.len()).ok();
                    if next != Some(first) || lines.is_empty() || lines.len() > size - self.table.len() {
                        return Err(ConnectionError::Unexpected(frame.kind()));
                    }
                    self.table.extend(lines);
                }
                message => self.handle_unsolicited(message).ok_or(ConnectionError::Unexpected(frame.kind()))?,
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
