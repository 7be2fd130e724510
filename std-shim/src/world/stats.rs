//! What a rank prints, or appends to a file, about itself at the end (`--stats`, `--stats-file`).

use core::fmt::Write as _;
use std::fs::OpenOptions;
use std::io;
use std::io::Write as _;
use std::path::Path;

use unisono_core::counters::{Counters, DropReason};
use unisono_core::device::TxReason;
use unisono_core::multicast::StreamCounters;
use unisono_core::wire::DatagramKind;
use unisono_udp::UdpCounters;

use super::collective::engine::token_trees::TreeCounters;
use super::rails::RailStats;
use super::watchdog::report;
use crate::environment::{Integrity, Settings, Switch};
use unisono_bootstrap::Rank;

/// What a rank did until its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stats<'a> {
    pub(super) rank: Rank,
    /// Requests and collectives that ended, and those that failed.
    pub(super) ended: u64,
    pub(super) failed: u64,
    /// Collectives that the program called on the World.
    pub(super) collectives: u32,
    pub(super) counters: &'a Counters,
    pub(super) udp: &'a UdpCounters,
    /// Of multicast.
    pub(super) streams: StreamCounters,
    /// Of releases of trees.
    pub(super) trees: TreeCounters,
    /// One-sided operations that the adapter was to execute by itself, and those of them that it did not.
    pub(super) native: [u64; 2],
    /// Blocks of alltoalls that this rank wrote to others.
    pub(super) blocks_written: u64,
    pub(super) rails: &'a [RailStats],
    pub(super) integrity: Integrity,
}

impl Stats<'_> {
    /// Prints and appends what the settings ask for. A file that cannot be written is reported.
    pub(super) fn publish(&self, settings: &Settings) {
        if settings.stats == Some(Switch::On) {
            report(self.rank, &self.text());
        }
        if let Some(path) = &settings.stats_file
            && let Err(error) = self.append(path)
        {
            report(self.rank, &format!("cannot write its statistics to {}: {error}", path.display()));
        }
    }

    /// One write of one line: those of several ranks do not mix.
    fn append(&self, path: &Path) -> io::Result<()> {
        OpenOptions::new().create(true).append(true).open(path)?.write_all(format!("{}\n", self.json()).as_bytes())
    }

    fn resent(&self) -> u64 {
        let of = |reason: TxReason| self.counters.sent.get(reason as usize).copied().unwrap_or(0);
        of(TxReason::ResentNack).saturating_add(of(TxReason::ResentProbe))
    }

    fn text(&self) -> String {
        let Counters { sent, accepted, dropped, duplicates, bytes_sent, bytes_accepted, .. } = self.counters;
        let sum = |counts: &[u64]| counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let mut text = format!(
            "ends: {} operations, {} of them failed; {} collectives; sent {} datagrams of {bytes_sent} bytes, {} of them \
             again; accepted {} of {bytes_accepted} bytes, {duplicates} duplicates, {} dropped",
            self.ended,
            self.failed,
            self.collectives,
            sum(sent),
            self.resent(),
            sum(accepted),
            sum(dropped),
        );
        for (number, rail) in self.rails.iter().enumerate().filter(|_| self.rails.len() > 1) {
            let RailStats {
                local, sent, sent_bytes, received, received_bytes, lost, deaths, is_alive, round_trip, ..
            } = rail;
            let local = local.map_or_else(String::new, |local| format!(" ({local})"));
            let state = if *is_alive { "alive" } else { "dead" };
            let round_trip = round_trip.map_or_else(String::new, |time| format!(", round trip {time:?}"));
            // Writing to a String does not fail.
            let _ = write!(
                text,
                "; rail {number}{local}: sent {sent} datagrams of {sent_bytes} bytes, received {received} of \
                 {received_bytes}, lost {lost}, died {deaths} times, is {state}{round_trip}",
            );
        }
        text
    }

    /// The rails as a JSON array.
    fn rails_json(&self) -> String {
        let rail = |rail: &RailStats| {
            let RailStats {
                local,
                sent,
                sent_bytes,
                received,
                received_bytes,
                lost,
                injected_cut,
                link_downs,
                deaths,
                is_alive,
                round_trip,
                timeout,
            } = rail;
            let local = local.map_or_else(|| "null".to_owned(), |local| format!("\"{local}\""));
            let [round_trip, timeout] = [round_trip, timeout]
                .map(|time| time.map_or_else(|| "null".to_owned(), |time| time.as_nanos().to_string()));
            format!(
                "{{\"local\":{local},\"sent\":{sent},\"bytes_sent\":{sent_bytes},\"received\":{received},\
                 \"bytes_received\":{received_bytes},\
                 \"lost\":{lost},\"injected_cut\":{injected_cut},\"link_downs\":{link_downs},\"deaths\":{deaths},\
                 \"alive\":{is_alive},\"round_trip_ns\":{round_trip},\"timeout_ns\":{timeout}}}",
            )
        };
        self.rails.iter().map(rail).collect::<Vec<_>>().join(",")
    }

    fn json(&self) -> String {
        let Counters { sent, accepted, dropped, duplicates, spurious, bytes_sent, bytes_accepted, .. } = self.counters;
        let mut line = format!(
            "{{\"rank\":{},\"operations\":{},\"failed\":{},\"collectives\":{}",
            self.rank, self.ended, self.failed, self.collectives
        );
        for (name, names, counts) in [
            ("sent", &TxReason::NAMES[..], &sent[..]),
            ("accepted", &DatagramKind::NAMES[..], &accepted[..]),
            ("dropped", &DropReason::NAMES[..], &dropped[..]),
        ] {
            let fields: Vec<String> =
                names.iter().zip(counts).map(|(name, count)| format!("\"{name}\":{count}")).collect();
            // Writing to a String does not fail.
            let _ = write!(line, ",\"{name}\":{{{}}}", fields.join(","));
        }
        let StreamCounters { repaired, repaired_all, probes, reports_sent, placed, foreign, .. } = self.streams;
        let _ = write!(
            line,
            ",\"multicast\":{{\"sent\":{},\"placed\":{placed},\"repaired\":{repaired},\
             \"repaired_all\":{repaired_all},\"probes\":{probes},\"reports\":{reports_sent},\"foreign\":{foreign}}}",
            self.streams.sent
        );
        let TreeCounters { multicasts, received, asks } = self.trees;
        let _ = write!(line, ",\"releases\":{{\"multicasts\":{multicasts},\"received\":{received},\"asks\":{asks}}}");
        let [posted, failed] = self.native;
        let _ = write!(line, ",\"native\":{{\"posted\":{posted},\"failed\":{failed}}}");
        let _ = write!(line, ",\"blocks_written\":{}", self.blocks_written);
        let _ = write!(line, ",\"integrity\":\"{}\",\"rails\":[{}]", self.integrity, self.rails_json());
        let _ = write!(
            line,
            ",\"duplicates\":{duplicates},\"spurious\":{spurious},\"bytes_sent\":{bytes_sent},\
             \"bytes_accepted\":{bytes_accepted},\"send_calls\":{},\"receive_calls\":{}}}",
            self.udp.send_calls.get(),
            self.udp.receive_calls.get(),
        );
        line
    }
}
