//! Posted receives and unexpected messages, matched in MPI's order.
//!
//! A message matches the receive that was posted first; a receive matches the unexpected message that was queued first.
//! Queued in the order of sending, messages of one source and context do not overtake each other.
//!
//! # Costs
//! The expected number of instructions depends neither on the number of waiting receives and messages nor on their
//! tags:
//! - an arriving message looks at one queue for each class of pattern (with or without wildcards: four) that some
//!   receive has;
//! - a receive, with wildcards or not, looks at one queue;
//! - an unexpected message enters four queues, one for each class of pattern that may match it, and leaves them when it
//!   is taken. That is the cost of wildcard receives, and unexpected messages pay it;
//! - cancel, probe and matched probe cost as much as a receive.
//!
//! Two queues in one bucket cost one step more for one of them; 4 buckets per record make that rare.

use core::fmt::Debug;
use core::hash::Hash;

use super::envelope::{ANY_TAG, Envelope, PATTERNS, Pattern};
use super::queues::{QueueKey, QueueLink, QueueTable, Queued};
use crate::ids::{MessageId, PeerId, ReceiveId};
use crate::list::{List, NONE};
use crate::pool::Pool;

/// The data stored with a receive or a message.
pub trait RecordData: Copy + Eq + Hash + Debug + Default {}

impl<T: Copy + Eq + Hash + Debug + Default> RecordData for T {}

/// The memory of receives and messages. Records: at most 2³² − 2 of each; buckets: 4 per record suffice, 6 in total are
/// required.
pub trait MatchingStorage<R: RecordData, M: RecordData>: Clone + Eq + Hash + Debug {
    /// Receives that are posted, or matched and not yet freed.
    type Receives: Pool<PostedReceive<R>>;
    /// Messages that are unexpected, or taken and not yet freed.
    type Messages: Pool<Unexpected<M>>;
    /// The buckets of both hash tables.
    type Buckets: Pool<u32>;
}

/// A receive. The fields that every receive uses, and the first 16 bytes of its body, share one cache line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(not(feature = "optimize_for_size"), repr(C, align(64)))]
pub struct PostedReceive<R> {
    pub(super) pattern: Pattern,
    pub(super) waits: bool,
    pub(super) needs_request: bool,
    /// Its link among those of its pattern.
    own: QueueLink,
    /// Counts the receives; never reused.
    pub(super) number: u64,
    pub(super) body: R,
    /// Its link among those that need a match request, or among those from any source.
    other: QueueLink,
}

/// An unexpected message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unexpected<M> {
    pub(super) envelope: Envelope,
    waits: bool,
    is_used: bool,
    generation: u32,
    links: [QueueLink; PATTERNS as usize],
    pub(super) body: M,
}

/// Class of the receives from one source, whatever their tag, that still need a match request there.
const NEEDS_REQUEST: u8 = PATTERNS;
/// Class of all receives from any source.
const ANYWHERE: u8 = NEEDS_REQUEST + 1;
const RECEIVE_CLASSES: u8 = ANYWHERE + 1;

const NOTHING: Pattern = Pattern { context: super::Context(0), source: Some(PeerId(0)), tag: Some(super::Tag(0)) };

impl<R: RecordData> PostedReceive<R> {
    fn free() -> Self {
        Self {
            pattern: NOTHING,
            number: u64::MAX,
            waits: false,
            needs_request: false,
            own: QueueLink::NONE,
            other: QueueLink::NONE,
            body: R::default(),
        }
    }

    pub(super) fn free_link(&mut self) -> &mut u32 {
        &mut self.own.next
    }
}

impl<R: RecordData> Default for PostedReceive<R> {
    fn default() -> Self {
        Self::free()
    }
}

impl<M: RecordData> Default for Unexpected<M> {
    fn default() -> Self {
        let envelope = Envelope { context: super::Context(0), source: PeerId(0), tag: super::Tag(0) };
        let links = [QueueLink::NONE; PATTERNS as usize];
        Self { envelope, waits: false, is_used: false, generation: 0, links, body: M::default() }
    }
}

