//! Calls that only one rank takes part in: bounds of datatypes, packing, and reductions of its own data.

use alloc::rc::Rc;

use fastrand::Rng;

use super::memory::{Block, Fill, Part};
use super::messages::data;
use super::reductions::reduce_local;
use super::script::Script;

/// Some calls of a rank.
pub(super) fn calls(script: &mut Script, rng: &mut Rng, rank: u32, bytes: usize) {
    let unit = script.datatypes.unit(rng);
    let grain = 12;
    let units = bytes / (unit.size() * grain) * grain;
    let parts = [(); 2].map(|()| {
        let datatype = script.datatypes.draw(rng, &unit, grain);
        let fill = Fill { seed: rng.u64(..) >> 1, basic: None };
        Part::new(fill, vec![Block::first(units / datatype.units, &datatype)])
    });
    let buffers = [0, 1].map(|i| script.buffer(rank, &parts[i]));
    for part in &parts {
        let datatype = Rc::clone(&part.blocks[0].datatype);
        let (first, last) = datatype.true_bounds();
        script.line(rank, format!("describe {}", datatype.id));
        let (size, lower, extent) = (datatype.size(), datatype.lower(), datatype.extent());
        script.expect(rank, format!("T {size} {lower} {extent} {first} {}", last - first));
    }
    let packed = parts[0].pack(&parts[0].memory(), 0);
    let plain = script.new_buffer(rank);
    script.line(rank, format!("buffer {plain} {}", packed.len()));
    script.line(rank, format!("pack {} {plain}", data(buffers[0], &parts[0])));
    script.expect(rank, format!("P {}", packed.len()));
    script.show(rank, plain, &packed);
    script.line(rank, format!("unpack {plain} {}", data(buffers[1], &parts[1])));
    script.expect(rank, format!("P {}", packed.len()));
    let mut memory = parts[1].memory();
    parts[1].unpack(&mut memory, 0, &packed);
    script.show(rank, buffers[1], &memory);
    reduce_local(script, rng, rank, bytes);
}
