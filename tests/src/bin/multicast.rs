//! Bar 1 of reliable multicast: one root sends to processes of their own over UDP multicast, and every receiver loses
//! datagrams of its own. Hashes must be equal, and the copies sent at most 1.2 times what was lost.

use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::hash::DefaultHasher;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use clap::Parser;
use unisono_core::device::{Device, DeviceQueue, Memory, Received, Slot, Token};
use unisono_core::ids::{GroupId, Incarnation, PeerId, Rank};
use unisono_core::multicast::{AckMode, GroupKey, GroupMember, Ring, SEGMENT_HEADER, Stream, StreamConfig, Topology};
use unisono_core::time::{Nanos, units};
use unisono_memory::memory_regions::Regions;
use unisono_tests::conformance::TestMemory;
use unisono_tests::harness::report::{Limit, Report};
use unisono_udp::{GroupAddress, Path, Udp};

const GROUP: GroupId = GroupId(0);
const WINDOW: usize = 256;
const MEMBERS: usize = 64;
/// Bytes of a message.
const MESSAGE: u32 = 1 << 20;
/// Datagrams of one round.
const BUDGET: u32 = 64;
/// Copies sent per lost segment.
const COPIES: f64 = 1.2;

/// Sends to processes over UDP multicast.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Bytes in all, rounded up to messages of 1 MiB.
    #[arg(long, default_value_t = 1 << 30)]
    bytes: u64,
    /// Receivers.
    #[arg(long, default_value_t = 8)]
    receivers: u32,
    /// Co-roots.
    #[arg(long, default_value_t = 0)]
    co_roots: u32,
    /// Loss at each receiver, in thousandths.
    #[arg(long, default_value_t = 20)]
    loss: u32,
    /// Bytes of a datagram.
    #[arg(long, default_value_t = 8192)]
    mtu: u32,
    /// The address of the interface. For IPv6 not that of the loopback interface, which has no route for multicasts.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST.into())]
    local: IpAddr,
    /// Seed of the losses.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// The rank of this process; without one it starts all of them.
    #[arg(long, hide = true)]
    rank: Option<u32>,
    /// The port of the group.
    #[arg(long, hide = true)]
    port: Option<u16>,
}

type Outcome<T> = Result<T, Box<dyn core::error::Error>>;

impl Options {
    /// The group, which no datagram of leaves this host by IPv6.
    fn group(&self) -> Outcome<GroupAddress> {
        let (ip, interface) = match self.local {
            IpAddr::V4(_) => (Ipv4Addr::new(239, 77, 4, 1).into(), 0),
            IpAddr::V6(_) => (Ipv6Addr::new(0xff11, 0, 0, 0, 0, 0, 0x77, 0x200).into(), self.interface()?),
        };
        Ok(GroupAddress { address: SocketAddr::new(ip, self.port.unwrap_or(20_000)), hops: 1, interface })
    }

