//! Without the feature `verbs` there is no adapter, and payloads of remote ranks are sent.

use unisono_core::ids::PeerId;
use unisono_core::span::{Region, RegionRange};
use unisono_core::transport::{Fetch, Token};

use super::ProcessTransport;

impl ProcessTransport {
    pub(in crate::world) const fn readable(&mut self, _: RegionRange) -> u64 {
        0
    }

    pub(super) const fn read_payload(&mut self, _: PeerId, _: u64, _: RegionRange, _: usize, _: Token) -> Fetch {
        Fetch::Unreachable
    }

    pub(super) const fn abort_read(&mut self, _: Token) {}

    pub(in crate::world) const fn abort_reads_into(&mut self, _: Region) {}
}
