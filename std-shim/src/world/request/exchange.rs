//! Exchanges: messages to and from several ranks that are started, and end, as one request. The collectives between
//! neighbours and `all_to_all_w` are exchanges.

use alloc::sync::Arc;
use core::cell::Cell;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll};

use unisono_core::message::point_to_point::Mode;
use unisono_datatype::Datatype;
use unisono_memory::user_buffer::UserBuffer;

use super::any_request::RequestStage;
use super::future::poll_again;
use super::handle::RequestHandle;
use super::persistent_message::{MessageCall, PreparedMessage};
use super::scope::Scope;
use super::{Failure, RequestError, Status, Tag};
use crate::world::collective::CollectiveError;
use crate::world::communicator::Communicator;
use crate::world::communicator::raw::Channel;
use crate::world::process::Process;
use crate::world::process::message_table::Flush;
use crate::world::process::messages::{ReceiveTarget, SendArgs};
use unisono_bootstrap::Rank;

/// The messages of a call. Its buffers are borrowed for `'b`.
pub(in crate::world) struct ExchangeArgs<'b> {
    /// Receives first. With a receive, its length.
    messages: Vec<(MessageCall, UserBuffer, Option<usize>)>,
    buffers: PhantomData<&'b mut [u8]>,
}

/// A message's peer, tag and buffer.
pub(in crate::world) type ExchangeMessage = (Rank, Tag, UserBuffer);

/// Messages that were started, or can be. It has ended when all of them have, also if one failed: then the first failure
/// is its result.
pub struct Exchange<'scope> {
    communicator: &'scope Communicator,
    messages: Vec<(PreparedMessage<'scope>, Option<usize>)>,
    is_under_way: Cell<bool>,
    /// The first failure since the start.
    failure: Cell<Option<Failure>>,
}

/// An exchange that was started. When it is dropped, it continues until the scope ends.
#[must_use = "without `wait`, the failure of the exchange goes unreported"]
pub struct ExchangeRequest<'scope>(Exchange<'scope>);

/// An exchange that can be started any number of times, one after the other. Its buffers are borrowed until the scope
/// ends; between two starts they are accessed through it. When it is dropped while under way, it continues until the
/// scope ends.
#[must_use = "nothing happens before `start`"]
pub struct PersistentExchange<'scope, T> {
    exchange: Exchange<'scope>,
    data: NonNull<[T]>,
    result: NonNull<[T]>,
    buffers: PhantomData<&'scope mut [T]>,
}

// SAFETY: it holds exclusive borrows of `T`s, which may be sent where a `T` may. All else of it any thread may use
// under the World's lock, which every method takes.
unsafe impl<T: Send> Send for PersistentExchange<'_, T> {}

// SAFETY: its buffers are borrowed from owners that may be used by any thread: bytes without references. All else of it
// any thread may use under the World's lock.
unsafe impl Send for ExchangeRequest<'_> {}

/// The bytes of values.
pub(in crate::world) fn bytes_of<T>(data: NonNull<[T]>) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(data.cast(), size_of::<T>() * data.len())
}

/// Equal blocks of a buffer, one after the other.
pub(in crate::world) fn equal_blocks(data: NonNull<[u8]>, block: usize) -> impl Iterator<Item = UserBuffer> {
    // Blocks outside of the buffer are refused before.
    (0..).map(move |number: usize| {
        let at = data.cast::<u8>().as_ptr().wrapping_add(number.wrapping_mul(block));
        UserBuffer::plain(NonNull::new(at).unwrap_or(data.cast()), block)
    })
}

/// The bytes that each datatype names in a buffer.
pub(in crate::world) fn typed_blocks(data: NonNull<[u8]>, blocks: &[Arc<Datatype>]) -> Vec<UserBuffer> {
    blocks.iter().map(|block| UserBuffer::new(data.cast(), block)).collect()
}

impl Communicator {
    /// Describes an exchange, by messages that match no user's receive. Between two ranks they match in their order.
    pub(in crate::world) fn exchange_args<'b>(
        &self,
        receives: impl IntoIterator<Item = ExchangeMessage>,
        sends: impl IntoIterator<Item = ExchangeMessage>,
    ) -> Result<ExchangeArgs<'b>, CollectiveError> {
        let context = self.channel(Channel::Internal);
        let mut messages = Vec::new();
        for (from, tag, buffer) in receives {
            let pattern = self.raw_pattern(Channel::Internal, Some(from), Some(tag)).map_err(CollectiveError::Ended)?;
            let bytes = buffer.bytes;
            messages.push((MessageCall::Receive(ReceiveTarget::Pattern(pattern)), buffer, Some(bytes)));
        }
        for (to, tag, buffer) in sends {
            let args = self.send_args(to, tag, Mode::Standard, Flush::Batched).map_err(CollectiveError::Ended)?;
            messages.push((MessageCall::Send(SendArgs { context, ..args }), buffer, None));
        }
        Ok(ExchangeArgs { messages, buffers: PhantomData })
    }

    /// Runs an exchange to its end.
    pub(in crate::world) fn run_exchange(&self, args: ExchangeArgs<'_>) -> Result<(), CollectiveError> {
        self.scope(|scope| {
            let exchange = Exchange::new(scope, args);
            exchange.start().and_then(|()| exchange.finish()).map_err(CollectiveError::Ended)
        })
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts an exchange.
    pub(in crate::world) fn immediate_exchange(
        &'scope self,
        args: ExchangeArgs<'scope>,
    ) -> Result<ExchangeRequest<'scope>, CollectiveError> {
        let exchange = Exchange::new(self, args);
        exchange.start().map_err(CollectiveError::Ended)?;
        Ok(ExchangeRequest(exchange))
    }

    /// Prepares an exchange of `data`, with its results in `result`.
    pub(in crate::world) fn persistent_exchange<T>(
        &'scope self,
        args: ExchangeArgs<'scope>,
        data: NonNull<[T]>,
        result: NonNull<[T]>,
    ) -> PersistentExchange<'scope, T> {
        PersistentExchange { exchange: Exchange::new(self, args), data, result, buffers: PhantomData }
    }
}

