//! Requests that borrow buffers: they end within a scope, as threads of `std::thread::scope` do.

use core::cell::Cell;
use core::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::progress::Started;
use super::request::{Failure, Status, Tag};
use super::{Invariant, World};
use crate::rank::Rank;

/// Where requests are started. When [`World::scope`] returns, all have ended.
pub struct Scope<'scope, 'env: 'scope> {
    world: &'env World,
    /// Requests whose memory is lent; those that were waited for are `None`.
    started: core::cell::RefCell<Vec<Option<Started>>>,
    scope: Invariant<'scope>,
}

/// Communication under way. Dropped, it goes on until the scope ends.
#[must_use = "a request that is not waited for tells nothing of its failure"]
pub struct Request<'scope> {
    world: &'scope World,
    started: &'scope core::cell::RefCell<Vec<Option<Started>>>,
    /// Its place among those of the scope; `None`: it has ended well at once.
    place: Cell<Option<usize>>,
}

pub(super) fn run<'env, R>(world: &'env World, body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
    /// Waits for what is left, also in a panic: the buffers' borrows end with the scope.
    struct Guard<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);
    impl Drop for Guard<'_, '_, '_> {
        fn drop(&mut self) {
            let left = core::mem::take(&mut *self.0.started.borrow_mut());
            let mut left = left.into_iter().flatten().peekable();
            if left.peek().is_some() && std::thread::panicking() {
                // What they wait for may depend on what this thread would have done next.
                self.0.world.give_up();
            }
            for started in left {
                let _ = self.0.world.shared.wait(started);
            }
        }
    }
    let scope = Scope { world, started: core::cell::RefCell::new(Vec::new()), scope: PhantomData };
    let _guard = Guard(&scope);
    body(&scope)
}

impl<'scope, 'env> Scope<'scope, 'env> {
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
        let started = self.world.start_send(data.as_bytes(), to, tag)?;
        self.world.shared.lock().cork();
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
        let started = self.world.start_receive(data.as_mut_bytes(), source.into(), tag.into())?;
        Ok(self.request(Some(started)))
    }

    /// Lets the sends that were collected leave.
    pub fn flush(&self) {
        self.world.shared.lock().push();
    }

    fn request(&'scope self, started: Option<Started>) -> Request<'scope> {
        let place = started.map(|started| {
            let mut all = self.started.borrow_mut();
            all.push(Some(started));
            all.len() - 1
        });
        Request { world: self.world, started: &self.started, place: Cell::new(place) }
    }
}

impl Request<'_> {
    /// Waits for the end.
    ///
    /// # Errors
    /// [`Failure`] when the communication failed.
    pub fn wait(self) -> Result<Option<Status>, Failure> {
        let Some(started) = self.take() else { return Ok(None) };
        self.world.shared.wait(started).map(Some)
    }

    /// Makes progress once and tells whether and how it has ended; then it must not be asked again.
    pub fn test(&self) -> Option<Result<Status, Failure>> {
        let place = self.place.get()?;
        let started = (*self.started.borrow().get(place)?)?;
        let result = self.world.shared.test(started);
        if result.is_some() {
            self.take();
        }
        result
    }

    /// Whether [`wait`](Self::wait) would return at once; makes progress once.
    pub fn is_done(&self) -> bool {
        let Some(started) = self.place.get().and_then(|place| self.started.borrow().get(place).copied().flatten())
        else {
            return true;
        };
        self.world.shared.is_done(started)
    }

    fn take(&self) -> Option<Started> {
        let place = self.place.take()?;
        self.started.borrow_mut().get_mut(place)?.take()
    }
}
