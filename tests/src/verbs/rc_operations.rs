//! Operations over reliable connections: at their edges, from several ends at a time, refused ones, and immediates for
//! which the target has no receive.

use core::ptr::NonNull;
use core::time::Duration;
use std::fs;

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use unisono_core::rma::Rights;
use unisono_verbs::raw::{Data, Failure, RemoteMemory};
use unisono_verbs::rc::{RcCompletion, RcCompletions, RcConnection, RcOperation, RcOptions, RcPostError, RcRequest};
use unisono_verbs::ud::{Domain, OpenError, QueueChoice, Registration};

use super::{Adapter, Outcome, within};

/// Registered bytes of a node: as many as the longest operation has.
const BYTES: usize = 1 << 20;
/// Bytes before and after them, which are not registered.
const MARGIN: usize = 64;
/// Operations that a connection has outstanding at most.
const DEPTH: u32 = 64;
/// Receives of a node at least, fewer than [`DEPTH`].
const RECEIVES: u32 = 8;
/// The last PSN but one: they wrap around.
const PSN: u32 = 0xff_fffe;
const BOUND: Duration = Duration::from_secs(20);

const WORD: u32 = 8;
/// Fetch-adds of each end.
const FETCH_ADDS: u32 = 500;
/// Rounds of swaps by all ends.
const ROUNDS: u64 = 500;
/// A write whose target has no receive is repeated more often than any finite number of retries allows.
const REPEATED: u64 = 10;

/// Memory that a node's adapter and its peers' access.
struct Memory {
    start: NonNull<u8>,
    registration: Registration,
}

impl Memory {
    fn new(domain: &Arc<Domain>) -> Outcome<Self> {
        let words: &'static mut [u64] = Box::leak(vec![0; (BYTES + 2 * MARGIN) / WORD as usize].into_boxed_slice());
        let start = NonNull::from(words).cast();
        Ok(Self { start, registration: Self::register(domain, start, Rights::all())? })
    }

    fn register(domain: &Arc<Domain>, start: NonNull<u8>, rights: Rights) -> Outcome<Registration> {
        // SAFETY: within the allocation, which is longer.
        let inner = unsafe { start.add(MARGIN) };
        // SAFETY: the bytes are never freed, and nobody has a reference to them.
        Ok(unsafe { domain.register_for_peers(inner, BYTES, rights) }?)
    }

    /// All bytes, registered or not.
    fn bytes(&self) -> Vec<u8> {
        // SAFETY: the allocation.
        unsafe { copied(self.start, BYTES + 2 * MARGIN) }
    }

    /// Registered bytes from `at` on.
    fn read(&self, at: usize, bytes: usize) -> Vec<u8> {
        assert!(at + bytes <= BYTES);
        // SAFETY: within the allocation.
        let from = unsafe { self.start.add(MARGIN + at) };
        // SAFETY: bytes of the allocation.
        unsafe { copied(from, bytes) }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= BYTES);
        // SAFETY: within the allocation.
        let to = unsafe { self.start.add(MARGIN + at) };
        // SAFETY: as many bytes of the allocation; no operation on them is outstanding.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    fn word(&self, at: usize) -> u64 {
        // SAFETY: within the allocation.
        let word = unsafe { self.start.add(MARGIN + at) };
        // SAFETY: an aligned word of the allocation; no operation on it is outstanding.
        unsafe { word.cast().read() }
    }

    /// As the adapter here knows it.
    fn local(&self, at: usize, bytes: u32) -> Data {
        Data { address: self.remote(at).address, bytes, key: self.registration.key() }
    }

    /// As a peer's adapter knows it.
    fn remote(&self, at: usize) -> RemoteMemory {
        let address = self.start.expose_provenance().get() + MARGIN + at;
        RemoteMemory { address: address as u64, key: self.registration.remote_key() }
    }
}

/// An adapter with memory.
struct Node {
    name: String,
    domain: Arc<Domain>,
    completions: RcCompletions,
    memory: Memory,
}

impl Node {
    fn new(adapter: &Adapter<'_>, options: &RcOptions) -> Outcome<Self> {
        let domain = Domain::open(Some(adapter.name))?;
        let options = RcOptions { queues: adapter.queues, ..*options };
        let (completions, memory) = (RcCompletions::new(&domain, &options)?, Memory::new(&domain)?);
        Ok(Self { name: adapter.name.to_owned(), domain, completions, memory })
    }

