//! Multicast membership: the queue pair is attached, and the fabric joined, which for RoCE is an IGMP or MLD join of
//! the interface. A queue pair that is only attached receives nothing from other adapters.

use alloc::sync::Arc;
use core::mem::MaybeUninit;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::ptr::{self, NonNull};
use std::io;

use rdma_core_sys as sys;

use super::domain::{Domain, OpenError};
use super::gid::Gid;
use super::uverbs::UverbsQueuePair;

/// A queue pair that groups can be attached to.
#[derive(Debug)]
pub(super) enum Member {
    Library(NonNull<sys::ibv_qp>),
    Mapped(Arc<UverbsQueuePair>),
}

impl Member {
    fn attach(&self, group: Gid, lid: u16) -> io::Result<()> {
        let raw = sys::ibv_gid { raw: group.0 };
        match self {
            Self::Library(pair) => {
                // SAFETY: a live queue pair.
                let code = unsafe { sys::ibv_attach_mcast(pair.as_ptr(), &raw, lid) };
                if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.abs())) }
            }
            Self::Mapped(pair) => pair.attach(group.0, lid),
        }
    }

    fn detach(&self, group: Gid, lid: u16) {
        let raw = sys::ibv_gid { raw: group.0 };
        match self {
            Self::Library(pair) => {
                // SAFETY: attached before; the queue pair outlives its memberships.
                unsafe { sys::ibv_detach_mcast(pair.as_ptr(), &raw, lid) };
            }
            // A queue pair that is gone is in no group.
            Self::Mapped(pair) => _ = pair.detach(group.0, lid),
        }
    }
}

/// A group that a queue pair is attached to, until it is dropped.
#[derive(Debug)]
pub(super) struct Membership {
    member: Member,
    gid: Gid,
    lid: u16,
    _link: CmLink,
}

/// The rdma_cm identifier that joined the fabric.
#[derive(Debug)]
struct CmLink {
    channel: NonNull<sys::rdma_event_channel>,
    id: Option<NonNull<sys::rdma_cm_id>>,
}

// SAFETY: used by its owner only, and rdma-core lets any thread use or destroy what another made.
unsafe impl Send for Membership {}

impl Membership {
    /// Joins a group. Waits for the fabric's answer, which for RoCE comes at once.
    pub(super) fn join(domain: &Arc<Domain>, member: Member, group: IpAddr) -> Result<Self, OpenError> {
        if group.is_ipv4() != domain.gid().gid.ipv4().is_some() {
            return Err(OpenError::code("a group of another family than the GID's", libc::EAFNOSUPPORT));
        }
        // SAFETY: no arguments.
        let channel = NonNull::new(unsafe { sys::rdma_create_event_channel() });
        let channel = channel.ok_or_else(|| match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => OpenError::NoLibrary,
            error => OpenError::Refused { what: "rdma_create_event_channel", error },
        })?;
        let mut link = CmLink { channel, id: None };
        let mut id = ptr::null_mut();
        let space = sys::rdma_port_space::RDMA_PS_UDP;
        // SAFETY: a live channel and a place for the answer.
        if unsafe { sys::rdma_create_id(channel.as_ptr(), &mut id, ptr::null_mut(), space) } != 0 {
            return Err(OpenError::last("rdma_create_id"));
        }
        let id = NonNull::new(id).ok_or_else(|| OpenError::last("rdma_create_id"))?;
        link.id = Some(id);
        let own = match domain.gid().gid {
            gid if gid.ipv4().is_some() => gid.ipv4().map(IpAddr::from),
            gid => Some(Ipv6Addr::from(gid.0).into()),
        };
        let mut own = SocketAddress::of(own.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), domain.gid().interface);
        // SAFETY: a live identifier and an address.
        if unsafe { sys::rdma_bind_addr(id.as_ptr(), own.as_mut_ptr()) } != 0 {
            return Err(OpenError::last("rdma_bind_addr"));
        }
        let mut wanted = SocketAddress::of(group, domain.gid().interface);
        // SAFETY: a live identifier, bound to the port, and an address.
        if unsafe { sys::rdma_join_multicast(id.as_ptr(), wanted.as_mut_ptr(), ptr::null_mut()) } != 0 {
            return Err(OpenError::last("rdma_join_multicast"));
        }
        let (gid, lid) = link.answer()?;
        member.attach(gid, lid).map_err(|error| OpenError::Refused { what: "ibv_attach_mcast", error })?;
        Ok(Self { member, gid, lid, _link: link })
    }

    /// The GID of datagrams to the group.
    pub(super) const fn gid(&self) -> Gid {
        self.gid
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.member.detach(self.gid, self.lid);
    }
}

