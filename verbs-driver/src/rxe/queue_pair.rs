//! The queues of a queue pair together.

use unisono_core::device::Lane;

use super::entry::{Completion, FLAGS, INLINE, RECEIVE, SOLICITED, Send, piece, receive, send_room};
use super::path::Path;
use super::ring::{Consumer, Producer, Shape};
use crate::order::{Seam, UNIT, Unit};
use crate::raw::{Data, Fate, Got, Origin, Payload, QueuePair};

/// Pieces of a datagram: head and payload.
const PIECES: usize = 2;

/// How the queues of a queue pair lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Of the send queue.
    pub send: Shape,
    /// Of its completion queue.
    pub sent: Shape,
    /// Of the receive queue.
    pub receive: Shape,
    /// Of its completion queue.
    pub received: Shape,
}

/// A queue pair's queues: what is sent and received is put in by us, what is completed taken out.
#[derive(Debug)]
pub struct Queues<S, R, C> {
    send: Producer<S>,
    receive: Producer<R>,
    sent: Consumer<R>,
    received: Consumer<C>,
    /// The entry that was posted last, until it is signalled.
    last: Option<Send>,
    /// Tags of the last posting, and of the last that is done.
    posted: u32,
    done: u32,
}

impl<S: Seam, R: Seam, C: Seam> Queues<S, R, C> {
    /// Fresh queues. The doorbells of `send` and `received` are calls. `None`: something has another size, or is too small.
    pub fn new(sizes: Sizes, send: S, sent: R, receive: R, received: C) -> Option<Self> {
        let fits = send_room(sizes.send.entry) >= PIECES * UNIT && sizes.receive.entry >= RECEIVE + UNIT;
        let completions = sizes.sent.count >= 2 * sizes.send.count && sizes.received.count >= 2 * sizes.receive.count;
        if !fits || !completions {
            return None;
        }
        Some(Self {
            send: Producer::new(send, sizes.send)?,
            receive: Producer::new(receive, sizes.receive)?,
            sent: Consumer::new(sent, sizes.sent)?,
            received: Consumer::new(received, sizes.received)?,
            last: None,
            posted: 0,
            done: 0,
        })
    }

    /// Most bytes that an entry has room for inline.
    pub const fn inline_max(&self) -> usize {
        send_room(self.send.shape().entry)
    }
}

impl<S: Seam, R: Seam, C: Seam> QueuePair for Queues<S, R, C> {
    type Path = Path;

    fn receive_entries(&self) -> usize {
        self.receive.shape().count as usize - 1
    }

    fn has_room(&mut self, inline: usize) -> bool {
        inline <= self.inline_max() && self.send.has_room()
    }

    fn is_idle(&self) -> bool {
        self.posted == self.done
    }

    fn post(&mut self, (path, lane): (&Path, Lane), payload: Payload<'_>, solicited: bool, tag: u32) -> bool {
        let [polled, interrupt] = path.qpns;
        let qpn = if lane == Lane::Polled { polled } else { interrupt };
        let mut flags = if solicited { SOLICITED } else { 0 };
        let (length, pieces) = match payload {
            Payload::Gather(data) => {
                let data = data.iter().filter(|data| data.bytes > 0);
                data.fold((0, 0), |(length, pieces), data| (data.bytes.saturating_add(length), pieces + 1))
            }
            Payload::Inline(slices) => {
                flags |= INLINE;
                (slices.iter().map(|slice| slice.len()).sum::<usize>().try_into().unwrap_or(u32::MAX), 0)
            }
        };
        let room = match payload {
            Payload::Gather(_) => pieces as usize * UNIT,
            Payload::Inline(_) => length as usize,
        };
        if room > self.inline_max() || !self.send.has_room() {
            return false;
        }
        let entry = Send::new(tag, flags, (qpn, path.qkey), path.way, (length, pieces));
        self.send.store(0, entry.units());
        let front = entry.units().len();
        match payload {
            Payload::Gather(data) => {
                self.send.store(front, data.iter().filter(|data| data.bytes > 0).map(|data| piece(*data)));
            }
            Payload::Inline(slices) => {
                let mut bytes = slices.iter().flat_map(|slice| slice.iter().copied());
                let unit = |_| core::array::from_fn(|_| bytes.next().unwrap_or_default());
                self.send.store(front, (0..room.div_ceil(UNIT)).map(unit));
            }
        }
        self.send.put();
        (self.last, self.posted) = (Some(entry), tag);
        true
    }

    fn flush(&mut self) {
        let Some(last) = self.last.take() else { return };
        let flags: Option<Unit> = last.signalled().units().get(FLAGS).copied();
        if let Some(unit) = flags {
            self.send.restore(FLAGS, unit);
        }
        self.send.publish(true);
    }

    fn sent(&mut self) -> Option<Fate<u32>> {
        let completion = Completion::parse(self.sent.poll()?);
        let outstanding = self.posted.wrapping_sub(self.done);
        let tag = completion.tag.filter(|tag| (1..=outstanding).contains(&tag.wrapping_sub(self.done)));
        self.done = tag.unwrap_or(self.done);
        Some(match (tag, completion.failure) {
            (Some(tag), None) => Fate::Done(tag),
            (tag, Some(failure)) => Fate::Failed(tag, failure),
            (None, None) => Fate::Malformed,
        })
    }

    fn lend(&mut self, data: Data, tag: u32) -> bool {
        let room = self.receive.has_room();
        if room {
            self.receive.store(0, receive(data, tag));
            self.receive.put();
        }
        room
    }

    fn flush_lent(&mut self) {
        self.receive.publish(false);
    }

    fn received(&mut self) -> Option<Fate<Got>> {
        let completion = Completion::parse(self.received.poll()?);
        Some(match (completion.tag, completion.failure) {
            (Some(tag), None) => {
                let origin = Origin { qpn: completion.source, lid: 0, grh: completion.grh };
                Fate::Done(Got { tag, bytes: completion.bytes, origin })
            }
            (tag, Some(failure)) => Fate::Failed(tag, failure),
            (None, None) => Fate::Malformed,
        })
    }

    fn has_news(&mut self) -> bool {
        self.received.has_news()
    }

    fn arm(&mut self, solicited: bool) {
        self.received.arm(solicited);
    }

    fn saw_event(&mut self) {}

    fn reset(&mut self) {
        // What is still in the completion queues is of the time before.
        let _ = (0..=self.sent.shape().count).find(|_| self.sent.poll().is_none());
        let _ = (0..=self.received.shape().count).find(|_| self.received.poll().is_none());
        self.send.reset();
        self.receive.reset();
        (self.last, self.done) = (None, self.posted);
    }
}
