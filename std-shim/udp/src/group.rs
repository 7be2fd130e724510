//! Multicast groups: a socket for each group that the device is a member of.

use alloc::{collections::BTreeMap, sync::Arc};
use core::{error::Error, fmt, net::SocketAddr};

use unisono_core::ids::GroupId;

use super::{
    address_table::SocketName,
    receive_pool::Batch,
    socket::{MulticastOptions, Socket},
};

/// The address of a group, and how it is reached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupAddress {
    /// The group's IP address and port, equal at all members.
    pub address: SocketAddr,
    /// Routers that a datagram may pass, plus one: 1 stays in the subnet.
    pub hops: u8,
    /// Index of the interface; 0: that of the device's address in IPv4, the system's choice in IPv6, which has none for
    /// groups of interface-local and link-local scope.
    pub interface: u32,
}

/// Why an address cannot be a group's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupAddressError {
    /// It is no multicast address, or its port is 0.
    NotAGroup,
    /// It is of another family (IPv4, IPv6) than the device's address.
    WrongFamily,
    /// The device is a member of the group of that number.
    Joined,
}

impl fmt::Display for GroupAddressError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::NotAGroup => "the address is no multicast address, or its port is 0",
            Self::WrongFamily => "the group's address is of another family (IPv4, IPv6) than the device's",
            Self::Joined => "the device is a member of the group",
        })
    }
}

impl Error for GroupAddressError {}

/// The socket of a group, and what was received on it.
pub(super) struct GroupSocket {
    pub(super) group: GroupId,
    pub(super) socket: Arc<Socket>,
    pub(super) batch: Batch,
}

/// The groups that are known to a device.
#[derive(Debug, Default)]
pub(super) struct GroupTable {
    addresses: BTreeMap<GroupId, GroupAddress>,
}

impl GroupTable {
    pub(super) fn set(&mut self, group: GroupId, address: GroupAddress, v6: bool) -> Result<(), GroupAddressError> {
        if !address.address.ip().is_multicast() || address.address.port() == 0 {
            return Err(GroupAddressError::NotAGroup);
        }
        if address.address.is_ipv6() != v6 {
            return Err(GroupAddressError::WrongFamily);
        }
        let mut address = address;
        if let SocketAddr::V6(name) = &mut address.address {
            // Groups of narrow scope are addresses only together with their link.
            name.set_scope_id(address.interface);
        }
        self.addresses.insert(group, address);
        Ok(())
    }

    pub(super) fn get(&self, group: GroupId) -> Option<&GroupAddress> {
        self.addresses.get(&group)
    }

    /// The socket address of a group.
    pub(super) fn name(&self, group: GroupId) -> Option<SocketName> {
        Some(SocketName::of(&self.addresses.get(&group)?.address))
    }
}

impl GroupAddress {
    pub(super) fn options(&self, local: core::net::IpAddr) -> MulticastOptions {
        MulticastOptions { group: self.address, local, hops: self.hops, interface: self.interface }
    }
}
