//! Merges the output of many processes into one stream by whole lines.

use alloc::sync::Arc;
use core::time::Duration;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat},
};
use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};
use unisono::Rank;

/// Longest line in bytes. A longer one is split, which bounds the buffer.
pub(crate) const LINE_MAX: usize = 64 * 1024;
/// Bytes read from a stream before the others get their turn.
const READ_BYTES: usize = 16 * 1024;
/// Largest capacity of a pipe in bytes, unless root allowed more.
const PIPE_MAX: usize = 1 << 20;
/// How long a message waits for the output that was written before it.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);
/// Held while a line is written to the standard error.
static ERROR_TURN: Mutex<()> = Mutex::new(());
/// As [`ERROR_TURN`], for the standard output, if both do not go to the same file.
static OUTPUT_TURN: Mutex<()> = Mutex::new(());

/// How the output of a process is merged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Merging {
    /// Every line gets this prefix.
    Prefixed(String),
    /// Whole lines.
    Lines,
    /// Bytes as they come: there is no other process.
    Bytes,
}

impl Merging {
    /// How the output of a rank is merged in a job of `size` ranks.
    pub(crate) fn of(rank: Rank, size: u32, tagged: bool) -> Self {
        match (tagged, size) {
            (true, _) => Self::Prefixed(format!("[{rank}] ")),
            (false, 1) => Self::Bytes,
            (false, _) => Self::Lines,
        }
    }
}

/// A process's output stream, and how it is merged.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) from: OwnedFd,
    pub(crate) merging: Merging,
}

/// What a copying thread was asked for, and has done.
#[derive(Debug, Default)]
struct Requests {
    finishes: bool,
    asked: u64,
    caught_up: u64,
}

/// The owner's side of a copying thread.
#[derive(Debug)]
struct Copier {
    wake: Arc<OwnedFd>,
    requests: Arc<(Mutex<Requests>, Condvar)>,
    thread: thread::JoinHandle<()>,
}

fn lock(requests: &(Mutex<Requests>, Condvar)) -> MutexGuard<'_, Requests> {
    requests.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads that copy lines to this process's standard output and standard error.
#[derive(Debug)]
pub(crate) struct OutputMerger {
    copiers: Vec<Copier>,
}

impl OutputMerger {
    /// Starts to copy `output` to this process's standard output and `errors` to its standard error. If these block,
    /// the copied processes block on their output, too. When the standard output is closed, `closed` is called once and
    /// further output is dropped.
    pub(crate) fn start(
        output: Vec<Source>,
        errors: Vec<Source>,
        closed: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (to_output, to_errors) =
            (io::stdout().as_fd().try_clone_to_owned()?, io::stderr().as_fd().try_clone_to_owned()?);
        let same = match (fstat(&to_output), fstat(&to_errors)) {
            (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
            _ => true,
        };
        // Lines of both must not mix if both go to the same file.
        let turn = if same { &ERROR_TURN } else { &OUTPUT_TURN };
        let output = Self::start_one(
            "output",
            output,
            false,
            Sink { to: to_output.into(), turn, closed: Some(Box::new(closed)) },
        );
        let errors =
            Self::start_one("errors", errors, true, Sink { to: to_errors.into(), turn: &ERROR_TURN, closed: None });
        Ok(Self { copiers: output?.into_iter().chain(errors?).collect() })
    }

    /// `is_terminated`: an unfinished last line gets a newline, so that messages can follow.
    fn start_one(name: &str, sources: Vec<Source>, is_terminated: bool, sink: Sink) -> io::Result<Option<Copier>> {
        if sources.is_empty() {
            return Ok(None);
        }
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (woken, requests) = (Arc::clone(&wake), Arc::<(Mutex<Requests>, Condvar)>::default());
        let (mut copying, asked) = (OutputCopier::new(sources, is_terminated, sink)?, Arc::clone(&requests));
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || copying.run(&woken, &asked))?;
        Ok(Some(Copier { wake, requests, thread }))
    }

