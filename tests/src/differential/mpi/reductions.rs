//! Reductions, by operations of MPI and of the program.

use alloc::rc::Rc;

use fastrand::Rng;

use super::basic::{BASICS, Basic, Operation};
use super::datatype::{Datatype, list};
use super::memory::{Block, Fill, Part};
use super::script::{IN_PLACE, NO_DATA, PROC_NULL, ROOT, Script, Timing};

/// The kinds of reductions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reduction {
    Reduce,
    Allreduce,
    ReduceScatterBlock,
    ReduceScatter,
    Scan,
    Exscan,
}

impl Reduction {
    const fn name(self) -> &'static str {
        match self {
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::ReduceScatterBlock => "reduce_scatter_block",
            Self::ReduceScatter => "reduce_scatter",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
        }
    }
}

/// The elements of a reduction, and how they are combined.
#[derive(Debug)]
pub(super) struct Operands {
    pub(super) basic: Basic,
    pub(super) operation: Operation,
    /// Of a function of the program, it may have gaps.
    pub(super) datatype: Rc<Datatype>,
    has_small: bool,
}

impl Operands {
    /// Any operation and a datatype that has it.
    pub(super) fn draw(script: &mut Script, rng: &mut Rng) -> Self {
        let numbers = BASICS[7];
        let unit = Datatype::basic(numbers);
        match rng.u8(0..5) {
            0 => {
                let has_gaps = !script.portable && rng.bool();
                let datatype = Rc::new(script.datatypes.matrix(&unit, has_gaps));
                Self { basic: numbers, operation: Operation::Multiply, datatype, has_small: false }
            }
            1 => Self { basic: numbers, operation: Operation::Add, datatype: Rc::new(unit), has_small: false },
            _ => Self::of_mpi(rng),
        }
    }

    /// An operation of MPI.
    pub(super) fn of_mpi(rng: &mut Rng) -> Self {
        let basic = BASICS[rng.usize(0..BASICS.len())];
        let operations = Operation::of(basic.class);
        let operation = operations[rng.usize(0..operations.len())];
        // Sums of floats are exact only if they are small, and other logical values than zero are rare.
        let is_exact = basic.is_integer() && !matches!(operation, Operation::And | Operation::Or | Operation::Xor);
        let datatype = Rc::new(Datatype::basic(basic));
        Self { basic, operation, datatype, has_small: !is_exact || rng.bool() }
    }

    /// What a buffer of such elements is filled with.
    pub(super) fn fill(&self, seed: u64) -> Fill {
        Fill { seed, basic: self.has_small.then_some(self.basic) }
    }

    /// Whether results need to be cleaned before they are compared.
    pub(super) const fn needs_cleaning(&self) -> bool {
        !self.basic.is_integer()
    }

    /// Shows a buffer that results were written to.
    pub(super) fn show(&self, script: &mut Script, rank: u32, buffer: usize, contents: &[u8]) {
        let mut contents = contents.to_vec();
        if self.needs_cleaning() {
            script.line(rank, format!("clean {buffer} {}", self.basic.id));
            self.basic.clean(&mut contents);
        }
        script.show(rank, buffer, &contents);
    }

    fn part(&self, seed: u64, count: usize) -> Part {
        Part::new(self.fill(seed), vec![Block::first(count, &self.datatype)])
    }
}

/// The groups of a reduction: the ranks whose data are combined, those that get the result, the root, and whether they
/// are two groups.
#[derive(Debug)]
pub(super) struct Parties<'a> {
    pub(super) on: usize,
    pub(super) givers: &'a [u32],
    pub(super) takers: &'a [u32],
    pub(super) root: u32,
    pub(super) is_inter: bool,
}

/// A rank's buffers, and what the call makes of them.
struct Side {
    send: Option<(Part, usize)>,
    receive: Option<(Part, usize, Vec<u8>)>,
}

