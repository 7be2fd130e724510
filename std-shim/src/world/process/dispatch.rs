//! Dispatch of the endpoint's messages by the first byte of their headers.
//!
//! Below 16: point-to-point messages (core, `message::point_to_point`). From 16 on: messages of collectives (core,
//! `message::collective_transport`), questions of hang reports (`watchdog/wire.rs`), and status messages about
//! communicators (`process/shutdown.rs`). From 64 on: remote memory access (core, `rma`); from 96 on: messages about
//! reliable connections (`connections.rs`).

use core::cell::RefCell;

use unisono_core::counters::{Counters, Metric};
use unisono_core::device::{Memory, Received};
use unisono_core::endpoint::{Handler, Verdict};
use unisono_core::ids::PeerId;
use unisono_core::message::point_to_point::{KINDS, MessageHeader};
use unisono_core::messenger::{ExpectedMessage, Payload};
use unisono_core::rma::header;
use unisono_core::span::Span;

use super::remote_access::RemoteAccess;
use super::transport::EarlyPayloads;
#[cfg(feature = "verbs")]
use super::transport::reliable::Reliable;
use crate::world::collective::engine::progress_table::CollectiveTable;
#[cfg(feature = "verbs")]
use crate::world::connections;
use crate::world::request::{Failure, Requests, Status, Tag};
use unisono_memory::endpoint_storage::ProcessMessenger;
use unisono_memory::memory_regions::{Address, Regions};

/// The handler of the endpoint's messages, with the parts of the process that they concern.
pub(in crate::world) struct Dispatcher<'a> {
    pub(in crate::world) requests: &'a mut Requests,
    pub(in crate::world) regions: &'a RefCell<Regions>,
    pub(in crate::world) early_payloads: &'a mut EarlyPayloads,
    pub(in crate::world) violators: &'a mut Vec<PeerId>,
    pub(in crate::world) counters: &'a mut Counters,
    pub(in crate::world) collectives: &'a mut CollectiveTable,
    pub(in crate::world) messenger: &'a mut ProcessMessenger,
    pub(in crate::world) remote_access: &'a mut RemoteAccess,
    #[cfg(feature = "verbs")]
    pub(in crate::world) reliable: &'a mut Reliable,
}

impl Handler for Dispatcher<'_> {
    #[inline(always)]
    fn handle_eager(&mut self, from: PeerId, head: &[u8], bytes: u32) -> Verdict {
        if !self.requests.checks_types
            && let Some(ExpectedMessage { user, into, tag, bytes }) = self.messenger.handle_expected(from, head, bytes)
        {
            let length = bytes as usize;
            if length <= into.bytes {
                self.requests.succeed(user, Status { source: from.into(), tag: Tag(tag.0), bytes: length });
            } else {
                self.requests.finish(user, Err(Failure::Truncated { bytes: u64::from(bytes) }));
            }
            return Verdict::Place { to: into.span(0, length), start: MessageHeader::EAGER as u16 };
        }
        match head.first() {
            Some(0..KINDS) => match self.messenger.handle_message(from, head, bytes) {
                Payload::Nothing => Verdict::Release,
                Payload::Copy { to, start } => Verdict::Place { to, start: start as u16 },
                Payload::ProtocolViolation => {
                    self.violators.push(from);
                    Verdict::Release
                }
            },
            Some(header::FIRST..=header::LAST) => self.remote_access.handle(self.regions, from, head, bytes),
            #[cfg(feature = "verbs")]
            Some(connections::FIRST..=connections::LAST) => {
                if !self.reliable.handle(from, head) {
                    self.violators.push(from);
                }
                Verdict::Release
            }
            Some(_) => {
                let memory = (&mut *self.early_payloads, self.regions);
                self.collectives.handle(from, head, bytes, self.messenger, memory)
            }
            // No correct process sends an empty message.
            None => Verdict::Release,
        }
    }

    fn handle_foreign(&mut self, datagram: &impl Received) -> Option<Verdict> {
        self.collectives.handle_group_datagram(datagram, self.regions)
    }

    #[inline(always)]
    fn record(&mut self, what: Metric) {
        self.counters.count(what);
    }

    #[inline]
    fn record_all(&mut self, what: Metric, times: u32) {
        self.counters.count_all(what, times);
    }
}

/// The table of regions, shared by the endpoint's driver and the handler of its messages.
#[derive(Debug)]
pub(in crate::world) struct SharedRegions<'a>(pub(in crate::world) &'a RefCell<Regions>);

impl Memory for SharedRegions<'_> {
    type Address = Address;

    fn address(&self, span: Span) -> Option<Address> {
        self.0.borrow().address(span)
    }
}
