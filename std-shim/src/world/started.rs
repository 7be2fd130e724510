//! The settings of a task of another starter: its position is the starter's, and rank 0 serves a rendezvous whose place
//! and secret the starter carries to the other ranks.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::net::{TcpListener, ToSocketAddrs as _};

use unisono_bootstrap::{JobPosition, Rank, Secret};
use unisono_starter::{Starter, StarterError, Task};

use super::{WorldError, source_address};
use crate::environment::Settings;

const _: () = assert!(unisono_starter::SIZE_MAX == unisono_bootstrap::SIZE_MAX, "a starter's job is one of unisono");

/// An address of the documentation, which a default route leads to.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 9);

/// The starter of this process and the settings that follow from it, unless the settings describe a job themselves.
pub(super) fn find(settings: &Settings) -> Result<Option<(Settings, Starter)>, WorldError> {
    if settings.position.is_some() || settings.bootstrap.is_some() {
        return Ok(None);
    }
    let Some(mut starter) = Starter::find(settings.join_timeout())? else { return Ok(None) };
    let mut settings = settings.clone();
    let task = starter.task();
    if task.size > 1 {
        settings.position = Some(JobPosition { rank: Rank(task.rank), size: task.size });
        let offered = if task.rank == 0 { Some(rendezvous(task)?) } else { None };
        let text = starter.broadcast(offered.as_deref())?;
        let (place, secret) = text.rsplit_once('/').ok_or(StarterError::Value("unisono"))?;
        settings.bootstrap = Some(place.parse().map_err(|_| StarterError::Value("unisono"))?);
        settings.secret = Some(Secret::new(secret).map_err(|_| StarterError::Value("unisono"))?);
    }
    if let Some(position) = task.position {
        settings.locality.node = Some(position.node);
        settings.locality.rank = Some(position.rank);
        settings.locality.size = Some(position.size);
    }
    Ok(Some((settings, starter)))
}

/// A place where this process can serve the rendezvous, and a new secret.
fn rendezvous(task: Task) -> Result<String, WorldError> {
    let secret = Secret::random().map_err(std::io::Error::from)?;
    let is_one_node = task.position.is_some_and(|position| position.size == task.size);
    let place = if is_one_node {
        let name = Secret::random().map_err(std::io::Error::from)?;
        format!("@unisono-{}", name.expose().get(..32).unwrap_or_default())
    } else {
        let port = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port();
        reachable_name(port)?
    };
    Ok(format!("{place}/{}", secret.expose()))
}

/// This host and a port, as other hosts reach it: the address of its name, else that of its default route, else its name.
fn reachable_name(port: u16) -> Result<String, std::io::Error> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name = name.trim();
    let named = (name, port).to_socket_addrs().ok().and_then(|mut addresses| {
        addresses.find(|address| address.is_ipv4() && !address.ip().is_loopback()).map(|address| address.ip())
    });
    let address = named.or_else(|| source_address(ANYWHERE));
    Ok(address.map_or_else(|| format!("{name}:{port}"), |address| SocketAddr::new(address, port).to_string()))
}
