//! Exchanges: collectives in which each rank has a block for each rank, or for each of its neighbours.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::slice;

use unisono::collective::{TypedBlocks, TypedBlocksMut};
use unisono::{Datatype, Field};

use crate::collective::Form;
use crate::communicator::{Member, member, unisono_communicator};
use crate::datatype::{Buffer, datatype, first_byte, list, unisono_datatype};
use crate::request::Started;
use crate::result::unisono_result;
use crate::result::{Error, call};

/// A buffer with blocks of a datatype each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypedBuffer {
    pub(crate) start: *mut c_void,
    /// Elements of each block.
    pub(crate) counts: *const usize,
    /// Bytes from `start` to each block.
    pub(crate) offsets: *const isize,
    pub(crate) datatypes: *const unisono_datatype,
}

/// Memory with the blocks that lie in it.
struct Blocks {
    start: NonNull<u8>,
    bytes: usize,
    parts: Vec<(usize, isize, Datatype)>,
}

impl Blocks {
    fn fields(&self) -> Vec<Field<'_>> {
        self.parts.iter().map(|(count, offset, datatype)| Field { count: *count, offset: *offset, datatype }).collect()
    }

    /// # Safety
    /// The memory is readable, and not written as long as the result, and what is made of it, is used.
    unsafe fn read(&self) -> Result<TypedBlocks<'static, u8>, Error> {
        // SAFETY: the caller answers for it.
        let data = unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) };
        Ok(TypedBlocks::new(data, &self.fields())?)
    }

    /// # Safety
    /// The memory is writable and nobody else's as long as the result, and what is made of it, is used.
    unsafe fn write(&self) -> Result<TypedBlocksMut<'static, u8>, Error> {
        // SAFETY: the caller answers for it.
        let data = unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) };
        Ok(TypedBlocksMut::new(data, &self.fields())?)
    }
}

impl TypedBuffer {
    /// The blocks, and the memory from the first of their bytes on.
    ///
    /// # Safety
    /// The lists have `blocks` values or are NULL.
    unsafe fn blocks(self, blocks: usize) -> Result<Blocks, Error> {
        // SAFETY: the caller answers for the list.
        let counts = unsafe { list(self.counts, blocks, "counts") }?;
        // SAFETY: the caller answers for the list.
        let offsets = unsafe { list(self.offsets, blocks, "offsets") }?;
        // SAFETY: the caller answers for the list.
        let datatypes = unsafe { list(self.datatypes, blocks, "datatypes") }?;
        let part = |((count, offset), handle): ((&usize, &isize), &unisono_datatype)| {
            Ok((*count, *offset, datatype(*handle)?.datatype))
        };
        let parts: Vec<_> = counts.iter().zip(offsets).zip(datatypes).map(part).collect::<Result<_, Error>>()?;
        let mut all = Blocks { start: NonNull::dangling(), bytes: 0, parts };
        let whole = Datatype::structure(&all.fields())?;
        let (first, _) = whole.true_bounds();
        if whole.size() == 0 {
            all.parts.iter_mut().for_each(|(_, offset, _)| *offset = 0);
            return Ok(all);
        }
        let start = first_byte(self.start, &whole);
        all.start = start.ok_or_else(|| Error::argument("a buffer with blocks is NULL"))?;
        all.bytes = whole.true_extent();
        all.parts.iter_mut().for_each(|(_, offset, _)| *offset = offset.wrapping_sub(first));
        Ok(all)
    }
}

/// Between whom blocks are exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Partners {
    /// All ranks.
    Ranks,
    /// The neighbours of a grid or graph.
    Neighbours,
}