impl<M: RecordData> Unexpected<M> {
    fn free_link(&mut self) -> &mut u32 {
        let [link, ..] = &mut self.links;
        &mut link.next
    }
}

impl<R> Queued for PostedReceive<R> {
    fn key(&self, class: u8) -> QueueKey {
        match class {
            NEEDS_REQUEST => {
                QueueKey { class, context: 0, peer: self.pattern.source.map_or(NONE, |source| source.0), tag: 0 }
            }
            ANYWHERE => QueueKey { class, context: 0, peer: 0, tag: 0 },
            _ => self.pattern.key(),
        }
    }

    fn link(&self, class: u8) -> &QueueLink {
        if class < PATTERNS { &self.own } else { &self.other }
    }

    fn link_mut(&mut self, class: u8) -> &mut QueueLink {
        if class < PATTERNS { &mut self.own } else { &mut self.other }
    }
}

impl<M> Queued for Unexpected<M> {
    fn key(&self, class: u8) -> QueueKey {
        self.envelope.key(class)
    }

    fn link(&self, class: u8) -> &QueueLink {
        let [exact, any_tag, any_source, any] = &self.links;
        match class {
            0 => exact,
            1 => any_tag,
            2 => any_source,
            _ => any,
        }
    }

    fn link_mut(&mut self, class: u8) -> &mut QueueLink {
        let [exact, any_tag, any_source, any] = &mut self.links;
        match class {
            0 => exact,
            1 => any_tag,
            2 => any_source,
            _ => any,
        }
    }
}

/// Every record is in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Full;

/// Posted receives and unexpected messages.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Matching<S: MatchingStorage<R, M>, R: RecordData, M: RecordData> {
    pub(super) receives: S::Receives,
    pub(super) messages: S::Messages,
    pub(super) posted: QueueTable<S::Buckets, RECEIVE_CLASSES>,
    kept: QueueTable<S::Buckets, PATTERNS>,
    /// Posted receives by the class of their pattern; unexpected messages.
    waiting: [u32; PATTERNS as usize],
    unexpected_count: u32,
    pub(super) posts: u64,
    pub(super) free_receives: List,
    free_messages: List,
}

impl<S: MatchingStorage<R, M>, R: RecordData, M: RecordData> Matching<S, R, M> {
    /// Empty. The first buckets are for receives, the second ones for messages. `None`: too few buckets.
    pub fn new(
        mut receives: S::Receives,
        mut messages: S::Messages,
        [posted, kept]: [S::Buckets; 2],
        seed: u32,
    ) -> Option<Self> {
        receives.as_mut().fill(PostedReceive::default());
        messages.as_mut().fill(Unexpected::default());
        let free_receives = List::of_all(receives.as_mut(), PostedReceive::free_link);
        let free_messages = List::of_all(messages.as_mut(), Unexpected::free_link);
        let (posted, kept) = (QueueTable::new(posted, seed), QueueTable::new(kept, seed));
        let enough = posted.has_buckets() && kept.has_buckets();
        let waiting = [0; PATTERNS as usize];
        enough.then_some(Self {
            receives,
            messages,
            posted,
            kept,
            waiting,
            unexpected_count: 0,
            posts: 0,
            free_receives,
            free_messages,
        })
    }

    /// Posts a receive that matches no unexpected message.
    ///
    /// # Errors
    /// [`Full`].
    pub fn post(&mut self, pattern: Pattern, body: R) -> Result<ReceiveId, Full> {
        self.post_with(pattern, |own| *own = body)
    }

