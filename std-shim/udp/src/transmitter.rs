//! Sends batches of datagrams: one `sendmmsg` per batch, and one GSO message per run of equal datagrams to one peer.

use core::{ffi::c_int, ptr, ptr::NonNull, time::Duration};
use std::io;

use unisono_core::device::{Destination, DeviceQueue};
use unisono_core::ids::Rail;

use super::{
    MTU_MAX,
    address_table::{AddressTable, SocketName},
    counters::UdpCounters,
    gso::GsoState,
    socket::{Control, SEGMENTS_MAX, Socket, no_message, wait_writable},
};

/// Largest number of datagrams per call.
pub(super) const BATCH: usize = 64;

/// Largest number of I/O vectors per datagram: header, payload, checksum.
const IOVECS_MAX: usize = 3;

/// Attempts per batch to send when there is no room.
const ATTEMPTS: u32 = 4;

/// Time that each attempt waits for room.
const ROOM: Duration = Duration::from_millis(1);

/// Flags of every call: it neither blocks nor raises a signal.
const FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Contiguous bytes: one I/O vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct IoVector {
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
}

/// A datagram ready to send, checksum included.
#[derive(Clone, Copy, Debug)]
pub(super) struct TxDatagram {
    pub(super) to: Destination,
    pub(super) at: DeviceQueue,
    pub(super) first: IoVector,
    pub(super) rest: Option<[IoVector; IOVECS_MAX - 1]>,
    /// Total length.
    pub(super) bytes: usize,
}

/// The state of the link as a batch showed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkState {
    /// The kernel accepted a datagram.
    Up,
    /// The kernel accepted nothing and reports that the link is down or gone, or leads nowhere.
    Down,
    /// Unknown.
    Unknown,
}

/// Consecutive datagrams that form one message.
#[derive(Clone, Copy)]
struct GsoRun {
    /// Index of the first datagram, and their number.
    datagrams: (usize, usize),
    pieces: (usize, usize),
    bytes: usize,
    name: usize,
    /// Length of all datagrams but the last, if there are several.
    segment: Option<u16>,
}

/// The arrays that `sendmmsg` reads for a rail. Rewritten for every batch; no content is used after the call.
pub(super) struct Transmitter {
    rail: Rail,
    runs: Vec<GsoRun>,
    pieces: Vec<libc::iovec>,
    names: Vec<SocketName>,
    controls: Box<[Control; BATCH]>,
    messages: Box<[libc::mmsghdr; BATCH]>,
    gso: GsoState,
}

// SAFETY: the pointers in the arrays are dead outside `send`, which writes them before the kernel reads them.
unsafe impl Send for Transmitter {}

impl Transmitter {
    /// A transmitter for a rail that uses GSO if `gso` is set and the kernel supports it.
    pub(super) fn new(rail: Rail, gso: bool) -> Self {
        Self {
            rail,
            runs: Vec::with_capacity(BATCH),
            pieces: Vec::with_capacity(BATCH * IOVECS_MAX),
            names: Vec::with_capacity(BATCH),
            controls: Box::new([Control::NONE; BATCH]),
            messages: Box::new([no_message(); BATCH]),
            gso: GsoState::new(gso),
        }
    }

    /// Whether GSO is in use at present.
    pub(super) const fn uses_gso(&self) -> bool {
        self.gso.is_on()
    }

    /// Sends datagrams in order. A datagram that the kernel does not accept after a bounded number of attempts (four of
    /// one millisecond when there is no room) is lost and counted.
    ///
    /// # Safety
    /// All pieces can be read until the call returns.
    pub(super) unsafe fn send(
        &mut self,
        socket: &Socket,
        table: &AddressTable,
        datagrams: &[TxDatagram],
        tally: &UdpCounters,
    ) -> LinkState {
        if let [single] = datagrams
            // SAFETY: the caller promises that all pieces of all datagrams can be read, so those of this one, too.
            && unsafe { self.send_single(socket, table, single, tally) }
        {
            return LinkState::Up;
        }
        let mut answer = LinkState::Unknown;
        for batch in datagrams.chunks(BATCH) {
            self.gso.begin_batch();
            let mut rest = batch;
            while !rest.is_empty() {
                self.gather(table, rest, tally);
                let (taken, answered) = self.transmit(socket, tally);
                if answer != LinkState::Up {
                    answer = answered;
                }
                rest = rest.get(taken.unwrap_or(rest.len())..).unwrap_or_default();
            }
        }
        answer
    }

