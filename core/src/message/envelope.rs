//! Envelopes, which identify messages, and patterns, which receives and probes match against them.

use super::queues::QueueKey;
use crate::ids::PeerId;

/// A communicator's context: its messages never match receives of another context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Context(pub u32);

/// The sender's tag of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tag(pub u32);

/// A message's matching fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// The communicator.
    pub context: Context,
    /// The sender.
    pub source: PeerId,
    /// The sender's tag.
    pub tag: Tag,
}

/// The matching fields of a receive or a probe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// The communicator.
    pub context: Context,
    /// `None`: any source.
    pub source: Option<PeerId>,
    /// `None`: any tag.
    pub tag: Option<Tag>,
}

/// The bits of a pattern's class.
pub(super) const ANY_TAG: u8 = 1;
pub(super) const ANY_SOURCE: u8 = 2;
/// Number of classes: patterns with both wildcards, one of them, or none.
pub(super) const PATTERNS: u8 = 4;

impl Pattern {
    /// Whether a message matches.
    #[inline]
    pub fn matches(&self, envelope: &Envelope) -> bool {
        self.context == envelope.context
            && self.source.is_none_or(|source| source == envelope.source)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }

    #[inline]
    pub(super) const fn class(&self) -> u8 {
        let any_tag = if self.tag.is_none() { ANY_TAG } else { 0 };
        if self.source.is_none() { any_tag | ANY_SOURCE } else { any_tag }
    }

    #[inline]
    pub(super) fn key(&self) -> QueueKey {
        QueueKey {
            class: self.class(),
            context: self.context.0,
            peer: self.source.map_or(0, |source| source.0),
            tag: self.tag.map_or(0, |tag| tag.0),
        }
    }
}

impl Envelope {
    /// The key of the patterns of a class that match this message.
    #[inline]
    pub(super) const fn key(&self, class: u8) -> QueueKey {
        QueueKey {
            class,
            context: self.context.0,
            peer: if class & ANY_SOURCE == 0 { self.source.0 } else { 0 },
            tag: if class & ANY_TAG == 0 { self.tag.0 } else { 0 },
        }
    }
}
