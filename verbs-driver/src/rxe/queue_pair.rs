//! Soft-RoCE's queue pair: its send, receive and completion queues together.

use unisono_core::device::DeviceQueue;

use super::path::RxePath;
use super::ring::{Consumer, Producer, Shape};
use super::wqe::{
    COMMON_UNITS, Completion, FLAGS, INLINE, OWN_UNITS, RECEIVE_WQE, SEND_WQE, SIGNALLED, SOLICITED, flagged,
    own_first, own_last, piece, receive, send_room,
};
use crate::queue_memory::{QueueAccess, UNIT, Unit, Word};
use crate::raw::{Arrived, Data, Origin, QueuePair, SendPayload, WorkResult};

/// Pieces of a datagram: head and payload.
const PIECES: usize = 2;

/// The geometry of the queues of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueShapes {
    /// Of the send queue.
    pub send: Shape,
    /// Of its completion queue.
    pub sent: Shape,
    /// Of the receive queue.
    pub receive: Shape,
    /// Of its completion queue.
    pub received: Shape,
}

/// The queues of a queue pair: the driver produces sends and receives, and consumes completions.
#[derive(Debug)]
pub struct RxeQueues<S, R, C> {
    send: Producer<S>,
    receive: Producer<R>,
    sent: Consumer<R>,
    received: Consumer<C>,
    /// The flags of the last posted entry in their signalled form.
    last: Option<Unit>,
    /// Tags of the last posting, and of the last complete one.
    posted: u32,
    done: u32,
}

impl<S: QueueAccess, R: QueueAccess, C: QueueAccess> RxeQueues<S, R, C> {
    /// Fresh queues. The doorbells of `send` and `received` are system calls. `None`: sizes differ, or are too small.
    pub fn new(sizes: QueueShapes, send: S, sent: R, receive: R, received: C) -> Option<Self> {
        let fits = send_room(sizes.send.entry) >= PIECES * UNIT && sizes.receive.entry >= RECEIVE_WQE + UNIT;
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

    /// The memory of the receive completion queue.
    pub const fn received_seam(&self) -> &C {
        self.received.seam()
    }

    /// Most inline bytes of an entry.
    pub const fn inline_max(&self) -> usize {
        send_room(self.send.shape().entry)
    }

    /// Posts a datagram of these two slices, which are copied to the entry. Returns whether there was room. The last
    /// word is padded with zeros.
    #[inline(always)]
    pub fn post_inline(
        &mut self,
        to: (&RxePath, DeviceQueue),
        [front, behind]: [&[u8]; 2],
        solicited: bool,
        tag: u32,
    ) -> bool {
        let bytes = front.len().saturating_add(behind.len());
        if !self.begin(to, (INLINE, solicited, tag), (bytes as u32, 0), bytes) {
            return false;
        }
        let (words, rest) = front.as_chunks();
        self.send.store_words(SEND_WQE, words);
        let (mut at, mut behind) = (SEND_WQE + size_of_val(words), behind);
        if !rest.is_empty() {
            let (filling, later) = behind.split_at(behind.len().min(size_of::<Word>() - rest.len()));
            self.send.store_words(at, &[word(rest.iter().chain(filling))]);
            (at, behind) = (at + size_of::<Word>(), later);
        }
        let (words, rest) = behind.as_chunks();
        self.send.store_words(at, words);
        if !rest.is_empty() {
            self.send.store_words(at + size_of_val(words), &[word(rest)]);
        }
        self.send.commit();
        true
    }

    /// The next datagram that is known to have arrived, without a load of the kernel's index.
    #[inline]
    pub fn received_more(&mut self) -> Option<WorkResult<Arrived>> {
        if self.received.has_more() { self.received() } else { None }
    }

    /// Stores the front of the next entry, if that has room for it and `behind` bytes after it.
    #[inline(always)]
    fn begin(
        &mut self,
        (path, lane): (&RxePath, DeviceQueue),
        (flags, solicited, tag): (u32, bool, u32),
        (length, pieces): (u32, u32),
        behind: usize,
    ) -> bool {
        if behind > self.inline_max() || !self.send.has_room() {
            return false;
        }
        let [polled, interrupt] = path.qpns;
        let qpn = if lane == DeviceQueue::Polled { polled } else { interrupt };
        let (flags, to) = (flags | if solicited { SOLICITED } else { 0 }, (qpn, path.qkey));
        self.send.store_some(0, &own_first(tag, flagged(flags, to)));
        self.send.store_some(OWN_UNITS, &path.common);
        self.send.store_some(OWN_UNITS + COMMON_UNITS, &own_last(length, pieces));
        (self.last, self.posted) = (Some(flagged(flags | SIGNALLED, to)), tag);
        true
    }
}

/// A word of these bytes, padded with zeros.
fn word<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> Word {
    let mut word = Word::default();
    word.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
    word
}

/// Consecutive slices as units; the last is padded with zeros.
struct Units<'a> {
    slices: &'a [&'a [u8]],
    /// Bytes of the first slice that are taken.
    taken: usize,
}

