//! Persistent messages: the buffer, the peer and the tag are named once, then each is started repeatedly.

use core::future::Future;
use core::marker::PhantomData;
use core::ops::Deref;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll};

use unisono_core::message::point_to_point::Mode;
use zerocopy::{FromBytes, IntoBytes};

use super::future::poll_again;
use super::scope::{Request, Scope};
use super::scope_loans::{LoanId, ScopeLoans};
use super::{Failure, Status, Tag};
use crate::world::collective::{AsViewMut, View, ViewMut};
use crate::world::process::message_table::Flush;
use crate::world::process::messages::{ReceiveTarget, SendArgs};
use unisono_bootstrap::Rank;
use unisono_memory::user_buffer::UserBuffer;

/// A send or receive that can be started any number of times, one after the other. Its buffer is borrowed until the
/// scope ends; between two starts it is accessed through [`data`](Self::data). Its peer may as well use sends and
/// receives that are started once. When it is dropped while under way, it continues until the scope ends. It is a
/// [`Request`], which counts as reported while it is not under way.
#[must_use = "nothing happens before `start`"]
pub struct PersistentMessage<'scope, T> {
    message: PreparedMessage<'scope>,
    data: NonNull<[T]>,
    borrow: PhantomData<&'scope mut [T]>,
}

/// A message that can be started, without a borrow of its buffer: its holder answers for that.
pub(in crate::world) struct PreparedMessage<'scope> {
    /// Its end counts as reported while it is not under way.
    pub(in crate::world) request: Request<'scope>,
    call: MessageCall,
    buffer: UserBuffer,
}

/// What a start does.
#[derive(Clone, Copy)]
pub(in crate::world) enum MessageCall {
    Send(SendArgs),
    Receive(ReceiveTarget),
}

