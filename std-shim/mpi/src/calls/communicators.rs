//! Communicators and intercommunicators.

use alloc::sync::Arc;
use core::ffi::{CStr, c_char, c_int};
use core::ptr::NonNull;

use unisono::raw::{Channel, ElementType, ProposalBytes};
use unisono::{Communicator, CreateError, Failure, Group, Rank, Tag};

use crate::abi::*;
use crate::calls::groups::{compare, group, made as made_group};
use crate::calls::{give, give_text, name};
use crate::communicator::Comm;
use crate::error::{Outcome, class_of_collective, class_of_failure, finish, on, raise_anywhere};
use crate::handle::{FIRST_ADDRESS, Held, Object, release, resolve};
use crate::hardware::Resource;
use crate::info::Info;
use crate::request::{Activity, Request, ThreadResult};
use crate::topology::Topology;

/// The error class of a communicator that cannot be made.
pub const fn class_of_creation(error: CreateError) -> c_int {
    match error {
        CreateError::Collective(error) => class_of_collective(error),
        CreateError::NotMember(_) | CreateError::Disagrees(_) => MPI_ERR_GROUP,
        _ => MPI_ERR_OTHER,
    }
}

/// A handle for the program.
pub unsafe fn made(to: *mut MPI_Comm, comm: Option<Held<Comm>>) -> Outcome {
    // SAFETY: the contract of this module.
    unsafe { give(to, comm.map_or(MPI_COMM_NULL, |comm| MPI_Comm(Object::into_handle(comm)))) }
}

pub(crate) unsafe fn comm_size(comm: MPI_Comm, size: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| give(size, comm.size as c_int)) }
}

pub(crate) unsafe fn comm_rank(comm: MPI_Comm, rank: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| give(rank, comm.rank as c_int)) }
}

pub(crate) unsafe fn comm_remote_size(comm: MPI_Comm, size: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| if comm.is_inter { give(size, comm.remote.size as c_int) } else { Err(MPI_ERR_COMM) }) }
}

pub(crate) unsafe fn comm_test_inter(comm: MPI_Comm, flag: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| give(flag, comm.is_inter.into())) }
}

pub(crate) unsafe fn comm_group(comm: MPI_Comm, to: *mut MPI_Group) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| made_group(to, comm.group())) }
}

pub(crate) unsafe fn comm_remote_group(comm: MPI_Comm, to: *mut MPI_Group) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| if comm.is_inter { made_group(to, comm.remote_group()) } else { Err(MPI_ERR_COMM) }) }
}

pub(crate) unsafe fn comm_compare(one: MPI_Comm, other: MPI_Comm, result: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(one, |first| {
            let second = resolve::<Comm>(other.0)?;
            let compared = if one == other {
                MPI_IDENT
            } else if first.is_inter != second.is_inter {
                MPI_UNEQUAL
            } else {
                let local = compare(&first.group(), &second.group());
                let remote = compare(&first.remote_group(), &second.remote_group());
                match (local, remote) {
                    (MPI_IDENT, MPI_IDENT) => MPI_CONGRUENT,
                    (MPI_UNEQUAL, _) | (_, MPI_UNEQUAL) => MPI_UNEQUAL,
                    _ => MPI_SIMILAR,
                }
            };
            give(result, compared)
        })
    }
}

/// A communicator of the same kind over another one of the library with the same members.
fn like(comm: &Object<Comm>, library: Communicator) -> Held<Comm> {
    if comm.is_inter {
        let (local, remote) = ((comm.local_base, comm.size), (comm.remote.base, comm.remote.size));
        Comm::inter(library, comm, local, remote)
    } else {
        Comm::intra(library, comm, comm.topology.clone())
    }
}

/// A duplicate, with the attributes and hints that it gets.
unsafe fn duplicate(comm: &Object<Comm>, info: Option<&Info>) -> Outcome<Held<Comm>> {
    settle(comm)?;
    let library = comm.library().duplicate().map_err(class_of_creation)?;
    let copy = like(comm, library);
    *copy.info.lock() = info.map_or_else(|| comm.info.lock().duplicate(), Info::duplicate);
    // SAFETY: the contract of this module.
    unsafe { comm.attributes.copy_to(comm.handle(), &copy.attributes) }?;
    Ok(copy)
}

