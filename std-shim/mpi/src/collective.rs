//! Collectives: from the arguments of a call to a collective of the library, or to messages where the library has none
//! (neighbourhoods, intercommunicators), and what follows at its end.

mod messages;
mod reduction;

use core::ptr::NonNull;

use unisono::Rank;
use unisono::raw::{CollectiveKind, NoReduction, Order, RawBlocks, RawCollective};

use crate::abi::*;
use crate::communicator::Comm;
use crate::datatype::{Datatype, Elements};
use crate::error::{Outcome, class_of_collective};
use crate::handle::{Held, Object};
use crate::operation::Operator;
use crate::request::{Activity, Finish};

pub use messages::Messages;

/// One of a call's buffers.
#[derive(Clone)]
pub enum Side {
    /// Not significant at this rank.
    Unused,
    /// `MPI_IN_PLACE`.
    InPlace,
    /// As many equal blocks, one after the other.
    Equal(Elements, usize),
    /// Blocks of their own.
    Varying(Vec<Elements>),
}

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// A collective that moves data.
    Move(CollectiveKind),
    /// A collective that combines data.
    Combine(CollectiveKind),
    /// An exchange with neighbours.
    Neighbours,
}

/// A call.
#[derive(Clone)]
pub struct Call {
    /// What is called.
    pub verb: Verb,
    /// What is sent.
    pub send: Side,
    /// What is received.
    pub receive: Side,
    /// The root as the program named it, or 0.
    pub root: i32,
    /// Whether blocks have lengths of their own, which is equal on all ranks.
    pub varies: bool,
    /// The operation, with the datatype.
    pub operation: Option<(Held<crate::operation::Op>, Held<Datatype>)>,
}

/// A prepared call.
pub enum Plan {
    /// A collective of the library, what combines, and what follows.
    Library(RawCollective, Option<Operator>, Option<Finish>),
    /// Messages.
    Messages(Messages),
    /// Nothing is left to be done.
    Done,
}

/// Memory for a call, kept until it has ended.
struct Memory {
    bytes: NonNull<[u8]>,
    kept: Vec<u8>,
    blocks: Option<RawBlocks>,
}

fn empty() -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(NonNull::dangling(), 0)
}

fn owned(mut kept: Vec<u8>) -> (NonNull<[u8]>, Vec<u8>) {
    let bytes = NonNull::from(kept.as_mut_slice());
    (bytes, kept)
}

impl Side {
    /// Bytes of one block; of blocks of their own, of the one with this number.
    pub fn block_bytes(&self, number: usize) -> usize {
        match self {
            Self::Unused | Self::InPlace => 0,
            Self::Equal(elements, _) => elements.bytes,
            Self::Varying(all) => all.get(number).map_or(0, |elements| elements.bytes),
        }
    }

    /// The blocks.
    pub fn block(&self, number: usize) -> Elements {
        match self {
            Self::Unused | Self::InPlace => Elements::none(),
            Self::Equal(elements, _) => elements.at(number as i64 * elements.count),
            Self::Varying(all) => all.get(number).cloned().unwrap_or(Elements::none()),
        }
    }

    fn whole(elements: &Elements, blocks: usize) -> Elements {
        Elements { count: elements.count * blocks as i64, bytes: elements.bytes * blocks, ..elements.clone() }
    }

    /// The memory that is sent.
    fn input(&self) -> Memory {
        match self {
            Self::Unused | Self::InPlace => Memory { bytes: empty(), kept: Vec::new(), blocks: None },
            Self::Equal(elements, blocks) => {
                let all = Self::whole(elements, *blocks);
                match all.dense() {
                    Some(bytes) => Memory { bytes, kept: Vec::new(), blocks: None },
                    None => {
                        // SAFETY: the program promises that it is readable.
                        let (bytes, kept) = owned(unsafe { all.packed() });
                        Memory { bytes, kept, blocks: None }
                    }
                }
            }
            Self::Varying(all) => match span(all) {
                Some((bytes, blocks)) => Memory { bytes, kept: Vec::new(), blocks: Some(blocks) },
                None => {
                    let blocks = packed_blocks(all);
                    let mut kept = vec![0; blocks.bytes.iter().sum()];
                    for (elements, (at, bytes)) in all.iter().zip(blocks.at.iter().zip(&blocks.bytes)) {
                        // SAFETY: the program promises that it is readable.
                        unsafe { elements.pack(kept.get_mut(*at..at + bytes).unwrap_or_default()) };
                    }
                    let (bytes, kept) = owned(kept);
                    Memory { bytes, kept, blocks: Some(blocks) }
                }
            },
        }
    }

