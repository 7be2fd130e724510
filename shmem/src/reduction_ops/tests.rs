use core::cmp::Ordering;

use half::{bf16, f16};

use super::*;

/// An element as a number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Number {
    Integer(i128),
    Real(f64),
    Complex([f64; 2]),
    LocatedInteger(i128, u64),
    LocatedReal(f64, u64),
}

/// The numbers in these bytes.
pub(crate) fn numbers(element: Element, bytes: &[u8]) -> Vec<Number> {
    macro_rules! read {
        ($type:ty, $bytes:expr) => {
            <$type>::from_le_bytes($bytes.try_into().unwrap())
        };
    }
    let number = |b: &[u8]| match element {
        Element::I8 => Number::Integer(read!(i8, b).into()),
        Element::I16 => Number::Integer(read!(i16, b).into()),
        Element::I32 => Number::Integer(read!(i32, b).into()),
        Element::I64 => Number::Integer(read!(i64, b).into()),
        Element::U8 => Number::Integer(read!(u8, b).into()),
        Element::U16 => Number::Integer(read!(u16, b).into()),
        Element::U32 => Number::Integer(read!(u32, b).into()),
        Element::U64 => Number::Integer(read!(u64, b).into()),
        Element::F16 => Number::Real(read!(f16, b).into()),
        Element::Bf16 => Number::Real(read!(bf16, b).into()),
        Element::F32 => Number::Real(read!(f32, b).into()),
        Element::F64 => Number::Real(read!(f64, b)),
        Element::C32 => Number::Complex([read!(f32, &b[..4]), read!(f32, &b[4..])].map(f64::from)),
        Element::C64 => Number::Complex([read!(f64, &b[..8]), read!(f64, &b[8..])]),
        _ => {
            let (value, index) = b.split_at(b.len() - 8);
            match numbers(value_of(element), value)[..] {
                [Number::Integer(value)] => Number::LocatedInteger(value, read!(u64, index)),
                [Number::Real(value)] => Number::LocatedReal(value, read!(u64, index)),
                _ => unreachable!("one value"),
            }
        }
    };
    bytes.chunks_exact(element.bytes()).map(number).collect()
}

/// The type of the value of a value-index pair.
fn value_of(located: Element) -> Element {
    match located {
        Element::LocatedI8 => Element::I8,
        Element::LocatedI16 => Element::I16,
        Element::LocatedI32 => Element::I32,
        Element::LocatedI64 => Element::I64,
        Element::LocatedU8 => Element::U8,
        Element::LocatedU16 => Element::U16,
        Element::LocatedU32 => Element::U32,
        Element::LocatedU64 => Element::U64,
        Element::LocatedF32 => Element::F32,
        Element::LocatedF64 => Element::F64,
        _ => unreachable!("it has no index"),
    }
}

/// Random elements; of real types small ones of any sign, so that nothing overflows.
pub(crate) fn random(element: Element, count: usize, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut element_of = || -> Vec<u8> {
        let mut real = || random.f64() * 4.0 - 2.0;
        if element == Element::C32 {
            return [real() as f32, real() as f32].map(f32::to_le_bytes).concat();
        } else if element == Element::C64 {
            return [real(), real()].map(f64::to_le_bytes).concat();
        } else if kernel(ReduceOperation::MinLocation, element).is_some() {
            // Few values, so that some are equal, with indices of all lengths.
            let few = random.u8(..4);
            let value = match value_of(element) {
                Element::F32 => (f32::from(few) - 2.0).to_le_bytes().to_vec(),
                Element::F64 => (f64::from(few) - 2.0).to_le_bytes().to_vec(),
                // From -2 on, where there is a sign.
                value => (i64::from(few) - 2).to_le_bytes()[..value.bytes()].to_vec(),
            };
            return [value, (random.u64(..) >> random.u32(..64)).to_le_bytes().to_vec()].concat();
        }
        let real = real();
        match element {
            Element::F16 => f16::from_f64(real).to_le_bytes().to_vec(),
            Element::Bf16 => bf16::from_f64(real).to_le_bytes().to_vec(),
            Element::F32 => (real as f32).to_le_bytes().to_vec(),
            Element::F64 => real.to_le_bytes().to_vec(),
            // A zero now and then, for the logical operations.
            _ if random.u8(..4) == 0 => vec![0; element.bytes()],
            _ => random.u64(..).to_le_bytes()[..element.bytes()].to_vec(),
        }
    };
    (0..count).flat_map(|_| element_of()).collect()
}

