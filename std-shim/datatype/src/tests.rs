//! Compares datatypes with type maps: the list of every basic element, made by the definitions of MPI's constructors.

extern crate std;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use proptest::collection::vec as list;
use proptest::prelude::*;

use crate::{ArrayOrder, Basic, Datatype, DatatypeError, Field};

/// How a datatype is built.
#[derive(Clone, Debug)]
enum Recipe {
    Basic(u16),
    Vector { of: Box<Self>, count: usize, length: usize, stride: isize, in_bytes: bool },
    Indexed { of: Box<Self>, blocks: Vec<(usize, isize)>, in_bytes: bool },
    Structure(Vec<(usize, isize, Self)>),
    Subarray { of: Box<Self>, dimensions: Vec<(usize, usize, usize)>, is_row_major: bool },
    Resized { of: Box<Self>, lower: isize, extent: isize },
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let leaf = (0..4_u16).prop_map(Recipe::Basic);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let of = || inner.clone().prop_map(Box::new);
        prop_oneof![
            (of(), 0..4_usize, 0..4_usize, -4..6_isize, any::<bool>()).prop_map(
                |(of, count, length, stride, in_bytes)| Recipe::Vector { of, count, length, stride, in_bytes }
            ),
            (of(), list((0..3_usize, -9..9_isize), 0..5), any::<bool>())
                .prop_map(|(of, blocks, in_bytes)| Recipe::Indexed { of, blocks, in_bytes }),
            list((0..3_usize, -20..40_isize, inner.clone()), 0..4).prop_map(Recipe::Structure),
            (of(), list((0..3_usize, 0..3_usize, 0..3_usize), 1..4), any::<bool>())
                .prop_map(|(of, dimensions, is_row_major)| Recipe::Subarray { of, dimensions, is_row_major }),
            (of(), -8..8_isize, -4..24_isize).prop_map(|(of, lower, extent)| Recipe::Resized { of, lower, extent }),
        ]
    })
}

const BASICS: [Basic; 4] = [
    Basic::BYTE,
    Basic { code: 20, bytes: 4, alignment: 4 },
    Basic { code: 21, bytes: 8, alignment: 8 },
    Basic { code: 22, bytes: 3, alignment: 1 },
];

/// A type map with its bounds.
#[derive(Clone, Debug, Default)]
struct TypeMap {
    elements: Vec<(isize, Basic)>,
    lower: Vec<isize>,
    upper: Vec<isize>,
    alignment: usize,
}

impl TypeMap {
    fn lower_bound(&self) -> isize {
        let all = self.elements.iter().map(|(at, _)| *at);
        self.lower.iter().copied().min().or_else(|| all.min()).unwrap_or(0)
    }

    fn upper_bound(&self) -> isize {
        if let Some(marked) = self.upper.iter().max() {
            return *marked;
        }
        let ends = self.elements.iter().map(|(at, basic)| at + basic.bytes as isize);
        let mut upper = ends.max().unwrap_or(0);
        while upper > self.lower_bound() && (upper - self.lower_bound()) % self.alignment.max(1) as isize != 0 {
            upper += 1;
        }
        upper
    }

    fn extent(&self) -> isize {
        self.upper_bound() - self.lower_bound()
    }

    /// Copies at these offsets, one after the other.
    fn at(&self, offsets: impl Iterator<Item = isize>) -> Self {
        let mut all = Self { alignment: self.alignment, ..Self::default() };
        offsets.for_each(|offset| all.append(self, offset));
        all
    }

    fn append(&mut self, other: &Self, offset: isize) {
        self.elements.extend(other.elements.iter().map(|(at, basic)| (at + offset, *basic)));
        self.lower.extend(other.lower.iter().map(|at| at + offset));
        self.upper.extend(other.upper.iter().map(|at| at + offset));
        self.alignment = self.alignment.max(other.alignment);
    }

    /// Offsets of all bytes in order.
    fn bytes(&self) -> Vec<isize> {
        self.elements.iter().flat_map(|(at, basic)| *at..*at + basic.bytes as isize).collect()
    }
}