    /// The index of the interface.
    fn interface(&self) -> Outcome<u32> {
        let links = unisono_udp::link_addresses();
        let link = links.iter().find(|link| link.address == self.local);
        let name = &link.ok_or_else(|| format!("no interface has the address {}", self.local))?.interface;
        Ok(std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex"))?.trim().parse()?)
    }

    const fn messages(&self) -> u64 {
        self.bytes.div_ceil(MESSAGE as u64)
    }
}

/// A process of the stream.
struct Process {
    device: Udp,
    memory: Regions,
    stream: Box<Stream<Nanos, MEMBERS, WINDOW, 32>>,
    hash: DefaultHasher,
    random: fastrand::Rng,
    loss: u32,
    lost: u64,
    /// Messages that have arrived.
    arrived: u64,
    clock: Instant,
}

impl Process {
    fn new(options: &Options, rank: u32, input: &mut impl BufRead) -> Outcome<Self> {
        let local = options.local;
        let count = options.receivers + 1;
        let mut device = Udp::bind(&unisono_udp::Options {
            mtu: Some(options.mtu),
            groups: 1,
            receive_buffer: 16 << 20,
            ..unisono_udp::Options::new(local, count)
        })?;
        let own = device.local()?;
        println!("{} {}", own.polled, own.interrupt);
        let mut line = String::new();
        input.read_line(&mut line)?;
        let ports: Vec<u16> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        for (peer, ports) in (0..).map(PeerId).zip(ports.chunks_exact(2)) {
            let path = Path { address: local, polled: ports[0], interrupt: ports[1] };
            device.set_path(peer, path, options.mtu)?;
        }
        device.set_group(GROUP, options.group()?)?;
        device.join(GROUP)?;
        // SAFETY: one thread uses the device and the memory, and nothing is revoked before the end.
        let mut memory = unsafe { Regions::new() };
        let segment_bytes = device.limits().mtu - SEGMENT_HEADER as u32;
        let region = memory.make(WINDOW * segment_bytes as usize);
        let mode = if options.co_roots > 0 { AckMode::CoRoot { count: options.co_roots } } else { AckMode::Basic };
        let config = StreamConfig {
            topology: Topology { mode, founders: count, root: Rank(0) },
            ack_every: WINDOW as u32 / 8,
            granularity: units(u64::from(device.limits().granularity_ns)),
            max_interval: units(20_000_000),
            deaf_sample: 0,
        };
        let key = GroupKey { group: GROUP, epoch: options.seed << 32 | 0x5eed };
        let members = (0..count).map(|rank| GroupMember { peer: PeerId(rank), incarnation: Incarnation(rank + 1) });
        let ring = Ring { region, offset: 0, segment_bytes };
        let stream = Box::new(Stream::new(key, config, Rank(rank), members, ring));
        println!("joined");
        line.clear();
        input.read_line(&mut line)?;
        Ok(Self {
            device,
            memory,
            stream,
            hash: DefaultHasher::new(),
            random: fastrand::Rng::with_seed(options.seed + u64::from(rank)),
            loss: if rank == 0 { 0 } else { options.loss },
            lost: 0,
            arrived: 0,
            clock: Instant::now(),
        })
    }

    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn receive(&mut self) -> bool {
        for received in 0..BUDGET {
            let now = self.now();
            let Some(datagram) = self.device.receive(DeviceQueue::Polled) else { return received > 0 };
            let slot: Slot = datagram.slot();
            let is_segment = datagram.bytes() >= SEGMENT_HEADER as u32 && datagram.prefix()[0] & 15 == 11;
            let place = if self.random.u32(..1000) < self.loss {
                self.lost += u64::from(is_segment);
                None
            } else {
                self.stream.handle_datagram(now, &datagram)
            };
            if let Some((span, address)) = place.and_then(|span| Some((span, self.memory.address(span)?))) {
                self.device.place(slot, SEGMENT_HEADER as u16, span.bytes, address);
            }
            self.device.release(slot);
            while let Some(delivery) = self.stream.poll_delivery() {
                let span = delivery.payload;
                self.hash.write(&self.memory.read(span.region, span.offset, span.bytes as usize));
                self.arrived += u64::from(delivery.is_last);
            }
        }
        true
    }

    fn transmit(&mut self) -> bool {
        let now = self.now();
        if self.stream.poll_timeout().is_some_and(|at| now >= at) {
            self.stream.handle_timeout(now);
        }
        let mut posted = false;
        for _ in 0..BUDGET {
            let Some(mut token) = self.device.token(DeviceQueue::Polled) else { break };
            let Some(transmit) = self.stream.poll_transmit(now, token.header_room()) else { break };
            token.post(&transmit, transmit.payload.and_then(|span| self.memory.address(span)));
            posted = true;
        }
        if posted {
            self.device.flush(DeviceQueue::Polled);
        }
        posted
    }

    fn progress(&mut self) {
        let moved = self.receive();
        if !(self.transmit() | moved) {
            let _ = self.device.arrival_waiter(DeviceQueue::Polled).wait(Some(Duration::from_micros(500)));
        }
    }

