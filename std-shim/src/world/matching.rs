//! Messages to receives: by source and tag, in the order of sending.
//!
//! A message that fits one datagram travels eagerly. A longer one is announced; the receive that it matches grants memory
//! under a one-use key; the sender places it there.
//!
//! The head of a message, little-endian:
//! ```text
//! +--------+--------+--------+--------+
//! |  what  |            0             |  0: eager, 1: announce, 2: grant, 3: truncated; 8: ask, 9: gone; from 16 on: steps
//! +--------+--------+--------+--------+
//! |       tag, or the sender's id     |  gone: the rank because of which
//! +-----------------------------------+
//! |  announce: sender's id; grant: placement   (eager: payload)
//! +-----------------------------------+
//! |  announce: bytes (64 bits); grant: key (64 bits)
//! +-----------------------------------+
//! ```

use alloc::collections::VecDeque;
use core::cell::RefCell;

use unisono_core::counters::{Counters, Happened};
use unisono_core::device::{Memory, PeerId};
use unisono_core::endpoint::{Above, Verdict};
use unisono_core::message::steps::head::Kind;
use unisono_core::placement::{Key, PlacementId};
use unisono_core::span::{Region, Span};

use super::collective::table::Collectives;
use super::near::Announced;
use super::request::{Failure, Requests, Status, Tag};
use crate::rank::Rank;
use crate::region::{Address, Regions};

/// Bytes before an eager message's payload.
pub(super) const EAGER_HEAD: usize = 8;

const EAGER: u8 = 0;
const ANNOUNCE: u8 = 1;
const GRANT: u8 = 2;
const TRUNCATED: u8 = 3;

/// The table of regions as the endpoint's drive and the messages above it both use it.
#[derive(Debug)]
pub(super) struct SharedRegions<'a>(pub(super) &'a RefCell<Regions>);

impl Memory for SharedRegions<'_> {
    type Address = Address;

    fn address(&self, span: Span) -> Option<Address> {
        self.0.borrow().address(span)
    }
}

/// A receive that waits for its message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    /// `None`: any.
    pub(super) source: Option<PeerId>,
    /// `None`: any.
    pub(super) tag: Option<Tag>,
    pub(super) into: Span,
    pub(super) request: u32,
}

impl Posted {
    const NONE: Self =
        Self { source: None, tag: None, into: Span { region: Region::new(0, 0), offset: 0, bytes: 0 }, request: 0 };

    fn matches(&self, from: PeerId, tag: Tag) -> bool {
        self.source.is_none_or(|source| source == from) && self.tag.is_none_or(|own| own == tag)
    }
}

/// A message that came before its receive.
#[derive(Debug)]
struct Unexpected {
    from: PeerId,
    tag: Tag,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// It stood in the datagram's head.
    Short(Vec<u8>),
    /// It lies in memory of the table.
    Kept(Span),
    Announced {
        sending: u32,
        bytes: u64,
    },
    /// Through the ring of a rank of this node.
    Near(Announced),
}

/// What is to be done once the endpoint is free again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Errand {
    /// Grant memory for an announced message.
    Grant { to: PeerId, sending: u32, into: Span, request: u32, tag: Tag },
    /// Say that an announced message is too long.
    Refuse { to: PeerId, sending: u32 },
    /// Copy what a rank of this node announced.
    Fetch { from: PeerId, message: Announced, into: Span, fetched: u32, request: u32, tag: Tag },
    /// The peer granted memory for a message of ours.
    Place { to: PeerId, sending: u32, placement: PlacementId, key: Key },
    /// The peer's receive is too short for a message of ours.
    Truncated { to: PeerId, sending: u32 },
}

/// Receives and messages that have not met.
#[derive(Debug)]
pub(super) struct Matching {
    pub(super) posted: VecDeque<Posted>,
    unexpected: VecDeque<Unexpected>,
    pub(super) errands: VecDeque<Errand>,
}

