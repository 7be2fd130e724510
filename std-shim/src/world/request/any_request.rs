//! Requests of any kind, as the calls on several requests take them.

use alloc::sync::Arc;

use super::exchange::{Exchange, ExchangeRequest, PersistentExchange};
use super::handle::RequestHandle;
use super::persistent_message::PersistentMessage;
use super::scope::{RecvRequest, Request};
use super::{RequestError, RequestFailed, Status};
use crate::collective::{CollectiveRequest, PersistentRequest};
use crate::world::collective::engine::active_collective::Outcome;
use crate::world::collective::persistent::PersistentCollective;
use crate::world::communicator::Communicator;
use crate::world::process::Process;
use crate::world::progress::SharedProcess;
use crate::world::window::{GetRequest, OneSided, PutRequest};

/// A request of any kind: of a message, a collective, an exchange or a window's operation, started once or persistent. Requests of different kinds are
/// passed to one call as references to this trait:
///
/// ```
/// use unisono::prelude::*;
///
/// let world = World::join()?;
/// let (sent, mut received, mut sum) = ([1_u32, 2], [0_u32; 2], [1_u64]);
/// world.scope(|scope| {
///     let receive = scope.immediate_receive_into(&mut received, world.rank(), Tag(1))?;
///     let send = scope.immediate_send(&sent, world.rank(), Tag(1))?;
///     let total = scope.immediate_all_reduce_in_place(&mut sum, SystemOperation::sum())?;
///     let all: [&dyn AnyRequest; 3] = [&receive, &send, &total];
///     let statuses = wait_all(all)?;
///     assert_eq!((statuses[0].bytes, statuses[2]), (8, Status::EMPTY));
///     Ok::<(), unisono::Error>(())
/// })?;
/// assert_eq!((received, sum[0]), (sent, u64::from(world.size())));
/// # Ok::<(), unisono::Error>(())
/// ```
///
/// The library's requests implement it, and references to them; other types cannot.
pub trait AnyRequest: sealed::Kind {}

impl<R: sealed::Kind + ?Sized> AnyRequest for R {}

pub(in crate::world) mod sealed {
    use super::RequestRef;

    /// What kind of request it is.
    pub trait Kind {
        fn kind(&self) -> RequestRef<'_>;
    }
}

/// A request by its kind.
#[derive(Clone, Copy)]
pub enum RequestRef<'a> {
    Message(&'a Request<'a>),
    Collective(&'a CollectiveRequest<'a>),
    Persistent(&'a PersistentCollective<'a>),
    Exchange(&'a Exchange<'a>),
    OneSided(&'a OneSided<'a>),
}

impl<R: sealed::Kind + ?Sized> sealed::Kind for &R {
    fn kind(&self) -> RequestRef<'_> {
        (**self).kind()
    }
}

impl<R: sealed::Kind + ?Sized> sealed::Kind for Box<R> {
    fn kind(&self) -> RequestRef<'_> {
        (**self).kind()
    }
}

impl sealed::Kind for Request<'_> {
    fn kind(&self) -> RequestRef<'_> {
        RequestRef::Message(self)
    }
}

impl<T> sealed::Kind for RecvRequest<'_, T> {
    fn kind(&self) -> RequestRef<'_> {
        RequestRef::Message(self)
    }
}

impl<T> sealed::Kind for PersistentMessage<'_, T> {
    fn kind(&self) -> RequestRef<'_> {
        RequestRef::Message(self)
    }
}

impl sealed::Kind for CollectiveRequest<'_> {
    fn kind(&self) -> RequestRef<'_> {
        RequestRef::Collective(self)
    }
}

impl<T> sealed::Kind for PersistentRequest<'_, T> {
    fn kind(&self) -> RequestRef<'_> {
        RequestRef::Persistent(self.collective())
    }
}

impl sealed::Kind for ExchangeRequest<'_> {
    fn kind(&self) -> RequestRef<'_> {
        RequestRef::Exchange(self.exchange())
    }
}

impl<T> sealed::Kind for PersistentExchange<'_, T> {
    fn kind(&self) -> RequestRef<'_> {
        RequestRef::Exchange(self.exchange())
    }
}

impl sealed::Kind for PutRequest<'_> {
    fn kind(&self) -> RequestRef<'_> {
        RequestRef::OneSided(self.one_sided())
    }
}

impl<T> sealed::Kind for GetRequest<'_, T> {
    fn kind(&self) -> RequestRef<'_> {
        RequestRef::OneSided(self.one_sided())
    }
}

/// A persistent request of any kind: of a message ([`PersistentMessage`]) or of a collective ([`PersistentRequest`]).
pub trait AnyPersistent: AnyRequest {
    /// Starts the request (`MPI_Start`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut sum = [1_u32];
    /// world.scope(|scope| {
    ///     let mut request = scope.persistent_all_reduce_in_place(&mut sum, SystemOperation::sum())?;
    ///     let any: &mut dyn AnyPersistent = &mut request;
    ///     start_all([any])?;
    ///     Ok::<(), Error>(request.wait()?)
    /// })?;
    /// assert_eq!(sum, [world.size()]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As of the `start` of its type.
    fn start_request(&mut self) -> Result<(), RequestError>;
}

