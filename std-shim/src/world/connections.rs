//! The reliable connections of a process: which peers have one, and the messages by which both ends agree on it.
//!
//! An end is made when an operation first asks for it, and offered to the peer, which makes its own and answers with an
//! offer. Offers that cross are each other's answers. Until then, and wherever there is no connection, operations go by
//! datagrams: a connection is never waited for.
//!
//! At most `limit` ends exist (Mamidala, dissertation 2008, §8.1: the limit trades speed for memory). Where all are in
//! use, a demand closes the one that was unused for longest, if that is [`IDLE`] or more: its peer completes what it has
//! outstanding, drops its end, and confirms. An end with a failed operation is dropped when all that is outstanding has
//! failed, too. Its peer is notified first, and ends its own: otherwise a packet that was delayed could still write there
//! after the operation was executed in another way. A peer whose offer is refused, or whose connection failed, is offered
//! no other one for [`REST`].
//!
//! Messages of one peer arrive once and in order.

use unisono_core::ids::PeerId;

/// Bytes of an end's address.
pub(super) const ADDRESS: usize = 26;
/// Nanoseconds for which a connection is unused before another one may take its place.
const IDLE: u64 = 100_000_000;
/// Nanoseconds after a failure or a refusal in which no offer is made.
const REST: u64 = 1_000_000_000;

/// First bytes of the messages, which no other message of a process has.
pub(super) const FIRST: u8 = 96;
pub(super) const LAST: u8 = 99;
const OFFER: u8 = FIRST;
const CLOSE: u8 = 97;
const CLOSED: u8 = 98;
const BROKEN: u8 = LAST;
/// Their length: kind 1, unused 3, number 4, address.
const BYTES: usize = 8 + ADDRESS;

/// A message about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionMessage {
    /// The sender has an end of this number, at this address. Answers an offer, unless the receiver's own offer has
    /// arrived before.
    Offer(u32, [u8; ADDRESS]),
    /// The sender wants to drop its end of this number, which is idle.
    Close(u32),
    /// The sender has no end that is connected to the receiver's of this number.
    Closed(u32),
    /// The sender's end of this number has failed.
    Broken(u32),
}

impl ConnectionMessage {
    pub(super) fn to_bytes(self) -> [u8; BYTES] {
        let (kind, number, address) = match self {
            Self::Offer(number, address) => (OFFER, number, address),
            Self::Close(number) => (CLOSE, number, [0; ADDRESS]),
            Self::Closed(number) => (CLOSED, number, [0; ADDRESS]),
            Self::Broken(number) => (BROKEN, number, [0; ADDRESS]),
        };
        let mut bytes = [0; BYTES];
        let all = [kind, 0, 0, 0].into_iter().chain(number.to_be_bytes()).chain(address);
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Reads a message. `None`: the bytes are none.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[kind, ..], rest) = bytes.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk()?;
        let number = u32::from_be_bytes(*number);
        match kind {
            OFFER => Some(Self::Offer(number, *rest.first_chunk()?)),
            CLOSE => Some(Self::Close(number)),
            CLOSED => Some(Self::Closed(number)),
            BROKEN => Some(Self::Broken(number)),
            _ => None,
        }
    }
}

/// One end of a connection, which dropping destroys.
pub(super) trait ConnectionEnd {
    /// Its number, unique in this process.
    fn number(&self) -> u32;
    /// What the peer has to know.
    fn address(&self) -> [u8; ADDRESS];
    /// Connects it to the peer's end. Returns whether that is possible.
    fn connect(&self, to: &[u8; ADDRESS]) -> bool;
    /// Makes all outstanding operations fail.
    fn fail(&self);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The peer has not answered.
    Offered,
    /// Connected to the peer's end of this number.
    Ready(u32),
    /// Idle; the peer has not confirmed that it is to be dropped.
    Closing(u32),
    /// The peer wants to drop its end of this number, and waits for what is outstanding here.
    Draining(u32),
    /// An operation has failed; what is outstanding will fail.
    Failed,
}

