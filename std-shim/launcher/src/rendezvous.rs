//! Addresses of the launcher's rendezvous server: where it listens, and where other hosts may reach it.

use super::{job::LaunchError, placement::JobPlacement};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io;
use unisono::environment::JobName;
use unisono_bootstrap::{HostPort, Server, ServerConfig, ServerReport};

/// Starts the server: on all addresses if there are remote agents, otherwise at a local socket, or on the loopback where
/// the system has none.
pub(super) fn serve(
    layout: &JobPlacement,
    hosting: ServerConfig,
    report: impl FnMut(ServerReport) + Send + Clone + 'static,
) -> Result<Server, LaunchError> {
    let remote = layout.hosts().iter().any(Option::is_some);
    if !remote
        && let Ok(place) = HostPort::local(&format!("{:016x}", getrandom::u64()?))
        && let Ok(server) = Server::start_local(place, hosting.clone(), report.clone())
    {
        return Ok(server);
    }
    let everywhere = [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)];
    let here = [IpAddr::from(Ipv4Addr::LOCALHOST)];
    let mut refused = LaunchError::Setup(io::ErrorKind::AddrNotAvailable.into());
    for ip in if remote { everywhere.as_slice() } else { here.as_slice() } {
        let at = SocketAddr::new(*ip, 0);
        match Server::start(at, hosting.clone(), report.clone()) {
            Ok(server) => return Ok(server),
            Err(error) => refused = LaunchError::Listen { at, error },
        }
    }
    Err(refused)
}

/// The addresses at which the server may be reachable, the most likely first.
pub(super) fn server_addresses(layout: &JobPlacement, server: &Server) -> Vec<HostPort> {
    if server.place().is_local() {
        return vec![server.place().clone()];
    }
    let (loopback, port) = (IpAddr::from(Ipv4Addr::LOCALHOST), server.local().port());
    let remote = layout.hosts().iter().any(Option::is_some);
    let mut hosts: Vec<IpAddr> = Vec::new();
    if remote {
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let usable = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => !ip.is_loopback(),
            IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
        };
        hosts.extend(interfaces.iter().map(if_addrs::Interface::ip).filter(usable));
        hosts.sort_by_key(IpAddr::is_ipv6);
    }
    if hosts.is_empty() {
        hosts.push(loopback);
    }
    hosts.into_iter().map(|host| SocketAddr::new(host, port).into()).collect()
}

/// A random job name.
pub(super) fn random_name() -> Result<JobName, LaunchError> {
    let name = format!("{:016x}", getrandom::u64()?);
    name.parse().map_err(|error| LaunchError::Setup(io::Error::other(error)))
}
