//! Request forms: operations that end one by one (`MPI_Rput`, `MPI_Rget`, `MPI_Raccumulate`, `MPI_Rget_accumulate`).

use core::cell::{Cell, RefCell};
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};

use unisono_core::rma::RemoteSpan;
use unisono_core::rma::header::ElementUpdate;
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::stride::Stride;
use unisono_core::span::Span;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::copies::bytes_of_view;
use super::place::Place;
use super::raw::RawUpdate;
use super::remote::remote_span;
use super::targets::{Access, Targets};
use super::{AccumulateOperation, Window, WindowError};
use crate::world::collective::{AsView, Element};
use crate::world::communicator::Communicator;
use crate::world::process::Process;
use crate::world::process::remote_access::{CallEnd, CallMemory, StartError};
use crate::world::progress::WaitFor;
use crate::world::request::any_request::RequestStage;
use crate::world::request::future::poll_again;
use crate::world::request::{Failure, Status};
use unisono_bootstrap::Rank;

/// A one-sided call with a request: its operations, and how they ended.
#[derive(Debug)]
pub struct OneSided<'w> {
    targets: &'w Targets,
    target: Rank,
    /// The operations whose end was not taken.
    parts: RefCell<Vec<u32>>,
    /// How those ended that have: the first error.
    ended: Cell<Result<(), WindowError>>,
    is_reported: Cell<bool>,
}

impl<'w> OneSided<'w> {
    fn new(targets: &'w Targets, target: Rank, parts: Vec<u32>) -> Self {
        Self { targets, target, parts: RefCell::new(parts), ended: Cell::new(Ok(())), is_reported: Cell::new(false) }
    }

    /// The communicator of the window.
    pub(in crate::world) const fn communicator(&self) -> &'w Communicator {
        &self.targets.communicator
    }

    /// How the call has ended, for the holder of the lock. `None`: it has not.
    fn poll(&self, process: &mut Process) -> Option<Result<(), WindowError>> {
        let mut parts = self.parts.borrow_mut();
        while let Some(part) = parts.last() {
            let ended = process.take_remote(*part)?;
            parts.pop();
            let result = self.targets.result_locked(process, ended, self.target).map(|_| ());
            self.ended.set(self.ended.get().and(result));
        }
        Some(self.ended.get())
    }

    /// The state of the call, for the holder of the lock.
    pub(in crate::world) fn stage(&self, process: &mut Process) -> RequestStage {
        if self.is_reported.get() {
            return RequestStage::Reported;
        }
        match self.poll(process) {
            None => RequestStage::Pending(None),
            Some(ended) => RequestStage::Ended(ended.map(|()| Status::EMPTY).map_err(Into::into)),
        }
    }

    /// As [`stage`](Self::stage). A call that has ended counts as reported.
    pub(in crate::world) fn report(&self, process: &mut Process) -> RequestStage {
        let stage = self.stage(process);
        self.is_reported.set(!matches!(stage, RequestStage::Pending(_)));
        stage
    }

    fn wait(&self) -> Result<(), WindowError> {
        let there = self.communicator().world_rank(self.target)?;
        self.is_reported.set(true);
        self.communicator().shared.wait_until(WaitFor::Rank(there), |process| self.poll(process))
    }

    fn is_done(&self) -> bool {
        let shared = &self.communicator().shared;
        let mut process = shared.lock();
        shared.progress(&mut process);
        self.poll(&mut process).is_some()
    }

    /// Nobody asks how it ends any more.
    fn abandon(&self, mut abandon: impl FnMut(&mut Process, u32)) {
        let parts = self.parts.take();
        if !parts.is_empty() {
            let mut process = self.communicator().shared.lock();
            parts.into_iter().for_each(|part| abandon(&mut process, part));
        }
    }
}

/// A put or an accumulate that is under way. Its data is copied: dropping this only forgets how it ends.
#[derive(Debug)]
#[must_use = "the request reports how the operation ends"]
pub struct PutRequest<'w>(OneSided<'w>);

