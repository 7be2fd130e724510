//! Messages: rounds of the generator in all modes of MPI, permutations, and persistent requests.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;

use fastrand::Rng;

use super::basic::BASICS;
use super::datatype::{Datatype, list};
use super::memory::{Block, Fill, Part, mix};
use super::script::{ANY_SOURCE, ANY_TAG, PROC_NULL, Script, Sent, Timing, reception};
use crate::differential::program::{Message, Overlap, OverlapKind, ReceiveMode, Round, SendMode, Start};

/// The modes of a send, in the order of the interpreter's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Standard,
    Synchronous,
    Buffered,
    Ready,
}

/// A message, as it is sent in MPI.
struct Dressed {
    message: Message,
    mode: Mode,
    timing: Timing,
    part: Rc<Part>,
}

/// The bytes that `MPI_Bsend` needs beside a message, at most.
const OVERHEAD: usize = 512;

fn random_bytes(rng: &mut Rng) -> Fill {
    Fill { seed: rng.u64(..) >> 1, basic: None }
}

/// A buffer for a message of at most `longest` units, which may end inside an element of the buffer's datatype.
fn receive_buffer(
    script: &mut Script,
    rng: &mut Rng,
    (unit, grain): (&Rc<Datatype>, usize),
    longest: usize,
) -> Rc<Part> {
    let grain = grain * [1, 1, 5][rng.usize(0..3)];
    let datatype = script.datatypes.draw(rng, unit, grain);
    Rc::new(Part::new(random_bytes(rng), vec![Block::first(longest.div_ceil(datatype.units), &datatype)]))
}

/// The modes into which MPI divides those of the generator. `is_posted`: the receive precedes the round's sends.
fn mode(message: &Message, is_posted: bool, rng: &mut Rng) -> (Mode, Timing) {
    let nonblocking = if rng.bool() { Timing::Immediate } else { Timing::Persistent };
    match message.mode {
        // A send to a rank that probes, or to itself, must not wait, and one in ready mode needs a receive.
        SendMode::Standard if is_posted => match rng.u8(0..4) {
            0 => (Mode::Ready, Timing::Blocking),
            1 => (Mode::Buffered, Timing::Blocking),
            _ => (Mode::Standard, Timing::Blocking),
        },
        SendMode::Standard => (Mode::Standard, Timing::Blocking),
        SendMode::Synchronous => (Mode::Synchronous, Timing::Blocking),
        SendMode::ImmediateSynchronous => (Mode::Synchronous, nonblocking),
        SendMode::Immediate => match rng.u8(0..6) {
            0 if is_posted => (Mode::Ready, nonblocking),
            1 => (Mode::Buffered, nonblocking),
            2 => (Mode::Buffered, Timing::Blocking),
            _ => (Mode::Standard, nonblocking),
        },
    }
}

