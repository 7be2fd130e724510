//! Encoding of message payloads: little-endian numbers, texts and addresses; byte strings have 16-bit lengths and
//! bounds.

use super::{
    ballot::{Name, RANGES_MAX, Ranks, WORDS_MAX},
    entry::{ADDRESS, Digests, Ending, Entry, Incarnation, address_from_bytes, address_to_bytes},
};
use crate::rank::Rank;
use core::net::SocketAddr;

/// Longest host identity and longest reason, in bytes.
pub(super) const TEXT_MAX: usize = 512;

/// Builds a payload.
#[derive(Default, Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn flag(&mut self, value: bool) -> &mut Self {
        self.0.push(u8::from(value));
        self
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
        self
    }

    /// The length is at most [`VALUE_MAX`], which callers ensure.
    pub(super) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend(value.iter().take(usize::from(length)));
        self
    }

    /// Cut to [`TEXT_MAX`] bytes.
    pub(super) fn text(&mut self, value: &str) -> &mut Self {
        let end = value.floor_char_boundary(TEXT_MAX);
        self.bytes(value.get(..end).unwrap_or_default().as_bytes())
    }

    pub(super) fn addresses(&mut self, lanes: &[SocketAddr; 2]) -> &mut Self {
        for lane in lanes {
            self.0.extend_from_slice(&address_to_bytes(*lane));
        }
        self
    }

    pub(super) fn name(&mut self, name: &Name) -> &mut Self {
        self.u32(name.first.0).u32(name.context).u32(name.generation).u32(name.round)
    }

    pub(super) fn ranks(&mut self, ranks: &Ranks) -> &mut Self {
        let ranges = ranks.0.iter().take(RANGES_MAX);
        ranges.fold(self.u32(ranks.0.len().min(RANGES_MAX) as u32), |out, (first, count)| out.u32(*first).u32(*count))
    }

    /// At most [`WORDS_MAX`].
    pub(super) fn words(&mut self, words: &[u64]) -> &mut Self {
        self.u32(words.len().min(WORDS_MAX) as u32);
        words.iter().take(WORDS_MAX).for_each(|word| self.0.extend_from_slice(&word.to_le_bytes()));
        self
    }

    pub(super) fn digests(&mut self, digests: Digests) -> &mut Self {
        self.u32(digests.tuning).u32(digests.transport)
    }

    pub(super) fn entry(&mut self, entry: &Entry) -> &mut Self {
        self.u32(entry.incarnation.0).u32(entry.node).u32(entry.mtu).addresses(&entry.lanes).digests(entry.digests)
    }

    pub(super) fn ending(&mut self, ending: Ending) -> &mut Self {
        let (kind, number) = match ending {
            Ending::Exited(code) => (0, code),
            Ending::Signalled(signal) => (1, signal),
            Ending::NotStarted => (2, 0),
            Ending::Disconnected => (3, 0),
            Ending::NodeLost => (4, 0),
            Ending::Replaced => (5, 0),
        };
        self.u32(kind).i32(number)
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Parses a payload: every method returns `None` if the next bytes are not valid.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(payload: &'a [u8]) -> Self {
        Self(payload)
    }

    /// The unread bytes.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn rank(&mut self) -> Option<Rank> {
        self.u32().map(Rank)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.array()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    /// The outer `None` means malformed, the inner one absent.
    pub(super) fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }

    pub(super) fn bytes(&mut self, limit: usize) -> Option<Vec<u8>> {
        let length = usize::from(self.array().map(u16::from_le_bytes)?);
        let (taken, rest) = self.0.split_at_checked(length).filter(|_| length <= limit)?;
        self.0 = rest;
        Some(taken.to_vec())
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes(TEXT_MAX)?).ok()
    }

    pub(super) fn addresses(&mut self) -> Option<[SocketAddr; 2]> {
        let (polled, interrupt) = (self.array::<ADDRESS>()?, self.array::<ADDRESS>()?);
        Some([address_from_bytes(polled), address_from_bytes(interrupt)])
    }

    pub(super) fn name(&mut self) -> Option<Name> {
        let (first, context) = (self.rank()?, self.u32()?);
        Some(Name { first, context, generation: self.u32()?, round: self.u32()? })
    }

    pub(super) fn ranks(&mut self) -> Option<Ranks> {
        let count = usize::try_from(self.u32()?).ok().filter(|count| *count <= RANGES_MAX)?;
        (0..count).map(|_| Some((self.u32()?, self.u32()?))).collect::<Option<_>>().map(Ranks)
    }

    pub(super) fn words(&mut self) -> Option<Vec<u64>> {
        let count = usize::try_from(self.u32()?).ok().filter(|count| *count <= WORDS_MAX)?;
        (0..count).map(|_| self.array().map(u64::from_le_bytes)).collect()
    }

    pub(super) fn digests(&mut self) -> Option<Digests> {
        Some(Digests { tuning: self.u32()?, transport: self.u32()? })
    }

    pub(super) fn entry(&mut self) -> Option<Entry> {
        let (incarnation, node, mtu) = (Incarnation(self.u32()?), self.u32()?, self.u32()?);
        Some(Entry { incarnation, node, mtu, lanes: self.addresses()?, digests: self.digests()? })
    }

    pub(super) fn ending(&mut self) -> Option<Ending> {
        Some(match (self.u32()?, self.i32()?) {
            (0, code) => Ending::Exited(code),
            (1, signal) => Ending::Signalled(signal),
            (2, 0) => Ending::NotStarted,
            (3, 0) => Ending::Disconnected,
            (4, 0) => Ending::NodeLost,
            (5, 0) => Ending::Replaced,
            _ => return None,
        })
    }
}
