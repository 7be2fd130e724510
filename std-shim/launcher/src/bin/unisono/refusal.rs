//! Why a command did nothing.

use unisono_launcher::{LaunchError, PlacementError};

/// Why a command was not carried out.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    pub(crate) code: u8,
}

impl Refusal {
    /// The options or settings are not valid.
    pub(crate) fn usage(reason: impl core::fmt::Display) -> Self {
        Self { reason: reason.to_string(), code: 2 }
    }

    /// The command failed.
    pub(crate) fn failed(reason: impl core::fmt::Display) -> Self {
        Self { reason: reason.to_string(), code: 1 }
    }
}

impl From<PlacementError> for Refusal {
    fn from(error: PlacementError) -> Self {
        Self::usage(error)
    }
}

impl From<LaunchError> for Refusal {
    fn from(error: LaunchError) -> Self {
        Self { reason: error.to_string(), code: error.code() }
    }
}
