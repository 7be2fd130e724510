//! Queue pairs of unreliable datagrams that the kernel creates and maps, without libibverbs.

use alloc::sync::Arc;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::Domain;
use crate::queue_memory::Mapped;
use crate::rxe::ring::{INDICES, Shape};
use crate::rxe::{DoorbellCall, QueueShapes, RxeQueues, SyscallDoorbell};
use crate::uverbs::command::{
    ATTACH_GROUP, CREATE_CHANNEL, DETACH_GROUP, MODIFY_PAIR, NOTIFY, ring, send_command, send_command_with_answer,
};
use crate::uverbs::mapping::{Map, mapped, wrong_size};
use crate::uverbs::objects::{Completions, Object, QueuePair, check_version, completions, queue_pair};

/// `IBV_QPT_UD`, in the byte after that of `sq_sig_all`.
const DATAGRAMS: u32 = 4 << 8;
/// `ibv_qp_state`, and `ibv_qp_attr_mask`.
const RESET: u32 = 0;
const INIT: u32 = 1;
const READY_TO_RECEIVE: u32 = 2;
const READY_TO_SEND: u32 = 3;
const ERROR: u32 = 6;
const STATE: u32 = 1;
const PARTITION_PORT_KEY: u32 = 1 << 4 | 1 << 5 | 1 << 6;
const PSN: u32 = 1 << 16;

/// Minimum sizes of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UverbsDepth {
    /// Send entries.
    pub sends: u32,
    /// Receive entries.
    pub receives: u32,
    /// Inline bytes of an entry.
    pub inline: u32,
}

/// The command of a queue's doorbell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    /// No command.
    Nothing,
    /// Process the send queue.
    Send,
    /// Arm the completion queue.
    Notify,
}

/// The doorbell of a mapped queue. It keeps the queue pair alive.
#[derive(Debug)]
pub struct UverbsDoorbell {
    pair: Arc<UverbsQueuePair>,
    command: Command,
}

impl UverbsDoorbell {
    /// Its queue pair.
    pub const fn pair(&self) -> &Arc<UverbsQueuePair> {
        &self.pair
    }
}

impl DoorbellCall for UverbsDoorbell {
    #[inline]
    fn call(&mut self, value: [u8; 8]) {
        let pair = &self.pair;
        let [solicited, ..] = value;
        // A queue pair in error refuses; its completions report the failure.
        let _ = match self.command {
            Command::Nothing => Ok(()),
            Command::Send => ring(pair.file, pair.object.handle),
            Command::Notify => send_command(pair.file, NOTIFY, &[pair.received.object.handle, solicited.into()]),
        };
    }
}

/// A mapped queue.
pub type UverbsQueue = SyscallDoorbell<Mapped, UverbsDoorbell>;

/// A queue pair of unreliable datagrams and what belongs to it, until the last of its queues is dropped.
#[derive(Debug)]
pub struct UverbsQueuePair {
    file: RawFd,
    // Dropped in this order, users before used: the kernel does not destroy objects in use.
    object: Object,
    number: u32,
    element: u32,
    port: u8,
    key: u32,
    sent: Completions,
    received: Completions,
    channel: OwnedFd,
    send: Map,
    receive: Map,
    /// The file stays open as long as this.
    _domain: Arc<Domain>,
}

impl UverbsQueuePair {
    /// Creates a queue pair for datagrams with this Q_Key, and its queues. Asynchronous events about it carry
    /// `element`.
    ///
    /// Entries name memory by numbers, which any code may make up, so that safe code cannot make queues:
    /// ```compile_fail,E0133
    /// # use unisono_verbs::{ud::uverbs::{UverbsDepth, UverbsQueuePair}, ud::Domain};
    /// fn make(domain: &alloc::sync::Arc<Domain>, depth: UverbsDepth) {
    ///     let made = UverbsQueuePair::new(domain, depth, 0, 1);
    /// }
    /// # extern crate alloc;
    /// ```
    ///
    /// # Errors
    /// The kernel refuses, or the adapter is not a Soft-RoCE device.
    ///
    /// # Safety
    /// Every entry that safe code posts to the queues names registered memory only. Nobody changes that memory until a
    /// send from it is complete, and nobody uses it until a datagram has arrived there, or until the queue pair is
    /// reset or dropped.
    pub unsafe fn new(
        domain: &Arc<Domain>,
        depth: UverbsDepth,
        key: u32,
        element: u32,
    ) -> io::Result<(Arc<Self>, RxeQueues<UverbsQueue, UverbsQueue, UverbsQueue>)> {
        check_version(domain.name())?;
        let (file, pd) = domain.lock().file_and_pd().ok_or(io::ErrorKind::NotConnected)?;
        let mut answer = [0; 1];
        send_command_with_answer(file, CREATE_CHANNEL, &[], &mut answer)?;
        // SAFETY: the kernel has just opened it for us.
        let channel = unsafe { OwnedFd::from_raw_fd(answer[0] as RawFd) };
        let sent = completions(file, 4 * depth.sends, -1, element)?;
        let received = completions(file, 4 * depth.receives, channel.as_raw_fd(), element)?;
        let handles = [element, 0, pd, sent.object.handle, received.object.handle, 0];
        let sizes = [depth.sends, depth.receives, 2, 1, depth.inline, DATAGRAMS];
        let QueuePair { object, number, receive, send } = queue_pair(file, &[handles, sizes].concat())?;
        // Mapped before the fields below are set: if one mapping fails, the earlier ones must be dropped in order.
        let (receive, send) = (Map::new(file, receive)?, Map::new(file, send)?);
        let pair = Self {
            file,
            object,
            number,
            element,
            port: domain.port(),
            key,
            sent,
            received,
            channel,
            send,
            receive,
            _domain: Arc::clone(domain),
        };
        pair.start()?;
        let pair = Arc::new(pair);
        let queues = Self::queues(&pair)?;
        Ok((pair, queues))
    }