// SAFETY: it holds an exclusive borrow of `T`s, which may be sent where a `T` may. All else of it any thread may use
// under the World's lock, which every method takes.
unsafe impl<T: Send> Send for PersistentMessage<'_, T> {}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Prepares a [standard send](Self::immediate_send) (`MPI_Send_init`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (mut sent, mut received) = ([0_u32; 2], [0_u32; 2]);
    /// world.scope(|scope| {
    ///     let mut send = scope.persistent_send(&mut sent, world.rank(), Tag(1))?;
    ///     let mut receive = scope.persistent_receive_into(&mut received, world.rank(), Tag(1))?;
    ///     for round in 0..3 {
    ///         send.data()?.fill(round);
    ///         start_all([&mut receive, &mut send])?;
    ///         assert_eq!(receive.wait()?.bytes, 8);
    ///         send.wait()?;
    ///         assert_eq!(receive.data()?, [round; 2]);
    ///     }
    ///     Ok::<(), Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::UnknownRank`].
    pub fn persistent_send<T: IntoBytes + FromBytes + 'scope>(
        &'scope self,
        data: &'scope mut (impl AsViewMut<T> + ?Sized),
        to: Rank,
        tag: Tag,
    ) -> Result<PersistentMessage<'scope, T>, Failure> {
        self.prepare_send(data.as_view_mut(), to, tag, Mode::Standard)
    }

    /// Prepares a [synchronous send](Self::immediate_synchronous_send) (`MPI_Ssend_init`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (mut sent, mut received) = ([1_u32], [0_u32]);
    /// world.scope(|scope| {
    ///     let mut receive = scope.persistent_receive_into(&mut received, world.rank(), Tag(1))?;
    ///     let mut send = scope.persistent_synchronous_send(&mut sent, world.rank(), Tag(1))?;
    ///     start_all([&mut receive, &mut send])?;
    ///     wait_all([&receive, &send])?;
    ///     Ok::<(), Error>(())
    /// })?;
    /// assert_eq!(received, [1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::UnknownRank`].
    pub fn persistent_synchronous_send<T: IntoBytes + FromBytes + 'scope>(
        &'scope self,
        data: &'scope mut (impl AsViewMut<T> + ?Sized),
        to: Rank,
        tag: Tag,
    ) -> Result<PersistentMessage<'scope, T>, Failure> {
        self.prepare_send(data.as_view_mut(), to, tag, Mode::Synchronous)
    }

    /// Prepares a [ready send](Self::immediate_ready_send) (`MPI_Rsend_init`).
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let (mut sent, mut received) = ([1_u32], [0_u32]);
    /// world.scope(|scope| {
    ///     let mut receive = scope.persistent_receive_into(&mut received, world.rank(), Tag(1))?;
    ///     let mut send = scope.persistent_ready_send(&mut sent, world.rank(), Tag(1))?;
    ///     start_all([&mut receive, &mut send])?;
    ///     wait_all([&receive, &send])?;
    ///     Ok::<(), Error>(())
    /// })?;
    /// assert_eq!(received, [1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::UnknownRank`].
    pub fn persistent_ready_send<T: IntoBytes + FromBytes + 'scope>(
        &'scope self,
        data: &'scope mut (impl AsViewMut<T> + ?Sized),
        to: Rank,
        tag: Tag,
    ) -> Result<PersistentMessage<'scope, T>, Failure> {
        self.prepare_send(data.as_view_mut(), to, tag, Mode::Ready)
    }

    /// Prepares a [receive](Self::immediate_receive_into) (`MPI_Recv_init`) from `source`, or from any rank; with `tag`,
    /// or with any.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut received = [0_u32];
    /// world.scope(|scope| {
    ///     let mut receive = scope.persistent_receive_into(&mut received, None, None)?;
    ///     for number in [1_u32, 2] {
    ///         receive.start()?;
    ///         world.send(&number, world.rank(), Tag(1))?;
    ///         receive.wait()?;
    ///         assert_eq!(receive.data()?, [number]);
    ///     }
    ///     Ok::<(), Failure>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::UnknownRank`].
    pub fn persistent_receive_into<T: IntoBytes + FromBytes + 'scope>(
        &'scope self,
        data: &'scope mut (impl AsViewMut<T> + ?Sized),
        source: impl Into<Option<Rank>>,
        tag: impl Into<Option<Tag>>,
    ) -> Result<PersistentMessage<'scope, T>, Failure> {
        let target = self.communicator().receive_target(source.into(), tag.into())?;
        Ok(self.prepare(data.as_view_mut(), MessageCall::Receive(target)))
    }

    /// As [`persistent_send`](Self::persistent_send), of memory that is only read.
    ///
    /// # Safety
    /// [`PersistentMessage::data`] is not called.
    #[doc(hidden)]
    pub unsafe fn raw_persistent_send(
        &'scope self,
        data: &View<'scope, u8>,
        to: Rank,
        tag: Tag,
        synchronous: bool,
    ) -> Result<PersistentMessage<'scope, u8>, Failure> {
        let mode = if synchronous { Mode::Synchronous } else { Mode::Standard };
        let args = self.communicator().send_args(to, tag, mode, Flush::Batched)?;
        let (bytes, _) = data.bytes();
        let message = PreparedMessage::new(self.loans(), MessageCall::Send(args), data.user_buffer());
        Ok(PersistentMessage { message, data: bytes.into(), borrow: PhantomData })
    }

    fn prepare_send<T: IntoBytes + FromBytes>(
        &'scope self,
        view: ViewMut<'scope, T>,
        to: Rank,
        tag: Tag,
        mode: Mode,
    ) -> Result<PersistentMessage<'scope, T>, Failure> {
        let args = self.communicator().send_args(to, tag, mode, Flush::Batched)?;
        Ok(self.prepare(view, MessageCall::Send(args)))
    }

    fn prepare<T: IntoBytes + FromBytes>(
        &'scope self,
        mut view: ViewMut<'scope, T>,
        call: MessageCall,
    ) -> PersistentMessage<'scope, T> {
        let mut buffer = view.as_view_mut().user_buffer();
        let data = view.whole();
        // The same address, as part of the borrow that `data` was made of.
        buffer.start = data.cast::<u8>().with_addr(buffer.start.addr());
        PersistentMessage { message: PreparedMessage::new(self.loans(), call, buffer), data, borrow: PhantomData }
    }
}