impl Iterator for Units<'_> {
    type Item = Unit;

    #[inline]
    fn next(&mut self) -> Option<Unit> {
        let whole = self.slices.first().and_then(|slice| slice.get(self.taken..)?.first_chunk());
        if let Some(unit) = whole {
            self.taken += UNIT;
            return Some(*unit);
        }
        self.gathered()
    }
}

impl Units<'_> {
    /// A unit that spans slices, or the padded last one.
    fn gathered(&mut self) -> Option<Unit> {
        let (mut unit, mut filled) = ([0; UNIT], 0);
        while let Some((slice, behind)) = self.slices.split_first() {
            let rest = slice.get(self.taken..).unwrap_or_default();
            let bytes = rest.len().min(UNIT - filled);
            if let (Some(to), Some(from)) = (unit.get_mut(filled..filled + bytes), rest.get(..bytes)) {
                to.copy_from_slice(from);
            }
            (filled, self.taken) = (filled + bytes, self.taken + bytes);
            if bytes < rest.len() {
                break;
            }
            (self.slices, self.taken) = (behind, 0);
        }
        (filled > 0).then_some(unit)
    }
}

impl<S: QueueAccess, R: QueueAccess, C: QueueAccess> QueuePair for RxeQueues<S, R, C> {
    type Path = RxePath;

    fn receive_entries(&self) -> usize {
        self.receive.shape().count as usize - 1
    }

    fn has_room(&mut self, inline: usize) -> bool {
        inline <= self.inline_max() && self.send.has_room()
    }

    fn is_idle(&self) -> bool {
        self.posted == self.done
    }

    #[inline]
    fn post(&mut self, to: (&RxePath, DeviceQueue), payload: SendPayload<'_>, solicited: bool, tag: u32) -> bool {
        let front = SEND_WQE / UNIT;
        let room = match payload {
            SendPayload::Gather(data) => {
                let data = data.iter().filter(|data| data.bytes > 0);
                let sum = |(length, pieces), data: &Data| (data.bytes.saturating_add(length), pieces + 1);
                let (length, pieces) = data.clone().fold((0, 0), sum);
                let room = self.begin(to, (0, solicited, tag), (length, pieces), pieces as usize * UNIT);
                if room {
                    self.send.store(front, data.map(|data| piece(*data)));
                }
                room
            }
            SendPayload::Inline(slices) => {
                let length = slices.iter().map(|slice| slice.len()).sum::<usize>().try_into().unwrap_or(u32::MAX);
                let room = self.begin(to, (INLINE, solicited, tag), (length, 0), length as usize);
                if room {
                    self.send.store(front, Units { slices, taken: 0 });
                }
                room
            }
        };
        if room {
            self.send.commit();
        }
        room
    }

    #[inline]
    fn flush(&mut self, signal: bool) {
        let Some(last) = self.last.take() else { return };
        if signal {
            self.send.restore(FLAGS, last);
        }
        self.send.publish(true);
    }

    #[inline(never)]
    fn sent(&mut self) -> Option<WorkResult<u32>> {
        let completion = Completion::parse(self.sent.poll()?);
        let outstanding = self.posted.wrapping_sub(self.done);
        let tag = completion.tag.filter(|tag| (1..=outstanding).contains(&tag.wrapping_sub(self.done)));
        self.done = tag.unwrap_or(self.done);
        Some(match (tag, completion.failure) {
            (Some(tag), None) => WorkResult::Done(tag),
            (tag, Some(failure)) => WorkResult::Failed(tag, failure),
            (None, None) => WorkResult::Malformed,
        })
    }

    fn post_receive(&mut self, data: Data, tag: u32) -> bool {
        let room = self.receive.has_room();
        if room {
            self.receive.store(0, receive(data, tag.into()));
            self.receive.commit();
        }
        room
    }

    fn flush_receives(&mut self) {
        self.receive.publish(false);
    }

    #[inline(always)]
    fn received(&mut self) -> Option<WorkResult<Arrived>> {
        let completion = Completion::parse(self.received.poll()?);
        Some(match (completion.tag, completion.failure) {
            (Some(tag), None) => {
                let origin = Origin { qpn: completion.source, lid: 0, grh: completion.grh };
                WorkResult::Done(Arrived { tag, bytes: completion.bytes, origin })
            }
            (tag, Some(failure)) => WorkResult::Failed(tag, failure),
            (None, None) => WorkResult::Malformed,
        })
    }

    fn has_arrival(&mut self) -> bool {
        self.received.has_entry()
    }

    fn arm(&mut self, solicited: bool) {
        self.received.arm(solicited);
    }

