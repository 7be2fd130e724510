//! Queue pairs that the kernel creates and maps through the uverbs write interface, without libibverbs.
//!
//! rdma-core's provider for Soft-RoCE does not expose where its queues are mapped, so the queue pair is created here;
//! device, protection domain and registrations are libibverbs'. Commands are written to the device's file: the
//! command's number, its length and that of the response in words, the address of the response, then its fields
//! (`ib_user_verbs.h`).

use alloc::format;
use alloc::sync::Arc;
use core::ptr::{self, NonNull};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::{fs, io};

use super::Domain;
use crate::queue_memory::{Mapped, QueueAddresses};
use crate::rxe::ring::{HEADER, INDICES, Shape};
use crate::rxe::{DoorbellCall, QueueShapes, RxeQueues, SEND_WQE, SyscallDoorbell};

/// `IB_USER_VERBS_CMD_*`.
const CREATE_CHANNEL: u32 = 17;
const CREATE_COMPLETIONS: u32 = 18;
const DESTROY_COMPLETIONS: u32 = 20;
const NOTIFY: u32 = 23;
const CREATE_PAIR: u32 = 24;
const MODIFY_PAIR: u32 = 26;
const DESTROY_PAIR: u32 = 27;
const POST_SEND: u32 = 28;
const ATTACH_GROUP: u32 = 30;
const DETACH_GROUP: u32 = 31;
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
/// Bytes of a send request in the interface (`ib_uverbs_send_wr`), which is not used: the kernel requires at least
/// this, and clears as many bytes for each doorbell.
const UNUSED_ENTRY: u32 = 56;
/// Words of the longest command, including its own two and the address of the response.
const COMMAND_MAX: usize = 32;
/// The directory with the ABI version of each adapter's user interface, and the version of Soft-RoCE's queues that is
/// implemented here.
const DEVICES: &str = "/sys/class/infiniband_verbs";
const VERSION: u32 = 2;
/// The sysfs file with an adapter's network interface, which only Soft-RoCE has there.
const PARENT: &str = "parent";

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

/// Whether the adapter of this name is a Soft-RoCE device.
pub fn is_rxe(adapter: &str) -> bool {
    Path::new("/sys/class/infiniband").join(adapter).join(PARENT).exists()
}

/// The ABI version of an adapter's user interface, by the adapter's name. `None`: it has none.
fn interface_version(devices: &Path, adapter: &str) -> io::Result<Option<u32>> {
    for device in fs::read_dir(devices)? {
        let device = device?.path();
        // Some entries are not devices.
        if fs::read_to_string(device.join("ibdev")).is_ok_and(|name| name.trim_end() == adapter) {
            let version = fs::read_to_string(device.join("abi_version"))?;
            return version.trim_end().parse().map(Some).map_err(io::Error::other);
        }
    }
    Ok(None)
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
            Command::Send => ring(pair),
            Command::Notify => send_command(pair.file, NOTIFY, &[pair.received.object.handle, solicited.into()]),
        };
    }
}

/// A mapped queue.
pub type UverbsQueue = SyscallDoorbell<Mapped, UverbsDoorbell>;

/// A mapping of the device's file.
#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    bytes: usize,
}