impl Recipe {
    fn build(&self) -> Result<(Datatype, TypeMap), DatatypeError> {
        Ok(match self {
            Self::Basic(i) => {
                let basic = BASICS[usize::from(*i)];
                let map =
                    TypeMap { elements: vec![(0, basic)], alignment: basic.alignment.into(), ..TypeMap::default() };
                (Datatype::basic(basic), map)
            }
            Self::Vector { of, count, length, stride, in_bytes } => {
                let (of, map) = of.build()?;
                let step = if *in_bytes { *stride } else { stride * map.extent() };
                let offsets = (0..*count as isize)
                    .flat_map(|i| (0..*length as isize).map(move |j| (i, j)))
                    .map(|(i, j)| i * step + j * map.extent());
                let built =
                    if *in_bytes { of.hvector(*count, *length, *stride) } else { of.vector(*count, *length, *stride) };
                (built?, map.at(offsets))
            }
            Self::Indexed { of, blocks, in_bytes } => {
                let (of, map) = of.build()?;
                let unit = if *in_bytes { 1 } else { map.extent() };
                let offsets = blocks
                    .iter()
                    .flat_map(|(length, at)| (0..*length as isize).map(move |j| (at, j)))
                    .map(|(at, j)| at * unit + j * map.extent());
                let (lengths, at): (Vec<usize>, Vec<isize>) = blocks.iter().copied().unzip();
                let built = if *in_bytes { of.hindexed(&lengths, &at) } else { of.indexed(&lengths, &at) };
                (built?, map.at(offsets))
            }
            Self::Structure(fields) => {
                let built: Vec<_> =
                    fields.iter().map(|(n, at, of)| Ok((*n, *at, of.build()?))).collect::<Result<_, _>>()?;
                let mut map = TypeMap::default();
                for (count, at, (_, of)) in &built {
                    if *count > 0 {
                        map.append(&of.at((0..*count as isize).map(|i| i * of.extent())), *at);
                    }
                }
                let fields: Vec<_> = built
                    .iter()
                    .map(|(count, at, (datatype, _))| Field { count: *count, offset: *at, datatype })
                    .collect();
                (Datatype::structure(&fields)?, map)
            }
            Self::Subarray { of, dimensions, is_row_major } => {
                let (of, map) = of.build()?;
                let sizes: Vec<usize> =
                    dimensions.iter().map(|(before, length, after)| before + length + after).collect();
                let lengths: Vec<usize> = dimensions.iter().map(|(_, length, _)| *length).collect();
                let starts: Vec<usize> = dimensions.iter().map(|(before, ..)| *before).collect();
                // In row-major terms: the last index varies fastest.
                let order: Vec<usize> =
                    if *is_row_major { (0..sizes.len()).collect() } else { (0..sizes.len()).rev().collect() };
                let mut offsets = vec![0_isize];
                for i in order {
                    offsets = offsets
                        .iter()
                        .flat_map(|at| (0..lengths[i]).map(move |j| (*at, j)))
                        .map(|(at, j)| at * sizes[i] as isize + (starts[i] + j) as isize)
                        .collect();
                }
                let mut all = map.at(offsets.iter().map(|at| at * map.extent()));
                let whole: usize = sizes.iter().product();
                all.lower = vec![map.lower_bound()];
                all.upper = vec![map.lower_bound() + whole as isize * map.extent()];
                let order = if *is_row_major { ArrayOrder::RowMajor } else { ArrayOrder::ColumnMajor };
                (of.subarray(&sizes, &lengths, &starts, order)?, all)
            }
            Self::Resized { of, lower, extent } => {
                let (of, map) = of.build()?;
                let map = TypeMap { lower: vec![*lower], upper: vec![lower + extent], ..map };
                (of.resized(*lower, *extent)?, map)
            }
        })
    }
}

/// Offsets of all bytes, from the runs.
fn bytes_of(datatype: &Datatype, offset: usize, bytes: usize) -> Vec<isize> {
    let mut all = Vec::new();
    datatype.for_each_run(offset, bytes, |run| {
        for i in 0..run.count as isize {
            let at = run.offset + i * run.stride;
            all.extend(at..at + run.bytes as isize);
        }
        ControlFlow::Continue(())
    });
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn datatypes_are_what_their_type_maps_say(
        recipe in recipe(), skip in 0..60_usize, take in 0..60_usize, cuts in list(1..9_usize, 1..5),
    ) {
        let (datatype, map) = recipe.build().expect("it is small");
        let bytes = map.bytes();
        prop_assert_eq!(datatype.size(), bytes.len());
        let marked = !map.lower.is_empty() || !map.upper.is_empty();
        if !bytes.is_empty() || marked {
            prop_assert_eq!((datatype.lower_bound(), datatype.upper_bound()), (map.lower_bound(), map.upper_bound()));
        }
        let true_bounds = (bytes.iter().min().copied().unwrap_or(0), bytes.iter().max().map_or(0, |last| last + 1));
        prop_assert_eq!(datatype.true_bounds(), true_bounds);
        prop_assert_eq!(bytes_of(&datatype, 0, usize::MAX), bytes.clone());
        let rest: Vec<isize> = bytes.iter().copied().skip(skip).take(take).collect();
        prop_assert_eq!(bytes_of(&datatype, skip, take), rest);
        let mut sorted = bytes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        prop_assert_eq!(datatype.is_disjoint(), sorted.len() == bytes.len());
        // The same sequence of basic types, one by one.
        let flat: Vec<Datatype> = map.elements.iter().map(|(_, basic)| Datatype::basic(*basic)).collect();
        let fields: Vec<Field<'_>> = flat.iter().map(|datatype| Field { count: 1, offset: 0, datatype }).collect();
        prop_assert_eq!(datatype.signature(), Datatype::structure(&fields).expect("small").signature());

        // Packing and unpacking in pieces.
        let (low, high) = true_bounds;
        let within = datatype.shifted(-low).expect("small");
        let mut buffer: Vec<u8> = (0..(high - low) as usize).map(|i| (i * 7 % 251) as u8).collect();
        let expected: Vec<u8> = bytes.iter().map(|at| buffer[(at - low) as usize]).collect();
        let mut packed = vec![0; bytes.len()];
        let (mut at, mut cuts) = (0, cuts.into_iter().cycle());
        while at < packed.len() {
            let end = packed.len().min(at + cuts.next().expect("endless"));
            prop_assert_eq!(within.pack(&buffer, at, &mut packed[at..end]), Ok(end - at));
            at = end;
        }
        prop_assert_eq!(&packed, &expected);
        let (mut untouched, mut at) = (buffer.clone(), 0);
        bytes.iter().for_each(|at| untouched[(at - low) as usize] = 0);
        buffer.clone_from(&untouched);
        while at < packed.len() {
            let end = packed.len().min(at + cuts.next().expect("endless"));
            prop_assert_eq!(within.unpack(&packed[at..end], &mut buffer, at), Ok(end - at));
            at = end;
        }
        bytes.iter().zip(&packed).for_each(|(at, byte)| untouched[(at - low) as usize] = *byte);
        prop_assert_eq!(buffer, untouched);
    }
}

