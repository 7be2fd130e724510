//! Scoped requests: nonblocking operations that borrow their buffers and end within a scope, like the threads of
//! `std::thread::scope`.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use std::sync::OnceLock;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use unisono_core::message::point_to_point::Mode;

use super::any_request::RequestStage;
use super::scope_loans::{LoanId, ScopeLoans};
use super::{Failure, RequestError, Status, Tag};
use crate::world::collective::{AsView, AsViewMut, View, ViewMut};
use crate::world::communicator::Communicator;
use crate::world::process::Process;
use crate::world::process::message_table::Flush;
use unisono_bootstrap::Rank;
use unisono_memory::element_type::ElementType;
use unisono_memory::user_buffer::UserBuffer;

/// Makes the lifetime of a scope invariant.
type Invariant<'scope> = PhantomData<&'scope mut &'scope ()>;

/// Where nonblocking operations are started. When [`Communicator::scope`] returns, all of them have ended.
///
/// Any thread may start requests and wait for them:
///
/// ```
/// use unisono::{Tag, World};
///
/// let world = World::join()?;
/// let (sent, mut received) = ([1_u32, 2], [0_u32; 2]);
/// world.scope(|scope| {
///     let receive = scope.immediate_receive_into(&mut received, world.rank(), Tag(1))?;
///     std::thread::scope(|threads| {
///         let send = scope.immediate_send(&sent, world.rank(), Tag(1))?;
///         threads.spawn(move || receive.wait());
///         send.wait()
///     })
/// })?;
/// assert_eq!(received, sent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A thread that may outlive the scope cannot, since the buffers return to their owners when the scope ends:
///
/// ```compile_fail,E0521
/// # use unisono::{Tag, World};
/// # let world = World::join()?;
/// # let own = world.rank();
/// std::thread::scope(|threads| {
///     world.scope(|scope| {
///         threads.spawn(move || scope.immediate_send(&[1_u32], own, Tag(1)).is_ok());
///     });
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    loans: ScopeLoans<'env>,
    /// The same scope on another communicator.
    next: OnceLock<Box<Self>>,
    scope: Invariant<'scope>,
}

/// A pending operation. When it is dropped, the operation continues until the scope ends.
#[must_use = "without `wait`, the failure of the request goes unreported"]
pub struct Request<'scope> {
    loans: &'scope ScopeLoans<'scope>,
    /// `None` once its result was reported.
    id: Cell<Option<LoanId>>,
}

/// A pending receive that returns its buffer when it ends, to be used again within the same scope. It is a [`Request`].
#[must_use = "`wait` returns the buffer"]
pub struct RecvRequest<'scope, T> {
    request: Request<'scope>,
    buffer: NonNull<[T]>,
    borrow: PhantomData<&'scope mut [T]>,
}

// SAFETY: as the exclusive borrow that it holds. All else of it is: any thread may wait for it, under the World's lock.
unsafe impl<T: Send> Send for RecvRequest<'_, T> {}

/// Waits for what is left of a scope, also in a panic: the borrows of the buffers end with the scope.
fn close(scope: &Scope<'_, '_>) {
    let all = || core::iter::successors(Some(scope), |scope| scope.next.get().map(|next| &**next));
    let left: Vec<_> = all().map(|scope| (scope.communicator(), scope.loans.close())).collect();
    if std::thread::panicking() {
        let open = left.iter().filter(|(_, (started, begun))| !started.is_empty() || !begun.is_empty());
        // The peers may depend on what this thread would have done next.
        open.for_each(|(communicator, _)| communicator.abort());
    }
    let mut outcomes = Vec::new();
    for (communicator, (started, begun)) in left {
        for started in started {
            let _ = communicator.wait(started);
        }
        communicator.wait_for_all(begun, &mut outcomes);
    }
    // No buffer is in use any more: a drop may panic from here on.
    let panic = outcomes.into_iter().fold(None, |first, outcome| first.or(outcome.panic));
    if let Some(panic) = panic.filter(|_| !std::thread::panicking()) {
        std::panic::resume_unwind(panic);
    }
}

