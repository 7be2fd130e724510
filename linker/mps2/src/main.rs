//! The image for Arm's MPS2 board with a Cortex-M4 (AN386): two endpoints exchange data over a faulty wire.
#![no_std]
#![no_main]

mod clock;
mod semihosting;
mod start;

use static_cell::ConstStaticCell;
use unisono_core::device::{Cause, Device, Lane, PeerId, Received, Token, Transmit};
use unisono_loopback::end::End;
use unisono_loopback::wire::{Faults, Wire};

static NEAR: ConstStaticCell<End<'static>> = ConstStaticCell::new(End::new());
static FAR: ConstStaticCell<End<'static>> = ConstStaticCell::new(End::new());
static WIRE: ConstStaticCell<Wire> =
    ConstStaticCell::new(Wire::new(Faults { dropped: 13, duplicated: 5, overtaken: 13 }, 7));

/// Entered once, from `reset`.
#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    let (Some(near), Some(far), Some(wire)) = (NEAR.try_take(), FAR.try_take(), WIRE.try_take()) else {
        semihosting::exit(semihosting::FAILED);
    };
    near.lead_to(PeerId(1));
    far.lead_to(PeerId(0));
    let mut clock = clock::Clock::start();
    let mut received = 0_u32;
    for _ in 0..1000 {
        if let Some(mut token) = near.token(Lane::Polled) {
            token.head().fill(7);
            let transmit = Transmit {
                to: PeerId(1),
                at: Lane::Polled,
                head: 64,
                payload: None,
                solicited: false,
                cause: Cause::First,
            };
            token.post(&transmit, None);
        }
        wire.carry(near, far);
        while let Some(arrival) = far.receive(Lane::Polled) {
            let slot = arrival.slot();
            received = received.wrapping_add(1);
            far.release(slot);
        }
    }
    semihosting::write_value(b"microseconds", clock.now());
    #[cfg(mutant = "panic")]
    let _ = core::hint::black_box(None::<u32>).expect("planted");
    let fates = wire.fates();
    semihosting::write_value(b"taken", fates.taken);
    semihosting::write_value(b"dropped", fates.dropped);
    semihosting::write_value(b"duplicated", fates.duplicated);
    semihosting::write_value(b"overtaken", fates.overtaken);
    semihosting::write_value(b"received", received);
    semihosting::exit(semihosting::PASSED)
}
