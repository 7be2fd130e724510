//! What the harnesses share: reports with bars, jobs of `unisono run`, processors kept from sleeping.

#[cfg(target_os = "linux")]
pub mod cpu_latency;
pub mod job;
pub mod lab;
pub mod packages;
pub mod parameters;
pub mod report;
