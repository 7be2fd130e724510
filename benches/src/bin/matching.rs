//! Bar 6: cost of matching a message and a receive, among 10 and among 10 000 waiting ones, in any order of tags.
//!
//! Each case posts receives, or queues unexpected messages, of different tags, and then matches all of them. Callgrind
//! counts the instructions of queueing and matching per pair: once in the queues alone, once between the point-to-point
//! machines of two ranks, where a limited number of headers is buffered as in a World and the rest is fetched from the
//! sender.

use core::error::Error;
use core::hint::black_box;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use unisono_benches::callgrind::instructions_in;
use unisono_benches::fixtures::message_pair::MessagePair;
use unisono_core::ids::PeerId;
use unisono_core::message::matching::{self, Full, Matching, PostedReceive, RecordData, Unexpected};
use unisono_core::message::{Context, Envelope, Pattern, Tag};
use unisono_tests::harness::report::{Limit, Report};

const FEW: u32 = 10;
const MANY: u32 = 10_000;
const SOURCES: u32 = 4;
/// Headers that a World buffers per peer.
const HEADERS: u16 = 1024;
/// The limit among few: half of them, so that some are fetched from the sender there, too.
const FEW_HEADERS: u16 = 5;

/// Instructions per match among few and among many.
#[derive(Parser)]
struct Options {
    /// Only performs the work: this case.
    #[arg(long, hide = true, requires = "among")]
    case: Option<Case>,
    /// Number of waiting receives or messages.
    #[arg(long, hide = true)]
    among: Option<u32>,
    #[arg(long, hide = true, default_value_t = HEADERS)]
    headers: u16,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Which side waits, and the patterns of the receives.
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
    AdmittedPostedInOrder,
    AdmittedPostedReversed,
    AdmittedPostedShuffled,
    AdmittedInOrder,
    AdmittedReversed,
    AdmittedShuffled,
}

impl Case {
    /// For cases between two machines: whether the messages come first.
    const fn admitted(self) -> Option<bool> {
        match self {
            Self::AdmittedPostedInOrder | Self::AdmittedPostedReversed | Self::AdmittedPostedShuffled => Some(false),
            Self::AdmittedInOrder | Self::AdmittedReversed | Self::AdmittedShuffled => Some(true),
            _ => None,
        }
    }

    fn is_kept(self) -> bool {
        use Case::{KeptAny, KeptAnySource, KeptAnyTag, KeptInOrder, KeptOneTag, KeptReversed, KeptShuffled};
        matches!(self, KeptInOrder | KeptReversed | KeptShuffled | KeptAnySource | KeptAnyTag | KeptAny | KeptOneTag)
    }

    /// Number of the i-th message to arrive, or of the i-th receive to be posted, of `n`.
    fn turn(self, i: u32, n: u32) -> u32 {
        match self {
            Case::PostedReversed | Case::KeptReversed | Case::AdmittedPostedReversed | Case::AdmittedReversed => {
                n - 1 - i
            }
            // A full cycle: 7919 is a prime that divides neither count.
            Case::PostedInOrder | Case::KeptInOrder | Case::PostedOneTag | Case::KeptOneTag => i,
            Case::AdmittedPostedInOrder | Case::AdmittedInOrder => i,
            _ => (u64::from(i) * 7919 % u64::from(n)) as u32,
        }
    }

    fn envelope(self, i: u32) -> Envelope {
        let tag = if matches!(self, Case::PostedOneTag | Case::KeptOneTag) { 0 } else { i };
        Envelope { context: Context(0), source: PeerId(i % SOURCES), tag: Tag(tag) }
    }

