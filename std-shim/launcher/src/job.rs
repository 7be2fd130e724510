//! A job to be launched, and why it could not be.

use crate::placement::JobPlacement;
use crate::proxy::BareMetalRanks;
use core::net::SocketAddr;
use std::{ffi::OsString, io};
use unisono::Rank;
use unisono::environment::{DeviceChoice, Settings, SettingsError};
use unisono_shmem::host::file::FileError;

/// A job to launch.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program, searched for as a shell does. `unisono` falls back to this program if it is not found.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The placement of all ranks of a job.
    pub placement: JobPlacement,
    /// The settings of the ranks and of the launcher.
    pub settings: Settings,
    /// Bare-metal ranks, if there are any.
    pub bare_metal: Option<BareMetalRanks>,
}

/// Why a job could not be launched.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A setting is not valid for the launcher.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The device needs a feature that this version was built without.
    #[error("the device {0} is not available: this unisono was built without the feature {0} (docs/verbs.md)")]
    Device(DeviceChoice),
    /// The device needs all ranks on one node.
    #[error("the device shm needs all ranks on one node, but the job has {nodes} nodes: use the device auto or udp")]
    MultipleNodes {
        /// Nodes of the job.
        nodes: u32,
    },
    /// The shared-memory segment that the device needs cannot be created.
    #[error("the shared-memory segment cannot be created: {0}")]
    Segment(FileError),
    /// The system cannot provide random bits.
    #[error("the system cannot provide random bits: {0}")]
    Random(#[from] getrandom::Error),
    /// The rendezvous server cannot listen.
    #[error("the rendezvous server cannot listen at {at}: {error}")]
    Listen {
        /// The address.
        at: SocketAddr,
        /// The error.
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
        /// Its program.
        program: String,
        /// The error.
        error: io::Error,
    },
    /// The remote shell cannot be started.
    #[error("cannot start the remote shell for {host}: {error}")]
    RemoteShell {
        /// The host.
        host: String,
        /// The error.
        error: io::Error,
    },
    /// A program, argument or directory cannot be sent to another host.
    #[error("{0:?} is not UTF-8, so it cannot be sent to another host")]
    NotUtf8(OsString),
}

impl LaunchError {
    /// The exit code that a shell would show.
    pub fn code(&self) -> u8 {
        match self {
            Self::Start { error, .. } | Self::RemoteShell { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                127
            }
            Self::Start { .. } | Self::RemoteShell { .. } => 126,
            Self::Settings(_) | Self::Device(_) | Self::MultipleNodes { .. } | Self::NotUtf8(_) => 2,
            _ => 1,
        }
    }
}
