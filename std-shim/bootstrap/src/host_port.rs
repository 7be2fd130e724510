//! The address of the rendezvous server: `host:port`.

use core::{fmt, net::SocketAddr, str::FromStr};
use std::{io, net::ToSocketAddrs};

/// A host name or address with a port: `node7:4711`, `10.0.0.7:4711`, `[fe80::7]:4711`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPort {
    host: Box<str>,
    port: u16,
}

impl HostPort {
    /// The addresses that the name resolves to. Calls the resolver, which may take seconds.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((&*self.host, self.port).to_socket_addrs()?.collect())
    }

    /// The port.
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
        if self.host.contains(':') {
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
        for text in ["node7:4711", "10.0.0.7:1", "[::1]:65535"] {
            assert_eq!(text.parse::<HostPort>().expect(text).to_string(), text);
        }
        let from: HostPort = SocketAddr::from(([127, 0, 0, 1], 9)).into();
        assert_eq!(from.resolve().expect("a literal"), [SocketAddr::from(([127, 0, 0, 1], 9))]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "node", "node:", "node:0", ":4711", "node:65536", "::1:4711", "a b:1", "-;rm:1\n"] {
            assert_eq!(text.parse::<HostPort>(), Err(HostPortError), "{text}");
        }
    }
}
