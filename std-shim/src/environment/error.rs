//! Why settings cannot be used.

use super::{PREFIX, SecretError};
use core::fmt;

/// The name of a variable. Its text, also as an error of `main` shows it, is the whole name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VariableName(
    /// The name without prefix.
    pub &'static str,
);

impl fmt::Display for VariableName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{PREFIX}{}", self.0)
    }
}

impl fmt::Debug for VariableName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

/// Why the settings cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// A `UNISONO_*` variable that does not exist.
    #[error("{name} is not a setting of unisono{}", like.map(|like| format!("; did you mean {like}?")).unwrap_or_default())]
    Unknown {
        /// The whole name.
        name: String,
        /// A similar name that exists.
        like: Option<VariableName>,
    },
    /// A value that is not valid for its setting.
    #[error("{name}={value}: {reason}")]
    Invalid {
        /// The setting.
        name: VariableName,
        /// Its value.
        value: String,
        /// The expected values.
        reason: String,
    },
    /// The secret cannot be used. Its value is not shown.
    #[error("{name}: {reason}")]
    Secret {
        /// `SECRET` or `SECRET_FILE`.
        name: VariableName,
        /// The error.
        reason: SecretError,
    },
    /// A setting that needs another one, which is not set.
    #[error("{name} needs {needs}, which is not set")]
    Missing {
        /// The setting.
        name: VariableName,
        /// The setting that it needs.
        needs: VariableName,
    },
    /// Two settings that exclude each other.
    #[error("{name} and {other} cannot both be set")]
    Conflict {
        /// One of the two.
        name: VariableName,
        /// The other.
        other: VariableName,
    },
}
