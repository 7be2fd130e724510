//! A client of PMI-1: lines of words over the socket `PMI_FD`.

use alloc::collections::BTreeMap;
use core::ffi::c_int;
use core::time::Duration;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::time::Instant;

use crate::process_mapping::node_position;
use crate::{NodePosition, StarterError, Task};

/// The key under which rank 0 publishes its text.
const KEY: &str = "unisono";
/// Bytes of the longest line that is read.
const LINE_MAX: usize = 64 << 10;

/// The connection to the starter.
#[derive(Debug)]
pub(crate) struct Client {
    socket: File,
    /// What was read beyond the last line.
    pending: Vec<u8>,
    /// The name of the job's key-value space.
    space: String,
    /// Longest wait for an answer.
    timeout: Duration,
}

impl Client {
    /// Connects over the descriptor that the starter opened for this process.
    pub(crate) fn new(descriptor: u32, timeout: Duration) -> Result<Self, StarterError> {
        // SAFETY: asks for the flags of a descriptor, which may be closed.
        let is_open = unsafe { libc::fcntl(descriptor as RawFd, libc::F_GETFD) } >= 0;
        if !is_open {
            return Err(StarterError::Pmi(format!("descriptor {descriptor} is not open")));
        }
        // SAFETY: the starter opened it for this process, and the caller takes it once.
        let socket = unsafe { File::from_raw_fd(descriptor as RawFd) };
        Self::over(socket, timeout)
    }

    fn over(socket: File, timeout: Duration) -> Result<Self, StarterError> {
        let mut client = Self { socket, pending: Vec::new(), space: String::new(), timeout };
        let answer = client.ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init")?;
        if answer.get("rc").is_none_or(|code| code != "0") {
            return Err(StarterError::Pmi("it refuses version 1.1".to_owned()));
        }
        let answer = client.ask("cmd=get_my_kvsname\n", "my_kvsname")?;
        let space = answer.get("kvsname").cloned();
        client.space = space.ok_or_else(|| StarterError::Pmi("it names no key-value space".to_owned()))?;
        Ok(client)
    }

    /// The place of a task on its node. `None` if the starter does not name it.
    pub(crate) fn node_position(&mut self, task: Task) -> Result<Option<NodePosition>, StarterError> {
        let mapping = self.get("PMI_process_mapping")?;
        Ok(mapping.and_then(|mapping| node_position(&mapping, task)))
    }

    pub(crate) fn broadcast(&mut self, text: Option<&str>) -> Result<String, StarterError> {
        if let Some(text) = text {
            let line = format!("cmd=put kvsname={} key={KEY} value={text}\n", self.space);
            let answer = self.ask(&line, "put_result")?;
            if answer.get("rc").is_some_and(|code| code != "0") {
                return Err(StarterError::Pmi("it takes no value".to_owned()));
            }
        }
        self.ask("cmd=barrier_in\n", "barrier_out")?;
        self.get(KEY)?.ok_or_else(|| StarterError::Pmi("rank 0 published nothing".to_owned()))
    }

    pub(crate) fn finalize(mut self) {
        // A starter that is gone needs no notification.
        let _ = self.ask("cmd=finalize\n", "finalize_ack");
    }

    pub(crate) fn abort(&self, code: i32) {
        let _ = (&self.socket).write_all(format!("cmd=abort exitcode={code}\n").as_bytes());
    }

    /// The value of a key, if there is one.
    fn get(&mut self, key: &str) -> Result<Option<String>, StarterError> {
        let answer = self.ask(&format!("cmd=get kvsname={} key={key}\n", self.space), "get_result")?;
        let is_found = answer.get("rc").is_none_or(|code| code == "0");
        Ok(answer.get("value").filter(|_| is_found).cloned())
    }

    /// Sends a line, and returns the words of the answer.
    fn ask(&mut self, line: &str, expected: &str) -> Result<BTreeMap<String, String>, StarterError> {
        let refused = |error: io::Error| StarterError::Pmi(error.to_string());
        self.socket.write_all(line.as_bytes()).map_err(refused)?;
        let answer = self.read_line()?;
        let pairs = answer.split_whitespace().filter_map(|word| word.split_once('='));
        let words: BTreeMap<String, String> = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        if words.get("cmd").is_some_and(|command| command == expected) {
            Ok(words)
        } else {
            Err(StarterError::Pmi(format!("it answers {answer:?} to {line:?}")))
        }
    }

    fn read_line(&mut self) -> Result<String, StarterError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(end + 1);
                let line = core::mem::replace(&mut self.pending, rest);
                let line = String::from_utf8(line).map_err(|error| StarterError::Pmi(error.to_string()))?;
                return Ok(line.trim_end().to_owned());
            }
            if self.pending.len() > LINE_MAX {
                return Err(StarterError::Pmi("its answer is too long".to_owned()));
            }
            if !self.can_read(deadline) {
                return Err(StarterError::Late(self.timeout));
            }
            let mut arrived = [0; 1024];
            match self.socket.read(&mut arrived) {
                Ok(0) => return Err(StarterError::Pmi("it has closed the connection".to_owned())),
                Ok(bytes) => self.pending.extend_from_slice(arrived.get(..bytes).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StarterError::Pmi(error.to_string())),
            }
        }
    }

    /// Waits until something can be read, or until the deadline. Errors are the reader's.
    fn can_read(&self, deadline: Instant) -> bool {
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).as_millis().min(1 << 30) as c_int;
            let mut socket = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one record, which lives during the call.
            match unsafe { libc::poll(&raw mut socket, 1, left) } {
                0 => return false,
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Then {
        Closes,
        IsSilent,
    }

    /// A client whose starter says this, whatever it is asked.
    fn client_of(said: &[u8], then: Then) -> Result<String, StarterError> {
        let (own, starter) = UnixStream::pair().expect("a pair of sockets");
        (&starter).write_all(said).expect("the pair's buffer has room");
        if then == Then::Closes {
            starter.shutdown(std::net::Shutdown::Write).expect("it is open");
        }
        let mut client = Client::over(File::from(OwnedFd::from(own)), Duration::from_millis(1))?;
        client.node_position(Task { rank: 1, size: 4, position: None })?;
        client.broadcast(Some("text"))
    }

    #[test]
    fn a_text_comes_back() {
        let said = b"cmd=response_to_init rc=0\ncmd=my_kvsname kvsname=job\ncmd=get_result rc=1\ncmd=put_result rc=0\n\
            cmd=barrier_out\ncmd=get_result rc=0 value=text\n";
        assert_eq!(client_of(said, Then::IsSilent).as_deref(), Ok("text"));
        let closed = client_of(&said[..said.len() - 1], Then::Closes);
        assert_eq!(closed, Err(StarterError::Pmi("it has closed the connection".to_owned())));
        let long = vec![b'x'; LINE_MAX + 2000];
        let silent = client_of(&said[..said.len() - 1], Then::IsSilent);
        assert_eq!(silent, Err(StarterError::Late(Duration::from_millis(1))));
        assert_eq!(client_of(&long, Then::Closes), Err(StarterError::Pmi("its answer is too long".to_owned())));
    }

    proptest! {
        /// Whatever a starter says is an answer or an error.
        #[test]
        fn any_answers_are_read(lines in prop::collection::vec("cmd=(response_to_init|my_kvsname|get_result|barrier_out|put_result) (rc=[01])? (value|kvsname)=[a-z]{0,3}\n|.{0,20}\n", 0..8)) {
            let _ = client_of(lines.concat().as_bytes(), Then::Closes);
        }
    }
}
