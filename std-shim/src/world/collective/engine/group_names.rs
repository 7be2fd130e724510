//! The names of multicast groups: their addresses, and the keys of their datagrams.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use unisono_core::ids::GroupId;
use unisono_core::multicast::GroupKey;

use super::rooted_stream::StreamName;
use crate::environment::{GroupBase, MulticastChoice, Secret, Settings};
use unisono_bootstrap::Rank;
use unisono_udp::GroupAddress;

/// Routers that a datagram passes: none.
const HOPS: u8 = 1;

/// Where groups are, and how datagrams of one communicator's group are distinguished from others.
#[derive(Clone, Debug)]
pub(in crate::world) struct GroupNames {
    secret: Secret,
    job: String,
    base: SocketAddr,
    interface: u32,
}

impl GroupNames {
    /// The names of a job's groups, for a device with this address. `None`: the job has no groups.
    pub(in crate::world) fn new(settings: &Settings, local: IpAddr) -> Option<Self> {
        let (secret, job) = (settings.secret.clone()?, settings.job.as_str().to_owned());
        let [a, b, c, d, ..] = secret.prove(&job, b"multicast address", &[]);
        // Below the ports that the system gives to sockets.
        let port = 16_384 + u16::from_le_bytes([c, d]) % 16_384;
        let derived = if local.is_ipv4() {
            IpAddr::from(Ipv4Addr::new(239, 255, a, b))
        } else {
            Ipv6Addr::from_segments([0xff15, 0, 0, 0, 0, 0, 0x756e, u16::from_be_bytes([a, b])]).into()
        };
        let (base, interface) = match settings.transport.multicast {
            MulticastChoice::Off => return None,
            MulticastChoice::Auto => (SocketAddr::new(derived, port), 0),
            MulticastChoice::At(GroupBase { address, port: given, interface }) => {
                let index = interface.map(|name| name.index()).unwrap_or(Some(0))?;
                (SocketAddr::new(address, given.unwrap_or(port)), index)
            }
        };
        Some(Self { secret, job, base, interface })
    }

    /// The address of a group.
    pub(in crate::world) fn address(&self, group: u32) -> GroupAddress {
        let after = |low: u16| low.wrapping_add(group as u16);
        let ip = match self.base.ip() {
            IpAddr::V4(ip) => {
                let [a, b, c, d] = ip.octets();
                let [c, d] = after(u16::from_be_bytes([c, d])).to_be_bytes();
                IpAddr::from([a, b, c, d])
            }
            IpAddr::V6(ip) => {
                let mut segments = ip.segments();
                segments[7] = after(segments[7]);
                IpAddr::from(segments)
            }
        };
        GroupAddress { address: SocketAddr::new(ip, self.base.port()), hops: HOPS, interface: self.interface }
    }

    /// The key of the stream of a communicator's rank: several ranks of a node may have the same number in the group, and
    /// communicators without a common rank the same context or group.
    pub(in crate::world) fn key(&self, name: &StreamName) -> GroupKey {
        let first = name.members.world_rank(Rank(0)).map_or(0, |first| first.0);
        let of = [name.context, name.generation, name.caller.0, first];
        self.derive_key(GroupId(name.group), b"multicast epoch", &of)
    }

    /// The key of the releases of a communicator's trees.
    pub(in crate::world) fn release_key(&self, group: GroupId, context: u32, generation: u32) -> GroupKey {
        self.derive_key(group, b"release epoch", &[context, generation])
    }

    /// The key of the probes to a group of the pool.
    pub(in crate::world) fn pool_key(&self, group: GroupId) -> GroupKey {
        self.derive_key(group, b"pool epoch", &[])
    }

    fn derive_key(&self, group: GroupId, purpose: &[u8], of: &[u32]) -> GroupKey {
        let words: Vec<[u8; 4]> = core::iter::once(&group.0).chain(of).map(|word| word.to_le_bytes()).collect();
        let parts: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        let [a, b, c, d, e, f, g, h, ..] = self.secret.prove(&self.job, purpose, &parts);
        GroupKey { group, epoch: u64::from_le_bytes([a, b, c, d, e, f, g, h]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::group::Group;
    use core::net::IpAddr;
    use unisono_core::ids::Rank as Member;

    fn names(multicast: &str, local: &str) -> Option<GroupNames> {
        let mut settings = Settings { secret: Secret::new("0123456789abcdef").ok(), ..Settings::default() };
        settings.transport.multicast = multicast.parse().expect("a choice");
        GroupNames::new(&settings, local.parse().expect("an address"))
    }

    #[test]
    fn every_communicator_has_a_group_and_every_generation_a_key() {
        for (multicast, local) in [("auto", "127.0.0.1"), ("auto", "::1"), ("239.255.7.255:4711%lo", "127.0.0.1")] {
            let names = names(multicast, local).expect("names");
            let addresses = [0, 1, 2, 65_534].map(|context| names.address(context).address);
            assert!(addresses.iter().all(|address| address.ip().is_multicast() && address.port() != 0));
            assert_eq!(addresses.map(|address| address.is_ipv4()), [!local.contains(':'); 4]);
            let key = |context: u32, generation: u32, group: u32, caller: u32, first: u32| {
                let members = Group::of(vec![Rank(first), Rank(first + 1)]);
                let (caller, root, own) = (Member(caller), Member(caller), Member(0));
                names.key(&StreamName { context, generation, group, caller, members, root, own }).epoch
            };
            let mut keys = vec![
                key(0, 0, 0, 0, 0),
                key(0, 1, 0, 0, 0),
                key(1, 0, 0, 0, 0),
                key(0, 0, 9, 0, 0),
                key(0, 0, 0, 1, 0),
            ];
            keys.push(key(0, 0, 0, 0, 2));
            let mut distinct: Vec<IpAddr> = addresses.map(|address| address.ip()).to_vec();
            distinct.sort_unstable();
            distinct.dedup();
            keys.extend([(0, 0), (0, 1)].map(|(context, of)| names.release_key(GroupId(0), context, of).epoch));
            keys.push(names.pool_key(GroupId(0)).epoch);
            keys.sort_unstable();
            keys.dedup();
            assert_eq!((distinct.len(), keys.len()), (4, 9));
        }
        let given = names("239.255.7.255:4711%lo", "127.0.0.1").expect("names").address(2);
        assert_eq!(given.address.to_string(), "239.255.8.1:4711");
        assert!(given.interface > 0);
    }

    #[test]
    fn a_job_without_groups_has_no_names() {
        assert!(names("off", "127.0.0.1").is_none() && names("239.255.7.0%no-such", "127.0.0.1").is_none());
        assert!(GroupNames::new(&Settings::default(), IpAddr::from([127, 0, 0, 1])).is_none(), "no secret");
    }
}
