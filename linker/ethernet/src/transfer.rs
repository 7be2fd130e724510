//! A transfer between two ranks over any device, run by the proofs: each rank fills the other's memory in pieces and
//! hashes the received bytes.
//!
//! A piece is a placement. The receiver announces it with an eager message that carries grant and key, as soon as its
//! memory is free.

use core::array::from_fn;

use crc::{CRC_64_NVME, Crc, Digest};
use unisono_core::counters::{Counters, Metric};
use unisono_core::device::{Device, DeviceQueue, Memory};
use unisono_core::endpoint::storage::Storage;
use unisono_core::endpoint::{Endpoint, Event, Handler, Verdict};
use unisono_core::ids::{OperationId, PeerId, PlacementId, RemoteKey};
use unisono_core::progress::make_progress;
use unisono_core::span::{Region, Span};
use unisono_core::time::Time;
use unisono_shmem::user_memory::{self, UserMemory};

/// Bytes of a piece; the last one may be shorter.
pub const PIECE: u32 = 200_000;
/// Pieces of each direction that are under way.
pub const PIECES: usize = 4;
/// Datagrams received and sent in one round at most.
const BUDGET: u32 = 16;
/// Bytes that are made, or hashed, at once: whole words.
const BLOCK: usize = 2000;
const _: () = assert!(BLOCK.is_multiple_of(8) && (PIECE as usize).is_multiple_of(BLOCK));
/// Silence events of a peer before the transfer aborts: the peer may still be starting.
const MAX_SILENCES: u32 = 10;

static NVME: Crc<u64, crc::Table<16>> = Crc::<u64, crc::Table<16>>::new(&CRC_64_NVME);

