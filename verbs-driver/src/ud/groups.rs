//! The multicast groups of a device: the address of each number, and the memberships of the polled queue pair.
//!
//! A group that the device has joined has a slot among the paths of the address table, after those of the peers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::error::Error;
use core::fmt;
use core::net::IpAddr;

use unisono_core::device::GroupError;
use unisono_core::ids::GroupId;

use super::domain::Domain;
use super::gid::Gid;
use super::multicast::{Member, Membership};

/// Why an address cannot be a group's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupAddressError {
    /// It is no multicast address.
    NotAGroup,
    /// It is of another family (IPv4, IPv6) than the port's GID.
    WrongFamily,
    /// The device is a member of the group of that number.
    Joined,
}

impl fmt::Display for GroupAddressError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::NotAGroup => "the address is no multicast address",
            Self::WrongFamily => "the group's address is of another family (IPv4, IPv6) than the port's GID",
            Self::Joined => "the device is a member of the group",
        })
    }
}

impl Error for GroupAddressError {}

/// A group that the device is a member of.
#[derive(Debug)]
struct JoinedGroup {
    group: GroupId,
    _membership: Membership,
}

/// A group that was joined now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Joined {
    pub(super) slot: usize,
    /// The GID of datagrams to it.
    pub(super) gid: Gid,
}

/// The groups that are known to a device, whose addresses it keeps.
#[derive(Debug)]
pub(super) struct Groups {
    addresses: BTreeMap<GroupId, IpAddr>,
    joined: Box<[Option<JoinedGroup>]>,
}

impl Groups {
    /// Groups of a device that can be a member of `most` at a time.
    pub(super) fn new(most: u32) -> Self {
        Self { addresses: BTreeMap::new(), joined: (0..most).map(|_| None).collect() }
    }

    /// Binds a number to an address of the port's family.
    pub(super) fn set(&mut self, group: GroupId, address: IpAddr, port: Gid) -> Result<(), GroupAddressError> {
        if !address.is_multicast() {
            return Err(GroupAddressError::NotAGroup);
        }
        if address.is_ipv4() != port.ipv4().is_some() {
            return Err(GroupAddressError::WrongFamily);
        }
        if self.slot(group).is_some() {
            return Err(GroupAddressError::Joined);
        }
        self.addresses.insert(group, address);
        Ok(())
    }

    /// The slot of a group that the device is a member of.
    fn slot(&self, group: GroupId) -> Option<usize> {
        self.joined.iter().position(|joined| joined.as_ref().is_some_and(|joined| joined.group == group))
    }

    /// Makes a queue pair a member. `None`: it is one already.
    pub(super) fn join(
        &mut self,
        domain: &Arc<Domain>,
        member: Option<Member>,
        group: GroupId,
    ) -> Result<Option<Joined>, GroupError> {
        if self.joined.is_empty() {
            return Err(GroupError::Unsupported);
        }
        let address = *self.addresses.get(&group).ok_or(GroupError::Unknown(group))?;
        if self.slot(group).is_some() {
            return Ok(None);
        }
        let (slot, free) =
            self.joined.iter_mut().enumerate().find(|(_, joined)| joined.is_none()).ok_or(GroupError::Full)?;
        let member = member.ok_or(GroupError::Refused(group))?;
        let membership = Membership::join(domain, member, address).map_err(|_| GroupError::Refused(group))?;
        let gid = membership.gid();
        *free = Some(JoinedGroup { group, _membership: membership });
        Ok(Some(Joined { slot, gid }))
    }

    /// Ends the membership. Returns the group's slot.
    pub(super) fn leave(&mut self, group: GroupId) -> Result<usize, GroupError> {
        if self.joined.is_empty() {
            return Err(GroupError::Unsupported);
        }
        let slot = self.slot(group).ok_or(GroupError::NotMember(group))?;
        if let Some(joined) = self.joined.get_mut(slot) {
            *joined = None;
        }
        Ok(slot)
    }

    /// Ends all memberships.
    pub(super) fn clear(&mut self) {
        self.joined.iter_mut().for_each(|joined| *joined = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_when_they_are_bound() {
        let port = Gid::from(IpAddr::from([10, 0, 0, 1]));
        let mut groups = Groups::new(1);
        let group = GroupId(3);
        assert_eq!(groups.set(group, IpAddr::from([10, 0, 0, 7]), port), Err(GroupAddressError::NotAGroup));
        let other = "ff15::7".parse().unwrap();
        assert_eq!(groups.set(group, other, port), Err(GroupAddressError::WrongFamily));
        assert_eq!(groups.set(group, IpAddr::from([239, 1, 2, 3]), port), Ok(()));
        assert_eq!(groups.set(group, other, Gid::from("2001:db8::7".parse::<IpAddr>().unwrap())), Ok(()));
        assert_eq!(groups.leave(group), Err(GroupError::NotMember(group)));
        assert_eq!(Groups::new(0).leave(group), Err(GroupError::Unsupported));
    }
}
