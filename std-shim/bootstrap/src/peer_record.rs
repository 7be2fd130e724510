//! The record of a process that every other rank needs to communicate with it, and how the process ended.

use crate::location::Location;
use core::{
    fmt,
    net::{IpAddr, SocketAddr},
};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
pub use unisono_core::ids::Incarnation;

/// A random incarnation number: a restarted process gets another one.
pub fn fresh_incarnation() -> Result<Incarnation, getrandom::Error> {
    getrandom::u32().map(Incarnation)
}

/// Most rails of a process.
pub const RAILS_MAX: usize = 4;
const _: () = assert!(RAILS_MAX >= unisono_core::window::rails::MAX_RAILS as usize, "a record has room for all rails");

/// The data that a process submits when it joins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LocalRecord {
    /// The process's incarnation.
    #[serde(with = "IncarnationOnWire")]
    pub incarnation: Incarnation,
    /// The addresses of its polled and its interrupt queue on the first rail. An unspecified host is replaced by the peer
    /// address that the rendezvous server sees.
    pub addresses: [SocketAddr; 2],
    /// The same on each further rail: fewer than [`RAILS_MAX`].
    pub further_rails: Vec<[SocketAddr; 2]>,
    /// Rails that it has room for.
    pub rails_max: u8,
    /// Bytes of the largest datagram it can receive.
    pub mtu: u32,
    /// Whether every datagram to and from it needs a checksum, since a link may corrupt it.
    pub checksums: bool,
    /// Where it runs.
    pub location: Location,
    /// The speed of its host's link in millions of bits per second; 0: not known.
    pub link_megabits: u32,
    /// The settings that must be equal on all ranks.
    pub digests: Digests,
}

/// Digests of the settings that must be equal on all ranks of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Digests {
    /// Of the algorithm choices for collectives.
    pub tuning: u32,
    /// Of device, progress mode, failure timeout and the library's version.
    pub transport: u32,
}

/// The record of one rank in the table that all ranks receive.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct PeerRecord {
    /// The process's incarnation.
    #[serde(with = "IncarnationOnWire")]
    pub incarnation: Incarnation,
    /// The number of its node: equal for processes that share memory.
    pub node: u32,
    /// Where it runs.
    pub location: Location,
    /// The speed of the slowest link of a host that was known when all had joined, in millions of bits per second; 0: of
    /// none.
    pub link_megabits: u32,
    /// Bytes of the largest datagram it can receive.
    pub mtu: u32,
    /// The addresses of its polled and its interrupt queue on the first rail.
    pub addresses: [SocketAddr; 2],
    /// The same on each further rail.
    pub further_rails: Vec<[SocketAddr; 2]>,
    /// Rails that it had when it joined.
    pub initial_rails: u8,
    /// Rails that it has room for.
    pub rails_max: u8,
    /// Whether every datagram to and from it needs a checksum, since a link may corrupt it.
    pub checksums: bool,
    /// The settings that must be equal on all ranks.
    pub digests: Digests,
}

impl LocalRecord {
    /// Whether it has at most [`RAILS_MAX`] rails, as it may not when it came from elsewhere.
    pub(crate) const fn is_bounded(&self) -> bool {
        self.further_rails.len() < RAILS_MAX
    }

    /// Number of rails.
    pub fn rails(&self) -> u8 {
        u8::try_from(self.further_rails.len()).unwrap_or(u8::MAX).saturating_add(1)
    }

    /// The record that other ranks receive, for a process of this node whose unspecified hosts are at `seen`.
    pub(crate) fn into_record(self, node: u32, seen: impl Fn(&SocketAddr) -> IpAddr) -> PeerRecord {
        let reachable = |lane: SocketAddr| reachable(lane, seen(&lane));
        PeerRecord {
            initial_rails: self.rails(),
            incarnation: self.incarnation,
            node,
            location: self.location,
            link_megabits: self.link_megabits,
            mtu: self.mtu,
            addresses: self.addresses.map(reachable),
            further_rails: self.further_rails.into_iter().map(|lanes| lanes.map(reachable)).collect(),
            rails_max: self.rails_max,
            checksums: self.checksums,
            digests: self.digests,
        }
    }
}

/// The address that other ranks reach a process of this node at, whose unspecified hosts are at `seen`.
pub(crate) fn reachable(mut lane: SocketAddr, seen: IpAddr) -> SocketAddr {
    let own = lane.ip().to_canonical();
    lane.set_ip(if own.is_unspecified() { seen.to_canonical() } else { own });
    lane
}

impl PeerRecord {
    /// Adds the next rail. Returns false, without effect, if it has another number or there are [`RAILS_MAX`].
    pub(crate) fn add_rail(&mut self, rail: u8, lanes: [SocketAddr; 2]) -> bool {
        let is_next = self.rails() == usize::from(rail) && self.rails() < RAILS_MAX;
        if is_next {
            self.further_rails.push(lanes);
        }
        is_next
    }

    /// Bytes on the wire, at most: five for each number, six for each unit of the location, twenty for each address, four
    /// more.
    pub(crate) const BYTES: usize = 6 * 5 + 6 * 6 + RAILS_MAX * 2 * 20 + 4;

    /// Number of rails.
    pub const fn rails(&self) -> usize {
        1 + self.further_rails.len()
    }

    /// Whether it has at most [`RAILS_MAX`] rails, as it may not when it came from elsewhere.
    pub(crate) const fn is_bounded(&self) -> bool {
        self.further_rails.len() < RAILS_MAX
    }
}

/// The shape of an incarnation on the wire.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Incarnation")]
pub(crate) struct IncarnationOnWire(u32);

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Ending {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by this signal.
    Signalled(i32),
    /// It could not be started.
    NotStarted,
    /// Its connection to the rendezvous server broke, and no launcher observed its exit.
    Disconnected,
    /// The launcher's agent on its node has failed or cannot be reached.
    NodeLost,
    /// A new process joined with its rank.
    Replaced,
}

impl Ending {
    /// The exit code that a shell would show: 128 + n for signal n, 127 if not started, 1 if unknown.
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
    fn endings_have_the_codes_of_a_shell() {
        assert_eq!(Ending::Exited(3).code(), 3);
        assert_eq!(Ending::Signalled(9).code(), 137);
        assert_eq!(Ending::Signalled(9).to_string(), "killed by signal 9 (SIGKILL)");
        assert_eq!(Ending::NotStarted.code(), 127);
    }
}
