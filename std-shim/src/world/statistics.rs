//! The counters of a rank, by name: while it runs, and at its end for `--stats-file`.

use std::sync::LazyLock;

use unisono_core::counters::{Counters, DropReason};
use unisono_core::device::TxReason;
use unisono_core::multicast::StreamCounters;
use unisono_core::wire::DatagramKind;

use super::World;
use super::collective::engine::multicast_streams::AttachCounters;
use super::collective::engine::token_trees::TreeCounters;
use super::process::remote_access::RemoteAccessCounters;

/// A number that a rank counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statistic {
    /// Its name.
    pub name: String,
    /// What it counts.
    pub description: &'static str,
    /// What it is about.
    pub topic: StatisticTopic,
    /// Whether it also decreases.
    pub is_level: bool,
}

/// What a statistic is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatisticTopic {
    /// Messages and collectives.
    Messages,
    /// Datagrams.
    Datagrams,
    /// Multicast.
    Multicast,
    /// One-sided communication.
    OneSided,
}

/// The values of all statistics at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// Requests and collectives that ended, and those that failed.
    pub(super) ended: u64,
    pub(super) failed: u64,
    /// Collectives that the program called on the World.
    pub(super) collectives: u64,
    /// Posted receives, and unexpected messages.
    waiting: [u64; 2],
    pub(super) counters: Counters,
    streams: StreamCounters,
    /// Groups that communicators took from the pool.
    groups_taken: u64,
    /// How often this rank joined a group although it is no leader, and left one.
    attached: AttachCounters,
    trees: TreeCounters,
    native: [u64; 2],
    /// Reads of announced payloads that the adapter executed, and that failed.
    pub(super) payload_reads: [u64; 2],
    /// Blocks of alltoalls written to others, and messages of operations that were refused.
    one_sided: RemoteAccessCounters,
    /// System calls that sent, and that received.
    calls: [u64; 2],
}

/// A statistic, or a group of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed<'a> {
    topic: StatisticTopic,
    description: &'static str,
    /// The name; of a group the beginning of the names, with an underscore.
    pub(super) name: &'static str,
    /// The rest of each name.
    pub(super) names: &'a [&'static str],
    pub(super) values: &'a [u64],
}

