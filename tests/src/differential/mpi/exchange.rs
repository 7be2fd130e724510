//! Collectives that move blocks: to and from a root, among all, and among neighbours.

use alloc::rc::Rc;

use fastrand::Rng;

use super::communicators::Neighbours;
use super::datatype::{Datatype, list};
use super::memory::{Block, Fill, Part};
use super::script::{IN_PLACE, NO_DATA, PROC_NULL, ROOT, Script, Timing};

/// The ranks of a collective, by their ranks in the World.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// The number of the communicator.
    pub(super) on: usize,
    pub(super) members: &'a [u32],
}

/// How a call describes its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Variant {
    /// One count.
    Plain,
    /// A count and a displacement for each block.
    Counts,
    /// Also a datatype for each.
    Datatypes,
}

/// What all ranks of a call agree on.
#[derive(Debug)]
pub(super) struct Call {
    timing: Timing,
    /// The elements of all datatypes.
    unit: Rc<Datatype>,
    /// Every block has a multiple of this number of units, and every datatype divides it.
    grain: usize,
    /// Of the longest block.
    grains: usize,
    seed: u64,
}

impl Call {
    /// A call whose blocks have about `bytes` bytes.
    pub(super) fn draw(script: &mut Script, rng: &mut Rng, timing: Timing, bytes: usize) -> Self {
        let unit = script.datatypes.unit(rng);
        let grain = [1, 12][rng.usize(0..2)];
        Self { timing, grains: bytes / (unit.size() * grain), unit, grain, seed: rng.u64(..) >> 1 }
    }

    fn fill(&self, rank: u32, part: u64) -> Fill {
        Fill { seed: (self.seed ^ ((u64::from(rank) * 4 + part) << 32)) >> 1, basic: None }
    }

    fn datatype(&self, script: &mut Script, rng: &mut Rng) -> Rc<Datatype> {
        script.datatypes.draw(rng, &self.unit, self.grain)
    }

    /// A block of a number of grains.
    fn block(&self, at: isize, grains: usize, datatype: Rc<Datatype>) -> Block {
        Block { at, count: grains * self.grain / datatype.units, datatype }
    }

    /// Blocks of these numbers of grains, one after the other, or in any order with gaps.
    fn blocks(&self, script: &mut Script, rng: &mut Rng, grains: &[usize], variant: Variant) -> Vec<Block> {
        let one = self.datatype(script, rng);
        let mut order: Vec<usize> = (0..grains.len()).collect();
        if variant != Variant::Plain {
            rng.shuffle(&mut order);
        }
        let mut blocks: Vec<Block> = grains.iter().map(|grains| self.block(0, *grains, Rc::clone(&one))).collect();
        let mut next = 0;
        for i in order {
            if variant == Variant::Datatypes {
                blocks[i] = self.block(0, grains[i], self.datatype(script, rng));
                let (first, last) = blocks[i].range();
                let first = first.min(0);
                blocks[i].at = next - first;
                next += (last - first + 15) / 16 * 16;
            } else {
                let gap = if variant == Variant::Plain { 0 } else { rng.isize(0..3) };
                next += gap * one.extent();
                blocks[i].at = next;
                next += blocks[i].count as isize * one.extent();
            }
        }
        blocks
    }
}