    /// As [`post`](Self::post), where `fill` initializes the default body in place: fields that it does not set are not
    /// written.
    ///
    /// # Errors
    /// [`Full`].
    #[inline]
    pub fn post_with(&mut self, pattern: Pattern, fill: impl FnOnce(&mut R)) -> Result<ReceiveId, Full> {
        let id = self.take_receive_record(pattern, fill)?;
        let receives = self.receives.as_mut();
        if let Some(receive) = receives.get_mut(id.record as usize) {
            receive.waits = true;
        }
        let class = pattern.class();
        self.posted.push(receives, id.record, class);
        if pattern.source.is_none() {
            self.posted.push(receives, id.record, ANYWHERE);
        }
        self.count(class, 1);
        Ok(id)
    }

    /// The first posted receive that matches a message.
    #[inline]
    pub fn first_receive(&self, envelope: &Envelope) -> Option<ReceiveId> {
        let receives = self.receives.as_ref();
        let mut first: Option<ReceiveId> = None;
        for (class, waiting) in (0..PATTERNS).zip(self.waiting) {
            if waiting > 0
                && let Some(record) = self.posted.first(receives, &envelope.key(class))
                && let Some(posted) = receives.get(record as usize)
            {
                let number = posted.number;
                if first.is_none_or(|first| (number < first.number) != mutant!("latest_receive")) {
                    first = Some(ReceiveId { record, number });
                }
            }
        }
        first
    }

    /// Removes the first receive that matches a message, and frees its record: equals
    /// [`first_receive`](Self::first_receive), [`unpost`](Self::unpost) and [`free_receive`](Self::free_receive) if all
    /// posted receives name their source, either all or none of them name the tag, and this one needs no match request.
    /// `None`: there is none, or it takes those three calls. `empty` returns the receive's data and resets its body to
    /// the default, by writing only the fields that differ.
    #[inline]
    pub fn take_first_receive<T>(&mut self, envelope: &Envelope, empty: impl FnOnce(&mut R) -> T) -> Option<T> {
        let class = match self.waiting {
            [_, 0, 0, 0] => 0,
            [0, _, 0, 0] => ANY_TAG,
            _ => return None,
        };
        let receives = self.receives.as_mut();
        let record = self.posted.pop_if(receives, &envelope.key(class), |posted| !posted.needs_request)?;
        self.count(class, u32::MAX);
        let receives = self.receives.as_mut();
        let posted = receives.get_mut(record as usize)?;
        (posted.pattern, posted.number, posted.waits) = (NOTHING, u64::MAX, false);
        let taken = empty(&mut posted.body);
        debug_assert_eq!(*posted, PostedReceive::default(), "as any free record");
        self.free_receives.push_front(receives, record, PostedReceive::free_link);
        Some(taken)
    }

    /// Removes a posted receive, which was matched or cancelled. False: it was not posted.
    pub fn unpost(&mut self, receive: ReceiveId) -> bool {
        let receives = self.receives.as_mut();
        let Some(posted) = receives.get_mut(receive.record as usize) else { return false };
        if posted.number != receive.number || !posted.waits {
            return false;
        }
        posted.waits = false;
        let (class, anywhere, unasked) =
            (posted.pattern.class(), posted.pattern.source.is_none(), posted.needs_request);
        self.posted.remove(receives, receive.record, class);
        if anywhere {
            self.posted.remove(receives, receive.record, ANYWHERE);
        }
        if unasked {
            self.posted.remove(receives, receive.record, NEEDS_REQUEST);
        }
        self.count(class, u32::MAX);
        true
    }

    /// Frees the record of a receive. `None`: it is free already, or still posted.
    pub fn free_receive(&mut self, receive: ReceiveId) -> Option<R> {
        let receives = self.receives.as_mut();
        let posted = receives.get_mut(receive.record as usize)?;
        if posted.number != receive.number || posted.waits {
            return None;
        }
        let body = core::mem::take(posted).body;
        self.free_receives.push_front(receives, receive.record, PostedReceive::free_link);
        Some(body)
    }

