//! Requests that borrow buffers: they end within a scope, as threads of `std::thread::scope` do.

use core::cell::{Cell, OnceCell, RefCell};
use core::marker::PhantomData;
use core::ptr::NonNull;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use unisono_core::message::admission::Mode;

use super::collective::Begun;
use super::progress::{Leaves, Started};
use super::request::{Failure, Status, Tag};
use super::{Communicator, Invariant};
use crate::rank::Rank;

/// Where requests are started. When [`Communicator::scope`] returns, all have ended.
pub struct Scope<'scope, 'env: 'scope> {
    communicator: &'env Communicator,
    lent: RefCell<Lent>,
    collectives: RefCell<Begun>,
    /// Of another communicator.
    next: OnceCell<Box<Self>>,
    scope: Invariant<'scope>,
}

/// Requests whose memory is lent.
#[derive(Default)]
struct Lent {
    /// Those that were waited for are `None`.
    started: Vec<Option<Started>>,
    free: Vec<usize>,
}

impl Lent {
    fn put(&mut self, started: Started) -> usize {
        if let Some(free) = self.free.pop()
            && let Some(place) = self.started.get_mut(free)
        {
            *place = Some(started);
            return free;
        }
        self.started.push(Some(started));
        self.started.len() - 1
    }

    fn get(&self, place: usize) -> Option<Started> {
        self.started.get(place).copied().flatten()
    }

    fn take(&mut self, place: usize) -> Option<Started> {
        let started = self.started.get_mut(place)?.take()?;
        self.free.push(place);
        Some(started)
    }
}

/// Communication under way. Dropped, it goes on until the scope ends.
#[must_use = "a request that is not waited for tells nothing of its failure"]
pub struct Request<'scope> {
    communicator: &'scope Communicator,
    lent: &'scope RefCell<Lent>,
    /// Its place among those of the scope; `None`: it has ended well at once.
    place: Cell<Option<usize>>,
}

/// A receive under way whose buffer comes back with it, to be lent again within the same scope.
#[must_use = "the buffer comes back from `wait`"]
pub struct Loan<'scope, T> {
    communicator: &'scope Communicator,
    lent: &'scope RefCell<Lent>,
    place: usize,
    started: Started,
    buffer: NonNull<[T]>,
    borrow: PhantomData<&'scope mut [T]>,
}

pub(super) fn run<'env, R>(
    communicator: &'env Communicator,
    body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
) -> R {
    /// Waits for what is left, also in a panic: the buffers' borrows end with the scope.
    struct Guard<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);
    impl Drop for Guard<'_, '_, '_> {
        fn drop(&mut self) {
            let all = || core::iter::successors(Some(self.0), |scope| scope.next.get().map(|next| &**next));
            let take = |scope: &Scope<'_, '_>| core::mem::take(&mut *scope.lent.borrow_mut()).started;
            let mut left = all().flat_map(take).flatten().collect::<Vec<_>>().into_iter().peekable();
            let mut begun = Begun::default();
            all().for_each(|scope| begun.append(core::mem::take(&mut *scope.collectives.borrow_mut())));
            if (!begun.is_empty() || left.peek().is_some()) && std::thread::panicking() {
                // What they wait for may depend on what this thread would have done next.
                self.0.communicator.give_up();
            }
            for started in left {
                let _ = self.0.communicator.shared.wait(started);
            }
            self.0.communicator.wait_for_all(begun);
        }
    }
    let scope = Scope::new(communicator);
    let _guard = Guard(&scope);
    body(&scope)
}

impl<'scope, 'env> Scope<'scope, 'env> {
    fn new(communicator: &'env Communicator) -> Self {
        let (lent, collectives) = (RefCell::default(), RefCell::default());
        Self { communicator, lent, collectives, next: OnceCell::new(), scope: PhantomData }
    }

