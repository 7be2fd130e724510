//! The check that no two ranks of a node name themselves the root of one broadcast or scatter.
//!
//! A root reads nothing of the others, so it does not notice a second root while it writes. It looks for one when it next
//! synchronises with them.

use core::sync::atomic::{Ordering, fence};

use unisono_core::collective::{CollectiveKind, CollectiveSpec, Failure, FailureCause};
use unisono_core::ids::Rank as Member;

use super::{CollectiveError, Communicator, IntraNodeGroup};

impl IntraNodeGroup {
    /// Records whether this rank was the root of the last broadcast or scatter.
    pub(super) fn record_lead(&self, plan: &CollectiveSpec, call: u32) {
        if plan.bytes > 0 {
            let leads = plan.rank == plan.root
                && matches!(plan.collective, CollectiveKind::Broadcast | CollectiveKind::Scatter);
            self.arrives_last.store(leads, Ordering::Relaxed);
            self.lead_call.store(if leads { call } else { 0 }, Ordering::Relaxed);
        }
    }

    /// Fails if another rank believed itself the root of the last collective of which this rank was the root.
    #[cold]
    pub(super) fn expect_same_root(&self, communicator: &Communicator) -> Result<(), CollectiveError> {
        match self.rival_root() {
            None => Ok(()),
            Some((rank, call, collective)) => {
                let failure = Failure { rank, cause: FailureCause::Disagrees, id: self.id(call), collective };
                Err(self.fail(communicator, failure.into()))
            }
        }
    }

    /// A rank that believed itself the root of the last collective of which this rank was the root, the number of that
    /// collective and its kind.
    pub(in crate::world) fn rival_root(&self) -> Option<(Member, u32, CollectiveKind)> {
        let call = self.lead_call.swap(0, Ordering::Relaxed);
        if call == 0 {
            return None;
        }
        // Either this rank sees what the other has published, or the other sees what this one has.
        fence(Ordering::SeqCst);
        let state = self.state.lock();
        state.flags.rival_root().map(|rank| (rank, call, state.called))
    }
}