unsafe fn optional<'a>(info: MPI_Info) -> Outcome<Option<&'a Info>> {
    if info == MPI_INFO_NULL {
        return Ok(None);
    }
    // SAFETY: the contract of this module.
    Ok(Some(unsafe { resolve::<Info>(info.0) }?))
}

pub(crate) unsafe fn comm_dup(comm: MPI_Comm, new: *mut MPI_Comm) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            give(new, MPI_COMM_NULL)?;
            made(new, Some(duplicate(comm, None)?))
        })
    }
}

pub(crate) unsafe fn comm_dup_with_info(comm: MPI_Comm, info: MPI_Info, new: *mut MPI_Comm) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let none = Info::default();
            let info = optional(info)?.unwrap_or(&none);
            made(new, Some(duplicate(comm, Some(info))?))
        })
    }
}

/// Starts to make a duplicate. A thread makes it, by messages that match no others, so that any other calls of the
/// communicator may overlap it; duplicates of one communicator are made one after the other.
unsafe fn start_duplicate(
    comm: &Object<Comm>,
    info: Option<&Info>,
    new: *mut MPI_Comm,
    request: *mut MPI_Request,
) -> Outcome {
    let copy = Comm::pending(comm);
    *copy.info.lock() = info.map_or_else(|| comm.info.lock().duplicate(), Info::duplicate);
    // SAFETY: the contract of this module.
    unsafe { comm.attributes.copy_to(comm.handle(), &copy.attributes) }?;
    let (result, tag) = (Arc::new(ThreadResult::default()), Tag(comm.next_tag()));
    let former = comm.duplicating.lock().replace(result.clone());
    let (parent, child, done) = (comm.hold(), copy.clone(), result.clone());
    let work = move || {
        let made = former.map_or(Ok(()), |former| former.wait()).and_then(|()| {
            let library = create_from_members(&parent, &parent.library().group(), tag)?;
            child.complete(library.ok_or(MPI_ERR_INTERN)?);
            Ok(())
        });
        done.set(made);
    };
    std::thread::Builder::new().name(String::from("unisono idup")).spawn(work).map_err(|_| MPI_ERR_NO_MEM)?;
    // SAFETY: the contract of this module.
    unsafe { made(new, Some(copy)) }?;
    // SAFETY: the contract of this module.
    unsafe { give(request, Request::handle(comm, Activity::Thread(result))) }
}

/// Waits until no duplicate of this communicator is being made.
fn settle(comm: &Object<Comm>) -> Outcome {
    let pending = comm.duplicating.lock().take();
    pending.map_or(Ok(()), |pending| pending.wait())
}

pub(crate) unsafe fn comm_idup(comm: MPI_Comm, new: *mut MPI_Comm, request: *mut MPI_Request) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| start_duplicate(comm, None, new, request)) }
}

pub(crate) unsafe fn comm_idup_with_info(
    comm: MPI_Comm,
    info: MPI_Info,
    new: *mut MPI_Comm,
    request: *mut MPI_Request,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let none = Info::default();
            start_duplicate(comm, Some(optional(info)?.unwrap_or(&none)), new, request)
        })
    }
}

pub(crate) unsafe fn comm_free(comm: *mut MPI_Comm) -> c_int {
    // SAFETY: the contract of this module.
    let Some(&handle) = (unsafe { comm.as_ref() }) else { return raise_anywhere(MPI_ERR_ARG) };
    // SAFETY: the contract of this module.
    unsafe {
        on(handle, |of| {
            if handle.0 < FIRST_ADDRESS {
                return Err(MPI_ERR_COMM);
            }
            of.attributes.delete_all(handle.0)?;
            of.buffer.flush();
            settle(of)?;
            drop(release::<Comm>(handle.0)?);
            give(comm, MPI_COMM_NULL)
        })
    }
}

pub(crate) unsafe fn comm_disconnect(comm: *mut MPI_Comm) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { comm_free(comm) }
}

