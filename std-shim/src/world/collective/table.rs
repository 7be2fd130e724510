//! All collectives of a process that are under way over messages, and the machine that knows their messages.

use alloc::collections::VecDeque;
use core::cell::RefCell;

use unisono_core::collective::{Cause, CollectiveId, Rank as Member, StepId, Verb};
use unisono_core::device::PeerId;
use unisono_core::endpoint::Verdict;
use unisono_core::message::steps::head::{Kind, named};
use unisono_core::message::steps::{Arrival, Entry, Key, Peer, Pools, Steps};
use unisono_core::placement;
use unisono_core::placement::PlacementId;
use unisono_core::schedule::Operation;
use unisono_core::span::Span as Bytes;

use super::CollectiveError;
use super::running::{Running, What};
use super::schedule::Choices;
use super::store::{Kept, Store};
use super::transfer::{Holder, Transfers};
use crate::rank::Rank;
use crate::region::Regions;
use crate::world::near::Announced;
use crate::world::request::{Requests, Status, Tag, of_message};
use crate::world::watchdog::{Doing, Means, Question, Standing, Stuck, Subject, Watch};

/// Bytes of the longest message that may come before its receive.
pub(in crate::world) const EAGER_MOST: usize = 1 << 14;
/// Eager messages of a peer that may come before their receives; fewer in large jobs.
const CREDIT: u32 = 16;
/// Slots for those of all peers, in large jobs.
const SLOTS: u32 = 1 << 16;
/// Messages that may be announced, and receives that may wait; more wait outside.
const WAITING: usize = 1024;
/// Headers that may come before their receives; more are asked for again.
const HEADERS: usize = 1024;

/// A message that is about to leave through the endpoint.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Outgoing {
    pub(in crate::world) to: PeerId,
    pub(in crate::world) head: [u8; unisono_core::wire::MESSAGE_HEAD],
    pub(in crate::world) length: usize,
    pub(in crate::world) payload: Option<Bytes>,
    pub(in crate::world) ends: Ends,
}

impl Outgoing {
    /// A head without anything behind it.
    pub(in crate::world) fn new(to: PeerId, bytes: &[u8]) -> Self {
        let mut outgoing = Self { to, head: [0; _], length: 0, payload: None, ends: Ends::Nothing };
        outgoing.append(bytes);
        outgoing
    }

    /// Bytes behind the head, as many as fit.
    pub(in crate::world) fn append(&mut self, bytes: &[u8]) {
        let room = self.head.get_mut(self.length..).unwrap_or_default();
        let length = room.len().min(bytes.len());
        for (into, byte) in room.iter_mut().zip(bytes) {
            *into = *byte;
        }
        self.length += length;
    }
}

/// What ends with a message that has left.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum Ends {
    Nothing,
    /// The use of a cell of the slab.
    Cell(crate::world::small::Cell),
    /// A transfer.
    Transfer(u32),
    /// A use of a parcel.
    Parcel(u32),
    /// A request.
    Request(u32),
}

/// What went wrong with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct Blame {
    pub(in crate::world) peer: PeerId,
    pub(in crate::world) cause: Cause,
}

/// A collective that a peer has begun and this rank has not: what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ahead {
    peer: PeerId,
    sequence: u32,
    context: u32,
}

/// A rank that takes no part in collectives any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct Gone {
    pub(in crate::world) peer: PeerId,
    /// The rank because of which.
    pub(in crate::world) cause: Member,
    /// It hears nothing any more, and what it said is not kept.
    pub(in crate::world) is_dead: bool,
}

/// The table.
pub(in crate::world) struct Collectives {
    pub(in crate::world) steps: Steps<Box<[Peer]>, Box<[Entry]>>,
    pub(in crate::world) running: Vec<Option<Running>>,
    pub(in crate::world) transfers: Transfers,
    pub(in crate::world) store: Store,
    pub(in crate::world) choices: Choices,
    /// Memory of the machine's slots, since they were first used.
    slots: Vec<Option<Kept>>,
    /// Collectives to be looked at.
    pub(in crate::world) ready: VecDeque<u32>,
    /// Steps that found the machine full.
    pub(in crate::world) stalled: VecDeque<(u32, StepId, Operation)>,
    /// Messages that found the endpoint full.
    pub(in crate::world) outbox: VecDeque<Outgoing>,
    /// Announced messages that were granted.
    pub(in crate::world) granted: VecDeque<(u32, PlacementId, placement::Key)>,
    /// Receives whose messages are to be granted.
    pub(in crate::world) grants: VecDeque<(PeerId, u32, Key)>,
    /// What ranks of this node announced.
    pub(in crate::world) announced: Vec<(PeerId, Key, Announced)>,
    ahead: Vec<Ahead>,
    pub(in crate::world) blames: Vec<Blame>,
    /// Ranks that have just asked.
    pub(in crate::world) asking: Vec<PeerId>,
    pub(in crate::world) gone: Vec<Gone>,
    /// Those that this is not yet known of.
    pub(in crate::world) leaving: Vec<Gone>,
    /// Ranks that want to hear when this one takes no part any more, and whom this one has asked for that.
    pub(in crate::world) askers: Vec<PeerId>,
    pub(in crate::world) asked: Vec<PeerId>,
    /// The last collective that was begun.
    pub(in crate::world) last: What,
    /// Why no further one will succeed.
    pub(in crate::world) failed: Option<CollectiveError>,
    /// This rank takes no part any more, because of that one.
    pub(in crate::world) over: Option<Member>,
    /// Who waits for whom for too long.
    pub(in crate::world) watch: Watch,
    /// Something has happened since the table was last looked at.
    pub(in crate::world) has_news: bool,
}