impl Snapshot {
    /// All statistics, in their order.
    pub(super) fn list(&self, mut each: impl FnMut(Listed<'_>)) {
        let mut each = |(topic, description, name, names, values): (_, _, _, &[&'static str], &[u64])| {
            each(Listed { topic, description, name, names, values });
        };
        use StatisticTopic::{Datagrams, Messages, Multicast, OneSided};
        let Self { ended, failed, collectives, waiting: [posted, unexpected], counters, streams, trees, .. } = *self;
        let Counters { sent, accepted, dropped, duplicates, spurious, bytes_sent, bytes_accepted, .. } = counters;
        let (native, calls) = (self.native, self.calls);
        let single: [(StatisticTopic, &str, &str, u64); 5] = [
            (Messages, "Requests and collectives that have ended.", "operations", ended),
            (Messages, "Those of them that failed.", "operations_failed", failed),
            (Messages, "Collectives called on the communicator of all ranks.", "collectives", collectives),
            (Messages, "Receives that have matched no message.", "receives_posted", posted),
            (Messages, "Messages that no receive has matched.", "messages_unexpected", unexpected),
        ];
        single.into_iter().for_each(|(topic, about, name, value)| each((topic, about, name, &[""], &[value])));
        each((Datagrams, "Datagrams sent, by reason.", "sent_", &TxReason::NAMES, &sent));
        each((Datagrams, "Datagrams accepted, by kind.", "accepted_", &DatagramKind::NAMES, &accepted));
        each((Datagrams, "Datagrams dropped, by reason.", "dropped_", &DropReason::NAMES, &dropped));
        let more: [(&str, &str, u64); 6] = [
            ("Datagrams received before.", "duplicates", duplicates),
            ("Datagrams sent again although they had arrived.", "spurious", spurious),
            ("Bytes of sent datagrams.", "bytes_sent", bytes_sent),
            ("Bytes of accepted datagrams.", "bytes_accepted", bytes_accepted),
            ("System calls that sent.", "send_calls", calls[0]),
            ("System calls that received.", "receive_calls", calls[1]),
        ];
        more.into_iter().for_each(|(about, name, value)| each((Datagrams, about, name, &[""], &[value])));
        let StreamCounters { co_root_copies, repaired, repaired_all, probes, placed, foreign, .. } = streams;
        let AttachCounters { attached, detached } = self.attached;
        each((
            Multicast,
            "Segments of multicast broadcasts; groups that communicators took from the pool; joins beside a leader.",
            "multicast_",
            &[
                "sent",
                "co_root_copies",
                "placed",
                "repaired",
                "repaired_all",
                "probes",
                "reports",
                "reports_received",
                "foreign",
                "groups_taken",
                "attached",
                "detached",
            ],
            &[
                streams.sent,
                co_root_copies,
                placed,
                repaired,
                repaired_all,
                probes,
                streams.reports_sent,
                streams.reports,
                foreign,
                self.groups_taken,
                attached,
                detached,
            ],
        ));
        each((
            Multicast,
            "Releases of barriers by multicast.",
            "releases_",
            &["multicasts", "received", "asks"],
            &[trees.multicasts, trees.received, trees.asks],
        ));
        each((
            OneSided,
            "One-sided operations that the adapter was to execute by itself, and those that it did not.",
            "native_",
            &["posted", "failed"],
            &native,
        ));
        each((
            Messages,
            "Reads of announced payloads that the adapter executed by itself, and those that failed.",
            "payload_reads_",
            &["executed", "failed"],
            &self.payload_reads,
        ));
        let RemoteAccessCounters { blocks_written, refused } = self.one_sided;
        each((OneSided, "Blocks of alltoalls written to others.", "blocks_written", &[""], &[blocks_written]));
        each((OneSided, "Messages of operations that their targets refused.", "operations_refused", &[""], &[refused]));
    }

    /// The value of a statistic, by its place in [`statistics`].
    pub fn value(&self, place: usize) -> Option<u64> {
        let (mut left, mut found) = (place, None);
        self.list(|Listed { values, .. }| {
            found = found.or_else(|| values.get(left).copied());
            left = if found.is_some() { usize::MAX } else { left.saturating_sub(values.len()) };
        });
        found
    }
}

/// All statistics.
pub fn statistics() -> &'static [Statistic] {
    static ALL: LazyLock<Vec<Statistic>> = LazyLock::new(|| {
        let mut all = Vec::new();
        Snapshot::default().list(|Listed { topic, description, name, names, values }| {
            debug_assert_eq!(names.len(), values.len(), "{name}");
            let is_level = ["receives_posted", "messages_unexpected"].contains(&name);
            let statistic = |rest| Statistic { name: format!("{name}{rest}"), description, topic, is_level };
            all.extend(names.iter().map(statistic));
        });
        all
    });
    &ALL
}

#[doc(hidden)]
impl World {
    /// The values of all [`statistics`] now.
    pub fn raw_statistics(&self) -> Snapshot {
        let process = self.shared.lock();
        Snapshot {
            ended: process.requests.finished(),
            failed: process.requests.failed(),
            collectives: u64::from(self.call()),
            waiting: process.messenger.matching().waiting_counts().map(u64::from),
            counters: process.datagrams.counters,
            streams: process.stream_counters(),
            groups_taken: process.groups_taken(),
            attached: process.attach_counters(),
            trees: process.tree_counters(),
            native: process.remote_access.native.counts(),
            payload_reads: process.transport.reliable.reads(),
            one_sided: process.remote_access.counters,
            calls: [self.udp_counters.send_calls.get(), self.udp_counters.receive_calls.get()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_each_has_its_value() {
        let all = statistics();
        let mut names: Vec<&str> = all.iter().map(|statistic| statistic.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        let place = |name: &str| all.iter().position(|statistic| statistic.name == name).expect("it exists");
        let mut snapshot = Snapshot {
            ended: 3,
            native: [0, 5],
            payload_reads: [8, 9],
            one_sided: RemoteAccessCounters { blocks_written: 6, refused: 7 },
            ..Snapshot::default()
        };
        snapshot.counters.dropped[DropReason::Refused as usize] = 4;
        let names = ["operations", "native_failed", "dropped_refused", "blocks_written", "payload_reads_failed"];
        assert_eq!(names.map(|name| snapshot.value(place(name))), [3, 5, 4, 6, 9].map(Some));
        assert_eq!((snapshot.value(all.len() - 1), snapshot.value(all.len())), (Some(7), None));
    }
}
