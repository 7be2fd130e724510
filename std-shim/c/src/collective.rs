//! Collectives: their arguments, and the calls of the library.

use alloc::sync::Arc;
use core::ffi::c_void;
use core::slice;

use unisono::collective::{CollectiveError, Partition, PartitionMut, View, ViewMut};
use unisono::{Communicator, Rank};
use unisono_shmem::reduction_ops::Element;

use crate::communicator::{Member, member, unisono_communicator};
use crate::datatype::{BlockMemory, Buffer, check, datatype, list, store};
use crate::operation::{OnElements, operation, unisono_operation};
use crate::request::{Started, insert, unisono_request};
use crate::result::unisono_result;
use crate::result::{Error, call};

/// How a collective is called: until its end, or as a request that is stored here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Blocking,
    Immediate(*mut unisono_request),
    Persistent(*mut unisono_request),
}

/// The collectives that move equal blocks from one buffer to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Data {
    Gather,
    Scatter,
    AllGather,
    AllToAll,
    Reduce,
    AllReduce,
    ReduceScatterBlock,
    Scan,
    ExclusiveScan,
}

/// The collectives whose blocks differ in length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocks {
    Gather,
    Scatter,
    AllGather,
    AllToAll,
    ReduceScatter,
}

/// A buffer with a block for each rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockBuffer {
    /// Its count is not used.
    pub(crate) buffer: Buffer,
    pub(crate) counts: *const usize,
    pub(crate) displacements: *const usize,
}

/// The send buffer of a call in place.
fn is_in_place(start: *const c_void) -> bool {
    start.addr() == usize::MAX
}

/// A reference that a call of a scope wants for as long as the scope.
///
/// # Safety
/// The reference is not used after the call; what is made of the view refers to the memory that it describes.
unsafe fn during_call<'a, T>(view: &T) -> &'a T {
    // SAFETY: the caller promises not to use it longer than the view lives.
    unsafe { &*core::ptr::from_ref(view) }
}

/// As [`during_call`], exclusively.
///
/// # Safety
/// As of [`during_call`].
unsafe fn during_call_mut<'a, T>(view: &mut T) -> &'a mut T {
    // SAFETY: the caller promises not to use it longer than the view lives.
    unsafe { &mut *core::ptr::from_mut(view) }
}

impl Form {
    /// Checks where the request is to be stored.
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Blocking => Ok(()),
            Self::Immediate(request) | Self::Persistent(request) => check(request, "request"),
        }
    }

    /// Stores what was started.
    ///
    /// # Safety
    /// The caller of the exported function answers for the pointer.
    pub(crate) unsafe fn finish(self, started: Started, member: Arc<Member>) -> Result<(), Error> {
        match self {
            Self::Blocking => Ok(()),
            // SAFETY: the caller answers for the pointer.
            Self::Immediate(request) | Self::Persistent(request) => unsafe {
                store(request, "request", insert(started, member))
            },
        }
    }
}

/// Runs a barrier.
///
/// # Safety
/// The pointer in `form` is valid or NULL.
pub(crate) unsafe fn barrier(communicator: unisono_communicator, form: Form) -> unisono_result {
    call(|| {
        form.check()?;
        let member = member(communicator)?;
        // SAFETY: what is started is recorded with its member, and dropped before it.
        let scope = unsafe { member.scope() };
        let started = match form {
            Form::Blocking => return Ok(member.communicator().barrier()?),
            Form::Immediate(_) => Started::Collective(scope.immediate_barrier()?),
            Form::Persistent(_) => Started::Persistent(scope.persistent_barrier()?),
        };
        // SAFETY: the caller answers for the pointer.
        unsafe { form.finish(started, member) }
    })
}

/// Runs a broadcast.
///
/// # Safety
/// The buffer and the pointer in `form` are valid or NULL, until the collective has ended.
pub(crate) unsafe fn broadcast(
    communicator: unisono_communicator,
    buffer: Buffer,
    root: u32,
    form: Form,
) -> unisono_result {
    call(|| {
        form.check()?;
        let member = member(communicator)?;
        // SAFETY: the caller answers for the buffer.
        let (mut view, _) = unsafe { buffer.view_mut() }?;
        // SAFETY: what is started is recorded with its member, and dropped before it.
        let scope = unsafe { member.scope() };
        // SAFETY: used during the call.
        let data = unsafe { during_call_mut(&mut view) };
        let started = match form {
            Form::Blocking => return Ok(member.communicator().broadcast_into(data, Rank(root))?),
            Form::Immediate(_) => Started::Collective(scope.immediate_broadcast_into(data, Rank(root))?),
            Form::Persistent(_) => Started::Persistent(scope.persistent_broadcast_into(data, Rank(root))?),
        };
        // SAFETY: the caller answers for the pointer.
        unsafe { form.finish(started, member) }
    })
}