    fn event_received(&mut self) {}

    fn reset(&mut self) {
        // Completions that are still queued are from before the reset.
        let _ = (0..=self.sent.shape().count).find(|_| self.sent.poll().is_none());
        let _ = (0..=self.received.shape().count).find(|_| self.received.poll().is_none());
        self.send.reset();
        self.receive.reset();
        (self.last, self.done) = (None, self.posted);
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::queue_memory::recorded::RecordedMemory;
    use crate::raw::{Failure, PeerPath as _, Source};
    use crate::rxe::RxeRoute;

    type Pair = RxeQueues<RecordedMemory, RecordedMemory, RecordedMemory>;

    fn shape(entry: usize, count: u32) -> Shape {
        Shape { entry, count }
    }

    fn pair() -> Pair {
        let (send, receive, completions) = (shape(512, 4), shape(64, 4), shape(64, 8));
        let sizes = QueueShapes { send, sent: completions, receive, received: completions };
        let memory = |shape: Shape| RecordedMemory::new(shape.bytes());
        RxeQueues::new(sizes, memory(send), memory(completions), memory(receive), memory(completions)).unwrap()
    }

    fn path() -> RxePath {
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let route = RxeRoute {
            port: 1,
            gid_index: 3,
            from: address(1),
            to: address(2),
            mac: [2, 0, 0, 0, 0, 9],
            hop_limit: 64,
        };
        RxePath::new(&route, [0x11, 0x12], 0x7777, 1024)
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    /// As the kernel completes an entry.
    fn complete(queue: &mut RecordedMemory, place: usize, fields: &[(usize, u32)]) {
        for (at, value) in fields {
            queue.entries[place * 64 + at..place * 64 + at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        queue.progress = place as u32 + 1;
    }

    #[test]
    fn entries_lie_where_the_kernel_looks() {
        let (mut pair, path) = (pair(), path());
        let data = [Data { address: 0x1_0000_0002, bytes: 100, key: 5 }, Data::default()];
        assert!(pair.post((&path, DeviceQueue::Interrupt), SendPayload::Gather(&data), true, 1));
        assert!(pair.post(
            (&path, DeviceQueue::Polled),
            SendPayload::Inline(&[b"abc", b"defghijklmnopqrstu"]),
            false,
            2
        ));
        assert_eq!(pair.send.seam().records[0], 0, "the kernel does not know yet");
        pair.flush(true);
        let memory = pair.send.seam();
        assert_eq!((memory.records[0], memory.rung.len(), memory.violation()), (2, 1, None));
        let (first, second) = memory.entries[..1024].split_at(512);
        // Tag, opcode, flags, queue pair, key, handle.
        assert_eq!([0, 12, 16, 24, 28, 36].map(|at| word(first, at)), [1, 2, 4, 0x12, 0x7777, 0]);
        assert_eq!([0, 12, 16, 24, 28, 36].map(|at| word(second, at)), [2, 2, 2 | 8, 0x11, 0x7777, 0]);
        assert_eq!(first[56..64], [1, 1, 2, 0, 0, 0, 0, 9]);
        assert_eq!(first[74..80], [0xff, 0xff, 10, 0, 0, 2]);
        assert_eq!((first[84], first[85]), (3, 64));
        assert_eq!(
            (&first[88..96], &first[116..124]),
            (&[2, 0, 0, 0, 10, 0, 0, 1][..], &[2, 0, 0, 0, 10, 0, 0, 2][..])
        );
        assert_eq!(
            [184, 188, 196, SEND_WQE, SEND_WQE + 4, SEND_WQE + 8, SEND_WQE + 12].map(|at| word(first, at)),
            [100, 100, 1, 2, 1, 100, 5]
        );
        assert_eq!([184, 188, 196].map(|at| word(second, at)), [21, 21, 0]);
        assert_eq!(&second[SEND_WQE..SEND_WQE + 21], b"abcdefghijklmnopqrstu");
    }

    #[test]
    fn words_are_posted_as_units_are() {
        let path = path();
        let whole: [u8; 255] = core::array::from_fn(|at| at as u8 + 1);
        for bytes in [0, 1, 7, 8, 16, 24, 88, 255] {
            for front in (0..=bytes).step_by(if bytes > 100 { 37 } else { 1 }) {
                let (mut units, mut words) = (pair(), pair());
                let to = (&path, DeviceQueue::Interrupt);
                let (front, behind) = whole[..bytes].split_at(front);
                let filled = SEND_WQE + bytes.next_multiple_of(size_of::<Word>());
                words.send.seam_mut().entries[SEND_WQE..].fill(0xee);
                assert!(units.post(to, SendPayload::Inline(&[front, behind]), true, 9));
                assert!(words.post_inline(to, [front, behind], true, 9));
                units.flush(true);
                words.flush(true);
                let [units, words] = [units, words].map(|pair| pair.send.seam().entries.clone());
                assert_eq!(units[..filled], words[..filled], "{bytes} {}", front.len());
            }
        }
        assert!(!pair().post_inline((&path, DeviceQueue::Polled), [&[0; 200], &[0; 105]], false, 1));
        assert!(pair().post_inline((&path, DeviceQueue::Polled), [&[0; 200], &[0; 104]], false, 1));
    }

    #[test]
    fn more_is_what_the_last_look_found() {
        let mut pair = pair();
        for tag in 1..4 {
            assert!(pair.post_receive(Data { address: 0x2000, bytes: 1064, key: 9 }, tag));
        }
        pair.flush_receives();
        let tag_of = |fate| match fate {
            Some(WorkResult::Done(Arrived { tag, .. })) => tag,
            _ => 0,
        };
        assert_eq!(tag_of(pair.received_more()), 0);
        complete(pair.received.seam_mut(), 0, &[(0, 1), (20, 50)]);
        complete(pair.received.seam_mut(), 1, &[(0, 2), (20, 50)]);
        assert_eq!(tag_of(pair.received_more()), 0, "nobody has looked");
        assert_eq!((tag_of(pair.received()), tag_of(pair.received_more())), (1, 2));
        complete(pair.received.seam_mut(), 2, &[(0, 3), (20, 50)]);
        assert_eq!((tag_of(pair.received_more()), tag_of(pair.received())), (0, 3));
    }

    #[test]
    fn full_queue_and_long_payload_are_refused() {
        let (mut pair, path) = (pair(), path());
        assert_eq!(pair.inline_max(), 304);
        let to = (&path, DeviceQueue::Polled);
        assert!(!pair.post(to, SendPayload::Inline(&[&[0; 305]]), false, 1));
        for tag in 1..4 {
            assert!(pair.has_room(304) && pair.post(to, SendPayload::Inline(&[&[0; 304]]), false, tag));
        }
        assert!(!pair.has_room(0) && !pair.post(to, SendPayload::Gather(&[]), false, 4));
        assert!(!pair.has_room(305));
    }

    #[test]
    fn only_what_was_posted_is_sent() {
        let (mut pair, path) = (pair(), path());
        for tag in 1..4 {
            assert!(pair.post((&path, DeviceQueue::Polled), SendPayload::Gather(&[]), false, tag));
        }
        pair.flush(true);
        let tags = [(0, 0), (2, 0), (2, 0), (4, 0), (3, 5), (3, 0)];
        for (place, (tag, status)) in tags.into_iter().enumerate() {
            complete(pair.sent.seam_mut(), place, &[(0, tag), (8, status)]);
        }
        let expected = [
            WorkResult::Malformed,
            WorkResult::Done(2),
            WorkResult::Malformed,
            WorkResult::Malformed,
            WorkResult::Failed(Some(3), Failure::Flushed),
            WorkResult::Malformed,
        ];
        assert!(expected.into_iter().all(|fate| pair.sent() == Some(fate)));
        assert!(pair.sent().is_none() && pair.is_idle());
    }

    #[test]
    fn datagram_comes_with_its_origin() {
        let (mut pair, path) = (pair(), path());
        assert!(pair.post_receive(Data { address: 0x2000, bytes: 1064, key: 9 }, 77));
        pair.flush_receives();
        let entry = &pair.receive.seam().entries;
        assert_eq!([0, 16, 20, 28, 40, 48, 52].map(|at| word(entry, at)), [77, 1064, 1064, 1, 0x2000, 1064, 9]);
        assert_eq!(pair.receive.seam().rung, []);
        complete(pair.received.seam_mut(), 0, &[(0, 77), (20, 50), (32, 0x12), (36, 1)]);
        let Some(WorkResult::Done(got)) = pair.received() else { panic!("one waits") };
        assert_eq!((got.tag, got.bytes), (77, 50));
        let mut front = [0; 40];
        front[32..36].copy_from_slice(&[10, 0, 0, 2]);
        assert!(path.matches(&Source::new(got.origin, &front)));
        front[35] = 3;
        assert!(!path.matches(&Source::new(got.origin, &front)));
    }

    #[test]
    fn reset_queue_goes_on_where_the_kernel_is() {
        let (mut pair, path) = (pair(), path());
        assert!(pair.post((&path, DeviceQueue::Polled), SendPayload::Gather(&[]), false, 1));
        assert!(pair.post_receive(Data::default(), 1));
        pair.flush_receives();
        pair.receive.seam_mut().progress = 1;
        pair.reset();
        assert!(pair.is_idle());
        assert_eq!((pair.send.seam().records[0], pair.receive.seam().records[0]), (0, 1));
        assert!((2..5).all(|tag| pair.post_receive(Data::default(), tag)) && !pair.post_receive(Data::default(), 5));
    }
}