/// Two numbers combined, by another route than the kernels'.
pub(crate) fn combined(operation: ReduceOperation, element: Element, left: Number, right: Number) -> Number {
    let (l, r) = match (left, right) {
        (Number::Real(l), Number::Real(r)) => {
            return Number::Real(match operation {
                ReduceOperation::Sum => l + r,
                ReduceOperation::Product => l * r,
                ReduceOperation::Min => l.min(r),
                ReduceOperation::Max => l.max(r),
                _ => unreachable!("no such kernel"),
            });
        }
        (Number::Complex([a, b]), Number::Complex([c, d])) => {
            return Number::Complex(match operation {
                ReduceOperation::Sum => [a + c, b + d],
                ReduceOperation::Product => [a * c - b * d, a * d + b * c],
                _ => unreachable!("no such kernel"),
            });
        }
        (Number::LocatedInteger(l, i), Number::LocatedInteger(r, j)) => {
            return if is_left(operation, l.cmp(&r), i, j) { left } else { right };
        }
        (Number::LocatedReal(l, i), Number::LocatedReal(r, j)) => {
            return if is_left(operation, l.total_cmp(&r), i, j) { left } else { right };
        }
        (Number::Integer(l), Number::Integer(r)) => (l, r),
        _ => unreachable!("of one type"),
    };
    let wide = match operation {
        ReduceOperation::Sum => l + r,
        ReduceOperation::Product => l.wrapping_mul(r),
        ReduceOperation::Min => l.min(r),
        ReduceOperation::Max => l.max(r),
        ReduceOperation::LogicalAnd => (l != 0 && r != 0).into(),
        ReduceOperation::LogicalOr => (l != 0 || r != 0).into(),
        ReduceOperation::LogicalXor => ((l != 0) != (r != 0)).into(),
        ReduceOperation::BitwiseAnd => l & r,
        ReduceOperation::BitwiseOr => l | r,
        ReduceOperation::BitwiseXor => l ^ r,
        ReduceOperation::MinLocation | ReduceOperation::MaxLocation => unreachable!("no such kernel"),
    };
    numbers(element, &wide.to_le_bytes()[..element.bytes()])[0]
}

/// Whether the left one of two values with an index is the result.
fn is_left(operation: ReduceOperation, values: Ordering, i: u64, j: u64) -> bool {
    let values = if operation == ReduceOperation::MinLocation { values } else { values.reverse() };
    values.then(i.cmp(&j)) != Ordering::Greater
}

/// The difference of one and the next number of a type.
pub(crate) fn epsilon(element: Element) -> f64 {
    match element {
        Element::F16 => f16::EPSILON.into(),
        Element::Bf16 => bf16::EPSILON.into(),
        Element::F32 | Element::C32 => f32::EPSILON.into(),
        _ => f64::EPSILON,
    }
}

/// Every operation with a kernel.
pub(crate) fn kernels() -> impl Iterator<Item = (ReduceOperation, Element, Kernel)> {
    let pairs = Element::ALL.into_iter().flat_map(|element| ReduceOperation::ALL.map(|operation| (operation, element)));
    pairs.filter_map(|(operation, element)| Some((operation, element, kernel(operation, element)?)))
}

