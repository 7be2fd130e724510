//! Guards against joining a job twice: a process cannot join as a rank that it already is. Servers are compared as they
//! are written.

use parking_lot::Mutex;

use crate::environment::Settings;
use unisono_bootstrap::{HostPort, Rank};

/// The process id, since a forked process inherits the list; the job's rendezvous server; the rank.
type JobRank = (u32, HostPort, Rank);

static JOINED: Mutex<Vec<JobRank>> = Mutex::new(Vec::new());

/// A rank of a job that this process is, until this is dropped. A job of this process alone has none.
pub(super) struct SingletonGuard(Option<JobRank>);

impl SingletonGuard {
    /// Returns `None` if this process is that rank already.
    pub(super) fn acquire(settings: &Settings) -> Option<Self> {
        let job = settings.bootstrap.clone().zip(settings.position);
        let own = job.map(|(server, position)| (std::process::id(), server, position.rank));
        let mut taken = JOINED.lock();
        if own.as_ref().is_some_and(|own| taken.contains(own)) {
            return None;
        }
        taken.extend(own.clone());
        Some(Self(own))
    }
}

impl Drop for SingletonGuard {
    fn drop(&mut self) {
        JOINED.lock().retain(|rank_slot| Some(rank_slot) != self.0.as_ref());
    }
}
