//! Queue pairs that the kernel makes for us and maps: commands of the write interface, without a word of libibverbs.
//!
//! rdma-core's provider for Soft-RoCE keeps to itself where its queues are mapped, so the queue pair is made here; device, protection
//! domain and registrations are libibverbs'. Commands are written to the device's file: a word that names it, its length and that
//! of the answer in words, where the answer goes, then its fields (`ib_user_verbs.h`).

use alloc::format;
use alloc::sync::Arc;
use core::ptr::{self, NonNull};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::{fs, io};

use super::ring::{HEADER, INDICES, Shape};
use super::{Call, Called, Queues, SEND, Sizes};
use crate::order::{Mapped, Place};
use crate::ud::Domain;

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
/// `IBV_QPT_UD`, in the byte behind that of `sq_sig_all`.
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
/// Bytes of a send request in the interface that is not used (`ib_uverbs_send_wr`): the kernel takes no fewer, and clears as many for
/// each doorbell.
const UNUSED_ENTRY: u32 = 56;
/// Words of the longest command, its own two and where the answer goes included.
const COMMAND_MAX: usize = 32;
/// Where the kernel says what users of adapters share with it, and the version of Soft-RoCE's queues that is written here.
const DEVICES: &str = "/sys/class/infiniband_verbs";
const VERSION: u32 = 2;
/// The file's name of an adapter's network interface, which Soft-RoCE alone has there.
const PARENT: &str = "parent";

/// How large a queue pair is at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Depth {
    /// Datagrams that can be posted.
    pub sends: u32,
    /// Memory that can be lent.
    pub receives: u32,
    /// Bytes that an entry has room for.
    pub inline: u32,
}

/// Whether the adapter of this name is a Soft-RoCE device.
pub fn is_ours(adapter: &str) -> bool {
    Path::new("/sys/class/infiniband").join(adapter).join(PARENT).exists()
}

/// Of what the kernel and an adapter's users share, by the adapter's name. `None`: the adapter has no users.
fn interface_version(devices: &Path, adapter: &str) -> io::Result<Option<u32>> {
    for device in fs::read_dir(devices)? {
        let device = device?.path();
        // Some entries are no devices.
        if fs::read_to_string(device.join("ibdev")).is_ok_and(|name| name.trim_end() == adapter) {
            let version = fs::read_to_string(device.join("abi_version"))?;
            return version.trim_end().parse().map(Some).map_err(io::Error::other);
        }
    }
    Ok(None)
}

/// What rings for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    /// Nobody has to be told.
    Nothing,
    /// There is something to send.
    Send,
    /// An event is asked for.
    Notify,
}

/// The doorbell of a mapped queue. It keeps the queue pair alive.
#[derive(Debug)]
pub struct Bell {
    pair: Arc<Pair>,
    command: Command,
}

impl Bell {
    /// Whose it is.
    pub const fn pair(&self) -> &Arc<Pair> {
        &self.pair
    }
}

impl Call for Bell {
    #[inline]
    fn call(&mut self, value: [u8; 8]) {
        let pair = &self.pair;
        let [solicited, ..] = value;
        // A queue pair in error refuses; its completions say so.
        let _ = match self.command {
            Command::Nothing => Ok(()),
            Command::Send => ring(pair),
            Command::Notify => tell(pair.file, NOTIFY, &[pair.received.object.handle, solicited.into()]),
        };
    }
}

/// A mapped queue.
pub type Ring = Called<Mapped, Bell>;

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

/// What the kernel has made, until this is dropped.
#[derive(Debug)]
struct Object {
    file: RawFd,
    handle: u32,
    destroy: u32,
    /// Words that the kernel answers to that.
    answer: usize,
}