/// A round of messages and collectives that overlap. `members`: of all communicators.
pub(super) fn round(script: &mut Script, rng: &mut Rng, members: &[Vec<u32>], round: &Round) {
    let mut kinds: BTreeMap<usize, (Rc<Datatype>, usize)> = BTreeMap::new();
    let mut dressed: Vec<Option<Dressed>> = Vec::new();
    for start in &round.starts {
        let on = match start {
            Start::Message(message) => message.on,
            Start::Overlap(overlap) => overlap.on,
        };
        let (unit, grain) =
            kinds.entry(on).or_insert_with(|| (script.datatypes.unit(rng), [1, 2, 6, 12][rng.usize(0..4)])).clone();
        let Start::Message(message) = start else {
            dressed.push(None);
            continue;
        };
        let datatype = script.datatypes.draw(rng, &unit, grain);
        let grains = message.bytes / (unit.size() * grain);
        let block = Block::first(grains * grain / datatype.units, &datatype);
        let is_posted = round.receive_mode(on, message.to) != ReceiveMode::Probe;
        let (mode, timing) = mode(message, is_posted, rng);
        let part = Rc::new(Part::new(random_bytes(rng), vec![block]));
        dressed.push(Some(Dressed { message: *message, mode, timing, part }));
    }
    let has_ready = dressed.iter().flatten().any(|it| it.mode == Mode::Ready);
    for rank in members[0].iter().copied() {
        let mut own = OwnRound { rank, members, round, kinds: &kinds, dressed: &dressed, probes: Vec::new() };
        let receives = own.post(script, rng);
        if has_ready {
            script.line(rank, "barrier 0 -1 0");
        }
        let attached = own.attach(script);
        let (sends, collectives) = own.start(script, rng);
        own.probe(script, rng);
        let order = own.overlaps(&collectives);
        script.wait(rank, &collectives.iter().map(|(request, ..)| *request).collect::<Vec<_>>(), rng);
        script.wait(rank, &receives.iter().map(|(request, ..)| *request).collect::<Vec<_>>(), rng);
        for (_, pattern, messages, part) in &receives {
            script.expect_receive(rank, *pattern, *messages, part);
        }
        let waited: Vec<usize> = sends.iter().map(|(request, _)| *request).collect();
        script.wait(rank, &waited, rng);
        if attached {
            script.line(rank, "detach");
        }
        let persistent = receives.iter().map(|(request, ..)| (*request, Timing::Persistent));
        let persistent = persistent.filter(|(request, _)| own.is_persistent(*request)).chain(sends);
        for (request, _) in persistent.filter(|(_, timing)| *timing == Timing::Persistent) {
            script.line(rank, format!("release {request}"));
        }
        for (buffer, contents) in order {
            script.show(rank, buffer, &contents);
        }
        own.barriers(script);
    }
}

/// One rank's part of a round.
struct OwnRound<'a> {
    rank: u32,
    members: &'a [Vec<u32>],
    round: &'a Round,
    kinds: &'a BTreeMap<usize, (Rc<Datatype>, usize)>,
    dressed: &'a [Option<Dressed>],
    /// Receives by probe: communicator, number of messages, their place.
    probes: Vec<(usize, usize, usize, usize)>,
}

/// A posted receive: its request, pattern, messages and buffer.
type Posted = (usize, (i32, i32), usize, Rc<Part>);

/// A collective that was started: its request, its number in the round, and its output.
type Started = (usize, usize, usize);