/// Exchanges blocks with a datatype each.
///
/// # Safety
/// The buffers, lists and the pointer in `form` are valid or NULL, the buffers until the collective has ended.
pub(crate) unsafe fn typed(
    communicator: unisono_communicator,
    partners: Partners,
    (send, receive): (TypedBuffer, TypedBuffer),
    form: Form,
) -> unisono_result {
    call(|| {
        form.check()?;
        let member = member(communicator)?;
        let (sources, destinations) = match partners {
            Partners::Ranks => [member.communicator().size() as usize; 2].into(),
            Partners::Neighbours => counts(&member)?,
        };
        // SAFETY: the caller answers for the lists.
        let sent = unsafe { send.blocks(destinations) }?;
        // SAFETY: the caller answers for the lists.
        let received = unsafe { receive.blocks(sources) }?;
        // SAFETY: the caller answers for the buffer.
        let into = unsafe { received.write() }?;
        let on = member.communicator();
        // SAFETY: what is started is recorded with its member, and dropped before it.
        let scope = unsafe { member.scope() };
        // SAFETY: a request on these neighbours is recorded with its member, and dropped before it.
        let neighbours = || unsafe { member.neighbourhood() };
        if matches!(form, Form::Persistent(_)) {
            // SAFETY: the caller answers for the buffer, which is only read.
            let data = unsafe { sent.write() }?;
            let prepared = match partners {
                Partners::Ranks => scope.persistent_all_to_all_w_into(data, into)?,
                Partners::Neighbours => scope.persistent_neighbour_all_to_all_w_into(neighbours()?, data, into)?,
            };
            // SAFETY: the caller answers for the pointer.
            return unsafe { form.finish(Started::PersistentExchange(prepared), member) };
        }
        // SAFETY: the caller answers for the buffer.
        let data = unsafe { sent.read() }?;
        let started = match (form, partners) {
            (Form::Blocking, Partners::Ranks) => return Ok(on.all_to_all_w_into(&data, into)?),
            (Form::Blocking, Partners::Neighbours) => {
                return Ok(neighbours()?.neighbour_all_to_all_w_into(&data, into)?);
            }
            (_, Partners::Ranks) => scope.immediate_all_to_all_w_into(&data, into)?,
            (_, Partners::Neighbours) => scope.immediate_neighbour_all_to_all_w_into(neighbours()?, &data, into)?,
        };
        // SAFETY: the caller answers for the pointer.
        unsafe { form.finish(Started::Exchange(started), member) }
    })
}

/// The numbers of neighbours that a rank receives from and sends to.
fn counts(member: &Member) -> Result<(usize, usize), Error> {
    // SAFETY: used during the call.
    let neighbours = unsafe { member.neighbourhood() }?;
    Ok((neighbours.sources().len(), neighbours.destinations().len()))
}

/// What each neighbour gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pattern {
    /// The same elements.
    AllGather,
    /// A block of its own.
    AllToAll,
}

/// Exchanges equal blocks with neighbours.
///
/// # Safety
/// The buffers and the pointer in `form` are valid or NULL, the buffers until the collective has ended.
pub(crate) unsafe fn equal(
    communicator: unisono_communicator,
    pattern: Pattern,
    (send, receive): (Buffer, Buffer),
    form: Form,
) -> unisono_result {
    call(|| {
        form.check()?;
        let member = member(communicator)?;
        // SAFETY: what is started is recorded with its member, and dropped before it.
        let neighbours = unsafe { member.neighbourhood() }?;
        // SAFETY: a request of this scope is recorded with its member, and dropped before it.
        let scope = unsafe { member.scope() };
        // SAFETY: the caller answers for the buffer.
        let into = unsafe { receive.equal_blocks() }?;
        // SAFETY: the caller answers for the buffer, which is only read.
        let data = unsafe { send.equal_blocks() }?;
        let started = match (form, pattern) {
            (Form::Blocking, Pattern::AllGather) => return Ok(neighbours.neighbour_all_gather_into(data, into)?),
            (Form::Blocking, Pattern::AllToAll) => return Ok(neighbours.neighbour_all_to_all_into(data, into)?),
            (Form::Immediate(_), Pattern::AllGather) => {
                Started::Exchange(scope.immediate_neighbour_all_gather_into(neighbours, data, into)?)
            }
            (Form::Immediate(_), Pattern::AllToAll) => {
                Started::Exchange(scope.immediate_neighbour_all_to_all_into(neighbours, data, into)?)
            }
            (Form::Persistent(_), Pattern::AllGather) => {
                Started::PersistentExchange(scope.persistent_neighbour_all_gather_into(neighbours, data, into)?)
            }
            (Form::Persistent(_), Pattern::AllToAll) => {
                Started::PersistentExchange(scope.persistent_neighbour_all_to_all_into(neighbours, data, into)?)
            }
        };
        // SAFETY: the caller answers for the pointer.
        unsafe { form.finish(started, member) }
    })
}
