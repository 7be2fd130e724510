//! The program in the virtual machine of `--bin vm`: runs one check of the UD device. Ends with status 1 when it fails.

use core::hash::Hasher;
use core::net::IpAddr;
use core::time::Duration;
use std::env;
use std::hash::DefaultHasher;
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::{Parser, Subcommand};
use unisono::environment::QueuesChoice;
use unisono::{RKey, Rank, Rights, Tag, WindowError, World};
use unisono_core::device::TxReason;
use unisono_tests::collectives::{Collective, Rounds};
use unisono_tests::conformance::{Finding, Outcome as Kept, UdFixture, examine};
use unisono_tests::harness::report::{Limit, Report};
use unisono_tests::verbs::{self, Adapter, Contender, Measure, Outcome};
use unisono_tests::windows::WindowRounds;
use unisono_verbs::ud::{Domain, QueueChoice, UdOptions as Ud, adapters};

/// Rounds of latencies in a turn of comparisons.
const ROUNDS: usize = 3;
/// Variation of the kernel's memory while idle.
const KERNEL_NOISE_KIB: u64 = 512;

/// Checks of the UD device.
#[derive(Parser, Debug)]
struct Options {
    /// Who writes the queues: auto, library or raw; of the adapters in turn
    #[arg(long, global = true, value_delimiter = ',', default_value = "auto")]
    queues: Vec<QueuesChoice>,
    #[command(subcommand)]
    check: Check,
}

