//! The instructions of each rank, and the results that a serial execution gives.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::rc::Rc;
use core::fmt::Write as _;
use std::collections::HashMap;

use fastrand::Rng;

use super::datatype::{Datatype, Datatypes, list};
use super::memory::{Fill, Part, hash};

/// `MPI_ANY_SOURCE`, `MPI_ANY_TAG`, `MPI_PROC_NULL`, `MPI_ROOT`, `MPI_UNDEFINED`.
pub(super) const ANY_SOURCE: i32 = -1;
pub(super) const ANY_TAG: i32 = -2;
pub(super) const PROC_NULL: i32 = -3;
pub(super) const ROOT: i32 = -4;
const UNDEFINED: i64 = -32766;

/// Data of a call that has none, and of one in place.
pub(super) const NO_DATA: &str = "-2 0 0 0";
pub(super) const IN_PLACE: &str = "-1 0";

/// When a collective or a message takes place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timing {
    Blocking,
    Immediate,
    /// Started twice, with other data.
    Persistent,
}

impl Timing {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        [Self::Blocking, Self::Immediate, Self::Persistent][rng.usize(0..3)]
    }
}

/// A message as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) source: i32,
    pub(super) tag: i32,
    pub(super) part: Rc<Part>,
}

/// A line of a rank's results.
#[derive(Debug)]
enum Expected {
    /// Exactly this.
    Line(String),
    /// A receive, of the next message of its source (and tag) that is sent to one rank and communicator.
    Receive { source: i32, tag: i32, messages: usize, part: Rc<Part> },
}

/// Messages to one rank, in order, by source and, where receives name them, by tag.
#[derive(Default, Debug)]
struct Incoming {
    by_tag: bool,
    messages: HashMap<(i32, i32), VecDeque<Sent>>,
}

/// What one rank does, and the lines that it must print.
#[derive(Default, Debug)]
pub(super) struct RankScript {
    /// The instructions.
    pub(super) text: String,
    expected: Vec<Expected>,
    incoming: Vec<Incoming>,
    buffers: usize,
    requests: usize,
    made: BTreeSet<usize>,
}

/// The program of all ranks.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) ranks: Vec<RankScript>,
    pub(super) datatypes: Datatypes,
    /// Whether only calls are used that every library has right.
    pub(super) portable: bool,
    step: usize,
}

impl Script {
    pub(super) fn new(ranks: u32, portable: bool) -> Self {
        let ranks = (0..ranks).map(|_| RankScript::default()).collect();
        Self { ranks, datatypes: Datatypes::new(portable), portable, step: 0 }
    }

    /// Begins a step: buffers, datatypes and requests of the one before are gone.
    pub(super) fn begin(&mut self, step: usize) {
        self.step = step;
        self.datatypes = Datatypes::new(self.portable);
        for rank in &mut self.ranks {
            (rank.buffers, rank.requests) = (0, 0);
            rank.made.clear();
            let _ = writeln!(rank.text, "step {step}");
        }
    }

    /// An instruction of a rank.
    pub(super) fn line(&mut self, rank: u32, text: impl AsRef<str>) {
        let own = &mut self.ranks[rank as usize].text;
        own.push_str(text.as_ref());
        own.push('\n');
    }

    /// A line that a rank must print.
    pub(super) fn expect(&mut self, rank: u32, text: impl AsRef<str>) {
        let line = format!("{} {}", self.step, text.as_ref());
        self.ranks[rank as usize].expected.push(Expected::Line(line));
    }

    /// The place of a new request.
    pub(super) fn request(&mut self, rank: u32) -> usize {
        let requests = &mut self.ranks[rank as usize].requests;
        *requests += 1;
        *requests - 1
    }

    /// The number of a buffer that does not exist yet.
    pub(super) fn new_buffer(&mut self, rank: u32) -> usize {
        let buffers = &mut self.ranks[rank as usize].buffers;
        *buffers += 1;
        *buffers - 1
    }

    /// A buffer for a part, filled, whose datatypes exist afterwards.
    pub(super) fn buffer(&mut self, rank: u32, part: &Part) -> usize {
        let id = self.new_buffer(rank);
        self.line(rank, format!("buffer {id} {}", part.bytes));
        self.fill(rank, id, part.fill);
        part.blocks.iter().for_each(|block| self.make(rank, &block.datatype));
        id
    }

    pub(super) fn fill(&mut self, rank: u32, buffer: usize, fill: Fill) {
        self.line(rank, format!("fill {buffer} {} {}", fill.seed, fill.kind()));
    }

    /// Makes a datatype on a rank that does not have it.
    pub(super) fn make(&mut self, rank: u32, datatype: &Datatype) {
        for (id, instruction) in &datatype.made {
            if self.ranks[rank as usize].made.insert(*id) {
                self.line(rank, instruction);
            }
        }
    }

    /// A rank prints a hash of a buffer, which must have these contents.
    pub(super) fn show(&mut self, rank: u32, buffer: usize, contents: &[u8]) {
        self.line(rank, format!("show {buffer}"));
        self.expect(rank, format!("H {:016x}", hash(contents)));
    }

