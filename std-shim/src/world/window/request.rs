//! Request forms: operations that end one by one (`MPI_Rput`, `MPI_Rget`).

use core::marker::PhantomData;

use unisono_core::rma::operation::RmaRequest;
use unisono_core::span::Span;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Access, Window, WindowError, remote_span};
use crate::world::process::remote_access::{CallEnd, CallMemory, StartError};
use crate::world::request::Failure;
use unisono_bootstrap::Rank;

/// A put that is under way. Its data is copied: dropping this only forgets how it ends.
#[derive(Debug)]
#[must_use = "the request reports how the put ends"]
pub struct PutRequest<'w> {
    window: &'w Window,
    target: Rank,
    parts: Vec<u32>,
}

impl PutRequest<'_> {
    /// Waits until the target has received the data. It is visible there after a flush.
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn wait(mut self) -> Result<(), WindowError> {
        let there = self.window.communicator.world_rank(self.target)?;
        let mut first = Ok(());
        while let Some(part) = self.parts.pop() {
            first = first.and(self.window.wait(part, self.target, there).map(|_| ()));
        }
        first
    }
}

impl Drop for PutRequest<'_> {
    fn drop(&mut self) {
        let mut process = self.window.communicator.shared.lock();
        self.parts.drain(..).for_each(|part| process.abandon_remote(part));
    }
}

/// A get that is under way, into memory of its own.
#[derive(Debug)]
#[must_use = "the request returns the data"]
pub struct GetRequest<'w, T> {
    window: &'w Window,
    target: Rank,
    count: usize,
    /// The data, if it is there already; otherwise the operation and its memory.
    state: GetState<T>,
    of: PhantomData<T>,
}

#[derive(Debug)]
enum GetState<T> {
    Done(Vec<T>),
    Pending(u32, Span),
    Taken,
}

impl<T: FromBytes + IntoBytes> GetRequest<'_, T> {
    /// Waits for the data.
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn wait(mut self) -> Result<Vec<T>, WindowError> {
        match core::mem::replace(&mut self.state, GetState::Taken) {
            GetState::Done(values) => Ok(values),
            GetState::Taken => Ok(Vec::new()),
            GetState::Pending(request, span) => {
                let there = self.window.communicator.world_rank(self.target)?;
                let ended = self.window.wait(request, self.target, there);
                let mut values: Vec<T> = zeroed(self.count);
                let bytes = values.as_mut_slice().as_mut_bytes();
                if ended.is_ok() {
                    self.window.communicator.shared.lock().take_from_remote(span, bytes);
                }
                // After a failure the machine may still know the memory, which stays allocated.
                ended.map(|_| values)
            }
        }
    }
}

impl<T> Drop for GetRequest<'_, T> {
    fn drop(&mut self) {
        if let GetState::Pending(request, span) = self.state {
            self.window.communicator.shared.lock().abandon_remote_read(request, span.region);
        }
    }
}

fn zeroed<T: FromBytes>(count: usize) -> Vec<T> {
    core::iter::repeat_with(T::new_zeroed).take(count).collect()
}

impl Window {
    /// As [`put`](Self::put), with a request (`MPI_Rput`).
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn request_put<T: IntoBytes + Immutable>(
        &self,
        data: &[T],
        target: Rank,
        offset: usize,
    ) -> Result<PutRequest<'_>, WindowError> {
        let parts = self.start_put(data.as_bytes(), target, offset, CallEnd::Request)?;
        if !parts.is_empty() {
            let there = self.communicator.world_rank(target)?;
            self.communicator.shared.lock().record_write(self.number, there);
        }
        Ok(PutRequest { window: self, target, parts })
    }

    /// Starts to copy `count` elements from the memory of a rank, from byte `offset` on (`MPI_Rget`).
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn request_get<T: FromBytes + IntoBytes>(
        &self,
        count: usize,
        target: Rank,
        offset: usize,
    ) -> Result<GetRequest<'_, T>, WindowError> {
        let bytes = count.checked_mul(size_of::<T>()).ok_or(WindowError::OutOfBounds(target))?;
        let (access, offset) = self.access(target, offset, bytes)?;
        let state = match access {
            Access::Remote(there, key) if bytes <= self.communicator.shared.lock().read_limit(there) => {
                let bytes = u32::try_from(bytes).map_err(|_| WindowError::Unsupported)?;
                let mut memory = None;
                let request = self.start_when_room(there, |process| {
                    let span = memory.take().or_else(|| process.allocate_for_remote(bytes));
                    let into = span.ok_or(StartError::Failed(Failure::ResourceExhausted))?;
                    memory = span;
                    let (at, request) = (remote_span(key, offset), RmaRequest::Read { into });
                    process.start_remote(self.number, there, at, request, CallMemory::Nothing, CallEnd::Request)
                });
                match (request, memory) {
                    (Ok(request), Some(span)) => GetState::Pending(request, span),
                    (Ok(_), None) => return Err(WindowError::Unsupported),
                    (Err(error), memory) => {
                        if let Some(span) = memory {
                            self.communicator.shared.lock().release_call_memory(CallMemory::Copy(span.region));
                        }
                        return Err(error);
                    }
                }
            }
            Access::Own(_) | Access::Direct(_) | Access::Remote(..) => {
                let mut values: Vec<T> = zeroed(count);
                self.get(&mut values, target, offset)?;
                GetState::Done(values)
            }
        };
        Ok(GetRequest { window: self, target, count, state, of: PhantomData })
    }
}
