//! Buffers of buffered sends: the program attaches memory, whose length bounds what may be under way. Messages are
//! copied to memory of this library, which counts them against that length.

use core::ffi::c_int;

use parking_lot::Mutex;

use crate::abi::*;
use crate::error::Outcome;
use crate::handle::{Held, Object};
use crate::request::Request;

/// A buffer, or none.
#[derive(Debug, Default)]
pub struct Buffer(Mutex<Attached>);

#[derive(Debug, Default)]
struct Attached {
    /// Address and length, while one is attached.
    memory: Option<(usize, i64)>,
    /// Messages that have not left, with the bytes that each counts for.
    pending: Vec<(Held<Request>, i64)>,
}

impl Buffer {
    /// Whether one is attached.
    pub fn is_attached(&self) -> bool {
        self.0.lock().memory.is_some()
    }

    /// Attaches a buffer.
    pub fn attach(&self, address: usize, bytes: i64) -> Outcome {
        if bytes < 0 {
            return Err(MPI_ERR_ARG);
        }
        let mut attached = self.0.lock();
        if attached.memory.is_some() {
            return Err(MPI_ERR_BUFFER);
        }
        attached.memory = Some((address, bytes));
        Ok(())
    }

    /// Waits until all messages have left, and detaches the buffer.
    pub fn detach(&self) -> Outcome<(usize, i64)> {
        self.flush();
        self.0.lock().memory.take().ok_or(MPI_ERR_BUFFER)
    }

    /// Waits until all messages have left.
    pub fn flush(&self) {
        let pending = core::mem::take(&mut self.0.lock().pending);
        for (request, _) in pending {
            let _ = request.wait();
        }
    }

    /// Messages that have not left.
    pub fn pending(&self) -> Vec<Held<Request>> {
        self.0.lock().pending.iter().map(|(request, _)| request.hold()).collect()
    }

    /// Checks that a message of this length fits.
    pub fn reserve(&self, bytes: usize) -> Outcome {
        let mut attached = self.0.lock();
        attached.pending.retain(|(request, _)| !request.is_done());
        let Some((address, most)) = attached.memory else { return Err(MPI_ERR_BUFFER) };
        let used: i64 = attached.pending.iter().map(|(_, bytes)| *bytes).sum();
        let needed = bytes as i64 + i64::from(MPI_BSEND_OVERHEAD as c_int);
        if address == MPI_BUFFER_AUTOMATIC || used + needed <= most { Ok(()) } else { Err(MPI_ERR_BUFFER) }
    }

    /// Records a message that has not left.
    pub fn record(&self, request: &Object<Request>, bytes: usize) {
        let counted = bytes as i64 + i64::from(MPI_BSEND_OVERHEAD);
        self.0.lock().pending.push((request.hold(), counted));
    }
}
