//! The image whose size is held against the bar: an endpoint with 16 peers, all active, windows of 16 segments, over
//! the rings of a segment; barrier, broadcast, allreduce of i32 and f32 with all of them. Its peers are processes that
//! check the same.
#![no_std]
#![no_main]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use static_cell::ConstStaticCell;
use unisono_core::device::{Device as _, DeviceQueue, Memory};
use unisono_core::endpoint::operation::{EnqueueError, Operation};
use unisono_core::endpoint::peer::Peer;
use unisono_core::endpoint::placement::Placement;
use unisono_core::endpoint::storage::Storage;
use unisono_core::endpoint::{Config, ControlMessage, Endpoint, Event, Handler, Pools, Sender, Verdict};
use unisono_core::ids::{Incarnation, PeerId};
use unisono_core::progress::make_progress;
use unisono_core::span::Span;
use unisono_core::time::Micros;
use unisono_core::window::rails::RailState;
use unisono_core::window::receive_window::ReceiveWindow;
use unisono_mps2::{clock::Clock, semihosting, shared, stack};
use unisono_node::group::Group;
use unisono_node::member::Member;
use unisono_node::self_check::collectives;
use unisono_shmem::device::{DatagramBuffer, RingDevice, RingPair, SPARE_BUFFERS};
use unisono_shmem::rank_slot::Occupant;
use unisono_shmem::reduction_ops;
use unisono_shmem::segment::Site;
use unisono_shmem::user_memory::UserMemory;

/// Of the segment: 16 peers and this one, which comes last.
const RANKS: usize = 17;
const OWN: u32 = 16;
/// Segments per window.
const WINDOW: usize = 16;
/// Messages to each peer, and from each.
const MESSAGES: u32 = 200;
const ROUNDS: u32 = 100;
const MTU: usize = 576;
const BUDGET: u32 = 16;

type Core = Endpoint<Records, WINDOW, 32>;
type Rings = RingDevice<'static, Nowhere, MTU>;

/// The endpoint's pools: a send window for every peer, and receive windows, which are in use while datagrams are
/// missing, for the few peers with losses in a full ring at a time. Early datagrams of other peers are dropped, counted
/// and repaired.
#[derive(Debug)]
struct Records;

impl Storage<WINDOW, 32> for Records {
    type Time = Micros;
    type Peers = &'static mut [Peer<Micros, 32>];
    type Senders = &'static mut [Sender<Micros, WINDOW, 32>];
    type Rails = [RailState<Micros>; 0];
    type Receivers = &'static mut [ReceiveWindow<WINDOW>];
    type Operations = &'static mut [Operation];
    type Placements = &'static mut [Placement];
    type ControlMessages = &'static mut [ControlMessage];
}

/// The state of the node. Pools are empty in `.bss` and filled when they are taken, so that no record is stored in
/// flash or built on the stack.
struct Statics {
    endpoint: MaybeUninit<Core>,
    node: MaybeUninit<Node>,
    peers: heapless::Vec<Peer<Micros, 32>, RANKS>,
    senders: heapless::Vec<Sender<Micros, WINDOW, 32>, 16>,
    receivers: heapless::Vec<ReceiveWindow<WINDOW>, 2>,
    operations: heapless::Vec<Operation, 16>,
    placements: heapless::Vec<Placement, 1>,
    control_messages: heapless::Vec<ControlMessage, 16>,
    pairs: heapless::Vec<RingPair<'static>, RANKS>,
}

static STATICS: ConstStaticCell<Statics> = ConstStaticCell::new(Statics {
    endpoint: MaybeUninit::uninit(),
    node: MaybeUninit::uninit(),
    peers: heapless::Vec::new(),
    senders: heapless::Vec::new(),
    receivers: heapless::Vec::new(),
    operations: heapless::Vec::new(),
    placements: heapless::Vec::new(),
    control_messages: heapless::Vec::new(),
    pairs: heapless::Vec::new(),
});

fn fill<T, const N: usize>(pool: &mut heapless::Vec<T, N>, unused: impl Fn() -> T) -> &mut [T] {
    while !pool.is_full() {
        let _ = pool.push(unused());
    }
    pool
}