impl<'w> PutRequest<'w> {
    /// Waits until the target has received the data. What was put is visible there after a flush.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// window.request_put(&[1_u64], world.rank(), 0)?.wait()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn wait(self) -> Result<(), WindowError> {
        self.0.wait()
    }

    /// Makes progress once. Returns the result of [`wait`](Self::wait) if the operation has ended.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// let put = window.request_put(&[1_u64], world.rank(), 0)?;
    /// while put.test().is_none() {}
    /// drop(put);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn test(&self) -> Option<Result<(), WindowError>> {
        self.0.is_done().then(|| self.0.wait())
    }

    /// Makes progress once; returns whether [`wait`](Self::wait) would return at once.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// let put = window.request_put(&[1_u64], world.rank(), 0)?;
    /// while !put.is_done() {}
    /// put.wait()?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// The call.
    pub(in crate::world) const fn one_sided(&self) -> &OneSided<'w> {
        &self.0
    }
}

impl Drop for PutRequest<'_> {
    fn drop(&mut self) {
        self.0.abandon(Process::abandon_remote);
    }
}

/// Resolves to what [`PutRequest::wait`] returns.
impl Future for PutRequest<'_> {
    type Output = Result<(), WindowError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_again(self.test(), context)
    }
}

/// A get, or an accumulate that returns the old elements, that is under way, into memory of its own. A call on several
/// requests reports its end; [`wait`](Self::wait) then returns the data at once.
#[derive(Debug)]
#[must_use = "the request returns the data"]
pub struct GetRequest<'w, T> {
    call: OneSided<'w>,
    count: usize,
    /// The memory of the data.
    memory: GetMemory<T>,
    of: PhantomData<T>,
}

#[derive(Debug)]
enum GetMemory<T> {
    /// The data, which is there already.
    Values(Vec<T>),
    /// Memory of the process.
    Span(Span),
    Taken,
}

impl<'w, T: FromBytes + IntoBytes> GetRequest<'w, T> {
    /// Waits for the data.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// assert_eq!(window.request_get::<u64>(1, world.rank(), 0)?.wait()?, [0]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn wait(mut self) -> Result<Vec<T>, WindowError> {
        self.call.wait()?;
        Ok(self.take())
    }

    /// The data of a call that has ended well.
    fn take(&mut self) -> Vec<T> {
        match core::mem::replace(&mut self.memory, GetMemory::Taken) {
            GetMemory::Values(values) => values,
            GetMemory::Taken => Vec::new(),
            GetMemory::Span(span) => {
                let mut values: Vec<T> = zeroed(self.count);
                let bytes = values.as_mut_slice().as_mut_bytes();
                self.call.communicator().shared.lock().take_from_remote(span, bytes);
                values
            }
        }
    }

    /// Makes progress once; returns whether [`wait`](Self::wait) would return at once.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// let get = window.request_get::<u64>(1, world.rank(), 0)?;
    /// while !get.is_done() {}
    /// assert_eq!(get.wait()?, [0]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_done(&self) -> bool {
        self.call.is_done()
    }
}

impl<'w, T> GetRequest<'w, T> {
    /// The call.
    pub(in crate::world) const fn one_sided(&self) -> &OneSided<'w> {
        &self.call
    }
}

impl<T> Drop for GetRequest<'_, T> {
    fn drop(&mut self) {
        let GetMemory::Span(span) = self.memory else { return };
        let has_ended = self.call.parts.borrow().is_empty();
        if !has_ended {
            self.call.abandon(|process, part| process.abandon_remote_read(part, span.region));
        } else if self.call.ended.get().is_ok() {
            let memory = CallMemory::Copy(span.region, None);
            self.call.communicator().shared.lock().release_call_memory(memory);
        }
        // After a failure the machine may still know the memory, which stays allocated.
    }
}

/// Resolves to what [`GetRequest::wait`] returns; afterwards to no data.
impl<T: FromBytes + IntoBytes + Unpin> Future for GetRequest<'_, T> {
    type Output = Result<Vec<T>, WindowError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let request = self.get_mut();
        let ended = request.is_done().then(|| request.call.wait());
        poll_again(ended.map(|ended| ended.map(|()| request.take())), context)
    }
}

pub(super) fn zeroed<T: FromBytes>(count: usize) -> Vec<T> {
    core::iter::repeat_with(T::new_zeroed).take(count).collect()
}