impl Collectives {
    /// None yet. `limit` says how long a message to a peer may be that comes before its receive.
    pub(in crate::world) fn new(size: u32, choices: Choices, limit: impl Fn(PeerId) -> u32) -> Self {
        let credit = SLOTS.checked_div(size).unwrap_or(SLOTS).clamp(2, CREDIT);
        let entries = |count: usize| vec![Entry::FREE; count].into_boxed_slice();
        let slots = (credit * size.saturating_sub(1)) as usize;
        let pools = Pools {
            peers: (0..size).map(|peer| Peer::new(limit(PeerId(peer)))).collect(),
            sends: entries(WAITING),
            receives: entries(WAITING),
            slots: entries(slots),
            headers: entries(HEADERS),
        };
        let steps = match Steps::new(credit as u8, pools) {
            Ok(steps) => steps,
            Err(_) => unreachable!("as many slots as credit"),
        };
        Self {
            steps,
            running: Vec::new(),
            transfers: Transfers::default(),
            store: Store::new(),
            choices,
            slots: vec![None; slots],
            ready: VecDeque::new(),
            stalled: VecDeque::new(),
            outbox: VecDeque::new(),
            granted: VecDeque::new(),
            grants: VecDeque::new(),
            announced: Vec::new(),
            ahead: Vec::new(),
            blames: Vec::new(),
            asking: Vec::new(),
            last: What { id: CollectiveId { context: 0, sequence: 0 }, verb: Verb::Barrier },
            gone: Vec::new(),
            leaving: Vec::new(),
            askers: Vec::new(),
            asked: Vec::new(),
            failed: None,
            over: None,
            watch: Watch::default(),
            has_news: false,
        }
    }

    /// A message of a collective: what is to be done with it.
    pub(in crate::world) fn handle(
        &mut self,
        from: PeerId,
        head: &[u8],
        bytes: u32,
        requests: &mut Requests,
        regions: &RefCell<Regions>,
    ) -> Verdict {
        self.has_news = true;
        if let Some(question) = Question::read(head) {
            self.watch.heard.push((from, question));
            return Verdict::Release;
        }
        self.compare(from, head);
        match self.steps.handle(from, head, bytes) {
            Arrival::Into { user, start } => {
                let to = self.place(user, &mut regions.borrow_mut());
                let Some(to) = to else { return self.blame(from, Cause::Corrupt) };
                requests.finish(of_message(user), Ok(Status { source: from.into(), tag: Tag(0), bytes: 0 }));
                Verdict::Place { to, start }
            }
            Arrival::Keep { slot, start, bytes } => match self.slot(slot, &mut regions.borrow_mut()) {
                Some(kept) => Verdict::Place { to: kept.part(bytes), start },
                None => Verdict::Release,
            },
            Arrival::Place { user, placement, key } => {
                // What goes through a ring is fetched instead, or asked for there.
                if self.transfers.get(user).is_some_and(|transfer| transfer.holder == Holder::Steps) {
                    self.granted.push_back((user, placement, key));
                }
                Verdict::Release
            }
            Arrival::Disagrees { .. } => self.blame(from, Cause::Disagrees),
            Arrival::Nonsense => self.blame(from, Cause::Corrupt),
            // Who refuses has failed, and says why when it is asked.
            Arrival::Refused { .. } | Arrival::Nothing => Verdict::Release,
        }
    }

    pub(in crate::world) fn blame(&mut self, peer: PeerId, cause: Cause) -> Verdict {
        self.has_news = true;
        self.blames.push(Blame { peer, cause });
        Verdict::Release
    }

