//! Compares our mlx5 work queues with rdma-core's, and omits each barrier between their stores in turn.

mod completions;
mod omitted_barriers;
mod random_requests;

use std::io;
use std::path::Path;

use unisono_verbs::mlx5::{BlueFlame, ReceiveQueue, SendOperation, SendQueue, SendRecord, SendRequest};
use unisono_verbs::queue_memory::BLOCK;
use unisono_verbs::queue_memory::recorded::RecordedMemory;
use unisono_verbs::raw::{Data, SendPayload};

pub use completions::{Read, read_completions};
pub use omitted_barriers::{Deletion, delete_each_barrier};

use crate::mlx5::rdma_core::{Operation, Pieces, Post, Provider, REGISTERS, Setup, Stored};

/// Counts of a comparison.
#[derive(Clone, Copy, Default, Debug)]
pub struct Compared {
    /// Send requests.
    pub sends: u64,
    /// Of them those that access memory of a peer.
    pub connected: u64,
    /// Of them those whose entry wraps at the end of the queue.
    pub wrapped: u64,
    /// Of them those with inline bytes.
    pub inline: u64,
    /// Calls, each with a doorbell.
    pub calls: u64,
    /// Of them those whose entry went by BlueFlame.
    pub flames: u64,
    /// Wraps of the 16-bit entry index.
    pub turns: u64,
    /// Receive requests.
    pub receives: u64,
    /// Calls whose bytes differ.
    pub different: u64,
}

/// Compares `requests` random send requests on queue pairs of every size, and prints differences.
///
/// # Errors
/// The provider cannot be run.
pub fn compare(program: &Path, requests: u64, seed: u64) -> io::Result<Compared> {
    let mut random = random_requests::Random::new(seed);
    let mut compared = Compared::default();
    let mut provider = None;
    // Requests per queue pair: enough for its entry index to wrap.
    let share = 35_000;
    while compared.sends < requests {
        let setup = random.setup();
        match &mut provider {
            None => provider = Some(Provider::start(program, setup)?),
            Some(provider) => provider.make(setup)?,
        }
        if let Some(provider) = &mut provider {
            let until = requests.min(compared.sends + share);
            of_queue_pair(provider, &mut random, setup, until, &mut compared)?;
        }
    }
    Ok(compared)
}

fn of_queue_pair(
    provider: &mut Provider,
    random: &mut random_requests::Random,
    setup: Setup,
    until: u64,
    compared: &mut Compared,
) -> io::Result<()> {
    let flame =
        BlueFlame { bytes: setup.flame_bytes as usize, takes_entries: setup.takes_entries, prefers: setup.prefers };
    let mut entries = vec![SendRecord::default(); setup.blocks as usize];
    let memory = RecordedMemory::new(setup.blocks as usize * 64);
    let mut queue = SendQueue::new(memory, setup.qpn, flame, &mut entries).expect("a size of queues");
    let mut tags = vec![None; setup.receive_entries as usize];
    let memory = RecordedMemory::new((setup.receive_entries * setup.receive_units) as usize * 16);
    let mut receive = ReceiveQueue::new(memory, &mut tags).expect("a size of queues");
    let (mut blocks, mut received) = (0_u32, 0_u16);
    while compared.sends < until {
        queue.seam_mut().clear();
        let (mut posts, mut last) = (Vec::new(), blocks);
        for _ in 0..random.batch() {
            let mut post = random.post(setup.connected);
            let free = queue.free();
            if !post_ours(&mut queue, setup.connected, &post) {
                break;
            }
            let used = (free - queue.free()) as u32;
            compared.connected += u64::from(setup.connected);
            compared.inline += u64::from(matches!(post.pieces, Pieces::Inline(_)));
            compared.wrapped += u64::from(blocks % setup.blocks + used > setup.blocks);
            compared.turns += u64::from(blocks >> 16 != (blocks + used) >> 16);
            if random.one_in(8) {
                queue.signal();
                post.signalled = true;
            }
            last = blocks;
            blocks += used;
            posts.push(post);
        }
        if posts.is_empty() {
            continue;
        }
        queue.flush();
        let theirs = provider.send(&posts)?;
        compared.sends += posts.len() as u64;
        compared.calls += 1;
        compared.flames += u64::from(queue.seam().rung.iter().any(|(_, bytes)| bytes.len() == BLOCK));
        compare_stored(&stored(queue.seam()), &theirs, compared, || format!("{setup:?} {posts:?}"));
        assert!(queue.complete(last as u16).is_some(), "the last entry is outstanding");

        // Receive memory is never empty.
        let data = random.data();
        let data = Data { bytes: data.bytes.max(1), ..data };
        assert!(receive.post(data, 0), "there is room");
        receive.flush();
        let theirs = provider.receive(data)?;
        compared.receives += 1;
        let ours = Stored { registers: Vec::new(), ..stored(receive.seam()) };
        compare_stored(&ours, &theirs, compared, || format!("{setup:?} {data:?}"));
        assert!(receive.complete(received).is_some(), "it is outstanding");
        received = received.wrapping_add(1);
    }
    for (violation, of) in [(queue.seam().violation(), "sending"), (receive.seam().violation(), "receiving")] {
        assert_eq!(violation, None, "{of}");
    }
    Ok(())
}

/// The stored entries and registers.
fn stored(memory: &RecordedMemory) -> Stored {
    let mut registers = vec![0; REGISTERS];
    for (at, bytes) in &memory.rung {
        registers[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    Stored { entries: memory.entries.clone(), record: memory.records[0], registers }
}

fn post_ours(queue: &mut SendQueue<'_, RecordedMemory>, connected: bool, post: &Post) -> bool {
    let (to, at) = (random_requests::datagram(&post.to), post.remote);
    let operation = match post.operation {
        _ if !connected => SendOperation::Datagram(&to),
        Operation::Write => SendOperation::Write(at),
        Operation::Read => SendOperation::Read(at),
        Operation::FetchAdd(add) => SendOperation::FetchAdd(at, add),
        Operation::CompareSwap(compare, swap) => SendOperation::CompareSwap { at, compare, swap },
    };
    let (mut slices, mut pieces): (Vec<&[u8]>, &[Data]) = (Vec::new(), &[]);
    match &post.pieces {
        Pieces::Gather(gathered) => pieces = gathered,
        Pieces::Inline(inline) => slices = inline.iter().map(Vec::as_slice).collect(),
    }
    let payload = match &post.pieces {
        Pieces::Gather(_) => SendPayload::Gather(pieces),
        Pieces::Inline(_) => SendPayload::Inline(&slices),
    };
    let Post { signalled, solicited, immediate, .. } = *post;
    queue.post(&SendRequest { operation, payload, signalled, solicited, immediate }, 0).is_ok()
}

fn compare_stored(ours: &Stored, theirs: &Stored, compared: &mut Compared, of: impl Fn() -> String) {
    if ours == theirs {
        return;
    }
    compared.different += 1;
    if compared.different > 3 {
        return;
    }
    let pairs = [("entries", &ours.entries, &theirs.entries), ("registers", &ours.registers, &theirs.registers)];
    for (name, ours, theirs) in pairs {
        if let Some(at) = (0..ours.len().max(theirs.len())).find(|&at| ours.get(at) != theirs.get(at)) {
            eprintln!("{name} differ from byte {at} on: {:?} and {:?}", ours.get(at), theirs.get(at));
        }
    }
    eprintln!("records {:#x} and {:#x} of {}", ours.record, theirs.record, of());
}
