//! What everybody must know of a process to talk to it, and how it ended.

use core::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};
use rustix::process::Signal;
pub use unisono_core::ids::Incarnation;

/// A random life: a restarted process has another.
pub fn fresh_incarnation() -> Result<Incarnation, getrandom::Error> {
    getrandom::u32().map(Incarnation)
}

/// What a process tells of itself when it joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Its life.
    pub incarnation: Incarnation,
    /// Where its polled and its interrupt lane receive. An unspecified host stands for the one that the rendezvous
    /// server sees.
    pub lanes: [SocketAddr; 2],
    /// Bytes of the largest datagram it can receive.
    pub mtu: u32,
    /// The settings that must be equal on all ranks.
    pub digests: Digests,
}

/// Of the settings that must be equal on all ranks of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Digests {
    /// How collectives are done.
    pub tuning: u32,
    /// Device, progress, silence, and the library's version.
    pub transport: u32,
}

/// One line of the table that everybody gets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Its life.
    pub incarnation: Incarnation,
    /// Its node: equal for processes that share memory.
    pub node: u32,
    /// Bytes of the largest datagram it can receive.
    pub mtu: u32,
    /// Where its polled and its interrupt lane receive.
    pub lanes: [SocketAddr; 2],
    /// The settings that must be equal on all ranks.
    pub digests: Digests,
}

impl Entry {
    /// Bytes on the wire.
    pub(crate) const BYTES: usize = 20 + 2 * ADDRESS;
}

/// Bytes of a socket address on the wire: IPv6 (or IPv4 within it) and port.
pub(crate) const ADDRESS: usize = 18;

/// IPv4 within IPv6; scope and flow are not carried.
pub(crate) fn address_to_bytes(address: SocketAddr) -> [u8; ADDRESS] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; ADDRESS];
    if let Some((head, tail)) = bytes.split_first_chunk_mut() {
        *head = ip.octets();
        tail.copy_from_slice(&address.port().to_le_bytes());
    }
    bytes
}

/// The inverse of [`address_to_bytes`].
pub(crate) fn address_from_bytes(bytes: [u8; ADDRESS]) -> SocketAddr {
    let [ip @ .., low, high] = bytes;
    SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), u16::from_le_bytes([low, high]))
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ending {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It could not be started.
    NotStarted,
    /// Its connection broke, and no launcher knows more.
    Disconnected,
    /// Its node's agent is gone, or cannot be reached.
    NodeLost,
    /// Another process took its rank.
    Replaced,
}

impl Ending {
    /// The exit code that a shell would show: 128 + n for signal n, 1 where nothing else is known.
    pub const fn code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => 128 + (signal & 0x7f),
            Self::NotStarted => 127,
            Self::Disconnected | Self::NodeLost | Self::Replaced => 1,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(to, "exited with code {code}"),
            Self::Signalled(signal) => match signal_name(*signal) {
                Some(name) => write!(to, "killed by signal {signal} ({name})"),
                None => write!(to, "killed by signal {signal}"),
            },
            Self::NotStarted => to.write_str("could not be started"),
            Self::Disconnected => to.write_str("lost its connection to the rendezvous server"),
            Self::NodeLost => to.write_str("lost with its node"),
            Self::Replaced => to.write_str("replaced by another process of its rank"),
        }
    }
}

/// The signals of POSIX and their names.
const SIGNALS: [(Signal, &str); 29] = [
    (Signal::HUP, "SIGHUP"),
    (Signal::INT, "SIGINT"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::ILL, "SIGILL"),
    (Signal::TRAP, "SIGTRAP"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::KILL, "SIGKILL"),
    (Signal::USR1, "SIGUSR1"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::USR2, "SIGUSR2"),
    (Signal::PIPE, "SIGPIPE"),
    (Signal::ALARM, "SIGALRM"),
    (Signal::TERM, "SIGTERM"),
    (Signal::CHILD, "SIGCHLD"),
    (Signal::CONT, "SIGCONT"),
    (Signal::STOP, "SIGSTOP"),
    (Signal::TSTP, "SIGTSTP"),
    (Signal::TTIN, "SIGTTIN"),
    (Signal::TTOU, "SIGTTOU"),
    (Signal::URG, "SIGURG"),
    (Signal::XCPU, "SIGXCPU"),
    (Signal::XFSZ, "SIGXFSZ"),
    (Signal::VTALARM, "SIGVTALRM"),
    (Signal::PROF, "SIGPROF"),
    (Signal::WINCH, "SIGWINCH"),
    (Signal::IO, "SIGIO"),
    (Signal::SYS, "SIGSYS"),
];

fn signal_name(number: i32) -> Option<&'static str> {
    SIGNALS.iter().find(|(signal, _)| signal.as_raw() == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_wire() {
        for text in ["10.1.2.3:65535", "[2001:db8::7]:1", "0.0.0.0:0", "[::]:9"] {
            let address: SocketAddr = text.parse().expect(text);
            assert_eq!(address_from_bytes(address_to_bytes(address)), address);
        }
    }

    #[test]
    fn endings_have_the_codes_of_a_shell() {
        assert_eq!(Ending::Exited(3).code(), 3);
        assert_eq!(Ending::Signalled(9).code(), 137);
        assert_eq!(Ending::Signalled(9).to_string(), "killed by signal 9 (SIGKILL)");
        assert_eq!(Ending::NotStarted.code(), 127);
    }
}