#[derive(Subcommand, Debug)]
enum Check {
    /// The adapters, and the GID that is chosen of each
    Adapters,
    /// The conformance suite, over all adapters
    Conformance {
        /// Only the cases whose name contains this are printed
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Bytes from the first adapter to the second
    Transfer {
        /// How many
        #[arg(long, default_value_t = 100_000_000)]
        bytes: usize,
        /// Least number of resent datagrams: the link is faulty
        #[arg(long, default_value_t = 0)]
        resent: u64,
    },
    /// Datagrams to a group that all adapters joined
    Multicast {
        /// The group
        group: IpAddr,
    },
    /// A sleeping process is woken
    Interrupt,
    /// Memory that is wanted back while something is posted that names it
    Lending,
    /// Queue pairs in error
    QueueFailure,
    /// Queue pairs of our own that cannot be made
    HalfMade,
    /// A completion queue is overrun
    Overrun,
    /// An interface goes down and up
    LinkFailure {
        /// That of the first adapter
        interface: String,
    },
    /// Device and endpoint against perftest, UCX and libfabric, turn by turn
    Compare {
        /// How often
        #[arg(long, default_value_t = 10)]
        turns: usize,
        /// Only these
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Fails when the bars are missed
        #[arg(long)]
        bar: bool,
    },
    /// Who writes its queues, latency and rate of one of them, once
    Turn {
        /// Who
        contender: String,
        /// Not the rate
        #[arg(long)]
        latency: bool,
    },
    /// The other end of an endpoint's turn
    Answer {
        /// Whose
        contender: String,
        /// What is measured: latency or rate
        measure: String,
        /// On which adapter
        adapter: String,
    },
    /// Wakes up on both processors every 10 ms, for ever
    Stir,
    /// Memory against the number of peers
    Memory,
    /// One line of it, in a process of its own: KiB of the process, of its rings and of the kernel, address handles
    Footprint {
        /// Peers that have a path
        known: u32,
        /// Those of them that something was sent to
        active: u32,
    },
    /// How long an address handle takes, and whether it outlives windows
    Handles,
    /// Rounds of puts and gets of regions, as a rank of a job
    Regions {
        /// Bytes of a region
        #[arg(long)]
        bytes: usize,
        /// How many rounds
        #[arg(long, default_value_t = 10)]
        rounds: u32,
    },
    /// Rounds of one-sided operations with known values, as a rank of a job
    Windows {
        /// Bytes that each rank writes and reads in a round
        #[arg(long)]
        bytes: usize,
        /// How many rounds
        #[arg(long, default_value_t = 40)]
        rounds: u32,
        /// Pause after each round, in milliseconds
        #[arg(long, default_value_t = 0)]
        pause: u64,
        /// How long to read back what was written, after each round, in milliseconds
        #[arg(long, default_value_t = 0)]
        reading: u64,
    },
    /// Messages around a ring, several at a time, and all collectives, of known values, as a rank of a job
    Messages {
        /// Bytes of a message, and of a vector
        #[arg(long)]
        bytes: usize,
        /// How many rounds of messages
        #[arg(long, default_value_t = 20)]
        rounds: u32,
        /// No collectives
        #[arg(long)]
        alone: bool,
        /// Pause after each round, in milliseconds
        #[arg(long, default_value_t = 0)]
        pause: u64,
    },
    /// Alltoalls of known values, as a rank of a job: blocking ones, and rounds of a persistent one
    AllToAll {
        /// Bytes of a block, a multiple of 8
        #[arg(long)]
        bytes: usize,
        /// How many of each
        #[arg(long, default_value_t = 20)]
        rounds: u64,
    },
    /// Broadcasts of random bytes from rank 0, as a rank of a job: all ranks must have the same hash in the end
    Broadcast {
        /// Bytes of a broadcast
        #[arg(long)]
        bytes: usize,
        /// How many
        #[arg(long)]
        rounds: u64,
    },
    /// Operations over reliable connections, at their edges
    RcOperations {
        /// The link loses packets
        #[arg(long)]
        lossy: bool,
    },
    /// An interface is removed
    Removal {
        /// That of the first adapter
        interface: String,
    },
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(Options { queues: choices, check }: &Options) -> Outcome<()> {
    let names = adapters()?;
    let queues = choices.iter().map(|choice| QueueChoice::from(*choice)).cycle();
    let all: Vec<_> = names.iter().zip(queues).map(|(name, queues)| Adapter { name, queues }).collect();
    let pair = || match *all {
        [first, second, ..] => Ok([first, second]),
        _ => Err("two adapters are needed"),
    };
    match check {
        Check::Adapters => {
            for name in &names {
                let domain = Domain::open(Some(name))?;
                let (gid, mtu) = (domain.gid(), domain.mtu());
                println!(
                    "{name:<8} port {}, GID {} ({:?}, index {}, interface {}), mtu {mtu}, provider {}",
                    domain.port(),
                    gid.gid,
                    gid.encapsulation,
                    gid.index,
                    gid.interface,
                    domain.provider().map_or_else(|| "none".to_owned(), |provider| provider.to_string())
                );
            }
        }
        Check::Conformance { only } => {
            let options = |queues| Ud { groups: 2, receive_slots: 256, holdable: 64, queues, ..Ud::new(3, 0x7e57) };
            let adapters: Vec<_> = all.iter().map(|one| (one.name.to_owned(), options(one.queues))).collect();
            return conformance(&examine(|| UdFixture::new(adapters.clone())), only);
        }
        Check::Transfer { bytes, resent } => {
            let done = verbs::transfer(pair()?, *bytes)?;
            let again = [TxReason::ResentNack, TxReason::ResentProbe].map(|cause| done.sent.sent_for(cause));
            println!("{bytes} bytes in {:.2} s, {} wrong", done.time.as_secs_f64(), done.wrong);
            println!("resent after a gap {}, after a probe {}, needlessly {}", again[0], again[1], done.sent.spurious);
            if done.wrong > 0 || again.iter().sum::<u64>() < *resent {
                return Err("not byte for byte, or over a link without faults".into());
            }
        }
        Check::Multicast { group } => println!("{} datagrams received", verbs::multicast(&all, *group)?),
        Check::Interrupt => {
            let [slept, busy] = verbs::interrupt(pair()?)?;
            println!("slept {} ms, {} µs of processor time", slept.as_millis(), busy.as_micros());
        }
        Check::Lending => println!("{} postings were under way", verbs::buffer_release(pair()?)?),
        Check::QueueFailure => println!("made anew {} times", verbs::queue_failure(pair()?)?),
        Check::HalfMade => println!("refused up to {} pages", verbs::failed_creation(pair()?[0])?),
        Check::Overrun => println!("overrun {} times", verbs::overrun(pair()?)?),
        Check::LinkFailure { interface } => {
            println!("traffic again after {} ms", verbs::link_failure(pair()?, interface)?.as_millis());
        }
        Check::Compare { turns, only, bar } => return compare(*turns, only, *bar),
        Check::Turn { contender, latency: only } => {
            let one = called(contender)?;
            let pair = pair()?.map(|adapter| adapter.name);
            let latency = one.latency(pair)?;
            let rate = if *only { None } else { one.rate(pair)? }.unwrap_or(f64::NAN);
            println!("{} {latency} {rate}", one.writer(pair[0])?);
        }
        Check::Answer { contender, measure, adapter } => {
            let measure = Measure::ALL.into_iter().find(|one| one.name() == measure).ok_or("unknown measurement")?;
            called(contender)?.serve(measure, adapter)?;
        }
        Check::Stir => verbs::wake_processors()?,
        Check::Memory => return memory(choices),
        Check::Footprint { known, active } => {
            let one = verbs::footprint(pair()?, *known, *active)?;
            println!("{} {} {} {}", one.process_kib, one.rings_kib, one.kernel_kib, one.handles);
        }
        Check::Handles => {
            let done = verbs::handles(pair()?)?;
            println!(
                "a handle takes {:.0} µs; {} messages 20 ms apart took {} more",
                done.one_us, done.messages, done.made
            );
            if done.made > 0 {
                return Err("handles go with windows".into());
            }
        }
        Check::Windows { bytes, rounds, pause, reading } => {
            return windows(*bytes, *rounds, [*pause, *reading].map(Duration::from_millis));
        }
        Check::Messages { bytes, rounds, alone, pause } => {
            return messages(*bytes, *rounds, *alone, Duration::from_millis(*pause));
        }
        Check::Regions { bytes, rounds } => return regions(*bytes, *rounds),
        Check::AllToAll { bytes, rounds } => return all_to_all(*bytes, *rounds),
        Check::Broadcast { bytes, rounds } => return broadcast(*bytes, *rounds),
        Check::RcOperations { lossy } => verbs::rc_operations(&all, *lossy)?,
        Check::Removal { interface } => {
            println!("closed after {} ms", verbs::removal(pair()?, interface)?.as_millis());
        }
    }
    Ok(())
}

/// The round after which the work has begun.
const BEGUN: u32 = 2;

fn windows(bytes: usize, rounds: u32, [pause, reading]: [Duration; 2]) -> Outcome<()> {
    let world = World::join()?;
    let played = WindowRounds::new(&world, bytes)?;
    for number in 0..rounds {
        played.round(number).map_err(|error| format!("rank {}, round {number}: {error}", world.rank()))?;
        if number == BEGUN {
            println!("begun");
        }
        let began = Instant::now();
        while began.elapsed() < reading {
            played.read_back(number)?;
        }
        std::thread::sleep(pause);
    }
    drop(played);
    Ok(world.finish()?)
}

/// Messages of each rank to the next one that are under way at a time.
const UNDER_WAY: usize = 3;

fn messages(bytes: usize, rounds: u32, alone: bool, pause: Duration) -> Outcome<()> {
    let world = World::join()?;
    let (own, size) = (world.rank().0, world.size());
    let [next, before] = [own + 1, own + size - 1].map(|rank| Rank(rank % size));
    let sent = |rank: u32, round: u32, which: usize| {
        let first = rank.wrapping_mul(31).wrapping_add(round.wrapping_mul(7)).wrapping_add(which as u32);
        (0..bytes).map(|at| first.wrapping_add(at as u32).wrapping_add(at as u32 >> 12) as u8).collect::<Vec<u8>>()
    };
    for round in 0..rounds {
        let [given, wanted]: [Vec<_>; 2] =
            [own, before.0].map(|rank| (0..UNDER_WAY).map(|which| sent(rank, round, which)).collect());
        let mut taken = vec![vec![0; bytes]; UNDER_WAY];
        world.scope(|scope| {
            let mut receives = Vec::new();
            for (into, tag) in taken.iter_mut().zip(1..) {
                receives.push(scope.immediate_receive_into(&mut into[..], before, Tag(tag))?);
            }
            let mut sends = Vec::new();
            for (data, tag) in given.iter().zip(1..) {
                sends.push(scope.immediate_send(&data[..], next, Tag(tag))?);
            }
            receives.into_iter().chain(sends).try_for_each(|request| request.wait().map(|_| ()))
        })?;
        if taken != wanted {
            return Err(format!("rank {own}, round {round}: wrong bytes").into());
        }
        if round == BEGUN {
            println!("begun");
        }
        std::thread::sleep(pause);
    }
    for (collective, number) in Collective::all().into_iter().filter(|_| !alone).zip(0..) {
        let mut played = Rounds::new(&world, bytes);
        played.round(collective, number).map_err(|error| format!("rank {own}, {collective}: {error}"))?;
    }
    Ok(world.finish()?)
}

/// Each rank writes regions of the next one, reads them back, and is refused the last one once it is revoked.
fn regions(bytes: usize, rounds: u32) -> Outcome<()> {
    let world = World::join()?;
    let (own, size) = (world.rank().0, world.size());
    let [next, before] = [own + 1, own + size - 1].map(|rank| rank % size);
    let sent = |rank: u32, round: u32| vec![(rank * 31 + round + 1) as u8; bytes];
    for round in 0..rounds {
        let region = world.allocate_region(bytes, Rights::READ | Rights::WRITE)?;
        let mut keys = vec![RKey::NONE; size as usize];
        world.all_gather_into(&[region.rkey()], &mut keys[..])?;
        let there = world.import_region(&keys[next as usize])?;
        let (mut back, mut arrived) = (vec![0; bytes], vec![0; bytes]);
        there.put(&sent(own, round), 0)?;
        there.flush()?;
        there.get(&mut back, 0)?;
        world.barrier()?;
        region.read(0, &mut arrived)?;
        if back != sent(own, round) || arrived != sent(before, round) {
            return Err(format!("rank {own}, round {round}: wrong bytes").into());
        }
        region.revoke()?;
        world.barrier()?;
        // What the target's adapter refuses ends the connection.
        if round + 1 == rounds {
            let refused = there.get(&mut back, 0);
            if refused != Err(WindowError::Revoked(Rank(next))) {
                return Err(format!("rank {own}: a get of a revoked region: {refused:?}").into());
            }
        }
    }
    Ok(world.finish()?)
}

fn all_to_all(bytes: usize, rounds: u64) -> Outcome<()> {
    let world = World::join()?;
    let (own, size) = (u64::from(world.rank().0), u64::from(world.size()));
    let blocks = |value: &dyn Fn(u64) -> u64| (0..size).flat_map(|of| vec![value(of); bytes / 8]).collect::<Vec<u64>>();
    let sent = |round: u64| blocks(&|to| round << 32 | own << 16 | to);
    let wanted = |round: u64| blocks(&|from| round << 32 | from << 16 | own);
    for round in 0..rounds {
        let mut taken = sent(0);
        world.all_to_all_into(&sent(round), &mut taken)?;
        if taken != wanted(round) {
            return Err(format!("rank {own}, round {round}: wrong blocks").into());
        }
    }
    let (mut given, mut taken) = (sent(0), sent(0));
    world.scope(|scope| {
        let mut request = scope.persistent_all_to_all_into(&mut given, &mut taken)?;
        for round in rounds..2 * rounds {
            request.data()?.copy_from_slice(&sent(round));
            request.start()?;
            request.wait()?;
            if request.result()? != wanted(round) {
                return Err(format!("rank {own}, round {round}: wrong blocks").into());
            }
        }
        Outcome::Ok(())
    })?;
    Ok(world.finish()?)
}

fn broadcast(bytes: usize, rounds: u64) -> Outcome<()> {
    let world = World::join()?;
    let (mut random, mut hash) = (fastrand::Rng::with_seed(rounds), DefaultHasher::new());
    let (mut data, began) = (vec![0; bytes], Instant::now());
    for _ in 0..rounds {
        if world.rank() == Rank(0) {
            random.fill(&mut data);
        }
        world.broadcast_into(&mut data[..], Rank(0))?;
        hash.write(&data);
    }
    let mut hashes = vec![0; world.size() as usize];
    world.all_gather_into(&[hash.finish()], &mut hashes[..])?;
    if world.rank() == Rank(0) {
        println!("{} bytes in {:.1} s, hashes {hashes:x?}", bytes as u64 * rounds, began.elapsed().as_secs_f64());
    }
    if hashes.iter().any(|hash| *hash != hashes[0]) {
        return Err(format!("rank {}: not all ranks have the same bytes", world.rank()).into());
    }
    Ok(world.finish()?)
}

/// The contender of this name.
fn called(name: &str) -> Outcome<Contender> {
    Ok(Contender::ALL.into_iter().find(|one| one.name() == name).ok_or("unknown contender")?)
}

fn conformance(findings: &[Finding], only: &str) -> Outcome<()> {
    let mut broken = 0;
    for finding in findings {
        broken += usize::from(matches!(finding.outcome, Kept::Broken(_)));
        if finding.case.contains(only) {
            match &finding.outcome {
                Kept::Kept => println!("kept     {}", finding.case),
                Kept::Skipped(why) => println!("skipped  {} ({why})", finding.case),
                Kept::Broken(breach) => println!("BROKEN   {}: {breach}", finding.case),
            }
        }
    }
    let skipped = findings.iter().filter(|finding| matches!(finding.outcome, Kept::Skipped(_))).count();
    if broken > 0 || skipped > 0 {
        return Err(format!("{broken} promises broken, {skipped} cases skipped that apply").into());
    }
    Ok(())
}

/// All contenders in turn, repeatedly, each time in a process of its own: three rounds of latencies, forwards and
/// backwards by turns, and in the last of them rates. Ratios are those of one round. The bars: the device's latency is
/// at most 1.3 times that of perftest's bare loop and its rate at least 0.8 of it; the endpoint is faster than UCX and
/// libfabric, which give the same guarantees.
fn compare(turns: usize, only: &[String], bar: bool) -> Outcome<()> {
    let chosen = |one: &Contender| only.is_empty() || only.iter().any(|name| name == one.name());
    let contenders: Vec<_> = Contender::ALL.into_iter().filter(chosen).collect();
    let mut figures = vec![[Vec::new(), Vec::new()]; Contender::ALL.len()];
    let mut labels = Contender::ALL.map(|one| one.name().to_owned());
    let mut stirring = Command::new(env::current_exe()?).arg("stir").spawn()?;
    for round in 0..turns * ROUNDS {
        print!("turn {}.{}", round / ROUNDS + 1, round % ROUNDS + 1);
        let rates = round % ROUNDS == ROUNDS - 1;
        let mut order = contenders.clone();
        if round % 2 == 1 {
            order.reverse();
        }
        for one in order {
            let all = &mut figures[one as usize];
            let only = if rates { &[][..] } else { &["--latency"] };
            let [writer, latency, rate] = words_of(&[&["turn", one.name()], only].concat())?;
            labels[one as usize] = format!("{} ({writer})", one.name());
            let latency = latency.parse()?;
            all[0].push(latency);
            print!(" {} {latency:.1} us", labels[one as usize]);
            if rates {
                let rate = rate.parse()?;
                all[1].push(rate);
                print!(" {rate:.1} MB/s");
            }
        }
        println!();
    }
    stirring.kill()?;
    let mut report = Report::new(2, false);
    for (kind, (name, unit)) in [("one_way", "us"), ("delivered", "MB/s")].into_iter().enumerate() {
        for one in &contenders {
            report.figure(
                name,
                &labels[*one as usize],
                verbs::median(&figures[*one as usize][kind]),
                unit,
                Limit::None,
            );
        }
    }
    use Contender::{
        Device, Endpoint, Libfabric, LibraryDevice, LibraryEndpoint, Perftest, RawDevice, RawEndpoint, Ucx,
    };
    for (kind, name, ours, theirs, limit) in [
        (0, "one_way", Device, Perftest, Limit::Most(1.3)),
        (1, "delivered", Device, Perftest, Limit::Least(0.8)),
        (0, "one_way", LibraryDevice, Perftest, Limit::Most(1.3)),
        (1, "delivered", LibraryDevice, Perftest, Limit::Least(0.8)),
        (0, "one_way", RawDevice, Perftest, Limit::Most(1.3)),
        (1, "delivered", RawDevice, Perftest, Limit::Least(0.8)),
        (0, "one_way", Endpoint, Perftest, Limit::None),
        (1, "delivered", Endpoint, Perftest, Limit::None),
        (0, "one_way", Endpoint, Ucx, Limit::Most(1.0)),
        (1, "delivered", Endpoint, Ucx, Limit::Least(1.0)),
        (0, "one_way", LibraryEndpoint, Ucx, Limit::Most(1.0)),
        (1, "delivered", LibraryEndpoint, Ucx, Limit::Least(1.0)),
        (0, "one_way", RawEndpoint, Ucx, Limit::Most(1.0)),
        (1, "delivered", RawEndpoint, Ucx, Limit::Least(1.0)),
        (0, "one_way", RawEndpoint, LibraryEndpoint, Limit::None),
        (0, "one_way", Endpoint, Libfabric, Limit::Most(1.0)),
    ] {
        let both = figures[ours as usize][kind].iter().zip(&figures[theirs as usize][kind]);
        let ratios: Vec<_> = both.map(|(ours, theirs)| ours / theirs).collect();
        let of = format!("{} / {}", ours.name(), theirs.name());
        if !ratios.is_empty() {
            let unit = verbs::interval(&ratios).map(|[low, high]| format!("{low:.2}..{high:.2}")).unwrap_or_default();
            report.figure(name, &of, verbs::median(&ratios), &unit, if bar { limit } else { Limit::None });
        }
    }
    if report.is_met() { Ok(()) } else { Err("a bar is missed".into()) }
}

/// Runs this program in a process of its own. Returns the words of its line.
fn words_of<const N: usize>(arguments: &[&str]) -> Outcome<[String; N]> {
    let output = Command::new(env::current_exe()?).args(arguments).output()?;
    let line = String::from_utf8(output.stdout)?;
    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    words.try_into().map_err(|_| line.into())
}

/// Known and active peers grow: the rings must not, nor the process beyond the records of known ones, nor the kernel
/// beyond the address handles of active ones.
fn memory(queues: &[QueuesChoice]) -> Outcome<()> {
    let queues: Vec<_> = queues.iter().map(ToString::to_string).collect();
    println!(
        "{:>6} {:>6} {:>12} {:>12} {:>12} {:>8}",
        "known", "active", "process KiB", "rings KiB", "kernel KiB", "handles"
    );
    let mut footprints = Vec::new();
    for (known, active) in [(1, 1), (16, 1), (64, 1), (256, 1), (1024, 1), (4096, 1), (4096, 16), (4096, 64)] {
        let line =
            words_of::<4>(&["footprint", "--queues", &queues.join(","), &known.to_string(), &active.to_string()])?;
        let [process, rings, kernel, handles] = &line;
        println!("{known:>6} {active:>6} {process:>12} {rings:>12} {kernel:>12} {handles:>8}");
        let mut footprint = [0_u64; 4];
        for (figure, word) in footprint.iter_mut().zip(&line) {
            *figure = word.parse()?;
        }
        footprints.push(footprint);
    }
    let (least, most) = (footprints[0], footprints[5]);
    let idle = most[0].saturating_sub(least[0]);
    println!("4095 more idle peers: {idle} KiB, {:.0} bytes each", idle as f64 * 1024.0 / 4095.0);
    let rings = footprints.iter().any(|one| one[1] != least[1]);
    let kernel = most[2] > least[2] + KERNEL_NOISE_KIB;
    if idle * 1024 > 4095 * 128 || rings || kernel || footprints[7][3] > 64 {
        return Err("idle peers cost memory".into());
    }
    Ok(())
}
