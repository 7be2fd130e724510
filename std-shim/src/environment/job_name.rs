//! The name of a job.

use core::{fmt, str::FromStr};

/// A job's name: up to 64 alphanumeric characters, `.`, `_` and `-`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct JobName(String);

impl JobName {
    /// As text; empty for a job without a name.
    ///
    /// ```
    /// assert_eq!("night-run".parse::<unisono::environment::JobName>()?.as_str(), "night-run");
    /// # Ok::<(), unisono::environment::JobNameError>(())
    /// ```
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JobName {
    type Err = JobNameError;

    fn from_str(text: &str) -> Result<Self, JobNameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let good = (1..=64).contains(&text.len()) && text.bytes().all(allowed);
        if good { Ok(Self(text.to_owned())) } else { Err(JobNameError) }
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The text is not a job name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a name of 1 to 64 alphanumeric characters, `.`, `_` and `-`")]
pub struct JobNameError;
