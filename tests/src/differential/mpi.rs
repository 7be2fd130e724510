//! Random programs in terms of MPI: the generator's steps, each in one of the forms that MPI has for it, written as
//! instructions for an interpreter in C that any implementation of the standard ABI runs, and the results that a serial
//! execution gives.
//!
//! Data are bytes of a seed; the interpreter reports statuses, and hashes of whole buffers, so that a write into a gap
//! or beyond the end counts. Floats are small whole numbers: their sums and products do not depend on the order.

mod basic;
mod communicators;
mod datatype;
mod exchange;
mod local;
mod memory;
mod messages;
mod reductions;
mod script;
mod windows;

use std::fs;
use std::path::Path;

use fastrand::Rng;
use unisono_core::collective::CollectiveKind;

use self::communicators::{BRIDGE, Neighbours, TOPOLOGY};
use self::exchange::{Call, Group, Rooted, Variant};
use self::reductions::{Operands, Parties, Reduction};
use self::script::{RankScript, Script, Timing};
use super::program::{Program, Step};
use crate::collectives::{Collective, Form};

/// The source of the interpreter, which includes `memory.h` beside it.
pub const INTERPRETER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/differential/mpi/interpreter.c");

/// Number of faults that the interpreter can be compiled with (`-DFAULT=1` and so on).
pub const FAULTS: usize = 6;

/// The most bytes of an access to a window.
const ACCESS: usize = 4096;

/// A program, whose steps can be left out.
#[derive(Clone, Debug)]
pub struct MpiProgram {
    /// The communicators.
    members: Vec<Vec<u32>>,
    /// The steps, each with its number and the seed of its form.
    steps: Vec<(usize, Step, u64)>,
    portable: bool,
}

impl MpiProgram {
    /// The program of a seed. A portable one leaves out what MPICH 5.0.2 has wrong:
    ///
    /// - structures of several types: `MPI_Get_elements` divides by zero, long messages are refused
    ///   (`MPI_ERR_TYPE`);
    /// - persistent collectives with `MPI_Testall` and such, which is `MPI_ERR_REQUEST`: they are waited for;
    /// - `MPI_Isendrecv` and `MPI_Isendrecv_replace`, whose statuses are garbage;
    /// - immediate broadcasts between two groups, which move wrong data if the root's datatype has gaps;
    /// - reductions of a datatype with gaps: `MPI_Reduce_scatter_block` writes beyond its memory.
    pub fn draw(seed: u64, ranks: u32, steps: usize, portable: bool) -> Self {
        let Program { steps, members } = Program::draw(seed, ranks, steps);
        let form = |number: usize| memory::mix(seed ^ ((number as u64 + 1) << 32));
        let steps = (0..).zip(steps).map(|(number, step)| (number, step, form(number))).collect();
        Self { members, steps, portable }
    }

    /// Its number of ranks.
    pub fn ranks(&self) -> usize {
        self.members[0].len()
    }

    /// Its number of steps.
    pub const fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether it has no step.
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The program without some of its steps, if the others do not need them.
    pub fn without(&self, steps: core::ops::Range<usize>) -> Option<Self> {
        let mut less = self.clone();
        let removed: Vec<_> = less.steps.drain(steps).collect();
        let gone = |of: usize| {
            removed.iter().any(|(_, step, _)| matches!(step, Step::Split { into, .. } if into.contains(&of)))
        };
        let needs = |(_, step, _): &(usize, Step, u64)| match step {
            Step::Split { of, .. } | Step::Collective { on: of, .. } => gone(*of),
            Step::Messages(round) => round.receives.iter().any(|(on, ..)| gone(*on)),
        };
        (!less.steps.iter().any(needs)).then_some(less)
    }

    /// The program of each rank, and what it must print.
    pub fn write(&self) -> Written {
        let mut script = Script::new(self.members[0].len() as u32, self.portable);
        for (number, step, form) in &self.steps {
            let rng = &mut Rng::with_seed(*form);
            script.begin(*number);
            match step {
                Step::Split { of, colors, keys, into } => {
                    communicators::split(&mut script, rng, &self.members, *of, colors, keys, into);
                }
                Step::Messages(round) => messages::round(&mut script, rng, &self.members, round),
                Step::Collective { on, what, bytes } => self.among(&mut script, rng, *on, *what, *bytes),
            }
        }
        for rank in &mut script.ranks {
            rank.text.push_str("end\n");
        }
        Written { ranks: script.ranks }
    }

    /// A collective, or something else that the members of a communicator do together.
    fn among(&self, script: &mut Script, rng: &mut Rng, on: usize, what: Collective, bytes: usize) {
        let members = &self.members[on][..];
        let group = Group { on, members };
        let each = bytes / members.len();
        match rng.u8(0..20) {
            0 | 1 => in_topology(script, rng, &group, each),
            2..=4 if members.len() > 1 => between_groups(script, rng, &group, what, each),
            5 | 6 => windows::window(script, rng, &group, each.min(ACCESS)),
            7 => messages::permutation(script, rng, on, members, bytes),
            8 => messages::persistent_ring(script, rng, on, members, bytes),
            9 => members.iter().for_each(|rank| local::calls(script, rng, *rank, each)),
            _ => collective(script, rng, &group, what, bytes),
        }
    }
}

