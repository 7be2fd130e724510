//! Collectives: blocking, immediate and persistent forms of each.

use core::ffi::{c_int, c_void};

use unisono::raw::CollectiveKind;

use crate::abi::*;
use crate::calls::{counts, give, list};
use crate::collective::{Call, Side, Verb};
use crate::communicator::Comm;
use crate::datatype::{Elements, hold};
use crate::error::{Outcome, on};
use crate::handle::{Object, resolve};
use crate::operation::{Op, Operator};
use crate::request::Request;

fn is_in_place(buffer: *const c_void) -> bool {
    buffer.addr() == MPI_IN_PLACE
}

fn moving(kind: CollectiveKind, send: Side, receive: Side, root: c_int, varies: bool) -> Call {
    Call { verb: Verb::Move(kind), send, receive, root, varies, operation: None }
}

/// Whether this rank is the root, or one of its group between groups.
fn is_root(comm: &Comm, root: c_int) -> bool {
    if comm.is_inter { root == MPI_ROOT } else { root == comm.rank as c_int }
}

/// Whether the root's buffer alone counts here, and whether no buffer does.
fn is_bystander(comm: &Comm, root: c_int) -> bool {
    comm.is_inter && root == MPI_PROC_NULL
}

fn check_root(comm: &Comm, root: c_int) -> Outcome {
    if comm.is_inter && (root == MPI_ROOT || root == MPI_PROC_NULL) { Ok(()) } else { comm.root(root).map(|_| ()) }
}

/// One block.
unsafe fn one(buffer: *const c_void, count: i64, datatype: MPI_Datatype) -> Outcome<Side> {
    // SAFETY: the contract of this module.
    unsafe { blocks(buffer, count, datatype, 1) }
}

/// Equal blocks.
unsafe fn blocks(buffer: *const c_void, count: i64, datatype: MPI_Datatype, number: u32) -> Outcome<Side> {
    if is_in_place(buffer) {
        return Err(MPI_ERR_BUFFER);
    }
    // SAFETY: the contract of this module.
    Ok(Side::Equal(unsafe { Elements::new(buffer.cast(), count, datatype) }?, number as usize))
}

/// Blocks of their own, of one datatype.
unsafe fn varying<C: Count, D: Count>(
    buffer: *const c_void,
    of: *const C,
    displacements: *const D,
    datatype: MPI_Datatype,
    number: u32,
) -> Outcome<Side> {
    // SAFETY: the contract of this module.
    unsafe {
        if is_in_place(buffer) {
            return Err(MPI_ERR_BUFFER);
        }
        let (of, displacements) = (counts(of, number.into())?, counts(displacements, number.into())?);
        let extent = if number > 0 { resolve::<crate::datatype::Datatype>(datatype.0)?.extent } else { 0 };
        let block = |(count, at): (&i64, &i64)| {
            let start = buffer.cast::<u8>().wrapping_offset((at * extent) as isize);
            Elements::new(if *count == 0 { buffer.cast() } else { start }, *count, datatype)
        };
        Ok(Side::Varying(of.iter().zip(&displacements).map(block).collect::<Outcome<_>>()?))
    }
}

/// Blocks of their own datatypes, at displacements in bytes.
unsafe fn typed<C: Count, D: Count>(
    buffer: *const c_void,
    of: *const C,
    displacements: *const D,
    types: *const MPI_Datatype,
    number: u32,
) -> Outcome<Side> {
    // SAFETY: the contract of this module.
    unsafe {
        if is_in_place(buffer) {
            return Err(MPI_ERR_BUFFER);
        }
        let (of, displacements) = (counts(of, number.into())?, counts(displacements, number.into())?);
        let types = list(types, number.into())?;
        let block = |((count, at), datatype): ((&i64, &i64), &MPI_Datatype)| {
            if *count == 0 {
                return Ok(Elements::none());
            }
            Elements::new(buffer.cast::<u8>().wrapping_offset(*at as isize), *count, *datatype)
        };
        Ok(Side::Varying(of.iter().zip(&displacements).zip(types).map(block).collect::<Outcome<_>>()?))
    }
}

