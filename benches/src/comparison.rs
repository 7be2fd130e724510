//! Figures of several contenders over interleaved rounds, and verdicts on their ratios.

#[cfg(target_os = "linux")]
pub mod record;
#[cfg(target_os = "linux")]
pub mod table;
pub mod verdict;