    /// Sends one datagram of one I/O vector with `sendto`, a shorter path through the kernel. Returns false if nothing
    /// was sent or counted.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    unsafe fn send_single(
        &mut self,
        socket: &Socket,
        table: &AddressTable,
        datagram: &TxDatagram,
        tally: &UdpCounters,
    ) -> bool {
        let (IoVector { start, bytes }, None) = (datagram.first, datagram.rest) else { return false };
        let Some(name) = table.name(datagram.to, datagram.at) else { return false };
        let start = start.as_ptr().cast();
        // SAFETY: a live name, and a piece that the caller says can be read.
        let sent = unsafe { libc::sendto(socket.fd(), start, bytes, FLAGS, name.as_ptr(), name.bytes()) };
        if sent < 0 {
            return false;
        }
        self.gso.begin_batch();
        tally.send_calls.add(1);
        self.count_sent(1, datagram.bytes as u64, tally);
        true
    }

    /// Counts datagrams that the kernel accepted, and their bytes.
    fn count_sent(&self, datagrams: u64, bytes: u64, tally: &UdpCounters) {
        tally.sent.add(datagrams);
        tally.sent_bytes.add(bytes);
        let rail = tally.rail(self.rail);
        rail.sent.add(datagrams);
        rail.sent_bytes.add(bytes);
    }

    /// Groups the datagrams that have a path into runs.
    fn gather(&mut self, table: &AddressTable, datagrams: &[TxDatagram], tally: &UdpCounters) {
        self.runs.clear();
        self.pieces.clear();
        self.names.clear();
        let (mut index, mut named) = (0, None);
        while let Some((first, after)) = datagrams.get(index..).and_then(<[TxDatagram]>::split_first) {
            let count = if self.gso.is_on() { 1 + followers(first, after) } else { 1 };
            if named != Some((first.to, first.at)) {
                let Some(name) = table.name(first.to, first.at) else {
                    tally.lost_no_path.add(count as u64);
                    tally.rail(self.rail).lost.add(count as u64);
                    index += count;
                    continue;
                };
                self.names.push(name);
                named = Some((first.to, first.at));
            }
            let (start, mut bytes) = (self.pieces.len(), 0);
            for datagram in datagrams.iter().skip(index).take(count) {
                bytes += datagram.bytes;
                self.append(start, datagram.first);
                for piece in datagram.rest.into_iter().flatten() {
                    self.append(start, piece);
                }
            }
            self.runs.push(GsoRun {
                datagrams: (index, count),
                pieces: (start, self.pieces.len() - start),
                bytes,
                name: self.names.len() - 1,
                segment: if count > 1 { u16::try_from(first.bytes).ok() } else { None },
            });
            index += count;
        }
    }

    /// Adds an I/O vector to the run whose vectors begin at `start`; extends the last one if they are adjacent.
    fn append(&mut self, start: usize, piece: IoVector) {
        let to = piece.start.as_ptr().cast();
        match self.pieces.get_mut(start..).and_then(<[libc::iovec]>::last_mut) {
            Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == to => last.iov_len += piece.bytes,
            _ => self.pieces.push(libc::iovec { iov_base: to, iov_len: piece.bytes }),
        }
    }

    /// Sends the runs. `Some(n)`: GSO was rejected and pauses; datagrams from the n-th on were not sent.
    fn transmit(&mut self, socket: &Socket, tally: &UdpCounters) -> (Option<usize>, LinkState) {
        let (pieces, names) = (self.pieces.as_mut_ptr(), self.names.as_ptr());
        for ((run, message), control) in self.runs.iter().zip(self.messages.iter_mut()).zip(self.controls.iter_mut()) {
            let header = &mut message.msg_hdr;
            let name = self.names.get(run.name).unwrap_or(&SocketName::NONE);
            header.msg_name = names.wrapping_add(run.name).cast_mut().cast();
            header.msg_namelen = name.bytes();
            header.msg_iov = pieces.wrapping_add(run.pieces.0);
            header.msg_iovlen = run.pieces.1 as _;
            (header.msg_control, header.msg_controllen) = match run.segment {
                None => (ptr::null_mut(), 0),
                Some(segment) => {
                    *control = Control::segment_size(segment);
                    (control.as_mut_ptr(), Control::SEGMENT_BYTES as _)
                }
            };
        }
        let (mut done, mut attempts, mut answer) = (0, 0, LinkState::Unknown);
        while let Some(left @ [run, ..]) = self.runs.get(done..) {
            let messages = self.messages.as_mut_ptr().wrapping_add(done);
            // SAFETY: as many messages as runs left were filled above with live names, pieces and controls; the caller
            // of `send` says that the pieces can be read.
            let sent = unsafe { libc::sendmmsg(socket.fd(), messages, left.len() as _, FLAGS) };
            tally.send_calls.add(1);
            if let Ok(sent @ 1..) = usize::try_from(sent) {
                if left.iter().take(sent).any(|run| run.segment.is_some()) {
                    self.gso.handle_accepted();
                }
                for run in left.iter().take(sent) {
                    self.count_sent(run.datagrams.1 as u64, run.bytes as u64, tally);
                }
                done += sent;
                answer = LinkState::Up;
                continue;
            }
            let error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            let lost = match error {
                libc::EINTR | libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM if attempts < ATTEMPTS => {
                    attempts += 1;
                    wait_writable(socket, ROOM);
                    continue;
                }
                libc::EIO | libc::EINVAL | libc::EMSGSIZE if run.segment.is_some() => {
                    self.gso.handle_rejected();
                    tally.gso_refused.add(1);
                    return (Some(run.datagrams.0), answer);
                }
                libc::EMSGSIZE if socket.allow_fragments() => continue,
                libc::EAGAIN | libc::EINTR => &tally.lost_would_block,
                libc::ENOBUFS | libc::ENOMEM => &tally.lost_no_buffers,
                error if is_link_error(error) => {
                    if answer == LinkState::Unknown {
                        answer = LinkState::Down;
                    }
                    &tally.lost_unreachable
                }
                libc::ECONNREFUSED | libc::EPERM | libc::EACCES => &tally.lost_unreachable,
                libc::EMSGSIZE => &tally.lost_too_large,
                _ => &tally.lost_other,
            };
            lost.add(run.datagrams.1 as u64);
            tally.rail(self.rail).lost.add(run.datagrams.1 as u64);
            done += 1;
        }
        (None, answer)
    }
}

