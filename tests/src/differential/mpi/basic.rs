//! Basic datatypes and the operations on them, as the interpreter numbers them.

/// What the elements of a basic datatype are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Byte,
    Signed,
    Unsigned,
    Float,
    /// Two floats.
    Complex,
    /// A value, which may be a float, and the offset of its index.
    Pair {
        has_float: bool,
        index_at: usize,
    },
    Logical,
}

/// A basic datatype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Basic {
    /// Its number in the interpreter's table.
    pub(super) id: usize,
    pub(super) class: Class,
    /// Bytes of the element, or of a pair's value.
    value: usize,
    /// Bytes from one element to the next.
    pub(super) extent: usize,
}

const fn basic(id: usize, class: Class, value: usize) -> Basic {
    Basic { id, class, value, extent: value }
}

const fn pair(id: usize, has_float: bool, value: usize, extent: usize) -> Basic {
    let index_at = if value < 4 { 4 } else { value };
    Basic { id, class: Class::Pair { has_float, index_at }, value, extent }
}

/// In the order of `memory.h`. The first have no gaps.
pub(super) const BASICS: [Basic; 19] = [
    basic(0, Class::Byte, 1),
    basic(1, Class::Signed, 1),
    basic(2, Class::Signed, 2),
    basic(3, Class::Signed, 4),
    basic(4, Class::Signed, 8),
    basic(5, Class::Unsigned, 1),
    basic(6, Class::Unsigned, 2),
    basic(7, Class::Unsigned, 4),
    basic(8, Class::Unsigned, 8),
    basic(9, Class::Float, 4),
    basic(10, Class::Float, 8),
    basic(11, Class::Complex, 8),
    basic(12, Class::Complex, 16),
    pair(13, false, 4, 8),
    pair(14, true, 4, 8),
    pair(15, true, 8, 16),
    pair(16, false, 8, 16),
    pair(17, false, 2, 8),
    basic(18, Class::Logical, 1),
];

/// Number of basic datatypes that messages and copies use: one element each.
pub(super) const SIMPLE: usize = 13;

/// A reduction, in the order of the interpreter's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Sum,
    Product,
    Min,
    Max,
    BitAnd,
    BitOr,
    BitXor,
    And,
    Or,
    Xor,
    MinLocation,
    MaxLocation,
    Replace,
    None,
    /// A function of the program: the product of matrices of two by two 32-bit numbers. Not commutative.
    Multiply,
    /// A function of the program: the sum of 32-bit numbers.
    Add,
}

const OF_NUMBERS: [Operation; 10] = [
    Operation::Sum,
    Operation::Product,
    Operation::Min,
    Operation::Max,
    Operation::BitAnd,
    Operation::BitOr,
    Operation::BitXor,
    Operation::And,
    Operation::Or,
    Operation::Xor,
];

impl Operation {
    /// The operations of MPI that a basic datatype has.
    pub(super) fn of(class: Class) -> &'static [Self] {
        match class {
            Class::Signed | Class::Unsigned => &OF_NUMBERS,
            Class::Float => &OF_NUMBERS[..4],
            Class::Complex => &OF_NUMBERS[..2],
            Class::Byte => &OF_NUMBERS[4..7],
            Class::Logical => &OF_NUMBERS[7..],
            Class::Pair { .. } => &[Self::MinLocation, Self::MaxLocation],
        }
    }

    /// Combines packed elements of a basic datatype: `right` becomes left · right.
    pub(super) fn combine(self, basic: Basic, left: &[u8], right: &mut [u8]) {
        if self == Self::Multiply {
            for (left, right) in left.chunks_exact(16).zip(right.chunks_exact_mut(16)) {
                multiply(left, right);
            }
            return;
        }
        let each = basic.extent;
        for (left, right) in left.chunks_exact(each).zip(right.chunks_exact_mut(each)) {
            self.element(basic, left, right);
        }
    }

    fn element(self, basic: Basic, left: &[u8], right: &mut [u8]) {
        match (self, basic.class) {
            (Self::None, _) => right.copy_from_slice(left),
            // Left is the update: it replaces the right.
            (Self::Replace, _) => right.copy_from_slice(left),
            (_, Class::Float) => {
                let value = self.floats(float(left), float(right));
                write_float(right, value);
            }
            (_, Class::Complex) => {
                let half = basic.extent / 2;
                let ([a, b], [c, d]) =
                    ([float(&left[..half]), float(&left[half..])], [float(&right[..half]), float(&right[half..])]);
                let (re, im) = if self == Self::Sum { (a + c, b + d) } else { (a * c - b * d, a * d + b * c) };
                write_float(&mut right[..half], re);
                write_float(&mut right[half..], im);
            }
            (_, Class::Pair { has_float, index_at }) => {
                let value = |of: &[u8]| {
                    if has_float { float(&of[..basic.value]) } else { integer(&of[..basic.value], true) as f64 }
                };
                let index = |of: &[u8]| integer(&of[index_at..index_at + 4], true);
                let (l, r) = (value(left), value(right));
                let wins = if self == Self::MinLocation { l < r } else { l > r };
                if wins || (l == r && index(left) < index(right)) {
                    right.copy_from_slice(left);
                }
            }
            (_, class) => {
                let is_signed = class == Class::Signed;
                let value = self.integers(integer(left, is_signed), integer(right, is_signed));
                right.copy_from_slice(&value.to_le_bytes()[..basic.extent]);
            }
        }
    }

    fn floats(self, l: f64, r: f64) -> f64 {
        match self {
            Self::Sum => l + r,
            Self::Product => l * r,
            Self::Min => l.min(r),
            _ => l.max(r),
        }
    }

    fn integers(self, l: i128, r: i128) -> i128 {
        match self {
            Self::Product => l.wrapping_mul(r),
            Self::Min => l.min(r),
            Self::Max => l.max(r),
            Self::BitAnd => l & r,
            Self::BitOr => l | r,
            Self::BitXor => l ^ r,
            Self::And => i128::from(l != 0 && r != 0),
            Self::Or => i128::from(l != 0 || r != 0),
            Self::Xor => i128::from((l != 0) != (r != 0)),
            _ => l.wrapping_add(r),
        }
    }
}

