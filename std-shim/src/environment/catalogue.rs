//! The variables that settings are read from.

/// A variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name without prefix.
    pub name: &'static str,
    /// What it sets.
    pub description: &'static str,
    /// What it is for.
    pub topic: Topic,
    /// Whether it must be equal on all ranks.
    pub is_common: bool,
}

/// What variables are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topic {
    /// The job, and this process's place in it.
    Job,
    /// The launcher.
    Launcher,
    /// The transport of messages.
    Transport,
    /// Injected faults.
    Faults,
    /// The failure of ranks.
    Failures,
    /// The algorithms of collectives.
    Algorithms,
    /// Reports.
    Reports,
}

const fn own(topic: Topic, name: &'static str, description: &'static str) -> Variable {
    Variable { name, description, topic, is_common: false }
}

const fn common(topic: Topic, name: &'static str, description: &'static str) -> Variable {
    Variable { name, description, topic, is_common: true }
}

/// All variables.
pub const VARIABLES: [Variable; 73] = [
    own(Topic::Job, "RANK", "The rank of this process."),
    own(Topic::Job, "SIZE", "The number of ranks."),
    own(Topic::Job, "BOOTSTRAP", "Where the rendezvous server is."),
    own(Topic::Job, "SERVE", "Whether rank 0 serves the rendezvous."),
    own(Topic::Job, "SECRET", "The secret of the job."),
    own(Topic::Job, "SECRET_FILE", "A file with the secret of the job."),
    own(Topic::Job, "JOB", "A name for the job."),
    own(Topic::Job, "NODE", "A number that is equal for ranks that share memory."),
    own(Topic::Job, "LOCAL_RANK", "The number of this rank among those of its node."),
    own(Topic::Job, "LOCAL_SIZE", "The number of ranks of the node."),
    own(Topic::Job, "SEGMENT", "The shared memory of the node."),
    own(Topic::Job, "LOCATION", "The switch, socket, NUMA node, cache and group of this rank."),
    common(Topic::Transport, "DEVICE", "The device: auto, shm, udp or verbs."),
    common(Topic::Transport, "PROGRESS", "What makes progress while the program computes: engine, thread or hybrid."),
    own(Topic::Transport, "MTU", "The largest datagram in bytes."),
    own(Topic::Transport, "GSO", "Whether the system cuts long buffers into datagrams: on or off."),
    own(Topic::Transport, "RAILS", "The interfaces, or adapters, that datagrams are sent over."),
    own(Topic::Transport, "RAILS_MAX", "The number of rails that there is room for, including those added later."),
    own(Topic::Transport, "INTEGRITY", "What finds corrupted datagrams: crc32c or link."),
    own(Topic::Transport, "QUEUES", "How the queues of an RDMA adapter are written: auto, library or raw."),
    own(Topic::Transport, "RC_LIMIT", "Most reliable connections of an RDMA adapter."),
    own(Topic::Transport, "EAGER_POOL", "Memory for messages that no receive waits for."),
    own(Topic::Faults, "LOSS", "The probability that a datagram is lost."),
    own(Topic::Faults, "REORDER", "The probability that a datagram is delayed."),
    own(Topic::Faults, "DUP", "The probability that a datagram is sent twice."),
    own(Topic::Faults, "CORRUPT", "The probability that a datagram is corrupted."),
    own(Topic::Faults, "CUT", "A rail, or all multicast groups, that lose all datagrams for a time."),
    own(Topic::Faults, "SEED", "The seed of the faults."),
    own(Topic::Failures, "ON_DEATH", "What happens when a rank fails."),
    common(Topic::Failures, "SILENCE", "Silence after which a rank counts as failed."),
    own(Topic::Failures, "WATCHDOG", "Time in a collective after which missing ranks are reported."),
    own(Topic::Failures, "STUCK", "Time without progress after which a blocked rank reports what it waits for."),
    own(Topic::Failures, "UNREACHABLE", "Time without an answer after which a rank counts as failed."),
    common(Topic::Transport, "CHECK", "Whether messages are checked for the type of their elements: on or off."),
    common(Topic::Transport, "MULTICAST", "The multicast groups of collectives."),
    common(Topic::Transport, "GROUPS", "When multicast groups are made: basic, lazy or pool."),
    own(Topic::Transport, "ATTACH", "Wait for a late leader after which a rank joins a multicast group itself."),
    common(Topic::Transport, "MULTICAST_ACKS", "Who acknowledges multicasts to whom: basic, tree or co-root."),
    own(Topic::Launcher, "PIN", "Whether ranks are pinned to processors."),
    own(Topic::Launcher, "TAG_OUTPUT", "Whether lines of output name their rank."),
    own(Topic::Launcher, "RSH", "The command that starts processes on other hosts."),
    own(Topic::Launcher, "GRACE", "Time between the request to end and the end by force."),
    own(Topic::Launcher, "RANKS", "The number of ranks to start."),
    own(Topic::Launcher, "MPI", "Whether the MPI library is preloaded."),
    own(Topic::Launcher, "NODES", "The number of nodes that the ranks are divided into."),
    own(Topic::Launcher, "SWITCHES", "The number of switches that the nodes are divided among."),
    own(Topic::Launcher, "SOCKETS", "The number of sockets that the ranks of a node are divided among."),
    own(Topic::Launcher, "CACHES", "The number of caches that the ranks of a socket are divided among."),
    own(Topic::Launcher, "HOSTS", "The hosts, and their numbers of ranks."),
    own(Topic::Launcher, "BARE_METAL", "The number of ranks that run in a virtual machine."),
    own(Topic::Launcher, "IMAGE", "Their image."),
    own(Topic::Launcher, "EMULATOR", "The command that runs it."),
    own(Topic::Failures, "ASSEMBLY", "Longest time until all ranks have joined."),
    own(Topic::Reports, "STATS", "Whether each rank prints its counters at the end: on or off."),
    own(Topic::Reports, "STATS_FILE", "A file that each rank appends its counters to."),
    own(Topic::Launcher, "LOG", "The log filter of the command."),
    common(Topic::Algorithms, "BARRIER", "The algorithm of barriers."),
    common(Topic::Algorithms, "BROADCAST", "The algorithm of broadcasts."),
    common(Topic::Algorithms, "REDUCE", "The algorithm of reductions."),
    common(Topic::Algorithms, "ALLREDUCE", "The algorithm of allreduce."),
    common(Topic::Algorithms, "GATHER", "The algorithm of gather."),
    common(Topic::Algorithms, "SCATTER", "The algorithm of scatter."),
    common(Topic::Algorithms, "ALLGATHER", "The algorithm of allgather."),
    common(Topic::Algorithms, "ALLTOALL", "The algorithm of alltoall."),
    common(Topic::Algorithms, "REDUCE_SCATTER", "The algorithm of reduce-scatter."),
    common(Topic::Algorithms, "SCAN", "The algorithm of scans."),
    common(Topic::Algorithms, "EXSCAN", "The algorithm of exclusive scans."),
    common(Topic::Algorithms, "TUNING", "A table of algorithms."),
    common(Topic::Algorithms, "SHARING", "The number of ranks that share a processor."),
    common(Topic::Algorithms, "LINK_SPEED", "The speed of the link that the ranks of a host share."),
    common(Topic::Algorithms, "HIERARCHY", "The groups of ranks that collectives use."),
    common(Topic::Algorithms, "LEADERS", "The ranks of a group that send to other groups: auto, one or all."),
    common(Topic::Algorithms, "PARTS", "Whether blocks go down to a group in parts: auto, on or off."),
];
