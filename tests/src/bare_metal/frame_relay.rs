//! Relays datagrams between the network adapter of an emulator and a UDP device of this host: converts frames and
//! datagrams, drops some frames, and injects broken ones.

use alloc::sync::Arc;
use core::net::{Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;
use std::io;
use std::net::UdpSocket;
use std::sync::Mutex;
use std::thread::{self, JoinHandle};

use unisono_ethernet::frame::{FrameContent, HEADERS, LinkAddress};
use unisono_ethernet::smoltcp::phy::ChecksumCapabilities;
use unisono_ethernet::smoltcp::wire::EthernetAddress;
use unisono_udp::fault_injection::{FaultInjector, Faults, Probability};

/// Address of the node.
pub const NODE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 2), 7002);
/// Addresses of the host, as the node sees them.
pub const HOST: LinkAddress =
    LinkAddress { hardware: EthernetAddress([2, 0, 0, 0, 0, 1]), address: Ipv4Addr::new(10, 0, 0, 1), port: 7001 };
/// Receive buffer of each socket in bytes.
const SOCKET: usize = 4 << 20;
/// Bytes of the longest frame, and more.
const FRAME: usize = 2048;
/// Bytes of an Ethernet header, and of an ARP frame.
const ETHERNET: usize = 14;
const ARP: usize = 42;
/// Interval at which a waiting thread checks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One direction.
#[derive(Debug)]
struct Direction {
    injector: FaultInjector,
    random: fastrand::Rng,
    counts: FrameCounts,
}

/// One in this many frames to the node is repeated, broken.
const BROKEN: u32 = 100;

/// Frames of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FrameCounts {
    /// Relayed frames.
    pub carried: u64,
    /// Of those, dropped on purpose.
    pub lost: u64,
    /// Injected broken frames.
    pub broken: u64,
}

impl Direction {
    fn new(loss: Probability, seed: u64) -> Mutex<Self> {
        let injector = FaultInjector::new(Faults { loss, seed, ..Faults::default() });
        Mutex::new(Self { injector, random: fastrand::Rng::with_seed(!seed), counts: FrameCounts::default() })
    }

    /// Whether the next frame passes.
    fn passes(this: &Mutex<Self>, bytes: usize) -> bool {
        let Ok(mut this) = this.lock() else { return false };
        let passes = this.injector.next_outcome(bytes).first.is_some();
        this.counts.carried += 1;
        this.counts.lost += u64::from(!passes);
        passes
    }

    /// A broken frame to inject, sometimes: this frame cut, lengthened, changed in a few bytes, or random bytes.
    fn broken(this: &Mutex<Self>, frame: &[u8]) -> Option<Vec<u8>> {
        let this = &mut *this.lock().ok()?;
        let random = &mut this.random;
        if random.u32(..BROKEN) != 0 {
            return None;
        }
        this.counts.broken += 1;
        let mut frame = frame.to_vec();
        match random.u8(..4) {
            // The emulator takes an empty datagram for the end of the wire.
            0 => frame.truncate(random.usize(1..frame.len())),
            1 => frame.extend((0..random.usize(1..FRAME)).map(|_| random.u8(..))),
            2 => {
                for _ in 0..random.usize(1..4) {
                    // Headers are hit as often as the rest.
                    let reach = if random.bool() { frame.len().min(ETHERNET + HEADERS) } else { frame.len() };
                    if let Some(byte) = frame.get_mut(random.usize(..reach)) {
                        *byte ^= random.u8(1..);
                    }
                }
            }
            // Addressed to the right adapter.
            _ => frame[ETHERNET - 2..].fill_with(|| random.u8(..)),
        }
        Some(frame)
    }
}

#[derive(Debug)]
struct Wire {
    /// Its datagrams are frames.
    adapter: UdpSocket,
    /// Stands for the node: datagrams received here are forwarded to it.
    node: UdpSocket,
    host: SocketAddr,
    to_node: Mutex<Direction>,
    from_node: Mutex<Direction>,
    hardware: Mutex<Option<EthernetAddress>>,
    over: AtomicBool,
}