impl Matching {
    pub(super) const fn new() -> Self {
        Self { posted: VecDeque::new(), unexpected: VecDeque::new(), errands: VecDeque::new() }
    }

    /// A receive: takes the first message that waits for it, or waits itself.
    #[inline]
    pub(super) fn post(&mut self, receive: Posted, regions: &RefCell<Regions>, requests: &mut Requests) {
        let first = self.unexpected.iter().position(|message| receive.matches(message.from, message.tag));
        let Some(message) = first.and_then(|i| self.unexpected.remove(i)) else {
            return self.wait(&receive);
        };
        let (from, tag) = (message.from, message.tag);
        match message.body {
            Body::Short(bytes) => {
                let to = regions.borrow().address(receive.into);
                if let Some(to) = to {
                    // SAFETY: the receive's buffer is lent to this request and to nobody else.
                    unsafe { to.write(&bytes) };
                }
                requests.finish(receive.request, outcome(from, tag, bytes.len() as u64, receive.into));
            }
            Body::Kept(span) => {
                let mut regions = regions.borrow_mut();
                if let (Some(source), Some(to)) = (regions.address(span), regions.address(receive.into)) {
                    let bytes = source.bytes().min(to.bytes());
                    // SAFETY: both regions live; the source is memory of the table that nobody else names, the target is
                    // lent to this request: they do not overlap.
                    unsafe { to.start().copy_from_nonoverlapping(source.start(), bytes) };
                }
                // SAFETY: the device placed it before the message was seen; nobody else knows the region.
                unsafe { regions.free(span.region) };
                requests.finish(receive.request, outcome(from, tag, u64::from(span.bytes), receive.into));
            }
            Body::Announced { sending, bytes } => self.answer(from, tag, sending, bytes, receive, requests),
            Body::Near(message) => self.fetch(from, tag, message, receive, requests),
        }
    }

    /// Appended part by part, for the reason that [`take_first_posted`](Self::take_first_posted) states.
    #[inline(always)]
    fn wait(&mut self, receive: &Posted) {
        self.posted.push_back(Posted::NONE);
        if let Some(place) = self.posted.back_mut() {
            place.source = receive.source;
            place.tag = receive.tag;
            place.into.region = receive.into.region;
            place.into.offset = receive.into.offset;
            place.into.bytes = receive.into.bytes;
            place.request = receive.request;
        }
    }

    /// An announced message has met its receive.
    fn answer(&mut self, to: PeerId, tag: Tag, sending: u32, bytes: u64, receive: Posted, requests: &mut Requests) {
        if bytes > u64::from(receive.into.bytes) {
            self.errands.push_back(Errand::Refuse { to, sending });
            requests.finish(receive.request, outcome(to, tag, bytes, receive.into));
            return;
        }
        let into = receive.into.part(0, bytes as u32);
        self.errands.push_back(Errand::Grant { to, sending, into, request: receive.request, tag });
    }

    /// A rank of this node announces a message.
    pub(super) fn announce_near(&mut self, from: PeerId, tag: Tag, message: Announced, requests: &mut Requests) {
        match self.take_posted(from, tag) {
            Some(receive) => self.fetch(from, tag, message, receive, requests),
            None => self.unexpected.push_back(Unexpected { from, tag, body: Body::Near(message) }),
        }
    }

    fn fetch(&mut self, from: PeerId, tag: Tag, message: Announced, receive: Posted, requests: &mut Requests) {
        if message.bytes > receive.into.bytes {
            self.errands.push_back(Errand::Refuse { to: from, sending: message.sending });
            requests.finish(receive.request, outcome(from, tag, message.bytes.into(), receive.into));
            return;
        }
        let (into, request) = (receive.into.part(0, message.bytes), receive.request);
        self.errands.push_back(Errand::Fetch { from, message, into, fetched: 0, request, tag });
    }

    /// A message that came before its receive.
    pub(super) fn keep(&mut self, from: PeerId, tag: Tag, bytes: Vec<u8>) {
        self.unexpected.push_back(Unexpected { from, tag, body: Body::Short(bytes) });
    }