    /// What a rank of this node says of a message that it announces. False: it has announced more than any rank can.
    pub(in crate::world) fn note_announced(&mut self, from: PeerId, key: Key, message: Announced) -> bool {
        self.announced.retain(|(other, of, _)| (*other, *of) != (from, key));
        let so_far = self.announced.iter().filter(|(other, ..)| *other == from).count();
        self.announced.push((from, key, message));
        so_far < WAITING
    }

    /// Where a transfer's bytes lie, or come to lie.
    pub(in crate::world) fn place(&mut self, transfer: u32, regions: &mut Regions) -> Option<Bytes> {
        let transfer = self.transfers.get_mut(transfer)?;
        if transfer.place.is_none() {
            let kept = self.store.take(transfer.bytes as usize, regions)?;
            transfer.staging = Some(kept);
            transfer.place = Some(kept.part(transfer.bytes));
        }
        transfer.place
    }

    /// The memory of a slot of the machine.
    pub(in crate::world) fn slot(&mut self, slot: u32, regions: &mut Regions) -> Option<Kept> {
        let place = self.slots.get_mut(slot as usize)?;
        if place.is_none() {
            *place = self.store.take(EAGER_MOST, regions);
        }
        *place
    }

    /// Whether a peer does the same as this rank, as far as its message tells.
    fn compare(&mut self, from: PeerId, head: &[u8]) {
        let Some((Kind::Eager | Kind::Announce, Key { context, sequence, .. })) = named(head) else { return };
        if self.failed.is_some() {
            return;
        }
        if sequence.wrapping_sub(self.last.id.sequence).cast_signed() > 0 {
            let ahead = Ahead { peer: from, sequence, context };
            if self.ahead.iter().filter(|other| other.peer == from).count() > WAITING + CREDIT as usize {
                // No rank has so many messages on the way.
                self.blame(from, Cause::Corrupt);
            } else if !self.ahead.contains(&ahead) {
                self.ahead.push(ahead);
            }
            return;
        }
        let same = |running: &Running| running.executor.id().sequence == sequence && running.context == context;
        if !self.running.iter().flatten().any(same) {
            self.blame(from, Cause::Disagrees);
        }
    }

    /// One that is to be started. Returns its place in the table.
    pub(in crate::world) fn insert(&mut self, running: Running) -> u32 {
        let place = self.running.iter().position(Option::is_none).unwrap_or(self.running.len());
        if place == self.running.len() {
            self.running.push(None);
        }
        if let Some(free) = self.running.get_mut(place) {
            *free = Some(running);
        }
        place as u32
    }

    /// A collective that is not under way begins, as the next one.
    pub(in crate::world) fn start(&mut self, now: u64, place: u32) {
        let Self { running, last, ahead, blames, gone, .. } = self;
        let Some(running) = running.get_mut(place as usize).and_then(Option::as_mut) else { return };
        let sequence = last.id.sequence.wrapping_add(1);
        running.executor.restart(CollectiveId { sequence, ..running.executor.id() });
        (running.since, running.waited, running.ended) = (now, None, None);
        *last = running.what();
        ahead.retain(|ahead| {
            if ahead.sequence == sequence && ahead.context != running.context {
                blames.push(Blame { peer: ahead.peer, cause: Cause::Disagrees });
            }
            ahead.sequence != sequence
        });
        for gone in gone.iter().filter(|gone| gone.is_dead) {
            running.executor.handle_failed(Member(gone.peer.0));
        }
        self.list(place);
    }

    /// It is to be looked at.
    pub(in crate::world) fn list(&mut self, collective: u32) {
        self.has_news = true;
        if let Some(running) = self.get_mut(collective)
            && !running.is_listed
        {
            running.is_listed = true;
            self.ready.push_back(collective);
        }
    }

    pub(in crate::world) fn get_mut(&mut self, collective: u32) -> Option<&mut Running> {
        self.running.get_mut(collective as usize)?.as_mut()
    }

    /// A rank asks to be told when this one takes no part any more.
    pub(in crate::world) fn handle_ask(&mut self, from: PeerId) {
        self.has_news = true;
        self.asking.push(from);
    }

    /// A rank takes no part any more. What it said before counts first.
    pub(in crate::world) fn handle_gone(&mut self, gone: Gone) {
        self.has_news = true;
        self.leaving.push(gone);
    }

