//! The shared-memory segments of this host's nodes: created before their ranks start, which inherit them as
//! descriptors. The launcher keeps them open while the job runs, so that a rank below a program that closes descriptors
//! can reopen its segment through this process.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread;

use tracing::{info, warn};
use unisono_shmem::host::file::{FileError, SegmentFile};
use unisono_shmem::layout::{SegmentLayout, SegmentSizes, WaitMode};

use super::placement::RankPlacement;
use unisono::environment::{DeviceChoice, InheritedSegment, Locality, TransportSettings};

/// One segment per node that shares memory.
#[derive(Default, Debug)]
pub(super) struct NodeSegments {
    created: Vec<(u32, SegmentFile)>,
    expected: bool,
}

impl NodeSegments {
    /// Creates the segments of the nodes of these ranks, which are all on this host, in a job of `size` ranks.
    ///
    /// # Errors
    /// The device is `shm` and a segment cannot be created; with other devices, the node works without shared memory.
    pub(super) fn create(
        transport: &TransportSettings,
        berths: &[RankPlacement],
        size: u32,
    ) -> Result<Self, FileError> {
        let shares = |ranks: u32| transport.shares_memory(ranks as usize, size as usize);
        let mut segments =
            Self { created: Vec::new(), expected: berths.iter().any(|placed| shares(placed.local_size)) };
        // The processors of all ranks together, within the CPU quota of a container.
        let waiting = WaitMode::of(berths.len(), thread::available_parallelism().map_or(1, usize::from));
        for first in berths.iter().filter(|placed| placed.local_rank == 0 && shares(placed.local_size)) {
            let made = SegmentLayout::new(SegmentSizes::of_node(first.local_size, waiting)).map_err(FileError::from);
            match made.and_then(|layout| SegmentFile::create(&layout)) {
                Ok(file) => {
                    info!(node = first.node, ?waiting, "shared memory in {}", file.pages());
                    segments.created.push((first.node, file));
                }
                Err(error) if transport.device == DeviceChoice::Auto => {
                    warn!(node = first.node, "no shared memory on this node: {error}")
                }
                Err(error) => return Err(error),
            }
        }
        Ok(segments)
    }

    /// The descriptor of a node's segment.
    pub(super) fn of(&self, node: u32) -> Option<BorrowedFd<'_>> {
        self.created.iter().find(|(of, _)| *of == node).map(|(_, file)| file.as_fd())
    }

    /// The position of a rank on its node, with the node's segment.
    pub(super) fn locality(&self, placed: &RankPlacement) -> Locality {
        let number = self.of(placed.node).and_then(|file| u32::try_from(file.as_raw_fd()).ok());
        let descriptor = |number| InheritedSegment::Descriptor { number, holder: Some(std::process::id()) };
        let given = number.map_or(InheritedSegment::Nothing, descriptor);
        Locality { segment: self.expected.then_some(given), ..placed.locality() }
    }
}