    /// Messages to a rank, in the order of each source.
    pub(super) fn incoming(&mut self, rank: u32, by_tag: bool, messages: impl Iterator<Item = Sent>) -> usize {
        let mut incoming = Incoming { by_tag, ..Incoming::default() };
        for sent in messages {
            incoming.messages.entry((sent.source, if by_tag { sent.tag } else { 0 })).or_default().push_back(sent);
        }
        let all = &mut self.ranks[rank as usize].incoming;
        all.push(incoming);
        all.len() - 1
    }

    /// A rank reports a receive of one of the messages.
    pub(super) fn expect_receive(&mut self, rank: u32, (source, tag): (i32, i32), messages: usize, part: &Rc<Part>) {
        let part = Rc::clone(part);
        self.ranks[rank as usize].expected.push(Expected::Receive { source, tag, messages, part });
    }

    /// Waits for requests, in some way.
    pub(super) fn wait(&mut self, rank: u32, requests: &[usize], rng: &mut Rng) {
        if !requests.is_empty() {
            let way = rng.u8(0..8);
            self.line(rank, format!("wait {way} {}{}", requests.len(), list(requests)));
        }
    }

    /// Waits for a persistent collective.
    fn wait_for_persistent(&mut self, rank: u32, request: usize, rng: &mut Rng) {
        if self.portable {
            self.line(rank, format!("wait 6 1 {request}"));
        } else {
            self.wait(rank, &[request], rng);
        }
    }

    /// What begins a collective call: its timing, and the place of its request.
    pub(super) fn begin_call(&mut self, rank: u32, timing: Timing) -> (String, Option<usize>) {
        match timing {
            Timing::Blocking => ("0 -1".to_owned(), None),
            Timing::Immediate | Timing::Persistent => {
                let request = self.request(rank);
                (format!("{} {request}", if timing == Timing::Immediate { 1 } else { 2 }), Some(request))
            }
        }
    }

    /// Completes a collective. A persistent one, called with other data than `fills`, is started again with these.
    pub(super) fn end_call(
        &mut self,
        rank: u32,
        timing: Timing,
        request: Option<usize>,
        fills: &[(usize, Fill)],
        rng: &mut Rng,
    ) {
        match request {
            Some(request) if timing == Timing::Persistent => {
                self.line(rank, format!("start 1 {request}"));
                self.wait_for_persistent(rank, request, rng);
                fills.iter().for_each(|(buffer, fill)| self.fill(rank, *buffer, *fill));
                self.line(rank, format!("restart 1 {request}"));
                self.wait_for_persistent(rank, request, rng);
                self.line(rank, format!("release {request}"));
            }
            Some(request) => self.wait(rank, &[request], rng),
            None => {}
        }
    }
}

impl RankScript {
    /// Compares the results of the rank with what it must print. Returns the number of lines.
    ///
    /// # Errors
    /// The first line that differs.
    pub(super) fn compare(&mut self, results: &str) -> Result<u64, String> {
        let mut found = results.lines();
        let mut compared = 0;
        for expected in &self.expected {
            let line = found.next().unwrap_or("nothing");
            match expected {
                Expected::Line(right) if right == line => {}
                Expected::Line(right) => return Err(format!("step {line} instead of {right}")),
                Expected::Receive { source, tag, messages, part } => {
                    let incoming = &mut self.incoming[*messages];
                    incoming.take(line, *source, *tag, part)?;
                }
            }
            compared += 1;
        }
        match found.next() {
            Some("end") => Ok(compared),
            other => Err(format!("step {} instead of the end", other.unwrap_or("nothing"))),
        }
    }
}

impl Incoming {
    /// Takes the message that a line reports.
    fn take(&mut self, line: &str, source: i32, tag: i32, into: &Part) -> Result<(), String> {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, "R", from, with, rest @ ..] = &words[..] else {
            return Err(format!("step {line} instead of a message"));
        };
        let (Ok(from), Ok(with)) = (from.parse::<i32>(), with.parse::<i32>()) else {
            return Err(format!("step {line} instead of a message"));
        };
        let next = self.messages.get_mut(&(from, if self.by_tag { with } else { 0 }));
        let fits = (source == ANY_SOURCE || source == from) && (tag == ANY_TAG || tag == with);
        let Some(sent) = next.filter(|_| fits).and_then(VecDeque::pop_front) else {
            return Err(format!("step {line}: no such message, received from {source} with tag {tag}"));
        };
        let packed = sent.part.pack(&sent.part.memory(), 0);
        let right = format!(
            "{} {}",
            sent.tag,
            reception(&packed, sent.part.blocks[0].count * sent.part.blocks[0].datatype.elements(), into)
        );
        let found = format!("{with} {}", rest.join(" "));
        if found == right { Ok(()) } else { Err(format!("step {line} instead of {right}")) }
    }
}

/// Basic elements, count and hash after packed data arrived in a buffer.
pub(super) fn reception(packed: &[u8], elements: usize, into: &Part) -> String {
    let mut memory = into.memory();
    into.unpack(&mut memory, 0, packed);
    let each = into.blocks[0].datatype.elements();
    let count = if elements.is_multiple_of(each) { (elements / each) as i64 } else { UNDEFINED };
    format!("{elements} {count} {:016x}", hash(&memory))
}
