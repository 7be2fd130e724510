//! Compares how we and rdma-core parse completion queue entries.

use std::io;
use std::path::Path;

use unisono_verbs::mlx5::{Completion, QueueSide};
use unisono_verbs::raw::Failure;

use super::random_requests::Random;
use crate::mlx5::rdma_core::{Polled, Provider, Setup};

/// Entries of a call.
const BATCH: u64 = 1000;
/// `IBV_WC_GENERAL_ERR`: any failure that rdma-core has no name for.
const GENERAL: u32 = 21;

/// Counts of a comparison.
#[derive(Clone, Copy, Default, Debug)]
pub struct Read {
    /// Entries.
    pub entries: u64,
    /// Of them those of received datagrams.
    pub received: u64,
    /// Of them those of failures.
    pub failed: u64,
    /// Entries that are read differently.
    pub different: u64,
}

/// Compares `entries` random completion queue entries, and prints differences.
///
/// # Errors
/// The provider cannot be run.
pub fn read_completions(program: &Path, entries: u64, seed: u64) -> io::Result<Read> {
    let mut random = Random::new(seed);
    let mut setup = Setup { connected: false, ..random.setup() };
    let (mut provider, mut read) = (Provider::start(program, setup)?, Read::default());
    while read.entries < entries {
        let blocks: Vec<_> = (0..BATCH).map(|_| random.completion(setup.qpn)).collect();
        for (block, theirs) in blocks.iter().zip(provider.complete(&blocks)?) {
            let ours = Completion::parse(*block);
            read.received += u64::from(matches!(ours, Completion::Received(_)));
            read.failed += u64::from(matches!(ours, Completion::Failed { .. }));
            if !agrees(&ours, &theirs, &setup) {
                read.different += 1;
                if read.different <= 3 {
                    eprintln!("{ours:?} and {theirs:?} of {block:02x?}");
                }
            }
        }
        read.entries += BATCH;
        setup = Setup { connected: false, ..random.setup() };
        provider.make(setup)?;
    }
    Ok(read)
}

/// Whether both results agree. rdma-core does not report solicited events, and of failures only their kind.
fn agrees(ours: &Completion, theirs: &Polled, setup: &Setup) -> bool {
    let sent = |index: u16| u64::from(u32::from(index) & (setup.blocks - 1));
    let taken = |index: u16| u64::from(u32::from(index) & (setup.receive_entries - 1));
    let expected = match *ours {
        Completion::Sent { qpn, index } => {
            // A send with immediate data says so.
            Polled { qpn, number: sent(index), immediate: theirs.immediate, ..Polled::default() }
        }
        Completion::Received(arrival) => Polled {
            number: taken(arrival.index),
            is_receive: true,
            bytes: arrival.bytes,
            source: arrival.source,
            qpn: arrival.qpn,
            lid: arrival.lid.into(),
            level: arrival.service_level.into(),
            global: arrival.grh,
            immediate: arrival.immediate,
            ..Polled::default()
        },
        Completion::Failed { qpn, index, half, failure, vendor } => {
            let number = match half {
                QueueSide::Send => sent(index),
                QueueSide::Receive => taken(index),
            };
            Polled { qpn, number, status: status(failure), vendor: vendor.into(), ..Polled::default() }
        }
        Completion::Unknown { .. } => return false,
    };
    expected == *theirs
}

/// `ibv_wc_status`; the adapter's other syndromes as rdma-core translates them (`mlx5_handle_error_cqe`).
const fn status(failure: Failure) -> u32 {
    match failure {
        Failure::Length => 1,
        Failure::Operation => 2,
        Failure::Protection => 4,
        Failure::Flushed => 5,
        Failure::RemoteOperation => 9,
        Failure::RemoteAccess => 10,
        Failure::NoAnswer => 12,
        Failure::Other(syndrome) => match syndrome {
            0x06 => 6,
            0x10 => 7,
            0x11 => 8,
            0x14 => 11,
            0x16 => 13,
            0x22 => 16,
            _ => GENERAL,
        },
    }
}