/// A part of a communicator: the members that pass the same color, ordered by key.
pub fn split(comm: &Object<Comm>, color: c_int, key: c_int) -> Outcome<Option<Held<Comm>>> {
    if color < 0 && color != MPI_UNDEFINED {
        return Err(MPI_ERR_ARG);
    }
    settle(comm)?;
    let color = u32::try_from(color).ok();
    let library = comm.library();
    if !comm.is_inter {
        let part = library.split_by_color_with_key(color, key).map_err(class_of_creation)?;
        return Ok(part.map(|part| Comm::intra(part, comm, None)));
    }
    // Both groups are split at once; in each part, the members of the first group come first.
    let is_first = comm.local_base == 0;
    let mut first_size = 0;
    let part = ordered_split(comm, color, key, is_first, &mut first_size)?;
    Ok(part.and_then(|part| {
        let rest = part.size() - first_size;
        let (first, second) = ((0, first_size), (first_size, rest));
        let (local, remote) = if is_first { (first, second) } else { (second, first) };
        (local.1 > 0 && remote.1 > 0).then(|| Comm::inter(part, comm, local, remote))
    }))
}

/// Splits both groups of an intercommunicator: members of the first group come first, and each group is in the order of
/// its keys.
fn ordered_split(
    comm: &Object<Comm>,
    color: Option<u32>,
    key: c_int,
    is_first: bool,
    first_size: &mut u32,
) -> Outcome<Option<Communicator>> {
    let library = comm.library();
    let own = [color.map_or(-1, i64::from), i64::from(key), i64::from(!is_first)];
    let mut all = vec![[0_i64; 3]; library.size() as usize];
    library.all_gather_into(&[own], &mut all).map_err(class_of_collective)?;
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| (all[*at][2], all[*at][1], *at));
    let place = order.iter().position(|at| *at == library.rank().0 as usize).unwrap_or(0);
    *first_size = all.iter().filter(|of| of[0] == own[0] && of[2] == 0).count() as u32;
    library.split_by_color_with_key(color, place as i32).map_err(class_of_creation)
}

pub(crate) unsafe fn comm_split(comm: MPI_Comm, color: c_int, key: c_int, new: *mut MPI_Comm) -> c_int {
    // SAFETY: the contract of this module.
    unsafe { on(comm, |comm| made(new, split(comm, color, key)?)) }
}

pub(crate) unsafe fn comm_split_type(
    comm: MPI_Comm,
    kind: c_int,
    key: c_int,
    info: MPI_Info,
    new: *mut MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let info = optional(info)?;
            let wanted = info.and_then(|info| {
                let info = info.0.lock();
                let wanted = info.iter().find(|(key, _)| **key == *RESOURCE_TYPE);
                wanted.map(|(_, value)| value.clone())
            });
            if !matches!(
                kind,
                MPI_UNDEFINED
                    | MPI_COMM_TYPE_SHARED
                    | MPI_COMM_TYPE_HW_GUIDED
                    | MPI_COMM_TYPE_RESOURCE_GUIDED
                    | MPI_COMM_TYPE_HW_UNGUIDED
            ) {
                return Err(MPI_ERR_ARG);
            }
            // Also where this rank does not need to know: the call is collective.
            let members = comm.library().locations().map_err(class_of_collective)?;
            let own = comm.library().rank().0 as usize;
            let first = |resource: Resource| resource.first_of(own, &members).map(|first| first as c_int);
            let is_unguided = kind == MPI_COMM_TYPE_HW_UNGUIDED;
            let divides = is_unguided.then(|| Resource::that_divides(&members)).flatten();
            let color = match (kind, wanted.as_deref()) {
                (MPI_COMM_TYPE_SHARED, _) => Some(first_of_node(comm)),
                (MPI_COMM_TYPE_HW_UNGUIDED, _) => divides.and_then(first),
                (MPI_COMM_TYPE_HW_GUIDED | MPI_COMM_TYPE_RESOURCE_GUIDED, Some(name)) => {
                    if name == c"mpi_shared_memory" {
                        Some(first_of_node(comm))
                    } else {
                        Resource::named(name).and_then(first)
                    }
                }
                _ => None,
            };
            made(new, split(comm, color.unwrap_or(MPI_UNDEFINED), key)?)?;
            if let (Some(info), Some(resource), Some(_)) = (info, divides, color) {
                info.set(RESOURCE_TYPE.to_owned(), resource.name().to_owned());
            }
            Ok(())
        })
    }
}

/// The key of the resource of a split by hardware: which one a guided split takes, and an unguided one has taken.
const RESOURCE_TYPE: &CStr = c"mpi_hw_resource_type";

