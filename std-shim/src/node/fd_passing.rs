//! Passing the shared-memory segment between ranks whose launcher provided none: the first rank of the node creates it
//! and passes its descriptor to the others over a Unix socket in the abstract namespace (`unix(7)`, `SCM_RIGHTS`). The
//! socket's name is derived from the job's key and the first rank's incarnation, and both ends require the same user:
//! guessing or seeing the name gains an attacker nothing.

use core::fmt::Write as _;
use core::mem::MaybeUninit;
use core::time::Duration;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg, sockopt::socket_peercred,
};
use rustix::process::Pid;

use unisono_bootstrap::{PeerRecord, Secret};

/// The message byte that accompanies a descriptor.
const WITH_DESCRIPTOR: u8 = b'1';
/// The message byte for "there is no segment".
const NO_DESCRIPTOR: u8 = b'0';
/// Longest wait for an answer before the receiver checks for other events.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(20);

/// The address of the socket over which the descriptor is passed.
pub(super) fn socket_address(secret: &Secret, job: &str, first: &PeerRecord) -> io::Result<SocketAddr> {
    let (incarnation, node) = (first.incarnation.0.to_le_bytes(), first.node.to_le_bytes());
    let mut name = String::from("unisono-");
    for byte in secret.prove(job, b"segment", &[&incarnation, &node]) {
        write!(name, "{byte:02x}").map_err(io::Error::other)?;
    }
    SocketAddr::from_abstract_name(name)
}

/// The first rank's end: sends the descriptor.
#[derive(Debug)]
pub(super) struct SegmentSender {
    listener: UnixListener,
    /// Connected receivers that have not been served.
    receivers: Vec<UnixStream>,
}

impl SegmentSender {
    pub(super) fn open(place: &SocketAddr) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(place)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, receivers: Vec::new() })
    }

    /// Accepts the waiting connections. Returns how many receivers wait for the descriptor.
    pub(super) fn accept(&mut self) -> usize {
        while let Ok((stream, _)) = self.listener.accept() {
            if is_own_user(&stream) {
                self.receivers.push(stream);
            }
        }
        self.receivers.len()
    }

    /// The process IDs of the waiting receivers.
    pub(super) fn processes(&self) -> impl Iterator<Item = Pid> {
        self.receivers.iter().filter_map(|stream| Some(socket_peercred(stream).ok()?.pid))
    }

    /// Sends the descriptor, or the byte for "no segment", to every connected receiver. Returns how many were served.
    pub(super) fn send_to_all(&mut self, segment: Option<BorrowedFd<'_>>) -> usize {
        self.accept();
        // A receiver that has disconnected does not count.
        self.receivers.drain(..).filter(|stream| send(stream, segment).is_ok()).count()
    }
}

/// The result of asking for the descriptor.
#[derive(Debug)]
pub(super) enum SegmentReply {
    /// The segment.
    Segment(OwnedFd),
    /// The first rank has no segment.
    NoSegment,
    /// The first rank has not answered yet.
    NotYet,
}

/// Another rank's end: receives the descriptor.
#[derive(Debug)]
pub(super) struct SegmentReceiver {
    address: SocketAddr,
    stream: Option<UnixStream>,
}

impl SegmentReceiver {
    pub(super) const fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// Connects, or continues to wait for the answer. Returns at once when nobody listens, and within
    /// [`ANSWER_TIMEOUT`] when nobody answers.
    pub(super) fn poll(&mut self) -> io::Result<SegmentReply> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => match UnixStream::connect_addr(&self.address) {
                Ok(stream) if is_own_user(&stream) => stream,
                Ok(_) => return Ok(SegmentReply::NotYet),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
                    return Ok(SegmentReply::NotYet);
                }
                Err(error) => return Err(error),
            },
        };
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        match receive(&stream) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                self.stream = Some(stream);
                Ok(SegmentReply::NotYet)
            }
            // The sender has closed the connection.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(SegmentReply::NotYet),
            answered => answered,
        }
    }
}

