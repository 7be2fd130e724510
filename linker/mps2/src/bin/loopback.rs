//! The self-contained image: two endpoints in static memory exchange data over a faulty wire, and the image reports the
//! result.
#![no_std]
#![no_main]

use core::sync::atomic::AtomicU8;

use static_cell::{ConstStaticCell, StaticCell};
use unisono_loopback::device::LoopbackDevice;
use unisono_loopback::exchange::{self, Outcome};
use unisono_loopback::node::{BULK, Node, SOURCE, STREAM};
use unisono_loopback::wire::{Faults, Wire};
use unisono_mps2::{clock, semihosting, stack};

/// Of 256 datagrams, 13 are lost (5 %), 5 doubled (2 %), 13 overtaken.
const FAULTS: Faults = Faults { dropped: 13, duplicated: 5, overtaken: 13 };

static ENDS: [ConstStaticCell<LoopbackDevice<'static>>; 2] = [const { ConstStaticCell::new(LoopbackDevice::new()) }; 2];
static WIRES: [ConstStaticCell<Wire>; 2] =
    [ConstStaticCell::new(Wire::new(FAULTS, 7)), ConstStaticCell::new(Wire::new(FAULTS, 8001))];
static NODES: [StaticCell<Node<'static, 'static>>; 2] = [const { StaticCell::new() }; 2];
static SOURCES: [[AtomicU8; SOURCE]; 2] = [const { [const { AtomicU8::new(0) }; SOURCE] }; 2];
static INBOXES: [[AtomicU8; STREAM]; 2] = [const { [const { AtomicU8::new(0) }; STREAM] }; 2];
static BULKS: [[AtomicU8; BULK]; 2] = [const { [const { AtomicU8::new(0) }; BULK] }; 2];

/// Entered once, from `reset`.
#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    #[cfg(mutant = "panic")]
    let _ = core::hint::black_box(None::<u32>).expect("planted");
    let status = match exchange() {
        Some(outcome) => {
            report(&outcome);
            let (bytes, untouched) = stack::depth();
            semihosting::write_value(b"stack_used", bytes.wrapping_sub(untouched));
            let idle_micros = outcome.idle_periods > 0 && outcome.idle_micros < outcome.micros;
            if outcome.is_proven() && idle_micros && untouched >= bytes / 4 {
                semihosting::PASSED
            } else {
                semihosting::FAILED
            }
        }
        None => semihosting::FAILED,
    };
    semihosting::exit(status)
}

/// `None` when a static was taken before, which nothing does.
fn exchange() -> Option<Outcome> {
    let mut clock = clock::Clock::start();
    let now = clock.now();
    let node = |rank: u32, end: &'static ConstStaticCell<LoopbackDevice<'static>>, node: &'static StaticCell<_>| {
        let [source, inbox, bulk] = match rank {
            0 => [&SOURCES[0][..], &INBOXES[0][..], &BULKS[0][..]],
            _ => [&SOURCES[1][..], &INBOXES[1][..], &BULKS[1][..]],
        };
        let end = end.try_take()?;
        node.try_init_with(|| Node::new(now, rank, end, source, inbox, bulk))
    };
    let [first_end, second_end] = &ENDS;
    let [first, second] = &NODES;
    let [there, back] = &WIRES;
    let nodes = [node(0, first_end, first)?, node(1, second_end, second)?];
    Some(exchange::run(&mut clock, nodes, [there.try_take()?, back.try_take()?]))
}

/// A line for each figure. Counts are sums over both nodes.
fn report(outcome: &Outcome) {
    let figures: [(&[u8], u32); 17] = [
        (b"micros", outcome.micros),
        (b"rested_micros", outcome.idle_micros),
        (b"rests", outcome.idle_periods),
        (b"delivered", outcome.delivered),
        (b"misordered", outcome.misordered),
        (b"placed_bytes", outcome.placed),
        (b"wrong_bytes", outcome.wrong),
        (b"failures", outcome.failures),
        (b"datagrams", outcome.faults.taken),
        (b"dropped", outcome.faults.dropped),
        (b"duplicated", outcome.faults.duplicated),
        (b"overtaken", outcome.faults.overtaken),
        (b"data_sent", outcome.data_sent),
        (b"resent_nack", outcome.resent_nack),
        (b"resent_probe", outcome.resent_probe),
        (b"spurious", outcome.spurious),
        (b"ended", u32::from(outcome.ended)),
    ];
    for (name, value) in figures {
        semihosting::write_value(name, value);
    }
}
