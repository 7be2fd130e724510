//! Bar 8 of shared memory: one rank writes garbage into the segment while the others communicate. They end with typed
//! errors, or with wrong data; none crashes, panics or waits for ever, and nothing is left behind.

use core::time::Duration;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use unisono::environment::InheritedSegment;
use unisono::{Failure, Rank, Tag, World};
use unisono_shmem::host::file::{Mapping, reopen};
use unisono_shmem::layout::{Area, COMMUNICATOR_SLOTS, PAGE, SegmentLayout};
use unisono_shmem::segment::{Segment, Site};
use unisono_tests::collectives::{Collective, Form, RoundError, Rounds};
use unisono_tests::harness::job::{Job, Leftovers, now};
use unisono_tests::harness::report::{Limit, Report, quantile};

/// Time limit for every other rank to end, as `docs/using.md` states.
const BOUND: Duration = Duration::from_secs(2);
/// Time limit for a job to start and write its garbage.
const START: Duration = Duration::from_secs(20);
/// How long the writer of garbage continues afterwards, if it does.
const AFTER_WRITE: Duration = Duration::from_millis(300);
/// Rounds before any garbage.
const WARM: u32 = 2;
/// Bytes of the messages: in an entry, in a ring's bulk, copied out of the other process, in the segment.
const MESSAGES: [usize; 4] = [16, 3000, 20_000, 100_000];

/// Lets one rank write garbage, and watches how the others end.
#[derive(Parser, Clone, Debug)]
struct Options {
    /// Jobs of each kind of garbage.
    #[arg(long, default_value_t = 24)]
    runs: usize,
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Garbage of this kind alone.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
    /// A rank of a job.
    #[arg(long, hide = true)]
    member: bool,
    #[arg(long, hide = true, default_value_t = 0)]
    vandal: u32,
    /// Microseconds until it writes.
    #[arg(long, hide = true, default_value_t = 0)]
    delay: u64,
    /// It continues as before.
    #[arg(long, hide = true)]
    lingers: bool,
    #[arg(long, hide = true)]
    mark: Option<String>,
}

/// The overwritten words.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Every word.
    Everywhere,
    /// Every word that the rank may write.
    Own,
    /// A piece anywhere, of up to a MiB.
    Piece,
    /// A page that is in use: zeros.
    Zeros,
    /// A page that is in use: ones.
    Ones,
    /// Every word, repeatedly, while the ranks join.
    Early,
}

const KINDS: [(&str, Kind); 6] = [
    ("every word", Kind::Everywhere),
    ("own words", Kind::Own),
    ("piece", Kind::Piece),
    ("page of 0", Kind::Zeros),
    ("page of ff", Kind::Ones),
    ("every word, early", Kind::Early),
];

#[derive(Clone, Copy, Debug)]
struct Run {
    kind: &'static str,
    ranks: u32,
    vandal: u32,
    delay: u64,
    lingers: bool,
    seed: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.member { member(&options) } else { judge(&options) }
}

fn judge(options: &Options) -> ExitCode {
    let mut random = fastrand::Rng::with_seed(options.seed);
    let (before, began) = (Leftovers::now(), Instant::now());
    let mut report = Report::new(8, options.json);
    for (kind, _) in KINDS.into_iter().filter(|(_, kind)| options.kind.is_none_or(|only| only == *kind)) {
        let (mut times, mut well, mut harmed, mut stood) = (Vec::new(), 0, 0, 0);
        for _ in 0..options.runs {
            let ranks = random.u32(2..=4);
            let (delay, lingers, seed) = (random.u64(0..20_000), random.bool(), random.u64(..));
            let run = Run { kind, ranks, vandal: random.u32(0..ranks), delay, lingers, seed };
            match carry_out(run) {
                Ok(reports) => {
                    well += 1;
                    harmed += u32::from(reports.noticed);
                    stood += u32::from(reports.stood);
                    times.extend(reports.times);
                }
                Err(reason) => eprintln!("{run:?}: {reason}"),
            }
        }
        times.sort_by(f64::total_cmp);
        report.figure("as_it_should", kind, f64::from(well), "runs", Limit::Least(options.runs as f64));
        report.figure("noticed", kind, f64::from(harmed), "runs", Limit::None);
        report.figure("stood_still", kind, f64::from(stood), "runs", Limit::None);
        report.figure("ended_p50", kind, quantile(&times, 0.5), "ms", Limit::None);
        report.figure("ended_most", kind, quantile(&times, 1.0), "ms", Limit::Most(BOUND.as_secs_f64() * 1e3));
    }
    let (files, shared) = before.left();
    report.figure("files_left", "/dev/shm", files as f64, "files", Limit::Most(0.0));
    report.figure("memory_left", "Shmem", shared, "MiB", Limit::Most(16.0));
    report.figure("time", "all runs", began.elapsed().as_secs_f64(), "s", Limit::None);
    report.end()
}