fn run<'env, R>(
    communicator: &'env Communicator,
    body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
) -> R {
    struct Guard<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);
    impl Drop for Guard<'_, '_, '_> {
        fn drop(&mut self) {
            close(self.0);
        }
    }
    let scope = Scope::new(communicator);
    let _guard = Guard(&scope);
    body(&scope)
}

/// A scope that ends when this is dropped, and not with a closure: for interfaces that cannot nest calls, such as that
/// of C.
pub struct OpenScope<'env>(Box<Scope<'env, 'env>>);

impl Drop for OpenScope<'_> {
    fn drop(&mut self) {
        close(&self.0);
    }
}

impl<'env> OpenScope<'env> {
    /// The scope.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let data = [1_u8];
    /// let open = world.open_scope();
    /// // SAFETY: the reference is not used once `open` is dropped, and `data` outlives it.
    /// let sent = unsafe { open.scope() }.immediate_send(&data, world.rank(), Tag(1))?;
    /// # world.receive::<u8>(None, None)?;
    /// sent.wait()?;
    /// drop(open);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Safety
    /// The reference, and the requests that it starts, are not used once this is dropped; and this is dropped, and not
    /// leaked, before a buffer that was passed to the scope is used otherwise, unless the request that uses it has
    /// ended.
    pub unsafe fn scope(&self) -> &'env Scope<'env, 'env> {
        // SAFETY: a lifetime only: the scope is in a box, which lives until this is dropped; the caller promises not to
        // use it longer.
        unsafe { NonNull::from(&*self.0).as_ref() }
    }
}