/// The first member that shares memory with this one.
fn first_of_node(comm: &Object<Comm>) -> c_int {
    let library = comm.library();
    let shares = |rank: &u32| *rank == library.rank().0 || library.shares_memory_with(Rank(*rank));
    (0..library.size()).find(shares).unwrap_or(library.rank().0) as c_int
}

pub(crate) unsafe fn comm_create(comm: MPI_Comm, members: MPI_Group, new: *mut MPI_Comm) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let members = group(members)?;
            let own = Rank(crate::job::world_rank());
            let is_member = members.number(own);
            if members.iter().any(|rank| comm.group().number(rank).is_none()) {
                return Err(MPI_ERR_GROUP);
            }
            if comm.is_inter {
                let key = is_member.map_or(0, |rank| rank.0 as c_int);
                let color = is_member.map_or(MPI_UNDEFINED, |_| 0);
                return made(new, split(comm, color, key)?);
            }
            // Disjoint groups may be passed at once: a split by the first member separates them.
            let first = members.world_rank(Rank(0)).and_then(|rank| comm.group().number(rank));
            let color = is_member.and(first).map_or(MPI_UNDEFINED, |rank| rank.0 as c_int);
            made(new, split(comm, color, is_member.map_or(0, |rank| rank.0 as c_int))?)
        })
    }
}

/// What members of a group that make a communicator send each other.
struct Exchange<'a> {
    comm: &'a Object<Comm>,
    /// Their ranks in the library's communicator, in order, and the own place.
    ranks: Vec<Rank>,
    own: usize,
    tag: Tag,
}

impl Exchange<'_> {
    fn send_to(&self, bytes: &[u8], to: Rank) -> Result<(), Failure> {
        let library = self.comm.library();
        let data = NonNull::from(bytes);
        // SAFETY: borrowed until the send has ended.
        match unsafe { library.raw_send((data, ElementType::Unknown), to, self.tag, false, Channel::Internal) }? {
            (_, Some(request)) => library.raw_wait(&request).map(|_| ()),
            (_, None) => Ok(()),
        }
    }

    fn receive_from(&self, bytes: &mut [u8], from: Rank) -> Result<(), Failure> {
        let library = self.comm.library();
        let into = NonNull::from(bytes);
        // SAFETY: borrowed until the receive has ended.
        let request = unsafe {
            library.raw_receive((into, ElementType::Unknown), Some(from), Some(self.tag), Channel::Internal)
        }?;
        library.raw_wait(&request).map(|_| ())
    }

    /// The first member combines all proposals, also with those of another group if `other` exchanges them, and sends
    /// the result to all.
    fn combine_all(
        &self,
        proposal: &mut ProposalBytes,
        other: &mut dyn FnMut(&mut ProposalBytes) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let leader = self.ranks[0];
        if self.own == 0 {
            for rank in &self.ranks[1..] {
                let mut theirs = [0; size_of::<ProposalBytes>()];
                self.receive_from(&mut theirs, *rank)?;
                Communicator::raw_combine_proposals(proposal, &theirs);
            }
            other(proposal)?;
            self.ranks[1..].iter().try_for_each(|rank| self.send_to(proposal, *rank))
        } else {
            self.send_to(proposal, leader)?;
            self.receive_from(proposal, leader)
        }
    }
}

/// The tag of internal messages that make communicators, from a tag of the program.
const fn creation_tag(tag: c_int) -> Tag {
    Tag(0x8000_0000 | tag as u32)
}

/// Makes a communicator of a group whose members alone call this.
pub fn create_from_members(comm: &Object<Comm>, members: &Group, tag: Tag) -> Outcome<Option<Communicator>> {
    let library = comm.library();
    let own = Rank(crate::job::world_rank());
    let Some(place) = members.number(own) else { return Ok(None) };
    let of = library.group();
    let ranks: Vec<Rank> = members.iter().map(|rank| of.number(rank)).collect::<Option<_>>().ok_or(MPI_ERR_GROUP)?;
    let exchange = Exchange { comm, ranks, own: place.0 as usize, tag };
    let mut failed = None;
    let made = library.raw_create(members.clone(), tag.0, |proposal| {
        exchange.combine_all(proposal, &mut |_| Ok(())).map_err(|failure| {
            failed = Some(failure);
            unisono::collective::CollectiveError::Ended(failure)
        })
    });
    match failed {
        Some(failure) => Err(class_of_failure(failure)),
        None => made.map_err(class_of_creation),
    }
}

