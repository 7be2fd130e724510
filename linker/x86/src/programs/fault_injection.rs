//! Fault injection: the ways in which a node breaks on purpose.

use core::ptr::NonNull;

use unisono_node::member::Member;
use unisono_shmem::layout::Area;
use unisono_shmem::segment::{STRIDE, Site};
use unisono_x86::say;

/// Injects this fault. If it returns, the node continues as before.
#[expect(clippy::panic, reason = "to see what comes of it")]
pub(crate) fn inject(member: &Member<'static>, kind: &str, seed: u32) {
    say!("strikes");
    match kind {
        "own" => writable_areas(member, seed),
        "everywhere" => {
            let layout = member.layout();
            // No memory follows the last pool.
            let end =
                layout.pool(member.size().wrapping_sub(1)).map_or(0, |last| last.offset.saturating_add(last.bytes));
            scribble(member, Area { offset: 0, bytes: end }, seed);
        }
        "panic" => panic!("on request"),
        "fault" => {
            let nowhere = core::ptr::without_provenance_mut::<u8>(7 << 40);
            // SAFETY: not at all: nothing is mapped there, so that the processor faults, and the image ends.
            unsafe { NonNull::new(nowhere).unwrap_or(NonNull::dangling()).write_volatile(1) };
        }
        "overflow" => say!("{}", descend(seed)),
        // Without interrupts the heart stops.
        "hang" => {
            x86_64::instructions::interrupts::disable();
            loop {
                x86_64::instructions::hlt();
            }
        }
        _ => say!("unknown fault {kind:?}"),
    }
}

/// Runs into the guard below the stack.
#[expect(unconditional_recursion, reason = "that is what it is for")]
fn descend(depth: u32) -> u32 {
    let frame = core::hint::black_box([depth; 256]);
    descend(depth.wrapping_add(1)).wrapping_add(frame.iter().fold(0, |sum: u32, word| sum.wrapping_add(*word)))
}

/// Every word that this rank may write.
fn writable_areas(member: &Member<'static>, seed: u32) {
    let (layout, own) = (member.layout(), member.local());
    for area in [layout.rank_slot(own), layout.collective_area(own), layout.pool(own)].into_iter().flatten() {
        scribble(member, area, seed);
    }
    for other in 0..member.size() {
        // A ring begins with what its consumer writes.
        let tail = layout.ring(other, own).map(|ring| Area { offset: ring.offset, bytes: STRIDE });
        let rest = layout
            .ring(own, other)
            .map(|ring| Area { offset: ring.offset.wrapping_add(STRIDE), bytes: ring.bytes.wrapping_sub(STRIDE) });
        for area in tail.into_iter().chain(rest) {
            scribble(member, area, seed);
        }
    }
}

/// Marsaglia's xorshift (2003), with the triple 13, 17, 5.
fn scribble(member: &Member<'static>, area: Area, seed: u32) {
    let mut dice = seed | 1;
    for word in member.segment().words(area.offset, area.bytes.wrapping_div(4)).into_iter().flatten() {
        dice ^= dice << 13;
        dice ^= dice >> 17;
        dice ^= dice << 5;
        word.publish(dice, Site::Plain);
    }
}
