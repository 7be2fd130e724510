//! Compares the results of collectives with a sequential oracle: every operation, type and collective at odd lengths.

use core::fmt::Debug;

use half::{bf16, f16};
use unisono::collective::{CollectiveError, Complex, Element, SystemOperation, UserOperation, ValueIndex};
use unisono::{Communicator, Rank};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Elements of a vector: none, one, odd ones in a slot, in a chunk and in several.
const LENGTHS: [usize; 6] = [0, 1, 7, 129, 1023, 40_003];

/// Compares results of collectives with the expected ones.
pub struct Oracle<'w> {
    world: &'w Communicator,
    compared: u64,
    wrong: u64,
}

impl Debug for Oracle<'_> {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(to, "Oracle({} of {} wrong)", self.wrong, self.compared)
    }
}

impl<'w> Oracle<'w> {
    /// For this rank of a communicator.
    pub const fn new(world: &'w Communicator) -> Self {
        Self { world, compared: 0, wrong: 0 }
    }

    /// Runs all collectives. All ranks call this. Returns how many results were compared, and how many were wrong.
    ///
    /// # Errors
    /// That of a collective.
    pub fn run(mut self) -> Result<(u64, u64), CollectiveError> {
        self.everything()?;
        Ok((self.compared, self.wrong))
    }

    fn everything(&mut self) -> Result<(), CollectiveError> {
        self.of_type::<i8>()?;
        self.of_type::<i16>()?;
        self.of_type::<i32>()?;
        self.of_type::<i64>()?;
        self.of_type::<u8>()?;
        self.of_type::<u16>()?;
        self.of_type::<u32>()?;
        self.of_type::<u64>()?;
        self.of_type::<f16>()?;
        self.of_type::<bf16>()?;
        self.of_type::<f32>()?;
        self.of_type::<f64>()?;
        self.of_pairs()?;
        self.of_matrices()
    }

