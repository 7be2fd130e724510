//! Transmission: headers, their payloads, and fragments of long messages.

use unisono_core::ids::{PeerId, PlacementId, ReceiveId, RemoteKey};
use unisono_core::message::point_to_point::{Action, MessageHeader};
use unisono_shmem::am_header::{self, EAGER_WITH_HEADER, FRAGMENT, FRAGMENT_BYTES, HEADER, MessageLocation};
use unisono_shmem::ring::PutError;
use unisono_shmem::segment::SharedBytes;

use super::request::{CallerBuffer, Record, Request, RequestState};
use super::{MessageError, Messages};

/// A header that waits for room in a ring, and the request whose payload follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedHeader {
    pub(super) to: u32,
    head: MessageHeader,
    payload: Option<Request>,
}

/// The waiting headers, in order.
#[derive(Debug)]
pub(super) struct HeaderQueue<'a> {
    places: &'a mut [Option<QueuedHeader>],
    /// Entries in use, from the first one on.
    used: usize,
}

impl<'a> HeaderQueue<'a> {
    pub(super) fn new(places: &'a mut [Option<QueuedHeader>]) -> Self {
        Self { places, used: 0 }
    }

    pub(super) const fn is_full(&self) -> bool {
        self.used >= self.places.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The caller has checked that there is room.
    fn push(&mut self, queued: QueuedHeader) {
        if let Some(place) = self.places.get_mut(self.used) {
            *place = Some(queued);
            self.used = self.used.wrapping_add(1);
        }
    }

    /// Removes the entries that do not `stays`; keeps the order of the others.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&QueuedHeader) -> bool) {
        let mut kept = 0;
        for i in 0..self.used {
            let queued = self.places.get_mut(i).and_then(Option::take);
            if let Some(queued) = queued.filter(&mut stays)
                && let Some(place) = self.places.get_mut(kept)
            {
                *place = Some(queued);
                kept = kept.wrapping_add(1);
            }
        }
        self.used = kept;
    }
}

impl<'a> Messages<'a> {
    /// The caller has checked that the queue has room.
    pub(super) fn enqueue_header(&mut self, to: u32, head: MessageHeader, payload: Option<Request>) {
        if let Some(record) = payload.and_then(|request| self.requests.get(request)) {
            record.uses = record.uses.wrapping_add(1);
        }
        self.queue.push(QueuedHeader { to, head, payload });
    }

    /// Executes the pending actions of the matching machine while the queue has room.
    pub(super) fn run_actions(&mut self, held: &mut CallerBuffer<'_>) -> bool {
        let mut moved = false;
        while !self.queue.is_full()
            && let Some(action) = self.machine.poll_action()
        {
            moved = true;
            match action {
                Action::Header { to, head } => self.enqueue_header(to.0, head, None),
                Action::Eager { to, user, head, done } => {
                    if let Some(record) = self.requests.at(user) {
                        record.is_over |= done;
                    }
                    let request = self.requests.name(user);
                    self.enqueue_header(to.0, head, request);
                }
                Action::Sent { user } => self.end_send(user, Ok(())),
                Action::Pull { receive, user, from, at, .. } => self.pull_payload(receive, user, from, at, held),
            }
        }
        moved
    }

    /// A send's payload is not needed any more.
    pub(super) fn end_send(&mut self, user: u32, result: Result<(), MessageError>) {
        let Some(record) = self.requests.at(user) else { return };
        record.is_over = true;
        match result {
            Ok(()) => record.end_if_over(),
            Err(error) => record.state = RequestState::Ended(Err(error)),
        }
    }

    /// Fetches a message's payload: copies it out of the segment, or grants memory for fragments.
    fn pull_payload(
        &mut self,
        receive: ReceiveId,
        user: u32,
        from: PeerId,
        at: Option<u64>,
        held: &mut CallerBuffer<'_>,
    ) {
        let request = self.requests.name(user);
        let Some((request, record)) = request.and_then(|request| Some((request, self.requests.get(request)?))) else {
            return self.machine.cancel_pull(receive);
        };
        let RequestState::AwaitingPayload(status) = record.state else { return self.machine.cancel_pull(receive) };
        let payload = match at.map(MessageLocation::from_word) {
            _ if status.bytes == 0 => None,
            Some(MessageLocation::Shared(at)) => match self.shared_payload(from.0, at, status.bytes) {
                Some(cells) => Some(cells),
                None => return self.protocol_failure(from.0),
            },
            Some(MessageLocation::Private(_)) | None => {
                record.state = RequestState::ReceivingFragments(status);
                // The record's index: it stays valid until all fragments have arrived.
                if let Some((to, head)) = self.machine.grant(receive, PlacementId(user), RemoteKey(0)) {
                    self.enqueue_header(to.0, head, None);
                }
                return;
            }
        };
        let into = self.requests.receive_buffer(request, held).and_then(|room| room.get_mut(..status.bytes));
        if let (Some(payload), Some(into)) = (payload, into) {
            // As long as it.
            let _ = payload.read(into);
        }
        if let Some(record) = self.requests.get(request) {
            record.state = RequestState::Ended(Ok(status));
        }
        self.machine.fetched(receive);
    }

