//! The table of sizes in `docs/performance.md` is what the compiler says.

use unisono_core::endpoint::operation::Operation;
use unisono_core::endpoint::peer::Peer;
use unisono_core::endpoint::placement::Placement;
use unisono_core::endpoint::storage::Arrays;
use unisono_core::endpoint::{ControlMessage, Endpoint, Sender};
use unisono_core::time::{Micros, Nanos};
use unisono_core::window::receive_window::ReceiveWindow;
use unisono_core::wire::{HEADER, SEGMENT_HEADER};
use unisono_memory::endpoint_storage::WINDOW;

/// An endpoint for a microcontroller: 16 peers, all active, windows of 16.
type Small = Endpoint<Arrays<Micros, 16, 16, 32, 16, 16>, 16, 32>;

#[test]
fn table_of_sizes_is_true() {
    let rows = [
        ("header of every datagram", HEADER),
        ("header of a placement segment", SEGMENT_HEADER),
        ("longest acknowledgement", unisono_core::device::HEADER_ROOM),
        ("idle peer, core", size_of::<Peer<Nanos, 32>>()),
        ("idle peer, UDP address table, for each rail", unisono_udp::RECORD_BYTES),
        ("send window of 256 segments", size_of::<Sender<Nanos, WINDOW, 32>>()),
        ("receive window of 256 segments", size_of::<ReceiveWindow<WINDOW>>()),
        ("send window of 16 segments", size_of::<Sender<Micros, 16, 32>>()),
        ("receive window of 16 segments", size_of::<ReceiveWindow<16>>()),
        ("operation", size_of::<Operation>()),
        ("grant", size_of::<Placement>()),
        ("control datagram that waits", size_of::<ControlMessage>()),
        ("whole endpoint for 16 active peers, W = 16, 64-bit host", size_of::<Small>()),
    ];
    let table: String = rows.iter().map(|(what, bytes)| format!("| {what} | {bytes} |\n")).collect();
    let document = include_str!("../../docs/performance.md");
    assert!(document.contains(&table), "docs/performance.md should say\n{table}");
}
