//! The settings of a device, and why it cannot be opened.

use core::{error::Error, fmt, net::IpAddr};
use std::io;

use unisono_core::window::rails::MAX_RAILS;

use super::{MTU_MAX, MTU_MIN, fault_injection::Faults};

/// The settings of a device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of both sockets of the first rail. An unspecified IPv6 address accepts IPv4 peers, too.
    pub local: IpAddr,
    /// Addresses of both sockets of each further rail, which together with the first are at most [`MAX_RAILS`]. If the
    /// addresses of the rails differ, each rail uses the interface with its address alone, where the system allows that.
    pub further_rails: Vec<IpAddr>,
    /// Rails that the device has room for, including those that [open later](super::Udp::open_rail): at most
    /// [`MAX_RAILS`], and not fewer than it opens at once.
    pub rails_max: u8,
    /// Ports of the polled and of the interrupt queue on the first rail; 0 lets the kernel choose, as it does on further
    /// rails.
    pub ports: [u16; 2],
    /// Capacity of the address table in peers, 20 bytes each for each rail.
    pub peers: u32,
    /// Largest UDP payload in bytes, header and checksum included. Default: the smallest MTU of the links with the local
    /// addresses − 28 (IPv6 − 48), at most [`MTU_MAX`].
    pub mtu: Option<u32>,
    /// Whether to use segmentation offload (GSO, GRO) where the kernel supports it.
    pub gso: bool,
    /// Early datagrams that can be held. Each may occupy one buffer: of one MTU, or of 64 KiB with `gso`.
    pub holdable: u16,
    /// Requested receive memory of each socket in bytes. The kernel grants at most twice `net.core.rmem_max` without privilege.
    pub receive_buffer: u32,
    /// Multicast groups that the device can be a member of, each with a socket of its own.
    pub groups: u16,
    /// Faults injected into outgoing frames.
    pub faults: Faults,
}

impl Options {
    /// Defaults for `peers` peers: GSO, 256 held datagrams, 8 MiB of receive memory, no faults.
    pub fn new(local: IpAddr, peers: u32) -> Self {
        Self {
            local,
            further_rails: Vec::new(),
            rails_max: 1,
            ports: [0; 2],
            peers,
            mtu: None,
            gso: true,
            holdable: 256,
            receive_buffer: 8 << 20,
            groups: 0,
            faults: Faults::default(),
        }
    }
}

/// Why a device cannot be opened.
#[derive(Debug)]
pub enum BindError {
    /// The MTU is not in [`MTU_MIN`]`..=`[`MTU_MAX`].
    Mtu(u32),
    /// More rails than there is room for.
    Rails(usize),
    /// The link of another rail carries less than the device's MTU.
    Narrow {
        /// Bytes of UDP payload that it carries.
        link: u32,
        /// The MTU.
        mtu: u32,
    },
    /// The kernel refused a socket with this address.
    Socket {
        /// The address.
        local: IpAddr,
        /// Why.
        error: io::Error,
    },
    /// The kernel refused something else.
    System(io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mtu(mtu) => write!(to, "the MTU of {mtu} bytes is not within {MTU_MIN}..={MTU_MAX}"),
            Self::Rails(count) => {
                write!(to, "there is no room for {count} rails, of which there are at most {MAX_RAILS}")
            }
            Self::Narrow { link, mtu } => {
                write!(to, "the rail's link carries {link} bytes, less than the MTU of {mtu}")
            }
            Self::Socket { local, error } => write!(to, "the UDP socket at {local} cannot be opened: {error}"),
            Self::System(error) => write!(to, "the UDP device cannot be opened: {error}"),
        }
    }
}

impl Error for BindError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        None
    }
}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}