/// Blocks of a reduce-scatter, which follow each other.
unsafe fn following<C: Count>(
    buffer: *const c_void,
    of: *const C,
    datatype: MPI_Datatype,
    number: u32,
) -> Outcome<Side> {
    // SAFETY: the contract of this module.
    unsafe {
        let of = counts(of, number.into())?;
        let mut all = Vec::with_capacity(of.len());
        let first = Elements::new(buffer.cast(), 0, datatype)?;
        let mut at = 0;
        for count in of {
            let block = Elements::new(buffer.cast(), count, datatype)?;
            all.push(Elements { start: first.start.wrapping_add_signed(at * block.extent), ..block });
            at += count as isize;
        }
        Ok(Side::Varying(all))
    }
}

unsafe fn reducing(
    kind: CollectiveKind,
    (send, receive): (Side, Side),
    datatype: MPI_Datatype,
    op: MPI_Op,
    root: c_int,
) -> Outcome<Call> {
    // SAFETY: the contract of this module.
    unsafe {
        let (operation, datatype) = (resolve::<Op>(op.0)?.hold(), hold(datatype)?);
        // An operation that is not defined for the type is an error of the argument, where the argument counts.
        if root != MPI_PROC_NULL {
            Operator::new(&operation, &datatype)?;
        }
        let verb = Verb::Combine(kind);
        Ok(Call { verb, send, receive, root, varies: false, operation: Some((operation, datatype)) })
    }
}

/// What is sent in a collective whose data may be in place.
unsafe fn or_in_place(comm: &Comm, buffer: *const c_void, side: impl FnOnce() -> Outcome<Side>) -> Outcome<Side> {
    match (is_in_place(buffer), comm.is_inter) {
        (true, true) => Err(MPI_ERR_BUFFER),
        (true, false) => Ok(Side::InPlace),
        _ => side(),
    }
}

macro_rules! collectives {
    ($(
        fn $blocking:ident fn $immediate:ident fn $persistent:ident ($($count:ident),*)
        ($($name:ident: $kind:ty),*) |$comm:ident| $call:expr;
    )*) => { $(
        pub(crate) unsafe fn $blocking<$($count: Count),*>($($name: $kind,)* comm: MPI_Comm) -> c_int {
            // SAFETY: the contract of this module.
            unsafe {
                on(comm, |$comm| {
                    let call: Outcome<Call> = $call;
                    call?.plan($comm)?.run($comm)
                })
            }
        }

        pub(crate) unsafe fn $immediate<$($count: Count),*>($($name: $kind,)* comm: MPI_Comm, request: *mut MPI_Request) -> c_int {
            // SAFETY: the contract of this module.
            unsafe {
                on(comm, |$comm| {
                    let call: Outcome<Call> = $call;
                    let activity = call?.plan($comm)?.begin($comm)?;
                    give(request, Request::handle($comm, activity))
                })
            }
        }

        pub(crate) unsafe fn $persistent<$($count: Count),*>($($name: $kind,)* comm: MPI_Comm, _: MPI_Info, request: *mut MPI_Request) -> c_int {
            // SAFETY: the contract of this module.
            unsafe {
                on(comm, |$comm| {
                    let call: Outcome<Call> = $call;
                    let (call, held) = (call?, $comm.hold());
                    let start = move || call.plan(&held)?.begin(&held);
                    let made = Request::persistent($comm.hold(), Box::new(start));
                    give(request, MPI_Request(Object::into_handle(made)))
                })
            }
        }
    )* };
}