impl Window {
    /// As [`put`](Self::put), with a request (`MPI_Rput`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// let puts = [0, 4].map(|offset| window.request_put(&[7_u32], world.rank(), offset));
    /// puts.into_iter().try_for_each(|put| put?.wait())?;
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn request_put<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        target: Rank,
        offset: usize,
    ) -> Result<PutRequest<'_>, WindowError> {
        self.targets.request_put(data, target, offset)
    }

    /// As [`accumulate`](Self::accumulate), with a request (`MPI_Raccumulate`), which may be waited for beside those of
    /// messages and collectives:
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(16)?;
    /// let mut total = [1_u64];
    /// world.scope(|scope| {
    ///     let added = window.request_accumulate(&[2_u64], world.rank(), 0, SystemOperation::sum())?;
    ///     let old = window.request_get_accumulate(&[3_u64], world.rank(), 8, SystemOperation::sum())?;
    ///     let sum = scope.immediate_all_reduce_in_place(&mut total, SystemOperation::sum())?;
    ///     let all: [&dyn AnyRequest; 3] = [&added, &old, &sum];
    ///     wait_all(all)?;
    ///     assert_eq!(old.wait()?, [0]);
    ///     Ok::<(), Error>(())
    /// })?;
    /// assert_eq!(window.request_get::<u64>(2, world.rank(), 0)?.wait()?, [2, 3]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn request_accumulate<T: Element>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        target: Rank,
        offset: usize,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<PutRequest<'_>, WindowError> {
        let update = RawUpdate::of::<T>(operation.into());
        self.raw_request_update(update, &bytes_of_view(&data.as_view())?, target, offset)
    }

    /// As [`get_accumulate`](Self::get_accumulate), with a request (`MPI_Rget_accumulate`). More than 4 KiB are waited
    /// for.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// let old = window.request_get_accumulate(&[3_u64], world.rank(), 0, SystemOperation::sum())?;
    /// assert_eq!(old.wait()?, [0]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn request_get_accumulate<T: Element>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        target: Rank,
        offset: usize,
        operation: impl Into<AccumulateOperation>,
    ) -> Result<GetRequest<'_, T>, WindowError> {
        self.request_fetch(RawUpdate::of::<T>(operation.into()), &bytes_of_view(&data.as_view())?, target, offset)
    }

    /// Starts to copy `count` elements from the memory of a rank, from byte `offset` on (`MPI_Rget`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let window = world.allocate_window(8)?;
    /// let get = window.request_get::<u32>(2, world.rank(), 0)?;
    /// // Compute here.
    /// assert_eq!(get.wait()?, [0, 0]);
    /// window.free()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`WindowError`].
    pub fn request_get<T: FromBytes + IntoBytes>(
        &self,
        count: usize,
        target: Rank,
        offset: usize,
    ) -> Result<GetRequest<'_, T>, WindowError> {
        self.targets.request_get(count, target, offset)
    }
}