/// The operation of a reduction of these elements; of other collectives, one that is not used.
fn operation_on(
    data: Data,
    operation: unisono_operation,
    buffer: Buffer,
    element: Option<Element>,
) -> Result<OnElements, Error> {
    match data {
        Data::Gather | Data::Scatter | Data::AllGather | Data::AllToAll => {
            self::operation(crate::operation::UNISONO_SUM, 1, Some(Element::U8))
        }
        _ => self::operation(operation, datatype(buffer.datatype)?.datatype.size(), element),
    }
}

/// Runs a collective that moves equal blocks.
///
/// # Safety
/// The buffers and the pointer in `form` are valid or NULL, until the collective has ended.
pub(crate) unsafe fn data(
    communicator: unisono_communicator,
    data: Data,
    (send, receive): (Buffer, Buffer),
    operation: unisono_operation,
    root: u32,
    form: Form,
) -> unisono_result {
    call(|| {
        form.check()?;
        let member = member(communicator)?;
        let (rank, is_in_place) = (member.communicator().rank().0, is_in_place(send.start));
        // What the root alone uses.
        let receives = rank == root || is_in_place || !matches!(data, Data::Gather | Data::Reduce);
        let sends = !is_in_place && (rank == root || data != Data::Scatter);
        let none = (ViewMut::default(), None);
        // SAFETY: the caller answers for the buffer.
        let (mut receive_view, received) = if receives { unsafe { receive.view_mut() }? } else { none };
        let (on, root) = (member.communicator(), Rank(root));
        // SAFETY: used during the call.
        let receive_view = unsafe { during_call_mut(&mut receive_view) };
        // SAFETY: what is started is recorded with its member, and dropped before it.
        let scope = unsafe { member.scope() };
        let started = if is_in_place {
            let operation = operation_on(data, operation, receive, received)?;
            match form {
                Form::Blocking => return Ok(in_place(on, data, receive_view, operation, root)?),
                Form::Immediate(_) => {
                    Started::Collective(immediate_in_place(scope, data, receive_view, operation, root)?)
                }
                Form::Persistent(_) => {
                    Started::Persistent(persistent_in_place(scope, data, receive_view, operation, root)?)
                }
            }
        } else if let Form::Persistent(_) = form {
            let none = (ViewMut::default(), None);
            // SAFETY: the caller answers for the buffer, which is only read.
            let (mut send_view, sent) = if sends { unsafe { send.view_mut() }? } else { none };
            let operation = operation_on(data, operation, send, sent)?;
            // SAFETY: used during the call.
            let send_view = unsafe { during_call_mut(&mut send_view) };
            Started::Persistent(persistent(scope, data, send_view, receive_view, operation, root)?)
        } else {
            // SAFETY: the caller answers for the buffer.
            let (send_view, sent) = if sends { unsafe { send.view() }? } else { (View::default(), None) };
            let operation = operation_on(data, operation, send, sent)?;
            // SAFETY: used during the call.
            let send_view = unsafe { during_call(&send_view) };
            match form {
                Form::Blocking => return Ok(blocking(on, data, send_view, receive_view, operation, root)?),
                Form::Immediate(_) | Form::Persistent(_) => {
                    Started::Collective(immediate(scope, data, send_view, receive_view, operation, root)?)
                }
            }
        };
        // SAFETY: the caller answers for the pointer.
        unsafe { form.finish(started, member) }
    })
}

type Scope = &'static unisono::Scope<'static, 'static>;
type Immediate = Result<unisono::collective::CollectiveRequest<'static>, CollectiveError>;
type Persistent = Result<unisono::collective::PersistentRequest<'static, u8>, CollectiveError>;

