//! Connecting a client to the rendezvous server: address resolution, retries and authentication.

use super::{AuthenticatedStream, BufferedStream, ClientRole, ConnectionError};
use crate::{auth::JobKey, host_port::HostPort};
use core::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use socket2::{Domain, SockAddr, Socket, Type};
use std::{io::ErrorKind, thread, time::Instant};

/// Time limit for a connection attempt to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts, initial and maximum.
const RETRY: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];

/// Connects to one of several addresses and authenticates; retries until the deadline, since the server may start after
/// its clients. A server of another job or version is a final error if there is only one address, and so is a loopback
/// interface that is down. Returns the connection and the server's address.
pub(crate) fn connect(
    places: &[HostPort],
    role: ClientRole,
    key: &JobKey,
    deadline: Instant,
) -> Result<(AuthenticatedStream, SocketAddr), ConnectionError> {
    let [mut pause, longest] = RETRY;
    loop {
        let mut last = ConnectionError::Broken(ErrorKind::NotFound);
        for (socket, address) in places.iter().flat_map(addresses) {
            let left = deadline.saturating_duration_since(Instant::now()).min(CONNECT_TIMEOUT);
            if left.is_zero() {
                return Err(ConnectionError::Timeout);
            }
            let greeted = open(&socket, address, left)
                .and_then(|socket| Ok(BufferedStream::new(socket)?))
                .and_then(|link| link.authenticate(role, key, deadline.min(Instant::now() + CONNECT_TIMEOUT)));
            match greeted {
                Ok(sealed) => return Ok((sealed, address)),
                Err(
                    error @ (ConnectionError::Unauthenticated | ConnectionError::Version | ConnectionError::NoLoopback),
                ) if places.len() == 1 => return Err(error),
                Err(error) => last = error,
            }
        }
        if Instant::now() + pause >= deadline {
            return Err(last);
        }
        thread::sleep(pause);
        pause = (2 * pause).min(longest);
    }
}

/// The addresses of a place as the system knows them, and as sockets of the Internet; a local socket counts as the
/// loopback.
fn addresses(place: &HostPort) -> Vec<(SockAddr, SocketAddr)> {
    if let Some(name) = place.local_socket() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        return name.map(|name| (name, loopback)).into_iter().collect();
    }
    place.resolve().unwrap_or_default().into_iter().map(|address| (address.into(), address)).collect()
}

fn open(to: &SockAddr, address: SocketAddr, timeout: Duration) -> Result<Socket, ConnectionError> {
    let socket = Socket::new(Domain::from(i32::from(to.family())), Type::STREAM, None)?;
    let connected = if to.is_unix() {
        // It connects at once, unless the server's queue is full.
        socket.set_write_timeout(Some(timeout))?;
        socket.connect(to)
    } else {
        socket.connect_timeout(to, timeout)
    };
    match connected {
        Ok(()) => Ok(socket),
        Err(error) if error.kind() == ErrorKind::NetworkUnreachable && address.ip().is_loopback() => {
            Err(ConnectionError::NoLoopback)
        }
        Err(error) => Err(error.into()),
    }
}
