//! The collective transport between a few ranks, over channels that are ordered per pair only.

extern crate alloc;

use alloc::collections::VecDeque;
use std::collections::HashMap;

use proptest::prelude::*;
use unisono_core::ids::{self, PeerId, PlacementId};
use unisono_core::message::collective_transport::header::EAGER_HEADER;
use unisono_core::message::collective_transport::{
    Arrival, CollectivePeer, CollectiveTransport, Entry, Pools, Posted, RecordUsage, Sent, StepHeader, StepKey,
    TransportAction,
};

type Machine = CollectiveTransport<Box<[CollectivePeer]>, Box<[Entry]>>;

const LIMIT: u32 = 32;
/// Bytes of a message that an endpoint passes to the handler.
const SHOWN: usize = 40;

/// Sizes of a test.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    ranks: usize,
    credit: u8,
    records: usize,
    headers: usize,
}

fn machine(sizes: Sizes) -> Machine {
    let free = |count| vec![Entry::FREE; count].into_boxed_slice();
    let pools = Pools {
        peers: vec![CollectivePeer::new(LIMIT); sizes.ranks].into(),
        sends: free(sizes.records),
        receives: free(sizes.records),
        slots: free(slots(sizes)),
        headers: free(sizes.headers),
    };
    CollectiveTransport::new(sizes.credit, pools).expect("as many slots as credit")
}

fn slots(sizes: Sizes) -> usize {
    usize::from(sizes.credit) * (sizes.ranks - 1)
}

/// A message that is sent and received.
#[derive(Clone, Copy, Debug)]
struct SentMessage {
    from: usize,
    to: usize,
    key: StepKey,
    bytes: u32,
}

/// Every message differs from every other of its length.
fn payload(i: usize, message: &SentMessage) -> Vec<u8> {
    (0..message.bytes as usize).map(|at| (i * 37 + at * 11) as u8).collect()
}

#[derive(Clone, Debug)]
enum Wire {
    Message(Vec<u8>),
    /// Payload for a grant of the receiver.
    Placement(u32, Vec<u8>),
}

struct Rank {
    steps: Machine,
    slots: Vec<Vec<u8>>,
    /// The payload that each receive got.
    received: HashMap<u32, Vec<u8>>,
    granted: Vec<u32>,
    /// Messages to send, or to receive, that do not fit yet.
    to_send: VecDeque<u32>,
    to_receive: VecDeque<u32>,
}

struct SimWorld {
    messages: Vec<SentMessage>,
    sizes: Sizes,
    ranks: Vec<Rank>,
    /// By sender and receiver.
    channels: Vec<VecDeque<Wire>>,
    placed: usize,
}

impl SimWorld {
    fn new(sizes: Sizes, messages: Vec<SentMessage>) -> Self {
        let rank = || Rank {
            steps: machine(sizes),
            slots: vec![Vec::new(); slots(sizes)],
            received: HashMap::new(),
            granted: Vec::new(),
            to_send: VecDeque::new(),
            to_receive: VecDeque::new(),
        };
        Self {
            messages,
            sizes,
            ranks: (0..sizes.ranks).map(|_| rank()).collect(),
            channels: vec![VecDeque::new(); sizes.ranks * sizes.ranks],
            placed: 0,
        }
    }

    fn push(&mut self, from: usize, to: PeerId, wire: Wire) {
        self.channels[from * self.sizes.ranks + to.0 as usize].push_back(wire);
    }

    fn send(&mut self, i: u32) -> bool {
        let message = self.messages[i as usize];
        let to = PeerId(message.to as u32);
        let (head, body) = match self.ranks[message.from].steps.send(to, message.key, (message.bytes, u64::from(i)), i)
        {
            Ok(Sent::Eager(head)) => (head, payload(i as usize, &message)),
            Ok(Sent::Rts(head)) => (head, Vec::new()),
            Err(_) => return false,
        };
        self.push(message.from, to, Wire::Message([head.as_ref(), &body].concat()));
        true
    }