impl Communicator {
    /// Runs `body` with a [`Scope`] for nonblocking operations, all of which have ended when this returns. If `body`
    /// panics while some are pending, this process aborts: they end, and the other ranks are notified of its failure.
    ///
    /// Sends are batched: they are transmitted when 64 sends or 256 KiB are queued, by the next call that waits or
    /// tests, or by [`Scope::flush`].
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (sent, mut received) = ([1_u8], [0_u8]);
    /// world.scope(|scope| {
    ///     let receive = scope.immediate_receive_into(&mut received, None, Tag(1))?;
    ///     scope.immediate_send(&sent, world.rank(), Tag(1))?.wait()?;
    ///     receive.wait()
    /// })?;
    /// assert_eq!(received, sent);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn scope<'env, R>(&'env self, body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
        run(self, body)
    }

    /// Opens a scope that lasts until the result is dropped.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// drop(world.open_scope());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn open_scope(&self) -> OpenScope<'_> {
        OpenScope(Box::new(Scope::new(self)))
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    fn new(communicator: &'env Communicator) -> Self {
        Self { loans: ScopeLoans::new(communicator), next: OnceLock::new(), scope: PhantomData }
    }

    /// The same scope, for requests on another communicator.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (copy, mut sum) = (world.duplicate()?, [1_u32]);
    /// world.scope(|scope| {
    ///     let barrier = scope.immediate_barrier()?;
    ///     let total = scope.on(&copy).immediate_all_reduce_in_place(&mut sum, SystemOperation::sum())?;
    ///     wait_all([&barrier, &total])?;
    ///     Ok::<(), Error>(())
    /// })?;
    /// assert_eq!(sum, [world.size()]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn on(&'scope self, communicator: &'env Communicator) -> &'scope Self {
        let mut scope = self;
        while !core::ptr::eq(scope.communicator(), communicator) {
            scope = scope.next.get_or_init(|| Box::new(Self::new(communicator)));
        }
        scope
    }

    /// Starts a standard send (`MPI_Isend`). The buffer is borrowed until the scope ends.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let data = [1_u8, 2];
    /// world.scope(|scope| {
    ///     let send = scope.immediate_send(&data, world.rank(), Tag(1))?;
    ///     assert_eq!(world.receive::<u8>(None, None)?.0, data);
    ///     send.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`] when the send was not started.
    pub fn immediate_send<T: IntoBytes + Immutable + 'scope>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        to: Rank,
        tag: Tag,
    ) -> Result<Request<'scope>, Failure> {
        let data: View<'scope, T> = data.as_view();
        self.start_send(&data.user_buffer(), to, tag, Mode::Standard)
    }

    /// As [`immediate_send`](Self::immediate_send); the request ends when a receive has matched the message
    /// (`MPI_Issend`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.scope(|scope| {
    ///     let send = scope.immediate_synchronous_send(&[1_u8], world.rank(), Tag(1))?;
    ///     assert!(!send.is_done(), "no receive has matched it");
    ///     world.receive::<u8>(None, None)?;
    ///     send.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`] when the send was not started.
    pub fn immediate_synchronous_send<T: IntoBytes + Immutable + 'scope>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        to: Rank,
        tag: Tag,
    ) -> Result<Request<'scope>, Failure> {
        let data: View<'scope, T> = data.as_view();
        self.start_send(&data.user_buffer(), to, tag, Mode::Synchronous)
    }

    /// As [`immediate_send`](Self::immediate_send), where the receive is known to be posted (`MPI_Irsend`). It is sent
    /// like a standard send.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut received = [0_u8];
    /// world.scope(|scope| {
    ///     let receive = scope.immediate_receive_into(&mut received, world.rank(), Tag(1))?;
    ///     scope.immediate_ready_send(&[1_u8], world.rank(), Tag(1))?.wait()?;
    ///     receive.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`] when the send was not started.
    pub fn immediate_ready_send<T: IntoBytes + Immutable + 'scope>(
        &'scope self,
        data: &'scope (impl AsView<T> + ?Sized),
        to: Rank,
        tag: Tag,
    ) -> Result<Request<'scope>, Failure> {
        let data: View<'scope, T> = data.as_view();
        self.start_send(&data.user_buffer(), to, tag, Mode::Ready)
    }

    fn start_send(
        &'scope self,
        buffer: &UserBuffer,
        to: Rank,
        tag: Tag,
        mode: Mode,
    ) -> Result<Request<'scope>, Failure> {
        let (loans, communicator) = (&self.loans, self.communicator());
        let posting = communicator.send_args(to, tag, mode, Flush::Batched)?;
        let loan =
            communicator.start_send_buffer(buffer, &posting, |process, started| loans.record(process, started))?;
        Ok(Request::new(loans, loan.unwrap_or(LoanId::COMPLETED)))
    }

    /// Posts a receive (`MPI_Irecv`) from `source`, or from any rank; with `tag`, or with any.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut received = [0_u8; 2];
    /// world.scope(|scope| {
    ///     let receive = scope.immediate_receive_into(&mut received, None, Tag(1))?;
    ///     world.send(&[1_u8, 2], world.rank(), Tag(1))?;
    ///     receive.wait()
    /// })?;
    /// assert_eq!(received, [1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`] when the receive was not posted.
    pub fn immediate_receive_into<T: IntoBytes + FromBytes + 'scope>(
        &'scope self,
        data: &'scope mut (impl AsViewMut<T> + ?Sized),
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<Request<'scope>, Failure> {
        let data: ViewMut<'scope, T> = data.as_view_mut();
        let loan = self.start_receive(data.user_buffer(), source.into(), tag.into())?;
        Ok(Request::new(&self.loans, loan))
    }

    /// As [`immediate_receive_into`](Self::immediate_receive_into); [`RecvRequest::wait`] returns the buffer.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut buffer = [0_u8; 2];
    /// world.scope(|scope| {
    ///     let receive = scope.immediate_receive_returning(&mut buffer, None, Tag(1))?;
    ///     world.send(&[1_u8, 2], world.rank(), Tag(1))?;
    ///     let (status, received) = receive.wait();
    ///     assert_eq!((status?.bytes, &*received), (2, &[1, 2][..]));
    ///     Ok::<(), Failure>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`] when the receive was not posted.
    pub fn immediate_receive_returning<T: IntoBytes + FromBytes>(
        &'scope self,
        data: &'scope mut [T],
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<RecvRequest<'scope, T>, Failure> {
        let mut buffer = NonNull::from(data);
        // SAFETY: the exclusive borrow that the pointer was made of ends with 'scope. The bytes are borrowed from the
        // pointer, not beside it, so that it stays good for giving the buffer back.
        let bytes = unsafe { buffer.as_mut() }.as_mut_bytes();
        let bytes = UserBuffer::plain(NonNull::from(&mut *bytes).cast(), bytes.len()).of(ElementType::of::<T>());
        let loan = self.start_receive(bytes, source.into(), tag.into())?;
        Ok(RecvRequest { request: Request::new(&self.loans, loan), buffer, borrow: PhantomData })
    }

    #[inline]
    fn start_receive(&self, into: UserBuffer, source: Option<Rank>, tag: Option<Tag>) -> Result<LoanId, Failure> {
        let wanted = self.communicator().receive_target(source, tag)?;
        self.communicator().start_receive_buffer(into, wanted, |process, started| self.loans.record(process, started))
    }

    /// Transmits the sends that wait to be sent together.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// world.scope(|scope| {
    ///     let send = scope.immediate_send(&[1_u8], world.rank(), Tag(1))?;
    ///     scope.flush();
    ///     // Compute here, while the message is on its way.
    ///     world.receive::<u8>(None, None)?;
    ///     send.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn flush(&self) {
        self.communicator().shared.with_process(Process::flush);
    }

    /// The communicator of this scope.
    pub(in crate::world) const fn communicator(&self) -> &'env Communicator {
        self.loans.communicator
    }

    /// The requests of this scope on its communicator.
    pub(in crate::world) const fn loans(&self) -> &ScopeLoans<'env> {
        &self.loans
    }
}