    /// The memory that is received into, and whether it must be copied to the blocks at the end.
    fn output(&self) -> (Memory, bool) {
        match self {
            Self::Unused | Self::InPlace => (Memory { bytes: empty(), kept: Vec::new(), blocks: None }, false),
            Self::Equal(elements, blocks) => {
                let all = Self::whole(elements, *blocks);
                match all.dense() {
                    Some(bytes) => (Memory { bytes, kept: Vec::new(), blocks: None }, false),
                    None => {
                        // What is not received stays as it is.
                        // SAFETY: the program promises that it is readable.
                        let (bytes, kept) = owned(unsafe { all.packed() });
                        (Memory { bytes, kept, blocks: None }, true)
                    }
                }
            }
            Self::Varying(all) => match span(all) {
                Some((bytes, blocks)) => (Memory { bytes, kept: Vec::new(), blocks: Some(blocks) }, false),
                None => {
                    let blocks = packed_blocks(all);
                    let (bytes, kept) = owned(vec![0; blocks.bytes.iter().sum()]);
                    (Memory { bytes, kept, blocks: Some(blocks) }, true)
                }
            },
        }
    }

    /// Copies received bytes to the blocks.
    fn scatter(&self, kept: &[u8], blocks: Option<&RawBlocks>) {
        match (self, blocks) {
            (Self::Equal(elements, count), _) => {
                // SAFETY: the program promised that it is writable until the end.
                unsafe { Self::whole(elements, *count).unpack(kept) };
            }
            (Self::Varying(all), Some(blocks)) => {
                for (elements, (at, bytes)) in all.iter().zip(blocks.at.iter().zip(&blocks.bytes)) {
                    // SAFETY: the program promised that it is writable until the end.
                    unsafe { elements.unpack(kept.get(*at..at + bytes).unwrap_or_default()) };
                }
            }
            _ => {}
        }
    }
}

/// One piece of memory that has all blocks, if none has gaps.
fn span(all: &[Elements]) -> Option<(NonNull<[u8]>, RawBlocks)> {
    if all.iter().any(|elements| elements.datatype.is_some()) {
        return None;
    }
    let used = || all.iter().filter(|elements| elements.bytes > 0);
    let first = used().map(|elements| elements.start).min().unwrap_or(1);
    let end = used().map(|elements| elements.start + elements.bytes).max().unwrap_or(first);
    let start = core::ptr::with_exposed_provenance_mut::<u8>(first);
    let bytes = NonNull::slice_from_raw_parts(NonNull::new(start)?, end - first);
    let at = |elements: &Elements| if elements.bytes > 0 { elements.start - first } else { 0 };
    let blocks =
        RawBlocks { bytes: all.iter().map(|elements| elements.bytes).collect(), at: all.iter().map(at).collect() };
    Some((bytes, blocks))
}

fn packed_blocks(all: &[Elements]) -> RawBlocks {
    let bytes: Vec<usize> = all.iter().map(|elements| elements.bytes).collect();
    let at = bytes.iter().scan(0, |sum, bytes| {
        let at = *sum;
        *sum += bytes;
        Some(at)
    });
    RawBlocks { at: at.collect(), bytes: bytes.clone() }
}

impl Call {
    /// Prepares the call.
    pub fn plan(&self, comm: &Object<Comm>) -> Outcome<Plan> {
        match self.verb {
            Verb::Neighbours => messages::neighbours(self, comm).map(Plan::Messages),
            _ if comm.is_inter => messages::between_groups(self, comm),
            Verb::Move(kind) => self.moving(kind, comm),
            Verb::Combine(kind) => reduction::plan(self, kind, comm),
        }
    }

