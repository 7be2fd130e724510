//! The options that say how ranks are divided among switches, sockets and caches.

use clap::Args;
use core::num::NonZero;
use unisono::environment::UnitCounts;

/// How many units the ranks of a job are divided among, in order and evenly, for `--hierarchy`.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Placement")]
pub(crate) struct Units {
    /// Divide the nodes among S switches [default: unknown]
    #[arg(long, value_name = "S")]
    switches: Option<NonZero<u32>>,
    /// Divide the ranks of each node among S sockets [default: the sockets of their processors]
    #[arg(long, value_name = "S")]
    sockets: Option<NonZero<u32>>,
    /// Divide the ranks of each socket, or without --sockets of each node, among C last-level caches [default: the caches
    /// of their processors]
    #[arg(long, value_name = "C")]
    caches: Option<NonZero<u32>>,
}

impl Units {
    /// Those of the options, else of the environment.
    pub(crate) fn or(self, environment: UnitCounts) -> UnitCounts {
        UnitCounts {
            switches: self.switches.or(environment.switches),
            sockets: self.sockets.or(environment.sockets),
            caches: self.caches.or(environment.caches),
        }
    }
}