    /// The queue pair number.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The element of asynchronous events about it.
    pub const fn element(&self) -> u32 {
        self.element
    }

    /// Attaches it to the group with this GID and LID.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, group: [u8; 16], lid: u16) -> io::Result<()> {
        self.group(ATTACH_GROUP, group, lid)
    }

    /// Detaches it from the group.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(&self, group: [u8; 16], lid: u16) -> io::Result<()> {
        self.group(DETACH_GROUP, group, lid)
    }

    fn group(&self, command: u32, group: [u8; 16], lid: u16) -> io::Result<()> {
        let [a, b, c, d]: [u32; 4] = zerocopy::transmute!(group);
        send_command(self.file, command, &[a, b, c, d, self.object.handle, lid.into()])
    }

    /// The completion channel: readable after an event of 8 bytes.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Drains the completion channel, whose descriptor must be non-blocking.
    pub fn drain_events(&self) {
        let mut event = [0_u8; 8];
        // SAFETY: room for an event.
        while unsafe { libc::read(self.channel.as_raw_fd(), event.as_mut_ptr().cast(), event.len()) } == 8 {}
    }

    /// Moves to the error state, as a failing adapter does.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn fail(&self) -> io::Result<()> {
        self.modify(ERROR, STATE)
    }

    /// Resets it. Nothing is posted afterwards; [`start`](Self::start) makes it work again.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop(&self) -> io::Result<()> {
        self.modify(RESET, STATE)
    }

    /// From reset to ready to send.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start(&self) -> io::Result<()> {
        self.modify(INIT, STATE | PARTITION_PORT_KEY)?;
        self.modify(READY_TO_RECEIVE, STATE)?;
        self.modify(READY_TO_SEND, STATE | PSN)
    }

    fn modify(&self, state: u32, mask: u32) -> io::Result<()> {
        // Two paths of 32 bytes, then handle, mask, key, …, state and port.
        let mut fields = [0_u32; 28];
        (fields[16], fields[17], fields[18]) = (self.object.handle, mask, self.key);
        (fields[24], fields[26]) = (state, self.port.into());
        send_command(self.file, MODIFY_PAIR, &fields)
    }

    fn queues(pair: &Arc<Self>) -> io::Result<RxeQueues<UverbsQueue, UverbsQueue, UverbsQueue>> {
        let [put, taken] = INDICES;
        let sizes = QueueShapes {
            send: pair.send.shape()?,
            sent: pair.sent.map.shape()?,
            receive: pair.receive.shape()?,
            received: pair.received.map.shape()?,
        };
        let bell = |command| UverbsDoorbell { pair: Arc::clone(pair), command };
        // For the memory that entries name the caller of `new` answers.
        let queue = |map: &Map, shape: Shape, indices, command| {
            // SAFETY: mapped as long as the queue pair, which the bell keeps; nobody else uses it but the kernel.
            unsafe { mapped(map, shape, indices, bell(command)) }
        };
        let send = queue(&pair.send, sizes.send, [put, taken], Command::Send);
        let receive = queue(&pair.receive, sizes.receive, [put, taken], Command::Nothing);
        let sent = queue(&pair.sent.map, sizes.sent, [taken, put], Command::Nothing);
        let received = queue(&pair.received.map, sizes.received, [taken, put], Command::Notify);
        let queues = RxeQueues::new(sizes, send?, sent?, receive?, received?);
        queues.ok_or_else(wrong_size)
    }
}