    /// A payload in a rank's own part of the segment.
    fn shared_payload(&self, rank: u32, at: u64, bytes: usize) -> Option<SharedBytes<'a>> {
        let area = self.member.layout().in_pool(rank, at, bytes)?;
        self.member.segment().shared_bytes(area.offset, area.bytes)
    }

    /// Writes waiting headers to the rings while there is room. Returns whether anything moved.
    pub(super) fn flush(&mut self, held: &mut CallerBuffer<'_>) -> bool {
        let Self { channels, queue, requests, .. } = self;
        for channel in channels.iter_mut() {
            channel.is_blocked = false;
        }
        let (mut moved, mut broken) = (false, None);
        queue.retain(|&QueuedHeader { to, head, payload }| {
            let channel = usize::try_from(to).ok().and_then(|to| channels.get_mut(to));
            let Some(channel) = channel.filter(|channel| channel.ended.is_none()) else { return false };
            if channel.is_blocked {
                return true;
            }
            let shown = head.as_ref();
            let put = match payload {
                None => channel.outward.put([HEADER, am_header::checksum(shown)], shown),
                Some(request) => {
                    let bytes = requests.get(request).map_or(0, |record| record.bytes);
                    let from = requests.payload(request, held);
                    am_header::put_with(
                        &mut channel.outward,
                        [EAGER_WITH_HEADER, am_header::checksum(shown)],
                        shown,
                        u32::try_from(bytes).unwrap_or(u32::MAX),
                        |front| front.iter_mut().zip(from).for_each(|(into, byte)| *into = *byte),
                        |piece| _ = piece.write(from),
                    )
                }
            };
            match put {
                Ok(()) => {
                    moved = true;
                    if let Some(record) = payload.and_then(|request| requests.get(request)) {
                        record.uses = record.uses.wrapping_sub(1);
                        record.end_if_over();
                    }
                    false
                }
                Err(PutError::Full) => {
                    channel.is_blocked = true;
                    true
                }
                Err(PutError::Corrupted | PutError::TooLong) => {
                    broken = Some(to);
                    channel.is_blocked = true;
                    true
                }
            }
        });
        if let Some(rank) = broken {
            self.protocol_failure(rank);
        }
        moved | self.send_fragments(held)
    }

    /// Sends fragments.
    fn send_fragments(&mut self, held: &CallerBuffer<'_>) -> bool {
        let mut moved = false;
        for index in 0..u32::try_from(self.requests.0.len()).unwrap_or(0) {
            while let Some(request) = self.requests.name(index)
                && let Some(&mut Record { state: RequestState::Streaming(number), peer, bytes, moved: sent, .. }) =
                    self.requests.get(request)
            {
                let channel = usize::try_from(peer).ok().and_then(|peer| self.channels.get_mut(peer));
                let Some(channel) = channel.filter(|channel| !channel.is_blocked && channel.ended.is_none()) else {
                    break;
                };
                let longest = usize::try_from(FRAGMENT_BYTES.min(channel.outward.longest())).unwrap_or(0);
                let part = bytes.saturating_sub(sent).min(longest);
                let end = sent.saturating_add(part);
                let from = self.requests.payload(request, held).get(sent..end).unwrap_or_default();
                let length = u32::try_from(part).unwrap_or(0);
                match channel.outward.put_piece([FRAGMENT, number], length, |piece| _ = piece.write(from)) {
                    Ok(()) => {}
                    Err(PutError::Full) => break,
                    Err(_) => {
                        self.protocol_failure(peer);
                        break;
                    }
                }
                moved = true;
                if let Some(record) = self.requests.get(request) {
                    record.moved = end;
                    if end >= bytes {
                        (record.state, record.is_over) = (RequestState::Sending, true);
                        record.end_if_over();
                    }
                }
            }
        }
        moved
    }
}
