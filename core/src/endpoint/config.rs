//! The constants of an endpoint.

use crate::device::{DeviceQueue, Limits};
use crate::ids::{Incarnation, PeerId};
use crate::path::PathParameters;
use crate::time::units;
use crate::window::congestion::CongestionControl;

/// The constants of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// This process's rank: the index of its own record, which is not used.
    pub rank: PeerId,
    /// This process's incarnation: random.
    pub incarnation: Incarnation,
    /// Datagrams that the device can buffer without loss.
    pub receive_slots: u32,
    /// Early datagrams that the device can set aside.
    pub holdable: u32,
    /// Floor of the timeout's margin, in units of 64 ns.
    pub granularity: u32,
    /// Silence, in units of 64 ns, after which [`Event::PeerSilent`](crate::endpoint::Event::PeerSilent) is reported. Probes are at most a quarter of this
    /// apart.
    pub silence: u32,
    /// How long a window without work is kept, in units of 64 ns.
    pub idle: u32,
    /// How congestion windows change.
    pub control: CongestionControl,
    /// The peers' queue that probes are sent to.
    pub probe_queue: DeviceQueue,
}

impl Config {
    /// Defaults for a device: 2 s of silence, windows kept for 10 ms or 16 granules, a fixed congestion window on
    /// lossless links and a delay-based one elsewhere.
    pub fn new(rank: PeerId, incarnation: Incarnation, limits: &Limits) -> Self {
        let granularity = units(u64::from(limits.granularity_ns));
        // Scheduling delays of the operating system are no congestion.
        let target = granularity.saturating_mul(16);
        Self {
            rank,
            incarnation,
            receive_slots: limits.receive_slots,
            holdable: limits.holdable,
            granularity,
            silence: units(2_000_000_000),
            idle: granularity.saturating_mul(16).max(units(10_000_000)),
            control: if limits.lossless { CongestionControl::Fixed } else { CongestionControl::Delay { target } },
            probe_queue: DeviceQueue::Polled,
        }
    }

    /// The constants of every path.
    pub(super) const fn path_parameters(&self) -> PathParameters {
        PathParameters { granularity: self.granularity, max_probe_interval: self.silence >> 2, control: self.control }
    }
}