    fn completion(&mut self) -> Outcome<RcCompletion> {
        within(BOUND, "a completion", || Ok(self.completions.poll()))
    }

    /// The tag and the result of the next operation that ends.
    fn ended(&mut self) -> Outcome<(u32, Result<(), Failure>)> {
        match self.completion()? {
            RcCompletion::Operation { tag, result, .. } => Ok((tag, result)),
            other => Err(format!("{other:?} instead of the end of an operation").into()),
        }
    }

    /// Executes an operation.
    fn execute(&mut self, end: &RcConnection, request: RcRequest) -> Outcome<Result<(), Failure>> {
        post(end, request, 7)?;
        let (tag, result) = self.ended()?;
        expect("the tag", &tag, &7)?;
        Ok(result)
    }

    /// How often this node reported that it has no receive.
    fn not_ready(&self) -> Outcome<u64> {
        let (name, port) = (&self.name, self.domain.port());
        let path = format!("/sys/class/infiniband/{name}/ports/{port}/hw_counters/send_rnr_err");
        Ok(fs::read_to_string(path)?.trim().parse()?)
    }
}

/// # Safety
/// They are bytes of one allocation, and no operation on them is outstanding.
unsafe fn copied(from: NonNull<u8>, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    // SAFETY: the caller promises as many bytes, which nobody writes meanwhile; the copy is another allocation.
    unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut copy[..]).cast(), bytes) };
    copy
}

fn post(end: &RcConnection, request: RcRequest, tag: u32) -> Result<(), RcPostError> {
    // SAFETY: memory of a node is never freed, and used by nobody else while an operation on it is outstanding.
    unsafe { end.post(&request, tag) }
}

fn connect(here: &Node, there: &Node) -> Outcome<[RcConnection; 2]> {
    let end = |node: &Node| RcConnection::new(&node.completions, DEPTH, PSN);
    let [from, to] = [end(here)?, end(there)?];
    from.connect(&to.address())?;
    to.connect(&from.address())?;
    Ok([from, to])
}

fn expect<T: PartialEq + core::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Outcome<()> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?}, not {wanted:?}").into()) }
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + (i >> 8) + seed) as u8 | 1).collect()
}

/// The operations, and the rights that they need.
const OPERATIONS: [(RcOperation, Rights); 5] = [
    (RcOperation::Write, Rights::WRITE),
    (RcOperation::WriteImmediate(0x0102_0304), Rights::WRITE),
    (RcOperation::Read, Rights::READ),
    (RcOperation::FetchAdd(3), Rights::ATOMIC),
    (RcOperation::CompareSwap { compare: 0, swap: 1 }, Rights::ATOMIC),
];