    fn of_type<T: OracleElement>(&mut self) -> Result<(), CollectiveError> {
        for length in LENGTHS {
            self.check_data_movement::<T>(length)?;
            for (name, operation, of_floats) in OPERATIONS {
                if T::EPSILON.is_none() || of_floats {
                    self.check_reductions::<T>(name, operation, length)?;
                } else {
                    let refused = self.world.all_reduce_into(&[T::given(0, 0)], &mut [T::given(0, 0)], operation);
                    self.count(refused == Err(CollectiveError::Undefined), name);
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, right: bool, what: &str) {
        self.compared += 1;
        if !right {
            self.wrong += 1;
            eprintln!("rank {} of {}: {what} is wrong", self.world.rank(), self.world.size());
        }
    }

    fn compare<T: PartialEq>(&mut self, found: &[T], expected: impl Fn(usize) -> T, what: &str) {
        let right = found.iter().enumerate().all(|(i, found)| *found == expected(i));
        self.count(right, what);
    }

    fn check_data_movement<T: OracleElement>(&mut self, length: usize) -> Result<(), CollectiveError> {
        let (world, size) = (self.world, self.world.size());
        let (rank, whole, root) = (world.rank().0, length * size as usize, length as u32 % size);
        let own: Vec<T> = (0..length).map(|i| T::given(rank, i)).collect();
        let blocks: Vec<T> = (0..whole).map(|i| T::given(rank, i)).collect();
        let none = T::given(99, 0);
        let (mut all, mut part) = (vec![none; whole], vec![none; length]);
        let of = |i: usize| T::given((i / length.max(1)) as u32, i % length.max(1));

        let mut data = if rank == root { own.clone() } else { vec![none; length] };
        world.broadcast_into(&mut data, Rank(root))?;
        self.compare(&data, |i| T::given(root, i), "broadcast");
        world.gather_into(&own, if rank == root { &mut all[..] } else { &mut [] }, Rank(root))?;
        self.compare(&all, |i| if rank == root { of(i) } else { none }, "gather");
        world.scatter_into(if rank == root { &blocks[..] } else { &[] }, &mut part, Rank(root))?;
        self.compare(&part, |i| T::given(root, rank as usize * length + i), "scatter");
        all.fill(none);
        world.all_gather_into(&own, &mut all)?;
        self.compare(&all, of, "all_gather");
        all.fill(none);
        world.all_to_all_into(&blocks, &mut all)?;
        let block = length.max(1);
        self.compare(&all, |i| T::given((i / block) as u32, rank as usize * block + i % block), "all_to_all");
        Ok(())
    }

    fn check_reductions<T: OracleElement>(
        &mut self,
        name: &str,
        operation: SystemOperation,
        length: usize,
    ) -> Result<(), CollectiveError> {
        let (world, size) = (self.world, self.world.size());
        let (rank, root) = (world.rank().0, length as u32 % size);
        let (own, none): (Vec<T>, T) = ((0..length).map(|i| T::given(rank, i)).collect(), T::given(99, 0));
        let mut into = vec![none; length];

        world.all_reduce_into(&own, &mut into, operation)?;
        self.combined(&into, 0, size, name, "all_reduce");
        if T::EPSILON.is_some() {
            let mut all = vec![none; length * size as usize];
            world.all_gather_into(&into, &mut all)?;
            let alike = all.chunks(length.max(1)).all(|of| of.as_bytes() == into.as_bytes());
            self.count(alike, "all_reduce: bits of another rank");
        }
        let mut both = own.clone();
        world.all_reduce_in_place(&mut both, operation)?;
        self.combined(&both, 0, size, name, "all_reduce_in_place");
        into.fill(none);
        world.reduce_into(&own, if rank == root { &mut into[..] } else { &mut [] }, operation, Rank(root))?;
        if rank == root {
            self.combined(&into, 0, size, name, "reduce");
        }
        into.fill(none);
        world.scan_into(&own, &mut into, operation)?;
        self.combined(&into, 0, rank + 1, name, "scan");
        into.fill(none);
        world.exclusive_scan_into(&own, &mut into, operation)?;
        if rank == 0 {
            self.compare(&into, |_| none, "exclusive_scan");
        } else {
            self.combined(&into, 0, rank, name, "exclusive_scan");
        }
        let blocks: Vec<T> = (0..length * size as usize).map(|i| T::given(rank, i)).collect();
        world.reduce_scatter_block_into(&blocks, &mut into, operation)?;
        self.combined(&into, rank as usize * length, size, name, "reduce_scatter");
        Ok(())
    }

    /// Checks that element i is the reduction of element `from` + i over the first `ranks` ranks.
    fn combined<T: OracleElement>(&mut self, found: &[T], from: usize, ranks: u32, name: &str, what: &str) {
        let right = |(i, found): (usize, &T)| {
            let given = || (0..ranks).map(|rank| T::given(rank, from + i));
            let exactly = || given().reduce(|left, right| T::exactly(name, left, right)) == Some(*found);
            let (Some(epsilon), "sum" | "product") = (T::EPSILON, name) else { return exactly() };
            let size: f64 = given().map(|value| value.wide().abs()).sum();
            let (expected, most) = if name == "sum" {
                (given().map(T::wide).sum::<f64>(), f64::from(ranks) * epsilon * size)
            } else {
                let product: f64 = given().map(T::wide).product();
                (product, f64::from(ranks) * epsilon * product.abs())
            };
            (found.wide() - expected).abs() <= most
        };
        let right = found.iter().enumerate().all(right);
        self.count(right, &format!("{what} by {name} of {}, {} elements,", core::any::type_name::<T>(), found.len()));
    }

    /// Whole numbers, so that sums and products are exact, and few values, so that some are equal.
    fn of_pairs(&mut self) -> Result<(), CollectiveError> {
        let (world, size) = (self.world, self.world.size());
        let rank = world.rank().0;
        let complex = |rank: u32, i: usize| {
            let [re, im] = [0, 1].map(|part| <u8 as OracleElement>::given(rank, 2 * i + part) % 3);
            Complex::new(f64::from(re) - 1.0, f64::from(im) - 1.0)
        };
        let located =
            |rank: u32, i: usize| ValueIndex::new(i32::from(<i8 as OracleElement>::given(rank, i) % 3), rank.into());
        let plus = |l: Complex<f64>, r: Complex<f64>| Complex::new(l.re() + r.re(), l.im() + r.im());
        let times = |l: Complex<f64>, r: Complex<f64>| {
            Complex::new(l.re() * r.re() - l.im() * r.im(), l.re() * r.im() + l.im() * r.re())
        };
        for length in LENGTHS {
            let own: Vec<_> = (0..length).map(|i| complex(rank, i)).collect();
            let mut into = vec![Complex::default(); length];
            let of = |i: usize, ranks: u32, f: &dyn Fn(Complex<f64>, Complex<f64>) -> Complex<f64>| {
                (0..ranks).map(|rank| complex(rank, i)).reduce(f).unwrap_or_default()
            };
            world.all_reduce_into(&own, &mut into, SystemOperation::sum())?;
            self.compare(&into, |i| of(i, size, &plus), "all_reduce by sum of complex numbers");
            world.scan_into(&own, &mut into, SystemOperation::product())?;
            self.compare(&into, |i| of(i, rank + 1, &times), "scan by product of complex numbers");

            let own: Vec<_> = (0..length).map(|i| located(rank, i)).collect();
            let mut into = vec![ValueIndex::default(); length];
            let given = |i: usize| (0..size).map(move |rank| located(rank, i));
            world.all_reduce_into(&own, &mut into, SystemOperation::min_location())?;
            let least = |i| given(i).min_by_key(|at| (at.value(), at.index())).unwrap_or_default();
            self.compare(&into, least, "all_reduce by least location");
            let blocks: Vec<_> = (0..length * size as usize).map(|i| located(rank, i)).collect();
            world.reduce_scatter_block_into(&blocks, &mut into, SystemOperation::max_location())?;
            let most = |i| {
                let at = given(rank as usize * length + i);
                at.min_by_key(|at| (core::cmp::Reverse(at.value()), at.index())).unwrap_or_default()
            };
            self.compare(&into, most, "reduce_scatter by greatest location");
        }
        Ok(())
    }

    fn of_matrices(&mut self) -> Result<(), CollectiveError> {
        let (world, size) = (self.world, self.world.size());
        let rank = world.rank().0;
        let product = || UserOperation::associative(Matrix::times);
        let largest = || UserOperation::commutative(|left: &u64, right: &u64| *left.max(right));
        let of = |i: usize, ranks: u32| {
            let given = (0..ranks).map(|rank| Matrix::given(rank, i));
            given.reduce(|left, right| left.times(&right)).unwrap_or(Matrix([0; 4]))
        };
        for length in LENGTHS {
            let own: Vec<Matrix> = (0..length).map(|i| Matrix::given(rank, i)).collect();
            let mut into = vec![Matrix([0; 4]); length];
            world.all_reduce_into(&own, &mut into, product())?;
            self.compare(&into, |i| of(i, size), "all_reduce of matrices");
            let root = length as u32 % size;
            into.fill(Matrix([0; 4]));
            world.reduce_into(&own, if rank == root { &mut into[..] } else { &mut [] }, product(), Rank(root))?;
            self.compare(&into, |i| if rank == root { of(i, size) } else { Matrix([0; 4]) }, "reduce of matrices");
            world.scan_into(&own, &mut into, product())?;
            self.compare(&into, |i| of(i, rank + 1), "scan of matrices");
            let blocks: Vec<Matrix> = (0..length * size as usize).map(|i| Matrix::given(rank, i)).collect();
            world.reduce_scatter_block_into(&blocks, &mut into, product())?;
            self.compare(&into, |i| of(rank as usize * length + i, size), "reduce_scatter of matrices");

            let own: Vec<u64> = (0..length).map(|i| <u64 as OracleElement>::given(rank, i)).collect();
            let mut into = vec![0; length];
            world.all_reduce_into(&own, &mut into, largest())?;
            let most = |i| (0..size).map(|rank| <u64 as OracleElement>::given(rank, i)).max().unwrap_or(0);
            self.compare(&into, most, "all_reduce by a function");
        }
        Ok(())
    }
}

/// An element type of the oracle.
trait OracleElement: Element + PartialEq + Debug {
    /// The next larger number's distance from 1, for floats.
    const EPSILON: Option<f64>;
    /// An element of a rank's contribution.
    fn given(rank: u32, element: usize) -> Self;
    fn wide(self) -> f64;
    /// left · right, for whole numbers.
    fn exactly(name: &str, left: Self, right: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty),*) => { $(
        impl OracleElement for $type {
            const EPSILON: Option<f64> = None;
            fn given(rank: u32, element: usize) -> Self {
                let mixed = (u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (element as u64).wrapping_mul(0xd134_2543_de82_ef95);
                // Zeros, too, for the logical ones.
                if mixed >> 61 == 0 { 0 } else { (mixed >> 17) as $type }
            }
            fn wide(self) -> f64 {
                self as f64
            }
            fn exactly(name: &str, left: Self, right: Self) -> Self {
                match name {
                    "sum" => left.wrapping_add(right),
                    "product" => left.wrapping_mul(right),
                    "min" => left.min(right),
                    "max" => left.max(right),
                    "logical and" => <$type>::from(left != 0 && right != 0),
                    "logical or" => <$type>::from(left != 0 || right != 0),
                    "logical xor" => <$type>::from((left != 0) != (right != 0)),
                    "bitwise and" => left & right,
                    "bitwise or" => left | right,
                    _ => left ^ right,
                }
            }
        }
    )* };
}

macro_rules! floats {
    ($($type:ty: $epsilon:expr, $from:expr, $to:expr;)*) => { $(
        impl OracleElement for $type {
            const EPSILON: Option<f64> = Some($epsilon);
            fn given(rank: u32, element: usize) -> Self {
                let whole = <u16 as OracleElement>::given(rank, element);
                // About one, of both signs.
                let size = 0.75 + f64::from(whole % 512) / 1024.0;
                $from(if whole & 1024 == 0 { size } else { -size })
            }
            fn wide(self) -> f64 {
                $to(self)
            }
            fn exactly(name: &str, left: Self, right: Self) -> Self {
                let smaller = if name == "min" { left.wide() < right.wide() } else { left.wide() > right.wide() };
                if smaller { left } else { right }
            }
        }
    )* };
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);
floats! {
    f16: f16::EPSILON.to_f64_const(), f16::from_f64, f16::to_f64;
    bf16: bf16::EPSILON.to_f64_const(), bf16::from_f64, bf16::to_f64;
    f32: f32::EPSILON as f64, |value: f64| value as f32, f64::from;
    f64: f64::EPSILON, |value: f64| value, |value: f64| value;
}

/// The operations, by name, and whether floats have them.
const OPERATIONS: [(&str, SystemOperation, bool); 10] = [
    ("sum", SystemOperation::sum(), true),
    ("product", SystemOperation::product(), true),
    ("min", SystemOperation::min(), true),
    ("max", SystemOperation::max(), true),
    ("logical and", SystemOperation::logical_and(), false),
    ("logical or", SystemOperation::logical_or(), false),
    ("logical xor", SystemOperation::logical_xor(), false),
    ("bitwise and", SystemOperation::bitwise_and(), false),
    ("bitwise or", SystemOperation::bitwise_or(), false),
    ("bitwise xor", SystemOperation::bitwise_xor(), false),
];

/// Two by two, modulo 2³²: products do not commute.
#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Matrix([u32; 4]);

impl Matrix {
    fn given(rank: u32, element: usize) -> Self {
        Self([0, 1, 2, 3].map(|i| <u32 as OracleElement>::given(rank, 4 * element + i)))
    }

    fn times(&self, other: &Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        let dot = |x: u32, y: u32, z: u32, w: u32| x.wrapping_mul(y).wrapping_add(z.wrapping_mul(w));
        Self([dot(a, e, b, g), dot(a, f, b, h), dot(c, e, d, g), dot(c, f, d, h)])
    }
}