impl<'scope> Request<'scope> {
    const fn new(loans: &'scope ScopeLoans<'scope>, lent: LoanId) -> Self {
        Self { loans, id: Cell::new(Some(lent)) }
    }

    /// A request that has not started: its end counts as reported.
    pub(super) const fn idle(loans: &'scope ScopeLoans<'scope>) -> Self {
        Self { loans, id: Cell::new(None) }
    }

    /// Whether its end was reported.
    pub(super) const fn is_reported(&self) -> bool {
        self.id.get().is_none()
    }

    /// Records a start of a request whose end was reported.
    pub(super) fn restart(&self, loan: LoanId) {
        self.id.set(Some(loan));
    }

    /// Where the request is recorded.
    pub(super) const fn loans(&self) -> &'scope ScopeLoans<'scope> {
        self.loans
    }

    /// Waits until the operation has ended. Returns the status of a receive; [`Status::EMPTY`] of a send, of a receive
    /// that was [cancelled](Self::cancel), and of a request whose end was reported before.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (sent, mut received) = ([1_u32, 2], [0_u32; 4]);
    /// world.scope(|scope| {
    ///     let receive = scope.immediate_receive_into(&mut received, None, Tag(1))?;
    ///     let send = scope.immediate_send(&sent, world.rank(), Tag(1))?;
    ///     assert_eq!(receive.wait()?, Status { source: world.rank(), tag: Tag(1), bytes: 8 });
    ///     assert_eq!(send.wait()?, Status::EMPTY);
    ///     Ok::<(), Failure>(())
    /// })?;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`] of the operation.
    pub fn wait(self) -> Result<Status, Failure> {
        self.finish()
    }

    /// As [`wait`](Self::wait). A panic amid the progress that this makes leaves the request as it is.
    pub(super) fn finish(&self) -> Result<Status, Failure> {
        let ended = match self.id.get().filter(|lent| !lent.is_completed()) {
            Some(lent) => self.loans.wait(&lent),
            None => Ok(Status::EMPTY),
        };
        self.id.set(None);
        ended
    }

    /// Makes progress once. Returns the result of [`wait`](Self::wait) if the operation has ended. Reports it once:
    /// later calls return `Some(Ok(Status::EMPTY))`.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut received = [0_u8];
    /// world.scope(|scope| {
    ///     let receive = scope.immediate_receive_into(&mut received, None, None)?;
    ///     assert!(receive.test().is_none());
    ///     world.send(&[1_u8], world.rank(), Tag(1))?;
    ///     loop {
    ///         if let Some(ended) = receive.test() {
    ///             break ended;
    ///         }
    ///     }
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn test(&self) -> Option<Result<Status, Failure>> {
        self.poll(|loan| self.loans.test(loan), Option::is_some).unwrap_or_else(|| {
            self.id.set(None);
            Some(Ok(Status::EMPTY))
        })
    }

