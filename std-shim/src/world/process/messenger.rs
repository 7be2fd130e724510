//! The messenger of a process: its records, and their growth.

use unisono_core::ids::PeerId;
use unisono_core::message::collective_transport::{self, CollectivePeer, Entry};
use unisono_core::message::matching::{PostedReceive, Unexpected};
use unisono_core::message::point_to_point::{self, MessageHeader, MessagePeer, SendRecord};
use unisono_core::messenger::{Config, Pools, QueuedMessage, ReceiveOp, SendOp, Stores};
use unisono_shmem::am_header::{self, SHORT_BYTES};

use super::bounce_buffers::EAGER_MAX;
use super::transport::EARLY_PAYLOADS;
use crate::world::collective::engine::progress_table::{EAGER_CREDIT, PENDING_MAX};
use unisono_memory::endpoint_storage::{ProcessMessenger, buckets};
use unisono_memory::memory_regions::{Regions, RegisterError};

/// Bytes of a slot of the pool for unexpected payloads.
const SLOT_BYTES: usize = 1 << 14;
/// Bytes of the pool, unless the settings choose otherwise.
pub(in crate::world) const POOL_BYTES: usize = 1 << 20;
/// Messages that matched probes may have removed, in addition to the unexpected ones.
const MATCHED_PROBES_MAX: usize = 64;
/// Initial number of records for requests.
const INITIAL_RECORDS: usize = 256;
/// Slots for the unexpected messages of collectives of all peers, in large jobs.
const EAGER_SLOTS_MAX: u32 = 1 << 16;
/// Most unexpected headers of collectives; more are requested again.
const HEADERS_MAX: usize = 1024;
/// Most messages of a class that wait for room in the endpoint; the rest waits as sends, or as steps of schedules.
const OUTBOX: usize = 64;

/// The messenger of a job of `size` ranks. `limit`: bytes of the longest eager message of a collective to a peer.
///
/// # Errors
/// [`RegisterError`]: a system without the memory for unexpected messages cannot run the job.
pub(in crate::world) fn messenger(
    size: u32,
    pool: usize,
    limit: impl Fn(PeerId) -> u32,
    regions: &mut Regions,
) -> Result<ProcessMessenger, RegisterError> {
    let headers = am_header::unexpected_per_peer(size);
    let (slot, messages) = (SLOT_BYTES.min(pool), headers as usize * size as usize + MATCHED_PROBES_MAX);
    let slots = pool.checked_div(slot).unwrap_or(0);
    // Reserved, not used yet.
    let (slot_region, short) = (regions.allocate(slots * slot)?, regions.allocate(messages * SHORT_BYTES)?);
    let mut seed = [0; 4];
    // Without randomness, peers can only fill buckets on purpose more easily.
    let _ = getrandom::fill(&mut seed);
    let credit = EAGER_SLOTS_MAX.checked_div(size).unwrap_or(EAGER_SLOTS_MAX).clamp(2, EAGER_CREDIT);
    let entries = |count: usize| vec![Entry::FREE; count].into_boxed_slice();
    let pools = Pools {
        messages: point_to_point::Pools {
            receives: vec![PostedReceive::default(); INITIAL_RECORDS].into(),
            messages: vec![Unexpected::default(); messages].into(),
            sends: vec![SendRecord::FREE; INITIAL_RECORDS].into(),
            peers: vec![MessagePeer::NEW; size as usize].into(),
            slots: vec![0; slots].into(),
            buckets: [buckets(INITIAL_RECORDS), buckets(messages), buckets(INITIAL_RECORDS)],
        },
        steps: collective_transport::Pools {
            peers: (0..size).map(|peer| CollectivePeer::new(limit(PeerId(peer)))).collect(),
            sends: entries(PENDING_MAX),
            receives: entries(PENDING_MAX),
            slots: entries((credit * size.saturating_sub(1)) as usize),
            headers: entries(HEADERS_MAX),
        },
        sends: [INITIAL_RECORDS, 2 * PENDING_MAX].map(|count| vec![SendOp::FREE; count].into()),
        receives: [INITIAL_RECORDS, 2 * PENDING_MAX].map(|count| vec![ReceiveOp::FREE; count].into()),
        outboxes: [(); 2].map(|()| vec![QueuedMessage::FREE; OUTBOX].into()),
    };
    let config = Config {
        messages: point_to_point::Config {
            headers,
            short: SHORT_BYTES as u32,
            slot: slot as u32,
            seed: u32::from_le_bytes(seed),
        },
        step_credit: credit as u8,
        stores: Stores { short, slots: slot_region, steps: EARLY_PAYLOADS, step_bytes: EAGER_MAX as u32 },
    };
    match ProcessMessenger::new(config, pools) {
        Some(messenger) => Ok(messenger),
        None => unreachable!("the tables are large enough"),
    }
}

/// Doubles the records of receives. Returns false at the maximum.
pub(super) fn add_receives(messenger: &mut ProcessMessenger) -> bool {
    let [_, more] = messenger.record_counts().map(|records| records.saturating_mul(2));
    let records = vec![PostedReceive::default(); more];
    messenger.grow_receives(vec![ReceiveOp::FREE; more].into(), records.into(), buckets(more))
}

/// As [`add_receives`], of sends, or of messages that wait for room in the transport if these are what lacks.
pub(super) fn add_sends(messenger: &mut ProcessMessenger) -> bool {
    if let Some(waiting) = messenger.full_outbox() {
        return messenger.grow_outbox(vec![QueuedMessage::FREE; waiting.saturating_mul(2)].into());
    }
    let [more, _] = messenger.record_counts().map(|records| records.saturating_mul(2));
    messenger.grow_sends(vec![SendOp::FREE; more].into(), vec![SendRecord::FREE; more].into(), buckets(more))
}

const _: () = assert!(MessageHeader::EAGER + SHORT_BYTES <= am_header::EAGER_LIMIT);