    /// The body of a receive that is posted or matched.
    pub fn receive(&self, receive: ReceiveId) -> Option<(&Pattern, &R)> {
        let posted = self.receives.as_ref().get(receive.record as usize)?;
        (posted.number == receive.number).then_some((&posted.pattern, &posted.body))
    }

    /// Queues an unexpected message, which matches no posted receive.
    ///
    /// # Errors
    /// [`Full`].
    pub fn queue_unexpected(&mut self, envelope: Envelope, body: M) -> Result<MessageId, Full> {
        let id = self.take_message_record(envelope, body)?;
        let messages = self.messages.as_mut();
        if let Some(kept) = messages.get_mut(id.record as usize) {
            kept.waits = true;
        }
        self.unexpected_count = self.unexpected_count.wrapping_add(1);
        for class in 0..PATTERNS {
            self.kept.push(messages, id.record, class);
        }
        Ok(id)
    }

    /// The first unexpected message that a receive or a probe matches.
    #[inline]
    pub fn first_message(&self, pattern: &Pattern) -> Option<MessageId> {
        if self.unexpected_count == 0 {
            return None;
        }
        let messages = self.messages.as_ref();
        let record = self.kept.first(messages, &pattern.key())?;
        Some(MessageId { record, generation: messages.get(record as usize)?.generation })
    }

    /// Removes an unexpected message, which was matched or taken by a matched probe. False: it was not queued.
    pub fn take(&mut self, message: MessageId) -> bool {
        let messages = self.messages.as_mut();
        let Some(kept) = messages.get_mut(message.record as usize) else { return false };
        if kept.generation != message.generation || !kept.waits {
            return false;
        }
        kept.waits = false;
        self.unexpected_count = self.unexpected_count.wrapping_sub(1);
        for class in 0..PATTERNS {
            self.kept.remove(messages, message.record, class);
        }
        true
    }

    /// Frees the record of a message. `None`: it is free already, or still queued.
    pub fn free_message(&mut self, message: MessageId) -> Option<M> {
        let messages = self.messages.as_mut();
        let kept = messages.get_mut(message.record as usize)?;
        if kept.generation != message.generation || !kept.is_used || kept.waits {
            return None;
        }
        let generation = kept.generation.wrapping_add(1);
        let body = core::mem::replace(kept, Unexpected { generation, ..Unexpected::default() }).body;
        self.free_messages.push_front(messages, message.record, Unexpected::free_link);
        Some(body)
    }

    /// The body of a message that is queued or taken.
    pub fn message(&self, message: MessageId) -> Option<(&Envelope, &M)> {
        let kept = self.messages.as_ref().get(message.record as usize)?;
        (kept.generation == message.generation && kept.is_used).then_some((&kept.envelope, &kept.body))
    }

    /// Whether the message is taken and not yet freed.
    pub(super) fn is_taken(&self, message: MessageId) -> bool {
        let kept = self.messages.as_ref().get(message.record as usize);
        kept.is_some_and(|kept| kept.generation == message.generation && kept.is_used && !kept.waits)
    }

    /// The message in a record, if there is one.
    pub(super) fn message_of(&self, record: u32) -> Option<MessageId> {
        let kept = self.messages.as_ref().get(record as usize).filter(|kept| kept.is_used)?;
        Some(MessageId { record, generation: kept.generation })
    }

    /// The pattern of a posted receive.
    pub(super) fn awaited(&self, receive: ReceiveId) -> Option<Pattern> {
        let posted = self.receives.as_ref().get(receive.record as usize)?;
        (posted.number == receive.number && posted.waits).then_some(posted.pattern)
    }