pub(crate) unsafe fn comm_create_group(comm: MPI_Comm, members: MPI_Group, tag: c_int, new: *mut MPI_Comm) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            if tag < 0 {
                return Err(MPI_ERR_TAG);
            }
            if comm.is_inter {
                return Err(MPI_ERR_COMM);
            }
            let made_one = create_from_members(comm, group(members)?, creation_tag(tag))?;
            made(new, made_one.map(|made| Comm::intra(made, comm, None)))
        })
    }
}

pub(crate) unsafe fn intercomm_create(
    local: MPI_Comm,
    local_leader: c_int,
    bridge: MPI_Comm,
    remote_leader: c_int,
    tag: c_int,
    new: *mut MPI_Comm,
) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(local, |local| {
            if local.is_inter {
                return Err(MPI_ERR_COMM);
            }
            let leader = local.peer(local_leader)?;
            let is_leader = leader == Rank(local.rank);
            let bridge = if is_leader { Some(resolve::<Comm>(bridge.0)?) } else { None };
            if tag < 0 {
                return Err(MPI_ERR_TAG);
            }
            let peer = match bridge {
                Some(bridge) => Some(bridge.peer(remote_leader)?),
                None => None,
            };
            made(new, Some(connect(local, leader, bridge.zip(peer), creation_tag(tag))?))
        })
    }
}

/// Makes an intercommunicator of two disjoint groups whose leaders know each other.
fn connect(local: &Object<Comm>, leader: Rank, bridge: Option<(&Object<Comm>, Rank)>, tag: Tag) -> Outcome<Held<Comm>> {
    let size = local.size as usize;
    let mut ranks: Vec<Rank> = (0..local.size).map(Rank).collect();
    // The leader is the first of the exchange.
    ranks.swap(0, leader.0 as usize);
    let own = ranks.iter().position(|rank| *rank == Rank(local.rank)).unwrap_or(0);
    let exchange = Exchange { comm: local, ranks, own, tag };
    let across = bridge.map(|(bridge, peer)| (Exchange { comm: bridge, ranks: vec![peer], own: 0, tag }, peer));
    let members: Vec<u32> = local.group().iter().map(|rank| rank.0).collect();
    // The leaders exchange the sizes and the members of their groups.
    let mut header = [0_u8; 8];
    let mut theirs: Vec<u32> = Vec::new();
    let to_bytes = |ranks: &[u32]| ranks.iter().flat_map(|rank| rank.to_le_bytes()).collect::<Vec<u8>>();
    if let Some((across, peer)) = &across {
        let theirs_size = across.swap(&(size as u64).to_le_bytes(), *peer, 8)?;
        let count = u64::from_le_bytes(theirs_size.try_into().map_err(|_| MPI_ERR_INTERN)?) as usize;
        let bytes = across.swap(&to_bytes(&members), *peer, count * 4)?;
        theirs = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
        header = (count as u64).to_le_bytes();
        for rank in &exchange.ranks[1..] {
            exchange.send_to(&header, *rank).map_err(class_of_failure)?;
            exchange.send_to(&bytes, *rank).map_err(class_of_failure)?;
        }
    } else {
        exchange.receive_from(&mut header, leader).map_err(class_of_failure)?;
        let mut bytes = vec![0; u64::from_le_bytes(header) as usize * 4];
        exchange.receive_from(&mut bytes, leader).map_err(class_of_failure)?;
        theirs.extend(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])));
    }
    // Both groups put the one with the least member first.
    let is_first = members.iter().min() < theirs.iter().min();
    let both = if is_first { [&*members, &*theirs] } else { [&*theirs, &*members] }.concat();
    let world = crate::communicator::world_communicator().ok_or(MPI_ERR_COMM)?.library().group();
    let group = world.include(&both.iter().map(|rank| Rank(*rank)).collect::<Vec<_>>()).map_err(|_| MPI_ERR_COMM)?;
    let mut failed = None;
    let made = local.library().raw_create(group, tag.0, |proposal| {
        let mut join = |proposal: &mut ProposalBytes| -> Result<(), Failure> {
            let Some((across, peer)) = &across else { return Ok(()) };
            let other = across.swap(proposal, *peer, proposal.len()).map_err(|_| Failure::PeerFailed(*peer))?;
            if let Ok(other) = ProposalBytes::try_from(other) {
                Communicator::raw_combine_proposals(proposal, &other);
            }
            Ok(())
        };
        exchange.combine_all(proposal, &mut join).map_err(|failure| {
            failed = Some(failure);
            unisono::collective::CollectiveError::Ended(failure)
        })
    });
    let made = match failed {
        Some(failure) => return Err(class_of_failure(failure)),
        None => made.map_err(class_of_creation)?.ok_or(MPI_ERR_INTERN)?,
    };
    let (here, there) = (size as u32, theirs.len() as u32);
    let (own, other) = if is_first { ((0, here), (here, there)) } else { ((there, here), (0, there)) };
    Ok(Comm::inter(made, local, own, other))
}