impl Targets {
    /// Starts to copy elements to the memory of a rank.
    pub(in crate::world) fn request_put<T: IntoBytes + Immutable>(
        &self,
        data: &(impl AsView<T> + ?Sized),
        target: Rank,
        offset: usize,
    ) -> Result<PutRequest<'_>, WindowError> {
        let parts = self.put_view(&data.as_view(), target, offset, CallEnd::Request)?;
        Ok(PutRequest(OneSided::new(self, target, parts)))
    }

    /// Starts to copy `count` elements from the memory of a rank.
    pub(in crate::world) fn request_get<T: FromBytes + IntoBytes>(
        &self,
        count: usize,
        target: Rank,
        offset: usize,
    ) -> Result<GetRequest<'_, T>, WindowError> {
        let bytes = count.checked_mul(size_of::<T>()).ok_or(WindowError::OutOfBounds(target))?;
        match self.places(target, offset, bytes, 1)?.only() {
            Some(Place { access: Access::Remote(there, key), offset: at, .. })
                if bytes <= self.communicator.shared.lock().read_limit(there) =>
            {
                self.start_read(target, there, count, remote_span(key, at), bytes, None)
            }
            _ => {
                let mut values: Vec<T> = zeroed(count);
                self.get_bytes(values.as_mut_slice().as_mut_bytes(), target, offset)?;
                Ok(self.fetched(target, values))
            }
        }
    }

    /// Starts to combine elements of `grain` bytes.
    pub(super) fn request_update(
        &self,
        update: ElementUpdate,
        grain: usize,
        mut bytes: &[u8],
        target: Rank,
        offset: usize,
    ) -> Result<PutRequest<'_>, WindowError> {
        let mut parts = Vec::new();
        for place in self.places(target, offset, bytes.len(), grain)? {
            let bytes = bytes.split_off(..place.bytes).unwrap_or_default();
            let Place { access: Access::Remote(there, key), offset, .. } = place else {
                self.update_place(update, grain, bytes, None, target, place)?;
                continue;
            };
            let step = self.step(grain, there)?;
            for (i, part) in bytes.chunks(step).enumerate() {
                let request = |from| RmaRequest::Accumulate { from, update, result: None, stride: None };
                parts.push(self.start(there, remote_span(key, offset + i * step), part, CallEnd::Request, request)?);
            }
        }
        Ok(PutRequest(OneSided::new(self, target, parts)))
    }

    /// As [`request_update`](Self::request_update), and fetches the old elements.
    pub(super) fn request_fetch<T: FromBytes + IntoBytes>(
        &self,
        update: ElementUpdate,
        grain: usize,
        bytes: &[u8],
        target: Rank,
        offset: usize,
    ) -> Result<GetRequest<'_, T>, WindowError> {
        let count = bytes.len().checked_div(size_of::<T>()).unwrap_or(0);
        match self.places(target, offset, bytes.len(), grain)?.only() {
            Some(Place { access: Access::Remote(there, key), offset: at, .. })
                if bytes.len() <= self.step(grain, there)? =>
            {
                let sent = |process: &mut Process| match process.copy_for_remote(bytes) {
                    Some((memory @ CallMemory::Cell(_), from)) => Ok((memory, from)),
                    // All bounce buffers are in use.
                    Some((memory, _)) => {
                        process.release_call_memory(memory);
                        Err(StartError::Full)
                    }
                    None => Err(StartError::Failed(Failure::ResourceExhausted)),
                };
                self.start_fetch(target, there, count, bytes.len(), |process, into| {
                    let (memory, from) = sent(process)?;
                    let request = RmaRequest::Accumulate { from, update, result: Some(into), stride: None };
                    let at = remote_span(key, at);
                    process.start_remote(self.number, there, at, request, memory, CallEnd::Request)
                })
            }
            _ => {
                let mut values: Vec<T> = zeroed(count);
                let old = values.as_mut_slice().as_mut_bytes();
                self.update(update, grain, bytes, Some(old), target, offset)?;
                Ok(self.fetched(target, values))
            }
        }
    }

    /// Starts to read `bytes` bytes, of blocks or adjacent ones, as `count` elements.
    pub(super) fn start_read<T>(
        &self,
        target: Rank,
        there: Rank,
        count: usize,
        at: RemoteSpan,
        bytes: usize,
        stride: Option<Stride>,
    ) -> Result<GetRequest<'_, T>, WindowError> {
        self.start_fetch(target, there, count, bytes, |process, into| {
            let request = RmaRequest::Read { into, stride };
            process.start_remote(self.number, there, at, request, CallMemory::Nothing, CallEnd::Request)
        })
    }

    /// A request of an update that has ended.
    pub(super) fn updated(&self, target: Rank) -> PutRequest<'_> {
        PutRequest(OneSided::new(self, target, Vec::new()))
    }

    /// A request that has ended, with its data.
    pub(super) fn fetched<T>(&self, target: Rank, values: Vec<T>) -> GetRequest<'_, T> {
        let (count, call) = (values.len(), OneSided::new(self, target, Vec::new()));
        GetRequest { call, count, memory: GetMemory::Values(values), of: PhantomData }
    }

    /// Starts an operation that writes `bytes` bytes of memory of the process.
    fn start_fetch<T>(
        &self,
        target: Rank,
        there: Rank,
        count: usize,
        bytes: usize,
        mut start: impl FnMut(&mut Process, Span) -> Result<u32, StartError>,
    ) -> Result<GetRequest<'_, T>, WindowError> {
        let bytes = u32::try_from(bytes).map_err(|_| WindowError::Unsupported)?;
        let mut memory = None;
        let started = self.start_when_room(there, |process| {
            let span = memory.take().or_else(|| process.allocate_for_remote(bytes));
            memory = span;
            start(process, span.ok_or(StartError::Failed(Failure::ResourceExhausted))?)
        });
        match (started, memory) {
            (Ok(part), Some(span)) => {
                let call = OneSided::new(self, target, vec![part]);
                Ok(GetRequest { call, count, memory: GetMemory::Span(span), of: PhantomData })
            }
            (Ok(_), None) => Err(WindowError::Unsupported),
            (Err(error), memory) => {
                if let Some(span) = memory {
                    self.communicator.shared.lock().release_call_memory(CallMemory::Copy(span.region, None));
                }
                Err(error)
            }
        }
    }
}