#[test]
fn every_kernel_equals_the_oracle_at_every_length_and_alignment() {
    assert_eq!(kernels().count(), 8 * 10 + 4 * 4 + 2 * 2 + 10 * 2);
    let mut rng = fastrand::Rng::with_seed(1);
    for (operation, element, kernel) in kernels() {
        for count in [0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 333] {
            let [left, right] = [0, 1].map(|_| random(element, count, &mut rng));
            let oracle: Vec<_> = numbers(element, &left)
                .into_iter()
                .zip(numbers(element, &right))
                .map(|(l, r)| combined(operation, element, l, r))
                .collect();
            for shift in 0..3 {
                let bytes = left.len();
                let mut memory = vec![0xee; 3 * (bytes + 8)];
                let [l, r, to] = [0, 1, 2].map(|operand| operand * (bytes + 8) + shift);
                memory[l..l + bytes].copy_from_slice(&left);
                memory[r..r + bytes].copy_from_slice(&right);
                let start = memory.as_mut_ptr();
                // Apart, and in place.
                for into in [to, l] {
                    // SAFETY: `bytes` bytes from each of these offsets lie within the vector.
                    let [left, right, into] = [l, r, into].map(|at| unsafe { start.add(at) });
                    // SAFETY: `count` elements are `bytes` bytes, which lie within the vector at each place; the result
                    // is apart or the same as an operand.
                    unsafe { kernel(left, right, into, count) };
                }
                let apart = &memory[to..to + bytes];
                check(&oracle, apart, operation, element);
                assert_eq!(memory[to + bytes], 0xee, "{operation:?} {element:?}: wrote too much");
                check(&oracle, &memory[l..l + bytes], operation, element);
            }
        }
    }
}

#[test]
fn a_minimum_or_maximum_with_a_nan_is_the_right_operand() {
    let of = |element: Element, number: f64, index: u64| match element {
        Element::F16 => f16::from_f64(number).to_le_bytes().to_vec(),
        Element::Bf16 => bf16::from_f64(number).to_le_bytes().to_vec(),
        Element::F32 => (number as f32).to_le_bytes().to_vec(),
        Element::F64 => number.to_le_bytes().to_vec(),
        Element::LocatedF32 => [(number as f32).to_le_bytes().to_vec(), index.to_le_bytes().to_vec()].concat(),
        Element::LocatedF64 => [number.to_le_bytes(), index.to_le_bytes()].concat(),
        _ => Vec::new(),
    };
    let orders =
        [ReduceOperation::Min, ReduceOperation::Max, ReduceOperation::MinLocation, ReduceOperation::MaxLocation];
    let mut kinds = 0;
    for (operation, element, kernel) in kernels().filter(|(operation, ..)| orders.contains(operation)) {
        for (left, right) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::NAN, f64::NAN)] {
            // Were the value itself not looked at, the lesser index would decide.
            let [left, right] = [of(element, left, 3), of(element, right, 5)];
            let mut into = vec![0; left.len()];
            // SAFETY: each has the bytes of one element, or of none.
            unsafe { kernel(left.as_ptr(), right.as_ptr(), into.as_mut_ptr(), usize::from(!left.is_empty())) };
            assert_eq!(into, right, "{operation:?} {element:?}");
            kinds += usize::from(!left.is_empty());
        }
    }
    assert_eq!(kinds, 3 * 2 * 6, "of each real type");
}

fn check(oracle: &[Number], bytes: &[u8], operation: ReduceOperation, element: Element) {
    for (expected, found) in oracle.iter().zip(numbers(element, bytes)) {
        let right = match (*expected, found) {
            (Number::Real(e), Number::Real(f)) => (e - f).abs() <= epsilon(element) * e.abs().max(1e-4),
            (Number::Complex(e), Number::Complex(f)) => {
                apart(e, f) <= 4.0 * epsilon(element) * apart(e, [0.0; 2]).max(1e-4)
            }
            (expected, found) => expected == found,
        };
        assert!(right, "{operation:?} {element:?}: {expected:?} {found:?}");
    }
}

/// Distance of two complex numbers.
pub(crate) fn apart([a, b]: [f64; 2], [c, d]: [f64; 2]) -> f64 {
    (a - c).hypot(b - d)
}

#[test]
fn numbers_are_rounded_to_their_upper_half() {
    let mut rng = fastrand::Rng::with_seed(7);
    let special =
        [0, 0x8000_0000, 0x7f80_0000, 0xff80_0000, 0x7f80_0001, 0x7fff_ffff, 0x3f80_8000, 0x3f81_8000, 0x7f7f_ffff];
    for bits in special.into_iter().chain((0..100_000).map(|_| rng.u32(..))) {
        let number = f32::from_bits(bits);
        assert_eq!(element::rounded(number), bf16::from_f32(number).to_bits(), "{bits:#x}");
    }
}