/// How the others ended.
struct Outcome {
    /// Milliseconds until each ended.
    times: Vec<f64>,
    /// One of them noticed the garbage itself, not only the end of the rank that wrote it.
    noticed: bool,
    /// One of them only waited for the end of that rank.
    stood: bool,
}

/// One job.
fn carry_out(run: Run) -> Result<Outcome, String> {
    let mark = format!("garbage-{}-{}", std::process::id(), run.seed);
    let kind = KINDS.iter().find(|(name, _)| *name == run.kind).and_then(|(_, kind)| kind.to_possible_value());
    let kind = kind.map(|kind| kind.get_name().to_owned()).unwrap_or_default();
    let [ranks, vandal] = [run.ranks, run.vandal].map(|number| number.to_string());
    let [delay, seed] = [run.delay, run.seed].map(|number| number.to_string());
    let options = ["-n", &ranks, "--device", "shm", "--on-death", "silent", "--assembly", "1s"];
    let mut arguments = vec!["--member", "--kind", &kind, "--vandal", &vandal, "--delay", &delay, "--seed", &seed];
    arguments.extend(run.lingers.then_some("--lingers"));
    let mut job = Job::start(&mark, &options, &arguments)?;
    let (mut wrote, mut reports, mut expected, mut stood) = (None, Vec::new(), run.ranks - 1, false);
    let mut until = Instant::now() + START;
    while expected > 0 || wrote.is_none() {
        let line = job.line(until).ok_or_else(|| format!("{expected} ranks do not end"))?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            // On a busy machine the garbage may be written before another rank has said this.
            ["ready", ..] => {}
            ["wrote", at] => {
                wrote = at.parse::<u128>().ok();
                until = Instant::now() + 3 * BOUND + Duration::from_secs(3);
            }
            ["ended", _, at, stuck, why] => {
                expected -= 1;
                stood |= run.lingers && stuck.parse::<u128>().is_ok_and(|stuck| stuck >= AFTER_WRITE.as_millis() / 2);
                reports.push((at.parse::<u128>().unwrap_or(u128::MAX), why != "missing"));
            }
            _ => return Err(format!("unexpected output of a rank: {line:?}")),
        }
    }
    job.ended(Instant::now() + Duration::from_secs(3))?;
    job.clean()?;
    let wrote = wrote.unwrap_or(0);
    let times = reports.iter().map(|(at, _)| at.saturating_sub(wrote) as f64 / 1e6).collect();
    Ok(Outcome { times, noticed: reports.iter().any(|(_, noticed)| *noticed), stood })
}

/// How a rank ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Collective(RoundError),
    Message(Failure),
    /// Messages with other bytes than were sent.
    Wrong,
}

