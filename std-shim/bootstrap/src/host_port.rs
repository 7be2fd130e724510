//! The address of the rendezvous server: `host:port`, or the name of a local socket.

use core::{fmt, net::SocketAddr, str::FromStr};
use socket2::SockAddr;
use std::{io, net::ToSocketAddrs};

/// The first character of a local socket's name.
const LOCAL: char = '@';
/// Longest name of a local socket in bytes.
const LOCAL_MAX: usize = 64;

/// A host name or address with a port: `node7:4711`, `10.0.0.7:4711`, `[fe80::7]:4711`; or the name of a local socket,
/// which a launcher uses for a job on its own host: `@name`, an abstract name of the network namespace.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPort {
    host: Box<str>,
    port: u16,
}

impl HostPort {
    /// The addresses that the name resolves to; none of a local socket. Calls the resolver, which may take seconds.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        if self.is_local() {
            return Ok(Vec::new());
        }
        Ok((&*self.host, self.port).to_socket_addrs()?.collect())
    }

    /// A local socket with this name, which consists of alphanumeric characters, `-`, `.` and `_`.
    ///
    /// # Errors
    /// [`HostPortError`].
    pub fn local(name: &str) -> Result<Self, HostPortError> {
        let allowed = |byte: char| byte.is_ascii_alphanumeric() || "-._".contains(byte);
        if name.is_empty() || name.len() > LOCAL_MAX || !name.chars().all(allowed) {
            return Err(HostPortError);
        }
        Ok(Self { host: format!("{LOCAL}{name}").into(), port: 0 })
    }

    /// Whether it is a local socket.
    pub fn is_local(&self) -> bool {
        self.host.starts_with(LOCAL)
    }

    /// The address of the local socket, if it is one.
    pub(crate) fn local_socket(&self) -> Option<io::Result<SockAddr>> {
        self.host.strip_prefix(LOCAL).map(|name| SockAddr::unix(format!("\0unisono-{name}")))
    }

    /// The port; 0 of a local socket.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string().into(), port: address.port() }
    }
}

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        if let Some(name) = text.strip_prefix(LOCAL) {
            return Self::local(name);
        }
        let (host, port) = text.rsplit_once(':').ok_or(HostPortError)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or(HostPortError)?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = bracketed.unwrap_or(host);
        let allowed =
            |byte: char| byte.is_ascii_alphanumeric() || "-._%".contains(byte) || (byte == ':' && bracketed.is_some());
        if host.is_empty() || host.len() > 255 || !host.chars().all(allowed) {
            return Err(HostPortError);
        }
        Ok(Self { host: host.into(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_local() {
            to.write_str(&self.host)
        } else if self.host.contains(':') {
            write!(to, "[{}]:{}", self.host, self.port)
        } else {
            write!(to, "{}:{}", self.host, self.port)
        }
    }
}

/// The text is not `host:port`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("host:port is expected, such as node7:4711 or [fe80::7]:4711")]
pub struct HostPortError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses() {
        for text in ["node7:4711", "10.0.0.7:1", "[::1]:65535", "@job-7.0_a"] {
            assert_eq!(text.parse::<HostPort>().expect(text).to_string(), text);
        }
        let from: HostPort = SocketAddr::from(([127, 0, 0, 1], 9)).into();
        assert_eq!(from.resolve().expect("a literal"), [SocketAddr::from(([127, 0, 0, 1], 9))]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", "node", "node:", "node:0", ":4711", "node:65536", "::1:4711", "a b:1", "-;rm:1\n", "@", "@a b", "@a:1"]
        {
            assert_eq!(text.parse::<HostPort>(), Err(HostPortError), "{text}");
        }
    }
}
