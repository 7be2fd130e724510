//! Transfers: the messages of active collectives, by number.

use unisono_core::ids::{PeerId, PlacementId, StepId};
use unisono_core::message::collective_transport::StepKey;
use unisono_core::schedule::BlockSpan;
use unisono_core::span::{Region, Span as Bytes};

use super::scratch_pool::ScratchBlock;

/// The holder of a transfer's number, which will report its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum TransferHolder {
    /// The collective transport, where it can be cancelled.
    Transport,
    /// The endpoint, by a grant that can be withdrawn.
    Grant(PlacementId),
    /// A rank of this node, to which the message was announced.
    Announced,
    /// The endpoint, a ring or deferred work: it ends there.
    Carrier,
}

/// One message of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct Transfer {
    /// The collective; `None`: it has failed, and nobody waits for the transfer.
    pub(in crate::world) collective: Option<u32>,
    pub(in crate::world) step: StepId,
    pub(in crate::world) peer: PeerId,
    pub(in crate::world) key: StepKey,
    pub(in crate::world) span: BlockSpan,
    pub(in crate::world) bytes: u32,
    pub(in crate::world) is_receive: bool,
    /// Its contiguous span, once that is known.
    pub(in crate::world) place: Option<Bytes>,
    /// Staging memory, where it is packed or waits to be unpacked.
    pub(in crate::world) staging: Option<ScratchBlock>,
    pub(in crate::world) holder: TransferHolder,
}

/// All transfers; a number is reused when its message has ended.
#[derive(Debug, Default)]
pub(in crate::world) struct Transfers {
    entries: Vec<Option<Transfer>>,
    free: Vec<u32>,
}

impl Transfers {
    pub(in crate::world) fn insert(&mut self, transfer: Transfer) -> u32 {
        if let Some(i) = self.free.pop()
            && let Some(place) = self.entries.get_mut(i as usize)
        {
            *place = Some(transfer);
            return i;
        }
        self.entries.push(Some(transfer));
        (self.entries.len() - 1) as u32
    }

    pub(in crate::world) fn get(&self, i: u32) -> Option<&Transfer> {
        self.entries.get(i as usize)?.as_ref()
    }

    pub(in crate::world) fn get_mut(&mut self, i: u32) -> Option<&mut Transfer> {
        self.entries.get_mut(i as usize)?.as_mut()
    }

    pub(in crate::world) fn take(&mut self, i: u32) -> Option<Transfer> {
        let transfer = self.entries.get_mut(i as usize)?.take()?;
        self.free.push(i);
        Some(transfer)
    }

    /// Whether a message is being transmitted from this region.
    pub(in crate::world) fn is_sending_from(&self, region: Region) -> bool {
        let leaves = |transfer: &Transfer| !transfer.is_receive && transfer.holder == TransferHolder::Carrier;
        let from = |transfer: &Transfer| transfer.place.is_some_and(|place| place.bytes > 0 && place.region == region);
        self.entries.iter().flatten().any(|transfer| leaves(transfer) && from(transfer))
    }

    /// The transfers of a collective.
    pub(in crate::world) fn of(&self, collective: u32) -> Vec<u32> {
        let entries = (0..).zip(&self.entries);
        let own = |transfer: &Transfer| transfer.collective == Some(collective);
        entries.filter(|(_, entry)| entry.as_ref().is_some_and(own)).map(|(i, _)| i).collect()
    }

    /// The send with this key to this rank.
    pub(in crate::world) fn find_send(&self, to: PeerId, key: StepKey) -> Option<u32> {
        let is = |transfer: &Transfer| !transfer.is_receive && transfer.peer == to && transfer.key == key;
        (0..).zip(&self.entries).find(|(_, entry)| entry.as_ref().is_some_and(is)).map(|(i, _)| i)
    }

    /// Whether a transfer of a context waits for this rank to send, to grant or to fetch.
    pub(in crate::world) fn waits_for(&self, peer: PeerId, context: u32) -> bool {
        let waits = |transfer: &Transfer| transfer.is_receive || transfer.holder != TransferHolder::Carrier;
        let live = self.entries.iter().flatten().filter(|transfer| transfer.collective.is_some());
        live.filter(|transfer| transfer.peer == peer && context_of(transfer.key) == context).any(waits)
    }

    /// The context of each transfer.
    pub(in crate::world) fn contexts(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().flatten().map(|transfer| context_of(transfer.key))
    }

    /// Whether nobody waits for the transfer any more.
    pub(in crate::world) fn is_orphan(&self, i: u32) -> bool {
        self.get(i).is_none_or(|transfer| transfer.collective.is_none())
    }
}

/// The context of a message.
pub(in crate::world) const fn context_of(key: StepKey) -> u32 {
    key.context >> 16
}
