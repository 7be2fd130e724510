//! Hardware resources by which communicators are split (MPI 4.1, §7.4.2): `mpi_hw_resource_type`, and what
//! `MPI_Get_hw_resource_info` lists.

use core::ffi::CStr;
use unisono::environment::{Location, RankLocation};

/// A resource that ranks may share, from the widest to the narrowest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resource {
    /// The node.
    Machine,
    /// The socket.
    Package,
    /// The NUMA node.
    NumaNode,
    /// The last-level cache.
    Cache,
}

impl Resource {
    pub(crate) const ALL: [Self; 4] = [Self::Machine, Self::Package, Self::NumaNode, Self::Cache];

    /// Its name: that of hwloc, as a URI.
    pub(crate) const fn name(self) -> &'static CStr {
        match self {
            Self::Machine => c"hwloc://Machine",
            Self::Package => c"hwloc://Package",
            Self::NumaNode => c"hwloc://NUMANode",
            Self::Cache => c"hwloc://L3Cache",
        }
    }

    /// The resource of this name, with or without `hwloc://`; upper and lower case are equal.
    pub(crate) fn named(name: &CStr) -> Option<Self> {
        let bytes = name.to_bytes();
        let short = |resource: Self| resource.name().to_bytes().strip_prefix(b"hwloc://").unwrap_or_default();
        let is_named = |resource: &Self| {
            bytes.eq_ignore_ascii_case(resource.name().to_bytes()) || bytes.eq_ignore_ascii_case(short(*resource))
        };
        Self::ALL.into_iter().find(is_named)
    }

    /// The number of the one resource, among those of its node, that a process is restricted to.
    pub(crate) const fn unit(self, at: &Location) -> Option<u32> {
        match self {
            Self::Machine => Some(0),
            Self::Package => at.socket,
            Self::NumaNode => at.numa,
            Self::Cache => at.cache,
        }
    }

    /// The first of the members that are restricted to the same resource as member `own`. `None`: it is not restricted to
    /// one.
    pub(crate) fn first_of(self, own: usize, members: &[RankLocation]) -> Option<usize> {
        RankLocation::first_in_unit(members, own, |at| self.unit(at))
    }

    /// The widest resource that divides the members: some are restricted to one, and not all to the same one.
    pub(crate) fn that_divides(members: &[RankLocation]) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| {
            let mut units = members.iter().map(|at| Some((at.node, resource.unit(&at.location)?)));
            let first = units.clone().next().flatten();
            units.clone().any(|unit| unit.is_some()) && units.any(|unit| unit != first)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of two sockets of two ranks each, the last of which may use both sockets.
    fn members() -> Vec<RankLocation> {
        let rank = |rank: u32| {
            let location = Location { socket: (rank < 7).then_some(rank / 2 % 2), ..Location::default() };
            RankLocation { node: rank / 4, location }
        };
        (0..8).map(rank).collect()
    }

    #[test]
    fn resources_are_found_by_name() {
        for resource in Resource::ALL {
            assert_eq!(Resource::named(resource.name()), Some(resource));
        }
        assert_eq!(Resource::named(c"numanode"), Some(Resource::NumaNode));
        assert_eq!(Resource::named(c"hwloc://Core"), None);
        assert_eq!(Resource::named(c""), None);
    }

    #[test]
    fn members_share_the_resource_that_they_are_restricted_to() {
        let members = members();
        let firsts = |resource: Resource| -> Vec<_> { (0..8).map(|own| resource.first_of(own, &members)).collect() };
        assert_eq!(firsts(Resource::Machine), [0, 0, 0, 0, 4, 4, 4, 4].map(Some));
        let sockets = [Some(0), Some(0), Some(2), Some(2), Some(4), Some(4), Some(6), None];
        assert_eq!(firsts(Resource::Package), sockets);
        assert_eq!(firsts(Resource::Cache), [None; 8]);
    }

    #[test]
    fn the_widest_resource_that_divides_is_found() {
        let members = members();
        let of = |range: core::ops::Range<usize>| Resource::that_divides(&members[range]);
        assert_eq!(of(0..8), Some(Resource::Machine));
        assert_eq!(of(0..4), Some(Resource::Package));
        assert_eq!(of(4..8), Some(Resource::Package));
        assert_eq!(of(0..2), None, "nothing narrower than a socket is known");
        let cached = |rank: u32| {
            let location = Location { cache: Some(rank), ..Location::default() };
            RankLocation { node: 0, location }
        };
        let cached: Vec<RankLocation> = (0..2).map(cached).collect();
        assert_eq!(Resource::that_divides(&cached), Some(Resource::Cache), "what nobody knows is skipped");
    }
}
