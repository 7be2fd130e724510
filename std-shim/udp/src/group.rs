//! Multicast groups: a socket for each group that the device is a member of.

use alloc::{collections::BTreeMap, sync::Arc};
use core::{
    error::Error,
    fmt,
    net::{IpAddr, SocketAddr},
};

use unisono_core::device::Slot;
use unisono_core::ids::GroupId;

use super::{
    address_table::SocketName,
    counters::UdpCounters,
    queue::SocketQueue,
    receive_pool::{Batch, ReceivePool},
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

/// Datagrams of groups that go before datagrams to this member alone, which wait meanwhile.
const IN_A_ROW: u32 = 1024;

/// The groups that the device is a member of.
pub(super) struct GroupSockets {
    pub(super) joined: Vec<GroupSocket>,
    /// The socket that is polled first next time.
    pub(super) next: usize,
    /// Datagrams of groups that may still go before what was taken from the queue of this member's own datagrams.
    pub(super) budget: u32,
    pub(super) local: IpAddr,
    pub(super) receive_buffer: u32,
    pub(super) gro: bool,
}

impl GroupSockets {
    /// The next datagram of a group or of the queue. None of the queue overtakes one of a group, of the last
    /// [`IN_A_ROW`]: those of the queue are taken from the kernel first and handed out last.
    pub(super) fn receive(
        &mut self,
        queue: &mut SocketQueue,
        pool: &mut ReceivePool,
        counters: &UdpCounters,
    ) -> Option<Slot> {
        if self.budget == 0 && queue.is_drained() {
            self.take(queue, pool, counters);
        }
        if self.budget > 0 {
            for _ in 0..self.joined.len() {
                let joined = self.joined.get_mut(self.next);
                let slot = joined.and_then(|joined| pool.next_until_empty(&mut joined.batch, &joined.socket, counters));
                if slot.is_some() {
                    self.budget -= 1;
                    // A group that is never empty leaves the next turn to another one.
                    self.next = (self.next + usize::from(self.budget == 0)) % self.joined.len();
                    return slot;
                }
                self.next = (self.next + 1) % self.joined.len();
            }
            self.budget = 0;
        }
        queue.receive_taken(pool, counters)
    }

    /// Whether there may be something to receive. Takes what has arrived in the queue from the kernel.
    pub(super) fn poll(&mut self, queue: &mut SocketQueue, pool: &mut ReceivePool, counters: &UdpCounters) -> bool {
        if queue.is_drained() {
            self.take(queue, pool, counters);
        }
        !queue.is_drained() || self.joined.iter_mut().any(|group| pool.poll(&mut group.batch, &group.socket, counters))
    }

    fn take(&mut self, queue: &mut SocketQueue, pool: &mut ReceivePool, counters: &UdpCounters) {
        queue.take(pool, counters);
        // What is in the queue now may have been sent after more to a group of which a batch is being handed out.
        self.joined.iter_mut().for_each(|joined| joined.batch.expect_more());
        self.budget = IN_A_ROW;
    }
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
    pub(super) fn options(&self, local: IpAddr) -> MulticastOptions {
        MulticastOptions { group: self.address, local, hops: self.hops, interface: self.interface }
    }
}
