//! The segments of the nodes of this host, made before their ranks are started and handed to them as descriptors. This
//! process keeps them as long as the job runs: a rank behind a program that closes descriptors finds its segment here.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread;

use tracing::{info, warn};
use unisono_shmem::host::file::{FileError, SegmentFile};
use unisono_shmem::layout::{Layout, Sizes, Waiting};

use super::layout::Berth;
use unisono::environment::{DeviceChoice, GivenSegment, Locality, Transport};

/// One segment per node that shares memory.
#[derive(Default, Debug)]
pub(super) struct Segments {
    made: Vec<(u32, SegmentFile)>,
    expected: bool,
}

impl Segments {
    /// Makes those of the nodes of these berths, which are all of this host, in a job of `size` ranks.
    ///
    /// # Errors
    /// The device is `shm` and a segment cannot be made; otherwise the node does without.
    pub(super) fn create(transport: &Transport, berths: &[Berth], size: u32) -> Result<Self, FileError> {
        let shares = |ranks: u32| transport.shares(ranks as usize, size as usize);
        let mut segments = Self { made: Vec::new(), expected: berths.iter().any(|berth| shares(berth.local_size)) };
        // As many as the ranks will have together: the quota of a container counts.
        let waiting = Waiting::of(berths.len(), thread::available_parallelism().map_or(1, usize::from));
        for first in berths.iter().filter(|berth| berth.local_rank == 0 && shares(berth.local_size)) {
            let made = Layout::new(Sizes::of_node(first.local_size, waiting)).map_err(FileError::from);
            match made.and_then(|layout| SegmentFile::create(&layout)) {
                Ok(file) => {
                    info!(node = first.node, ?waiting, "shared memory in {}", file.pages());
                    segments.made.push((first.node, file));
                }
                Err(error) if transport.device == DeviceChoice::Auto => {
                    warn!(node = first.node, "no shared memory: {error}")
                }
                Err(error) => return Err(error),
            }
        }
        Ok(segments)
    }

    /// The descriptor that a rank of the node gets.
    pub(super) fn of(&self, node: u32) -> Option<BorrowedFd<'_>> {
        self.made.iter().find(|(of, _)| *of == node).map(|(_, file)| file.as_fd())
    }

    /// What a rank is told of its node.
    pub(super) fn locality(&self, berth: &Berth) -> Locality {
        let number = self.of(berth.node).and_then(|file| u32::try_from(file.as_raw_fd()).ok());
        let descriptor = |number| GivenSegment::Descriptor { number, holder: Some(std::process::id()) };
        let given = number.map_or(GivenSegment::Nothing, descriptor);
        Locality { segment: self.expected.then_some(given), ..berth.locality() }
    }
}