impl<T> PersistentMessage<'_, T> {
    /// Starts the send or receive (`MPI_Start`). Sends are batched, as in [`Scope`].
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut received = [0_u32];
    /// world.scope(|scope| {
    ///     let mut receive = scope.persistent_receive_into(&mut received, None, None)?;
    ///     receive.start()?;
    ///     assert_eq!(receive.start(), Err(Failure::UnderWay));
    ///     world.send(&1_u32, world.rank(), Tag(1))?;
    ///     receive.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::UnderWay`]: the previous start was not waited for. Otherwise as of the call that is started once.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.message.start()
    }

    /// As [`Request::wait`] (`MPI_Wait`); afterwards it can be started again. Returns [`Status::EMPTY`] at once when it
    /// is not under way.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut received = [0_u32];
    /// world.scope(|scope| {
    ///     let mut receive = scope.persistent_receive_into(&mut received, None, None)?;
    ///     receive.start()?;
    ///     world.send(&1_u32, world.rank(), Tag(7))?;
    ///     assert_eq!(receive.wait()?.tag, Tag(7));
    ///     Ok::<(), Failure>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure`] of the operation.
    pub fn wait(&mut self) -> Result<Status, Failure> {
        self.message.request.finish()
    }

    /// The buffer, to be read, or written before the next start. Of a [`ViewMut`] all elements from its first to its
    /// last.
    ///
    /// ```
    /// use unisono::prelude::*;
    ///
    /// let world = World::join()?;
    /// let mut sent = [0_u32];
    /// world.scope(|scope| {
    ///     let mut send = scope.persistent_send(&mut sent, world.rank(), Tag(1))?;
    ///     send.data()?[0] = 7;
    ///     send.start()?;
    ///     send.wait()?;
    ///     assert_eq!(world.receive::<u32>(None, None)?.0, [7]);
    ///     Ok::<(), Failure>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::UnderWay`].
    pub fn data(&mut self) -> Result<&mut [T], Failure> {
        self.message.expect_idle()?;
        // SAFETY: made of an exclusive borrow for 'scope, which this holds; nobody else uses it between the end and the
        // next start, for which this is borrowed.
        Ok(unsafe { self.data.as_mut() })
    }
}

impl<'scope> PreparedMessage<'scope> {
    pub(in crate::world) const fn new(
        loans: &'scope ScopeLoans<'scope>,
        call: MessageCall,
        buffer: UserBuffer,
    ) -> Self {
        Self { request: Request::idle(loans), call, buffer }
    }

    /// As [`PersistentMessage::start`].
    pub(in crate::world) fn start(&self) -> Result<(), Failure> {
        self.expect_idle()?;
        let (loans, communicator) = (self.request.loans(), self.request.communicator());
        let loan = match self.call {
            MessageCall::Send(args) => communicator
                .start_send_buffer(&self.buffer, &args, |process, started| loans.record(process, started))?
                .unwrap_or(LoanId::COMPLETED),
            MessageCall::Receive(target) => {
                let buffer = self.buffer.clone();
                communicator.start_receive_buffer(buffer, target, |process, started| loans.record(process, started))?
            }
        };
        self.request.restart(loan);
        Ok(())
    }

    const fn expect_idle(&self) -> Result<(), Failure> {
        if self.request.is_reported() { Ok(()) } else { Err(Failure::UnderWay) }
    }
}

impl<'scope, T> Deref for PersistentMessage<'scope, T> {
    type Target = Request<'scope>;

    fn deref(&self) -> &Request<'scope> {
        &self.message.request
    }
}

/// Resolves to what [`PersistentMessage::wait`] returns; a reference to it is awaited, so that it can be started again.
///
/// ```
/// use unisono::prelude::*;
///
/// async fn echo(receive: &mut PersistentMessage<'_, u8>, send: &mut PersistentMessage<'_, u8>) -> Result<(), Failure> {
///     loop {
///         receive.start()?;
///         if (&mut *receive).await?.bytes == 0 {
///             return Ok(());
///         }
///         send.data()?.copy_from_slice(receive.data()?);
///         send.start()?;
///         (&mut *send).await?;
///     }
/// }
/// ```
impl<T> Future for PersistentMessage<'_, T> {
    type Output = Result<Status, Failure>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_again(self.test(), context)
    }
}