/// Word `i` of what this rank sends: SplitMix64's finalizer. No two are likely to be equal.
const fn word(rank: u32, i: u64) -> u64 {
    let x = i.wrapping_add((rank as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The grant of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PieceGrant {
    piece: u32,
    placement: PlacementId,
    key: RemoteKey,
}

impl PieceGrant {
    const BYTES: usize = 16;

    fn emit(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = self.piece.to_le_bytes().into_iter().chain(self.placement.0.to_le_bytes());
        for (to, from) in bytes.iter_mut().zip(words.chain(self.key.0.to_le_bytes())) {
            *to = from;
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (piece, rest) = bytes.split_first_chunk()?;
        let (placement, rest) = rest.split_first_chunk()?;
        let key = rest.first_chunk().filter(|_| bytes.len() == Self::BYTES)?;
        Some(Self {
            piece: u32::from_le_bytes(*piece),
            placement: PlacementId(u32::from_le_bytes(*placement)),
            key: RemoteKey(u64::from_le_bytes(*key)),
        })
    }
}

/// Messages from the peer.
struct Inbox {
    peer: PeerId,
    grants: [Option<PieceGrant>; PIECES],
    /// Malformed messages.
    wrong: u32,
    counters: Counters,
}

impl Handler for Inbox {
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        let offer = PieceGrant::parse(head).filter(|_| from == self.peer && bytes == PieceGrant::BYTES as u32);
        match offer.and_then(|offer| Some((self.grants.get_mut(piece_offset(offer.piece))?, offer))) {
            Some((empty @ None, offer)) => *empty = Some(offer),
            _ => self.wrong = self.wrong.saturating_add(1),
        }
        Verdict::Release
    }

    fn record(&mut self, what: Metric) {
        self.counters.count(what);
    }
}

/// Offset of a piece.
const fn piece_offset(piece: u32) -> usize {
    piece as usize % PIECES
}

/// State of the memory for a piece to receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sink {
    /// No grant.
    Idle,
    /// Granted, not announced yet.
    Granted(PieceGrant),
    Announced(PlacementId),
    Arrived,
}

/// Why a transfer failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferError {
    /// An operation failed, or the peer did.
    Failed,
    /// The peer was silent for too long.
    Silent,
    /// The peer sent a malformed message, or too few bytes.
    Corrupt,
    /// The endpoint refused a grant.
    NoGrant,
}

/// One end of a transfer.
pub struct Transfer<S: Storage<W, 32>, const W: usize> {
    endpoint: Endpoint<S, W, 32>,
    inbox: Inbox,
    rank: u32,
    bytes: u64,
    sources: [(Region, Option<OperationId>); PIECES],
    sinks: [(Region, Sink); PIECES],
    /// The next piece to send, to offer and to hash.
    next: [u32; 3],
    /// Placements and offers that are not completed.
    pending: u32,
    silences: u32,
    hashes: [Digest<'static, u64, crc::Table<16>>; 2],
    leaving: bool,
}

impl<S: Storage<W, 32>, const W: usize> core::fmt::Debug for Transfer<S, W> {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.debug_struct("Transfer").field("next", &self.next).field("pending", &self.pending).finish_non_exhaustive()
    }
}

type Now<S, const W: usize> = <<S as Storage<W, 32>>::Time as Time>::Instant;

impl<S: Storage<W, 32>, const W: usize> Transfer<S, W> {
    /// A transfer of `bytes` bytes each way with a peer that was added to the endpoint; `sources` and `sinks` have
    /// [`PIECE`] bytes each.
    pub fn new(
        endpoint: Endpoint<S, W, 32>,
        peer: PeerId,
        bytes: u64,
        sources: [Region; PIECES],
        sinks: [Region; PIECES],
    ) -> Self {
        let rank = endpoint.config().rank.0;
        Self {
            endpoint,
            inbox: Inbox { peer, grants: [None; PIECES], wrong: 0, counters: Counters::default() },
            rank,
            bytes,
            sources: sources.map(|region| (region, None)),
            sinks: sinks.map(|region| (region, Sink::Idle)),
            next: [0; 3],
            pending: 0,
            silences: 0,
            hashes: from_fn(|_| NVME.digest()),
            leaving: false,
        }
    }

    /// CRC-64/NVME of the bytes sent and of the bytes received.
    pub fn hashes(&self) -> [u64; 2] {
        self.hashes.clone().map(|digest| digest.finalize())
    }

    /// Counters of its endpoint.
    pub const fn counters(&self) -> &Counters {
        &self.inbox.counters
    }

    /// Whether everything is sent, received and acknowledged.
    pub fn is_complete(&self) -> bool {
        self.endpoint.is_closed()
    }

    fn length(&self, piece: u32) -> u32 {
        let before = u64::from(piece).saturating_mul(PIECE.into());
        u32::try_from(self.bytes.saturating_sub(before)).unwrap_or(u32::MAX).min(PIECE)
    }

    /// One round. Returns whether anything moved.
    ///
    /// # Errors
    /// [`TransferError`].
    pub fn step<D: Device, M: Memory<Address = D::Address>>(
        &mut self,
        now: Now<S, W>,
        device: &mut D,
        memory: &M,
    ) -> Result<bool, TransferError>
    where
        D::Address: UserMemory,
    {
        if !self.leaving {
            self.announce_grants(now)?;
            self.send(now, memory)?;
            self.hash(memory);
            let [sent, _, hashed] = self.next;
            if self.length(sent) == 0 && self.length(hashed) == 0 && self.pending == 0 {
                self.leaving = true;
                self.endpoint.shutdown();
            }
        }
        let moved =
            make_progress(now, DeviceQueue::Polled, &mut self.endpoint, device, memory, &mut self.inbox, BUDGET);
        while let Some(event) = self.endpoint.poll_event(now) {
            self.handle(event)?;
        }
        if self.inbox.wrong > 0 { Err(TransferError::Corrupt) } else { Ok(moved) }
    }

    fn handle(&mut self, event: Event) -> Result<(), TransferError> {
        match event {
            Event::Completed(operation, Ok(())) => {
                self.pending = self.pending.saturating_sub(1);
                self.silences = 0;
                if let Some((_, source)) = self.sources.iter_mut().find(|(_, source)| *source == Some(operation)) {
                    *source = None;
                }
                Ok(())
            }
            Event::Delivered(placement, bytes) => {
                let sink = (0_u32..).zip(&mut self.sinks).find(|(_, (_, sink))| *sink == Sink::Announced(placement));
                let Some((index, (_, sink))) = sink else { return Err(TransferError::Corrupt) };
                *sink = Sink::Arrived;
                // The piece at this index, counted from the next one to hash.
                let [.., hashed] = self.next;
                let ahead = piece_offset(index.wrapping_sub(hashed)) as u32;
                if bytes == self.length(hashed.saturating_add(ahead)) { Ok(()) } else { Err(TransferError::Corrupt) }
            }
            // A peer that has received everything may leave first.
            Event::PeerFinished(_) if self.leaving || self.pending == 0 => Ok(()),
            Event::PeerSilent(_) => {
                self.silences = self.silences.saturating_add(1);
                if self.silences < MAX_SILENCES { Ok(()) } else { Err(TransferError::Silent) }
            }
            Event::Completed(_, Err(_)) | Event::PeerFailed(_) | Event::PeerFinished(_) => Err(TransferError::Failed),
        }
    }

    /// Grants free memory and announces the grants.
    fn announce_grants(&mut self, now: Now<S, W>) -> Result<(), TransferError> {
        let [_, offered, _] = self.next;
        let bytes = self.length(offered);
        if let Some((region, sink @ Sink::Idle)) = self.sinks.get_mut(piece_offset(offered)).filter(|_| bytes > 0) {
            // A guessable key suffices: nobody else is on this wire.
            let key = RemoteKey(word(self.rank, u64::from(offered) | 1 << 39));
            let to = Span { region: *region, offset: 0, bytes };
            let granted = self.endpoint.grant(self.inbox.peer, to, key).map_err(|_| TransferError::NoGrant)?;
            *sink = Sink::Granted(PieceGrant { piece: offered, placement: granted, key });
            let [_, offered, _] = &mut self.next;
            *offered = offered.saturating_add(1);
        }
        for (_, sink) in &mut self.sinks {
            if let Sink::Granted(offer) = *sink
                && self.endpoint.send(now, self.inbox.peer, &offer.emit(), None).is_ok()
            {
                *sink = Sink::Announced(offer.placement);
                self.pending = self.pending.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Fills and sends the next piece if it was announced and memory is free.
    fn send<M: Memory<Address: UserMemory>>(&mut self, now: Now<S, W>, memory: &M) -> Result<(), TransferError> {
        let [next, ..] = self.next;
        let bytes = self.length(next);
        let offer = self.inbox.grants.get(piece_offset(next)).copied().flatten();
        let Some((region, None)) = self.sources.get(piece_offset(next)).copied() else { return Ok(()) };
        let Some(offer) = offer.filter(|_| bytes > 0 && self.endpoint.has_room()) else { return Ok(()) };
        if offer.piece != next {
            return Err(TransferError::Corrupt);
        }
        let [sent, _] = &mut self.hashes;
        let mut block = [0; BLOCK];
        let mut at = u64::from(next).saturating_mul(PIECE.into());
        for span in blocks(region, bytes) {
            for (i, into) in (at / 8..).zip(block.chunks_exact_mut(8)) {
                into.copy_from_slice(&word(self.rank, i).to_le_bytes());
            }
            at = at.saturating_add(span.bytes.into());
            let made = block.get(..span.bytes as usize).unwrap_or_default();
            sent.update(made);
            if let Some(address) = memory.address(span) {
                user_memory::copy_from_private(made, address);
            }
        }
        let from = Span { region, offset: 0, bytes };
        let placed = self.endpoint.place(now, self.inbox.peer, offer.placement, offer.key, from);
        let operation = placed.map_err(|_| TransferError::Failed)?;
        if let (Some((_, source)), Some(offer)) =
            (self.sources.get_mut(piece_offset(next)), self.inbox.grants.get_mut(piece_offset(next)))
        {
            (*source, *offer) = (Some(operation), None);
        }
        self.pending = self.pending.saturating_add(1);
        let [next, ..] = &mut self.next;
        *next = next.saturating_add(1);
        Ok(())
    }

    /// Hashes the next piece when it has arrived, and frees its memory.
    fn hash<M: Memory<Address: UserMemory>>(&mut self, memory: &M) {
        let [.., next] = self.next;
        let bytes = self.length(next);
        let Some((region, sink @ Sink::Arrived)) = self.sinks.get_mut(piece_offset(next)) else { return };
        *sink = Sink::Idle;
        let ([_, got], mut block) = (&mut self.hashes, [0; BLOCK]);
        for span in blocks(*region, bytes) {
            let here = block.get_mut(..span.bytes as usize).unwrap_or_default();
            if let Some(address) = memory.address(span) {
                user_memory::copy_to_private(address, here);
            }
            got.update(here);
        }
        let [.., next] = &mut self.next;
        *next = next.saturating_add(1);
    }
}

/// The blocks of a piece in this region.
fn blocks(region: Region, bytes: u32) -> impl Iterator<Item = Span> {
    (0..bytes).step_by(BLOCK).map(move |offset| Span {
        region,
        offset: offset as usize,
        bytes: bytes.saturating_sub(offset).min(BLOCK as u32),
    })
}