impl OwnRound<'_> {
    /// The rank in a communicator that the round uses.
    fn on(&self, on: usize) -> Option<u32> {
        self.members[on].iter().position(|member| *member == self.rank).map(|rank| rank as u32)
    }

    /// Requests of receives are persistent where their number is odd.
    const fn is_persistent(&self, request: usize) -> bool {
        request % 2 == 1
    }

    /// Posts the receives of this rank, in a random order. Returns them in the order of their requests.
    fn post(&mut self, script: &mut Script, rng: &mut Rng) -> Vec<Posted> {
        let mut receives = Vec::new();
        for (on, (unit, grain)) in self.kinds {
            let Some(own) = self.on(*on) else { continue };
            let incoming: Vec<&Dressed> =
                self.dressed.iter().flatten().filter(|it| it.message.on == *on && it.message.to == own).collect();
            let mode = self.round.receive_mode(*on, own);
            let sent = incoming.iter().map(|it| Sent {
                source: it.message.from.cast_signed(),
                tag: it.message.tag.cast_signed(),
                part: Rc::clone(&it.part),
            });
            let messages = script.incoming(self.rank, !mode.has_any_tag(), sent);
            let units = |it: &&Dressed| it.part.blocks[0].count * it.part.blocks[0].datatype.units;
            let longest = incoming.iter().map(units).max().unwrap_or(0);
            if mode == ReceiveMode::Probe {
                self.probes.push((*on, incoming.len(), messages, longest));
                continue;
            }
            for it in incoming {
                let part = receive_buffer(script, rng, (unit, *grain), longest);
                let source = if mode.has_any_source() { ANY_SOURCE } else { it.message.from.cast_signed() };
                let tag = if mode.has_any_tag() { ANY_TAG } else { it.message.tag.cast_signed() };
                receives.push((*on, (source, tag), messages, part));
            }
        }
        rng.shuffle(&mut receives);
        let mut posted = Vec::new();
        for (on, (source, tag), messages, part) in receives {
            let (buffer, request) = (script.buffer(self.rank, &part), script.request(self.rank));
            let data = data(buffer, &part);
            let timing = if self.is_persistent(request) { 2 } else { 1 };
            script.line(self.rank, format!("receive {timing} {request} {data} {source} {tag} {on}"));
            if timing == 2 {
                script.line(self.rank, format!("start 1 {request}"));
            }
            posted.push((request, (source, tag), messages, part));
        }
        posted
    }

    /// Provides memory for the rank's buffered sends. Returns whether there are any.
    fn attach(&self, script: &mut Script) -> bool {
        let buffered = self.dressed.iter().flatten();
        let buffered =
            buffered.filter(|it| it.mode == Mode::Buffered && self.on(it.message.on) == Some(it.message.from));
        let sizes = buffered.map(|it| it.part.blocks[0].count * it.part.blocks[0].datatype.size() + OVERHEAD);
        let bytes: usize = sizes.sum();
        if bytes > 0 {
            script.line(self.rank, format!("attach {bytes}"));
        }
        bytes > 0
    }

    /// Starts the rank's sends and collectives. Returns the requests of both.
    fn start(&self, script: &mut Script, rng: &mut Rng) -> (Vec<(usize, Timing)>, Vec<Started>) {
        let (mut sends, mut collectives) = (Vec::new(), Vec::new());
        for (number, (start, dressed)) in self.round.starts.iter().zip(self.dressed).enumerate() {
            match (start, dressed) {
                (_, Some(it)) if self.on(it.message.on) == Some(it.message.from) => {
                    let buffer = script.buffer(self.rank, &it.part);
                    let (begin, request) = script.begin_call(self.rank, it.timing);
                    let Message { on, to, tag, .. } = it.message;
                    let (mode, data) = (it.mode as usize, data(buffer, &it.part));
                    script.line(self.rank, format!("send {begin} {mode} {data} {to} {tag} {on}"));
                    if let Some(request) = request {
                        if it.timing == Timing::Persistent {
                            script.line(self.rank, format!("start 1 {request}"));
                        }
                        sends.push((request, it.timing));
                    }
                }
                (Start::Overlap(overlap), None) => {
                    let Some(own) = self.on(overlap.on) else { continue };
                    let (buffer, request) = self.overlap(script, overlap, number, own);
                    collectives.push((request, number, buffer));
                }
                _ => {}
            }
        }
        rng.shuffle(&mut sends);
        rng.shuffle(&mut collectives);
        (sends, collectives)
    }

    /// Starts a collective. Returns its output buffer and its request.
    fn overlap(&self, script: &mut Script, overlap: &Overlap, number: usize, own: u32) -> (usize, usize) {
        let Overlap { on, kind, length } = *overlap;
        let request = script.request(self.rank);
        let given = self.given(number, own, length);
        let input = script.buffer(self.rank, &given);
        let output = self.output(overlap, number, own);
        let (begin, word) = (format!("1 {request}"), BASICS[7].id);
        let into = match kind {
            OverlapKind::Barrier | OverlapKind::Broadcast(_) => input,
            _ => script.buffer(self.rank, &output),
        };
        let text = match kind {
            OverlapKind::Barrier => format!("barrier {begin} {on}"),
            OverlapKind::Broadcast(root) => format!("bcast {begin} {} {root} {on}", data(input, &given)),
            OverlapKind::Allreduce => {
                let (out, into) = (data(input, &given), data(into, &output));
                format!("allreduce {begin} {out} {into} 0 {on}")
            }
            OverlapKind::Allgather => {
                let out = data(input, &given);
                format!("allgather {begin} {out} {into} {} {length} {word} {on}", output.origin)
            }
        };
        script.line(self.rank, text);
        (into, request)
    }

    /// A rank's contribution to a collective of the round.
    fn given(&self, number: usize, rank: u32, length: usize) -> Part {
        let seed = mix(self.round.order ^ ((number as u64) << 8) ^ u64::from(rank)) >> 1;
        let words = Rc::new(Datatype::basic(BASICS[7]));
        Part::new(Fill { seed, basic: None }, vec![Block::first(length, &words)])
    }

    fn output(&self, overlap: &Overlap, number: usize, own: u32) -> Part {
        let length = match overlap.kind {
            OverlapKind::Allgather => overlap.length * self.members[overlap.on].len(),
            _ => overlap.length,
        };
        let part = self.given(number, own, length);
        Part { fill: Fill { seed: part.fill.seed ^ 0xff, ..part.fill }, ..part }
    }

    /// The contents of the collectives' outputs, by buffer.
    fn overlaps(&self, collectives: &[Started]) -> Vec<(usize, Vec<u8>)> {
        let mut found = Vec::new();
        for (_, number, buffer) in collectives {
            let Start::Overlap(overlap) = &self.round.starts[*number] else { continue };
            let Some(own) = self.on(overlap.on) else { continue };
            let given = |rank: u32| self.given(*number, rank, overlap.length);
            let packed = |rank: u32| given(rank).pack(&given(rank).memory(), 0);
            let all = 0..self.members[overlap.on].len() as u32;
            let (part, result) = match overlap.kind {
                OverlapKind::Barrier => (given(own), packed(own)),
                OverlapKind::Broadcast(root) => (given(own), packed(root)),
                OverlapKind::Allgather => (self.output(overlap, *number, own), all.flat_map(packed).collect()),
                OverlapKind::Allreduce => {
                    let sum = all.map(packed).reduce(|left, mut right| {
                        super::basic::Operation::Sum.combine(BASICS[7], &left, &mut right);
                        right
                    });
                    (self.output(overlap, *number, own), sum.unwrap_or_default())
                }
            };
            let mut memory = part.memory();
            part.unpack(&mut memory, 0, &result);
            found.push((*buffer, memory));
        }
        found
    }

    /// Receives by probes.
    fn probe(&self, script: &mut Script, rng: &mut Rng) {
        for (on, count, messages, longest) in &self.probes {
            let (unit, grain) = &self.kinds[on];
            for _ in 0..*count {
                let part = receive_buffer(script, rng, (unit, *grain), *longest);
                let (buffer, way) = (script.buffer(self.rank, &part), rng.u8(0..4));
                script.line(self.rank, format!("probe {way} {} {on}", data(buffer, &part)));
                script.expect_receive(self.rank, (ANY_SOURCE, ANY_TAG), *messages, &part);
            }
        }
    }

    /// Separates wildcard receives from messages of later rounds.
    fn barriers(&self, script: &mut Script) {
        for on in self.kinds.keys() {
            let has_wildcards = self.round.receives.iter().any(|(of, _, mode)| of == on && mode.has_any_source());
            if has_wildcards && self.on(*on).is_some() {
                script.line(self.rank, format!("barrier 0 -1 {on}"));
            }
        }
    }
}

