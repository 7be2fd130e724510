//! The memory that one-sided operations of this rank access, and how.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use unisono_core::rma::region::{Access as RegionAccess, Refusal};
use unisono_core::rma::{RemoteSpan, Rights};

use super::WindowError;
use super::dynamic::Attachments;
use super::memory::WindowMemory;
use super::remote;
use crate::world::communicator::Communicator;
use crate::world::progress::SharedProcess;
use crate::world::request::Failure;
use unisono_bootstrap::Rank;

/// Calls that need no progress per round of progress that they make.
const CALLS_PER_ROUND: u32 = 64;

/// How the memory of a rank is accessed.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum Access {
    /// It is this rank's own.
    Own(WindowMemory),
    /// This process maps it.
    Direct(WindowMemory),
    /// It is this rank's own, under a key that is checked at each access.
    Keyed(RemoteSpan),
    /// By requests to the rank in the job; the place where it begins there.
    Remote(Rank, RemoteSpan),
}

/// The memory of one rank.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Target {
    pub(in crate::world) access: Access,
    /// Bytes of the user's part.
    pub(in crate::world) bytes: usize,
}

/// The number of calls that needed no progress of their own.
#[derive(Debug, Default)]
pub(in crate::world) struct PollingCalls(AtomicU32);

impl PollingCalls {
    /// Makes progress in a call that needs none, since this rank may poll memory by such calls: each time if a call
    /// `completes` others and other ranks may ask for memory of this one, else now and then.
    pub(in crate::world) fn make_progress(&self, shared: &SharedProcess, completes: bool) {
        let calls = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(calls, Ordering::Relaxed);
        let is_due = calls.is_multiple_of(CALLS_PER_ROUND);
        if completes || is_due {
            let mut process = shared.lock();
            if is_due || process.remote_access.is_exposed() {
                shared.progress(&mut process);
            }
        }
    }
}

/// The members of a communicator whose memory is accessed.
#[derive(Debug)]
pub(in crate::world) enum Members {
    /// All, by rank.
    All(Vec<Target>),
    /// One, the key of whose memory this rank has.
    One(Rank, Target),
}

impl Members {
    fn get(&self, rank: Rank) -> Option<&Target> {
        match self {
            Self::All(all) => all.get(rank.0 as usize),
            Self::One(only, target) => (rank == *only).then_some(target),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Target> {
        let (all, one) = match self {
            Self::All(all) => (all.as_slice(), None),
            Self::One(_, target) => (&[][..], Some(target)),
        };
        all.iter().chain(one)
    }
}

/// The memory of members of a communicator.
pub(in crate::world) struct Targets {
    pub(super) communicator: Communicator,
    /// Their number in this process.
    pub(super) number: u32,
    pub(super) members: Members,
    /// The memory that this rank has attached, if the window is dynamic.
    pub(super) attachments: Option<Attachments>,
    calls: PollingCalls,
}

impl fmt::Debug for Targets {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Targets").field("number", &self.number).field("members", &self.members).finish_non_exhaustive()
    }
}

impl Targets {
    pub(in crate::world) fn new(communicator: Communicator, members: Members) -> Self {
        let number = communicator.shared.lock().remote_access.next_window();
        Self { communicator, number, members, attachments: None, calls: PollingCalls::default() }
    }

    pub(super) fn member(&self, rank: Rank) -> Result<&Target, WindowError> {
        self.members.get(rank).ok_or(WindowError::Failed(Failure::UnknownRank(rank)))
    }

    /// As [`PollingCalls::make_progress`].
    pub(super) fn make_progress(&self, completes: bool) {
        self.calls.make_progress(&self.communicator.shared, completes);
    }

    /// Accesses this rank's own memory while the endpoint does not.
    pub(super) fn locked(&self, what: impl FnOnce() -> Result<(), Refusal>, rank: Rank) -> Result<(), WindowError> {
        let _process = self.communicator.shared.lock();
        remote::of(what(), rank)
    }

    /// Accesses `bytes` bytes, less than 4 GiB, of this rank's own memory under a key.
    pub(super) fn keyed<R>(
        &self,
        at: RemoteSpan,
        bytes: usize,
        rights: Rights,
        what: impl FnOnce(WindowMemory) -> Result<R, Refusal>,
    ) -> Result<R, WindowError> {
        let mut process = self.communicator.shared.lock();
        let bytes = u32::try_from(bytes).map_err(|_| WindowError::Unsupported)?;
        let memory = process.own_region(&RegionAccess { at, bytes, rights, alignment: 1 });
        remote::of(memory.and_then(what), self.communicator.rank)
    }

    /// Waits until all operations of this rank on a target are done there.
    pub(in crate::world) fn flush(&self, target: Rank) -> Result<(), WindowError> {
        match self.member(target)?.access {
            Access::Own(_) | Access::Direct(_) | Access::Keyed(_) => {
                fence(Ordering::SeqCst);
                self.make_progress(true);
                Ok(())
            }
            Access::Remote(there, key) => self.flush_remote(target, there, key),
        }
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        let mut process = self.communicator.shared.lock();
        process.remote_access.forget_window(self.number);
        for member in self.members.iter() {
            if let Access::Remote(there, RemoteSpan { region, .. }) = member.access {
                process.remote_access.native.forget(there.into(), region);
            }
        }
    }
}
