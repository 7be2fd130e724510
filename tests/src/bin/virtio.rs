//! Bar 2 of bare metal: an image without an operating system, on a virtio adapter, and a UDP device of this host exchange memory, both
//! ways at once, while the host loses frames in both directions.
//!
//! ```text
//!  rank 0: endpoint ── UDP device ── socket ── relay (frames, ARP, loss) ── socket ── emulator ── virtio ── endpoint: rank 1
//! ```
//!
//! The two speak the same datagrams; the relay only puts what the UDP device sends into frames, and takes it out of them.
//!
//! `cargo build --release && cargo run --release -p unisono-tests --bin virtio`. What has to be there: docs/bare-metal.md.

use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::time::Duration;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use clap::Parser;
use unisono::fault::{Faults, Injector, Probability};
use unisono::launch::bare_metal::DONE;
use unisono::records::{Boxed, Sizes};
use unisono::region::Regions;
use unisono::udp::{Options as UdpOptions, Path, Udp};
use unisono_core::device::{Cause, Device, Lane, PeerId};
use unisono_core::endpoint::{Config, Endpoint};
use unisono_core::peer::Incarnation;
use unisono_ethernet::frame::{Content, HEADERS, Name};
use unisono_ethernet::smoltcp::phy::ChecksumCapabilities;
use unisono_ethernet::smoltcp::wire::EthernetAddress;
use unisono_ethernet::transfer::{PIECE, PIECES, Transfer};
use unisono_tests::bar::{Limit, Report};
use unisono_tests::bare_metal::build_image;

/// Largest UDP payload: an ordinary Ethernet's.
const MTU: u32 = 1472;
/// Segments per window, as in the image.
const WINDOW: usize = 128;
/// The image, as it calls itself, and the host, as the relay shows it.
const NODE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 2), 7002);
const HOST: Name =
    Name { hardware: EthernetAddress([2, 0, 0, 0, 0, 1]), address: Ipv4Addr::new(10, 0, 0, 1), port: 7001 };
/// An exchange that takes longer stands still.
const LONGEST: Duration = Duration::from_secs(170);
/// Between two looks when nothing moves.
const PAUSE: Duration = Duration::from_micros(200);
/// Bytes of memory asked for each socket's arrivals.
const SOCKET: usize = 4 << 20;
/// Bytes of the longest frame, and more.
const FRAME: usize = 2048;

