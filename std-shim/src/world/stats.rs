//! What a rank prints, or appends to a file, about itself at the end (`--stats`, `--stats-file`).

use core::fmt::Write as _;
use std::fs::OpenOptions;
use std::io;
use std::io::Write as _;
use std::path::Path;

use unisono_core::counters::Counters;
use unisono_core::device::TxReason;

use super::rails::RailStats;
use super::statistics::{Listed, Snapshot};
use super::watchdog::report;
use crate::environment::{Integrity, Settings, Switch};
use unisono_bootstrap::Rank;

/// What a rank did until its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stats<'a> {
    pub(super) rank: Rank,
    pub(super) counts: &'a Snapshot,
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
        let of = |reason: TxReason| self.counts.counters.sent.get(reason as usize).copied().unwrap_or(0);
        of(TxReason::ResentNack).saturating_add(of(TxReason::ResentProbe))
    }

    fn text(&self) -> String {
        let Counters { sent, accepted, dropped, duplicates, bytes_sent, bytes_accepted, .. } = &self.counts.counters;
        let sum = |counts: &[u64]| counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let mut text = format!(
            "ends: {} operations, {} of them failed; {} collectives; sent {} datagrams of {bytes_sent} bytes, {} of them \
             again; accepted {} of {bytes_accepted} bytes, {duplicates} duplicates, {} dropped",
            self.counts.ended,
            self.counts.failed,
            self.counts.collectives,
            sum(sent),
            self.resent(),
            sum(accepted),
            sum(dropped),
        );
        if let [executed, failed] = self.counts.payload_reads
            && executed | failed > 0
        {
            // Writing to a String does not fail.
            let _ = write!(text, "; the adapter read {executed} payloads, {failed} reads failed");
        }
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
        let mut line = format!("{{\"rank\":{}", self.rank);
        // Writing to a String does not fail.
        self.counts.list(|Listed { name, names, values, .. }| {
            let _ = match (name.strip_suffix('_'), values) {
                (Some(group), _) => {
                    let field = |(name, count)| format!("\"{name}\":{count}");
                    let fields: Vec<String> = names.iter().zip(values).map(field).collect();
                    write!(line, ",\"{group}\":{{{}}}", fields.join(","))
                }
                (None, [value]) => write!(line, ",\"{name}\":{value}"),
                (None, _) => Ok(()),
            };
        });
        let _ = write!(line, ",\"integrity\":\"{}\",\"rails\":[{}]}}", self.integrity, self.rails_json());
        line
    }
}