/// A rank: continues until an operation fails.
fn member(options: &Options) -> ExitCode {
    let number = std::env::var("UNISONO_RANK").unwrap_or_default();
    if options.kind == Some(Kind::Early) && number == options.vandal.to_string() {
        println!("wrote {}", now());
        write_early(options.seed);
        return ExitCode::SUCCESS;
    }
    let world = match World::join() {
        Ok(world) => world,
        Err(error) => {
            eprintln!("{error}");
            println!("ended {number} {} 0 refused", now());
            return ExitCode::FAILURE;
        }
    };
    let own = world.rank();
    // Half of the collectives use areas of a communicator slot.
    let backwards = world.split_by_color_with_key(0, -(own.0 as i32)).ok().flatten();
    let mut turns: Vec<(Collective, Rounds<'_>)> = Vec::new();
    for bytes in [8, 5000, 100_000] {
        for on in [Some(&*world), backwards.as_ref()].into_iter().flatten() {
            let blocking = Collective::all().into_iter().filter(|one| one.form == Form::Blocking);
            turns.extend(blocking.map(|collective| (collective, Rounds::new(on, bytes))));
        }
    }
    let mut random = fastrand::Rng::with_seed(options.seed);
    let (mut due, mut moved) = (None, Instant::now());
    for round in 0.. {
        if round == WARM {
            println!("ready {own} {}", std::process::id());
            due = Some(Instant::now() + Duration::from_micros(options.delay));
        }
        for (collective, rounds) in &mut turns {
            let ended = match rounds.round(*collective, round) {
                // The other ranks continue without knowing.
                Ok(()) | Err(RoundError::Wrong(_)) => exchange(&world, round),
                Err(trouble) => Err(End::Collective(trouble)),
            };
            if own.0 == options.vandal && due.is_some_and(|due| Instant::now() >= due) {
                due = None;
                println!("wrote {}", now());
                write_garbage(&world, options.kind.unwrap_or(Kind::Everywhere), &mut random);
                if !options.lingers {
                    std::process::exit(0);
                }
                std::thread::spawn(|| {
                    std::thread::sleep(AFTER_WRITE);
                    std::process::exit(0);
                });
            }
            match ended {
                Ok(()) => moved = Instant::now(),
                // Wrong data are expected; the final error matters.
                Err(End::Wrong) => {}
                Err(_) if own.0 == options.vandal => std::process::exit(0),
                Err(end) => {
                    println!("ended {own} {} {} {}", now(), moved.elapsed().as_millis(), word(end));
                    // Without leaving the job: the others have to notice.
                    std::process::exit(3);
                }
            }
        }
    }
    ExitCode::SUCCESS
}

const fn word(end: End) -> &'static str {
    use unisono::collective::CollectiveError;
    match end {
        End::Collective(RoundError::Failed(CollectiveError::Missing { .. })) => "missing",
        End::Collective(RoundError::Failed(CollectiveError::Corrupt { .. })) => "corrupt",
        End::Collective(RoundError::Failed(CollectiveError::Corrupted)) => "corrupted",
        End::Collective(RoundError::Failed(CollectiveError::Disagrees { .. })) => "disagrees",
        End::Collective(RoundError::Failed(_)) => "failed",
        End::Collective(RoundError::Wrong(_)) | End::Wrong => "wrong",
        End::Message(Failure::PeerFailed(_)) => "missing",
        End::Message(_) => "message",
    }
}

/// A message to the next rank, one from the one before, of every kind in turn.
fn exchange(world: &World, round: u32) -> Result<(), End> {
    let (size, own) = (world.size(), world.rank().0);
    let (next, before) = (Rank((own + 1) % size), Rank((own + size - 1) % size));
    let mut is_right = true;
    for (i, bytes) in MESSAGES.into_iter().enumerate() {
        let tag = Tag(i as u32);
        let (given, right) = ([own, round, tag.0], [before.0, round, tag.0]);
        let shared = (i % 2 == 1).then(|| world.allocate::<u32>(bytes / 4).ok()).flatten();
        let mut found = vec![0_u32; bytes / 4];
        let mut plain = vec![0_u32; if shared.is_some() { 0 } else { bytes / 4 }];
        let mut shared = shared;
        let data: &mut [u32] = match &mut shared {
            Some(buffer) => buffer,
            None => &mut plain,
        };
        data[..3].copy_from_slice(&given);
        let received = world.scope(|scope| {
            let receive = scope.immediate_receive_into(&mut found, before, tag)?;
            let send = scope.immediate_send(data, next, tag)?;
            let (sent, received) = (send.wait(), receive.wait());
            sent.and(received)
        });
        received.map_err(End::Message)?;
        is_right &= found[..3] == right;
    }
    if is_right { Ok(()) } else { Err(End::Wrong) }
}

