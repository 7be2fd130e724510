//! Connecting a client to the rendezvous server: address resolution, retries and authentication.

use super::{AuthenticatedStream, BufferedStream, ClientRole, ConnectionError};
use crate::{auth::JobKey, host_port::HostPort};
use core::{net::SocketAddr, time::Duration};
use std::{io, net::TcpStream, thread, time::Instant};

/// Time limit for a connection attempt to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts, initial and maximum.
const RETRY: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];
/// Connects to one of several addresses and authenticates; retries until the deadline, since the server may start after
/// its clients. A server of another job or version is a final error if there is only one address. Returns the
/// connection and the server's address.
pub(crate) fn connect(
    places: &[HostPort],
    role: ClientRole,
    key: &JobKey,
    deadline: Instant,
) -> Result<(AuthenticatedStream, SocketAddr), ConnectionError> {
    let [mut pause, longest] = RETRY;
    loop {
        let mut last = ConnectionError::Broken(io::ErrorKind::NotFound);
        for address in places.iter().flat_map(|place| place.resolve().unwrap_or_default()) {
            let left = deadline.saturating_duration_since(Instant::now()).min(CONNECT_TIMEOUT);
            if left.is_zero() {
                return Err(ConnectionError::Timeout);
            }
            let greeted = TcpStream::connect_timeout(&address, left)
                .and_then(BufferedStream::new)
                .map_err(ConnectionError::from)
                .and_then(|link| link.authenticate(role, key, deadline.min(Instant::now() + CONNECT_TIMEOUT)));
            match greeted {
                Ok(sealed) => return Ok((sealed, address)),
                Err(error @ (ConnectionError::Unauthenticated | ConnectionError::Version)) if places.len() == 1 => {
                    return Err(error);
                }
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