/// Checks operations between four adapters. With `lossy`, the answer to a refused operation may be lost, and its
/// connection with it.
///
/// # Errors
/// Something is not as the driver promises.
pub fn rc_operations(adapters: &[Adapter<'_>], lossy: bool) -> Outcome<()> {
    let options = RcOptions { operations: 4 * DEPTH, receives: RECEIVES, atomics: true, queues: QueueChoice::Auto };
    let nodes = adapters.iter().map(|adapter| Node::new(adapter, &options)).collect::<Outcome<Vec<_>>>()?;
    let Ok([mut target, mut origin, second, third]) = <[Node; 4]>::try_from(nodes) else {
        return Err("four adapters are needed".into());
    };
    let longer = RcCompletions::new(&target.domain, &RcOptions { receives: u32::MAX, ..options });
    expect("too many receives", &matches!(longer, Err(OpenError::NoSharedReceives(..))), &true)?;
    transfers(&mut origin, &mut target)?;
    ordered_immediates(&mut origin, &mut target)?;
    without_receives(&mut origin, &mut target)?;
    bounds(&mut origin, &mut target)?;
    misaligned(&mut origin, &mut target)?;
    refusals(&mut origin, &mut target, lossy)?;
    without_atomics(&adapters[0], &mut origin, lossy)?;
    let mut origins = [origin, second, third];
    fetch_adds(&mut origins, &mut target)?;
    swaps(&mut origins, &mut target)?;
    let idle = origins.iter_mut().chain([&mut target]).all(|node| node.completions.poll().is_none());
    expect("nothing else arrives", &idle, &true)
}

/// Every length places its bytes and no others; an immediate reports them when they are visible.
fn transfers(origin: &mut Node, target: &mut Node) -> Outcome<()> {
    let [end, there] = connect(origin, target)?;
    let mtu = origin.domain.mtu() as usize;
    for bytes in [0, 1, 8, mtu - 1, mtu, mtu + 1, BYTES] {
        let mut wanted = vec![0; BYTES + 2 * MARGIN];
        wanted[MARGIN..][..bytes].copy_from_slice(&pattern(bytes, bytes));
        for (operation, _) in OPERATIONS.into_iter().take(3) {
            let what = format!("{operation:?} of {bytes} bytes");
            let is_read = operation == RcOperation::Read;
            for (node, is_source) in [(&*origin, !is_read), (&*target, is_read)] {
                node.memory.write(0, if is_source { &wanted[MARGIN..][..BYTES] } else { &[0; BYTES] });
            }
            let (local, remote) = (origin.memory.local(0, bytes as u32), target.memory.remote(0));
            post(&end, RcRequest { operation, local, remote }, 1)?;
            if let RcOperation::WriteImmediate(value) = operation {
                let arrived = RcCompletion::Immediate { qpn: there.address().qpn, value, bytes: bytes as u32 };
                expect(&what, &target.completion()?, &arrived)?;
                expect(&what, &(target.memory.bytes() == wanted), &true)?;
            }
            let ended = RcCompletion::Operation { qpn: end.address().qpn, tag: 1, result: Ok(()) };
            expect(&what, &origin.completion()?, &ended)?;
            let is_placed = [origin.memory.bytes(), target.memory.bytes()].iter().all(|bytes| *bytes == wanted);
            expect(&what, &is_placed, &true)?;
        }
    }
    Ok(())
}

/// Many writes at a time: every immediate arrives once, in order, after the bytes of its write.
fn ordered_immediates(origin: &mut Node, target: &mut Node) -> Outcome<()> {
    let [end, there] = connect(origin, target)?;
    let bytes = origin.domain.mtu() + 1;
    let slot = |i: u32| i as usize * (BYTES / DEPTH as usize);
    target.memory.write(0, &[0; BYTES]);
    for i in 0..DEPTH {
        origin.memory.write(slot(i), &pattern(i as usize, bytes as usize));
        let (local, remote) = (origin.memory.local(slot(i), bytes), target.memory.remote(slot(i)));
        post(&end, RcRequest { operation: RcOperation::WriteImmediate(i), local, remote }, i)?;
    }
    for value in 0..DEPTH {
        let arrived = RcCompletion::Immediate { qpn: there.address().qpn, value, bytes };
        expect("an immediate", &target.completion()?, &arrived)?;
        let is_placed = target.memory.read(slot(value), bytes as usize) == pattern(value as usize, bytes as usize);
        expect("bytes are in place before their immediate", &is_placed, &true)?;
    }
    for tag in 0..DEPTH {
        expect("the end of a write", &origin.ended()?, &(tag, Ok(())))?;
    }
    Ok(())
}

/// Writes for whose immediates the target has no receive wait, and none is lost; receives are posted again.
fn without_receives(origin: &mut Node, target: &mut Node) -> Outcome<()> {
    let [end, there] = connect(origin, target)?;
    for round in 0..3 {
        let (before, mut ended) = (target.not_ready()?, 0);
        for i in 0..DEPTH {
            let (local, remote) = (origin.memory.local(0, WORD), target.memory.remote(0));
            let operation = RcOperation::WriteImmediate(round * DEPTH + i);
            post(&end, RcRequest { operation, local, remote }, i)?;
        }
        within(BOUND, "writes without receives", || Ok((target.not_ready()? >= before + REPEATED).then_some(())))?;
        while let Some(RcCompletion::Operation { tag, result, .. }) = origin.completions.poll() {
            expect("the end of a write", &(tag, result), &(ended, Ok(())))?;
            ended += 1;
        }
        expect("as many writes end as there are receives", &(RECEIVES..DEPTH / 2).contains(&ended), &true)?;
        for i in 0..DEPTH {
            let (qpn, value) = (there.address().qpn, round * DEPTH + i);
            let arrived = RcCompletion::Immediate { qpn, value, bytes: WORD };
            expect("an immediate that waited", &target.completion()?, &arrived)?;
        }
        for tag in ended..DEPTH {
            expect("the end of a write that waited", &origin.ended()?, &(tag, Ok(())))?;
        }
    }
    Ok(())
}

/// An end holds as many operations as it was made for, complete or not, until their completions are taken, and none before
/// it is connected.
fn bounds(origin: &mut Node, target: &mut Node) -> Outcome<()> {
    let request = RcRequest {
        operation: RcOperation::Write,
        local: origin.memory.local(0, WORD),
        remote: target.memory.remote(0),
    };
    let lonely = RcConnection::new(&origin.completions, DEPTH, PSN)?;
    expect("an end that is not connected", &post(&lonely, request, 0), &Err(RcPostError::Refused))?;
    let [end, _there] = connect(origin, target)?;
    for tag in 0..DEPTH {
        post(&end, request, tag)?;
    }
    std::thread::sleep(Duration::from_millis(50));
    expect("one more", &post(&end, request, DEPTH), &Err(RcPostError::Refused))?;
    expect("the end of a write", &origin.ended()?, &(0, Ok(())))?;
    let more = core::iter::repeat_with(|| post(&end, request, DEPTH)).take_while(Result::is_ok).count() as u32;
    expect("places of completions that were taken", &(1..=DEPTH).contains(&more), &true)?;
    for tag in (1..DEPTH).chain(core::iter::repeat_n(DEPTH, more as usize)) {
        expect("the end of a write", &origin.ended()?, &(tag, Ok(())))?;
    }
    Ok(())
}

/// Misaligned atomics are not posted.
fn misaligned(origin: &mut Node, target: &mut Node) -> Outcome<()> {
    let [end, _there] = connect(origin, target)?;
    for (operation, _) in OPERATIONS.into_iter().skip(3) {
        for (here, bytes, there) in [(4, WORD, 0), (0, WORD, 4), (0, 4, 0), (0, 2 * WORD, 0)] {
            let request =
                RcRequest { operation, local: origin.memory.local(here, bytes), remote: target.memory.remote(there) };
            expect("a misaligned atomic", &post(&end, request, 0), &Err(RcPostError::Misaligned))?;
        }
    }
    let (local, remote) = (origin.memory.local(0, WORD), target.memory.remote(0));
    expect("a later write", &origin.execute(&end, RcRequest { operation: RcOperation::Write, local, remote })?, &Ok(()))
}

/// An operation with a wrong key, beyond either end, or without its right touches nothing, and its connection with all
/// that is outstanding fails. Another connection works.
fn refusals(origin: &mut Node, target: &mut Node, lossy: bool) -> Outcome<()> {
    for (operation, right) in OPERATIONS {
        let is_atomic = right == Rights::ATOMIC;
        let bytes = if is_atomic { WORD } else { origin.domain.mtu() + 1 };
        let beyond = if is_atomic { BYTES } else { BYTES + 1 - bytes as usize };
        let lesser = Memory::register(&target.domain, target.memory.start, Rights::all() - right)?;
        let good = target.memory.remote(0);
        for (why, remote) in [
            ("a wrong key", RemoteMemory { key: good.key ^ 1, ..good }),
            ("a range that ends outside", target.memory.remote(beyond)),
            ("a range that begins outside", RemoteMemory { address: good.address - u64::from(WORD), ..good }),
            ("without the right", RemoteMemory { key: lesser.remote_key(), ..good }),
        ] {
            let what = format!("{operation:?}, {why}");
            origin.memory.write(0, &pattern(1, BYTES));
            target.memory.write(0, &[0; BYTES]);
            let before = [origin.memory.bytes(), target.memory.bytes()];
            let local = origin.memory.local(0, bytes);
            let [end, _there] = connect(origin, target)?;
            post(&end, RcRequest { operation, local, remote }, 1)?;
            post(&end, RcRequest { operation, local, remote: good }, 2)?;
            expect_refused(&what, origin.ended()?, Failure::RemoteAccess, lossy)?;
            expect(&what, &origin.ended()?, &(2, Err(Failure::Flushed)))?;
            expect(&what, &([origin.memory.bytes(), target.memory.bytes()] == before), &true)?;
            expect(&what, &target.completions.poll(), &None)?;
            let [end, there] = connect(origin, target)?;
            expect(&what, &origin.execute(&end, RcRequest { operation, local, remote: good })?, &Ok(()))?;
            if let RcOperation::WriteImmediate(value) = operation {
                let arrived = RcCompletion::Immediate { qpn: there.address().qpn, value, bytes };
                expect(&what, &target.completion()?, &arrived)?;
            }
        }
    }
    Ok(())
}

fn expect_refused(what: &str, ended: (u32, Result<(), Failure>), wanted: Failure, lossy: bool) -> Outcome<()> {
    if lossy && ended == (1, Err(Failure::NoAnswer)) { Ok(()) } else { expect(what, &ended, &(1, Err(wanted))) }
}

/// A node without atomics posts none, and executes none of its peers.
fn without_atomics(adapter: &Adapter<'_>, origin: &mut Node, lossy: bool) -> Outcome<()> {
    let options = RcOptions { operations: DEPTH, receives: 0, atomics: false, queues: adapter.queues };
    let target = Node::new(adapter, &options)?;
    for (operation, _) in OPERATIONS.into_iter().skip(3) {
        let [end, there] = connect(origin, &target)?;
        let request = RcRequest { operation, local: target.memory.local(0, WORD), remote: origin.memory.remote(0) };
        expect("an atomic", &post(&there, request, 1), &Err(RcPostError::NoAtomics))?;
        let request = RcRequest { operation, local: origin.memory.local(0, WORD), remote: target.memory.remote(0) };
        post(&end, request, 1)?;
        expect_refused("an atomic of a peer", origin.ended()?, Failure::RemoteOperation, lossy)?;
        expect("the peer's word", &target.memory.word(0), &0)?;
    }
    Ok(())
}

/// Fetch-adds of all origins on one word: each returns another value, and their sum is exact.
fn fetch_adds(origins: &mut [Node], target: &mut Node) -> Outcome<()> {
    let ends = origins.iter().map(|origin| connect(origin, target)).collect::<Outcome<Vec<_>>>()?;
    let (first, add) = (u64::MAX - 300, 3);
    target.memory.write(0, &first.to_ne_bytes());
    let mut posted = vec![0; origins.len()];
    let mut open = 0;
    let slot = |i: u32| (i * WORD) as usize;
    loop {
        for ((origin, [end, _]), posted) in origins.iter_mut().zip(&ends).zip(&mut posted) {
            while *posted < FETCH_ADDS {
                let (local, remote) = (origin.memory.local(slot(*posted), WORD), target.memory.remote(0));
                match post(end, RcRequest { operation: RcOperation::FetchAdd(add), local, remote }, *posted) {
                    Err(RcPostError::Refused) => break,
                    other => other?,
                }
                (*posted, open) = (*posted + 1, open + 1);
            }
        }
        if open == 0 {
            break;
        }
        let mut next = || origins.iter_mut().find_map(|origin| origin.completions.poll());
        let ended = within(BOUND, "an atomic", || Ok(next()));
        match ended? {
            RcCompletion::Operation { result: Ok(()), .. } => open -= 1,
            other => return Err(format!("a fetch-add: {other:?}").into()),
        }
    }
    let count = u64::from(FETCH_ADDS) * origins.len() as u64;
    let olds: BTreeSet<u64> =
        origins.iter().flat_map(|origin| (0..FETCH_ADDS).map(|i| origin.memory.word(slot(i)))).collect();
    let wanted: BTreeSet<u64> = (0..count).map(|i| first.wrapping_add(add * i)).collect();
    expect("old values, each once", &(olds == wanted), &true)?;
    expect("the sum", &target.memory.word(0), &first.wrapping_add(add * count))
}

/// All origins count one word up by compare-swaps: each value is replaced once. The last end of a round knows the word
/// and swaps in the next one, if no other does.
fn swaps(origins: &mut [Node], target: &mut Node) -> Outcome<()> {
    let ends = origins.iter().map(|origin| connect(origin, target)).collect::<Outcome<Vec<_>>>()?;
    target.memory.write(0, &0_u64.to_ne_bytes());
    let (mut seen, mut swapped) = (vec![0; origins.len()], 0);
    for _ in 0..ROUNDS {
        for ((origin, [end, _]), compare) in origins.iter().zip(&ends).zip(&seen) {
            let (compare, (local, remote)) = (*compare, (origin.memory.local(0, WORD), target.memory.remote(0)));
            let swap = compare + 1;
            post(end, RcRequest { operation: RcOperation::CompareSwap { compare, swap }, local, remote }, 0)?;
        }
        for (origin, seen) in origins.iter_mut().zip(&mut seen) {
            expect("a compare-swap", &origin.ended()?, &(0, Ok(())))?;
            let old = origin.memory.word(0);
            let is_swapped = old == *seen;
            swapped += u64::from(is_swapped);
            *seen = old + u64::from(is_swapped);
        }
    }
    expect("some end swaps in each round", &(swapped >= ROUNDS), &true)?;
    expect("each value is replaced once", &target.memory.word(0), &swapped)
}
