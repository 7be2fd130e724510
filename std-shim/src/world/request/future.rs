//! Requests as futures, for any executor. A future makes progress when it is polled, and asks to be polled again until
//! the operation has ended: no thread of the library wakes it.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::scope::Request;
use super::{Failure, Status};
use crate::collective::{CollectiveError, CollectiveRequest, PersistentRequest};

/// Resolves to what [`Request::wait`] returns.
///
/// ```
/// use core::future::Future;
/// use core::pin::pin;
/// use core::task::{Context, Poll, Waker};
/// use unisono::prelude::*;
///
/// let world = World::join()?;
/// let (sent, mut received) = ([1_u32, 2], [0_u32; 2]);
/// world.scope(|scope| {
///     let receive = scope.immediate_receive_into(&mut received, world.rank(), Tag(1))?;
///     let send = scope.immediate_send(&sent, world.rank(), Tag(1))?;
///     let mut both = pin!(async { send.await.and(receive.await) });
///     // The simplest executor.
///     let mut context = Context::from_waker(Waker::noop());
///     while both.as_mut().poll(&mut context).is_pending() {}
///     Ok::<(), unisono::Error>(())
/// })?;
/// assert_eq!(received, sent);
/// # Ok::<(), unisono::Error>(())
/// ```
impl Future for Request<'_> {
    type Output = Result<Status, Failure>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_again(self.test(), context)
    }
}

/// Resolves to what [`CollectiveRequest::wait`] returns.
impl Future for CollectiveRequest<'_> {
    type Output = Result<(), CollectiveError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_again(self.test(), context)
    }
}

/// Resolves to what [`PersistentRequest::wait`] returns; a reference to it is awaited, so that it can be started again.
impl<T> Future for PersistentRequest<'_, T> {
    type Output = Result<(), CollectiveError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_again(self.get_mut().test(), context)
    }
}

/// The result, if there is one; else asks for another poll.
pub(in crate::world) fn poll_again<R>(result: Option<R>, context: &Context<'_>) -> Poll<R> {
    if result.is_none() {
        context.waker().wake_by_ref();
    }
    result.map_or(Poll::Pending, Poll::Ready)
}
