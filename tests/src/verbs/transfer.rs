//! A transfer from one adapter to another in placements, compared byte for byte.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use unisono_core::counters::Counters;
use unisono_core::endpoint::Event;
use unisono_core::ids::{PeerId, PlacementId, RemoteKey};
use unisono_core::span::Span;

use super::{Adapter, Outcome, VerbsEnd};

/// Bytes of a placement.
const PIECE: usize = 1 << 20;
/// Grants that are out at a time.
const MAX_GRANTS: usize = 8;
/// Without a byte for so long, it has failed.
const SILENCE: Duration = Duration::from_secs(20);

/// Result of a transfer.
#[derive(Clone, Debug)]
pub struct Transferred {
    /// From the first grant to the last byte.
    pub time: Duration,
    /// The sender's counters.
    pub sent: Counters,
    /// Bytes that differ.
    pub wrong: usize,
}

/// Sends `bytes` random bytes from the first adapter to the second.
///
/// # Errors
/// A device cannot be made, or nothing arrives any more.
pub fn transfer(adapters: [Adapter<'_>; 2], bytes: usize) -> Outcome<Transferred> {
    let [mut from, mut to] = VerbsEnd::pair(adapters)?;
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    let data: Vec<u8> = core::iter::repeat_with(|| random.u8(..)).take(bytes).collect();
    let (source, target) = (from.regions.allocate(bytes)?, to.regions.allocate(bytes)?);
    let span = |region, offset: usize| Span { region, offset, bytes: (bytes - offset).min(PIECE) as u32 };
    for (piece, offset) in data.chunks(PIECE).zip((0..).step_by(PIECE)) {
        let address = unisono_core::device::Memory::address(&from.regions, span(source, offset));
        // SAFETY: nothing is posted yet.
        unsafe { address.ok_or("the source lives")?.write(piece) };
    }
    let pieces = bytes.div_ceil(PIECE);
    let (grant_to, grants) = mpsc::channel::<(usize, PlacementId, RemoteKey)>();
    let (started, done) = (Instant::now(), AtomicBool::new(false));
    let (sent, received) = thread::scope(|scope| {
        let (from, done) = (&mut from, &done);
        let sender = scope.spawn(move || -> Outcome<Counters> {
            let (mut moved, mut waiting) = (Instant::now(), None);
            while !done.load(Ordering::Acquire) {
                if let Some((piece, placement, key)) = waiting.take().or_else(|| grants.try_recv().ok()) {
                    let now = from.now();
                    let piece_span = span(source, piece * PIECE);
                    if from.endpoint.place(now, PeerId(1), placement, key, piece_span).is_err() {
                        waiting = Some((piece, placement, key));
                    }
                }
                if from.drive() {
                    moved = Instant::now();
                }
                while let Some(event) = from.event() {
                    if let Event::Completed(_, Err(error)) = event {
                        return Err(format!("a placement failed: {error:?}").into());
                    }
                }
                if moved.elapsed() > SILENCE {
                    return Err("the sender receives nothing any more".into());
                }
            }
            Ok(from.counter.counters)
        });
        let receiver = (|| -> Outcome<()> {
            let (mut granted, mut arrived, mut moved) = (0, 0, Instant::now());
            while arrived < pieces {
                while granted < pieces && granted - arrived < MAX_GRANTS {
                    let key = RemoteKey(granted as u64 + 1);
                    let placement = to.endpoint.grant(PeerId(0), span(target, granted * PIECE), key);
                    let placement = placement.map_err(|error| format!("{error:?}"))?;
                    grant_to.send((granted, placement, key))?;
                    granted += 1;
                }
                if to.drive() {
                    moved = Instant::now();
                }
                while let Some(event) = to.event() {
                    arrived += usize::from(matches!(event, Event::Delivered(..)));
                }
                if moved.elapsed() > SILENCE {
                    return Err(format!("nothing comes any more after {arrived} of {pieces} pieces").into());
                }
            }
            // Its last acknowledgement leaves.
            for _ in 0..100 {
                to.drive();
            }
            Ok(())
        })();
        done.store(true, Ordering::Release);
        (sender.join().unwrap_or_else(|_| Err("the sender panicked".into())), receiver)
    });
    received?;
    let (time, mut wrong, mut found) = (started.elapsed(), 0, vec![0; PIECE]);
    for (piece, offset) in data.chunks(PIECE).zip((0..).step_by(PIECE)) {
        let address = unisono_core::device::Memory::address(&to.regions, span(target, offset));
        // SAFETY: everything has arrived.
        unsafe { address.ok_or("the target lives")?.read(&mut found) };
        wrong += piece.iter().zip(&found).filter(|(sent, found)| sent != found).count();
    }
    Ok(Transferred { time, sent: sent?, wrong })
}