    /// Whether nothing waits for anything.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.posted.is_empty() && self.unexpected.is_empty()
    }

    /// The first receive that a message matches.
    pub(super) fn take_posted(&mut self, from: PeerId, tag: Tag) -> Option<Posted> {
        let first = self.posted.iter().position(|receive| receive.matches(from, tag))?;
        self.posted.remove(first)
    }

    /// Where the message that is the first receive's goes, and for which request. Read where it stands: the whole of it, just
    /// written in parts, would stall the processor.
    #[inline(always)]
    fn take_first_posted(&mut self, from: PeerId, tag: Tag) -> Option<(Span, u32)> {
        let first = self.posted.front().filter(|receive| receive.matches(from, tag))?;
        let (into, request) = (first.into, first.request);
        self.posted.pop_front();
        Some((into, request))
    }

    /// Forgets what only `peer` can bring about, now that it is gone. Returns the requests that end with it: its own, and
    /// where `anyone` says so, receives from anyone.
    pub(super) fn lose(&mut self, peer: PeerId, anyone: bool) -> Vec<u32> {
        let mut ended = Vec::new();
        self.posted.retain(|posted| {
            let ends = posted.source.map_or(anyone, |source| source == peer);
            if ends {
                ended.push(posted.request);
            }
            !ends
        });
        self.unexpected
            .retain(|message| message.from != peer || !matches!(message.body, Body::Announced { .. } | Body::Near(_)));
        self.errands.retain(|errand| {
            let (Errand::Grant { to, .. }
            | Errand::Fetch { from: to, .. }
            | Errand::Refuse { to, .. }
            | Errand::Place { to, .. }
            | Errand::Truncated { to, .. }) = errand;
            if let Errand::Grant { request, .. } | Errand::Fetch { request, .. } = errand
                && *to == peer
            {
                ended.push(*request);
            }
            *to != peer
        });
        ended
    }

    /// An eager message from this process to itself.
    pub(super) fn deliver_own(
        &mut self,
        own: PeerId,
        tag: Tag,
        payload: &[u8],
        regions: &RefCell<Regions>,
        requests: &mut Requests,
    ) {
        match self.take_posted(own, tag) {
            Some(receive) => {
                if let Some(to) = regions.borrow().address(receive.into) {
                    // SAFETY: the receive's buffer is lent to this request; `payload` is borrowed by the caller, so the two
                    // do not overlap.
                    unsafe { to.write(payload) };
                }
                requests.finish(receive.request, outcome(own, tag, payload.len() as u64, receive.into));
            }
            None => self.unexpected.push_back(Unexpected { from: own, tag, body: Body::Short(payload.to_vec()) }),
        }
    }
}

/// How a receive ends whose message has arrived.
pub(super) fn outcome(from: PeerId, tag: Tag, bytes: u64, into: Span) -> Result<Status, Failure> {
    if bytes > u64::from(into.bytes) {
        return Err(Failure::Truncated { bytes });
    }
    Ok(Status { source: Rank(from.0), tag, bytes: bytes as usize })
}

/// What lies above the endpoint while it is driven.
pub(super) struct Mail<'a> {
    pub(super) matching: &'a mut Matching,
    pub(super) requests: &'a mut Requests,
    pub(super) regions: &'a RefCell<Regions>,
    pub(super) counters: &'a mut Counters,
    pub(super) collectives: &'a mut Collectives,
}