collectives! {
    fn barrier fn ibarrier fn barrier_init () () |comm| {
        let _ = comm;
        Ok(moving(CollectiveKind::Barrier, Side::Unused, Side::Unused, 0, false))
    };
    fn bcast fn ibcast fn bcast_init (C)
    (buffer: *mut c_void, count: C, datatype: MPI_Datatype, root: c_int) |comm| {
        check_root(comm, root).and_then(|()| {
            let data = if is_bystander(comm, root) { Side::Unused } else { one(buffer, count.get(), datatype)? };
            Ok(moving(CollectiveKind::Broadcast, Side::Unused, data, root, false))
        })
    };
    fn gather fn igather fn gather_init (C)
    (send: *const c_void, send_count: C, send_type: MPI_Datatype,
     receive: *mut c_void, receive_count: C, receive_type: MPI_Datatype, root: c_int) |comm| {
        check_root(comm, root).and_then(|()| {
            let is_root = is_root(comm, root);
            let sent = match (is_root, comm.is_inter) {
                (true, true) => Side::Unused,
                _ if is_bystander(comm, root) => Side::Unused,
                (true, false) => or_in_place(comm, send, || one(send, send_count.get(), send_type))?,
                _ => one(send, send_count.get(), send_type)?,
            };
            let received = if is_root {
                blocks(receive, receive_count.get(), receive_type, comm.remote.size)?
            } else {
                Side::Unused
            };
            Ok(moving(CollectiveKind::Gather, sent, received, root, false))
        })
    };
    fn gatherv fn igatherv fn gatherv_init (C, D)
    (send: *const c_void, send_count: C, send_type: MPI_Datatype, receive: *mut c_void,
     receive_counts: *const C, displacements: *const D, receive_type: MPI_Datatype, root: c_int) |comm| {
        check_root(comm, root).and_then(|()| {
            let is_root = is_root(comm, root);
            let sent = match (is_root, comm.is_inter) {
                (true, true) => Side::Unused,
                _ if is_bystander(comm, root) => Side::Unused,
                (true, false) => or_in_place(comm, send, || one(send, send_count.get(), send_type))?,
                _ => one(send, send_count.get(), send_type)?,
            };
            let received = if is_root {
                varying(receive, receive_counts, displacements, receive_type, comm.remote.size)?
            } else {
                Side::Unused
            };
            Ok(moving(CollectiveKind::Gather, sent, received, root, true))
        })
    };
    fn scatter fn iscatter fn scatter_init (C)
    (send: *const c_void, send_count: C, send_type: MPI_Datatype,
     receive: *mut c_void, receive_count: C, receive_type: MPI_Datatype, root: c_int) |comm| {
        check_root(comm, root).and_then(|()| {
            let is_root = is_root(comm, root);
            let sent = if is_root {
                blocks(send, send_count.get(), send_type, comm.remote.size)?
            } else {
                Side::Unused
            };
            let received = match (is_root, comm.is_inter) {
                (true, true) => Side::Unused,
                _ if is_bystander(comm, root) => Side::Unused,
                (true, false) => or_in_place(comm, receive, || one(receive, receive_count.get(), receive_type))?,
                _ => one(receive, receive_count.get(), receive_type)?,
            };
            Ok(moving(CollectiveKind::Scatter, sent, received, root, false))
        })
    };
    fn scatterv fn iscatterv fn scatterv_init (C, D)
    (send: *const c_void, send_counts: *const C, displacements: *const D, send_type: MPI_Datatype,
     receive: *mut c_void, receive_count: C, receive_type: MPI_Datatype, root: c_int) |comm| {
        check_root(comm, root).and_then(|()| {
            let is_root = is_root(comm, root);
            let sent = if is_root {
                varying(send, send_counts, displacements, send_type, comm.remote.size)?
            } else {
                Side::Unused
            };
            let received = match (is_root, comm.is_inter) {
                (true, true) => Side::Unused,
                _ if is_bystander(comm, root) => Side::Unused,
                (true, false) => or_in_place(comm, receive, || one(receive, receive_count.get(), receive_type))?,
                _ => one(receive, receive_count.get(), receive_type)?,
            };
            Ok(moving(CollectiveKind::Scatter, sent, received, root, true))
        })
    };
    fn allgather fn iallgather fn allgather_init (C)
    (send: *const c_void, send_count: C, send_type: MPI_Datatype,
     receive: *mut c_void, receive_count: C, receive_type: MPI_Datatype) |comm| {
        or_in_place(comm, send, || one(send, send_count.get(), send_type)).and_then(|sent| {
            let received = blocks(receive, receive_count.get(), receive_type, comm.remote.size)?;
            Ok(moving(CollectiveKind::Allgather, sent, received, 0, false))
        })
    };
    fn allgatherv fn iallgatherv fn allgatherv_init (C, D)
    (send: *const c_void, send_count: C, send_type: MPI_Datatype, receive: *mut c_void,
     receive_counts: *const C, displacements: *const D, receive_type: MPI_Datatype) |comm| {
        or_in_place(comm, send, || one(send, send_count.get(), send_type)).and_then(|sent| {
            let received = varying(receive, receive_counts, displacements, receive_type, comm.remote.size)?;
            Ok(moving(CollectiveKind::Allgather, sent, received, 0, true))
        })
    };
    fn alltoall fn ialltoall fn alltoall_init (C)
    (send: *const c_void, send_count: C, send_type: MPI_Datatype,
     receive: *mut c_void, receive_count: C, receive_type: MPI_Datatype) |comm| {
        or_in_place(comm, send, || blocks(send, send_count.get(), send_type, comm.remote.size)).and_then(|sent| {
            let received = blocks(receive, receive_count.get(), receive_type, comm.remote.size)?;
            Ok(moving(CollectiveKind::Alltoall, sent, received, 0, false))
        })
    };
    fn alltoallv fn ialltoallv fn alltoallv_init (C, D)
    (send: *const c_void, send_counts: *const C, send_at: *const D, send_type: MPI_Datatype,
     receive: *mut c_void, receive_counts: *const C, receive_at: *const D, receive_type: MPI_Datatype) |comm| {
        or_in_place(comm, send, || varying(send, send_counts, send_at, send_type, comm.remote.size)).and_then(|sent| {
            let received = varying(receive, receive_counts, receive_at, receive_type, comm.remote.size)?;
            Ok(moving(CollectiveKind::Alltoall, sent, received, 0, true))
        })
    };
    fn alltoallw fn ialltoallw fn alltoallw_init (C, D)
    (send: *const c_void, send_counts: *const C, send_at: *const D, send_types: *const MPI_Datatype,
     receive: *mut c_void, receive_counts: *const C, receive_at: *const D,
     receive_types: *const MPI_Datatype) |comm| {
        or_in_place(comm, send, || typed(send, send_counts, send_at, send_types, comm.remote.size)).and_then(|sent| {
            let received = typed(receive, receive_counts, receive_at, receive_types, comm.remote.size)?;
            Ok(moving(CollectiveKind::Alltoall, sent, received, 0, true))
        })
    };
    fn reduce fn ireduce fn reduce_init (C)
    (send: *const c_void, receive: *mut c_void, count: C, datatype: MPI_Datatype, op: MPI_Op, root: c_int) |comm| {
        check_root(comm, root).and_then(|()| {
            let is_root = is_root(comm, root);
            let sent = match (is_root, comm.is_inter) {
                (true, true) => Side::Unused,
                _ if is_bystander(comm, root) => Side::Unused,
                (true, false) => or_in_place(comm, send, || one(send, count.get(), datatype))?,
                _ => one(send, count.get(), datatype)?,
            };
            let received = if is_root { one(receive, count.get(), datatype)? } else { Side::Unused };
            reducing(CollectiveKind::Reduce, (sent, received), datatype, op, root)
        })
    };
    fn allreduce fn iallreduce fn allreduce_init (C)
    (send: *const c_void, receive: *mut c_void, count: C, datatype: MPI_Datatype, op: MPI_Op) |comm| {
        or_in_place(comm, send, || one(send, count.get(), datatype)).and_then(|sent| {
            let received = one(receive, count.get(), datatype)?;
            reducing(CollectiveKind::Allreduce, (sent, received), datatype, op, 0)
        })
    };
    fn reduce_scatter_block fn ireduce_scatter_block fn reduce_scatter_block_init (C)
    (send: *const c_void, receive: *mut c_void, count: C, datatype: MPI_Datatype, op: MPI_Op) |comm| {
        or_in_place(comm, send, || blocks(send, count.get(), datatype, comm.size)).and_then(|sent| {
            let received = blocks(receive, count.get(), datatype, comm.size)?;
            reducing(CollectiveKind::ReduceScatter, (sent, received), datatype, op, 0)
        })
    };
    fn reduce_scatter fn ireduce_scatter fn reduce_scatter_init (C)
    (send: *const c_void, receive: *mut c_void, lengths: *const C, datatype: MPI_Datatype, op: MPI_Op) |comm| {
        or_in_place(comm, send, || {
            let total = counts(lengths, comm.size.into())?.iter().sum();
            one(send, total, datatype)
        }).and_then(|sent| {
            let received = following(receive, lengths, datatype, comm.size)?;
            reducing(CollectiveKind::ReduceScatter, (sent, received), datatype, op, 0)
        })
    };
    fn scan fn iscan fn scan_init (C)
    (send: *const c_void, receive: *mut c_void, count: C, datatype: MPI_Datatype, op: MPI_Op) |comm| {
        intra(comm).and_then(|()| {
            let sent = or_in_place(comm, send, || one(send, count.get(), datatype))?;
            let received = one(receive, count.get(), datatype)?;
            reducing(CollectiveKind::Scan, (sent, received), datatype, op, 0)
        })
    };
    fn exscan fn iexscan fn exscan_init (C)
    (send: *const c_void, receive: *mut c_void, count: C, datatype: MPI_Datatype, op: MPI_Op) |comm| {
        intra(comm).and_then(|()| {
            let sent = or_in_place(comm, send, || one(send, count.get(), datatype))?;
            let received = one(receive, count.get(), datatype)?;
            reducing(CollectiveKind::Exscan, (sent, received), datatype, op, 0)
        })
    };
    fn neighbor_allgather fn ineighbor_allgather fn neighbor_allgather_init (C)
    (send: *const c_void, send_count: C, send_type: MPI_Datatype,
     receive: *mut c_void, receive_count: C, receive_type: MPI_Datatype) |comm| {
        degrees(comm).and_then(|(sources, _)| {
            let sent = one(send, send_count.get(), send_type)?;
            let received = blocks(receive, receive_count.get(), receive_type, sources)?;
            Ok(among_neighbours(sent, received))
        })
    };
    fn neighbor_allgatherv fn ineighbor_allgatherv fn neighbor_allgatherv_init (C, D)
    (send: *const c_void, send_count: C, send_type: MPI_Datatype, receive: *mut c_void,
     receive_counts: *const C, displacements: *const D, receive_type: MPI_Datatype) |comm| {
        degrees(comm).and_then(|(sources, _)| {
            let sent = one(send, send_count.get(), send_type)?;
            let received = varying(receive, receive_counts, displacements, receive_type, sources)?;
            Ok(among_neighbours(sent, received))
        })
    };
    fn neighbor_alltoall fn ineighbor_alltoall fn neighbor_alltoall_init (C)
    (send: *const c_void, send_count: C, send_type: MPI_Datatype,
     receive: *mut c_void, receive_count: C, receive_type: MPI_Datatype) |comm| {
        degrees(comm).and_then(|(sources, destinations)| {
            let sent = each(blocks(send, send_count.get(), send_type, destinations)?);
            let received = blocks(receive, receive_count.get(), receive_type, sources)?;
            Ok(among_neighbours(sent, received))
        })
    };
    fn neighbor_alltoallv fn ineighbor_alltoallv fn neighbor_alltoallv_init (C, D)
    (send: *const c_void, send_counts: *const C, send_at: *const D, send_type: MPI_Datatype,
     receive: *mut c_void, receive_counts: *const C, receive_at: *const D, receive_type: MPI_Datatype) |comm| {
        degrees(comm).and_then(|(sources, destinations)| {
            let sent = varying(send, send_counts, send_at, send_type, destinations)?;
            let received = varying(receive, receive_counts, receive_at, receive_type, sources)?;
            Ok(among_neighbours(sent, received))
        })
    };
    fn neighbor_alltoallw fn ineighbor_alltoallw fn neighbor_alltoallw_init (C, D)
    (send: *const c_void, send_counts: *const C, send_at: *const D, send_types: *const MPI_Datatype,
     receive: *mut c_void, receive_counts: *const C, receive_at: *const D,
     receive_types: *const MPI_Datatype) |comm| {
        degrees(comm).and_then(|(sources, destinations)| {
            let sent = typed(send, send_counts, send_at, send_types, destinations)?;
            let received = typed(receive, receive_counts, receive_at, receive_types, sources)?;
            Ok(among_neighbours(sent, received))
        })
    };
}

const fn intra(comm: &Comm) -> Outcome {
    if comm.is_inter { Err(MPI_ERR_COMM) } else { Ok(()) }
}

/// Numbers of neighbours that send, and that receive.
fn degrees(comm: &Comm) -> Outcome<(u32, u32)> {
    let (sources, destinations) = comm.topology.as_ref().ok_or(MPI_ERR_TOPOLOGY)?.neighbours(comm.rank as c_int);
    Ok((sources.len() as u32, destinations.len() as u32))
}

const fn among_neighbours(send: Side, receive: Side) -> Call {
    Call { verb: Verb::Neighbours, send, receive, root: 0, varies: false, operation: None }
}

/// Blocks one by one, so that a single one is not taken for one that all neighbours get.
fn each(side: Side) -> Side {
    match side {
        Side::Equal(elements, number) => {
            Side::Varying((0..number as i64).map(|at| elements.at(at * elements.count)).collect())
        }
        side => side,
    }
}