/// The instructions of all ranks, and their results.
#[derive(Debug)]
pub struct Written {
    ranks: Vec<RankScript>,
}

impl Written {
    /// Writes `RANK.program` for each rank.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn save(&self, folder: &Path) -> std::io::Result<()> {
        (0..)
            .zip(&self.ranks)
            .try_for_each(|(rank, of): (u32, _)| fs::write(folder.join(format!("{rank}.program")), &of.text))
    }

    /// Compares `RANK.results` of each rank. Returns the number of compared results.
    ///
    /// # Errors
    /// A rank, and its first result that differs.
    pub fn compare(mut self, folder: &Path) -> Result<u64, String> {
        let mut compared = 0;
        for (rank, of) in (0..).zip(&mut self.ranks) {
            let rank: u32 = rank;
            let results = fs::read_to_string(folder.join(format!("{rank}.results"))).unwrap_or_default();
            compared += of.compare(&results).map_err(|reason| format!("rank {rank}: {reason}"))?;
        }
        Ok(compared)
    }
}

/// Everybody is a neighbour of everybody.
fn everybody(count: usize) -> Neighbours {
    let all: Vec<Vec<Option<usize>>> = vec![(0..count).map(Some).collect(); count];
    Neighbours { from: all.clone(), out: all }
}

fn timing(form: Form, rng: &mut Rng) -> Timing {
    match form {
        Form::Blocking => Timing::Blocking,
        Form::Immediate => Timing::Immediate,
        Form::Persistent => Timing::Persistent,
        Form::InPlace | Form::Varying => Timing::draw(rng),
    }
}

const fn reduction(kind: CollectiveKind, is_varying: bool) -> Option<Reduction> {
    match kind {
        CollectiveKind::Reduce => Some(Reduction::Reduce),
        CollectiveKind::Allreduce => Some(Reduction::Allreduce),
        CollectiveKind::ReduceScatter if is_varying => Some(Reduction::ReduceScatter),
        CollectiveKind::ReduceScatter => Some(Reduction::ReduceScatterBlock),
        CollectiveKind::Scan => Some(Reduction::Scan),
        CollectiveKind::Exscan => Some(Reduction::Exscan),
        _ => None,
    }
}

/// A collective of the generator, with random datatypes, operations and, for blocks of several lengths, forms.
fn collective(script: &mut Script, rng: &mut Rng, group: &Group<'_>, what: Collective, bytes: usize) {
    let (members, count) = (group.members, group.members.len());
    let is_in_place = what.form == Form::InPlace;
    // Of calls in place some have blocks of several lengths.
    let is_varying = what.form == Form::Varying || (is_in_place && rng.bool());
    let root = members[rng.usize(0..count)];
    let timing = timing(what.form, rng);
    if let Some(kind) = reduction(what.kind, is_varying) {
        let operands = Operands::draw(script, rng);
        let parties = Parties { on: group.on, givers: members, takers: members, root, is_inter: false };
        return reductions::reduce(script, rng, &parties, (kind, &operands), timing, bytes, is_in_place);
    }
    let length = if what.kind == CollectiveKind::Broadcast { bytes } else { bytes / count };
    let call = Call::draw(script, rng, timing, length);
    let rooted = |script: &mut Script, rng: &mut Rng, kind: Rooted| {
        exchange::rooted(script, rng, (group, root, None), &call, (kind, is_varying), is_in_place);
    };
    match what.kind {
        CollectiveKind::Barrier => barrier(script, rng, group, timing),
        CollectiveKind::Broadcast => rooted(script, rng, Rooted::Broadcast),
        CollectiveKind::Gather => rooted(script, rng, Rooted::Gather),
        CollectiveKind::Scatter => rooted(script, rng, Rooted::Scatter),
        kind => {
            let is_alltoall = kind == CollectiveKind::Alltoall;
            let variant = match is_varying {
                true if is_alltoall && rng.bool() => Variant::Datatypes,
                true => Variant::Counts,
                false => Variant::Plain,
            };
            let form = (is_alltoall, variant, "");
            exchange::among(script, rng, (group, &everybody(count)), &call, form, is_in_place);
        }
    }
}

fn barrier(script: &mut Script, rng: &mut Rng, group: &Group<'_>, timing: Timing) {
    for rank in group.members {
        let (begin, request) = script.begin_call(*rank, timing);
        script.line(*rank, format!("barrier {begin} {}", group.on));
        script.end_call(*rank, timing, request, &[], rng);
    }
}