#[derive(Debug)]
struct Connection<E> {
    peer: PeerId,
    end: E,
    stage: Stage,
    /// Operations that were posted and have not ended.
    outstanding: u32,
    /// When it was last used, or began to close.
    used: u64,
}

/// The connections of a process.
#[derive(Debug)]
pub(super) struct Connections<E> {
    entries: Vec<Connection<E>>,
    limit: usize,
    /// Peers that are offered no connection before these times.
    resting: Vec<(PeerId, u64)>,
    /// Messages to send, in order.
    pub(super) outbox: Vec<(PeerId, ConnectionMessage)>,
}

impl<E: ConnectionEnd> Connections<E> {
    /// Without connections; of at most `limit` at a time.
    pub(super) const fn new(limit: usize) -> Self {
        Self { entries: Vec::new(), limit, resting: Vec::new(), outbox: Vec::new() }
    }

    /// The end that is connected to a peer. Without one, an end is made and offered, if that is possible now.
    pub(super) fn demand(&mut self, now: u64, peer: PeerId, make: impl FnOnce() -> Option<E>) -> Option<&E> {
        match self.position(peer) {
            Some(i) => {
                let connection = self.entries.get_mut(i).filter(|one| matches!(one.stage, Stage::Ready(_)))?;
                connection.used = now;
                Some(&connection.end)
            }
            None => {
                self.resting.retain(|(_, until)| now < *until);
                let rests = self.resting.iter().any(|(resting, _)| *resting == peer);
                if !rests && self.has_room(now) {
                    match make() {
                        None => self.resting.push((peer, now.saturating_add(REST))),
                        Some(end) => {
                            self.outbox.push((peer, ConnectionMessage::Offer(end.number(), end.address())));
                            let stage = Stage::Offered;
                            self.entries.push(Connection { peer, end, stage, outstanding: 0, used: now });
                        }
                    }
                }
                None
            }
        }
    }

    /// The end that is connected to a peer.
    pub(super) fn connected(&self, peer: PeerId) -> Option<&E> {
        let connection = self.entries.get(self.position(peer)?)?;
        matches!(connection.stage, Stage::Ready(_)).then_some(&connection.end)
    }

    /// An operation was posted to the end of this peer.
    pub(super) fn record_posted(&mut self, peer: PeerId) {
        if let Some(i) = self.position(peer)
            && let Some(connection) = self.entries.get_mut(i)
        {
            connection.outstanding += 1;
        }
    }

    /// An operation of the end with this number has ended, or failed.
    pub(super) fn handle_completed(&mut self, now: u64, number: u32, is_ok: bool) {
        let Some(i) = self.entries.iter().position(|one| one.end.number() == number) else { return };
        if !is_ok {
            self.fail(now, i);
        }
        let Some(connection) = self.entries.get_mut(i) else { return };
        connection.outstanding = connection.outstanding.saturating_sub(1);
        match connection.stage {
            _ if connection.outstanding > 0 => return,
            Stage::Draining(theirs) => self.outbox.push((connection.peer, ConnectionMessage::Closed(theirs))),
            Stage::Failed => {}
            Stage::Offered | Stage::Ready(_) | Stage::Closing(_) => return,
        }
        self.entries.swap_remove(i);
    }

    /// Handles a message of a peer.
    pub(super) fn handle(
        &mut self,
        now: u64,
        from: PeerId,
        message: ConnectionMessage,
        make: impl FnOnce() -> Option<E>,
    ) {
        match message {
            ConnectionMessage::Offer(theirs, address) => self.handle_offer(now, from, (theirs, &address), make),
            ConnectionMessage::Close(theirs) => self.handle_close(from, theirs),
            ConnectionMessage::Closed(own) => self.handle_closed(now, from, own),
            ConnectionMessage::Broken(theirs) => self.handle_broken(now, from, theirs),
        }
    }

