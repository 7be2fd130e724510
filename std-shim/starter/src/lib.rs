//! Jobs that other starters start: `mpiexec.hydra` and `srun --mpi=pmi2` speak PMI-1, `prterun` and `srun --mpi=pmix`
//! PMIx.
//!
//! A starter gives each of its tasks a rank, the size of the job and its place on the node ([`Task`]), and carries a text
//! from rank 0 to all ranks ([`Starter::broadcast`]): the address and the secret of unisono's own rendezvous, which does
//! the rest.
//!
//! Sources: Balaji et al. 2010, "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems"; PMIx
//! Standard 4.1, chapters 4 to 6.

extern crate alloc;

mod pmi1;
mod pmix;
mod process_mapping;

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

/// The most ranks of a job.
pub const SIZE_MAX: u32 = 1 << 24;

/// The place of a task on its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodePosition {
    /// Number of the node.
    pub node: u32,
    /// Number among the ranks of the node.
    pub rank: u32,
    /// Ranks of the node.
    pub size: u32,
}

/// What a task knows of itself from its starter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// The rank, below `size`.
    pub rank: u32,
    /// Ranks of the job, 1 to [`SIZE_MAX`].
    pub size: u32,
    /// Its place on its node, if the starter names it.
    pub position: Option<NodePosition>,
}

impl Task {
    fn new(rank: u32, size: u32, position: Option<NodePosition>) -> Result<Self, StarterError> {
        let is_placed = |position: &NodePosition| position.rank < position.size && position.size <= size;
        if rank >= size || size > SIZE_MAX {
            return Err(StarterError::Position { rank, size });
        }
        Ok(Self { rank, size, position: position.filter(is_placed) })
    }
}

/// Why this process cannot join the job of its starter.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StarterError {
    /// The starter offers no interface to join the other tasks by.
    #[error(
        "this is task {rank} of {size} of another starter ({variable}), which offers neither PMI-1 (PMI_FD) nor PMIx \
         (PMIX_NAMESPACE): use `unisono run`, `mpiexec.hydra`, `prterun`, `srun --mpi=pmi2` or `srun --mpi=pmix`"
    )]
    NoInterface {
        /// The variable that shows it.
        variable: &'static str,
        /// The task.
        rank: u32,
        /// Tasks of the step.
        size: u32,
    },
    /// The rank is not one of the job.
    #[error("the starter names rank {rank} of {size}; a job has 1 to {SIZE_MAX} ranks, from 0")]
    Position {
        /// The rank.
        rank: u32,
        /// Ranks of the job.
        size: u32,
    },
    /// The connection to a starter that speaks PMI-1 does not work.
    #[error("the starter's connection (PMI_FD) does not work: {0}")]
    Pmi(String),
    /// The library that speaks PMIx cannot be loaded.
    #[error(
        "the starter speaks PMIx, and its library cannot be loaded: {0}: install libpmix, or put its folder into \
         LD_LIBRARY_PATH"
    )]
    NoLibrary(String),
    /// The starter did not answer in time: a rank may have ended before it joined.
    #[error("the starter did not answer within {0:?}: a rank may have ended before it joined")]
    Late(Duration),
    /// A function of PMIx failed.
    #[error("the starter's {function} failed with status {status}")]
    Pmix {
        /// The function.
        function: &'static str,
        /// Its status, a `PMIX_ERR_` value.
        status: i32,
    },
    /// PMIx answered with another type of value, or a text that is none.
    #[error("the starter has no usable value of {0}")]
    Value(&'static str),
    /// A process can be a task of its starter only once.
    #[error("this process has been a rank of its starter's job already, and a starter lets no process join twice")]
    Left,
}

#[derive(Debug)]
enum Client {
    Pmi1(pmi1::Client),
    Pmix(Box<pmix::Client>),
}

/// The starter of this process, whose job the process is a task of until it [finalizes](Self::finalize). If the process
/// exits before that, its starter ends the job.
#[derive(Debug)]
pub struct Starter {
    client: Client,
    task: Task,
}

/// Variables that give a task and the number of tasks, of starters whose interface was not found.
const TASKS: [(&str, &str); 4] = [
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE"),
    // Set for the tasks of `srun`, not for the script of a batch job.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
];

fn number(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

impl Starter {
    /// The starter of this process, by its environment: PMI-1 if there is `PMI_FD`, PMIx if there is `PMIX_NAMESPACE`.
    ///
    /// Waits for any of its answers at most for this time.
    ///
    /// # Errors
    /// [`StarterError`]: the process is one of several tasks, and cannot join the others.
    pub fn find(timeout: Duration) -> Result<Option<Self>, StarterError> {
        let place = (number("PMI_FD"), number("PMI_RANK"), number("PMI_SIZE"));
        let is_pmix = std::env::var_os("PMIX_NAMESPACE").is_some() && number("PMIX_RANK").is_some();
        if let (Some(socket), Some(rank), Some(size)) = place {
            Self::take()?;
            let task = Task::new(rank, size, None)?;
            let mut client = pmi1::Client::new(socket, timeout)?;
            let task = Task::new(rank, size, client.node_position(task)?)?;
            return Ok(Some(Self { client: Client::Pmi1(client), task }));
        }
        if is_pmix {
            Self::take()?;
            let client = pmix::Client::new(timeout)?;
            let task = client.task()?;
            return Ok(Some(Self { client: Client::Pmix(Box::new(client)), task }));
        }
        let found = TASKS.into_iter().find_map(|(variable, tasks)| Some((variable, number(variable)?, number(tasks)?)));
        match found {
            Some((variable, rank, size)) if size > 1 => Err(StarterError::NoInterface { variable, rank, size }),
            _ => Ok(None),
        }
    }

    /// Only the first call gets the starter.
    fn take() -> Result<(), StarterError> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::Relaxed) { Err(StarterError::Left) } else { Ok(()) }
    }

    /// What this task knows of itself.
    pub const fn task(&self) -> Task {
        self.task
    }

    /// Carries rank 0's text to all ranks; all of them call this once. `text` is of rank 0 and has no white space.
    ///
    /// # Errors
    /// [`StarterError`]: [`Late`](StarterError::Late) if a rank does not call this in time.
    pub fn broadcast(&mut self, text: Option<&str>) -> Result<String, StarterError> {
        match &mut self.client {
            Client::Pmi1(client) => client.broadcast(text),
            Client::Pmix(client) => client.broadcast(text),
        }
    }

    /// Notifies the starter that this process has finished its part.
    pub fn finalize(self) {
        match self.client {
            Client::Pmi1(client) => client.finalize(),
            Client::Pmix(client) => client.finalize(),
        }
    }

    /// Asks the starter to end the job with this exit code.
    pub fn abort(&self, code: i32) {
        match &self.client {
            Client::Pmi1(client) => client.abort(code),
            Client::Pmix(client) => client.abort(code),
        }
    }
}
