//! The costs of simulated broadcasts over groups, from a file.

use core::num::NonZeroU64;
use std::path::{Path, PathBuf};

use unisono_core::multicast::{AttachConfig, SEGMENT_HEADER};
use unisono_core::time::units;

use crate::harness::parameters::{ParameterError, Parameters};
use crate::sim::{CHECKSUM, Config, Link, SubnetDelays};

/// The file in the repository.
pub fn default_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("parameters/groups.txt")
}

/// The parameters of network, hosts and groups. Times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupParameters {
    /// From adapter to adapter.
    pub latency_ns: u64,
    /// Of a datagram in either adapter, besides its bytes.
    pub packet_ns: u64,
    /// Rate of an adapter in each direction.
    pub bytes_per_s: u64,
    /// Of a copy between ranks of a host, besides its bytes.
    pub copy_ns: u64,
    /// Rate of such a copy.
    pub copy_bytes_per_s: u64,
    /// The subnet manager.
    pub subnet: SubnetDelays,
    /// Between two probes of a test.
    pub probe_ns: u64,
    /// Probes of a test.
    pub probes: u64,
    /// For a rank to attach to a group of which its host is a member.
    pub attach_ns: u64,
    /// Mean excess of waiting beyond which a rank attaches.
    pub threshold_ns: u64,
    /// Broadcasts before a rank attaches.
    pub warmup: u64,
    /// Broadcasts without excess before a rank leaves.
    pub linger: u64,
}

impl GroupParameters {
    /// Reads the parameters from a file.
    ///
    /// # Errors
    /// It cannot be read, or a parameter is malformed, unknown or missing.
    pub fn read(file: &Path) -> Result<Self, ParameterError> {
        let mut file = Parameters::read(file)?;
        let parameters = Self {
            latency_ns: file.take("latency_ns")?,
            packet_ns: file.take("packet_ns")?,
            bytes_per_s: file.take_positive("bytes_per_s")?,
            copy_ns: file.take("copy_ns")?,
            copy_bytes_per_s: file.take_positive("copy_bytes_per_s")?,
            subnet: SubnetDelays {
                request_ns: file.take("request_ns")?,
                create_ns: file.take("create_ns")?,
                join_ns: file.take("join_ns")?,
                leave_ns: file.take("leave_ns")?,
                route_ns: file.take("route_ns")?,
            },
            probe_ns: file.take_positive("probe_ns")?,
            probes: file.take_positive("probes")?,
            attach_ns: file.take("attach_ns")?,
            threshold_ns: file.take("threshold_ns")?,
            warmup: file.take("warmup")?,
            linger: file.take_positive("linger")?,
        };
        file.end()?;
        Ok(parameters)
    }

    /// A network with these costs.
    pub fn network(&self) -> Config {
        let rate = NonZeroU64::new(self.bytes_per_s);
        let link = Link {
            ingress_bytes_per_s: rate,
            egress_bytes_per_s: rate,
            propagation_ns: self.latency_ns,
            queue: 4096,
            overhead: u32::try_from(self.packet_ns.saturating_mul(self.bytes_per_s) / 1_000_000_000)
                .unwrap_or(u32::MAX),
            ..Link::default()
        };
        Config { mtu: 4200, receive_slots: 4096, groups: 16, link, subnet: Some(self.subnet), ..Config::default() }
    }

    /// Probes of a test, and the units between two.
    pub fn test(&self) -> (u32, u32, u32) {
        let interval = units(self.probe_ns);
        (u32::try_from(self.probes).unwrap_or(u32::MAX), interval, interval)
    }

    /// When ranks attach; its times are in units of 64 ns.
    pub fn attach(&self) -> AttachConfig {
        let [warmup, linger] = [self.warmup, self.linger].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        AttachConfig { threshold: units(self.threshold_ns), warmup, linger }
    }

    /// A copy of `bytes` bytes between ranks of a host.
    pub fn copy(&self, bytes: u32) -> u64 {
        self.copy_ns + (u64::from(bytes) * 1_000_000_000).div_ceil(self.copy_bytes_per_s)
    }

    /// The time of a datagram of `bytes` bytes in an adapter.
    pub fn adapter(&self, bytes: u32) -> u64 {
        let wire = u64::from(bytes) + u64::from(CHECKSUM);
        self.packet_ns + (wire * 1_000_000_000).div_ceil(self.bytes_per_s)
    }

    /// The time of a message of `bytes` bytes between idle hosts, to one or to a group.
    pub fn hop(&self, bytes: u32) -> u64 {
        let datagram = bytes + SEGMENT_HEADER as u32;
        2 * self.adapter(datagram) + self.latency_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_in_the_repository_is_read() {
        let parameters = GroupParameters::read(&default_file()).expect("well-formed");
        assert_eq!((parameters.hop(960), parameters.copy(1000)), (2 * 1200 + 10_000, 1000));
    }
}