    fn receive(&mut self, i: u32) -> bool {
        let message = self.messages[i as usize];
        let rank = &mut self.ranks[message.to];
        match rank.steps.receive(PeerId(message.from as u32), message.key, message.bytes, i) {
            Ok(Posted::Waits) => true,
            Ok(Posted::Early { slot }) => {
                let got = core::mem::take(&mut rank.slots[slot as usize]);
                assert!(rank.received.insert(i, got).is_none());
                rank.steps.release_slot(slot);
                true
            }
            Err(_) => false,
        }
    }

    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let Some(wire) = self.channels[from * self.sizes.ranks + to].pop_front() else { return false };
        let rank = &mut self.ranks[to];
        let bytes = match wire {
            Wire::Placement(granted, bytes) => {
                let user = rank.granted[granted as usize];
                assert!(rank.received.insert(user, bytes).is_none());
                return true;
            }
            Wire::Message(bytes) => bytes,
        };
        let shown = &bytes[..bytes.len().min(SHOWN)];
        match rank.steps.handle(PeerId(from as u32), shown, bytes.len() as u32) {
            Arrival::Into { user, start } => {
                assert!(rank.received.insert(user, bytes[usize::from(start)..].to_vec()).is_none());
            }
            Arrival::Keep { slot, start, bytes: length } => {
                let kept = &mut rank.slots[slot as usize];
                assert!(kept.is_empty() && length <= LIMIT && bytes.len() == EAGER_HEADER + length as usize);
                *kept = bytes[usize::from(start)..].to_vec();
            }
            Arrival::Place { user, placement, key } => {
                assert_eq!(key, ids::RemoteKey(u64::from(placement.0) + 1));
                let message = self.messages[user as usize];
                assert_eq!((message.from, message.to), (to, from));
                self.placed += 1;
                self.push(to, PeerId(from as u32), Wire::Placement(placement.0, payload(user as usize, &message)));
            }
            Arrival::Fetched { user } => {
                assert_eq!(self.messages[user as usize].from, to);
                self.placed += 1;
            }
            Arrival::Nothing => {}
            other => panic!("{other:?} of {bytes:?}"),
        }
        true
    }

    fn act(&mut self, rank: usize) -> bool {
        let machine = &mut self.ranks[rank];
        let Some(action) = machine.steps.poll_action() else { return false };
        let (to, head) = match action {
            TransportAction::Pull { to, user, key, bytes, at } => {
                let message = self.messages[user as usize];
                assert_eq!((message.from, message.key, message.bytes), (to.0 as usize, key, bytes));
                assert_eq!(at, u64::from(user));
                if user % 2 == 0 {
                    assert!(machine.received.insert(user, payload(user as usize, &message)).is_none());
                    self.push(rank, to, Wire::Message(StepHeader::fin(key).as_ref().to_vec()));
                    return true;
                }
                let placement = machine.granted.len() as u32;
                machine.granted.push(user);
                (to, StepHeader::cts(key, PlacementId(placement), ids::RemoteKey(u64::from(placement) + 1)))
            }
            TransportAction::Send { to, head } => (to, head),
        };
        self.push(rank, to, Wire::Message(head.as_ref().to_vec()));
        true
    }

    /// Retries the operations that could not be posted.
    fn retry(&mut self) -> bool {
        let mut moved = false;
        for rank in 0..self.ranks.len() {
            while let Some(i) = self.ranks[rank].to_send.front().copied().filter(|i| self.send(*i)) {
                assert_eq!(self.ranks[rank].to_send.pop_front(), Some(i));
                moved = true;
            }
            while let Some(i) = self.ranks[rank].to_receive.front().copied().filter(|i| self.receive(*i)) {
                assert_eq!(self.ranks[rank].to_receive.pop_front(), Some(i));
                moved = true;
            }
        }
        moved
    }

    /// Runs all ranks until nothing moves any more.
    fn settle(&mut self) {
        let ranks = self.ranks.len();
        loop {
            let mut moved = self.retry();
            for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
                moved |= self.deliver(from, to);
                moved |= self.act(to);
            }
            if !moved {
                return;
            }
        }
    }
}

/// The next event: a choice among messages, ranks or pairs of ranks.
#[derive(Clone, Copy, Debug)]
enum Event {
    Send,
    Receive,
    Deliver(usize),
    Act(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => Just(Event::Send),
        3 => Just(Event::Receive),
        4 => (0..9_usize).prop_map(Event::Deliver),
        3 => (0..3_usize).prop_map(Event::Act),
    ];
    proptest::collection::vec(event, 0..400)
}

fn sizes() -> impl Strategy<Value = Sizes> {
    // Receives in another order than the sends need as many records as the orders differ: here, all.
    let some = (2..=3_usize, 0..=5_u8, 0..=3_usize);
    some.prop_map(|(ranks, credit, headers)| Sizes { ranks, credit, records: 80, headers })
}

fn message_sets(count: usize) -> impl Strategy<Value = Vec<(usize, usize, u32, u32)>> {
    let bytes = prop_oneof![Just(0), Just(1), Just(24), Just(25), Just(LIMIT), Just(LIMIT + 1), 0..200_u32];
    proptest::collection::vec((0..3_usize, 1..3_usize, bytes, any::<u32>()), 0..count)
}

fn world(sizes: Sizes, raw: &[(usize, usize, u32, u32)]) -> SimWorld {
    let message = |(i, (from, ahead, bytes, salt)): (usize, &(usize, usize, u32, u32))| {
        let from = from % sizes.ranks;
        let to = (from + (ahead - 1) % (sizes.ranks - 1) + 1) % sizes.ranks;
        let key = StepKey { context: salt % 3, sequence: salt.wrapping_mul(31), step: i as u32 };
        SentMessage { from, to, key, bytes: *bytes }
    };
    SimWorld::new(sizes, raw.iter().enumerate().map(message).collect())
}