/// Exchanges memory with an image over a wire that loses frames.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Bytes each way.
    #[arg(long, default_value_t = 100_000_000)]
    bytes: u32,
    /// Frames lost in either direction.
    #[arg(long, default_value = "5%")]
    loss: Probability,
    /// Of the losses; drawn, and shown, where it is not given.
    #[arg(long)]
    seed: Option<u64>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("seed {seed}");
    let mut report = Report::new(2, options.json);
    match exchange(&options, seed, &mut report) {
        Ok(()) => report.end(),
        Err(reason) => {
            eprintln!("seed {seed}: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn text(error: impl core::fmt::Display) -> String {
    error.to_string()
}

/// One direction of the wire.
struct Direction {
    injector: Injector,
    carried: u64,
    lost: u64,
}

impl Direction {
    fn new(loss: Probability, seed: u64) -> Self {
        Self { injector: Injector::new(Faults { loss, seed, ..Faults::default() }), carried: 0, lost: 0 }
    }

    /// Whether the next frame passes.
    fn passes(&mut self, bytes: usize) -> bool {
        let passes = self.injector.fate(bytes).first.is_some();
        self.carried += 1;
        self.lost += u64::from(!passes);
        passes
    }
}

/// The wire between an adapter of the emulator and a UDP device.
struct Relay {
    /// Its datagrams are frames.
    adapter: UdpSocket,
    /// Stands for the node: what comes here goes there.
    node: UdpSocket,
    host: SocketAddr,
    /// To the node, and from it.
    directions: [Mutex<Direction>; 2],
    hardware: Mutex<Option<EthernetAddress>>,
    over: AtomicBool,
}

impl Relay {
    /// To the adapter, unless it is lost.
    fn show(&self, frame: &[u8]) -> io::Result<()> {
        let passes = self.directions[0].lock().is_ok_and(|mut direction| direction.passes(frame.len()));
        if passes { self.adapter.send(frame).map(|_| ()) } else { Ok(()) }
    }

    /// Datagrams of the host become frames, until the relay is over.
    fn outward(&self) -> io::Result<()> {
        let (mut datagram, mut frame, checksums) = ([0; FRAME], [0; FRAME], ChecksumCapabilities::default());
        while !self.over.load(Relaxed) {
            let Some((bytes, from)) = arrival(self.node.recv_from(&mut datagram))? else { continue };
            if from != self.host {
                continue;
            }
            let hardware = self.hardware.lock().map_or(None, |hardware| *hardware);
            // The node asks for the host before it sends: until then there is nobody.
            let Some(hardware) = hardware else { continue };
            let node = Name { hardware, address: NODE.0, port: NODE.1 };
            HOST.write(&node, &mut frame, bytes, &checksums, |to| to.copy_from_slice(&datagram[..bytes]));
            self.show(&frame[..14 + HEADERS + bytes])?;
        }
        Ok(())
    }

    /// Frames of the adapter become datagrams, or are answered.
    fn inward(&self) -> io::Result<()> {
        let (mut frame, mut answer) = ([0; FRAME], [0; 42]);
        let checksums = ChecksumCapabilities::default();
        while !self.over.load(Relaxed) {
            let Some(bytes) = arrival(self.adapter.recv(&mut frame))? else { continue };
            if !self.directions[1].lock().is_ok_and(|mut direction| direction.passes(bytes)) {
                continue;
            }
            match HOST.read(&frame[..bytes], &checksums) {
                Content::Datagram { from, payload } if from == NODE => {
                    self.node.send_to(payload, self.host)?;
                }
                Content::Whereabouts { address, hardware, asks } => {
                    if let Ok(mut known) = self.hardware.lock() {
                        *known = Some(hardware);
                    }
                    if asks {
                        HOST.answer(address, hardware, &mut answer);
                        self.show(&answer)?;
                    }
                }
                other => return Err(io::Error::other(format!("the node sends {other:?}"))),
            }
        }
        Ok(())
    }
}

/// What a socket with a time limit says. The other end may not be there, or not any more.
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
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    Ok(socket)
}

fn exchange(options: &Options, seed: u64, report: &mut Report) -> Result<(), String> {
    let machine = build_image(1, "datagrams")?;
    let [incarnation, other] = [Incarnation(fastrand::u32(..)), Incarnation(fastrand::u32(..))];
    let mut device =
        Udp::bind(&UdpOptions { mtu: Some(MTU), ..UdpOptions::new(Ipv4Addr::LOCALHOST.into(), 2) }).map_err(text)?;
    let (adapter, emulated, node) = (socket().map_err(text)?, socket().map_err(text)?, socket().map_err(text)?);
    adapter.connect(emulated.local_addr().map_err(text)?).map_err(text)?;
    emulated.connect(adapter.local_addr().map_err(text)?).map_err(text)?;
    let (host, stands) = (device.local().map_err(text)?, node.local_addr().map_err(text)?);
    let path = Path { address: stands.ip(), polled: stands.port(), interrupt: stands.port() };
    device.set_path(PeerId(1), path, MTU).map_err(text)?;
    let line = format!(
        "rank=1 incarnation={} address={} port={} peer=0 peer_incarnation={} peer_address={} peer_port={} peer_mtu={MTU} bytes={}",
        other.0, NODE.0, NODE.1, incarnation.0, HOST.address, HOST.port, options.bytes
    );
    let (output, serial) = io::pipe().map_err(text)?;
    let mut emulator = machine
        .start_on_wire(emulated.as_fd(), &OsString::from(line), Stdio::from(serial))
        .map_err(|error| format!("{}: {error}", machine.emulator))?;
    drop(emulated);
    let lines = thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).collect::<Vec<_>>());
    let relay = Arc::new(Relay {
        adapter,
        node,
        host: SocketAddr::new(host.address, host.polled),
        directions: [Direction::new(options.loss, seed), Direction::new(options.loss, !seed)].map(Mutex::new),
        hardware: Mutex::new(None),
        over: AtomicBool::new(false),
    });
    let threads = [Relay::outward, Relay::inward].map(|run| {
        let relay = Arc::clone(&relay);
        thread::spawn(move || run(&relay))
    });
    let mut regions = Regions::new();
    let mut region = || regions.allocate(PIECE as usize).map_err(text);
    let mut some = || -> Result<Vec<_>, String> { (0..PIECES).map(|_| region()).collect() };
    let (sources, sinks) = (some()?, some()?);
    let array = |regions: Vec<_>| <[_; PIECES]>::try_from(regions).map_err(|_| "regions".to_owned());
    let config = Config::new(PeerId(0), incarnation, &device.limits());
    let sizes = Sizes { peers: 2, windows: 1, operations: 2 * PIECES, placements: PIECES, notices: 16 };
    let began = Instant::now();
    let now = || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut endpoint = Endpoint::<Boxed, WINDOW, 32>::new(now(), config, sizes.pools());
    endpoint.meet(now(), PeerId(1), other, device.limits().mtu);
    let mut transfer = Transfer::new(endpoint, PeerId(1), options.bytes.into(), array(sources)?, array(sinks)?);
    let bell = device.bell(Lane::Polled);
    let mut outcome = Ok(());
    let mut ended = None;
    while outcome.is_ok() && !transfer.is_over() {
        match transfer.step(now(), &mut device, &regions) {
            Ok(true) => {}
            Ok(false) => {
                bell.wait(Some(PAUSE));
                if began.elapsed() > LONGEST {
                    outcome = Err(format!("after {LONGEST:?}: {transfer:?}"));
                }
                if ended.is_none() {
                    ended = emulator.try_wait().map_err(text)?;
                }
                if ended.is_some_and(|status| status.code() != Some(DONE)) {
                    outcome = Err("the image has ended".to_owned());
                }
            }
            Err(error) => outcome = Err(format!("{error:?}: {transfer:?}")),
        }
    }
    let took = began.elapsed().as_secs_f64();
    let status = loop {
        match emulator.try_wait().map_err(text)? {
            Some(status) => break status,
            None if outcome.is_ok() && began.elapsed() < LONGEST => thread::sleep(Duration::from_millis(10)),
            None => emulator.kill().map_err(text)?,
        }
    };
    relay.over.store(true, Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "the relay panicked")?.map_err(text)?;
    }
    let lines = lines.join().map_err(|_| "no serial line")?;
    for line in &lines {
        eprintln!("node: {line}");
    }
    outcome?;
    if status.code() != Some(DONE) {
        return Err(format!("the image has ended: {status}"));
    }
    let [sent, received] = transfer.hashes();
    let said = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let right = |name, hash: u64| f64::from(u8::from(said(name) == Some(&format!("{hash:016x}"))));
    let bytes = f64::from(options.bytes);
    report.figure("bytes_right", "host to node", right("received", sent) * bytes, "bytes", Limit::Least(100e6));
    report.figure("bytes_right", "node to host", right("sent", received) * bytes, "bytes", Limit::Least(100e6));
    for (direction, of) in relay.directions.iter().zip(["host to node", "node to host"]) {
        let (carried, lost) = direction.lock().map_or((0, 0), |direction| (direction.carried, direction.lost));
        report.figure("frames", of, carried as f64, "frames", Limit::None);
        report.figure(
            "frames_lost",
            of,
            100.0 * lost as f64 / carried as f64,
            "%",
            Limit::Least(90.0 * options.loss.value()),
        );
    }
    let counters = transfer.counters();
    let resent = counters.data_sent() - counters.sent_for(Cause::First);
    let data = resent as f64 / counters.data_sent() as f64;
    report.figure("data_resent", "host", 100.0 * data, "%", Limit::None);
    report.figure("time", "start of the image included", took, "s", Limit::None);
    report.figure("rate", "both directions together", 2.0 * bytes / took / 1e6, "MB/s", Limit::None);
    Ok(())
}
