//! The type of a buffer's elements, as messages state it in jobs that check types.

use core::any::type_name;
use core::fmt;

use unisono_datatype::Datatype;

/// The type of the elements of a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub enum ElementType {
    /// Bytes without further meaning, which match elements of every type.
    #[default]
    Unknown,
    /// A type of Rust, by its name.
    Named(fn() -> &'static str),
    /// The elements of a datatype.
    Code(TypeCode),
}

/// A type in 32 bits, the same in every build of a program: zero for any; below 2¹⁶ a basic type; structures described
/// by a datatype, by a hash of the basic types of the whole message; types of Rust by a hash of their name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TypeCode(pub u32);

/// Names of the basic types, by their code.
const NAMES: [&str; 17] = [
    "bytes", "i8", "i16", "i32", "i64", "i128", "u8", "u16", "u32", "u64", "u128", "f32", "f64", "bool", "char",
    "isize", "usize",
];
/// Structures that a datatype describes: 31 bits of a hash follow.
const STRUCTURE: u32 = 1 << 31;
/// Types of Rust: 30 bits of a hash follow.
const NAMED: u32 = 1 << 30;

impl ElementType {
    /// A type of Rust.
    pub const fn of<T>() -> Self {
        Self::Named(type_name::<T>)
    }

    /// The elements of a datatype.
    pub fn of_datatype(datatype: &Datatype) -> Self {
        match datatype.basic_code() {
            Some(code) => Self::Code(TypeCode(code as u32)),
            None if datatype.size() == 0 => Self::Unknown,
            None => Self::Code(TypeCode(STRUCTURE | (datatype.signature().hash >> 33) as u32)),
        }
    }

    /// Its code.
    pub fn code(self) -> TypeCode {
        match self {
            Self::Unknown => TypeCode(0),
            Self::Code(code) => code,
            Self::Named(name) => TypeCode::of_name(name()),
        }
    }
}

impl TypeCode {
    /// The code of a type's name: arrays and complex numbers have that of their elements.
    fn of_name(name: &str) -> Self {
        let mut name = name;
        loop {
            let element = match name.strip_prefix('[') {
                Some(array) => array.rsplit_once("; ").map(|(element, _)| element),
                None => name.split_once("Complex<").and_then(|(_, element)| element.strip_suffix('>')),
            };
            match element {
                Some(element) => name = element,
                None => break,
            }
        }
        if let Some(code) = (1..).zip(&NAMES[1..]).find_map(|(code, basic)| (*basic == name).then_some(code)) {
            return Self(code);
        }
        // FNV-1a (Fowler, Noll, Vo).
        let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Self(NAMED | hash >> 2)
    }

    /// Whether a message of this type may be received as another one. A structure that a datatype describes may be any
    /// type of Rust that is no basic one. Two of them are compared where the message fills the buffer (`is_whole`).
    pub const fn matches(self, other: Self, is_whole: bool) -> bool {
        let (Self(one), Self(two)) = (self, other);
        match (one >= STRUCTURE, two >= STRUCTURE) {
            _ if one == 0 || two == 0 || one == two => true,
            (true, true) => !is_whole,
            (true, false) => two >= NAMED,
            (false, true) => one >= NAMED,
            (false, false) => false,
        }
    }
}

impl fmt::Display for TypeCode {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get(self.0 as usize) {
            Some(name) => to.write_str(name),
            None if self.0 >= STRUCTURE => write!(to, "a structure of a datatype ({:08x})", self.0),
            None => write!(to, "a type of the program ({:08x})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_types_have_equal_codes() {
        let code = |element: ElementType| element.code();
        assert_eq!(code(ElementType::of::<f64>()), code(ElementType::of_datatype(&Datatype::of::<f64>())));
        assert_eq!(code(ElementType::of::<[[u32; 3]; 2]>()), code(ElementType::of::<u32>()));
        assert_eq!(code(ElementType::of::<u64>()).to_string(), "u64");
        let column = Datatype::of::<i16>().vector(3, 2, 4).expect("small");
        assert_eq!(code(ElementType::of_datatype(&column)), code(ElementType::of::<i16>()));
        assert!(!code(ElementType::of::<f32>()).matches(code(ElementType::of::<u32>()), true));
        let bytes = code(ElementType::of_datatype(&Datatype::bytes(4).expect("small")));
        assert!(bytes.matches(code(ElementType::of::<u32>()), true));
    }

    #[test]
    fn structures_of_a_datatype_match_types_of_the_program() {
        struct Pair;
        let [int, double] = [Datatype::of::<i32>(), Datatype::of::<f64>()];
        let field = |datatype, offset| unisono_datatype::Field { count: 1, offset, datatype };
        let pair = Datatype::structure(&[field(&int, 0), field(&double, 8)]).expect("small");
        let (described, named) = (ElementType::of_datatype(&pair).code(), ElementType::of::<Pair>().code());
        assert!(described.matches(named, true) && named.matches(described, true));
        assert!(!named.matches(ElementType::of::<i32>().code(), true));
        assert!(!described.matches(ElementType::of::<f64>().code(), true));
        assert!(!named.matches(ElementType::of::<Option<Pair>>().code(), true));

        // Two pairs are one structure of four, and not the same as with the fields exchanged.
        let exchanged = Datatype::structure(&[field(&double, 0), field(&int, 8)]).expect("small");
        let of = |datatype: &Datatype| ElementType::of_datatype(datatype).code();
        let [two, four] = [
            pair.contiguous(2).expect("small"),
            Datatype::structure(&[field(&pair, 0), field(&pair, 40)]).expect("small"),
        ];
        assert!(of(&two).matches(of(&four), true) && !of(&pair).matches(of(&exchanged), true));
        assert!(of(&pair).matches(of(&two), false), "a shorter message is not compared");
        assert!(of(&pair).to_string().starts_with("a structure of a datatype"));
    }
}
