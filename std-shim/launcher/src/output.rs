//! Merges the output of many processes into one stream, line by line, each line prefixed with its rank.

use alloc::sync::Arc;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat},
};
use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, PoisonError},
    thread,
};
use unisono::Rank;

/// Longest line in bytes. A longer one is split, which bounds the buffer.
pub(crate) const LINE_MAX: usize = 64 * 1024;
/// Bytes read from a stream before the others get their turn.
const READ_BYTES: usize = 16 * 1024;
/// Largest capacity of a pipe in bytes, unless root allowed more.
const PIPE_MAX: usize = 1 << 20;

/// A process's output stream, and the prefix of its lines.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) from: OwnedFd,
    pub(crate) prefix: String,
}

/// Threads that copy lines to this process's standard output and standard error.
#[derive(Debug)]
pub(crate) struct OutputMerger {
    threads: Vec<(Arc<OwnedFd>, thread::JoinHandle<()>)>,
}

impl OutputMerger {
    /// Starts to copy `output` to this process's standard output and `errors` to its standard error. If these block,
    /// the copied processes block on their output, too.
    pub(crate) fn start(output: Vec<Source>, errors: Vec<Source>) -> io::Result<Self> {
        let (to_output, to_errors) =
            (io::stdout().as_fd().try_clone_to_owned()?, io::stderr().as_fd().try_clone_to_owned()?);
        let same = match (fstat(&to_output), fstat(&to_errors)) {
            (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
            _ => true,
        };
        // Lines of both must not mix if both go to the same file.
        let turn = Arc::new(Mutex::new(()));
        let turn_of_errors = if same { Arc::clone(&turn) } else { Arc::new(Mutex::new(())) };
        let threads = [("output", output, to_output, turn), ("errors", errors, to_errors, turn_of_errors)];
        let threads = threads.into_iter().filter(|(_, sources, ..)| !sources.is_empty());
        let threads = threads.map(|(name, sources, to, turn)| {
            let finish = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
            let mut copying = OutputCopier::new(sources, File::from(to), turn)?;
            let finishing = Arc::clone(&finish);
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || copying.run(&finishing))?;
            Ok((finish, thread))
        });
        Ok(Self { threads: threads.collect::<io::Result<_>>()? })
    }

    /// Copies everything written until now, then ends, even if a process still holds a stream open.
    pub(crate) fn finish(self) {
        for (finish, thread) in self.threads {
            let _ = rustix::io::write(&finish, &1_u64.to_ne_bytes());
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Stream {
    /// `None` once it has ended.
    from: Option<File>,
    lines: LineSplitter,
}

/// The destination of the lines; locked if the other thread writes to the same file.
#[derive(Debug)]
struct Sink {
    to: File,
    turn: Arc<Mutex<()>>,
}

impl Sink {
    fn write(&mut self, lines: &mut Vec<u8>) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let written = self.to.write_all(lines);
        lines.clear();
        written
    }
}

#[derive(Debug)]
struct OutputCopier {
    streams: Vec<Stream>,
    sink: Sink,
}

impl OutputCopier {
    fn new(sources: Vec<Source>, to: File, turn: Arc<Mutex<()>>) -> io::Result<Self> {
        let stream = |source: Source| {
            let flags = fcntl_getfl(&source.from)?;
            fcntl_setfl(&source.from, flags | OFlags::NONBLOCK)?;
            Ok(Stream { from: Some(source.from.into()), lines: LineSplitter::new(source.prefix) })
        };
        let streams = sources.into_iter().map(stream).collect::<io::Result<_>>()?;
        Ok(Self { streams, sink: Sink { to, turn } })
    }

    fn run(&mut self, finish: &OwnedFd) {
        let mut finishing = false;
        while !finishing && self.streams.iter().any(|stream| stream.from.is_some()) {
            let open = self.streams.iter().filter_map(|stream| stream.from.as_ref());
            let mut waiting: Vec<PollFd<'_>> = open.map(|from| PollFd::new(from, PollFlags::IN)).collect();
            waiting.push(PollFd::new(finish, PollFlags::IN));
            if poll(&mut waiting, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
                return;
            }
            finishing = waiting.last().is_some_and(|finish| !finish.revents().is_empty());
            if self.copy().is_err() {
                // The destination is closed. Closing the pipes makes the writers fail.
                self.streams.clear();
            }
        }
        // The pipes hold the last output of the ended processes. Other processes that still write are not waited for.
        for _ in 0..PIPE_MAX / READ_BYTES {
            if !matches!(self.copy(), Ok(true)) {
                break;
            }
        }
        let mut rest = Vec::new();
        for stream in &mut self.streams {
            stream.lines.end(&mut rest);
        }
        let _ = self.sink.write(&mut rest);
    }

    /// Reads once from every stream. Returns whether anything arrived; an error means that the destination is closed.
    fn copy(&mut self) -> io::Result<bool> {
        let Self { streams, sink } = self;
        let (mut arrived, mut ready, mut any) = ([0; READ_BYTES], Vec::new(), false);
        for stream in streams {
            let Some(from) = &mut stream.from else {
                continue;
            };
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
            if ready.len() >= LINE_MAX {
                sink.write(&mut ready)?;
            }
        }
        sink.write(&mut ready)?;
        Ok(any)
    }
}

/// Splits a stream into prefixed lines. Buffers at most one line.
#[derive(Debug)]
struct LineSplitter {
    prefix: String,
    partial: Vec<u8>,
}

impl LineSplitter {
    const fn new(prefix: String) -> Self {
        Self { prefix, partial: Vec::new() }
    }

    fn take(&mut self, arrived: &[u8], to: &mut Vec<u8>) {
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

    /// Outputs the buffered line, adding a missing newline.
    fn end(&mut self, to: &mut Vec<u8>) {
        if self.partial.is_empty() {
            return;
        }
        to.extend_from_slice(self.prefix.as_bytes());
        to.append(&mut self.partial);
        if !to.ends_with(b"\n") {
            to.push(b'\n');
        }
    }
}

/// The prefix of every line of a rank's output.
pub(crate) fn mark(rank: Rank) -> String {
    format!("[{rank}] ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(pieces: &[&[u8]]) -> String {
        let (mut lines, mut to) = (LineSplitter::new("[3] ".to_owned()), Vec::new());
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