/// The first block of a part, as an instruction describes it.
pub(super) fn data(buffer: usize, part: &Part) -> String {
    let Block { at, count, datatype } = &part.blocks[0];
    format!("{buffer} {} {count} {}", part.origin as isize + at, datatype.id)
}

/// Every rank sends one message and receives one, or none: from and to itself, others, or nobody.
pub(super) fn permutation(script: &mut Script, rng: &mut Rng, on: usize, members: &[u32], bytes: usize) {
    let unit = script.datatypes.unit(rng);
    let grain = [1, 12][rng.usize(0..2)];
    let units = bytes / (unit.size() * grain) * grain;
    let mut to: Vec<Option<usize>> = (0..members.len()).map(Some).collect();
    rng.shuffle(&mut to);
    // A rank that sends to nobody leaves another without a message.
    to.iter_mut().filter(|_| rng.u8(0..5) == 0).for_each(|to| *to = None);
    let tag = rng.u8(0..3);
    // In place, and in any other way, by rank.
    let mut sides = Vec::new();
    for _ in members {
        let parts = [(); 2].map(|()| {
            let datatype = script.datatypes.draw(rng, &unit, grain);
            Rc::new(Part::new(random_bytes(rng), vec![Block::first(units / datatype.units, &datatype)]))
        });
        let way = rng.u8(0..4);
        sides.push((if script.portable { way & 2 } else { way }, parts));
    }
    for (own, rank) in members.iter().enumerate() {
        let (way, [out, into]) = &sides[own];
        let from = to.iter().position(|to| *to == Some(own));
        let buffers = [script.buffer(*rank, out), script.buffer(*rank, into)];
        let number = |other: Option<usize>| other.map_or(PROC_NULL, |other| other as i32);
        let source = number(from);
        let receive_tag = if rng.bool() { ANY_TAG } else { i32::from(tag) };
        let text = format!(
            "{} {} {tag} {} {source} {receive_tag} {on}",
            data(buffers[0], out),
            number(to[own]),
            data(buffers[1], into)
        );
        script.line(*rank, format!("send_receive {way} {text}"));
        match from {
            Some(from) => {
                let (way, [out, into_there]) = &sides[from];
                // In place the sender's second buffer is what it sends.
                let sent = if *way >= 2 { into_there } else { out };
                let packed = sent.pack(&sent.memory(), 0);
                let elements = units * unit.elements();
                script.expect(*rank, format!("R {source} {tag} {}", reception(&packed, elements, into)));
            }
            None => script.expect(*rank, format!("R {PROC_NULL} {ANY_TAG} {}", reception(&[], 0, into))),
        }
    }
}