    /// Sends everything, and waits until it is acknowledged.
    fn send(&mut self, messages: u64) {
        let mut random = fastrand::Rng::with_seed(1);
        let content: Vec<u8> = core::iter::repeat_with(|| random.u8(..)).take(2 << 20).collect();
        let (mut message, mut index, mut start) = (0, 0, 0);
        while message < messages || !self.stream.is_idle() {
            while message < messages
                && let Ok(span) = self.stream.enqueue(index, MESSAGE)
            {
                let from = (message as usize * 4099 % (1 << 20)) + start;
                let part = &content[from..from + span.bytes as usize];
                self.memory.write(span.region, span.offset, part);
                self.hash.write(part);
                (index, start) = (index + 1, start + span.bytes as usize);
                if start == MESSAGE as usize {
                    (message, index, start) = (message + 1, 0, 0);
                }
            }
            self.progress();
        }
    }
}

/// Whether the parent has closed the pipe.
static IS_OVER: AtomicBool = AtomicBool::new(false);

fn child(options: &Options, rank: u32) -> Outcome<()> {
    let mut input = BufReader::new(std::io::stdin());
    let mut process = Process::new(options, rank, &mut input)?;
    std::thread::spawn(move || {
        let _ = input.read_line(&mut String::new());
        IS_OVER.store(true, Ordering::Relaxed);
    });
    if rank == 0 {
        process.send(options.messages());
    } else {
        while process.arrived < options.messages() && !IS_OVER.load(Ordering::Relaxed) {
            process.progress();
        }
    }
    // A member answers until the root needs nothing more.
    if rank != 0 {
        while !IS_OVER.load(Ordering::Relaxed) {
            process.progress();
        }
    }
    let seconds = process.clock.elapsed().as_secs_f64();
    let counters = process.stream.counters();
    let drops = process.device.group_drops(GROUP).unwrap_or(0);
    println!(
        "{} {} {} {} {} {} {} {} {drops} {seconds}",
        process.hash.finish(),
        process.lost,
        counters.sent,
        counters.repaired,
        counters.repaired_all,
        counters.probes,
        counters.reports,
        counters.duplicates
    );
    Ok(())
}

/// What a process reports at its end.
#[derive(Clone, Debug, Default)]
struct Figures {
    hash: u64,
    lost: u64,
    sent: u64,
    repaired: u64,
    repaired_all: u64,
    probes: u64,
    reports: u64,
    duplicates: u64,
    drops: u64,
    seconds: f64,
}

impl Figures {
    fn parse(line: &str) -> Outcome<Self> {
        let mut words = line.split_whitespace();
        let mut next = || words.next().ok_or("a process reported too little");
        Ok(Self {
            hash: next()?.parse()?,
            lost: next()?.parse()?,
            sent: next()?.parse()?,
            repaired: next()?.parse()?,
            repaired_all: next()?.parse()?,
            probes: next()?.parse()?,
            reports: next()?.parse()?,
            duplicates: next()?.parse()?,
            drops: next()?.parse()?,
            seconds: next()?.parse()?,
        })
    }
}

/// A process, its output and its input.
struct Started {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Started {
    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() { Err("a process ended early".into()) } else { Ok(line) }
    }

    fn say(&mut self, line: &str) -> Outcome<()> {
        Ok(writeln!(self.child.stdin.as_mut().ok_or("no pipe")?, "{line}")?)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It has ended, or is not needed any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(options: &Options) -> Outcome<Vec<Figures>> {
    let port = 20_000 + (std::process::id() % 20_000) as u16;
    let mut started = Vec::new();
    for rank in 0..=options.receivers {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args().skip(1)).args(["--rank", &rank.to_string(), "--port", &port.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        started.push(Started { child, output });
    }
    let ports = started.iter_mut().map(Started::line).collect::<Outcome<Vec<_>>>()?;
    let ports = ports.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    started.iter_mut().try_for_each(|process| process.say(&ports))?;
    for process in &mut started {
        process.line()?;
    }
    started.iter_mut().try_for_each(|process| process.say("go"))?;
    // The root ends first; then the pipes of the members are closed.
    let mut figures = vec![Figures::parse(&started[0].line()?)?];
    for process in started.iter_mut().skip(1) {
        drop(process.child.stdin.take());
        figures.push(Figures::parse(&process.line()?)?);
    }
    Ok(figures)
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(rank) = options.rank {
        return match child(&options, rank) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("rank {rank}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let figures = match run(&options) {
        Ok(figures) => figures,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut report = Report::new(1, options.json);
    let members = figures.iter().skip(1);
    let equal = members.clone().filter(|member| member.hash == figures[0].hash).count();
    let injected: u64 = members.clone().map(|member| member.lost).sum();
    let drops: u64 = members.clone().map(|member| member.drops).sum();
    let duplicates: u64 = members.map(|member| member.duplicates).sum();
    let copies: u64 = figures.iter().map(|process| process.repaired + process.repaired_all).sum();
    let lost = (injected + drops).max(1);
    let of = format!("{} receivers, {} co-roots, {} MiB", options.receivers, options.co_roots, options.messages());
    let bytes = (options.messages() * u64::from(MESSAGE)) as f64;
    report.figure("equal_hashes", &of, equal as f64, "receivers", Limit::Least(f64::from(options.receivers)));
    report.figure("copies_per_loss", &of, copies as f64 / lost as f64, "", Limit::Most(COPIES));
    report.figure("lost_by_injection", &of, injected as f64, "", Limit::Least(f64::from(options.loss.min(1))));
    report.figure("dropped_by_kernel", &of, drops as f64, "", Limit::None);
    report.figure("segments_sent", &of, figures[0].sent as f64, "", Limit::None);
    report.figure("sent_again_to_all", &of, figures[0].repaired_all as f64, "", Limit::None);
    report.figure("arrived_twice", &of, duplicates as f64, "", Limit::None);
    report.figure("probes_of_root", &of, figures[0].probes as f64, "", Limit::None);
    report.figure("reports_at_root", &of, figures[0].reports as f64, "", Limit::None);
    report.figure("megabytes_per_s", &of, bytes / figures[0].seconds / 1e6, "MB/s", Limit::None);
    report.end()
}
