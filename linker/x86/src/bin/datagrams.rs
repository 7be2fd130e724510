//! The network image: it runs a transfer with a rank on the network, as its command line states.
#![no_std]
#![no_main]

use core::net::Ipv4Addr;

use static_cell::{ConstStaticCell, StaticCell};
use unisono_core::counters::Counters;
use unisono_core::device::{Device, TxReason};
use unisono_core::endpoint::operation::Operation;
use unisono_core::endpoint::peer::Peer;
use unisono_core::endpoint::placement::Placement;
use unisono_core::endpoint::storage::Arrays;
use unisono_core::endpoint::{Config, ControlMessage, Endpoint, Pools, Sender};
use unisono_core::ids::{Incarnation, PeerId};
use unisono_core::time::Nanos;
use unisono_core::window::receive_window::ReceiveWindow;
use unisono_ethernet::address_table::{AddressEntry, Interface, Path};
use unisono_ethernet::device::{Buffer, DropCounts, EthernetDevice, SPARE};
use unisono_ethernet::smoltcp::wire::Ipv4Cidr;
use unisono_ethernet::transfer::{PIECE, PIECES, Transfer};
use unisono_x86::boot::CommandLine;
use unisono_x86::network::{self, VirtioNet};
use unisono_x86::static_memory::{RegionBytes, StaticRegions};
use unisono_x86::{clock, exit, say};

/// Ranks of the job.
const RANKS: usize = 2;
/// Segments per window.
const WINDOW: usize = 128;
/// Early datagrams set aside.
const HOLDABLE: usize = 56;
/// Operations under way: placements, and offers of memory.
const OPERATIONS: usize = 2 * PIECES;
/// Control datagrams that wait to be sent.
const NOTICES: usize = 16;

type Records = Arrays<Nanos, RANKS, 1, OPERATIONS, PIECES, NOTICES>;
type Wire = EthernetDevice<'static, VirtioNet, RegionBytes>;

static MEMORY: StaticRegions<{ 2 * PIECES }, { PIECE as usize }> = StaticRegions::new();
static BUFFERS: ConstStaticCell<[Buffer; HOLDABLE + SPARE]> =
    ConstStaticCell::new([const { Buffer::FREE }; HOLDABLE + SPARE]);
static NEIGHBOURS: StaticCell<[AddressEntry; RANKS]> = StaticCell::new();
static TRANSFER: StaticCell<Transfer<Records, WINDOW>> = StaticCell::new();

/// `rank=`, `incarnation=`, `address=` and `port=` of this node; `peer=`, `peer_incarnation=`, `peer_address=`,
/// `peer_port=` and `peer_mtu=` of the other; `bytes=` each way.
#[unsafe(no_mangle)]
fn node_main(arguments: CommandLine) -> u8 {
    match run(arguments) {
        Ok(()) => exit::DONE,
        Err(reason) => {
            say!("{reason}");
            exit::FAILED
        }
    }
}

fn run(arguments: CommandLine) -> Result<(), &'static str> {
    let number = |name| arguments.number(name).ok_or("a number is missing");
    let port = |name| number(name).and_then(|port| u16::try_from(port).map_err(|_| "a port has 16 bits"));
    let address = |name| {
        let address = arguments.value(name).and_then(|text| text.parse::<Ipv4Addr>().ok());
        address.ok_or("an address is missing")
    };
    let network = network::find().ok_or("no network")?;
    let own = Interface {
        hardware: network.hardware(),
        address: Ipv4Cidr::new(address("address")?, 24),
        gateway: None,
        port: port("port")?,
    };
    let (neighbours, buffers) = (NEIGHBOURS.init([AddressEntry::UNKNOWN; RANKS]), BUFFERS.take());
    let mut wire = Wire::new(network, own, neighbours, buffers).map_err(|_| "no device")?;
    let (peer, peer_port, mtu) = (PeerId(number("peer")?), port("peer_port")?, number("peer_mtu")?);
    let path = Path { address: address("peer_address")?, ports: [peer_port; 2], mtu };
    wire.set_path(peer, path).map_err(|_| "no path")?;
    let memory = MEMORY.take().ok_or("no memory")?;
    let config = Config::new(PeerId(number("rank")?), Incarnation(number("incarnation")?), &wire.limits());
    let pools = Pools {
        peers: [Peer::UNKNOWN; RANKS],
        senders: [Sender::FREE; 1],
        rails: [],
        receivers: [ReceiveWindow::EMPTY; 1],
        operations: [Operation::FREE; OPERATIONS],
        placements: [Placement::FREE; PIECES],
        control_messages: [ControlMessage::FREE; NOTICES],
    };
    let began = clock::ticks();
    let now = || clock::nanoseconds(clock::ticks().wrapping_sub(began));
    let mut endpoint = Endpoint::new(now(), config, pools);
    endpoint.add_peer(now(), peer, Incarnation(number("peer_incarnation")?), mtu.min(wire.limits().mtu));
    let regions = |first: usize| core::array::from_fn(|i| memory.region(first.wrapping_add(i)));
    let bytes = u64::from(number("bytes")?);
    let transfer = TRANSFER.init(Transfer::new(endpoint, peer, bytes, regions(0), regions(PIECES)));
    while !transfer.is_complete() {
        if let Err(error) = transfer.step(now(), &mut wire, &memory) {
            say!("{transfer:?}: {error:?}");
            return Err("the transfer failed");
        }
    }
    let [sent, received] = transfer.hashes();
    say!("sent {sent:016x}");
    say!("received {received:016x}");
    report(transfer.counters(), &wire, now());
    Ok(())
}

/// Prints the counters for the table of the harness.
fn report(counters: &Counters, wire: &Wire, nanoseconds: u64) {
    say!("data {} first {}", counters.data_sent(), counters.sent_for(TxReason::First));
    say!("microseconds {}", nanoseconds.wrapping_div(1000));
    let DropCounts { unknown_peer, unresolved, foreign, malformed, corrupt } = wire.drop_counts();
    say!("unknown_peer {unknown_peer} unresolved {unresolved}");
    say!("foreign {foreign}");
    say!("malformed {malformed}");
    say!("corrupt {corrupt}");
}