    /// A pattern that matches the message; in `PostedMixed` every second one is from any source.
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

impl<R: RecordData, M: RecordData> matching::MatchingStorage<R, M> for Boxes {
    type Receives = Box<[PostedReceive<R>]>;
    type Messages = Box<[Unexpected<M>]>;
    type Buckets = Box<[u32]>;
}

type Queues = Matching<Boxes, u32, u32>;

/// The counted function, selected by its name.
#[inline(never)]
fn match_the_observed(queues: &mut Queues, case: Case, n: u32) -> Result<u64, Full> {
    let mut matched_sum = 0;
    if case.is_kept() {
        for i in 0..n {
            queues.queue_unexpected(case.envelope(i), i)?;
        }
        for i in 0..n {
            let message = queues.first_message(&case.pattern(case.turn(i, n))).ok_or(Full)?;
            queues.take(message);
            matched_sum += u64::from(queues.free_message(message).ok_or(Full)?);
        }
    } else {
        for i in 0..n {
            queues.post(case.pattern(i), i)?;
        }
        for i in 0..n {
            let receive = queues.first_receive(&case.envelope(case.turn(i, n))).ok_or(Full)?;
            queues.unpost(receive);
            matched_sum += u64::from(queues.free_receive(receive).ok_or(Full)?);
        }
    }
    Ok(matched_sum)
}

/// The counted function between two machines.
#[inline(never)]
fn match_the_observed_pair(pair: &mut MessagePair, case: Case, n: u32, sends_first: bool) {
    if sends_first {
        pair.send_then_receive(n, |i| case.turn(i, n));
    } else {
        pair.post_then_send(n, |i| case.turn(i, n));
    }
}

/// Performs the same number of matches for every case.
fn work(case: Case, n: u32, headers: u16) -> Result<(), Box<dyn Error>> {
    let sum = u64::from(n) * u64::from(n - 1) / 2;
    if let Some(sends_first) = case.admitted() {
        let mut pair = MessagePair::new(MANY, headers).ok_or("the storage is large enough")?;
        for turn in 1..=u64::from(MANY / n) {
            match_the_observed_pair(&mut pair, black_box(case), black_box(n), sends_first);
            let (matched_sum, found) = pair.matched().ok_or("the machines contradict each other")?;
            // In order, buffered headers are consumed before any is fetched.
            let finds = n > u32::from(headers) && matches!(case, Case::AdmittedReversed | Case::AdmittedShuffled);
            if matched_sum != turn * sum || (found > 0) != finds {
                return Err(format!("sum {matched_sum} of {}, {found} fetched", turn * sum).into());
            }
        }
        return Ok(());
    }
    let records = MANY as usize;
    let buckets = || vec![0; 6 * records].into_boxed_slice();
    let receives = vec![PostedReceive::default(); records].into();
    let messages = vec![Unexpected::default(); records].into();
    let queues = Queues::new(receives, messages, [buckets(), buckets()], 7);
    let mut queues = queues.ok_or("there are buckets")?;
    for _ in 0..MANY / n {
        let matched_sum =
            match_the_observed(&mut queues, black_box(case), black_box(n)).map_err(|_| "some were not matched")?;
        if matched_sum != sum {
            return Err("some were matched twice".into());
        }
    }
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    if let (Some(case), Some(among)) = (options.case, options.among) {
        work(case, among, options.headers)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::new(6, options.json);
    for case in Case::value_variants() {
        let value = case.to_possible_value().ok_or("every case has a name")?;
        let count = |among: u32, headers: u16| {
            let (among, headers) = (among.to_string(), headers.to_string());
            let arguments = ["--case", value.get_name(), "--among", &among, "--headers", &headers];
            instructions_in("*match_the_observed*", &arguments).map(|all| all as f64 / f64::from(MANY))
        };
        let name = value.get_name();
        let is_found = case.admitted() == Some(true);
        let (few, many) = (count(FEW, if is_found { FEW_HEADERS } else { HEADERS })?, count(MANY, HEADERS)?);
        report.figure("instructions_per_match", &format!("{name} among 10"), few, "", Limit::Least(1.0));
        report.figure("instructions_per_match", &format!("{name} among 10000"), many, "", Limit::None);
        report.figure("ratio", name, many / few, "", Limit::Most(2.0));
        if is_found {
            // The cost of a fetch: a request and its reply, whatever the number of waiting ones.
            let kept = count(FEW, HEADERS)?;
            report.figure("ratio_to_all_kept", name, many / kept, "", Limit::None);
        }
    }
    Ok(report.end())
}