impl<T> AnyPersistent for PersistentMessage<'_, T> {
    fn start_request(&mut self) -> Result<(), RequestError> {
        Ok(self.start()?)
    }
}

impl<T> AnyPersistent for PersistentExchange<'_, T> {
    fn start_request(&mut self) -> Result<(), RequestError> {
        Ok(self.start()?)
    }
}

impl<T> AnyPersistent for PersistentRequest<'_, T> {
    fn start_request(&mut self) -> Result<(), RequestError> {
        Ok(self.start()?)
    }
}

/// Starts persistent requests, in order (`MPI_Startall`). Requests of different kinds and element types are passed as
/// `&mut dyn AnyPersistent`.
///
/// ```
/// use unisono::prelude::*;
///
/// let world = World::join()?;
/// let (mut sent, mut received, mut sum, mut total) = ([7_u8; 3], [0_u8; 3], [1_u64], [0_u64]);
/// world.scope(|scope| {
///     let mut send = scope.persistent_send(&mut sent, world.rank(), Tag(1))?;
///     let mut receive = scope.persistent_receive_into(&mut received, None, None)?;
///     let mut reduce = scope.persistent_all_reduce_into(&mut sum, &mut total, SystemOperation::sum())?;
///     for _ in 0..2 {
///         let all: [&mut dyn AnyPersistent; 3] = [&mut receive, &mut send, &mut reduce];
///         start_all(all)?;
///         let all: [&dyn AnyRequest; 3] = [&receive, &send, &reduce];
///         assert_eq!(wait_all(all)?[0].bytes, 3);
///         assert_eq!((receive.data()?, reduce.result()?[0]), (&mut [7; 3][..], u64::from(world.size())));
///     }
///     Ok::<(), Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`RequestFailed`]: the first request that did not start. Those before it are under way, those after it are not.
pub fn start_all<'a, R: AnyPersistent + ?Sized + 'a>(
    requests: impl IntoIterator<Item = &'a mut R>,
) -> Result<(), RequestFailed> {
    let start =
        |(index, request): (usize, &mut R)| request.start_request().map_err(|failure| RequestFailed { index, failure });
    requests.into_iter().enumerate().try_for_each(start)
}

/// The state of a request.
pub(in crate::world) enum RequestStage {
    /// It is under way; a message has a handle.
    Pending(Option<RequestHandle>),
    /// It has ended, and its result was not reported yet.
    Ended(Result<Status, RequestError>),
    /// Its result was reported, or it is persistent and not started.
    Reported,
}

impl RequestStage {
    /// The stage of a collective that is in the progress table.
    pub(in crate::world) fn of_collective(process: &mut Process, begun: u32) -> Self {
        match process.peek_outcome(begun) {
            Some(Ok(())) => Self::Ended(Ok(Status::EMPTY)),
            Some(Err(error)) => Self::Ended(Err(error.into())),
            None => Self::Pending(None),
        }
    }
}

impl<'a> RequestRef<'a> {
    fn communicator(&self) -> &'a Communicator {
        match self {
            Self::Message(request) => request.communicator(),
            Self::Collective(request) => request.communicator(),
            Self::Persistent(request) => request.communicator(),
            Self::Exchange(request) => request.communicator(),
            Self::OneSided(request) => request.communicator(),
        }
    }

    /// The place in the progress table of a collective that is under way.
    pub(in crate::world) fn collective(&self) -> Option<u32> {
        match self {
            Self::Message(_) | Self::Exchange(_) | Self::OneSided(_) => None,
            Self::Collective(request) => request.place(),
            Self::Persistent(request) => request.place(),
        }
    }

    /// The process that the request belongs to.
    pub(in crate::world) fn shared(&self) -> &'a Arc<SharedProcess> {
        &self.communicator().shared
    }

    /// The state of the request, for the holder of the lock.
    pub(in crate::world) fn stage(&self, process: &mut Process) -> RequestStage {
        match self {
            Self::Message(request) => request.stage(process),
            Self::Collective(request) => request.stage(process),
            Self::Persistent(request) => request.stage(process),
            Self::Exchange(request) => request.stage(process),
            Self::OneSided(request) => request.stage(process),
        }
    }

    /// As [`stage`](Self::stage). A request that has ended counts as reported, and is released; what is left of a
    /// collective is added to `outcomes`, to be dropped outside the lock.
    pub(in crate::world) fn report(&self, process: &mut Process, outcomes: &mut Vec<Outcome>) -> RequestStage {
        match self {
            Self::Message(request) => request.report(process),
            Self::Collective(request) => request.report(process, outcomes),
            Self::Persistent(request) => request.report(process, outcomes),
            Self::Exchange(request) => request.report(process),
            Self::OneSided(request) => request.report(process),
        }
    }

    /// The error of this request as its `wait` would return it; not under the lock.
    pub(in crate::world) fn explained(&self, error: RequestError) -> RequestError {
        match error {
            RequestError::Message(_) | RequestError::Window(_) => error,
            RequestError::Collective(error) => self.communicator().explained(error).into(),
        }
    }
}