fn blocking(
    on: &Communicator,
    data: Data,
    send: &View<'_, u8>,
    receive: &mut ViewMut<'_, u8>,
    operation: OnElements,
    root: Rank,
) -> Result<(), CollectiveError> {
    match data {
        Data::Gather => on.gather_into(send, receive, root),
        Data::Scatter => on.scatter_into(send, receive, root),
        Data::AllGather => on.all_gather_into(send, receive),
        Data::AllToAll => on.all_to_all_into(send, receive),
        Data::Reduce => on.reduce_into(send, receive, operation, root),
        Data::AllReduce => on.all_reduce_into(send, receive, operation),
        Data::ReduceScatterBlock => on.reduce_scatter_block_into(send, receive, operation),
        Data::Scan => on.scan_into(send, receive, operation),
        Data::ExclusiveScan => on.exclusive_scan_into(send, receive, operation),
    }
}

fn immediate(
    on: Scope,
    data: Data,
    send: &'static View<'static, u8>,
    receive: &'static mut ViewMut<'static, u8>,
    operation: OnElements,
    root: Rank,
) -> Immediate {
    match data {
        Data::Gather => on.immediate_gather_into(send, receive, root),
        Data::Scatter => on.immediate_scatter_into(send, receive, root),
        Data::AllGather => on.immediate_all_gather_into(send, receive),
        Data::AllToAll => on.immediate_all_to_all_into(send, receive),
        Data::Reduce => on.immediate_reduce_into(send, receive, operation, root),
        Data::AllReduce => on.immediate_all_reduce_into(send, receive, operation),
        Data::ReduceScatterBlock => on.immediate_reduce_scatter_block_into(send, receive, operation),
        Data::Scan => on.immediate_scan_into(send, receive, operation),
        Data::ExclusiveScan => on.immediate_exclusive_scan_into(send, receive, operation),
    }
}

fn persistent(
    on: Scope,
    data: Data,
    send: &'static mut ViewMut<'static, u8>,
    receive: &'static mut ViewMut<'static, u8>,
    operation: OnElements,
    root: Rank,
) -> Persistent {
    match data {
        Data::Gather => on.persistent_gather_into(send, receive, root),
        Data::Scatter => on.persistent_scatter_into(send, receive, root),
        Data::AllGather => on.persistent_all_gather_into(send, receive),
        Data::AllToAll => on.persistent_all_to_all_into(send, receive),
        Data::Reduce => on.persistent_reduce_into(send, receive, operation, root),
        Data::AllReduce => on.persistent_all_reduce_into(send, receive, operation),
        Data::ReduceScatterBlock => on.persistent_reduce_scatter_block_into(send, receive, operation),
        Data::Scan => on.persistent_scan_into(send, receive, operation),
        Data::ExclusiveScan => on.persistent_exclusive_scan_into(send, receive, operation),
    }
}

fn in_place(
    on: &Communicator,
    data: Data,
    receive: &mut ViewMut<'_, u8>,
    operation: OnElements,
    root: Rank,
) -> Result<(), CollectiveError> {
    match data {
        Data::Gather => on.gather_in_place(receive, root),
        Data::Scatter => on.scatter_in_place(receive, root),
        Data::AllGather => on.all_gather_in_place(receive),
        Data::AllToAll => on.all_to_all_in_place(receive),
        Data::Reduce => on.reduce_in_place(receive, operation, root),
        Data::AllReduce => on.all_reduce_in_place(receive, operation),
        Data::ReduceScatterBlock => on.reduce_scatter_block_in_place(receive, operation),
        Data::Scan => on.scan_in_place(receive, operation),
        Data::ExclusiveScan => on.exclusive_scan_in_place(receive, operation),
    }
}

fn immediate_in_place(
    on: Scope,
    data: Data,
    receive: &'static mut ViewMut<'static, u8>,
    operation: OnElements,
    root: Rank,
) -> Immediate {
    match data {
        Data::Gather => on.immediate_gather_in_place(receive, root),
        Data::Scatter => on.immediate_scatter_in_place(receive, root),
        Data::AllGather => on.immediate_all_gather_in_place(receive),
        Data::AllToAll => on.immediate_all_to_all_in_place(receive),
        Data::Reduce => on.immediate_reduce_in_place(receive, operation, root),
        Data::AllReduce => on.immediate_all_reduce_in_place(receive, operation),
        Data::ReduceScatterBlock => on.immediate_reduce_scatter_block_in_place(receive, operation),
        Data::Scan => on.immediate_scan_in_place(receive, operation),
        Data::ExclusiveScan => on.immediate_exclusive_scan_in_place(receive, operation),
    }
}

