//! Handles as integers: constants stand for themselves, other handles for their place in a table.

use core::ffi::c_int;

use parking_lot::Mutex;

use crate::abi::*;
use crate::handle::FIRST_ADDRESS;

/// Handles that were asked for, in order.
static KNOWN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn to_integer(handle: usize) -> c_int {
    if handle < FIRST_ADDRESS {
        return handle as c_int;
    }
    let mut known = KNOWN.lock();
    let at = known.iter().position(|other| *other == handle).unwrap_or_else(|| {
        known.push(handle);
        known.len() - 1
    });
    (FIRST_ADDRESS + at) as c_int
}

fn from_integer(integer: c_int) -> usize {
    let integer = integer as usize;
    if integer < FIRST_ADDRESS {
        return integer;
    }
    KNOWN.lock().get(integer - FIRST_ADDRESS).copied().unwrap_or(0)
}

macro_rules! integers {
    ($(fn $to:ident fn $from:ident $handle:ident;)*) => { $(
        pub(crate) unsafe fn $to(handle: $handle) -> c_int {
            to_integer(handle.0)
        }

        pub(crate) unsafe fn $from(integer: c_int) -> $handle {
            $handle(from_integer(integer))
        }
    )* };
}

integers! {
    fn comm_toint fn comm_fromint MPI_Comm;
    fn errhandler_toint fn errhandler_fromint MPI_Errhandler;
    fn file_toint fn file_fromint MPI_File;
    fn group_toint fn group_fromint MPI_Group;
    fn info_toint fn info_fromint MPI_Info;
    fn message_toint fn message_fromint MPI_Message;
    fn op_toint fn op_fromint MPI_Op;
    fn request_toint fn request_fromint MPI_Request;
    fn session_toint fn session_fromint MPI_Session;
    fn type_toint fn type_fromint MPI_Datatype;
    fn win_toint fn win_fromint MPI_Win;
}