    /// Whether no receive is posted.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.waiting == [0; PATTERNS as usize]
    }

    /// Takes a record for a receive that is not posted. `fill` initializes its default body.
    #[inline]
    pub(super) fn take_receive_record(
        &mut self,
        pattern: Pattern,
        fill: impl FnOnce(&mut R),
    ) -> Result<ReceiveId, Full> {
        let receives = self.receives.as_mut();
        let record = self.free_receives.pop(receives, PostedReceive::free_link).ok_or(Full)?;
        let number = self.posts;
        self.posts = number.wrapping_add(1);
        if let Some(receive) = receives.get_mut(record as usize) {
            // A free record equals the default, except for its link.
            (receive.pattern, receive.number) = (pattern, number);
            fill(&mut receive.body);
        }
        Ok(ReceiveId { record, number })
    }

    /// Takes a record for a message that is not queued.
    pub(super) fn take_message_record(&mut self, envelope: Envelope, body: M) -> Result<MessageId, Full> {
        let messages = self.messages.as_mut();
        let record = self.free_messages.pop(messages, Unexpected::free_link).ok_or(Full)?;
        let kept = messages.get_mut(record as usize).ok_or(Full)?;
        *kept = Unexpected { envelope, body, is_used: true, generation: kept.generation, ..Unexpected::default() };
        Ok(MessageId { record, generation: kept.generation })
    }

    /// Sets whether a receive from one source needs a match request there.
    pub(super) fn set_needs_request(&mut self, receive: ReceiveId, unasked: bool) {
        let receives = self.receives.as_mut();
        let Some(posted) = receives.get_mut(receive.record as usize) else { return };
        if posted.number != receive.number || !posted.waits || posted.needs_request == unasked {
            return;
        }
        posted.needs_request = unasked;
        if unasked {
            self.posted.push(receives, receive.record, NEEDS_REQUEST);
        } else {
            self.posted.remove(receives, receive.record, NEEDS_REQUEST);
        }
    }

    /// Clears the need for match requests to one source of all its receives. Amortised O(1).
    pub(super) fn clear_needs_request(&mut self, source: PeerId) {
        let key = QueueKey { class: NEEDS_REQUEST, context: 0, peer: source.0, tag: 0 };
        while let Some(record) = self.posted.first(self.receives.as_ref(), &key) {
            let Some(number) = self.receives.as_ref().get(record as usize).map(|posted| posted.number) else { return };
            self.set_needs_request(ReceiveId { record, number }, false);
        }
    }

    /// The first receive that needs a match request at `source`; of the receives from any source, the first whose
    /// number is not below `cursor`, found by a walk over them.
    pub(super) fn first_needing_request(&self, source: PeerId, cursor: u64) -> Option<ReceiveId> {
        let receives = self.receives.as_ref();
        let id = |record: u32| Some(ReceiveId { record, number: receives.get(record as usize)?.number });
        let own = QueueKey { class: NEEDS_REQUEST, context: 0, peer: source.0, tag: 0 };
        let own = self.posted.first(receives, &own).and_then(id);
        let first = self.posted.first(receives, &QueueKey { class: ANYWHERE, context: 0, peer: 0, tag: 0 });
        let last = first.and_then(|first| QueueTable::<S::Buckets, RECEIVE_CLASSES>::last(receives, first, ANYWHERE));
        if last.and_then(id).is_none_or(|last| last.number < cursor) {
            return own;
        }
        let next = |record: &u32| QueueTable::<S::Buckets, RECEIVE_CLASSES>::next(receives, *record, ANYWHERE);
        let all = core::iter::successors(first, next).take(receives.len()).filter_map(id);
        let anywhere = all.into_iter().find(|receive| receive.number >= cursor);
        own.into_iter().chain(anywhere).min_by_key(|receive| receive.number)
    }

    /// Numbers of posted receives and of unexpected messages.
    pub(super) fn waiting_counts(&self) -> [u32; 2] {
        [self.waiting.iter().fold(0, |sum: u32, count| sum.wrapping_add(*count)), self.unexpected_count]
    }

    fn count(&mut self, class: u8, by: u32) {
        if let Some(waiting) = self.waiting.get_mut(usize::from(class)) {
            *waiting = waiting.wrapping_add(by);
        }
    }
}