/// Writes garbage everywhere while the others join; they never see this rank.
fn write_early(seed: u64) {
    let given: Option<InheritedSegment> = std::env::var("UNISONO_SEGMENT").ok().and_then(|given| given.parse().ok());
    let Some(InheritedSegment::Descriptor { number, holder }) = given else { return };
    let mut random = fastrand::Rng::with_seed(seed);
    let Ok(file) = reopen(number, holder) else { return };
    let until = Instant::now() + AFTER_WRITE;
    if let Ok((mapping, layout)) = Mapping::open(file.as_fd()) {
        let rest = Area { offset: PAGE, bytes: layout.bytes().min(1 << 24) - PAGE };
        while Instant::now() < until {
            // Its first page, too, some of the time.
            let area = if random.bool() { rest } else { Area { offset: 0, bytes: rest.bytes } };
            // SAFETY: nothing else of this process uses the mapping: to the ranks this is another process.
            write(unsafe { mapping.segment() }, area, || random.u32(..));
        }
    }
}

/// Writes the garbage.
fn write_garbage(world: &World, kind: Kind, random: &mut fastrand::Rng) {
    let Some(node) = world.node() else { return };
    let (layout, own) = (node.layout(), node.local());
    // SAFETY: no `Buffer` of this process is borrowed now, and what is written is what a broken process might write at
    // any time.
    let segment = unsafe { node.raw_segment() };
    let used = layout.communicator_slot(COMMUNICATOR_SLOTS - 1).map_or(0, |area| area.offset + area.bytes);
    match kind {
        Kind::Everywhere | Kind::Early => write(segment, Area { offset: 0, bytes: used }, || random.u32(..)),
        Kind::Own => own_areas(&layout, own).into_iter().for_each(|area| write(segment, area, || random.u32(..))),
        Kind::Piece => {
            let bytes = 1 << random.u32(6..=20);
            let at = random.usize(0..used - bytes) / 4 * 4;
            write(segment, Area { offset: at, bytes }, || random.u32(..));
        }
        Kind::Zeros | Kind::Ones => {
            let starts = busy(&layout);
            let at = starts[random.usize(0..starts.len())] / PAGE * PAGE;
            let value = if kind == Kind::Zeros { 0 } else { u32::MAX };
            write(segment, Area { offset: at, bytes: PAGE }, || value);
        }
    }
}

fn write(segment: Segment<'_>, area: Area, mut value: impl FnMut() -> u32) {
    for word in segment.words(area.offset, area.bytes / 4).into_iter().flatten() {
        word.publish(value(), Site::Plain);
    }
}

/// The areas that a rank may write.
fn own_areas(layout: &SegmentLayout, own: u32) -> Vec<Area> {
    let asleep = Area { offset: layout.sleep_words().offset + 4 * own as usize, bytes: 4 };
    let mut areas: Vec<Area> = [layout.rank_slot(own), layout.collective_area(own), layout.pool(own), Some(asleep)]
        .into_iter()
        .flatten()
        .collect();
    for other in 0..layout.sizes().ranks {
        // A ring begins with what its consumer writes.
        let tail = layout.ring(other, own).map(|ring| Area { offset: ring.offset, bytes: 128 });
        let rest = layout.ring(own, other).map(|ring| Area { offset: ring.offset + 128, bytes: ring.bytes - 128 });
        areas.extend(tail.into_iter().chain(rest));
    }
    areas.extend((0..COMMUNICATOR_SLOTS).filter_map(|room| slot_area(layout, room, own)));
    areas
}

/// A rank's collective area in a communicator slot.
fn slot_area(layout: &SegmentLayout, room: u32, rank: u32) -> Option<Area> {
    let bytes = layout.sizes().communicator_slot as usize;
    layout.communicator_slot(room).map(|area| Area { offset: area.offset + rank as usize * bytes, bytes })
}

/// Bytes in pages that are in use all the time.
fn busy(layout: &SegmentLayout) -> Vec<usize> {
    let ranks = layout.sizes().ranks;
    let mut starts = vec![0, layout.sleep_words().offset];
    for rank in 0..ranks {
        let area_start = layout.collective_area(rank).map_or(0, |area| area.offset);
        starts.extend((0..6).map(|page| area_start + page * PAGE));
        let room = slot_area(layout, 0, rank).map_or(0, |area| area.offset);
        starts.extend((0..6).map(|page| room + page * PAGE));
        starts.extend(layout.rank_slot(rank).map(|area| area.offset));
        for other in (0..ranks).filter(|other| *other != rank) {
            let ring = layout.ring(rank, other).map_or(0, |area| area.offset);
            starts.extend([ring, ring + PAGE, ring + 2 * PAGE]);
        }
    }
    starts
}