impl Exchange<'_> {
    /// Sends bytes to a rank, and receives as many as are given from it.
    fn swap(&self, bytes: &[u8], peer: Rank, length: usize) -> Outcome<Vec<u8>> {
        let library = self.comm.library();
        let mut theirs = vec![0; length];
        let into = NonNull::from(theirs.as_mut_slice());
        // SAFETY: kept until the receive has ended.
        let receive =
            unsafe { library.raw_receive((into, ElementType::Unknown), Some(peer), Some(self.tag), Channel::Internal) };
        let receive = receive.map_err(class_of_failure)?;
        let sent = self.send_to(bytes, peer);
        library.raw_wait(&receive).map_err(class_of_failure)?;
        sent.map_err(class_of_failure)?;
        Ok(theirs)
    }
}

pub(crate) unsafe fn intercomm_merge(comm: MPI_Comm, high: c_int, new: *mut MPI_Comm) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            if !comm.is_inter {
                return Err(MPI_ERR_COMM);
            }
            let library = comm.library();
            let mut all = vec![[0_u32; 2]; library.size() as usize];
            let own = [u32::from(high != 0), u32::from(comm.local_base != 0)];
            library.all_gather_into(&[own], &mut all).map_err(class_of_collective)?;
            // Where both groups say the same, the first one comes first.
            let mut order: Vec<usize> = (0..all.len()).collect();
            order.sort_by_key(|at| (all[*at], *at));
            let place = order.iter().position(|at| *at == library.rank().0 as usize).unwrap_or(0);
            let merged = library.split_by_color_with_key(0, place as i32).map_err(class_of_creation)?;
            made(new, merged.map(|merged| Comm::intra(merged, comm, None)))
        })
    }
}

pub(crate) unsafe fn comm_set_name(comm: MPI_Comm, text: *const c_char) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            *comm.name.lock() = name(text)?;
            Ok(())
        })
    }
}

pub(crate) unsafe fn comm_get_name(comm: MPI_Comm, text: *mut c_char, length: *mut c_int) -> c_int {
    if comm == MPI_COMM_NULL {
        // SAFETY: the contract of this module.
        return finish(unsafe { give_text(text, length, c"MPI_COMM_NULL", MPI_MAX_OBJECT_NAME) });
    }
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let name = comm.name.lock().clone();
            give_text(text, length, &name, MPI_MAX_OBJECT_NAME)
        })
    }
}

pub(crate) unsafe fn comm_set_info(comm: MPI_Comm, info: MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let given = resolve::<Info>(info.0)?.duplicate();
            let held = comm.info.lock();
            for (key, value) in given.0.into_inner() {
                held.set(key, value);
            }
            Ok(())
        })
    }
}

pub(crate) unsafe fn comm_get_info(comm: MPI_Comm, info: *mut MPI_Info) -> c_int {
    // SAFETY: the contract of this module.
    unsafe {
        on(comm, |comm| {
            let copy = comm.info.lock().duplicate();
            give(info, MPI_Info(Object::into_handle(Object::new(copy))))
        })
    }
}

pub(crate) unsafe fn comm_get_parent(parent: *mut MPI_Comm) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { give(parent, MPI_COMM_NULL) })
}

/// A communicator of these members with a topology.
pub fn with_topology(comm: &Object<Comm>, library: Communicator, topology: Topology) -> Held<Comm> {
    Comm::intra(library, comm, Some(topology))
}
