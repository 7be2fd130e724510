//! What a message is known by, and what a receive asks for.

use super::queues::Key;
use crate::ids::PeerId;

/// Who belongs to a communicator, and to no other: its messages never meet receives of another context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Context(pub u32);

/// What the sender calls a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tag(pub u32);

/// What a message is known by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// The communicator.
    pub context: Context,
    /// The sender.
    pub source: PeerId,
    /// What it calls the message.
    pub tag: Tag,
}

/// What a receive or a probe asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// The communicator.
    pub context: Context,
    /// `None`: any.
    pub source: Option<PeerId>,
    /// `None`: any.
    pub tag: Option<Tag>,
}

/// Bits of a pattern's class.
pub(super) const ANY_TAG: u8 = 1;
pub(super) const ANY_SOURCE: u8 = 2;
/// Classes of patterns: each has both wildcards, one, or none.
pub(super) const PATTERNS: u8 = 4;

impl Pattern {
    /// Whether a message is what is asked for.
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
    pub(super) fn key(&self) -> Key {
        Key {
            class: self.class(),
            context: self.context.0,
            peer: self.source.map_or(0, |source| source.0),
            tag: self.tag.map_or(0, |tag| tag.0),
        }
    }
}

impl Envelope {
    /// That of the patterns of a class which this message matches.
    #[inline]
    pub(super) const fn key(&self, class: u8) -> Key {
        Key {
            class,
            context: self.context.0,
            peer: if class & ANY_SOURCE == 0 { self.source.0 } else { 0 },
            tag: if class & ANY_TAG == 0 { self.tag.0 } else { 0 },
        }
    }
}