impl<'scope> Exchange<'scope> {
    fn new(scope: &'scope Scope<'scope, '_>, args: ExchangeArgs<'_>) -> Self {
        let prepare = |(call, buffer, bytes)| (PreparedMessage::new(scope.loans(), call, buffer), bytes);
        let messages = args.messages.into_iter().map(prepare).collect();
        let (is_under_way, failure) = (Cell::new(false), Cell::new(None));
        Self { communicator: scope.communicator(), messages, is_under_way, failure }
    }

    fn start(&self) -> Result<(), Failure> {
        self.expect_idle()?;
        self.failure.set(None);
        for (message, _) in &self.messages {
            // The others wait for the messages that can be exchanged.
            self.record_failure(message.start().err());
        }
        self.is_under_way.set(true);
        self.communicator.shared.with_process(Process::flush);
        Ok(())
    }

    fn record_failure(&self, failure: Option<Failure>) {
        self.failure.set(self.failure.get().or(failure));
    }

    fn finish(&self) -> Result<(), Failure> {
        if !self.is_under_way.get() {
            return Ok(());
        }
        for (message, bytes) in &self.messages {
            self.record_failure(failure_of(message.request.finish(), *bytes));
        }
        self.is_under_way.set(false);
        self.failure.get().map_or(Ok(()), Err)
    }

    fn is_done(&self) -> bool {
        !self.is_under_way.get() || self.messages.iter().all(|(message, _)| message.request.is_done())
    }

    fn expect_idle(&self) -> Result<(), Failure> {
        if self.is_under_way.get() { Err(Failure::UnderWay) } else { Ok(()) }
    }

    /// The communicator of the exchange.
    pub(in crate::world) const fn communicator(&self) -> &'scope Communicator {
        self.communicator
    }

    /// Its messages that are under way, for the holder of the lock.
    pub(in crate::world) fn handles(&self, process: &mut Process) -> Vec<RequestHandle> {
        let pending = |(message, _): &(PreparedMessage<'_>, _)| match message.request.stage(process) {
            RequestStage::Pending(handle) => handle,
            RequestStage::Ended(_) | RequestStage::Reported => None,
        };
        self.messages.iter().filter_map(pending).collect()
    }

    /// The state of the exchange, for the holder of the lock.
    pub(in crate::world) fn stage(&self, process: &mut Process) -> RequestStage {
        if !self.is_under_way.get() {
            return RequestStage::Reported;
        }
        let mut failure = self.failure.get();
        for (message, bytes) in &self.messages {
            let ended = match message.request.stage(process) {
                RequestStage::Pending(handle) => return RequestStage::Pending(handle),
                RequestStage::Ended(Err(RequestError::Message(ended))) => Err(ended),
                RequestStage::Ended(Ok(status)) => Ok(status),
                RequestStage::Ended(Err(_)) | RequestStage::Reported => continue,
            };
            failure = failure.or(failure_of(ended, *bytes));
        }
        let ended = failure.map_or(Ok(Status::EMPTY), Err);
        RequestStage::Ended(ended.map_err(|failure| CollectiveError::Ended(failure).into()))
    }

    /// As [`stage`](Self::stage). An exchange that has ended counts as reported, and its messages are released.
    pub(in crate::world) fn report(&self, process: &mut Process) -> RequestStage {
        let stage = self.stage(process);
        if matches!(stage, RequestStage::Ended(_)) {
            for (message, _) in &self.messages {
                message.request.report(process);
            }
            self.is_under_way.set(false);
        }
        stage
    }
}

/// How a message has failed, if it has; a receive also if it got another number of bytes than it expects.
fn failure_of(ended: Result<Status, Failure>, expected: Option<usize>) -> Option<Failure> {
    match (ended, expected) {
        (Ok(status), Some(bytes)) if status != Status::EMPTY && status.bytes != bytes => {
            Some(Failure::Disagrees(status.source))
        }
        (ended, _) => ended.err(),
    }
}