#[test]
fn regular_layouts_take_constant_memory() {
    let column = Datatype::of::<f64>().vector(1_000_000, 1, 1024).expect("it fits");
    let square = column.resized(0, 8).and_then(|column| column.contiguous(1000)).expect("it fits");
    assert_eq!((square.blocks(), square.size()), (1_000_000_000, 8_000_000_000));
    let (mut runs, mut seen) = (0, 0);
    square.for_each_run(7_999_999_000, usize::MAX, |run| {
        (runs, seen) = (runs + 1, seen + run.count);
        ControlFlow::Continue(())
    });
    assert_eq!((runs, seen), (1, 125));
    assert!(square.is_disjoint(), "the loops are compared, not the blocks");
    let places: Vec<isize> = (0..1_000_000).map(|i| i * 3).collect();
    let indexed = Datatype::of::<u32>().indexed_block(1, &places).expect("it fits");
    let mut runs = Vec::new();
    indexed.for_each_run(0, usize::MAX, |run| {
        runs.push(run);
        ControlFlow::Continue(())
    });
    assert_eq!(runs.len(), 1, "regular indices are a loop");
}

#[test]
fn neighbours_are_merged() {
    let int = Datatype::of::<u32>();
    let three = int.indexed(&[1, 2, 3], &[0, 1, 3]).expect("small");
    assert!(three.is_contiguous() && three.blocks() == 1 && three.size() == 24);
    let record = Datatype::structure(&[
        Field { count: 2, offset: 0, datatype: &int },
        Field { count: 1, offset: 8, datatype: &Datatype::of::<f64>() },
    ]);
    let records = record.and_then(|record| record.contiguous(1000)).expect("small");
    assert!(records.is_contiguous() && records.blocks() == 1);
    assert!(int.vector(1000, 4, 4).is_ok_and(|all| all.is_contiguous()));
}

#[test]
fn what_exceeds_the_address_space_is_refused() {
    let int = Datatype::of::<u64>();
    let most = usize::MAX;
    assert_eq!(int.contiguous(most).map(|_| ()), Err(DatatypeError::TooLarge));
    assert_eq!(int.vector(2, 1, isize::MAX).map(|_| ()), Err(DatatypeError::TooLarge));
    assert_eq!(int.vector(most, 1, 0).map(|_| ()), Err(DatatypeError::TooLarge));
    assert_eq!(int.hindexed(&[1, 1], &[isize::MIN, isize::MAX]).map(|_| ()), Err(DatatypeError::TooLarge));
    assert_eq!(int.resized(isize::MAX, 1).map(|_| ()), Err(DatatypeError::TooLarge));
    assert_eq!(int.indexed(&[1], &[]).map(|_| ()), Err(DatatypeError::Lengths));
    let row = ArrayOrder::RowMajor;
    assert_eq!(int.subarray(&[2], &[2], &[1], row).map(|_| ()), Err(DatatypeError::Subarray));
    assert_eq!(int.subarray(&[], &[], &[], row).map(|_| ()), Err(DatatypeError::Subarray));
    let deep = (0..10_000).try_fold(int, |of, _| of.vector(2, 1, 1)?.resized(0, 8));
    assert_eq!(deep.map(|_| ()), Err(DatatypeError::TooLarge));
}

#[test]
fn bytes_outside_of_the_buffer_are_refused() {
    let (column, mut data) = (Datatype::of::<u8>().vector(3, 1, 4).expect("small"), [0; 8]);
    let error = column.pack(&data, 0, &mut [0; 3]).expect_err("it is too short");
    assert_eq!((error.first, error.end, error.given), (0, 9, 8));
    let before = Datatype::of::<u8>().hindexed(&[1], &[-1]).expect("small");
    assert!(before.unpack(&[1], &mut data, 0).is_err());
}