/// Receive slots: a section of their own, which nobody clears. Their first values are written when they are taken.
#[unsafe(link_section = ".unisono.pools.slots")]
static SLOTS: Slots = Slots(UnsafeCell::new([const { MaybeUninit::uninit() }; SPARE_BUFFERS]));
static SLOTS_TAKEN: ConstStaticCell<()> = ConstStaticCell::new(());

struct Slots(UnsafeCell<[MaybeUninit<DatagramBuffer<MTU>>; SPARE_BUFFERS]>);

// SAFETY: reached by `take_slots` alone, which does so once.
unsafe impl Sync for Slots {}

/// `None`: they were taken before.
#[inline(never)]
fn take_slots() -> Option<&'static mut [DatagramBuffer<MTU>]> {
    SLOTS_TAKEN.try_take()?;
    // SAFETY: the first and only time, so that nobody else refers to them.
    let slots = unsafe { &mut *SLOTS.0.get() };
    for slot in slots.iter_mut() {
        slot.write(DatagramBuffer::FREE);
    }
    // SAFETY: all were written above.
    Some(unsafe { slots.assume_init_mut() })
}

/// No registered memory: all messages are short.
#[derive(Clone, Copy, Debug)]
enum Nowhere {}

// SAFETY: there is no value of this type.
unsafe impl UserMemory for Nowhere {
    fn start(self) -> NonNull<u8> {
        match self {}
    }

    fn bytes(self) -> usize {
        match self {}
    }
}

struct NoMemory;

impl Memory for NoMemory {
    type Address = Nowhere;

    fn address(&self, _: Span) -> Option<Nowhere> {
        None
    }
}

/// Counts of received messages: each carries its number and its sender.
struct Inbox {
    counts: [u16; RANKS],
    wrong: u32,
}

impl Handler for Inbox {
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        let count = usize::try_from(from.0).ok().and_then(|from| self.counts.get_mut(from));
        match count {
            Some(count) if bytes == 32 && head.get(..32) == Some(&message(from.0, (*count).into())) => {
                *count = count.wrapping_add(1);
            }
            _ => self.wrong = self.wrong.wrapping_add(1),
        }
        Verdict::Release
    }
}

/// The message of this number from this rank.
fn message(rank: u32, number: u32) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (into, index) in bytes.as_chunks_mut().0.iter_mut().zip(0..) {
        *into = collectives::number(number, rank, index).to_le_bytes();
    }
    bytes
}

struct Node {
    endpoint: &'static mut Core,
    rings: Rings,
    inbox: Inbox,
    clock: Clock,
    member: Member<'static>,
    sent: [u16; RANKS],
    completed: u32,
    failed: u32,
    beats: u32,
    beaten: u32,
}