/// The words of a call for the blocks of a part, in a form.
fn words(script: &mut Script, rank: u32, buffer: usize, part: &Part, variant: Variant, default: &Datatype) -> String {
    let (origin, blocks) = (part.origin, &part.blocks);
    script.make(rank, default);
    let datatype = blocks.first().map_or(default, |block| &*block.datatype);
    let counts: Vec<usize> = blocks.iter().map(|block| block.count).collect();
    match variant {
        Variant::Plain => {
            format!("{buffer} {origin} {} {}", counts.first().copied().unwrap_or(0), datatype.id)
        }
        Variant::Counts => {
            let displacements: Vec<isize> = blocks.iter().map(|block| block.at / datatype.extent()).collect();
            let (counts, displacements) = (list(&counts), list(&displacements));
            format!("{buffer} {origin} {}{counts}{displacements} {}", blocks.len(), datatype.id)
        }
        Variant::Datatypes => {
            let displacements: Vec<isize> = blocks.iter().map(|block| block.at).collect();
            let datatypes: Vec<usize> = blocks.iter().map(|block| block.datatype.id).collect();
            let (counts, displacements) = (list(&counts), list(&displacements));
            format!("{buffer} {origin} {}{counts}{displacements}{}", blocks.len(), list(&datatypes))
        }
    }
}

/// A rank's side of a call.
struct Side {
    send: Option<Part>,
    receive: Option<Part>,
    /// The contents of the receive buffer afterwards.
    received: Vec<u8>,
}

/// Runs a call on a rank, and compares its buffers.
fn run(
    script: &mut Script,
    rng: &mut Rng,
    rank: u32,
    call: &Call,
    side: &Side,
    text: impl FnOnce(&mut Script, Option<usize>, Option<usize>) -> (String, String),
) {
    let part =
        |script: &mut Script, part: &Option<Part>| part.as_ref().map(|part| (script.buffer(rank, part), part.fill));
    let send = part(script, &side.send);
    let receive = part(script, &side.receive);
    let fills: Vec<(usize, Fill)> = send.into_iter().chain(receive).collect();
    if call.timing == Timing::Persistent {
        for (buffer, fill) in &fills {
            script.fill(rank, *buffer, Fill { seed: fill.seed ^ 0xffff, ..*fill });
        }
    }
    let (name, arguments) = text(script, send.map(|(id, _)| id), receive.map(|(id, _)| id));
    let (begin, request) = script.begin_call(rank, call.timing);
    script.line(rank, format!("{name} {begin} {arguments}"));
    script.end_call(rank, call.timing, request, &fills, rng);
    if let (Some((buffer, _)), Some(part)) = (send, &side.send) {
        script.show(rank, buffer, &part.memory());
    }
    if let Some((buffer, _)) = receive {
        script.show(rank, buffer, &side.received);
    }
}

