//! Bar 6: what it costs that a message and a receive meet, among 10 and among 10 000 that wait, in any order of tags.
//!
//! Each case posts so many receives, or keeps so many messages, of different tags, and then lets all of them meet; to wait and
//! to meet is counted, under callgrind, per pair.

use core::error::Error;
use core::hint::black_box;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use unisono_benches::callgrind::instructions_in;
use unisono_core::device::PeerId;
use unisono_core::message::matching::{self, Body, Full, Kept, Matching, Posted};
use unisono_core::message::{Context, Envelope, Pattern, Tag};
use unisono_tests::bar::{Limit, Report};

const FEW: u32 = 10;
const MANY: u32 = 10_000;
const SOURCES: u32 = 4;

/// Instructions per match among few and among many.
#[derive(Parser)]
struct Options {
    /// Only does the work: this case, among so many.
    #[arg(long, hide = true, requires = "among")]
    case: Option<Case>,
    #[arg(long, hide = true)]
    among: Option<u32>,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Who waits for whom, and what receives ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    PostedInOrder,
    PostedReversed,
    PostedShuffled,
    PostedAnySource,
    PostedOneTag,
    PostedMixed,
    KeptInOrder,
    KeptReversed,
    KeptShuffled,
    KeptAnySource,
    KeptAnyTag,
    KeptAny,
    KeptOneTag,
}

impl Case {
    fn is_kept(self) -> bool {
        use Case::{KeptAny, KeptAnySource, KeptAnyTag, KeptInOrder, KeptOneTag, KeptReversed, KeptShuffled};
        matches!(self, KeptInOrder | KeptReversed | KeptShuffled | KeptAnySource | KeptAnyTag | KeptAny | KeptOneTag)
    }

    /// The i-th message to come, or the i-th receive to be posted, of `n`.
    fn turn(self, i: u32, n: u32) -> u32 {
        match self {
            Case::PostedReversed | Case::KeptReversed => n - 1 - i,
            // A full cycle: 7919 is a prime that divides neither count.
            Case::PostedInOrder | Case::KeptInOrder | Case::PostedOneTag | Case::KeptOneTag => i,
            _ => (u64::from(i) * 7919 % u64::from(n)) as u32,
        }
    }

    fn envelope(self, i: u32) -> Envelope {
        let tag = if matches!(self, Case::PostedOneTag | Case::KeptOneTag) { 0 } else { i };
        Envelope { context: Context(0), source: PeerId(i % SOURCES), tag: Tag(tag) }
    }

    /// That matches the message; in `PostedMixed` every second one is from any source.
    fn pattern(self, i: u32) -> Pattern {
        let Envelope { context, source, tag } = self.envelope(i);
        let (any_source, any_tag) = match self {
            Case::PostedAnySource | Case::KeptAnySource => (true, false),
            Case::KeptAnyTag => (false, true),
            Case::KeptAny => (true, true),
            Case::PostedMixed => (i.is_multiple_of(2), false),
            _ => (false, false),
        };
        Pattern { context, source: (!any_source).then_some(source), tag: (!any_tag).then_some(tag) }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Boxes;

impl<R: Body, M: Body> matching::Storage<R, M> for Boxes {
    type Receives = Box<[Posted<R>]>;
    type Messages = Box<[Kept<M>]>;
    type Buckets = Box<[u32]>;
}

type Queues = Matching<Boxes, u32, u32>;

/// What is counted; found by its name.
#[inline(never)]
fn meet_the_observed(queues: &mut Queues, case: Case, n: u32) -> Result<u64, Full> {
    let mut met = 0;
    if case.is_kept() {
        for i in 0..n {
            queues.keep(case.envelope(i), i)?;
        }
        for i in 0..n {
            let message = queues.first_message(&case.pattern(case.turn(i, n))).ok_or(Full)?;
            queues.take(message);
            met += u64::from(queues.free_message(message).ok_or(Full)?);
        }
    } else {
        for i in 0..n {
            queues.post(case.pattern(i), i)?;
        }
        for i in 0..n {
            let receive = queues.first_receive(&case.envelope(case.turn(i, n))).ok_or(Full)?;
            queues.unpost(receive);
            met += u64::from(queues.free_receive(receive).ok_or(Full)?);
        }
    }
    Ok(met)
}

/// As many matches in all, whatever waits.
fn work(case: Case, n: u32) -> Result<(), Box<dyn Error>> {
    let records = MANY as usize;
    let buckets = || vec![0; 6 * records].into_boxed_slice();
    let receives = vec![Posted::default(); records].into();
    let messages = vec![Kept::default(); records].into();
    let queues = Queues::new(receives, messages, [buckets(), buckets()], 7);
    let mut queues = queues.ok_or("there are buckets")?;
    for _ in 0..MANY / n {
        let met = meet_the_observed(&mut queues, black_box(case), black_box(n)).map_err(|_| "not all have met")?;
        if met != u64::from(n) * u64::from(n - 1) / 2 {
            return Err("some have met twice".into());
        }
    }
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    if let (Some(case), Some(among)) = (options.case, options.among) {
        work(case, among)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::new(6, options.json);
    for case in Case::value_variants() {
        let name = case.to_possible_value().ok_or("every case has a name")?;
        let count = |among: u32| {
            let arguments = ["--case", name.get_name(), "--among", &among.to_string()];
            instructions_in("*meet_the_observed*", &arguments).map(|all| all as f64 / f64::from(MANY))
        };
        let (few, many) = (count(FEW)?, count(MANY)?);
        report.figure("instructions_per_match", &format!("{} among 10", name.get_name()), few, "", Limit::Least(1.0));
        report.figure("instructions_per_match", &format!("{} among 10000", name.get_name()), many, "", Limit::None);
        report.figure("ratio", name.get_name(), many / few, "", Limit::Most(2.0));
    }
    Ok(report.end())
}
