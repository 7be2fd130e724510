//! The rendezvous server inside rank 0, for jobs whose launcher runs none.

use super::{
    host_port::HostPort,
    join_options::{JoinError, Rendezvous},
    membership_state::{ServerReport, StuckRank},
    server::{Server, ServerConfig},
};
use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::{
    io::{self, Write as _},
    sync::{Condvar, Mutex, PoisonError},
    time::Instant,
};

/// The rendezvous server inside rank 0, and whether its job has finished.
#[derive(Debug)]
pub(super) struct RankZeroServer {
    finished: Arc<(Mutex<bool>, Condvar)>,
    _server: Server,
}

impl RankZeroServer {
    pub(super) fn start(size: u32, assembly: Duration, rendezvous: &Rendezvous) -> Result<Self, JoinError> {
        let Rendezvous { place, secret, job, on_death, .. } = rendezvous;
        let refused = |reason: io::Error| JoinError::Listen { place: place.clone(), reason: reason.kind() };
        let finished = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = Arc::clone(&finished);
        let report = move |report| {
            match report {
                ServerReport::Finished => {
                    *signal.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
                    signal.1.notify_all();
                }
                ServerReport::Stuck(stuck) => {
                    // A closed standard error is no reason to end the job.
                    let lines = StuckRank::describe(&stuck).into_iter().map(|line| format!("unisono: {line}\n"));
                    let _ = io::stderr().write_all(lines.collect::<String>().as_bytes());
                }
                _ => {}
            }
        };
        let hosting = ServerConfig {
            size,
            secret: secret.clone(),
            job: job.clone(),
            on_death: *on_death,
            reports_ends: false,
            join_timeout: assembly,
        };
        if place.is_local() {
            let server = Server::start_local(place.clone(), hosting, report).map_err(refused)?;
            return Ok(Self { finished, _server: server });
        }
        let resolved = resolve(place)?;
        // The name may resolve to an address that this host does not have itself (NAT): then listen on all its
        // addresses.
        let anywhere = match resolved.first() {
            Some(address) if address.is_ipv6() => IpAddr::from(Ipv6Addr::UNSPECIFIED),
            _ => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for at in resolved.into_iter().chain([SocketAddr::new(anywhere, place.port())]) {
            match Server::start(at, hosting.clone(), report.clone()) {
                Ok(server) => return Ok(Self { finished, _server: server }),
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => last = error,
                Err(error) => return Err(refused(error)),
            }
        }
        Err(refused(last))
    }

    /// Waits until every rank has finished or failed, at most until the deadline.
    pub(super) fn wait(&self, deadline: Instant) {
        let mut finished = self.finished.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !*finished {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            finished = self.finished.1.wait_timeout(finished, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn resolve(place: &HostPort) -> Result<Vec<SocketAddr>, JoinError> {
    place.resolve().map_err(|error| JoinError::Resolve { place: place.clone(), reason: error.kind() })
}