/// A ring of persistent sends and receives, which are started together, twice.
pub(super) fn persistent_ring(script: &mut Script, rng: &mut Rng, on: usize, members: &[u32], bytes: usize) {
    let unit = script.datatypes.unit(rng);
    let (grain, size) = ([1, 12][rng.usize(0..2)], members.len());
    let units = bytes / (unit.size() * grain) * grain;
    let part = |script: &mut Script, rng: &mut Rng| {
        let datatype = script.datatypes.draw(rng, &unit, grain);
        Part::new(random_bytes(rng), vec![Block::first(units / datatype.units, &datatype)])
    };
    let outs: Vec<Part> = members.iter().map(|_| part(script, rng)).collect();
    let again = |part: &Part| Part { fill: Fill { seed: part.fill.seed ^ 0xff, ..part.fill }, ..part.clone() };
    for (own, rank) in members.iter().enumerate() {
        let (next, before) = ((own + 1) % size, (own + size - 1) % size);
        let (out, into) = (&outs[own], part(script, rng));
        let [from, to] = [script.buffer(*rank, out), script.buffer(*rank, &into)];
        let [send, receive] = [script.request(*rank), script.request(*rank)];
        // Standard or synchronous.
        let mode = rng.u8(0..2);
        script.line(*rank, format!("send 2 {send} {mode} {} {next} 5 {on}", data(from, out)));
        script.line(*rank, format!("receive 2 {receive} {} {before} 5 {on}", data(to, &into)));
        for round in 0..2 {
            if round == 1 {
                script.fill(*rank, from, again(out).fill);
                script.fill(*rank, to, into.fill);
            }
            script.line(*rank, format!("{} 2{}", ["start", "restart"][round], list(&[receive, send])));
            script.wait(*rank, &[send, receive], rng);
            let sent = if round == 1 { again(&outs[before]) } else { outs[before].clone() };
            let packed = sent.pack(&sent.memory(), 0);
            script.expect(*rank, format!("R {before} 5 {}", reception(&packed, units * unit.elements(), &into)));
        }
        script.line(*rank, format!("release {send}"));
        script.line(*rank, format!("release {receive}"));
    }
}