impl Drop for Object {
    fn drop(&mut self) {
        // Nobody can be told if the kernel refuses: it gives everything back with the file.
        let mut answer = [0; 2];
        let answer = answer.get_mut(..self.answer).unwrap_or_default();
        let _ = ask(self.file, self.destroy, &[self.handle, 0], answer);
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
pub struct Pair {
    file: RawFd,
    // Each before what it uses, when all are dropped: the kernel does not end what is in use.
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

impl Pair {
    /// Makes a queue pair that sends and receives datagrams of this key, and its queues. Reports about it name `element`.
    ///
    /// Entries name memory by numbers, which any code may make up, so that safe code cannot make queues:
    /// ```compile_fail,E0133
    /// # use unisono_verbs::{rxe::kernel::{Depth, Pair}, ud::Domain};
    /// fn make(domain: &alloc::sync::Arc<Domain>, depth: Depth) {
    ///     let made = Pair::new(domain, depth, 0, 1);
    /// }
    /// # extern crate alloc;
    /// ```
    ///
    /// # Errors
    /// The kernel refuses, or the adapter is no Soft-RoCE device.
    ///
    /// # Safety
    /// What is posted to the queues, in safe code, names registered memory alone, which nobody changes until a send from there is complete,
    /// and nobody uses until a datagram has come there; or the queue pair is reset or dropped before.
    pub unsafe fn new(
        domain: &Arc<Domain>,
        depth: Depth,
        key: u32,
        element: u32,
    ) -> io::Result<(Arc<Self>, Queues<Ring, Ring, Ring>)> {
        if !is_ours(domain.name()) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        match interface_version(Path::new(DEVICES), domain.name())? {
            Some(VERSION) => {}
            Some(other) => {
                return Err(io::Error::other(format!("version {other} of Soft-RoCE's queues, not {VERSION}")));
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        let (context, pd) = domain.parts().ok_or(io::ErrorKind::NotConnected)?;
        // SAFETY: an open context; its file does not change.
        let file = unsafe { context.as_ref() }.cmd_fd;
        // SAFETY: a live protection domain.
        let pd = unsafe { pd.as_ref() }.handle;
        let mut answer = [0; 1];
        ask(file, CREATE_CHANNEL, &[], &mut answer)?;
        // SAFETY: the kernel has just opened it for us.
        let channel = unsafe { OwnedFd::from_raw_fd(answer[0] as RawFd) };
        let sent = completions(file, 4 * depth.sends, -1, element)?;
        let received = completions(file, 4 * depth.receives, channel.as_raw_fd(), element)?;
        let handles = [element, 0, pd, sent.object.handle, received.object.handle, 0];
        let sizes = [depth.sends, depth.receives, 2, 1, depth.inline, DATAGRAMS];
        let fields = [handles, sizes].concat();
        // What all kernels answer, then offset, size and padding of the receive queue and of the send queue.
        let mut answer = [0; 8 + 4 + 4];
        ask(file, CREATE_PAIR, &fields, &mut answer)?;
        let [handle, number, .., a, b, c, _, d, e, f, _] = answer;
        let object = Object { file, handle, destroy: DESTROY_PAIR, answer: 1 };
        // Not among the fields below: were a mapping refused there, those before it would be dropped last to first.
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

    /// What peers call it.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// What reports about it name.
    pub const fn element(&self) -> u32 {
        self.element
    }

    /// Takes in datagrams to the group of this GID and LID.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, group: [u8; 16], lid: u16) -> io::Result<()> {
        self.group(ATTACH_GROUP, group, lid)
    }

    /// The contrary.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(&self, group: [u8; 16], lid: u16) -> io::Result<()> {
        self.group(DETACH_GROUP, group, lid)
    }

    fn group(&self, command: u32, group: [u8; 16], lid: u16) -> io::Result<()> {
        let [a, b, c, d]: [u32; 4] = zerocopy::transmute!(group);
        tell(self.file, command, &[a, b, c, d, self.object.handle, lid.into()])
    }

    /// Readable when an event was raised; each is 8 bytes.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Takes the events that were raised: none is left, if the descriptor does not block.
    pub fn drain_events(&self) {
        let mut event = [0_u8; 8];
        // SAFETY: room for an event.
        while unsafe { libc::read(self.channel.as_raw_fd(), event.as_mut_ptr().cast(), event.len()) } == 8 {}
    }

    /// Into the error state, as an adapter does when something fails.
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

    /// From reset to ready.
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
        tell(self.file, MODIFY_PAIR, &fields)
    }

    fn queues(pair: &Arc<Self>) -> io::Result<Queues<Ring, Ring, Ring>> {
        let [put, taken] = INDICES;
        let sizes = Sizes {
            send: pair.send.shape()?,
            sent: pair.sent.map.shape()?,
            receive: pair.receive.shape()?,
            received: pair.received.map.shape()?,
        };
        let bell = |command| Bell { pair: Arc::clone(pair), command };
        let send = mapped(&pair.send, sizes.send, [put, taken], bell(Command::Send));
        let receive = mapped(&pair.receive, sizes.receive, [put, taken], bell(Command::Nothing));
        let sent = mapped(&pair.sent.map, sizes.sent, [taken, put], bell(Command::Nothing));
        let received = mapped(&pair.received.map, sizes.received, [taken, put], bell(Command::Notify));
        let queues = Queues::new(sizes, send?, sent?, receive?, received?);
        queues.ok_or_else(|| io::Error::other("queues of another size than was asked for"))
    }
}

fn completions(file: RawFd, entries: u32, channel: RawFd, element: u32) -> io::Result<Completions> {
    // Handle and entries, then offset, size and padding.
    let mut answer = [0; 2 + 4];
    ask(file, CREATE_COMPLETIONS, &[element, 0, entries, 0, channel as u32, 0], &mut answer)?;
    let [handle, _, low, high, size, _] = answer;
    let object = Object { file, handle, destroy: DESTROY_COMPLETIONS, answer: 2 };
    Ok(Completions { object, map: Map::new(file, wide(low, high), size as usize)? })
}

/// The queue that is mapped there. `indices`: ours, the kernel's.
fn mapped(map: &Map, shape: Shape, indices: [usize; 2], bell: Bell) -> io::Result<Ring> {
    let [ours, theirs] = indices;
    let index = map.word(ours)?;
    // SAFETY: within the mapping, as its shape was checked against it.
    let entries = unsafe { map.start.add(HEADER) };
    let place = Place {
        entries,
        bytes: shape.bytes(),
        records: [index, index],
        progress: map.word(theirs)?,
        registers: NonNull::dangling(),
        register_bytes: 0,
    };
    // SAFETY: mapped as long as the queue pair, which the bell keeps; nobody else uses it but the kernel. For the memory that entries name
    // the caller of `Pair::new` answers.
    let mapped = unsafe { Mapped::new(place) };
    Ok(Called::new(mapped.ok_or(io::ErrorKind::InvalidData)?, bell))
}

const fn wide(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// A command with an answer.
fn ask(file: RawFd, command: u32, fields: &[u32], answer: &mut [u32]) -> io::Result<()> {
    let at = answer.as_mut_ptr().expose_provenance() as u64;
    send(file, command, [&[at as u32, (at >> 32) as u32], fields], answer.len())
}

/// A command without.
fn tell(file: RawFd, command: u32, fields: &[u32]) -> io::Result<()> {
    send(file, command, [&[], fields], 0)
}

/// The doorbell of a send queue: a command without requests, of whose answer nothing is looked at.
#[inline]
fn ring(pair: &Pair) -> io::Result<()> {
    let mut answer = 0_u32;
    let at = (&raw mut answer).expose_provenance() as u64;
    write(pair.file, &[POST_SEND, 8 | 1 << 16, at as u32, (at >> 32) as u32, pair.object.handle, 0, 0, UNUSED_ENTRY])
}

/// On the stack: no memory is asked for.
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
    // SAFETY: so many bytes; where the answer goes is exclusively borrowed by the caller.
    let written = unsafe { call(file, whole.as_ptr().cast(), bytes) };
    match usize::try_from(written) {
        Ok(written) if written == bytes => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::from_raw_os_error(-written as i32)),
    }
}

/// `write(2)`. Returns what the kernel returns: bytes, or a negated number of an error. An instruction that stands here, since a doorbell is
/// rung for each message: a call of libc's would be one more jump there and back.
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

/// As above. Not `libc::write`: where there are several threads, that it is a point of cancellation doubles its instructions.
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
const _: () = assert!(cfg!(target_endian = "little") && SEND == 208);

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
