//! Collectives by messages: exchanges with neighbours, and collectives between the groups of an intercommunicator. All
//! messages start at once, so that the call ends with them: where data are combined, the receiver does it at the end.

use core::ptr::NonNull;

use unisono::raw::{Channel, CollectiveKind, ElementType};
use unisono::{Rank, Tag};

use super::reduction::{all_of, operands, own_block};
use super::{Call, Plan, Side, Verb, empty, owned};
use crate::abi::*;
use crate::communicator::Comm;
use crate::datatype::Elements;
use crate::error::{Outcome, class_of_failure};
use crate::handle::Object;
use crate::operation::Operator;
use crate::request::{Activity, Finish, Part};

/// Messages of one call.
pub struct Messages {
    sends: Vec<(Rank, u32, NonNull<[u8]>)>,
    receives: Vec<(Rank, u32, NonNull<[u8]>)>,
    kept: Vec<Vec<u8>>,
    unpacked: Vec<(Vec<u8>, Elements)>,
    finish: Option<Finish>,
    tag: u32,
}

impl Messages {
    fn new(comm: &Comm) -> Self {
        let (sends, receives, kept, unpacked) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { sends, receives, kept, unpacked, finish: None, tag: comm.next_tag() }
    }

    fn send(&mut self, to: Rank, edge: u32, elements: &Elements) {
        let bytes = elements.dense().unwrap_or_else(|| {
            // SAFETY: the program promises that it is readable.
            let (bytes, kept) = owned(unsafe { elements.packed() });
            self.kept.push(kept);
            bytes
        });
        self.sends.push((to, edge, bytes));
    }

    fn receive(&mut self, from: Rank, edge: u32, elements: &Elements) {
        let bytes = elements.dense().unwrap_or_else(|| {
            let (bytes, kept) = owned(vec![0; elements.bytes]);
            self.unpacked.push((kept, elements.clone()));
            bytes
        });
        self.receives.push((from, edge, bytes));
    }

    /// Starts all messages.
    pub fn begin(self, comm: &Object<Comm>) -> Outcome<Activity> {
        let Self { sends, receives, kept, unpacked, finish, tag } = self;
        let library = comm.library();
        let mut parts = Vec::with_capacity(sends.len() + receives.len());
        for (from, edge, bytes) in receives {
            let tag = Some(Tag(tag | edge));
            // SAFETY: the program's memory, which it promises until the end, or kept by what follows.
            let request =
                unsafe { library.raw_receive((bytes, ElementType::Unknown), Some(from), tag, Channel::Internal) };
            parts.push(Part { request: request.map_err(class_of_failure)?, is_receive: true });
        }
        for (to, edge, bytes) in sends {
            // SAFETY: the program promises its memory until the end of the call; other memory is kept by what follows.
            let request = unsafe {
                library.raw_send((bytes, ElementType::Unknown), to, Tag(tag | edge), false, Channel::Internal)
            };
            if let (_, Some(request)) = request.map_err(class_of_failure)? {
                parts.push(Part { request, is_receive: false });
            }
        }
        let finish: Finish = Box::new(move || {
            drop(kept);
            for (bytes, elements) in &unpacked {
                // SAFETY: the program promised that it is writable until the end.
                unsafe { elements.unpack(bytes) };
            }
            finish.map_or(Ok(()), |finish| finish())
        });
        Ok(Activity::Messages(parts, Some(finish), false, None))
    }
}

/// An exchange with the neighbours of a topology.
pub(super) fn neighbours(call: &Call, comm: &Object<Comm>) -> Outcome<Messages> {
    let Some(topology) = comm.topology.as_ref() else { return Err(MPI_ERR_TOPOLOGY) };
    let (sources, destinations) = topology.neighbours(comm.rank as i32);
    let mut messages = Messages::new(comm);
    for (edge, source) in sources.iter().enumerate().filter(|(_, source)| **source >= 0) {
        messages.receive(comm.peer(*source)?, topology.edge_of_receive(edge), &call.receive.block(edge));
    }
    for (edge, destination) in destinations.iter().enumerate().filter(|(_, destination)| **destination >= 0) {
        let block = match &call.send {
            // An allgather sends one block to all.
            Side::Equal(elements, 1) => elements.clone(),
            side => side.block(edge),
        };
        messages.send(comm.peer(*destination)?, topology.edge_at_receiver(edge), &block);
    }
    Ok(messages)
}