fn all_arrived(world: &SimWorld) -> Result<(), TestCaseError> {
    for (i, message) in world.messages.iter().enumerate() {
        let got = world.ranks[message.to].received.get(&(i as u32));
        prop_assert_eq!(got, Some(&payload(i, message)), "{:?}", message);
    }
    for rank in &world.ranks {
        prop_assert_eq!(rank.steps.in_use(), RecordUsage::default());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Sends and receives are posted in independent orders, with any events in between, and every message matches its
    /// receive.
    #[test]
    fn every_message_finds_its_receive(
        sizes in sizes(),
        raw in message_sets(80),
        sends in any::<u64>(),
        receives in any::<u64>(),
        events in events(),
    ) {
        let mut world = world(sizes, &raw);
        let shuffled = |seed| {
            let mut order: Vec<u32> = (0..raw.len() as u32).collect();
            fastrand::Rng::with_seed(seed).shuffle(&mut order);
            order
        };
        let (mut sends, mut receives) = (shuffled(sends), shuffled(receives));
        for event in events {
            match event {
                Event::Send => if let Some(i) = sends.pop() { prop_assert!(world.send(i)) },
                Event::Receive => if let Some(i) = receives.pop() { prop_assert!(world.receive(i)) },
                Event::Deliver(pair) => { world.deliver(pair / 3 % sizes.ranks, pair % 3 % sizes.ranks); }
                Event::Act(rank) => { world.act(rank % sizes.ranks); }
            }
        }
        for i in sends {
            world.ranks[world.messages[i as usize].from].to_send.push_back(i);
        }
        for i in receives {
            world.ranks[world.messages[i as usize].to].to_receive.push_back(i);
        }
        world.settle();
        all_arrived(&world)?;
    }

    /// With the same order on both sides few records suffice: a caller without a record retries after a completion.
    #[test]
    fn few_records_suffice_where_both_sides_keep_an_order(
        (ranks, credit, records, headers) in (2..=3_usize, 0..=3_u8, 1..=3_usize, 0..=2_usize),
        raw in message_sets(60),
    ) {
        let mut world = world(Sizes { ranks, credit, records, headers }, &raw);
        for (i, message) in world.messages.clone().iter().enumerate() {
            world.ranks[message.from].to_send.push_back(i as u32);
            world.ranks[message.to].to_receive.push_back(i as u32);
        }
        world.settle();
        all_arrived(&world)?;
    }

    /// A rank that only receives stays within its storage, and gets all messages later.
    #[test]
    fn sleeping_rank_stays_within_its_storage(credit in 0..=5_u8, headers in 0..=3_usize, raw in message_sets(80)) {
        let sizes = Sizes { ranks: 2, credit, records: 80, headers };
        let raw: Vec<_> = raw.into_iter().map(|(_, ahead, bytes, salt)| (0, ahead, bytes, salt)).collect();
        let mut world = world(sizes, &raw);
        for i in 0..raw.len() as u32 {
            prop_assert!(world.send(i));
        }
        while world.deliver(0, 1) {}
        let kept = world.ranks[1].steps.in_use();
        prop_assert!(kept.slots <= u32::from(credit) && kept.headers <= headers as u32 && kept.receives == 0);
        world.ranks[1].to_receive.extend((0..raw.len() as u32).rev());
        world.settle();
        all_arrived(&world)?;
    }

    /// No input makes it panic or exceed its storage; its own messages continue.
    #[test]
    fn garbage_changes_no_more_than_the_peer_could(
        messages in proptest::collection::vec((0..4_u32, 10..26_u8, 0..3_u8, proptest::collection::vec(0..4_u8, 0..45), 0..60_u32), 0..200),
    ) {
        let sizes = Sizes { ranks: 3, credit: 2, records: 8, headers: 2 };
        let mut steps = machine(sizes);
        for i in 0..4 {
            let key = StepKey { context: 0, sequence: 0, step: i << 24 };
            let _ = steps.send(PeerId(i % 3), key, (i * 20, 0), i);
            let _ = steps.receive(PeerId(i % 3), key, i * 20, i);
        }
        for (from, kind, credit, mut bytes, more) in messages {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Some(second) = bytes.get_mut(1) {
                *second = credit;
            }
            let length = bytes.len() as u32;
            let shown = bytes.get(..SHOWN).unwrap_or(&bytes);
            match steps.handle(PeerId(from), shown, if shown.len() == SHOWN { length + more } else { length }) {
                Arrival::Keep { slot, bytes, .. } => prop_assert!((slot as usize) < slots(sizes) && bytes <= LIMIT),
                Arrival::Into { user, .. } | Arrival::Place { user, .. } => prop_assert!(user < 4),
                _ => {}
            }
            let in_use = steps.in_use();
            prop_assert!(in_use.slots <= 4 && in_use.headers <= 2 && in_use.sends <= 8 && in_use.receives <= 8);
            prop_assert!((0..50).any(|_| steps.poll_action().is_none()), "actions without end");
        }
        for user in 0..4 {
            steps.cancel_send(user);
            steps.cancel_receive(user);
        }
        (0..3).for_each(|peer| steps.disconnect(PeerId(peer), |_| {}));
        while steps.poll_action().is_some() {}
        prop_assert_eq!(steps.in_use(), RecordUsage::default());
    }
}