/// Two threads, one for each direction.
#[derive(Debug)]
pub struct Relay {
    wire: Arc<Wire>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Relay {
    /// Between the UDP device at `host` and the emulator that is given the second socket. The third is where the device
    /// finds the node.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(host: SocketAddr, loss: Probability, seed: u64) -> io::Result<(Self, UdpSocket, SocketAddr)> {
        let [adapter, emulated, node] = [socket()?, socket()?, socket()?];
        adapter.connect(emulated.local_addr()?)?;
        emulated.connect(adapter.local_addr()?)?;
        let stands = node.local_addr()?;
        let wire = Arc::new(Wire {
            adapter,
            node,
            host,
            to_node: Direction::new(loss, seed),
            from_node: Direction::new(loss, !seed),
            hardware: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let threads = [Wire::outward, Wire::inward].map(|run| {
            let wire = Arc::clone(&wire);
            thread::spawn(move || run(&wire))
        });
        Ok((Self { wire, threads: threads.into() }, emulated, stands))
    }

    /// Ends the relay. Returns the counts of frames to the node and from it.
    ///
    /// # Errors
    /// Those of the system, or the node sent an unexpected frame.
    pub fn end(self) -> io::Result<[FrameCounts; 2]> {
        self.wire.over.store(true, Relaxed);
        for thread in self.threads {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the relay panicked")))?;
        }
        let counts =
            |direction: &Mutex<Direction>| direction.lock().map_or_else(|_| FrameCounts::default(), |it| it.counts);
        Ok([&self.wire.to_node, &self.wire.from_node].map(counts))
    }
}

impl Wire {
    /// Sends a frame to the adapter, unless it is dropped.
    fn deliver(&self, frame: &[u8]) -> io::Result<()> {
        if let Some(broken) = Direction::broken(&self.to_node, frame) {
            arrival(self.adapter.send(&broken))?;
        }
        if Direction::passes(&self.to_node, frame.len()) {
            arrival(self.adapter.send(frame)).map(|_| ())
        } else {
            Ok(())
        }
    }

    /// Converts datagrams of the host into frames.
    fn outward(&self) -> io::Result<()> {
        let (mut datagram, mut frame, checksums) = ([0; FRAME], [0; FRAME], ChecksumCapabilities::default());
        while !self.over.load(Relaxed) {
            let Some((bytes, from)) = arrival(self.node.recv_from(&mut datagram))? else { continue };
            // The node resolves the host before it sends: until then its address is unknown.
            let hardware = self.hardware.lock().map_or(None, |hardware| *hardware);
            let Some(hardware) = hardware.filter(|_| from == self.host) else { continue };
            let node = LinkAddress { hardware, address: NODE.0, port: NODE.1 };
            HOST.write(&node, &mut frame, bytes, &checksums, |to| to.copy_from_slice(&datagram[..bytes]));
            self.deliver(&frame[..ETHERNET + HEADERS + bytes])?;
        }
        Ok(())
    }

    /// Converts frames of the adapter into datagrams, and answers ARP requests.
    fn inward(&self) -> io::Result<()> {
        let (mut frame, mut answer, checksums) = ([0; FRAME], [0; ARP], ChecksumCapabilities::default());
        while !self.over.load(Relaxed) {
            let Some(bytes) = arrival(self.adapter.recv(&mut frame))? else { continue };
            if !Direction::passes(&self.from_node, bytes) {
                continue;
            }
            match HOST.read(&frame[..bytes], &checksums) {
                FrameContent::Datagram { from: NODE, payload } => {
                    self.node.send_to(payload, self.host)?;
                }
                FrameContent::Arp { address, hardware, asks } => {
                    if let Ok(mut known) = self.hardware.lock() {
                        *known = Some(hardware);
                    }
                    if asks {
                        HOST.write_arp_reply(address, hardware, &mut answer);
                        self.deliver(&answer)?;
                    }
                }
                // A broken reply may have changed its address table: it resolves the address again.
                FrameContent::Foreign => {}
                other => return Err(io::Error::other(format!("the node sends {other:?}"))),
            }
        }
        Ok(())
    }
}

/// Result of a call on a socket with a time limit. Ignores that the other end may not exist yet, or any more.
fn arrival<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(arrived) => Ok(Some(arrived)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused => Ok(None),
            _ => Err(error),
        },
    }
}

fn socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET)?;
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    Ok(socket)
}