fn is_own_user(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

fn send(stream: &UnixStream, segment: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = segment.into_iter().collect();
    let word = if descriptors.is_empty() { NO_DESCRIPTOR } else { WITH_DESCRIPTOR };
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(rustix::io::Errno::NOBUFS);
    }
    sendmsg(stream, &[IoSlice::new(&[word])], &mut control, SendFlags::NOSIGNAL).map(drop)
}

fn receive(stream: &UnixStream) -> io::Result<SegmentReply> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0];
    let message = recvmsg(stream, &mut [IoSliceMut::new(&mut word)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Err(ErrorKind::ConnectionReset.into());
    }
    let segment = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(match (word, segment) {
        ([WITH_DESCRIPTOR], Some(segment)) => SegmentReply::Segment(segment),
        ([NO_DESCRIPTOR], None) => SegmentReply::NoSegment,
        _ => SegmentReply::NotYet,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use std::os::fd::AsFd;
    use unisono_core::ids::Incarnation;

    fn place_of(job: &str, incarnation: u32, node: u32) -> SocketAddr {
        let lane = (Ipv4Addr::LOCALHOST, 1).into();
        let first = PeerRecord {
            location: unisono_bootstrap::Location::default(),
            link_megabits: 0,
            incarnation: Incarnation(incarnation),
            node,
            mtu: 0,
            addresses: [lane; 2],
            further_rails: Vec::new(),
            initial_rails: 1,
            rails_max: 1,
            checksums: true,
            digests: unisono_bootstrap::Digests::default(),
        };
        socket_address(&Secret::new("0123456789abcdef").expect("long enough"), job, &first).expect("a name")
    }

    #[test]
    fn address_is_that_of_a_job_an_incarnation_and_a_node() {
        let name = |place: SocketAddr| place.as_abstract_name().expect("abstract").to_vec();
        let one = name(place_of("job", 1, 0));
        assert_eq!(one, name(place_of("job", 1, 0)));
        for other in [place_of("other", 1, 0), place_of("job", 2, 0), place_of("job", 1, 1)] {
            assert_ne!(one, name(other));
        }
    }

    #[test]
    fn descriptor_is_passed_to_every_receiver() {
        let place = place_of("handed over", std::process::id(), 0);
        let mut early = SegmentReceiver::new(place.clone());
        assert!(matches!(early.poll(), Ok(SegmentReply::NotYet)), "nobody listens");
        let mut giver = SegmentSender::open(&place).expect("the name is free");
        assert!(matches!(early.poll(), Ok(SegmentReply::NotYet)), "nobody answers");
        drop(early);
        assert_eq!(giver.send_to_all(None), 0, "a receiver that disconnected gets nothing");
        let memory = rustix::fs::memfd_create("given", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&memory, 4711).expect("sized");
        std::thread::scope(|scope| {
            let takers: Vec<_> = (0..3).map(|_| scope.spawn(|| poll_until_answered(&place))).collect();
            let mut given = 0;
            while given < 3 {
                given += giver.send_to_all(Some(memory.as_fd()));
            }
            for taker in takers {
                let SegmentReply::Segment(taken) = taker.join().expect("takes") else { panic!("no descriptor") };
                assert_eq!(rustix::fs::fstat(&taken).expect("a file").st_size, 4711);
            }
            let taker = scope.spawn(|| poll_until_answered(&place));
            while giver.accept() == 0 {}
            assert_eq!(giver.processes().collect::<Vec<_>>(), [rustix::process::getpid()]);
            assert_eq!(giver.send_to_all(None), 1, "a receiver accepted earlier is served, too");
            assert!(matches!(taker.join().expect("takes"), SegmentReply::NoSegment));
        });
    }

    fn poll_until_answered(place: &SocketAddr) -> SegmentReply {
        let mut taker = SegmentReceiver::new(place.clone());
        loop {
            match taker.poll().expect("the system permits it") {
                SegmentReply::NotYet => {}
                taken => return taken,
            }
        }
    }
}