/// An allgather or, with a block for each rank, an alltoall among neighbours: everybody, another group, or those of a
/// topology.
pub(super) fn among(
    script: &mut Script,
    rng: &mut Rng,
    (group, neighbours): (&Group<'_>, &Neighbours),
    call: &Call,
    (is_alltoall, variant, prefix): (bool, Variant, &str),
    is_in_place: bool,
) {
    let count = neighbours.out.len();
    let length = |rng: &mut Rng| if variant == Variant::Plain { call.grains } else { rng.usize(0..=call.grains) };
    // Grains from one rank to another.
    let row = |rng: &mut Rng| {
        let own = length(rng);
        (0..count).map(|_| if is_alltoall { length(rng) } else { own }).collect()
    };
    let mut grains: Vec<Vec<usize>> = (0..count).map(|_| row(rng)).collect();
    if is_alltoall && is_in_place {
        for (from, to) in (0..count).flat_map(|from| (0..from).map(move |to| (from, to))) {
            grains[from][to] = grains[to][from];
        }
    }
    let mut sides = Vec::new();
    for (rank, member) in group.members.iter().enumerate().take(count) {
        // A neighbour that is nobody has an empty block, or one that is left alone.
        let of = |other: &Option<usize>, into: bool| match other {
            Some(other) => {
                if into {
                    grains[*other][rank]
                } else {
                    grains[rank][*other]
                }
            }
            None => {
                if variant == Variant::Plain {
                    call.grains
                } else {
                    0
                }
            }
        };
        let arriving: Vec<usize> = neighbours.from[rank].iter().map(|from| of(from, true)).collect();
        let leaving: Vec<usize> = match is_alltoall {
            true => neighbours.out[rank].iter().map(|to| of(to, false)).collect(),
            false => vec![grains[rank][0]],
        };
        let receive = Part::new(call.fill(*member, 1), call.blocks(script, rng, &arriving, variant));
        let send = (!is_in_place).then(|| {
            let variant = if is_alltoall { variant } else { Variant::Plain };
            Part::new(call.fill(*member, 0), call.blocks(script, rng, &leaving, variant))
        });
        sides.push(Side { received: receive.memory(), send, receive: Some(receive) });
    }
    for to in 0..count {
        for (into, from) in neighbours.from[to].iter().enumerate() {
            let Some(from) = *from else { continue };
            let out = neighbours.out[from].iter().position(|rank| *rank == Some(to)).unwrap_or(0);
            let packed = match &sides[from].send {
                Some(send) => send.pack(&send.memory(), if is_alltoall { out } else { 0 }),
                None => match &sides[from].receive {
                    Some(receive) => receive.pack(&receive.memory(), if is_alltoall { to } else { from }),
                    None => Vec::new(),
                },
            };
            let side = &mut sides[to];
            if let Some(receive) = &side.receive {
                receive.unpack(&mut side.received, into, &packed);
            }
        }
    }
    for (rank, side) in group.members.iter().zip(&sides) {
        run(script, rng, *rank, call, side, |script, send, receive| {
            let kind = if is_alltoall { "alltoall" } else { "allgather" };
            let form = ["", "v", "w"][variant as usize];
            let out_variant = if is_alltoall { variant } else { Variant::Plain };
            let out = match (send, &side.send) {
                (Some(buffer), Some(part)) => words(script, *rank, buffer, part, out_variant, &call.unit),
                _ if out_variant == Variant::Datatypes => format!("{IN_PLACE} 0"),
                _ => format!("{IN_PLACE} 0 0"),
            };
            let into = match (receive, &side.receive) {
                (Some(buffer), Some(part)) => words(script, *rank, buffer, part, variant, &call.unit),
                _ => NO_DATA.to_owned(),
            };
            let degrees = match (&side.send, &side.receive) {
                (Some(send), Some(receive)) if variant == Variant::Datatypes && !prefix.is_empty() => {
                    format!(" {} {}", send.blocks.len(), receive.blocks.len())
                }
                _ => String::new(),
            };
            (format!("{prefix}{kind}{form}"), format!("{out} {into} {}{degrees}", group.on))
        });
    }
}

/// The kinds of collectives with a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rooted {
    Broadcast,
    Gather,
    Scatter,
}