impl<'scope> ExchangeRequest<'scope> {
    /// Waits for the end.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let ring = world.cartesian(Grid::new(&[(world.size(), true)]))?.expect("every rank is a point");
    /// let (own, mut from) = ([world.rank().0], [0; 2]);
    /// ring.communicator().scope(|scope| scope.immediate_neighbour_all_gather_into(&ring, &own, &mut from)?.wait())?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CollectiveError::Ended`] with the first failure of a message; [`Failure::Disagrees`] if a rank has sent another
    /// number of bytes than this rank receives.
    pub fn wait(self) -> Result<(), CollectiveError> {
        self.0.finish().map_err(CollectiveError::Ended)
    }

    /// Makes progress once. Returns the result of [`wait`](Self::wait) if the exchange has ended. Reports it once: later
    /// calls return `Some(Ok(()))`.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let ring = world.cartesian(Grid::new(&[(world.size(), true)]))?.expect("every rank is a point");
    /// let (own, mut from) = ([world.rank().0], [0; 2]);
    /// ring.communicator().scope(|scope| {
    ///     let exchange = scope.immediate_neighbour_all_gather_into(&ring, &own, &mut from)?;
    ///     loop {
    ///         if let Some(ended) = exchange.test() {
    ///             break ended;
    ///         }
    ///     }
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn test(&self) -> Option<Result<(), CollectiveError>> {
        self.0.is_done().then(|| self.0.finish().map_err(CollectiveError::Ended))
    }

    /// Makes progress once; returns whether [`wait`](Self::wait) would return at once.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let ring = world.cartesian(Grid::new(&[(world.size(), true)]))?.expect("every rank is a point");
    /// let (own, mut from) = ([world.rank().0], [0; 2]);
    /// ring.communicator().scope(|scope| {
    ///     let exchange = scope.immediate_neighbour_all_gather_into(&ring, &own, &mut from)?;
    ///     while !exchange.is_done() {}
    ///     exchange.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// The exchange.
    pub(in crate::world) const fn exchange(&self) -> &Exchange<'scope> {
        &self.0
    }
}

impl<'scope, T> PersistentExchange<'scope, T> {
    /// Starts the exchange (`MPI_Start`).
    ///
    /// # Errors
    /// [`CollectiveError::UnderWay`]: the previous start was not waited for.
    pub fn start(&mut self) -> Result<(), CollectiveError> {
        self.exchange.start().map_err(|_| CollectiveError::UnderWay)
    }

    /// Waits for the end (`MPI_Wait`); returns at once when it is not under way. Afterwards it can be started again.
    ///
    /// # Errors
    /// As of [`ExchangeRequest::wait`].
    pub fn wait(&mut self) -> Result<(), CollectiveError> {
        self.exchange.finish().map_err(CollectiveError::Ended)
    }

    /// Makes progress once. Returns the result of [`wait`](Self::wait) if the exchange has ended, and `Some(Ok(()))` when
    /// it is not under way.
    pub fn test(&mut self) -> Option<Result<(), CollectiveError>> {
        self.exchange.is_done().then(|| self.wait())
    }

    /// Makes progress once; returns whether [`wait`](Self::wait) would return at once.
    pub fn is_done(&self) -> bool {
        self.exchange.is_done()
    }

    /// The whole buffer that is sent, to be written before the next start.
    ///
    /// # Errors
    /// [`CollectiveError::UnderWay`].
    pub fn data(&mut self) -> Result<&mut [T], CollectiveError> {
        self.expect_idle()?;
        // SAFETY: made of an exclusive borrow for 'scope, which this holds; nobody else uses it between the end and the
        // next start, for which this is borrowed.
        Ok(unsafe { self.data.as_mut() })
    }

    /// The whole buffer of the result.
    ///
    /// # Errors
    /// [`CollectiveError::UnderWay`].
    pub fn result(&self) -> Result<&[T], CollectiveError> {
        self.expect_idle()?;
        // SAFETY: made of an exclusive borrow for 'scope, which this holds; nobody writes it between the end and the
        // next start, for which this is borrowed exclusively.
        Ok(unsafe { self.result.as_ref() })
    }

    fn expect_idle(&self) -> Result<(), CollectiveError> {
        self.exchange.expect_idle().map_err(|_| CollectiveError::UnderWay)
    }

    /// The exchange, without its buffers.
    pub(in crate::world) const fn exchange(&self) -> &Exchange<'scope> {
        &self.exchange
    }
}

/// Resolves to what [`ExchangeRequest::wait`] returns.
impl Future for ExchangeRequest<'_> {
    type Output = Result<(), CollectiveError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_again(self.test(), context)
    }
}

/// Resolves to what [`PersistentExchange::wait`] returns; a reference to it is awaited, so that it can be started again.
impl<T> Future for PersistentExchange<'_, T> {
    type Output = Result<(), CollectiveError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_again(self.get_mut().test(), context)
    }
}
