//! Groups.

use core::ffi::c_int;

use unisono::{Group, Rank};

use crate::abi::*;
use crate::calls::{give, list, list_mut};
use crate::communicator::GroupObject;
use crate::error::{Outcome, finish};
use crate::handle::{FIRST_ADDRESS, Object, release, resolve};

/// A handle of a group; the empty one has a constant.
pub unsafe fn made(to: *mut MPI_Group, group: Group) -> Outcome {
    let handle = if group.size() == 0 {
        MPI_GROUP_EMPTY
    } else {
        MPI_Group(Object::into_handle(Object::new(GroupObject(group))))
    };
    // SAFETY: the contract of this module.
    unsafe { give(to, handle) }
}

/// The group that a handle names.
pub unsafe fn group<'a>(handle: MPI_Group) -> Outcome<&'a Group> {
    // SAFETY: the contract of this module.
    Ok(&unsafe { resolve::<GroupObject>(handle.0) }?.0)
}

fn own(group: &Group) -> c_int {
    let own = crate::communicator::world_communicator().and_then(|world| group.number(Rank(world.rank)));
    own.map_or(MPI_UNDEFINED, |rank| rank.0 as c_int)
}

pub(crate) unsafe fn group_size(handle: MPI_Group, size: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { group(handle).and_then(|group| give(size, group.size() as c_int)) })
}

pub(crate) unsafe fn group_rank(handle: MPI_Group, rank: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe { group(handle).and_then(|group| give(rank, own(group))) })
}

pub(crate) unsafe fn group_translate_ranks(
    from: MPI_Group,
    count: c_int,
    ranks: *const c_int,
    to: MPI_Group,
    translated: *mut c_int,
) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let (from, to) = (group(from)?, group(to)?);
            for (at, rank) in list(ranks, count.into())?.iter().enumerate() {
                let found = if *rank == MPI_PROC_NULL {
                    MPI_PROC_NULL
                } else {
                    let world = u32::try_from(*rank).ok().and_then(|rank| from.world_rank(Rank(rank)));
                    to.number(world.ok_or(MPI_ERR_RANK)?).map_or(MPI_UNDEFINED, |rank| rank.0 as c_int)
                };
                give(translated.wrapping_add(at), found)?;
            }
            Ok(())
        })()
    })
}

/// How two groups compare.
pub fn compare(one: &Group, other: &Group) -> c_int {
    if one == other {
        MPI_IDENT
    } else if one.size() == other.size() && one.iter().all(|rank| other.number(rank).is_some()) {
        MPI_SIMILAR
    } else {
        MPI_UNEQUAL
    }
}

pub(crate) unsafe fn group_compare(one: MPI_Group, other: MPI_Group, result: *mut c_int) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        group(one).and_then(|one| {
            let compared = compare(one, group(other)?);
            give(result, compared)
        })
    })
}

macro_rules! pairs {
    ($(fn $name:ident $method:ident;)*) => { $(
        pub(crate) unsafe fn $name(one: MPI_Group, other: MPI_Group, new: *mut MPI_Group) -> c_int {
            // SAFETY: the contract of this module.
            finish(unsafe { group(one).and_then(|one| made(new, one.$method(group(other)?))) })
        }
    )* };
}

pairs! {
    fn group_union union;
    fn group_intersection intersection;
    fn group_difference difference;
}

fn numbers(ranks: &[c_int]) -> Outcome<Vec<Rank>> {
    ranks.iter().map(|rank| u32::try_from(*rank).map(Rank).map_err(|_| MPI_ERR_RANK)).collect()
}

/// The ranks of ranges of first, last and step.
fn ranges(ranges: &[c_int], size: u32) -> Outcome<Vec<Rank>> {
    let mut all = Vec::new();
    for range in ranges.chunks_exact(3) {
        let &[first, last, step] = range else { return Err(MPI_ERR_ARG) };
        if step == 0 {
            return Err(MPI_ERR_ARG);
        }
        if first < 0 || first as u32 >= size {
            return Err(MPI_ERR_RANK);
        }
        let mut rank = i64::from(first);
        while if step > 0 { rank <= i64::from(last) } else { rank >= i64::from(last) } {
            if rank < 0 || rank >= i64::from(size) {
                return Err(MPI_ERR_RANK);
            }
            all.push(Rank(rank as u32));
            rank += i64::from(step);
        }
    }
    Ok(all)
}

pub(crate) unsafe fn group_incl(handle: MPI_Group, count: c_int, ranks: *const c_int, new: *mut MPI_Group) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        group(handle).and_then(|group| {
            let ranks = numbers(list(ranks, count.into())?)?;
            made(new, group.include(&ranks).map_err(|_| MPI_ERR_RANK)?)
        })
    })
}

pub(crate) unsafe fn group_excl(handle: MPI_Group, count: c_int, ranks: *const c_int, new: *mut MPI_Group) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        group(handle).and_then(|group| {
            let ranks = numbers(list(ranks, count.into())?)?;
            made(new, group.exclude(&ranks).map_err(|_| MPI_ERR_RANK)?)
        })
    })
}

pub(crate) unsafe fn group_range_incl(handle: MPI_Group, count: c_int, of: *mut c_int, new: *mut MPI_Group) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        group(handle).and_then(|group| {
            let ranks = ranges(list_mut(of, i64::from(count) * 3)?, group.size())?;
            made(new, group.include(&ranks).map_err(|_| MPI_ERR_RANK)?)
        })
    })
}

pub(crate) unsafe fn group_range_excl(handle: MPI_Group, count: c_int, of: *mut c_int, new: *mut MPI_Group) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        group(handle).and_then(|group| {
            let ranks = ranges(list_mut(of, i64::from(count) * 3)?, group.size())?;
            made(new, group.exclude(&ranks).map_err(|_| MPI_ERR_RANK)?)
        })
    })
}

pub(crate) unsafe fn group_free(handle: *mut MPI_Group) -> c_int {
    // SAFETY: the contract of this module.
    finish(unsafe {
        (|| {
            let of = *handle.as_ref().ok_or(MPI_ERR_ARG)?;
            if of == MPI_GROUP_NULL {
                return Err(MPI_ERR_GROUP);
            }
            if of.0 >= FIRST_ADDRESS {
                drop(release::<GroupObject>(of.0)?);
            }
            give(handle, MPI_GROUP_NULL)
        })()
    })
}