    /// A collective of the library that moves data.
    fn moving(&self, kind: CollectiveKind, comm: &Object<Comm>) -> Outcome<Plan> {
        let (own, size) = (comm.rank as usize, comm.size as usize);
        let root = comm.root(self.root)?;
        let (mut send, mut receive) = (self.send.clone(), self.receive.clone());
        // In place, the own data are where they are received, or the other way round.
        let is_in_place = matches!(send, Side::InPlace) || matches!(receive, Side::InPlace);
        if is_in_place {
            match kind {
                CollectiveKind::Gather | CollectiveKind::Allgather => send = Side::Equal(receive.block(own), 1),
                CollectiveKind::Alltoall => send = receive.clone(),
                _ => receive = Side::Equal(send.block(own), 1),
            }
        }
        let (mut input, (mut output, mut copies)) = (send.input(), receive.output());
        if is_in_place && kind != CollectiveKind::Scatter && input.kept.is_empty() {
            // Input and output may not overlap.
            // SAFETY: the program promises that it is readable.
            let copy = unsafe { input.bytes.as_ref() }.to_vec();
            (input.bytes, input.kept) = owned(copy);
        }
        if is_in_place && kind == CollectiveKind::Scatter && !copies {
            let length = output.bytes.len();
            (output.bytes, output.kept) = owned(vec![0; length]);
            copies = false;
        }
        let varies = self.varies;
        let single = match kind {
            CollectiveKind::Scatter => receive.block_bytes(own),
            CollectiveKind::Broadcast => receive.block_bytes(0),
            CollectiveKind::Alltoall if varies => 0,
            CollectiveKind::Barrier => 0,
            _ => send.block_bytes(own),
        };
        let mean = |blocks: &Option<RawBlocks>| {
            blocks.as_ref().map_or(0, |blocks| blocks.bytes.iter().sum::<usize>() / size.max(1))
        };
        let (bytes, blocks) = match kind {
            CollectiveKind::Allgather if varies => (mean(&output.blocks), true),
            _ if varies => (0, true),
            _ => (single, false),
        };
        let call = RawCollective {
            collective: kind,
            root: Rank(root),
            bytes,
            input: input.bytes,
            output: output.bytes,
            in_place: matches!(kind, CollectiveKind::Broadcast | CollectiveKind::Barrier),
            blocks: blocks.then(|| (input.blocks.take(), output.blocks.clone(), single)),
            grain: 1,
            order: Order::Any,
            reduction_id: 1,
        };
        let finish: Option<Finish> = if input.kept.is_empty() && output.kept.is_empty() {
            None
        } else {
            let (sent, kept, blocks) = (input.kept, output.kept, output.blocks);
            Some(Box::new(move || {
                drop(sent);
                if copies {
                    receive.scatter(&kept, blocks.as_ref());
                }
                Ok(())
            }))
        };
        Ok(Plan::Library(call, None, finish))
    }
}

impl Plan {
    /// Runs the call to its end.
    pub fn run(self, comm: &Object<Comm>) -> Outcome {
        match self {
            Self::Library(call, operator, finish) => {
                let library = comm.library();
                let ended = match operator {
                    // SAFETY: the buffers are the program's, which promises them, or kept by `finish`.
                    Some(operator) => unsafe { library.raw_collective(call, operator) },
                    // SAFETY: this call's buffers are the program's, which promises them, or kept by `finish`.
                    None => unsafe { library.raw_collective(call, NoReduction) },
                };
                ended.map_err(class_of_collective)?;
                finish.map_or(Ok(()), |finish| finish())
            }
            Self::Messages(messages) => {
                let activity = messages.begin(comm)?;
                crate::request::Request::new(Some(comm.hold()), activity).wait().outcome
            }
            Self::Done => Ok(()),
        }
    }

    /// Starts the call.
    pub fn begin(self, comm: &Object<Comm>) -> Outcome<Activity> {
        match self {
            Self::Library(call, operator, finish) => {
                let library = comm.library();
                let begun = match operator {
                    // SAFETY: the buffers are the program's, which promises them until the end, or kept by `finish`.
                    Some(operator) => unsafe { library.raw_begin(call, operator) },
                    // SAFETY: this call's buffers are promised by the program until the end, or kept by `finish`.
                    None => unsafe { library.raw_begin(call, NoReduction) },
                };
                match begun.map_err(class_of_collective)? {
                    Some(begun) => Ok(Activity::Collective(begun, finish)),
                    None => {
                        let outcome = finish.map_or(Ok(()), |finish| finish());
                        Ok(Activity::Ended(outcome, MPI_Status::EMPTY))
                    }
                }
            }
            Self::Messages(messages) => messages.begin(comm),
            Self::Done => Ok(Activity::Ended(Ok(()), MPI_Status::EMPTY)),
        }
    }
}