    fn handle_offer(
        &mut self,
        now: u64,
        from: PeerId,
        (theirs, address): (u32, &[u8; ADDRESS]),
        make: impl FnOnce() -> Option<E>,
    ) {
        let refusal = (from, ConnectionMessage::Closed(theirs));
        if let Some(i) = self.position(from) {
            match self.entries.get_mut(i) {
                Some(connection) if connection.stage != Stage::Offered => self.outbox.push(refusal),
                Some(connection) if connection.end.connect(address) => connection.stage = Stage::Ready(theirs),
                _ => {
                    self.entries.swap_remove(i);
                    self.resting.push((from, now.saturating_add(REST)));
                    self.outbox.push(refusal);
                }
            }
        } else if self.has_room(now)
            && let Some(end) = make().filter(|end| end.connect(address))
        {
            self.outbox.push((from, ConnectionMessage::Offer(end.number(), end.address())));
            let stage = Stage::Ready(theirs);
            self.entries.push(Connection { peer: from, end, stage, outstanding: 0, used: now });
        } else {
            self.outbox.push(refusal);
        }
    }

    fn handle_close(&mut self, from: PeerId, theirs: u32) {
        let i = self.position(from).filter(|i| {
            let stage = self.entries.get(*i).map(|one| one.stage);
            matches!(stage, Some(Stage::Ready(number) | Stage::Closing(number)) if number == theirs)
        });
        let Some(i) = i else {
            // That connection is gone here.
            return self.outbox.push((from, ConnectionMessage::Closed(theirs)));
        };
        match self.entries.get_mut(i) {
            Some(connection) if connection.outstanding > 0 => connection.stage = Stage::Draining(theirs),
            _ => {
                self.entries.swap_remove(i);
                self.outbox.push((from, ConnectionMessage::Closed(theirs)));
            }
        }
    }

    fn handle_closed(&mut self, now: u64, from: PeerId, own: u32) {
        let Some(i) = self.position(from) else { return };
        let Some(connection) = self.entries.get(i).filter(|one| one.end.number() == own) else { return };
        match connection.stage {
            Stage::Offered => self.resting.push((from, now.saturating_add(REST))),
            Stage::Closing(_) => {}
            Stage::Ready(_) | Stage::Draining(_) | Stage::Failed => return,
        }
        self.entries.swap_remove(i);
    }

    fn handle_broken(&mut self, now: u64, from: PeerId, theirs: u32) {
        let is_it = |one: &Connection<E>| {
            let (Stage::Ready(number) | Stage::Closing(number)) = one.stage else {
                return false;
            };
            one.peer == from && number == theirs
        };
        if let Some(i) = self.entries.iter().position(is_it) {
            self.end(i);
            self.resting.push((from, now.saturating_add(REST)));
        }
    }

    /// Operations are outstanding with a peer: they are to fail.
    pub(super) fn abort(&mut self, now: u64, peer: PeerId) {
        if let Some(i) = self.position(peer).filter(|i| self.entries.get(*i).is_some_and(|one| one.outstanding > 0)) {
            self.fail(now, i);
        }
    }

    /// Drops the end of a peer, whatever is outstanding there.
    pub(super) fn drop_end(&mut self, peer: PeerId) {
        if let Some(i) = self.position(peer) {
            self.entries.swap_remove(i);
        }
    }

    /// Makes all that is outstanding fail, and notifies the peer.
    fn fail(&mut self, now: u64, i: usize) {
        if let Some(connection) = self.entries.get_mut(i)
            && connection.fail()
        {
            let (peer, number) = (connection.peer, connection.end.number());
            self.outbox.push((peer, ConnectionMessage::Broken(number)));
            self.resting.push((peer, now.saturating_add(REST)));
        }
    }

    /// A peer has failed or finished: no message reaches it.
    pub(super) fn disconnect(&mut self, peer: PeerId) {
        self.outbox.retain(|(to, _)| *to != peer);
        self.resting.retain(|(resting, _)| *resting != peer);
        if let Some(i) = self.position(peer) {
            self.end(i);
        }
    }

