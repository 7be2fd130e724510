//! User memory, named by region and span.

use core::sync::atomic::AtomicU8;

use unisono_core::device::Memory;
use unisono_core::span::Span;

/// Bytes that the device reads and writes. Atomic, so that no exclusive reference to lent memory is needed: a load or a
/// store of one byte each, on every target.
pub type Bytes<'m> = &'m [AtomicU8];

/// Memory lent for good: region `i` is the `i`-th slice, in its life 0.
#[derive(Clone, Copy, Debug)]
pub struct Regions<'m, const N: usize>(pub [Bytes<'m>; N]);

impl<'m, const N: usize> Memory for Regions<'m, N> {
    type Address = Bytes<'m>;

    fn address(&self, span: Span) -> Option<Bytes<'m>> {
        let region = self.0.get(usize::try_from(span.region.index).ok()?)?;
        let end = span.offset.checked_add(usize::try_from(span.bytes).ok()?)?;
        if span.region.life == 0 { region.get(span.offset..end) } else { None }
    }
}
