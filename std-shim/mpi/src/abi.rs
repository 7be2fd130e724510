//! Types and constants of the ABI.

use core::ffi::{c_int, c_void};

/// A function of the program; some constants stand for functions.
pub type Callback = *const c_void;
/// An address, or a difference of addresses.
pub type MPI_Aint = isize;
/// A number of elements or bytes.
pub type MPI_Count = i64;

macro_rules! handles {
    ($($name:ident)*) => { $(
        /// A handle: a constant of the ABI, or the address of an object.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(transparent)]
        pub struct $name(pub usize);
    )* };
}

handles! {
    MPI_Comm MPI_Group MPI_Datatype MPI_Op MPI_Request MPI_Message MPI_Info MPI_Errhandler MPI_Win MPI_File MPI_Session
    MPI_T_enum MPI_T_cvar_handle MPI_T_pvar_handle MPI_T_pvar_session MPI_T_event_registration MPI_T_event_instance
}

/// The result of a receive or another request, 8 ints.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MPI_Status {
    /// The source's rank.
    pub source: c_int,
    /// The tag.
    pub tag: c_int,
    /// The error class; written only by calls that complete several requests.
    pub error: c_int,
    /// The length in bytes, in two halves.
    pub bytes: [c_int; 2],
    /// Whether the request was cancelled.
    pub cancelled: c_int,
    /// Unused.
    pub reserved: [c_int; 2],
}

impl MPI_Status {
    /// The status of a request that received nothing.
    pub const EMPTY: Self = Self {
        source: MPI_ANY_SOURCE,
        tag: MPI_ANY_TAG,
        error: MPI_SUCCESS,
        bytes: [0; 2],
        cancelled: 0,
        reserved: [0; 2],
    };

    /// The status of a message.
    pub const fn new(source: c_int, tag: c_int, bytes: u64) -> Self {
        Self { source, tag, bytes: [bytes as c_int, (bytes >> 32) as c_int], ..Self::EMPTY }
    }

    /// The status of a request that received nothing.
    pub const fn cancelled(is_cancelled: bool) -> Self {
        Self { cancelled: is_cancelled as c_int, ..Self::EMPTY }
    }

    /// The length in bytes.
    pub const fn length(&self) -> u64 {
        self.bytes[0] as u32 as u64 | (self.bytes[1] as u32 as u64) << 32
    }
}

/// A type of counts: `int` or `MPI_Count`, and `MPI_Aint` of displacements.
pub trait Count: Copy + Send + Sync + 'static {
    /// The value.
    fn get(self) -> i64;
    /// Whether it is the type of large counts.
    const LARGE: bool;

    /// The value, if it can be represented.
    fn of(value: i64) -> Option<Self>;
}

macro_rules! counts {
    ($($kind:ty: $large:literal)*) => { $(
        impl Count for $kind {
            const LARGE: bool = $large;

            #[inline(always)]
            fn get(self) -> i64 {
                self as i64
            }

            #[inline(always)]
            fn of(value: i64) -> Option<Self> {
                Self::try_from(value).ok()
            }
        }
    )* };
}

counts! { c_int: false i64: true isize: false }

mod constants {
    #![allow(dead_code, reason = "the whole table")]

    use super::*;

    include!(concat!(env!("OUT_DIR"), "/constants.rs"));
}

pub use constants::*;