    /// Drops an end, or fails it and drops it when all that is outstanding has failed.
    fn end(&mut self, i: usize) {
        match self.entries.get_mut(i) {
            Some(connection) if connection.outstanding > 0 => _ = connection.fail(),
            _ => _ = self.entries.swap_remove(i),
        }
    }

    fn position(&self, peer: PeerId) -> Option<usize> {
        self.entries.iter().position(|one| one.peer == peer)
    }

    /// Whether another end may be made now. If not, closes the one that was unused for longest.
    fn has_room(&mut self, now: u64) -> bool {
        if self.entries.len() < self.limit {
            return true;
        }
        let is_recent = |one: &Connection<E>| now.saturating_sub(one.used) < IDLE;
        if self.entries.iter().any(|one| matches!(one.stage, Stage::Closing(_)) && is_recent(one)) {
            return false;
        }
        let is_idle =
            |one: &&mut Connection<E>| one.outstanding == 0 && matches!(one.stage, Stage::Ready(_)) && !is_recent(one);
        if let Some(oldest) = self.entries.iter_mut().filter(is_idle).min_by_key(|one| one.used)
            && let Stage::Ready(theirs) = oldest.stage
        {
            (oldest.stage, oldest.used) = (Stage::Closing(theirs), now);
            let (peer, own) = (oldest.peer, oldest.end.number());
            self.outbox.push((peer, ConnectionMessage::Close(own)));
        }
        false
    }
}