    /// Makes progress once; returns whether [`wait`](Self::wait) would return at once.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut received = [0_u8];
    /// world.scope(|scope| {
    ///     let receive = scope.immediate_receive_into(&mut received, None, None)?;
    ///     assert!(!receive.is_done());
    ///     world.send(&[1_u8], world.rank(), Tag(1))?;
    ///     receive.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_done(&self) -> bool {
        self.poll(|loan| self.loans.is_done(loan), |_| false).unwrap_or(true)
    }

    /// Cancels a receive that has matched no message: it has ended, and [`wait`](Self::wait) returns
    /// [`Status::EMPTY`]. Returns false if it continues, is a send, or has ended.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut received = [0_u8];
    /// world.scope(|scope| {
    ///     let receive = scope.immediate_receive_into(&mut received, None, None)?;
    ///     assert!(receive.cancel());
    ///     assert_eq!(receive.wait()?, Status::EMPTY);
    ///     Ok::<(), Failure>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cancel(&self) -> bool {
        self.poll(|loan| self.loans.cancel(loan), |cancelled| *cancelled).unwrap_or(false)
    }

    /// Applies `look` to the request, which stays recorded unless `is_over`; returns `None` if it completed at once or
    /// was reported. It is recorded during `look`: a panic amid the progress that this makes frees no buffer.
    fn poll<R>(&self, look: impl FnOnce(&LoanId) -> R, is_over: impl FnOnce(&R) -> bool) -> Option<R> {
        let lent = self.id.get().filter(|lent| !lent.is_completed())?;
        let seen = look(&lent);
        if is_over(&seen) {
            self.id.set(None);
        }
        Some(seen)
    }

    /// The state of the request, for the holder of the lock.
    pub(in crate::world) fn stage(&self, process: &mut Process) -> RequestStage {
        let Some(loan) = self.id.get() else { return RequestStage::Reported };
        if loan.is_completed() {
            RequestStage::Ended(Ok(Status::EMPTY))
        } else if let Some(ended) = self.loans.peek(process, &loan) {
            RequestStage::Ended(ended.map_err(RequestError::from))
        } else {
            let handle = self.loans.handle(process, &loan);
            handle.map_or(RequestStage::Ended(Err(Failure::Finished.into())), |handle| {
                RequestStage::Pending(Some(handle))
            })
        }
    }

    /// As [`stage`](Self::stage). A request that has ended counts as reported, and is released.
    pub(in crate::world) fn report(&self, process: &mut Process) -> RequestStage {
        let stage = self.stage(process);
        if matches!(stage, RequestStage::Ended(_))
            && self.id.get().is_some_and(|loan| self.loans.release_if_ended(process, &loan))
        {
            self.id.set(None);
        }
        stage
    }

    /// The communicator of the request.
    pub(in crate::world) const fn communicator(&self) -> &'scope Communicator {
        self.loans.communicator
    }
}

impl<'scope> AsRef<Self> for Request<'scope> {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<'scope, T> AsRef<Request<'scope>> for RecvRequest<'scope, T> {
    fn as_ref(&self) -> &Request<'scope> {
        &self.request
    }
}

impl<'scope, T> Deref for RecvRequest<'scope, T> {
    type Target = Request<'scope>;

    fn deref(&self) -> &Request<'scope> {
        &self.request
    }
}

impl<'scope, T> RecvRequest<'scope, T> {
    /// Waits until the receive has ended. Returns its result, as [`Request::wait`] does, and the buffer; a receive that
    /// was [cancelled](Request::cancel) returns it at once and unchanged.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut buffer = [0_u8];
    /// world.scope(|scope| {
    ///     let mut free = &mut buffer[..];
    ///     for number in [1_u8, 2] {
    ///         let receive = scope.immediate_receive_returning(free, None, None)?;
    ///         world.send(&number, world.rank(), Tag(1))?;
    ///         let (status, received) = receive.wait();
    ///         assert_eq!((status?.bytes, received[0]), (1, number));
    ///         free = received;
    ///     }
    ///     Ok::<(), Failure>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn wait(mut self) -> (Result<Status, Failure>, &'scope mut [T]) {
        let ended = self.request.finish();
        // SAFETY: made of an exclusive borrow for 'scope; the request has ended and its memory is revoked, so that
        // nobody else uses it any more; `self`, which held the borrow, is consumed.
        (ended, unsafe { self.buffer.as_mut() })
    }
}