impl Map {
    fn new(file: RawFd, offset: u64, bytes: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping of what the kernel offers at this place.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file, offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, bytes })
    }

    /// A word of the header.
    fn word(&self, at: usize) -> io::Result<NonNull<u32>> {
        if self.bytes < HEADER || at > HEADER - 4 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: within the header.
        Ok(unsafe { self.start.add(at & !3) }.cast())
    }

    fn shape(&self) -> io::Result<Shape> {
        let (log2, mask) = (self.word(0)?, self.word(4)?);
        // SAFETY: mapped, aligned, and written by nobody any more.
        let header = [unsafe { log2.read_volatile() }, unsafe { mask.read_volatile() }];
        Shape::new(header, self.bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the queues that use it keep it alive.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A kernel object, until this is dropped.
#[derive(Debug)]
struct Object {
    file: RawFd,
    handle: u32,
    destroy: u32,
    /// Words of the response to that.
    answer: usize,
}

impl Drop for Object {
    fn drop(&mut self) {
        // An error cannot be reported: the kernel frees everything with the file.
        let mut answer = [0; 2];
        let answer = answer.get_mut(..self.answer).unwrap_or_default();
        let _ = send_command_with_answer(self.file, self.destroy, &[self.handle, 0], answer);
    }
}

/// A completion queue.
#[derive(Debug)]
struct Completions {
    object: Object,
    map: Map,
}

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

// SAFETY: mappings belong to no thread; everything else are numbers.
unsafe impl Send for Map {}
// SAFETY: shared use reads where it lies, and words of its header that the kernel wrote and leaves alone.
unsafe impl Sync for Map {}

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
        if !is_rxe(domain.name()) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        match interface_version(Path::new(DEVICES), domain.name())? {
            Some(VERSION) => {}
            Some(other) => {
                return Err(io::Error::other(format!(
                    "Soft-RoCE's queues have version {other}, only {VERSION} is supported; use --queues library"
                )));
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        let (context, pd) = domain.parts().ok_or(io::ErrorKind::NotConnected)?;
        // SAFETY: an open context; its file does not change.
        let file = unsafe { context.as_ref() }.cmd_fd;
        // SAFETY: a live protection domain.
        let pd = unsafe { pd.as_ref() }.handle;
        let mut answer = [0; 1];
        send_command_with_answer(file, CREATE_CHANNEL, &[], &mut answer)?;
        // SAFETY: the kernel has just opened it for us.
        let channel = unsafe { OwnedFd::from_raw_fd(answer[0] as RawFd) };
        let sent = completions(file, 4 * depth.sends, -1, element)?;
        let received = completions(file, 4 * depth.receives, channel.as_raw_fd(), element)?;
        let handles = [element, 0, pd, sent.object.handle, received.object.handle, 0];
        let sizes = [depth.sends, depth.receives, 2, 1, depth.inline, DATAGRAMS];
        let fields = [handles, sizes].concat();
        // The common response, then offset, size and padding of the receive queue and of the send queue.
        let mut answer = [0; 8 + 4 + 4];
        send_command_with_answer(file, CREATE_PAIR, &fields, &mut answer)?;
        let [handle, number, .., a, b, c, _, d, e, f, _] = answer;
        let object = Object { file, handle, destroy: DESTROY_PAIR, answer: 1 };
        // Mapped before the fields below are set: if one mapping fails, the earlier ones must be dropped in order.
        let (receive, send) = (Map::new(file, wide(a, b), c as usize)?, Map::new(file, wide(d, e), f as usize)?);
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
        let send = mapped(&pair.send, sizes.send, [put, taken], bell(Command::Send));
        let receive = mapped(&pair.receive, sizes.receive, [put, taken], bell(Command::Nothing));
        let sent = mapped(&pair.sent.map, sizes.sent, [taken, put], bell(Command::Nothing));
        let received = mapped(&pair.received.map, sizes.received, [taken, put], bell(Command::Notify));
        let queues = RxeQueues::new(sizes, send?, sent?, receive?, received?);
        queues.ok_or_else(|| io::Error::other("the kernel created queues of a different size than requested"))
    }
}

fn completions(file: RawFd, entries: u32, channel: RawFd, element: u32) -> io::Result<Completions> {
    // Handle and entries, then offset, size and padding.
    let mut answer = [0; 2 + 4];
    send_command_with_answer(file, CREATE_COMPLETIONS, &[element, 0, entries, 0, channel as u32, 0], &mut answer)?;
    let [handle, _, low, high, size, _] = answer;
    let object = Object { file, handle, destroy: DESTROY_COMPLETIONS, answer: 2 };
    Ok(Completions { object, map: Map::new(file, wide(low, high), size as usize)? })
}

/// The queue in this mapping. `indices`: the driver's, the kernel's.
fn mapped(map: &Map, shape: Shape, indices: [usize; 2], bell: UverbsDoorbell) -> io::Result<UverbsQueue> {
    let [ours, theirs] = indices;
    let index = map.word(ours)?;
    // SAFETY: within the mapping, as its shape was checked against it.
    let entries = unsafe { map.start.add(HEADER) };
    let place = QueueAddresses {
        entries,
        bytes: shape.bytes(),
        records: [index, index],
        progress: map.word(theirs)?,
        registers: NonNull::dangling(),
        register_bytes: 0,
    };
    // SAFETY: mapped as long as the queue pair, which the bell keeps; nobody else uses it but the kernel. For the
    // memory that entries name the caller of `Pair::new` answers.
    let mapped = unsafe { Mapped::new(place) };
    Ok(SyscallDoorbell::new(mapped.ok_or(io::ErrorKind::InvalidData)?, bell))
}

const fn wide(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// A command with a response.
fn send_command_with_answer(file: RawFd, command: u32, fields: &[u32], answer: &mut [u32]) -> io::Result<()> {
    let at = answer.as_mut_ptr().expose_provenance() as u64;
    send(file, command, [&[at as u32, (at >> 32) as u32], fields], answer.len())
}

/// A command without a response.
fn send_command(file: RawFd, command: u32, fields: &[u32]) -> io::Result<()> {
    send(file, command, [&[], fields], 0)
}

/// The doorbell of a send queue: a command without requests, whose response is ignored.
#[inline]
fn ring(pair: &UverbsQueuePair) -> io::Result<()> {
    let mut answer = 0_u32;
    let at = (&raw mut answer).expose_provenance() as u64;
    write(pair.file, &[POST_SEND, 8 | 1 << 16, at as u32, (at >> 32) as u32, pair.object.handle, 0, 0, UNUSED_ENTRY])
}

/// Builds the command on the stack: no allocation.
fn send(file: RawFd, command: u32, parts: [&[u32]; 2], answer: usize) -> io::Result<()> {
    let words = 2 + parts.map(<[u32]>::len).iter().sum::<usize>();
    let mut whole = [0; COMMAND_MAX];
    let front = [command, words as u32 | (answer as u32) << 16];
    let filled = front.iter().chain(parts.into_iter().flatten());
    whole.iter_mut().zip(filled).for_each(|(to, word)| *to = *word);
    write(file, whole.get(..words).unwrap_or(&whole))
}

/// Hands a command to the kernel.
#[inline]
fn write(file: RawFd, whole: &[u32]) -> io::Result<()> {
    let bytes = size_of_val(whole);
    // SAFETY: the stated length is that of the buffer; where the answer goes is exclusively borrowed by the caller.
    let written = unsafe { call(file, whole.as_ptr().cast(), bytes) };
    match usize::try_from(written) {
        Ok(written) if written == bytes => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::from_raw_os_error(-written as i32)),
    }
}

/// `write(2)`. Returns the kernel's result: bytes, or a negated error number. The instruction is inlined, since each
/// message rings a doorbell: a call through libc would cost another jump.
///
/// # Safety
/// `bytes` bytes can be read, and what the command names may be written.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
#[inline(always)]
unsafe fn call(file: RawFd, from: *const u8, bytes: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention. It may write memory: its answer goes where the command says.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_write as isize => result,
            in("rdi") file as isize,
            in("rsi") from,
            in("rdx") bytes,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// As above. Not `libc::write`, which is a cancellation point and executes twice the instructions in a threaded
/// program.
///
/// # Safety
/// As above.
#[cfg(not(all(target_arch = "x86_64", target_pointer_width = "64")))]
#[inline]
unsafe fn call(file: RawFd, from: *const u8, bytes: usize) -> isize {
    // SAFETY: the caller promises that `bytes` bytes can be read, and that the kernel may write where the command says.
    let written = unsafe { libc::syscall(libc::SYS_write, libc::c_long::from(file), from, bytes) };
    if written < 0 {
        -(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize)
    } else {
        written as isize
    }
}

// The interface is read as 32-bit words, 64-bit fields low word first.
const _: () = assert!(cfg!(target_endian = "little") && SEND_WQE == 208);

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_command_is_written_or_refused() {
        let (mut reader, writer) = io::pipe().unwrap();
        write(writer.as_raw_fd(), &[0x0403_0201, 7]).unwrap();
        let mut read = [0; 8];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(read, [1, 2, 3, 4, 7, 0, 0, 0]);
        assert_eq!(write(-1, &[0]).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn the_version_is_that_of_the_adapter() {
        let devices = std::env::temp_dir().join(format!("unisono-verbs-{}", std::process::id()));
        for (device, adapter, version) in
            [("uverbs0", "rxe1\n", "1\n"), ("uverbs1", "rxe0\n", "2\n"), ("uverbs2", "rxe2\n", "\n")]
        {
            fs::create_dir_all(devices.join(device)).unwrap();
            fs::write(devices.join(device).join("ibdev"), adapter).unwrap();
            fs::write(devices.join(device).join("abi_version"), version).unwrap();
        }
        fs::write(devices.join("abi_version"), "6\n").unwrap();
        let found = ["rxe0", "rxe1", "rxe"].map(|adapter| interface_version(&devices, adapter).unwrap());
        let unread = interface_version(&devices, "rxe2").is_err();
        fs::remove_dir_all(&devices).unwrap();
        assert_eq!((found, unread), ([Some(2), Some(1), None], true));
        assert!(interface_version(&devices, "rxe0").is_err());
    }

    #[test]
    fn words_of_the_header_are_apart() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        let map = Map { start: NonNull::new(start.cast()).unwrap(), bytes: 4096 };
        let [put, taken] = INDICES;
        for (at, value) in [(0, 6), (4, 15), (put, 3), (taken, 2)] {
            // SAFETY: within the mapping.
            unsafe { map.word(at).unwrap().write_volatile(value) };
        }
        assert_eq!(map.shape().unwrap(), Shape { entry: 64, count: 16 });
        // SAFETY: both words lie within the mapping's header.
        let read = [put, taken].map(|at| unsafe { map.word(at).unwrap().read_volatile() });
        assert_eq!(read, [3, 2]);
        assert_eq!(map.word(put).unwrap().addr().get() - map.start.addr().get(), 128);
    }
}