impl<E: ConnectionEnd> Connection<E> {
    /// Makes all that is outstanding fail. Returns whether it had not failed before.
    fn fail(&mut self) -> bool {
        let is_first = self.stage != Stage::Failed;
        if is_first {
            self.stage = Stage::Failed;
            self.end.fail();
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;

    use alloc::collections::VecDeque;
    use alloc::rc::Rc;
    use proptest::prelude::*;

    use super::*;

    const SIZE: usize = 3;

    /// All ends: where each is connected to, and whether it has failed.
    type Ends = Rc<RefCell<Vec<Option<(Option<u32>, bool)>>>>;

    struct FakeEnd {
        number: u32,
        all: Ends,
    }

    impl FakeEnd {
        fn new(all: &Ends) -> Self {
            all.borrow_mut().push(Some((None, false)));
            Self { number: all.borrow().len() as u32 - 1, all: Rc::clone(all) }
        }
    }

    impl ConnectionEnd for FakeEnd {
        fn number(&self) -> u32 {
            self.number
        }

        fn address(&self) -> [u8; ADDRESS] {
            let mut address = [0; ADDRESS];
            address[..4].copy_from_slice(&self.number.to_be_bytes());
            address
        }

        fn connect(&self, to: &[u8; ADDRESS]) -> bool {
            let to = u32::from_be_bytes(*to.first_chunk().expect("a number"));
            let mut all = self.all.borrow_mut();
            let (connected, _) = all[self.number as usize].as_mut().expect("a live end");
            assert_eq!(connected.replace(to), None, "an end is connected once");
            true
        }

        fn fail(&self) {
            self.all.borrow_mut()[self.number as usize].as_mut().expect("a live end").1 = true;
        }
    }

    impl Drop for FakeEnd {
        fn drop(&mut self) {
            self.all.borrow_mut()[self.number as usize] = None;
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Demand(usize, usize),
        Deliver(usize, usize),
        /// An operation ends; as it must, or with a failure.
        Complete(usize, bool),
        /// A rank aborts what is outstanding with another one; perhaps the adapter does not end it.
        Abort(usize, usize, bool),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let rank = || 0..SIZE;
        prop_oneof![
            4 => (rank(), rank()).prop_map(|(from, to)| Step::Demand(from, to)),
            4 => (rank(), rank()).prop_map(|(from, to)| Step::Deliver(from, to)),
            2 => (0..8_usize, prop::bool::weighted(0.2)).prop_map(|(which, fails)| Step::Complete(which, fails)),
            1 => prop::sample::select(vec![1, IDLE, REST]).prop_map(Step::Wait),
            1 => (rank(), rank(), any::<bool>()).prop_map(|(from, to, hangs)| Step::Abort(from, to, hangs)),
        ]
    }

    struct Network {
        now: u64,
        ends: Ends,
        ranks: Vec<Connections<FakeEnd>>,
        /// Messages on their way, by sender and receiver.
        links: Vec<Vec<VecDeque<ConnectionMessage>>>,
        /// Rank, and number of its end.
        operations: Vec<(usize, u32)>,
        limit: usize,
    }

    impl Network {
        fn new(limit: usize) -> Self {
            let ranks = (0..SIZE).map(|_| Connections::new(limit)).collect();
            let links = vec![vec![VecDeque::new(); SIZE]; SIZE];
            Self { now: 0, ends: Ends::default(), ranks, links, operations: Vec::new(), limit }
        }

        fn send(&mut self, from: usize) {
            for (to, message) in core::mem::take(&mut self.ranks[from].outbox) {
                let read = ConnectionMessage::from_bytes(&message.to_bytes());
                self.links[from][to.0 as usize].push_back(read.expect("a message"));
            }
            assert!(self.ranks[from].entries.len() <= self.limit);
        }

        fn demand(&mut self, from: usize, to: usize) -> bool {
            if from == to {
                return false;
            }
            let (ends, peer) = (Rc::clone(&self.ends), PeerId(to as u32));
            let found = self.ranks[from].demand(self.now, peer, || Some(FakeEnd::new(&ends))).map(|end| end.number);
            assert_eq!(self.ranks[from].connected(peer).map(|end| end.number), found);
            if let Some(number) = found {
                self.ranks[from].record_posted(peer);
                self.operations.push((from, number));
            }
            self.send(from);
            found.is_some()
        }

        fn deliver(&mut self, from: usize, to: usize) -> bool {
            let Some(message) = self.links[from][to].pop_front() else { return false };
            let ends = Rc::clone(&self.ends);
            self.ranks[to].handle(self.now, PeerId(from as u32), message, || Some(FakeEnd::new(&ends)));
            if let ConnectionMessage::Broken(number) = message {
                let is_open = |end: &(Option<u32>, bool)| *end == (Some(number), false);
                assert!(!ends.borrow().iter().flatten().any(is_open), "nothing from a broken end is accepted");
            }
            self.send(to);
            true
        }

        /// An operation succeeds if both ends are connected to each other, and no failure is wanted.
        fn complete(&mut self, which: usize, fails: bool) -> bool {
            if self.operations.is_empty() {
                return false;
            }
            let (rank, number) = self.operations.swap_remove(which % self.operations.len());
            let is_ok = {
                let all = self.ends.borrow();
                let (to, has_failed) = all[number as usize].expect("an end lives as long as its operations");
                let back = all[to.expect("an end with an operation is connected") as usize];
                !fails
                    && !has_failed
                    && back.is_some_and(|(back, failed)| back.is_none_or(|to| to == number) && !failed)
            };
            self.ranks[rank].handle_completed(self.now, number, is_ok);
            self.send(rank);
            true
        }

        /// The operations end before anything else happens, since they are waited for.
        fn abort(&mut self, from: usize, to: usize, hangs: bool) {
            let peer = PeerId(to as u32);
            let end = self.ranks[from].entries.iter().find(|one| one.peer == peer).map(|one| one.end.number);
            let is_its = |(rank, number): &(usize, u32)| *rank == from && Some(*number) == end;
            if !self.operations.iter().any(is_its) {
                return;
            }
            self.ranks[from].abort(self.now, peer);
            self.send(from);
            if hangs {
                self.operations.retain(|operation| !is_its(operation));
                self.ranks[from].drop_end(peer);
            }
            while let Some(which) = self.operations.iter().position(is_its) {
                assert!(self.complete(which, true));
            }
            assert!(self.ranks[from].entries.iter().all(|one| one.peer != peer));
        }

        /// Until nothing is on its way.
        fn settle(&mut self) {
            loop {
                let mut moved = self.complete(0, false);
                for (from, to) in (0..SIZE).flat_map(|from| (0..SIZE).map(move |to| (from, to))) {
                    moved |= self.deliver(from, to);
                }
                if !moved {
                    return;
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Whatever happens, ends do not exceed the limit, both ends of a connection know each other when nothing is on
        /// its way, no other ends are left, and a later demand is met.
        #[test]
        fn both_ends_agree(limit in 1..=2_usize, steps in prop::collection::vec(step(), 0..80)) {
            let mut network = Network::new(limit);
            for step in steps {
                match step {
                    Step::Demand(from, to) => _ = network.demand(from, to),
                    Step::Deliver(from, to) => _ = network.deliver(from, to),
                    Step::Complete(which, fails) => _ = network.complete(which, fails),
                    Step::Wait(time) => network.now += time,
                    Step::Abort(from, to, hangs) => network.abort(from, to, hangs),
                }
            }
            network.settle();
            for (rank, connections) in network.ranks.iter().enumerate() {
                for one in &connections.entries {
                    let Stage::Ready(theirs) = one.stage else { panic!("{rank}: {:?}", one.stage) };
                    let back = network.ranks[one.peer.0 as usize].entries.iter().find(|back| back.end.number == theirs);
                    prop_assert_eq!(back.map(|back| back.stage), Some(Stage::Ready(one.end.number)));
                }
            }
            let met = (0..8).any(|_| {
                network.now += REST;
                let is_met = network.demand(0, 1);
                network.settle();
                is_met
            });
            prop_assert!(met, "a demand is met at last");
        }
    }

    #[test]
    fn offers_that_cross_connect() {
        let mut network = Network::new(1);
        assert!(!network.demand(0, 1) && !network.demand(1, 0));
        network.settle();
        assert!(network.demand(0, 1) && network.demand(1, 0));
        assert_eq!(network.ends.borrow().len(), 2);
    }

    #[test]
    fn unused_connection_gives_way_when_what_its_peer_does_is_done() {
        let mut network = Network::new(1);
        network.demand(0, 1);
        network.settle();
        assert!(network.demand(1, 0));
        network.now += IDLE;
        // Rank 1 has an operation outstanding on the connection that rank 0 closes.
        assert!(!network.demand(0, 2) && network.deliver(0, 1));
        assert!(!network.deliver(1, 0) && !network.demand(1, 0), "it is not dropped yet, nor used");
        network.settle();
        assert!(!network.demand(0, 2));
        network.settle();
        assert!(network.demand(0, 2));
    }

    #[test]
    fn peer_that_is_gone_leaves_no_end() {
        let mut network = Network::new(2);
        network.demand(0, 1);
        network.demand(0, 2);
        network.settle();
        assert!(network.demand(0, 1));
        for peer in [1, 2] {
            network.ranks[0].disconnect(PeerId(peer));
        }
        assert_eq!(network.ranks[0].entries.len(), 1);
        network.complete(0, false);
        assert!(network.ranks[0].entries.is_empty());
    }

    #[test]
    fn other_bytes_are_no_message() {
        let offer = ConnectionMessage::Offer(7, [1; ADDRESS]).to_bytes();
        assert_eq!(ConnectionMessage::from_bytes(&offer[..BYTES - 1]), None);
        assert_eq!(ConnectionMessage::from_bytes(&offer[..7]), None);
        assert_eq!(ConnectionMessage::from_bytes(&[FIRST - 1; BYTES]), None);
        assert_eq!(ConnectionMessage::from_bytes(&[LAST + 1; BYTES]), None);
    }
}
