//! Bar 2 of bare metal: an image without an operating system, on a virtio adapter, and a UDP device of this host
//! exchange memory, both ways at once, while the host loses frames in both directions.
//!
//! ```text
//!  rank 0: endpoint ── UDP device ── socket ── relay (frames, ARP, loss) ── socket ── emulator ── virtio ── endpoint: rank 1
//! ```
//!
//! Both use the same datagram format; the relay only converts between the UDP device's datagrams and frames. One in a
//! hundred frames to the image is repeated cut, lengthened, changed, or made up.
//!
//! `cargo run --release -p unisono-tests --bin virtio`. Requirements: docs/bare-metal.md.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, ExitCode, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use clap::Parser;
use unisono_core::device::{Device, DeviceQueue, TxReason};
use unisono_core::endpoint::{Config, Endpoint};
use unisono_core::ids::{Incarnation, PeerId};
use unisono_ethernet::transfer::{PIECE, PIECES, Transfer};
use unisono_launcher::proxy::EXIT_SUCCESS;
use unisono_memory::endpoint_storage::{BoxedStorage, EndpointSizes};
use unisono_memory::memory_regions::Regions;
use unisono_tests::bare_metal::build_image;
use unisono_tests::bare_metal::frame_relay::{FrameCounts, HOST, NODE, Relay};
use unisono_tests::harness::report::{Limit, Report};
use unisono_udp::fault_injection::Probability;
use unisono_udp::{Options as UdpOptions, Path, Udp};

/// Largest UDP payload: an ordinary Ethernet's.
const MTU: u32 = 1472;
/// Segments per window, as in the image.
const WINDOW: usize = 128;
/// Time limit of an exchange.
const LONGEST: Duration = Duration::from_secs(170);
/// Between two looks when nothing moves.
const PAUSE: Duration = Duration::from_micros(200);
/// The bar's, each way.
const BYTES: u32 = 100_000_000;

/// Exchanges memory with an image over a wire that loses frames.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Bytes each way.
    #[arg(long, default_value_t = BYTES)]
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

/// The image in its emulator.
struct EmulatedNode {
    emulator: Child,
    lines: JoinHandle<Vec<String>>,
}

impl EmulatedNode {
    /// Whether the image has ended. Fails if it ended with an error.
    fn has_ended(&mut self) -> Result<bool, String> {
        match self.emulator.try_wait().map_err(text)? {
            None => Ok(false),
            Some(status) if status.code() == Some(EXIT_SUCCESS) => Ok(true),
            Some(status) => Err(format!("the image has ended: {status}")),
        }
    }

    /// The output of the image, which is killed if it has not ended.
    fn end(mut self) -> Vec<String> {
        // It may have ended.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
        let lines = self.lines.join().unwrap_or_default();
        for line in &lines {
            eprintln!("node: {line}");
        }
        lines
    }
}

fn exchange(options: &Options, seed: u64, report: &mut Report) -> Result<(), String> {
    let machine = build_image(1, "datagrams")?;
    let [incarnation, other] = [(); 2].map(|()| Incarnation(fastrand::u32(..)));
    let udp = UdpOptions { mtu: Some(MTU), ..UdpOptions::new(Ipv4Addr::LOCALHOST.into(), 2) };
    let mut device = Udp::bind(&udp).map_err(text)?;
    let host = device.local().map_err(text)?;
    let host = SocketAddr::new(host.address, host.polled);
    let (relay, emulated, node) = Relay::start(host, options.loss, seed).map_err(text)?;
    let path = Path { address: node.ip(), polled: node.port(), interrupt: node.port() };
    device.set_path(PeerId(1), path, MTU).map_err(text)?;
    let line = format!(
        "rank=1 incarnation={} address={} port={} peer=0 peer_incarnation={} peer_address={} peer_port={} peer_mtu={MTU} bytes={}",
        other.0, NODE.0, NODE.1, incarnation.0, HOST.address, HOST.port, options.bytes
    );
    let (output, serial) = io::pipe().map_err(text)?;
    let started = machine.start_on_wire(emulated.as_fd(), &OsString::from(line), Stdio::from(serial));
    let emulator = started.map_err(|error| format!("{}: {error}", machine.emulator))?;
    drop(emulated);
    let lines = thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).collect());
    let mut node = EmulatedNode { emulator, lines };

    // SAFETY: one thread uses the regions, none of which is freed before the device is gone.
    let mut regions = unsafe { Regions::new() };
    let [sources, sinks] =
        [(); 2].map(|()| [(); PIECES].map(|()| regions.allocate(PIECE as usize).unwrap_or_default()));
    let config = Config::new(PeerId(0), incarnation, &device.limits());
    let sizes = EndpointSizes {
        peers: 2,
        windows: 1,
        operations: 2 * PIECES,
        placements: PIECES,
        control_messages: 16,
        rails: 1,
    };
    let began = Instant::now();
    let now = || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut endpoint = Endpoint::<BoxedStorage, WINDOW, 32>::new(now(), config, sizes.pools());
    endpoint.add_peer(now(), PeerId(1), other, device.limits().mtu);
    let mut transfer = Transfer::new(endpoint, PeerId(1), options.bytes.into(), sources, sinks);
    let bell = device.arrival_waiter(DeviceQueue::Polled);
    let outcome = loop {
        match transfer.step(now(), &mut device, &regions) {
            Err(error) => break Err(format!("{error:?}: {transfer:?}")),
            Ok(true) => continue,
            Ok(false) => {}
        }
        bell.wait(Some(PAUSE));
        match node.has_ended() {
            Err(reason) => break Err(reason),
            Ok(true) if transfer.is_complete() => break Ok(()),
            Ok(_) if began.elapsed() > LONGEST => break Err(format!("after {LONGEST:?}: {transfer:?}")),
            Ok(_) => {}
        }
    };
    let took = began.elapsed().as_secs_f64();
    let (lines, counts) = (node.end(), relay.end().map_err(text)?);
    outcome?;

    let [sent, received] = transfer.hashes();
    let said = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let bytes = f64::from(options.bytes);
    let right = |name, hash: u64| if said(name) == Some(&format!("{hash:016x}")) { bytes } else { 0.0 };
    for (of, right, FrameCounts { carried, lost, .. }) in
        [("host to node", right("received", sent), counts[0]), ("node to host", right("sent", received), counts[1])]
    {
        report.figure("bytes_right", of, right, "bytes", Limit::Least(BYTES.into()));
        report.figure("frames", of, carried as f64, "frames", Limit::None);
        let share = 100.0 * lost as f64 / carried as f64;
        report.figure("frames_lost", of, share, "%", Limit::Least(90.0 * options.loss.value()));
    }
    let refused: f64 =
        ["foreign", "malformed", "corrupt"].iter().filter_map(|name| said(name)?.parse::<f64>().ok()).sum();
    report.figure("frames_broken", "besides, to the node", counts[0].broken as f64, "frames", Limit::None);
    report.figure("frames_refused", "by the node", refused, "frames", Limit::Least(1.0));
    let counters = transfer.counters();
    let first = counters.sent_for(TxReason::First) as f64;
    report.figure("data_resent", "host", 100.0 * (1.0 - first / counters.data_sent() as f64), "%", Limit::None);
    report.figure("time", "start of the image included", took, "s", Limit::None);
    report.figure("rate", "both directions together", 2.0 * bytes / took / 1e6, "MB/s", Limit::None);
    Ok(())
}