fn persistent_in_place(
    on: Scope,
    data: Data,
    receive: &'static mut ViewMut<'static, u8>,
    operation: OnElements,
    root: Rank,
) -> Persistent {
    match data {
        Data::Gather => on.persistent_gather_in_place(receive, root),
        Data::Scatter => on.persistent_scatter_in_place(receive, root),
        Data::AllGather => on.persistent_all_gather_in_place(receive),
        Data::AllToAll => on.persistent_all_to_all_in_place(receive),
        Data::Reduce => on.persistent_reduce_in_place(receive, operation, root),
        Data::AllReduce => on.persistent_all_reduce_in_place(receive, operation),
        Data::ReduceScatterBlock => on.persistent_reduce_scatter_block_in_place(receive, operation),
        Data::Scan => on.persistent_scan_in_place(receive, operation),
        Data::ExclusiveScan => on.persistent_exclusive_scan_in_place(receive, operation),
    }
}

impl BlockBuffer {
    /// The blocks, to be read.
    ///
    /// # Safety
    /// The lists and the buffer have what they describe, or are NULL.
    unsafe fn partition(self, ranks: usize) -> Result<(Partition<'static, u8>, Option<Element>), Error> {
        // SAFETY: the caller answers for the list.
        let counts = unsafe { list(self.counts, ranks, "counts") }?;
        // SAFETY: the caller answers for the list.
        let displacements = unsafe { list(self.displacements, ranks, "displacements") }?;
        let BlockMemory { start, bytes, counts, displacements, element } = self.buffer.blocks(counts, displacements)?;
        // SAFETY: the caller answers for the buffer.
        let data = unsafe { slice::from_raw_parts(start.as_ptr(), bytes) };
        Ok((Partition::new(data, &counts, &displacements)?, element))
    }

    /// The blocks, to be written.
    ///
    /// # Safety
    /// The lists and the buffer have what they describe, or are NULL; nobody else uses the buffer.
    unsafe fn partition_mut(self, ranks: usize) -> Result<(PartitionMut<'static, u8>, Option<Element>), Error> {
        // SAFETY: the caller answers for the list.
        let counts = unsafe { list(self.counts, ranks, "counts") }?;
        // SAFETY: the caller answers for the list.
        let displacements = unsafe { list(self.displacements, ranks, "displacements") }?;
        let BlockMemory { start, bytes, counts, displacements, element } = self.buffer.blocks(counts, displacements)?;
        // SAFETY: the caller answers for the buffer.
        let data = unsafe { slice::from_raw_parts_mut(start.as_ptr(), bytes) };
        Ok((PartitionMut::new(data, &counts, &displacements)?, element))
    }
}

/// The buffers of a collective whose blocks differ in length.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockBuffers {
    /// One block to one for each rank: gather and allgather.
    Collect(Buffer, BlockBuffer),
    /// One for each rank to one: scatter and reduce-scatter.
    Distribute(BlockBuffer, Buffer),
    /// One for each rank to one from each rank: alltoall.
    Exchange(BlockBuffer, BlockBuffer),
}

