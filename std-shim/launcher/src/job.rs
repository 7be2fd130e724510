//! A job to be launched, and why it could not be.

use crate::bare_metal::BareMetal;
use crate::layout::Layout;
use core::net::SocketAddr;
use std::{ffi::OsString, io};
use unisono::Rank;
use unisono::environment::{DeviceChoice, Settings, SettingsError};
use unisono_shmem::host::file::FileError;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program, looked for as the shell does. `unisono` stands for this program if there is no other.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Which rank runs where.
    pub layout: Layout,
    /// What the ranks are told, and how they are launched.
    pub settings: Settings,
    /// Ranks that run an image instead.
    pub bare_metal: Option<BareMetal>,
}

/// Why a job could not be launched.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A setting that the launcher cannot use.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A device whose feature this version was built without.
    #[error("this unisono was built without the feature {0} (docs/verbs.md)")]
    Device(DeviceChoice),
    /// A device that needs all ranks on one node.
    #[error("the shm device needs all ranks on one node, not on {nodes}")]
    Apart {
        /// Nodes of the job.
        nodes: u32,
    },
    /// The shared memory that the device needs cannot be had.
    #[error("no shared memory: {0}")]
    Segment(FileError),
    /// The system has no random bits.
    #[error("no random bits: {0}")]
    Random(#[from] getrandom::Error),
    /// The rendezvous server cannot listen.
    #[error("cannot listen at {at}: {error}")]
    Serve {
        /// Where.
        at: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A part of the launcher itself cannot be started.
    #[error("cannot set up the launcher: {0}")]
    Setup(io::Error),
    /// A rank cannot be started.
    #[error("cannot start rank {rank} ({program}): {error}")]
    Start {
        /// The rank.
        rank: Rank,
        /// What it should run.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// The remote shell cannot be started.
    #[error("cannot start the remote shell for {host}: {error}")]
    Rsh {
        /// Whither.
        host: String,
        /// Why.
        error: io::Error,
    },
    /// A program, argument or directory that cannot be told to another host.
    #[error("{0:?} is not UTF-8, so it cannot be told to another host")]
    Text(OsString),
}

impl LaunchError {
    /// The exit code that a shell would show.
    pub fn code(&self) -> u8 {
        match self {
            Self::Start { error, .. } | Self::Rsh { error, .. } if error.kind() == io::ErrorKind::NotFound => 127,
            Self::Start { .. } | Self::Rsh { .. } => 126,
            Self::Settings(_) | Self::Device(_) | Self::Apart { .. } | Self::Text(_) => 2,
            _ => 1,
        }
    }
}
