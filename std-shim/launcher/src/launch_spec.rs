//! The launch specification that the launcher sends to an agent: one line of JSON on its standard input, where no
//! argument list shows it.

use super::placement::RankPlacement;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use unisono_bootstrap::{Location, Rank};

/// Longest launch specification in bytes.
const LAUNCH_SPEC_MAX: usize = 64 << 20;

/// A launch specification: the ranks that an agent starts, and how.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LaunchSpec {
    /// The number of the agent's host.
    pub(crate) host: u32,
    /// The job's secret.
    pub(crate) secret: String,
    /// The job's name.
    pub(crate) job: String,
    /// Candidate addresses of the rendezvous server: the agent uses the first that authenticates.
    pub(crate) places: Vec<String>,
    /// The program, its arguments and its working directory.
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) directory: String,
    pub(crate) pinned: bool,
    pub(crate) tagged: bool,
    /// Whether output goes through pipes, to be merged by lines.
    pub(crate) captured: bool,
    /// Milliseconds between SIGTERM and SIGKILL when the connection to the launcher is lost.
    pub(crate) grace_ms: u64,
    /// Join timeout in milliseconds.
    pub(crate) assembly_ms: u64,
    /// Variables of all ranks, with their whole names.
    pub(crate) variables: Vec<(String, String)>,
    /// The ranks to start.
    pub(crate) ranks: Vec<RankSpec>,
    /// Ranks of the job.
    pub(crate) size: u32,
}

/// One rank of a launch specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RankSpec {
    pub(crate) rank: u32,
    pub(crate) node: u32,
    pub(crate) local_rank: u32,
    pub(crate) local_size: u32,
    pub(crate) location: Location,
}

impl From<&RankPlacement> for RankSpec {
    fn from(placed: &RankPlacement) -> Self {
        let RankPlacement { rank, node, local_rank, local_size, location, host: _ } = *placed;
        Self { rank: rank.0, node, local_rank, local_size, location }
    }
}

impl RankSpec {
    pub(crate) const fn placement(self) -> RankPlacement {
        let Self { rank, node, local_rank, local_size, location } = self;
        RankPlacement { rank: Rank(rank), host: 0, node, local_rank, local_size, location }
    }
}

impl LaunchSpec {
    /// The line, with its newline.
    pub(crate) fn line(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads one line with `read`. Returns the specification and the bytes read after the line.
    pub(crate) fn read(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<(Self, Vec<u8>)> {
        let (mut line, mut searched) = (Vec::new(), 0);
        loop {
            let unseen = line.get(searched..).unwrap_or_default();
            if let Some(end) = unseen.iter().position(|byte| *byte == b'\n') {
                let behind = line.split_off(searched + end + 1);
                return Ok((serde_json::from_slice(&line)?, behind));
            }
            searched = line.len();
            let mut arrived = [0; 16 * 1024];
            match read(&mut arrived) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) if line.len() + bytes <= LAUNCH_SPEC_MAX => {
                    line.extend_from_slice(arrived.get(..bytes).unwrap_or_default());
                }
                Ok(_) => return Err(ErrorKind::FileTooLarge.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn launch_spec() -> LaunchSpec {
        LaunchSpec {
            host: 1,
            secret: "0123456789abcdef".to_owned(),
            job: "j".to_owned(),
            places: vec!["10.0.0.1:7".to_owned()],
            program: "echo".to_owned(),
            arguments: vec!["two\nlines".to_owned()],
            directory: "/tmp".to_owned(),
            pinned: false,
            tagged: true,
            captured: true,
            grace_ms: 2000,
            assembly_ms: 60_000,
            variables: vec![("UNISONO_DEVICE".to_owned(), "udp".to_owned())],
            ranks: vec![RankSpec { rank: 3, node: 1, local_rank: 0, local_size: 1, location: Location::default() }],
            size: 4,
        }
    }

    #[test]
    fn a_launch_spec_survives_and_leaves_the_bytes_after_it() {
        for cut in [1, 7, 100_000] {
            let bytes = [launch_spec().line().expect("plain data"), b"input\nof rank 0".to_vec()].concat();
            let mut pieces = bytes.as_slice();
            let (read, mut behind) = LaunchSpec::read(|to| (&mut pieces).take(cut).read(to)).expect("whole");
            behind.extend_from_slice(pieces);
            assert_eq!((read, behind.as_slice()), (launch_spec(), b"input\nof rank 0".as_slice()));
        }
    }

    #[test]
    fn a_cut_or_invalid_launch_spec_is_an_error() {
        let line = launch_spec().line().expect("plain data");
        let mut cut = &line[..line.len() - 1];
        assert_eq!(LaunchSpec::read(|to| cut.read(to)).map_err(|error| error.kind()), Err(ErrorKind::UnexpectedEof));
        let mut senseless = b"hello\n".as_slice();
        assert!(LaunchSpec::read(|to| senseless.read(to)).is_err());
    }
}