/// Runs a collective whose blocks differ in length.
///
/// # Safety
/// The buffers and the pointer in `form` are valid or NULL, until the collective has ended.
pub(crate) unsafe fn blocks(
    communicator: unisono_communicator,
    blocks: Blocks,
    buffers: BlockBuffers,
    operation: unisono_operation,
    root: u32,
    form: Form,
) -> unisono_result {
    call(|| {
        form.check()?;
        let member = member(communicator)?;
        let on = member.communicator();
        let (ranks, is_root, root) = (on.size() as usize, on.rank().0 == root, Rank(root));
        // SAFETY: what is started is recorded with its member, and dropped before it.
        let scope = unsafe { member.scope() };
        let persists = matches!(form, Form::Persistent(_));
        let started = match buffers {
            BlockBuffers::Collect(send, receive) => {
                let empty = || Ok::<_, Error>(PartitionMut::new(&mut [], &[], &[])?);
                let receives = is_root || blocks != Blocks::Gather;
                // SAFETY: the caller answers for the buffer.
                let into = if receives { unsafe { receive.partition_mut(ranks) }?.0 } else { empty()? };
                if persists {
                    // SAFETY: the caller answers for the buffer, which is only read.
                    let (mut view, _) = unsafe { send.view_mut() }?;
                    // SAFETY: used during the call.
                    let view = unsafe { during_call_mut(&mut view) };
                    Started::Persistent(match blocks {
                        Blocks::Gather => scope.persistent_gather_varcount_into(view, into, root)?,
                        _ => scope.persistent_all_gather_varcount_into(view, into)?,
                    })
                } else {
                    // SAFETY: the caller answers for the buffer.
                    let (view, _) = unsafe { send.view() }?;
                    // SAFETY: used during the call.
                    let view = unsafe { during_call(&view) };
                    match (form, blocks) {
                        (Form::Blocking, Blocks::Gather) => return Ok(on.gather_varcount_into(view, into, root)?),
                        (Form::Blocking, _) => return Ok(on.all_gather_varcount_into(view, into)?),
                        (_, Blocks::Gather) => {
                            Started::Collective(scope.immediate_gather_varcount_into(view, into, root)?)
                        }
                        _ => Started::Collective(scope.immediate_all_gather_varcount_into(view, into)?),
                    }
                }
            }
            BlockBuffers::Distribute(send, receive) => {
                let sends = is_root || blocks != Blocks::Scatter;
                // SAFETY: the caller answers for the buffer.
                let (mut view, element) = unsafe { receive.view_mut() }?;
                // SAFETY: used during the call.
                let view = unsafe { during_call_mut(&mut view) };
                let reduces = blocks == Blocks::ReduceScatter;
                let size = datatype(receive.datatype)?.datatype.size();
                let operation = if reduces {
                    self::operation(operation, size, element)?
                } else {
                    self::operation(crate::operation::UNISONO_SUM, 1, Some(Element::U8))?
                };
                if persists {
                    let empty = || Ok::<_, Error>(PartitionMut::new(&mut [], &[], &[])?);
                    // SAFETY: the caller answers for the buffer, which is only read.
                    let from = if sends { unsafe { send.partition_mut(ranks) }?.0 } else { empty()? };
                    Started::Persistent(if reduces {
                        scope.persistent_reduce_scatter_varcount_into(from, view, operation)?
                    } else {
                        scope.persistent_scatter_varcount_into(from, view, root)?
                    })
                } else {
                    let empty = || Ok::<_, Error>(Partition::new(&[], &[], &[])?);
                    // SAFETY: the caller answers for the buffer.
                    let from = if sends { unsafe { send.partition(ranks) }?.0 } else { empty()? };
                    // SAFETY: used during the call.
                    let from = unsafe { during_call(&from) };
                    match (form, reduces) {
                        (Form::Blocking, true) => {
                            return Ok(on.reduce_scatter_varcount_into(from, view, operation)?);
                        }
                        (Form::Blocking, false) => return Ok(on.scatter_varcount_into(from, view, root)?),
                        (_, true) => {
                            Started::Collective(scope.immediate_reduce_scatter_varcount_into(from, view, operation)?)
                        }
                        _ => Started::Collective(scope.immediate_scatter_varcount_into(from, view, root)?),
                    }
                }
            }
            BlockBuffers::Exchange(send, receive) => {
                // SAFETY: the caller answers for the buffer.
                let (into, _) = unsafe { receive.partition_mut(ranks) }?;
                if persists {
                    // SAFETY: the caller answers for the buffer, which is only read.
                    let (from, _) = unsafe { send.partition_mut(ranks) }?;
                    Started::Persistent(scope.persistent_all_to_all_varcount_into(from, into)?)
                } else {
                    // SAFETY: the caller answers for the buffer.
                    let (from, _) = unsafe { send.partition(ranks) }?;
                    // SAFETY: used during the call.
                    let from = unsafe { during_call(&from) };
                    match form {
                        Form::Blocking => return Ok(on.all_to_all_varcount_into(from, into)?),
                        _ => Started::Collective(scope.immediate_all_to_all_varcount_into(from, into)?),
                    }
                }
            }
        };
        // SAFETY: the caller answers for the pointer.
        unsafe { form.finish(started, member) }
    })
}