    /// A rank is gone. Returns whether a message waits for it that it has no part in: what it had to say has been heard.
    pub(in crate::world) fn lose(&mut self, gone: Gone) -> bool {
        match self.gone.iter_mut().find(|known| known.peer == gone.peer) {
            // Why it left in the first place is what counts.
            Some(known) => known.is_dead |= gone.is_dead,
            None => self.gone.push(gone),
        }
        if !gone.is_dead {
            return self.transfers.waits_for(gone.peer);
        }
        self.steps.lose(gone.peer, |_| {});
        self.announced.retain(|(from, ..)| *from != gone.peer);
        self.grants.retain(|(to, ..)| *to != gone.peer);
        self.ahead.retain(|ahead| ahead.peer != gone.peer);
        self.askers.retain(|asker| *asker != gone.peer);
        for place in 0..self.running.len() as u32 {
            if let Some(running) = self.get_mut(place).filter(|running| running.ended.is_none()) {
                running.executor.handle_failed(Member(gone.peer.0));
                self.list(place);
            }
        }
        false
    }

    /// Whether a rank takes no part any more.
    pub(in crate::world) fn is_gone(&self, peer: PeerId) -> bool {
        self.gone.iter().any(|gone| gone.peer == peer)
    }

    /// Whose fault it is that a rank is missing.
    pub(in crate::world) fn cause(&self, rank: Member, own: Rank) -> Member {
        let gone = self.gone.iter().find(|gone| gone.peer.0 == rank.0);
        gone.map(|gone| gone.cause).filter(|cause| cause.0 != own.0).unwrap_or(rank)
    }

    /// Ranks that collectives wait for.
    pub(in crate::world) fn awaited(&self) -> impl Iterator<Item = (PeerId, u64)> {
        let pending = self.running.iter().flatten().filter(|running| running.ended.is_none());
        pending.filter_map(|running| Some((PeerId(running.executor.awaited()?.0), running.since)))
    }

    /// Those that a thread waits for.
    pub(in crate::world) fn waited_for(&self) -> impl Iterator<Item = Stuck> {
        let pending = self.running.iter().flatten().filter(|running| running.ended.is_none());
        pending.filter_map(|running| {
            let What { id, verb } = running.what();
            let subject = Subject { means: Means::Messages, context: running.context, sequence: id.sequence };
            let awaited = running.executor.partners().map(|rank| Rank(rank.0)).collect();
            Some(Stuck { subject, verb, since: running.waited?, awaited })
        })
    }

    /// Where this rank stands in a collective over messages; `None`: it has not begun it.
    pub(in crate::world) fn standing(&self, subject: Subject) -> Option<Standing> {
        let same = |running: &&Running| {
            let what = Subject { context: running.context, ..subject };
            running.executor.id().sequence == subject.sequence && what.communicator() == subject.communicator()
        };
        match self.running.iter().flatten().find(same) {
            Some(running) if running.ended.is_some() => Some(Standing::Done),
            Some(running) if running.context == subject.context => {
                Some(Standing::entered(running.executor.partners().map(|rank| Rank(rank.0))))
            }
            Some(running) => {
                let (communicator, What { id, verb }) = (subject.communicator(), running.what());
                Some(Standing::Absent(Doing::Collective { verb, communicator, sequence: id.sequence }))
            }
            None => {
                let is_over = self.last.id.sequence.wrapping_sub(subject.sequence).cast_signed() >= 0;
                is_over.then_some(Standing::Done)
            }
        }
    }

    /// Whether nothing waits to leave.
    pub(in crate::world) fn is_flushed(&self) -> bool {
        self.outbox.is_empty() && self.stalled.is_empty() && self.granted.is_empty()
    }

    /// What remains of a collective's transfers once it has failed: those that only the machine knows, or a grant, end; the
    /// others will, and nobody waits for them. Returns the grants.
    pub(in crate::world) fn orphan(&mut self, collective: u32, regions: &mut Regions) -> Vec<PlacementId> {
        let mut placements = Vec::new();
        for i in self.transfers.of(collective) {
            let Some(transfer) = self.transfers.get_mut(i) else { continue };
            transfer.collective = None;
            if transfer.holder == Holder::Carrier && !transfer.is_receive {
                // What is on its way is sent as it was: the carrier would not get on without it.
                continue;
            }
            transfer.place = None;
            if let Some(kept) = transfer.staging.take() {
                self.store.end(kept, regions);
            }
            match transfer.holder {
                Holder::Steps => {
                    self.steps.forget(i);
                    self.granted.retain(|(user, ..)| *user != i);
                    self.grants.retain(|(_, user, _)| *user != i);
                    self.transfers.take(i);
                }
                Holder::Grant(placement) => {
                    placements.push(placement);
                    self.transfers.take(i);
                }
                Holder::Announced | Holder::Carrier => {}
            }
        }
        self.stalled.retain(|(of, ..)| *of != collective);
        placements
    }
}