impl CmLink {
    /// Waits for the answer to a join: the group's GID and LID.
    fn answer(&self) -> Result<(Gid, u16), OpenError> {
        let mut event = ptr::null_mut();
        // SAFETY: a live channel and a place for the answer.
        if unsafe { sys::rdma_get_cm_event(self.channel.as_ptr(), &mut event) } != 0 {
            return Err(OpenError::last("rdma_get_cm_event"));
        }
        // SAFETY: got above, not yet acknowledged.
        let kind = unsafe { (*event).event };
        // SAFETY: got above, not yet acknowledged.
        let status = unsafe { (*event).status };
        // SAFETY: got above, not yet acknowledged; only the address of a part is taken.
        let datagrams = unsafe { &raw const (*event).param }.cast::<sys::rdma_ud_param>();
        // SAFETY: the answer to a join is of this kind; an address and numbers.
        let attributes = unsafe { datagrams.read() }.ah_attr;
        // SAFETY: a union of sixteen bytes, all written, any of which are a GID.
        let answer = (Gid(unsafe { attributes.grh.dgid.raw }), attributes.dlid);
        // SAFETY: got above; nothing of it is used any more.
        unsafe { sys::rdma_ack_cm_event(event) };
        if kind == sys::rdma_cm_event_type::RDMA_CM_EVENT_MULTICAST_JOIN {
            Ok(answer)
        } else {
            Err(OpenError::code("rdma_join_multicast", if status == 0 { libc::EPROTO } else { status }))
        }
    }
}

impl Drop for CmLink {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            // SAFETY: made by `join`, taken once. It leaves its groups.
            unsafe { sys::rdma_destroy_id(id.as_ptr()) };
        }
        // SAFETY: made by `join`; its identifier is gone.
        unsafe { sys::rdma_destroy_event_channel(self.channel.as_ptr()) };
    }
}

/// An address as rdma_cm takes it.
struct SocketAddress(MaybeUninit<libc::sockaddr_storage>);

impl SocketAddress {
    fn of(address: IpAddr, interface: u32) -> Self {
        let mut name = MaybeUninit::<libc::sockaddr_storage>::zeroed();
        match SocketAddr::new(address, 0) {
            SocketAddr::V4(address) => {
                let to = name.as_mut_ptr().cast::<libc::sockaddr_in>();
                // SAFETY: all zeros are an address.
                let mut filled: libc::sockaddr_in = unsafe { core::mem::zeroed() };
                filled.sin_family = libc::AF_INET as libc::sa_family_t;
                filled.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                // SAFETY: room for every kind of address.
                unsafe { to.write(filled) };
            }
            SocketAddr::V6(address) => {
                let to = name.as_mut_ptr().cast::<libc::sockaddr_in6>();
                // SAFETY: all zeros are an address.
                let mut filled: libc::sockaddr_in6 = unsafe { core::mem::zeroed() };
                filled.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                filled.sin6_addr.s6_addr = address.ip().octets();
                filled.sin6_scope_id = if address.ip().is_unicast_link_local() { interface } else { 0 };
                // SAFETY: room for every kind of address.
                unsafe { to.write(filled) };
            }
        }
        Self(name)
    }

    fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        self.0.as_mut_ptr().cast()
    }
}