/// A broadcast, gather or scatter. `group`: the ranks that exchange blocks with the root, in their order, the root
/// itself among them inside one group. `beside`: the other ranks of the root's group, between two groups.
pub(super) fn rooted(
    script: &mut Script,
    rng: &mut Rng,
    (group, root, beside): (&Group<'_>, u32, Option<&[u32]>),
    call: &Call,
    (kind, is_varying): (Rooted, bool),
    is_in_place: bool,
) {
    let members = group.members;
    let root_at = members.iter().position(|rank| *rank == root);
    let variant = if is_varying { Variant::Counts } else { Variant::Plain };
    let grains: Vec<usize> =
        members.iter().map(|_| if is_varying { rng.usize(0..=call.grains) } else { call.grains }).collect();
    let at_root = if kind == Rooted::Broadcast { &grains[..1] } else { &grains[..] };
    let whole = Part::new(call.fill(root, 2), call.blocks(script, rng, at_root, variant));
    let mut of_root = whole.memory();
    let mut others = Vec::new();
    for (i, rank) in members.iter().enumerate() {
        let is_root = Some(i) == root_at;
        if is_root && (is_in_place || kind == Rooted::Broadcast) {
            others.push(None);
            continue;
        }
        let grains = if kind == Rooted::Broadcast { grains[0] } else { grains[i] };
        let part = Part::new(call.fill(*rank, 0), call.blocks(script, rng, &[grains], Variant::Plain));
        let mut memory = part.memory();
        if kind == Rooted::Gather {
            whole.unpack(&mut of_root, i, &part.pack(&memory, 0));
        } else {
            let block = if kind == Rooted::Broadcast { 0 } else { i };
            part.unpack(&mut memory, 0, &whole.pack(&whole.memory(), block));
        }
        others.push(Some((part, memory)));
    }
    let name = match (kind, is_varying) {
        (Rooted::Broadcast, _) => "bcast",
        (Rooted::Gather, false) => "gather",
        (Rooted::Gather, true) => "gatherv",
        (Rooted::Scatter, false) => "scatter",
        (Rooted::Scatter, true) => "scatterv",
    };
    let is_inter = beside.is_some();
    // The rank of the root as the others see it.
    let number = |rank: usize| i32::try_from(rank).unwrap_or(PROC_NULL);
    let join = |own: String, whole: String, root: i32| {
        let data = match kind {
            Rooted::Broadcast => {
                if own.is_empty() {
                    whole
                } else {
                    own
                }
            }
            Rooted::Gather => format!("{own} {whole}"),
            Rooted::Scatter => format!("{whole} {own}"),
        };
        format!("{data} {root} {}", group.on)
    };
    let seen = match beside {
        // Its rank in its own group.
        Some(of_group) => number(of_group.iter().position(|rank| *rank == root).unwrap_or(0)),
        None => number(root_at.unwrap_or(0)),
    };
    for (i, rank) in members.iter().enumerate() {
        if Some(i) == root_at {
            continue;
        }
        let Some((part, memory)) = others[i].take() else { continue };
        let side = match kind {
            Rooted::Gather => Side { send: Some(part.clone()), receive: None, received: Vec::new() },
            _ => Side { send: None, receive: Some(part.clone()), received: memory },
        };
        run(script, rng, *rank, call, &side, |script, send, receive| {
            let buffer = send.or(receive).unwrap_or(0);
            let own = words(script, *rank, buffer, &part, Variant::Plain, &call.unit);
            (name.to_owned(), join(own, NO_DATA.to_owned(), seen))
        });
    }
    // The root: its blocks, and inside a group its own part.
    let own = root_at.and_then(|at| others[at].take());
    let side = match (kind, own) {
        (Rooted::Gather, own) => {
            Side { send: own.map(|(part, _)| part), receive: Some(whole.clone()), received: of_root }
        }
        (_, Some((part, memory))) => Side { send: Some(whole.clone()), receive: Some(part), received: memory },
        (_, None) => Side { send: Some(whole.clone()), receive: None, received: Vec::new() },
    };
    run(script, rng, root, call, &side, |script, send, receive| {
        let (of_whole, of_own) = if kind == Rooted::Gather { (receive, send) } else { (send, receive) };
        let own_part = if kind == Rooted::Gather { &side.send } else { &side.receive };
        let own = match (of_own, own_part) {
            (Some(buffer), Some(part)) => words(script, root, buffer, part, Variant::Plain, &call.unit),
            _ if kind == Rooted::Broadcast => String::new(),
            _ if is_inter => NO_DATA.to_owned(),
            _ => format!("{IN_PLACE} 0 0"),
        };
        let whole = words(script, root, of_whole.unwrap_or(0), &whole, variant, &call.unit);
        (name.to_owned(), join(own, whole, if is_inter { ROOT } else { seen }))
    });
    for rank in beside.into_iter().flatten().filter(|rank| **rank != root) {
        let side = Side { send: None, receive: None, received: Vec::new() };
        run(script, rng, *rank, call, &side, |_, _, _| {
            let own = if kind == Rooted::Broadcast { String::new() } else { NO_DATA.to_owned() };
            (name.to_owned(), join(own, NO_DATA.to_owned(), PROC_NULL))
        });
    }
}