impl Node {
    /// `None`: the rank slot is missing, or the node was started before.
    #[inline(never)]
    fn start() -> Option<&'static mut Self> {
        let mut clock = Clock::start();
        let sitter = Occupant { rank: OWN, incarnation: incarnation(OWN).0, process: 0 };
        let member = Member::join(shared::segment(), OWN, sitter).ok()?;
        let layout = member.layout();
        let statics = STATICS.try_take()?;
        for peer in 0..=OWN {
            statics.pairs.push(RingPair::new(member.segment(), &layout, OWN, peer)?).ok()?;
        }
        let rings = RingDevice::new(&layout, &mut statics.pairs, take_slots()?);
        let now = clock.now();
        let config = Config::new(PeerId(OWN), incarnation(OWN), &rings.limits());
        let pools = Pools {
            peers: fill(&mut statics.peers, || Peer::UNKNOWN),
            senders: fill(&mut statics.senders, || Sender::FREE),
            rails: [],
            receivers: fill(&mut statics.receivers, || ReceiveWindow::EMPTY),
            operations: fill(&mut statics.operations, || Operation::FREE),
            placements: fill(&mut statics.placements, || Placement::FREE),
            control_messages: fill(&mut statics.control_messages, || ControlMessage::FREE),
        };
        let node = statics.node.write(Self {
            endpoint: statics.endpoint.write(Core::new(now, config, pools)),
            rings,
            inbox: Inbox { counts: [0; RANKS], wrong: 0 },
            clock,
            member,
            sent: [0; RANKS],
            completed: 0,
            failed: 0,
            beats: 0,
            beaten: now,
        });
        for peer in 0..OWN {
            node.endpoint.add_peer(now, PeerId(peer), incarnation(peer), MTU as u32);
        }
        Some(node)
    }

    /// One round of the endpoint.
    fn step(&mut self) {
        let now = self.clock.now();
        if now.wrapping_sub(self.beaten) >= 1000 {
            (self.beats, self.beaten) = (self.beats.wrapping_add(1), now);
            self.member.heartbeat().publish(self.beats, Site::Plain);
        }
        make_progress(now, DeviceQueue::Polled, self.endpoint, &mut self.rings, &NoMemory, &mut self.inbox, BUDGET);
        while let Some(event) = self.endpoint.poll_event(now) {
            match event {
                Event::Completed(_, Ok(())) => self.completed = self.completed.wrapping_add(1),
                Event::Completed(_, Err(_)) | Event::PeerFailed(_) => self.failed = self.failed.wrapping_add(1),
                Event::Delivered(..) | Event::PeerFinished(_) | Event::PeerSilent(_) => {}
            }
        }
    }

    /// To all peers in turn, so that all are active at a time.
    fn submit(&mut self) {
        let now = self.clock.now();
        for (sent, peer) in self.sent.iter_mut().zip(0..OWN) {
            if u32::from(*sent) < MESSAGES {
                match self.endpoint.send(now, PeerId(peer), &message(OWN, (*sent).into()), None) {
                    Ok(_) => *sent = sent.wrapping_add(1),
                    Err(EnqueueError::Full) => {}
                    Err(_) => self.failed = self.failed.wrapping_add(1),
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        let all = MESSAGES.wrapping_mul(OWN);
        self.completed == all && self.inbox.counts.iter().map(|count| u32::from(*count)).sum::<u32>() == all
    }
}

/// The incarnation of a rank's process. A real job takes it from bootstrap or from the board's random bits.
const fn incarnation(rank: u32) -> Incarnation {
    Incarnation(rank.wrapping_mul(0x9E37_79B9).wrapping_add(0x1234_5678))
}

/// Entered once, from `reset`.
#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    let proven = run().is_some();
    let (bytes, untouched) = stack::depth();
    semihosting::write_value(b"stack_used", bytes.wrapping_sub(untouched));
    semihosting::exit(if proven { semihosting::PASSED } else { semihosting::FAILED })
}

fn run() -> Option<()> {
    let node = Node::start()?;
    let member = node.member;
    while !member.is_complete() {
        node.step();
    }
    while !node.is_done() {
        node.submit();
        node.step();
        if node.failed > 0 || node.inbox.wrong > 0 {
            return None;
        }
    }
    semihosting::write_value(b"messages", node.completed);
    collectives(node)
}

/// With all peers, every result compared; the endpoint makes progress while this rank waits.
#[inline(never)]
fn collectives(node: &mut Node) -> Option<()> {
    let member = node.member;
    // Not moved out: there is room for one.
    let mut group = Group::new(member);
    let group = group.as_mut()?;
    let mut idle = || node.step();
    for round in 0..ROUNDS {
        group.barrier(&mut idle).ok()?;
        let mut data = collectives::contribution(round, OWN);
        let root = round % OWN;
        group.broadcast(&mut data, root, &mut idle).ok()?;
        let mut sums = collectives::contribution(round, OWN);
        group.all_reduce(&mut sums, reduction_ops::ReduceOperation::Sum, &mut idle).ok()?;
        let mut floats = collectives::contribution(round, OWN).map(|number| number as f32);
        group.all_reduce(&mut floats, reduction_ops::ReduceOperation::Sum, &mut idle).ok()?;
        let right = collectives::sum(round, RANKS as u32);
        if data != collectives::contribution(round, root)
            || sums != right
            || floats != right.map(|number| number as f32)
        {
            return None;
        }
    }
    semihosting::write_value(b"rounds", ROUNDS);
    member.leave();
    Some(())
}