/// A collective among the neighbours of a topology.
fn in_topology(script: &mut Script, rng: &mut Rng, group: &Group<'_>, bytes: usize) {
    let neighbours = communicators::topology(script, rng, group.on, group.members);
    let members = &group.members[..neighbours.out.len()];
    let group = Group { on: TOPOLOGY, members };
    for _ in 0..rng.usize(1..=2) {
        let timing = Timing::draw(rng);
        let call = Call::draw(script, rng, timing, bytes);
        let is_alltoall = rng.bool();
        let variant = match rng.u8(0..3) {
            0 => Variant::Plain,
            1 if is_alltoall => Variant::Datatypes,
            _ => Variant::Counts,
        };
        let form = (is_alltoall, variant, "neighbor_");
        exchange::among(script, rng, (&group, &neighbours), &call, form, false);
    }
    for rank in members {
        script.line(*rank, format!("disconnect {TOPOLOGY}"));
    }
}

/// A collective between two groups.
fn between_groups(script: &mut Script, rng: &mut Rng, of: &Group<'_>, what: Collective, bytes: usize) {
    let groups = communicators::bridge(script, rng, of.on, of.members);
    let [first, second] = &groups;
    let both = [&first[..], second].concat();
    let (own, other) = if rng.bool() { (first, second) } else { (second, first) };
    let root = own[rng.usize(0..own.len())];
    let timing = match what.kind {
        CollectiveKind::Broadcast if script.portable => Timing::Blocking,
        _ => Timing::draw(rng),
    };
    let call = Call::draw(script, rng, timing, bytes);
    let is_varying = rng.bool();
    match what.kind {
        CollectiveKind::Barrier => barrier(script, rng, &Group { on: BRIDGE, members: &both }, timing),
        CollectiveKind::Broadcast | CollectiveKind::Gather | CollectiveKind::Scatter => {
            let kind = match what.kind {
                CollectiveKind::Broadcast => Rooted::Broadcast,
                CollectiveKind::Gather => Rooted::Gather,
                _ => Rooted::Scatter,
            };
            let group = Group { on: BRIDGE, members: other };
            let form = (kind, is_varying && kind != Rooted::Broadcast);
            exchange::rooted(script, rng, (&group, root, Some(own)), &call, form, false);
        }
        CollectiveKind::Reduce | CollectiveKind::Allreduce => {
            let kind = if what.kind == CollectiveKind::Reduce { Reduction::Reduce } else { Reduction::Allreduce };
            let operands = Operands::draw(script, rng);
            let parties = Parties { on: BRIDGE, givers: other, takers: own, root, is_inter: true };
            reductions::reduce(script, rng, &parties, (kind, &operands), timing, bytes, false);
        }
        _ => {
            let side = |from: core::ops::Range<usize>| from.map(Some).collect::<Vec<_>>();
            let (a, b) = (side(0..first.len()), side(first.len()..both.len()));
            let out = [vec![b; first.len()], vec![a; second.len()]].concat();
            let neighbours = Neighbours { from: out.clone(), out };
            let variant = if is_varying { Variant::Counts } else { Variant::Plain };
            let form = (rng.bool(), variant, "");
            let group = Group { on: BRIDGE, members: &both };
            exchange::among(script, rng, (&group, &neighbours), &call, form, false);
        }
    }
    communicators::merge(script, rng, &groups);
}

#[cfg(test)]
mod tests {
    use super::MpiProgram;

    #[test]
    fn a_seed_gives_one_program() {
        let texts = |seed| -> Vec<String> {
            MpiProgram::draw(seed, 4, 20, true).write().ranks.into_iter().map(|rank| rank.text).collect()
        };
        assert_eq!(texts(7), texts(7));
        assert_ne!(texts(7), texts(8));
    }

    #[test]
    fn programs_use_every_instruction() {
        let mut text = String::new();
        for seed in 0..60 {
            MpiProgram::draw(seed, 4, 30, false).write().ranks.iter().for_each(|rank| text.push_str(&rank.text));
        }
        let words: std::collections::HashSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        let source = include_str!("mpi/interpreter.c");
        let names = ["strcmp(word, \"", "CONSTRUCTOR(\"", "COLLECTIVE(\"", "COMMUNICATOR(\""];
        let mut known = 0;
        for name in names.iter().flat_map(|start| source.split(start).skip(1)).filter_map(|rest| rest.split('"').next())
        {
            assert!(words.contains(name), "{name} is never used");
            known += 1;
        }
        assert!(known > 60, "{known}");
    }

    #[test]
    fn steps_are_left_out_only_if_nothing_needs_them() {
        let program = MpiProgram::draw(3, 5, 40, false);
        let less = (0..program.len()).filter_map(|step| program.without(step..step + 1));
        assert!(less.clone().count() > 10 && less.clone().count() < program.len());
        assert!(less.into_iter().all(|less| less.len() == program.len() - 1));
    }
}