/// Runs a reduction. Between two groups the caller runs `Reduce` once, and `Allreduce` in both directions at once.
pub(super) fn reduce(
    script: &mut Script,
    rng: &mut Rng,
    parties: &Parties<'_>,
    (kind, operands): (Reduction, &Operands),
    timing: Timing,
    bytes: usize,
    is_in_place: bool,
) {
    let Parties { on, givers, takers, root, is_inter } = *parties;
    let blocks = matches!(kind, Reduction::ReduceScatter | Reduction::ReduceScatterBlock);
    let most = bytes / operands.datatype.size();
    let counts: Vec<usize> = match kind {
        Reduction::ReduceScatter => givers.iter().map(|_| rng.usize(0..=most / givers.len())).collect(),
        Reduction::ReduceScatterBlock => vec![most / givers.len(); givers.len()],
        _ => vec![most],
    };
    let all: usize = counts.iter().sum();
    let seed = rng.u64(..) >> 2;
    let own = |rank: u32| operands.part(seed ^ (u64::from(rank) << 40), all);
    let each = operands.datatype.size();
    // The reduction of the first ranks, all in their order.
    let of_first = |group: &[u32], ranks: usize| {
        let given = |rank: &u32| own(*rank).pack(&own(*rank).memory(), 0);
        let mut parts = group.iter().take(ranks).map(given);
        let mut sum = parts.next().unwrap_or_default();
        for mut part in parts {
            operands.operation.combine(operands.basic, &sum, &mut part);
            sum = part;
        }
        sum
    };
    let everybody: Vec<u32> = if is_inter { [givers, takers].concat() } else { givers.to_vec() };
    for rank in &everybody {
        let at = givers.iter().position(|giver| giver == rank);
        let is_taker = takers.contains(rank);
        // Between two groups a reduction of one group is for the other.
        let gives = at.is_some() || kind == Reduction::Allreduce;
        let takes = match kind {
            Reduction::Reduce => *rank == root,
            Reduction::Allreduce => true,
            _ => is_taker,
        };
        let result = takes.then(|| {
            let number = at.unwrap_or(0);
            let group = if is_inter && at.is_some() { takers } else { givers };
            match kind {
                Reduction::Scan => of_first(group, number + 1),
                Reduction::Exscan => of_first(group, number),
                _ if blocks => {
                    let from: usize = counts[..number].iter().sum();
                    of_first(group, group.len())[each * from..each * (from + counts[number])].to_vec()
                }
                _ => of_first(group, group.len()),
            }
        });
        let is_in_place = is_in_place && takes && !is_inter;
        let length = if blocks { counts[at.unwrap_or(0)] } else { all };
        let receive = result.map(|result| {
            // In place the data are the input, too, which may be longer.
            let part = if is_in_place { own(*rank) } else { operands.part(!seed >> 3 ^ u64::from(*rank), length) };
            let mut memory = part.memory();
            part.unpack(&mut memory, 0, &result);
            (script.buffer(*rank, &part), part, memory)
        });
        let send = (gives && !is_in_place).then(|| (own(*rank), script.buffer(*rank, &own(*rank))));
        let side = Side { send, receive: receive.map(|(buffer, part, memory)| (part, buffer, memory)) };
        run(script, rng, *rank, (kind, operands), timing, &side, |side| {
            let id = operands.datatype.id;
            let out = match &side.send {
                Some((part, buffer)) => format!("{buffer} {} {all} {id}", part.origin),
                None if is_in_place => format!("{IN_PLACE} {all} {id}"),
                None => format!("-2 0 {all} {id}"),
            };
            let into = match &side.receive {
                Some((part, buffer, _)) => format!("{buffer} {} {length} {id}", part.origin),
                None => NO_DATA.to_owned(),
            };
            let number = operands.operation as usize;
            let end = match kind {
                Reduction::Reduce if is_inter && *rank == root => format!("{ROOT} "),
                Reduction::Reduce if is_inter && is_taker => format!("{PROC_NULL} "),
                Reduction::Reduce => format!("{} ", takers.iter().position(|taker| *taker == root).unwrap_or(0)),
                Reduction::ReduceScatter => format!("{}{} ", counts.len(), list(&counts)),
                _ => String::new(),
            };
            format!("{out} {into} {number} {end}{on}")
        });
        if let Some((part, buffer)) = &side.send {
            script.show(*rank, *buffer, &part.memory());
        }
        // The first rank's result of an exclusive scan is undefined.
        if let Some((_, buffer, memory)) = side.receive.filter(|_| kind != Reduction::Exscan || at != Some(0)) {
            operands.show(script, *rank, buffer, &memory);
        }
    }
}

fn run(
    script: &mut Script,
    rng: &mut Rng,
    rank: u32,
    (kind, operands): (Reduction, &Operands),
    timing: Timing,
    side: &Side,
    text: impl FnOnce(&Side) -> String,
) {
    script.make(rank, &operands.datatype);
    let send = side.send.iter().map(|(part, buffer)| (*buffer, part.fill));
    let fills: Vec<(usize, Fill)> =
        send.chain(side.receive.iter().map(|(part, buffer, _)| (*buffer, part.fill))).collect();
    if timing == Timing::Persistent {
        for (buffer, fill) in &fills {
            script.fill(rank, *buffer, Fill { seed: fill.seed ^ 0xffff, ..*fill });
        }
    }
    let (begin, request) = script.begin_call(rank, timing);
    let arguments = text(side);
    script.line(rank, format!("{} {begin} {arguments}", kind.name()));
    script.end_call(rank, timing, request, &fills, rng);
}

/// A reduction of one rank's own data.
pub(super) fn reduce_local(script: &mut Script, rng: &mut Rng, rank: u32, bytes: usize) {
    let operands = Operands::draw(script, rng);
    let count = bytes / operands.datatype.size();
    let [left, right] = [rng.u64(..) >> 1, rng.u64(..) >> 1].map(|seed| operands.part(seed, count));
    let mut memory = right.memory();
    let mut result = right.pack(&memory, 0);
    operands.operation.combine(operands.basic, &left.pack(&left.memory(), 0), &mut result);
    right.unpack(&mut memory, 0, &result);
    let [from, into] = [script.buffer(rank, &left), script.buffer(rank, &right)];
    let (id, number) = (operands.datatype.id, operands.operation as usize);
    let text =
        format!("reduce_local {from} {} {count} {id} {into} {} {count} {id} {number}", left.origin, right.origin);
    script.line(rank, text);
    operands.show(script, rank, into, &memory);
}
