//! The first serial line (National Semiconductor PC16550D): the output of the image.

use core::fmt;

use x86_64::instructions::port::Port;

const DATA: u16 = 0x3f8;
const LINE_STATUS: u16 = DATA + 5;
/// The transmitter has room.
const EMPTY: u8 = 1 << 5;

/// The line. What is written to it waits until it has gone.
#[derive(Debug)]
pub struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let (mut data, mut status) = (Port::new(DATA), Port::<u8>::new(LINE_STATUS));
        for byte in text.bytes() {
            // SAFETY: a PC has this register there; reading it changes nothing but error bits, which nobody reads.
            while unsafe { status.read() } & EMPTY == 0 {}
            // SAFETY: a PC has this register there; the line sends the byte, and that is all.
            unsafe { data.write(byte) };
        }
        Ok(())
    }
}

/// Writes a line.
#[macro_export]
macro_rules! say {
    ($($what:tt)*) => {{
        use core::fmt::Write as _;
        let _ = core::writeln!($crate::serial::Serial, $($what)*);
    }};
}