impl Basic {
    /// Whether it consists of bits, any of which are a value.
    pub(super) const fn is_integer(&self) -> bool {
        matches!(self.class, Class::Byte | Class::Signed | Class::Unsigned)
    }

    /// A small element, so that sums and products of floats are exact and some elements are equal.
    pub(super) fn write_small(self, at: &mut [u8], random: u64) {
        let small = |random: u64| [0_i64, 1, -1, 2, 3][(random % 5) as usize];
        let value = small(random);
        at.fill(0);
        match self.class {
            Class::Float => write_float(at, value as f64),
            Class::Complex => {
                let half = self.extent / 2;
                write_float(&mut at[..half], value as f64);
                write_float(&mut at[half..], small(random >> 20) as f64);
            }
            Class::Pair { has_float, index_at } => {
                if has_float {
                    write_float(&mut at[..self.value], value as f64);
                } else {
                    at[..self.value].copy_from_slice(&value.to_le_bytes()[..self.value]);
                }
                at[index_at..index_at + 4].copy_from_slice(&((random >> 32 & 31) as u32).to_le_bytes());
            }
            Class::Logical => at[0] = (random >> 3 & 1) as u8,
            _ => at.copy_from_slice(&value.to_le_bytes()[..self.extent]),
        }
    }

    /// Gives equal numbers equal bytes: no negative zeros, and zeros in the gaps of pairs.
    pub(super) fn clean(self, memory: &mut [u8]) {
        for at in memory.chunks_exact_mut(self.extent) {
            match self.class {
                Class::Float => clean_float(at),
                Class::Complex => at.chunks_exact_mut(self.extent / 2).for_each(clean_float),
                Class::Pair { has_float, index_at } => {
                    if has_float {
                        clean_float(&mut at[..self.value]);
                    }
                    at[self.value..index_at].fill(0);
                    at[index_at + 4..].fill(0);
                }
                _ => {}
            }
        }
    }
}

fn float(bytes: &[u8]) -> f64 {
    match bytes {
        [a, b, c, d] => f64::from(f32::from_le_bytes([*a, *b, *c, *d])),
        _ => f64::from_bits(integer(bytes, false) as u64),
    }
}

fn write_float(into: &mut [u8], value: f64) {
    if into.len() == 4 {
        into.copy_from_slice(&(value as f32).to_le_bytes());
    } else {
        into.copy_from_slice(&value.to_le_bytes());
    }
}

fn clean_float(at: &mut [u8]) {
    if float(at) == 0.0 {
        at.fill(0);
    }
}

fn integer(bytes: &[u8], is_signed: bool) -> i128 {
    let value = bytes.iter().rev().fold(0_i128, |value, byte| value << 8 | i128::from(*byte));
    let bits = 8 * bytes.len();
    if is_signed && value >> (bits - 1) & 1 == 1 { value - (1 << bits) } else { value }
}

fn multiply(left: &[u8], right: &mut [u8]) {
    let read = |of: &[u8], i: usize| integer(&of[4 * i..4 * i + 4], false) as u32;
    let [l, r] = [left, right].map(|of| [0, 1, 2, 3].map(|i| read(of, i)));
    let cell = |row: usize, column: usize| {
        l[2 * row].wrapping_mul(r[column]).wrapping_add(l[2 * row + 1].wrapping_mul(r[2 + column]))
    };
    for (i, value) in [cell(0, 0), cell(0, 1), cell(1, 0), cell(1, 1)].into_iter().enumerate() {
        right[4 * i..4 * i + 4].copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::{BASICS, Operation};

    #[test]
    fn numbers_wrap_and_keep_their_sign() {
        let of = |operation: Operation, basic: usize, l: &[u8], r: &[u8]| {
            let mut right = r.to_vec();
            operation.combine(BASICS[basic], l, &mut right);
            right
        };
        assert_eq!(of(Operation::Sum, 1, &[0x7f], &[1]), [0x80]);
        assert_eq!(of(Operation::Min, 1, &[0x80], &[1]), [0x80]);
        assert_eq!(of(Operation::Min, 5, &[0x80], &[1]), [1]);
        assert_eq!(of(Operation::Product, 8, &[0xff; 8], &[0xff; 8]), [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of(Operation::MaxLocation, 17, &[1, 0, 9, 9, 4, 0, 0, 0], &[1, 0, 0, 0, 5, 0, 0, 0])[4], 4);
    }

    #[test]
    fn products_of_matrices_have_an_order() {
        let matrix = |values: [u32; 4]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let (a, b) = (matrix([1, 2, 3, 4]), matrix([5, 6, 7, 8]));
        let mut product = b.clone();
        Operation::Multiply.combine(BASICS[7], &a, &mut product);
        assert_eq!(product, matrix([19, 22, 43, 50]));
        let mut other = a;
        Operation::Multiply.combine(BASICS[7], &b, &mut other);
        assert_ne!(other, product);
    }
}