    /// Waits until everything that was written before is copied, for a bounded time: a destination may block.
    pub(crate) fn catch_up(&self) {
        let deadline = Instant::now() + CATCH_UP_TIMEOUT;
        for Copier { wake, requests, thread } in &self.copiers {
            let mut asked = lock(requests);
            asked.asked += 1;
            let until = asked.asked;
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
            while asked.caught_up < until && !thread.is_finished() {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                asked = requests.1.wait_timeout(asked, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Copies everything written until now, then ends, even if a process still holds a stream open.
    pub(crate) fn finish(self) {
        for Copier { wake, requests, thread } in self.copiers {
            lock(&requests).finishes = true;
            let _ = rustix::io::write(&wake, &1_u64.to_ne_bytes());
            let _ = thread.join();
        }
    }
}

/// Prints a line to the standard error, in one write, between lines of ranks. Errors are ignored.
pub(crate) fn print_line(line: &str) {
    let _turn = ERROR_TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = io::stderr().write_all(line.as_bytes());
}

#[derive(Debug)]
struct Stream {
    /// `None` once it has ended.
    from: Option<File>,
    lines: LineSplitter,
}

/// The destination of the lines; locked if the other thread writes to the same file.
struct Sink {
    to: File,
    turn: &'static Mutex<()>,
    /// Called when the destination is closed. From then on output is dropped: a process whose output fails may report
    /// that at length.
    closed: Option<Box<dyn FnOnce() + Send>>,
}

impl Sink {
    fn write(&mut self, lines: &mut Vec<u8>) {
        if lines.is_empty() {
            return;
        }
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let written = self.to.write_all(lines);
        drop(turn);
        lines.clear();
        if written.is_err()
            && let Some(closed) = self.closed.take()
        {
            closed();
        }
    }
}

struct OutputCopier {
    streams: Vec<Stream>,
    sink: Sink,
    /// The stream whose line has been written without its end, since it is too long or the last.
    unfinished: Option<usize>,
}

impl OutputCopier {
    fn new(sources: Vec<Source>, is_terminated: bool, sink: Sink) -> io::Result<Self> {
        let stream = |source: Source| {
            let flags = fcntl_getfl(&source.from)?;
            fcntl_setfl(&source.from, flags | OFlags::NONBLOCK)?;
            Ok(Stream { from: Some(source.from.into()), lines: LineSplitter::new(source.merging, is_terminated) })
        };
        let streams = sources.into_iter().map(stream).collect::<io::Result<_>>()?;
        Ok(Self { streams, sink, unfinished: None })
    }

    fn run(&mut self, wake: &OwnedFd, requests: &(Mutex<Requests>, Condvar)) {
        loop {
            let open = self.streams.iter().filter_map(|stream| stream.from.as_ref());
            let mut waiting: Vec<PollFd<'_>> = open.map(|from| PollFd::new(from, PollFlags::IN)).collect();
            waiting.push(PollFd::new(wake, PollFlags::IN));
            if poll(&mut waiting, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
                break;
            }
            if waiting.last().is_none_or(|wake| wake.revents().is_empty()) {
                self.copy();
                continue;
            }
            let _ = rustix::io::read(wake, &mut [0; 8]);
            let (asked, finishes) = {
                let requests = lock(requests);
                (requests.asked, requests.finishes)
            };
            // The pipes hold the last output of the ended processes. Other processes that still write are not waited
            // for.
            let _ = (0..PIPE_MAX / READ_BYTES).find(|_| !self.copy());
            lock(requests).caught_up = asked;
            requests.1.notify_all();
            if finishes {
                break;
            }
        }
        let mut rest = Vec::new();
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let before = rest.len();
            stream.lines.end(&mut rest);
            separate(&mut rest, before, number, &mut self.unfinished);
        }
        self.sink.write(&mut rest);
    }

    /// Reads once from every stream. Returns whether anything arrived.
    fn copy(&mut self) -> bool {
        let Self { streams, sink, unfinished } = self;
        let (mut arrived, mut ready, mut any) = ([0; READ_BYTES], Vec::new(), false);
        for (number, stream) in streams.iter_mut().enumerate() {
            let Some(from) = &mut stream.from else {
                continue;
            };
            let before = ready.len();
            match from.read(&mut arrived) {
                Ok(bytes @ 1..) => {
                    any = true;
                    stream.lines.take(arrived.get(..bytes).unwrap_or_default(), &mut ready);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Ok(0) | Err(_) => {
                    stream.from = None;
                    stream.lines.end(&mut ready);
                }
            }
            separate(&mut ready, before, number, unfinished);
            if ready.len() >= LINE_MAX {
                sink.write(&mut ready);
            }
        }
        sink.write(&mut ready);
        any
    }
}

/// Inserts a newline before what a stream has added to `ready` from `before` on, if the unfinished line before it is
/// another stream's.
fn separate(ready: &mut Vec<u8>, before: usize, number: usize, unfinished: &mut Option<usize>) {
    let Some(last) = ready.get(before..).and_then(<[u8]>::last).copied() else { return };
    if unfinished.is_some_and(|other| other != number) {
        ready.insert(before, b'\n');
    }
    *unfinished = (last != b'\n').then_some(number);
}

/// Splits a stream into lines. Buffers at most one line.
#[derive(Debug)]
struct LineSplitter {
    merging: Merging,
    /// Whether an unfinished line gets a newline at the end of the stream.
    is_terminated: bool,
    partial: Vec<u8>,
}

impl LineSplitter {
    fn new(merging: Merging, is_terminated: bool) -> Self {
        let is_terminated = is_terminated && merging != Merging::Bytes || matches!(merging, Merging::Prefixed(_));
        Self { merging, is_terminated, partial: Vec::new() }
    }

    fn take(&mut self, arrived: &[u8], to: &mut Vec<u8>) {
        if self.merging == Merging::Bytes {
            return to.extend_from_slice(arrived);
        }
        for piece in arrived.split_inclusive(|byte| *byte == b'\n') {
            for part in piece.chunks(LINE_MAX) {
                if self.partial.len() + part.len() > LINE_MAX {
                    self.end(to);
                }
                self.partial.extend_from_slice(part);
            }
            if piece.ends_with(b"\n") {
                self.end(to);
            }
        }
    }

    /// Outputs the buffered line, adding a missing newline where lines are terminated.
    fn end(&mut self, to: &mut Vec<u8>) {
        if self.partial.is_empty() {
            return;
        }
        if let Merging::Prefixed(prefix) = &self.merging {
            to.extend_from_slice(prefix.as_bytes());
        }
        to.append(&mut self.partial);
        if self.is_terminated && !to.ends_with(b"\n") {
            to.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(pieces: &[&[u8]]) -> String {
        merged(Merging::of(Rank(3), 4, true), false, pieces)
    }

    fn merged(merging: Merging, is_terminated: bool, pieces: &[&[u8]]) -> String {
        let (mut lines, mut to) = (LineSplitter::new(merging, is_terminated), Vec::new());
        for piece in pieces {
            lines.take(piece, &mut to);
        }
        lines.end(&mut to);
        String::from_utf8(to).expect("text went in")
    }

    #[test]
    fn every_line_is_marked_once() {
        assert_eq!(cut(&[b"a\nb", b"", b"c\n\nlast"]), "[3] a\n[3] bc\n[3] \n[3] last\n");
        assert_eq!(cut(&[]), "");
    }

    #[test]
    fn without_prefix_the_bytes_of_a_rank_stay_as_they_are() {
        let pieces: [&[u8]; 3] = [b"a\nb", b"c\n\nlast", &[b'x'; LINE_MAX]];
        let whole = format!("a\nbc\n\nlast{}", "x".repeat(LINE_MAX));
        for size in [1, 2] {
            assert_eq!(merged(Merging::of(Rank(0), size, false), false, &pieces), whole, "{size}");
        }
        assert_eq!(merged(Merging::of(Rank(0), 1, false), true, &pieces), whole);
        assert_eq!(merged(Merging::of(Rank(0), 2, false), true, &pieces[..2]), "a\nbc\n\nlast\n");
    }

    #[test]
    fn an_unfinished_line_is_ended_only_before_another_stream() {
        let (mut ready, mut unfinished) = (Vec::new(), None);
        for (number, piece) in [(0, "a"), (0, "b"), (1, "c\n"), (1, ""), (0, "d"), (1, "e")] {
            let before = ready.len();
            ready.extend_from_slice(piece.as_bytes());
            separate(&mut ready, before, number, &mut unfinished);
        }
        assert_eq!((String::from_utf8(ready).expect("text"), unfinished), ("ab\nc\nd\ne".to_owned(), Some(1)));
    }

    #[test]
    fn a_line_too_long_is_broken() {
        let text = cut(&[&vec![b'x'; LINE_MAX], b"y\n"]);
        assert_eq!(text, format!("[3] {}\n[3] y\n", "x".repeat(LINE_MAX)));
    }

    proptest! {
        #[test]
        fn cuts_do_not_show(text in "[a-c\n]{0,60}", size in 1_usize..9) {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(cut(&pieces), text.lines().map(|line| format!("[3] {line}\n")).collect::<String>());
        }
    }
}
