//! Random derived datatypes, and their type maps.

use alloc::rc::Rc;
use core::fmt::Write as _;

use fastrand::Rng;

use super::basic::{BASICS, Basic, SIMPLE};

/// Number of the first derived datatype in the interpreter's table.
pub(super) const DERIVED: usize = 32;

/// A datatype: a sequence of units, the types of a message's elements in their order.
#[derive(Clone, Debug)]
pub(super) struct Datatype {
    /// Its number in the interpreter's table.
    pub(super) id: usize,
    /// Units in an element.
    pub(super) units: usize,
    /// Offset and bytes of each basic element.
    atoms: Vec<(isize, usize)>,
    lower: isize,
    upper: isize,
    /// The instructions that make it, each with the number of the datatype that it makes.
    pub(super) made: Vec<(usize, String)>,
}

impl Datatype {
    /// A basic datatype, as a unit.
    pub(super) fn basic(basic: Basic) -> Self {
        let atoms = vec![(0, basic.extent)];
        Self { id: basic.id, units: 1, atoms, lower: 0, upper: basic.extent as isize, made: Vec::new() }
    }

    pub(super) fn atoms(&self) -> impl Iterator<Item = (isize, usize)> {
        self.atoms.iter().copied()
    }

    /// Bytes without gaps.
    pub(super) fn size(&self) -> usize {
        self.atoms.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Basic elements.
    pub(super) const fn elements(&self) -> usize {
        self.atoms.len()
    }

    /// Bytes from one element to the next.
    pub(super) const fn extent(&self) -> isize {
        self.upper - self.lower
    }

    /// The lower bound.
    pub(super) const fn lower(&self) -> isize {
        self.lower
    }

    /// The first byte that an element uses, and the one after the last.
    pub(super) fn true_bounds(&self) -> (isize, isize) {
        let first = self.atoms.iter().map(|(at, _)| *at).min().unwrap_or(0);
        (first, self.atoms.iter().map(|(at, bytes)| at + *bytes as isize).max().unwrap_or(0))
    }
}

/// Draws datatypes and numbers them.
#[derive(Debug)]
pub(super) struct Datatypes {
    next: usize,
    /// Without structures of several types.
    portable: bool,
}

impl Datatypes {
    pub(super) const fn new(portable: bool) -> Self {
        Self { next: DERIVED, portable }
    }

    /// A unit: a basic datatype, or a structure of several.
    pub(super) fn unit(&mut self, rng: &mut Rng) -> Rc<Datatype> {
        if self.portable || rng.u8(0..3) > 0 {
            return Rc::new(Datatype::basic(BASICS[rng.usize(0..SIMPLE)]));
        }
        let parts: Vec<Basic> = (0..rng.usize(2..=3)).map(|_| BASICS[rng.usize(0..SIMPLE)]).collect();
        let (mut at, mut atoms, mut displacements, mut types) = (0, Vec::new(), String::new(), String::new());
        for part in &parts {
            at = (at + 8 * rng.usize(0..2)).next_multiple_of(part.extent);
            atoms.push((at as isize, part.extent));
            let _ = write!(displacements, " {at}");
            let _ = write!(types, " {}", part.id);
            at += part.extent;
        }
        let (lower, upper) = (0, at.next_multiple_of(16) as isize);
        let (count, ones) = (parts.len(), " 1".repeat(parts.len()));
        let whole = Datatype { id: 0, units: 1, atoms, lower, upper, made: Vec::new() };
        let made = self.make(whole, |id| format!("struct {id} {count}{ones}{displacements}{types}"));
        // The padding at the end of a structure is left to the library: the extent is fixed.
        let of = made.id;
        Rc::new(self.make(made, |id| format!("resized {id} 0 {upper} {of}")))
    }

    /// A datatype whose number of units divides `grain`.
    pub(super) fn draw(&mut self, rng: &mut Rng, unit: &Rc<Datatype>, grain: usize) -> Rc<Datatype> {
        let mut made = Datatype::clone(unit);
        for _ in 0..rng.usize(0..=2) {
            let left = grain / made.units;
            let fitting: Vec<usize> = (1..=left).filter(|count| left.is_multiple_of(*count)).collect();
            let count = fitting[rng.usize(0..fitting.len())];
            made = self.repeat(rng, made, count);
        }
        Rc::new(made)
    }

    /// Four numbers, adjacent or each with a gap after it.
    pub(super) fn matrix(&mut self, number: &Datatype, has_gaps: bool) -> Datatype {
        let (id, extent) = (number.id, number.extent());
        if !has_gaps {
            let places = [0, 1, 2, 3].map(|i| i * extent);
            return self.compose(number.clone(), &places, |made| format!("contiguous {made} 4 {id}"));
        }
        let places = [0, 1, 2, 3].map(|i| 2 * i * extent);
        let made = self.compose(number.clone(), &places, |made| format!("vector {made} 4 1 2 {id}"));
        let (of, upper) = (made.id, 8 * extent);
        Datatype { upper, ..self.make(made, |made| format!("resized {made} 0 {upper} {of}")) }
    }

    fn make(&mut self, of: Datatype, instruction: impl Fn(usize) -> String) -> Datatype {
        let id = self.next;
        self.next += 1;
        let mut made = of.made.clone();
        made.push((id, instruction(id)));
        Datatype { id, made, ..of }
    }