impl Above for Mail<'_> {
    #[inline(always)]
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        if head.first().is_some_and(|what| *what >= Kind::FIRST) {
            return self.collectives.handle(from, head, bytes, self.requests, self.regions);
        }
        // What is too short for its kind comes from no process of ours: nothing to be done.
        let Some((Some(what), Some(second))) = head.first().map(|what| (Some(*what), word(head, 4))) else {
            return Verdict::Release;
        };
        match what {
            EAGER => self.take_eager(from, Tag(second), head, bytes),
            ANNOUNCE => {
                let (Some(sending), Some(low), Some(high)) = (word(head, 8), word(head, 12), word(head, 16)) else {
                    return Verdict::Release;
                };
                let (tag, bytes) = (Tag(second), u64::from(high) << 32 | u64::from(low));
                match self.matching.take_posted(from, tag) {
                    Some(receive) => self.matching.answer(from, tag, sending, bytes, receive, self.requests),
                    None => {
                        let body = Body::Announced { sending, bytes };
                        self.matching.unexpected.push_back(Unexpected { from, tag, body });
                    }
                }
                Verdict::Release
            }
            GRANT => {
                if let (Some(placement), Some(low), Some(high)) = (word(head, 8), word(head, 12), word(head, 16)) {
                    let (placement, key) = (PlacementId(placement), Key(u64::from(high) << 32 | u64::from(low)));
                    self.matching.errands.push_back(Errand::Place { to: from, sending: second, placement, key });
                }
                Verdict::Release
            }
            TRUNCATED => {
                self.matching.errands.push_back(Errand::Truncated { to: from, sending: second });
                Verdict::Release
            }
            _ => Verdict::Release,
        }
    }

    fn saw(&mut self, what: Happened) {
        self.counters.count(what);
    }
}

impl Mail<'_> {
    #[inline(always)]
    fn take_eager(&mut self, from: PeerId, tag: Tag, head: &[u8], bytes: u32) -> Verdict {
        let length = bytes.saturating_sub(EAGER_HEAD as u32);
        let first = self.matching.take_first_posted(from, tag);
        let first = match first {
            None => self.matching.take_posted(from, tag).map(|receive| (receive.into, receive.request)),
            first => first,
        };
        if let Some((into, request)) = first {
            self.requests.finish(request, outcome(from, tag, u64::from(length), into));
            return Verdict::Place { to: into.part(0, length), start: EAGER_HEAD as u16 };
        }
        let shown = head.get(EAGER_HEAD..).unwrap_or_default();
        if shown.len() >= length as usize {
            let short = shown.get(..length as usize).unwrap_or_default();
            let body = Body::Short(short.to_vec());
            self.matching.unexpected.push_back(Unexpected { from, tag, body });
            return Verdict::Release;
        }
        let Ok(region) = self.regions.borrow_mut().allocate(length as usize) else { return Verdict::Release };
        let to = Span { region, offset: 0, bytes: length };
        self.matching.unexpected.push_back(Unexpected { from, tag, body: Body::Kept(to) });
        Verdict::Place { to, start: EAGER_HEAD as u16 }
    }
}

fn word(head: &[u8], at: usize) -> Option<u32> {
    head.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn message(words: [u32; 5]) -> [u8; 20] {
    let mut head = [0; 20];
    for (into, word) in head.chunks_exact_mut(4).zip(words) {
        into.copy_from_slice(&word.to_le_bytes());
    }
    head
}

/// The head of an eager message.
pub(super) fn eager_head(tag: Tag) -> [u8; EAGER_HEAD] {
    let mut head = [0; EAGER_HEAD];
    head[0] = EAGER;
    head[4..].copy_from_slice(&tag.0.to_le_bytes());
    head
}

/// Announces a message of `bytes` bytes.
pub(super) fn announcement(tag: Tag, sending: u32, bytes: u64) -> [u8; 20] {
    message([u32::from(ANNOUNCE), tag.0, sending, bytes as u32, (bytes >> 32) as u32])
}

/// Grants memory for the message `sending`.
pub(super) fn grant(sending: u32, placement: PlacementId, key: Key) -> [u8; 20] {
    message([u32::from(GRANT), sending, placement.0, key.0 as u32, (key.0 >> 32) as u32])
}

/// Says that the receive for the message `sending` is too short.
pub(super) fn truncation(sending: u32) -> [u8; 20] {
    message([u32::from(TRUNCATED), sending, 0, 0, 0])
}
