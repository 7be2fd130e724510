//! All counters of a rank and of its device, as one JSON object.

use serde_json::{Map, Value, json};
use unisono::World;
use unisono_core::counters::{Counters, DropReason};
use unisono_core::device::TxReason;
use unisono_core::wire::DatagramKind;
use unisono_udp::{RailCounters, UdpCounters};

/// An object of all fields of a struct but those after a semicolon: their names, and their values by `$read`.
macro_rules! all_of {
    ($type:ident { $($field:ident),* $(,)? $(; $skipped:ident),* } = $from:expr, $read:expr) => {{
        let $type { $($field,)* $($skipped: _,)* } = $from;
        json!({ $(stringify!($field): $read($field)),* })
    }};
}

/// The counters of this rank.
pub(super) fn all_counters(world: &World) -> Value {
    let Counters {
        accepted,
        duplicates,
        duplicates_resent,
        dropped,
        withdrawn,
        out_of_order,
        sent,
        spurious,
        bytes_sent,
        bytes_accepted,
        granted,
        sizes,
        round_trips,
    } = world.counters();
    json!({
        "rank": world.rank().0,
        "sent": named(&TxReason::NAMES, &sent),
        "accepted": named(&DatagramKind::NAMES, &accepted),
        "dropped": named(&DropReason::NAMES, &dropped),
        "duplicates": duplicates,
        "duplicates_resent": duplicates_resent,
        "withdrawn": withdrawn,
        "out_of_order": out_of_order,
        "spurious": spurious,
        "granted": granted,
        "bytes_sent": bytes_sent,
        "bytes_accepted": bytes_accepted,
        "datagram_bytes": histogram(&sizes),
        "round_trip_64ns": histogram(&round_trips),
        "device": device_counters(world),
    })
}

fn device_counters(world: &World) -> Value {
    let mut all = all_of!(
        UdpCounters {
            sent,
            sent_bytes,
            send_calls,
            lost_no_path,
            lost_would_block,
            lost_no_buffers,
            lost_unreachable,
            lost_too_large,
            lost_other,
            gso_refused,
            received,
            received_bytes,
            receive_calls,
            bad_checksum,
            truncated,
            too_short,
            receive_errors,
            injected_loss,
            injected_duplicates,
            injected_reorders,
            injected_corruptions,
            injected_cut,
            ; rails
        } = world.udp_counters(),
        unisono_udp::Counter::get
    );
    all["rails"] = world.udp_counters().rails.iter().take(world.rail_stats().len()).map(rail_counters).collect();
    all
}

fn rail_counters(rail: &RailCounters) -> Value {
    all_of!(
        RailCounters { sent, sent_bytes, lost, received, received_bytes, link_downs, injected_cut } = rail,
        unisono_udp::Counter::get
    )
}

fn named(names: &[&str], counts: &[u64]) -> Value {
    names.iter().zip(counts).map(|(name, count)| ((*name).to_owned(), json!(count))).collect::<Map<_, _>>().into()
}

/// A histogram by significant bits.
fn histogram(counts: &[u64]) -> Value {
    let used = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    used.map(|(bits, count)| (format!("<2^{bits}"), json!(count))).collect::<Map<_, _>>().into()
}