    /// `count` elements of `of` at the displacements, in their order.
    fn compose(&mut self, of: Datatype, displacements: &[isize], instruction: impl Fn(usize) -> String) -> Datatype {
        let atoms = displacements.iter().flat_map(|by| of.atoms.iter().map(move |(at, bytes)| (at + by, *bytes)));
        let atoms = atoms.collect();
        let (least, most) =
            displacements.iter().fold((isize::MAX, isize::MIN), |(least, most), by| (least.min(*by), most.max(*by)));
        let (lower, upper) = (of.lower + least, of.upper + most);
        self.make(Datatype { atoms, lower, upper, units: of.units * displacements.len(), ..of }, instruction)
    }

    /// A datatype of `count` elements of `of`, by any constructor.
    fn repeat(&mut self, rng: &mut Rng, of: Datatype, count: usize) -> Datatype {
        let (id, extent) = (of.id, of.extent());
        let divisors: Vec<usize> = (1..=count).filter(|length| count.is_multiple_of(*length)).collect();
        let length = divisors[rng.usize(0..divisors.len())];
        let blocks = count / length;
        // Where each block begins, in elements: with gaps, in any order.
        let mut at = if rng.u8(0..4) == 0 { -2 } else { 0 };
        let mut starts = Vec::new();
        for _ in 0..blocks {
            at += rng.isize(0..2);
            starts.push(at);
            at += length as isize;
        }
        if rng.bool() {
            rng.shuffle(&mut starts);
        }
        let each = |start: isize| (0..length as isize).map(move |i| (start + i) * extent);
        let places: Vec<isize> = starts.iter().copied().flat_map(each).collect();
        let (in_elements, in_bytes) = (list(&starts), list(&starts.iter().map(|at| at * extent).collect::<Vec<_>>()));
        let lengths = format!(" {length}").repeat(blocks);
        match rng.u8(0..10) {
            0 => {
                let places: Vec<isize> = (0..count as isize).map(|i| i * extent).collect();
                self.compose(of, &places, |made| format!("contiguous {made} {count} {id}"))
            }
            1 | 2 => {
                let stride = if rng.u8(0..4) == 0 { -1 - length as isize } else { length as isize + rng.isize(0..3) };
                let places: Vec<isize> = (0..blocks as isize).flat_map(|block| each(block * stride)).collect();
                let in_bytes = rng.bool();
                self.compose(of, &places, |made| match in_bytes {
                    true => format!("hvector {made} {blocks} {length} {} {id}", stride * extent),
                    false => format!("vector {made} {blocks} {length} {stride} {id}"),
                })
            }
            3 => self.compose(of, &places, |made| format!("indexed {made} {blocks}{lengths}{in_elements} {id}")),
            4 => self.compose(of, &places, |made| format!("hindexed {made} {blocks}{lengths}{in_bytes} {id}")),
            5 => self.compose(of, &places, |made| format!("indexed_block {made} {blocks} {length}{in_elements} {id}")),
            6 => self.compose(of, &places, |made| format!("hindexed_block {made} {blocks} {length}{in_bytes} {id}")),
            7 => {
                let types = format!(" {id}").repeat(blocks);
                let made =
                    self.compose(of, &places, |made| format!("struct {made} {blocks}{lengths}{in_bytes}{types}"));
                self.resize(rng, made)
            }
            8 => self.subarray(rng, of, [blocks, length]),
            _ => {
                let places: Vec<isize> = (0..count as isize).map(|i| i * extent).collect();
                let made = self.compose(of, &places, |made| format!("contiguous {made} {count} {id}"));
                if rng.bool() {
                    let of = made.id;
                    return self.make(made, |id| format!("duplicate {id} {of}"));
                }
                self.resize(rng, made)
            }
        }
    }

    /// Changes the bounds, so that elements still do not overlap.
    fn resize(&mut self, rng: &mut Rng, of: Datatype) -> Datatype {
        let lower = of.lower - 16 * rng.isize(0..2);
        let upper = of.upper + 16 * rng.isize(0..2);
        let id = of.id;
        let made = self.make(of, |made| format!("resized {made} {lower} {} {id}", upper - lower));
        Datatype { lower, upper, ..made }
    }

    /// A rectangle of a larger one.
    fn subarray(&mut self, rng: &mut Rng, of: Datatype, part: [usize; 2]) -> Datatype {
        let sizes = part.map(|length| length + rng.usize(0..3));
        let starts = [0, 1].map(|i| rng.usize(0..=sizes[i] - part[i]));
        let (is_c, extent, id) = (rng.bool(), of.extent(), of.id);
        // The dimension whose neighbours are adjacent.
        let (fast, slow) = if is_c { (1, 0) } else { (0, 1) };
        let mut places = Vec::new();
        for row in starts[slow]..starts[slow] + part[slow] {
            for column in starts[fast]..starts[fast] + part[fast] {
                places.push((row * sizes[fast] + column) as isize * extent);
            }
        }
        let (lower, upper) = (0, (sizes[0] * sizes[1]) as isize * extent);
        let lists = [sizes, part, starts].map(|[a, b]| format!(" {a} {b}"));
        let order = u8::from(is_c);
        let made = self.compose(of, &places, |made| format!("subarray {made} 2{} {order} {id}", lists.concat()));
        Datatype { lower, upper, ..made }
    }
}

/// Numbers, each after a space.
pub(super) fn list<T: core::fmt::Display>(numbers: &[T]) -> String {
    numbers.iter().fold(String::new(), |mut text, number| {
        let _ = write!(text, " {number}");
        text
    })
}