/// Whether the error says that the socket's link is down or gone, or leads nowhere. A socket whose address is gone gets
/// `EINVAL`, and so does one of the loopback for what lies beyond it.
const fn is_link_error(error: c_int) -> bool {
    matches!(
        error,
        libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::EHOSTDOWN
            | libc::ENODEV
            | libc::ENXIO
            | libc::EADDRNOTAVAIL
            | libc::EINVAL
    )
}

/// The number of datagrams of `bytes` bytes that form one GSO message.
pub(super) const fn run_length(bytes: usize) -> usize {
    match (MTU_MAX as usize).checked_div(bytes) {
        Some(0) => 1,
        Some(run) if run < SEGMENTS_MAX => run,
        _ => SEGMENTS_MAX,
    }
}

/// How many of `after` can follow `first` in one message: same peer and queue, same length; the last may be shorter.
fn followers(first: &TxDatagram, after: &[TxDatagram]) -> usize {
    let (mut count, mut room) = (0, MTU_MAX as usize - first.bytes.min(MTU_MAX as usize));
    for next in after.iter().take(SEGMENTS_MAX - 1) {
        if (next.to, next.at) != (first.to, first.at)
            || next.bytes > first.bytes
            || next.bytes > room
            || next.bytes == 0
        {
            break;
        }
        room -= next.bytes;
        count += 1;
        if next.bytes < first.bytes {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use unisono_core::ids::PeerId;

    use super::*;

    fn datagrams(sizes: &[usize]) -> Vec<TxDatagram> {
        let piece = |bytes| IoVector { start: NonNull::dangling(), bytes };
        let datagram = |bytes| TxDatagram {
            to: PeerId(0).into(),
            at: DeviceQueue::Polled,
            first: piece(bytes),
            rest: None,
            bytes,
        };
        sizes.iter().copied().map(datagram).collect()
    }

    fn run(sizes: &[usize]) -> usize {
        let datagrams = datagrams(sizes);
        1 + followers(&datagrams[0], &datagrams[1..])
    }

    #[test]
    fn run_holds_equal_datagrams_and_one_shorter_last() {
        assert_eq!(run(&[100, 100, 100]), 3);
        assert_eq!(run(&[100, 100, 40, 100]), 3);
        assert_eq!(run(&[100, 101]), 1);
        assert_eq!(run(&[100, 4, 4]), 2);
    }

    #[test]
    fn run_is_bounded_by_segments_and_bytes() {
        assert_eq!(run(&[4; 100]), SEGMENTS_MAX);
        assert_eq!(run(&[8192; 10]), 7);
        assert_eq!(run(&[65507, 4]), 1);
        assert_eq!(run(&[65500, 7]), 2);
    }

    #[test]
    fn run_of_equal_datagrams_is_as_long_as_stated() {
        for bytes in [1, 600, 1060, 1500, 8228, 32754, 65507] {
            assert_eq!(run(&[bytes; 100]), run_length(bytes), "{bytes}");
        }
    }

    #[test]
    fn run_goes_to_one_lane_of_one_peer() {
        let mut two = datagrams(&[50, 50]);
        two[1].at = DeviceQueue::Interrupt;
        assert_eq!(followers(&two[0], &two[1..]), 0);
        two[1] = TxDatagram { to: PeerId(1).into(), ..two[0] };
        assert_eq!(followers(&two[0], &two[1..]), 0);
    }
}
