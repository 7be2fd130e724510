//! Messages that leave, and receives that wait for theirs.

use core::ptr::NonNull;

use unisono_core::device::PeerId;
use unisono_core::operation::SendError;
use unisono_core::span::{Region, Span};

use super::{Process, SHORT, Sending, Use, put};
use crate::rank::Rank;
use crate::world::matching::{EAGER_HEAD, Posted, announcement, eager_head};
use crate::world::request::{Failure, Tag};

impl Process {
    /// Sends `bytes` bytes at `start`. `Ok(None)`: they were copied, the buffer is free. Otherwise they are lent until the
    /// request has ended, and registered as the region that comes with it. [`SendError::Full`]: progress first.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until the request has ended and its region is [`revoke`](Self::revoke)d.
    pub(in crate::world) unsafe fn send(
        &mut self,
        to: Rank,
        tag: Tag,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        if let Some(failure) = self.aborted {
            return Err(SendFailure::Failed(failure));
        }
        if to.0 >= self.size {
            return Err(SendFailure::Failed(Failure::UnknownRank(to)));
        }
        if bytes > u32::MAX as usize {
            return Err(SendFailure::Failed(Failure::TooLong));
        }
        if self.corked.sends == 0 {
            self.now();
        }
        // Those that leave together are sent at one time.
        let (now, peer) = (self.latest, PeerId::from(to));
        if to == self.rank {
            // SAFETY: the caller says that these bytes are valid and unchanged.
            let payload = unsafe { core::slice::from_raw_parts(start.as_ptr(), bytes) };
            self.matching.deliver_own(peer, tag, payload, &self.regions, &mut self.requests);
            return Ok(None);
        }
        if bytes <= SHORT {
            let mut head = [0; EAGER_HEAD + SHORT];
            let (front, rest) = head.split_at_mut(EAGER_HEAD);
            front.copy_from_slice(&eager_head(tag));
            // SAFETY: the caller says that these bytes are valid; `rest` has room for them and is another object.
            unsafe { start.copy_to_nonoverlapping(NonNull::from(rest).cast(), bytes) };
            let used = head.get(..EAGER_HEAD + bytes).unwrap_or_default();
            let operation = self.endpoint.send(now, peer, used, None).map_err(|error| refused(error, peer))?;
            self.note(operation, Use::Nothing);
            return Ok(None);
        }
        if let Some((cell, span)) = self.small.take(bytes) {
            if let Some(address) = unisono_core::device::Memory::address(self.regions.get_mut(), span) {
                // SAFETY: the cell is free: nobody else uses its bytes, and the caller's bytes are another object.
                unsafe { address.start().copy_from_nonoverlapping(start, bytes) };
            }
            return match self.endpoint.send(now, peer, &eager_head(tag), Some(span)) {
                Ok(operation) => {
                    self.note(operation, Use::Cell(cell));
                    Ok(None)
                }
                Err(error) => {
                    self.small.give_back(cell);
                    Err(refused(error, peer))
                }
            };
        }
        // SAFETY: as the caller says, until `revoke`.
        let region = unsafe { self.regions.get_mut().register(start, bytes) }.map_err(|_| SendFailure::Full)?;
        let from = Span { region, offset: 0, bytes: bytes as u32 };
        let request = self.requests.start();
        let sent = match self.endpoint.send(now, peer, &eager_head(tag), Some(from)) {
            Ok(operation) => {
                self.note(operation, Use::Request(request, peer));
                Ok(())
            }
            Err(SendError::TooLong) => self.announce(now, peer, tag, from, request),
            Err(error) => Err(error),
        };
        sent.map(|()| Some((request, region))).map_err(|error| {
            self.requests.retire(request);
            self.regions.get_mut().revoke(region);
            refused(error, peer)
        })
    }

    fn announce(&mut self, now: u64, to: PeerId, tag: Tag, from: Span, request: u32) -> Result<(), SendError> {
        let free = self.sendings.iter().position(Option::is_none).unwrap_or(self.sendings.len()) as u32;
        let operation = self.endpoint.send(now, to, &announcement(tag, free, u64::from(from.bytes)), None)?;
        self.note(operation, Use::Nothing);
        put(&mut self.sendings, free, Sending { to, from, request });
        Ok(())
    }

    /// Receives into `bytes` bytes at `start`, registered as the region that comes with the request.
    ///
    /// # Safety
    /// The bytes stay valid, and nobody else uses them, until the request has ended and its region is
    /// [`revoke`](Self::revoke)d.
    pub(in crate::world) unsafe fn receive(
        &mut self,
        source: Option<Rank>,
        tag: Option<Tag>,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<(u32, Region), Failure> {
        if let Some(failure) = self.aborted {
            return Err(failure);
        }
        if let Some(rank) = source.filter(|rank| rank.0 >= self.size) {
            return Err(Failure::UnknownRank(rank));
        }
        let bytes = bytes.min(u32::MAX as usize);
        // SAFETY: as the caller says, until `revoke`.
        let region = unsafe { self.regions.get_mut().register(start, bytes) }.map_err(|_| Failure::TooLong)?;
        let request = self.requests.start();
        let into = Span { region, offset: 0, bytes: bytes as u32 };
        let posted = Posted { source: source.map(PeerId::from), tag, into, request };
        self.matching.post(posted, &self.regions, &mut self.requests);
        // What came before its sender's end still counts; what has not will not come.
        if self.requests.result(request).is_none()
            && let Some(failure) = self.hopeless(source)
        {
            self.matching.posted.retain(|posted| posted.request != request);
            self.requests.finish(request, Err(failure));
        }
        if !self.matching.errands.is_empty() {
            let now = self.now();
            self.follow(now);
        }
        Ok((request, region))
    }

    /// Why a receive from `source` that matches nothing yet need not wait.
    fn hopeless(&mut self, source: Option<Rank>) -> Option<Failure> {
        let Some(rank) = source else { return self.untold.pop().map(Failure::PeerFailed) };
        let ended = self.ended(rank)?;
        if ended == Failure::PeerFailed(rank) {
            self.untold.retain(|untold| *untold != rank);
        }
        Some(ended)
    }

    /// A request's memory is its owner's again.
    pub(in crate::world) fn revoke(&mut self, request: u32, region: Region) {
        self.requests.retire(request);
        self.regions.get_mut().revoke(region);
    }
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum SendFailure {
    /// Progress makes room.
    Full,
    Failed(Failure),
}

fn refused(error: SendError, to: PeerId) -> SendFailure {
    match error {
        SendError::Full => SendFailure::Full,
        error => SendFailure::Failed(failure(error, to)),
    }
}

pub(super) fn failure(error: SendError, to: PeerId) -> Failure {
    match error {
        SendError::UnknownPeer => Failure::UnknownRank(to.into()),
        SendError::PeerFailed | SendError::Full => Failure::PeerFailed(to.into()),
        SendError::Parted => Failure::Parted(to.into()),
        SendError::TooLong => Failure::TooLong,
    }
}