    /// The same scope, for requests on another communicator.
    pub fn on(&'scope self, communicator: &'env Communicator) -> &'scope Self {
        let mut scope = self;
        while !core::ptr::eq(scope.communicator, communicator) {
            scope = scope.next.get_or_init(|| Box::new(Self::new(communicator)));
        }
        scope
    }

    /// Starts sending. The buffer is borrowed until the scope ends.
    ///
    /// # Errors
    /// [`Failure`] when nothing was started.
    pub fn immediate_send<T: IntoBytes + Immutable>(
        &'scope self,
        data: &'scope [T],
        to: Rank,
        tag: Tag,
    ) -> Result<Request<'scope>, Failure> {
        self.start_send(data.as_bytes(), to, tag, Mode::Standard)
    }

    /// As [`immediate_send`](Self::immediate_send); the request ends when the message has met its receive.
    ///
    /// # Errors
    /// [`Failure`] when nothing was started.
    pub fn immediate_synchronous_send<T: IntoBytes + Immutable>(
        &'scope self,
        data: &'scope [T],
        to: Rank,
        tag: Tag,
    ) -> Result<Request<'scope>, Failure> {
        self.start_send(data.as_bytes(), to, tag, Mode::Synchronous)
    }

    /// As [`immediate_send`](Self::immediate_send), where the receive is known to be posted. Nothing is made of that.
    ///
    /// # Errors
    /// [`Failure`] when nothing was started.
    pub fn immediate_ready_send<T: IntoBytes + Immutable>(
        &'scope self,
        data: &'scope [T],
        to: Rank,
        tag: Tag,
    ) -> Result<Request<'scope>, Failure> {
        self.start_send(data.as_bytes(), to, tag, Mode::Ready)
    }

    fn start_send(
        &'scope self,
        bytes: &'scope [u8],
        to: Rank,
        tag: Tag,
        mode: Mode,
    ) -> Result<Request<'scope>, Failure> {
        let posting = self.communicator.posting(to, tag, mode, Leaves::Together)?;
        let started = self.communicator.start_send(bytes, &posting)?;
        Ok(self.request(started))
    }

    /// Starts receiving from `source`, or from anyone; with `tag`, or with any.
    ///
    /// # Errors
    /// [`Failure`] when nothing was started.
    pub fn immediate_receive_into<T: IntoBytes + FromBytes>(
        &'scope self,
        data: &'scope mut [T],
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<Request<'scope>, Failure> {
        let wanted = self.communicator.wanted(source.into(), tag.into())?;
        let started = self.communicator.start_receive(data.as_mut_bytes(), wanted)?;
        Ok(self.request(Some(started)))
    }

    /// As [`immediate_receive_into`](Self::immediate_receive_into); the buffer comes back from [`Loan::wait`].
    ///
    /// # Errors
    /// [`Failure`] when nothing was started.
    pub fn lend<T: IntoBytes + FromBytes>(
        &'scope self,
        data: &'scope mut [T],
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<Loan<'scope, T>, Failure> {
        let mut buffer = NonNull::from(data);
        // SAFETY: the exclusive borrow that the pointer was made of ends with 'scope. The bytes are borrowed from the pointer,
        // not beside it, so that it stays good for giving the buffer back.
        let bytes = unsafe { buffer.as_mut() }.as_mut_bytes();
        let started = self.communicator.start_receive(bytes, self.communicator.wanted(source.into(), tag.into())?)?;
        let place = self.lent.borrow_mut().put(started);
        Ok(Loan { communicator: self.communicator, lent: &self.lent, place, started, buffer, borrow: PhantomData })
    }

    /// Lets the sends that were collected leave.
    pub fn flush(&self) {
        self.communicator.shared.lock().uncork();
    }

    /// Whose it is.
    pub(super) const fn communicator(&self) -> &'env Communicator {
        self.communicator
    }

    /// The collectives of this scope.
    pub(super) const fn collectives(&self) -> &RefCell<Begun> {
        &self.collectives
    }

    fn request(&'scope self, started: Option<Started>) -> Request<'scope> {
        let place = started.map(|started| self.lent.borrow_mut().put(started));
        Request { communicator: self.communicator, lent: &self.lent, place: Cell::new(place) }
    }
}

impl Request<'_> {
    /// Waits for the end.
    ///
    /// # Errors
    /// [`Failure`] when the communication failed.
    pub fn wait(self) -> Result<Option<Status>, Failure> {
        let Some(started) = self.take() else { return Ok(None) };
        self.communicator.wait(started).map(Some)
    }

    /// Makes progress once and tells whether and how it has ended; then it must not be asked again.
    pub fn test(&self) -> Option<Result<Status, Failure>> {
        let started = self.started()?;
        let result = self.communicator.shared.test(started).map(|ended| self.communicator.ended(&started, ended));
        if result.is_some() {
            self.take();
        }
        result
    }

    /// Whether [`wait`](Self::wait) would return at once; makes progress once.
    pub fn is_done(&self) -> bool {
        self.started().is_none_or(|started| self.communicator.shared.is_done(started))
    }

    /// Takes a receive back that has met no message: it has ended, and [`wait`](Self::wait) says `None`. False: it goes on, or is a
    /// send, or has ended.
    pub fn cancel(&self) -> bool {
        let Some(started) = self.started() else { return false };
        let cancelled = self.communicator.shared.lock().cancel(started.request, started.region);
        if cancelled {
            self.take();
        }
        cancelled
    }

    fn started(&self) -> Option<Started> {
        self.lent.borrow().get(self.place.get()?)
    }

    fn take(&self) -> Option<Started> {
        self.lent.borrow_mut().take(self.place.take()?)
    }
}

impl<'scope, T> Loan<'scope, T> {
    /// Waits for the end. Tells how the receive ended, and gives the buffer back.
    pub fn wait(mut self) -> (Result<Status, Failure>, &'scope mut [T]) {
        self.lent.borrow_mut().take(self.place);
        let ended = self.communicator.wait(self.started);
        // SAFETY: made of an exclusive borrow for 'scope; the request has ended and its memory is revoked, so that nobody
        // else uses it any more; `self`, which held the borrow, is consumed.
        (ended, unsafe { self.buffer.as_mut() })
    }
}