/// A collective between two groups.
pub(super) fn between_groups(call: &Call, comm: &Object<Comm>) -> Outcome<Plan> {
    let all = || (0..comm.remote.size).map(|rank| (rank as usize, Rank(rank + comm.remote.base)));
    let mut messages = Messages::new(comm);
    let none = Elements::none();
    match call.verb {
        Verb::Move(CollectiveKind::Barrier) => {
            for (_, peer) in all() {
                messages.send(peer, 0, &none);
                messages.receive(peer, 0, &none);
            }
        }
        Verb::Move(kind @ (CollectiveKind::Broadcast | CollectiveKind::Gather | CollectiveKind::Scatter)) => {
            match call.root {
                MPI_PROC_NULL => return Ok(Plan::Done),
                MPI_ROOT => {
                    for (number, peer) in all() {
                        match kind {
                            CollectiveKind::Broadcast => messages.send(peer, 0, &call.receive.block(0)),
                            CollectiveKind::Scatter => messages.send(peer, 0, &call.send.block(number)),
                            _ => messages.receive(peer, 0, &call.receive.block(number)),
                        }
                    }
                }
                root => {
                    let root = comm.peer(root).map_err(|_| MPI_ERR_ROOT)?;
                    match kind {
                        CollectiveKind::Gather => messages.send(root, 0, &call.send.block(0)),
                        _ => messages.receive(root, 0, &call.receive.block(0)),
                    }
                }
            }
        }
        Verb::Move(kind) => {
            for (number, peer) in all() {
                let sent = if kind == CollectiveKind::Alltoall { call.send.block(number) } else { call.send.block(0) };
                messages.send(peer, 0, &sent);
                messages.receive(peer, 0, &call.receive.block(number));
            }
        }
        Verb::Combine(kind) => return combine(call, kind, comm, messages),
        Verb::Neighbours => return Err(MPI_ERR_COMM),
    }
    Ok(Plan::Messages(messages))
}

/// The data of the other group are combined.
fn combine(call: &Call, kind: CollectiveKind, comm: &Object<Comm>, mut messages: Messages) -> Outcome<Plan> {
    if kind == CollectiveKind::Reduce && call.root == MPI_PROC_NULL {
        // A rank of the root's group, whose other arguments mean nothing.
        return Ok(Plan::Done);
    }
    let Some((operation, datatype)) = &call.operation else { return Err(MPI_ERR_OP) };
    let mut operator = Operator::new(operation, datatype)?;
    let grain = operator.grain();
    let peers: Vec<Rank> = match (kind, call.root) {
        (CollectiveKind::Reduce, root) if root != MPI_ROOT => {
            let root = comm.peer(root).map_err(|_| MPI_ERR_ROOT)?;
            let (bytes, kept) = operands(&operator, &all_of(&call.send));
            messages.kept.push(kept);
            messages.sends.push((root, 0, bytes));
            return Ok(Plan::Messages(messages));
        }
        _ => (0..comm.remote.size).map(|rank| Rank(rank + comm.remote.base)).collect(),
    };
    let target = match kind {
        CollectiveKind::ReduceScatter => own_block(&call.receive, comm.rank as usize),
        _ => all_of(&call.receive),
    };
    if kind != CollectiveKind::Reduce {
        // Every rank of the other group combines what all of this one send.
        let (bytes, kept) = operands(&operator, &all_of(&call.send));
        messages.kept.push(kept);
        messages.sends.extend(peers.iter().map(|peer| (*peer, 0, bytes)));
    }
    // A reduce-scatter distributes the combined data of the other group, which are as long as the own, among this group.
    let (first, length) = match &call.receive {
        _ if kind != CollectiveKind::ReduceScatter => (0, target.count as usize * grain),
        Side::Varying(all) => {
            let own = comm.rank as usize;
            let before: i64 = all.iter().take(own).map(|elements| elements.count).sum();
            let count = all.get(own).map_or(0, |elements| elements.count);
            (before as usize * grain, count as usize * grain)
        }
        _ => {
            let block = target.count as usize * grain;
            (comm.rank as usize * block, block)
        }
    };
    let whole = match (kind, &call.receive) {
        (CollectiveKind::ReduceScatter, Side::Varying(all)) => {
            all.iter().map(|elements| elements.count as usize).sum::<usize>() * grain
        }
        (CollectiveKind::ReduceScatter, _) => length * comm.size as usize,
        _ => length,
    };
    let mut arrived: Vec<Vec<u8>> = Vec::new();
    for peer in peers {
        let (bytes, kept) = if whole > 0 { owned(vec![0; whole]) } else { (empty(), Vec::new()) };
        messages.receives.push((peer, 0, bytes));
        arrived.push(kept);
    }
    messages.finish = Some(Box::new(move || {
        let mut all = arrived.into_iter().map(|all| all.get(first..first + length).unwrap_or_default().to_vec());
        let Some(mut result) = all.next() else { return Ok(()) };
        for right in all {
            operator.combine_right(&mut result, &right);
        }
        // SAFETY: the program promised that it is writable until the end.
        unsafe { target.unpack(&operator.compress(&result)) };
        Ok(())
    }));
    Ok(Plan::Messages(messages))
}
