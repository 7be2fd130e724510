//! Transfers: the messages of active collectives, by number.

use unisono_core::ids::{PeerId, Port, StepId};
use unisono_core::message::collective_transport::StepKey;
use unisono_core::schedule::BlockSpan;
use unisono_core::span::Span as Bytes;

use super::scratch_pool::ScratchBlock;

/// One message of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct Transfer {
    /// The collective; `None`: it has failed, and nobody waits for the transfer.
    pub(in crate::world) collective: Option<u32>,
    pub(in crate::world) step: StepId,
    pub(in crate::world) peer: PeerId,
    pub(in crate::world) key: StepKey,
    pub(in crate::world) port: Port,
    pub(in crate::world) span: BlockSpan,
    pub(in crate::world) bytes: u32,
    pub(in crate::world) is_receive: bool,
    /// Its contiguous span, once that is known.
    pub(in crate::world) place: Option<Bytes>,
    /// Staging memory, where it is packed or waits to be unpacked.
    pub(in crate::world) staging: Option<ScratchBlock>,
    /// Whether its receiver has withdrawn the memory that it granted: nothing ends the transfer any more.
    pub(in crate::world) is_refused: bool,
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

    /// Whether a transfer of a context waits for this rank to send, to grant or to fetch; `open` are the sends that wait
    /// for it.
    pub(in crate::world) fn waits_for(&self, peer: PeerId, context: u32, open: &[u32]) -> bool {
        let is_its = |transfer: &Transfer| {
            transfer.collective.is_some() && transfer.peer == peer && context_of(transfer.key) == context
        };
        (0..).zip(&self.entries).any(|(i, entry)| {
            let waits = |transfer: &Transfer| transfer.is_receive || transfer.is_refused || open.contains(&i);
            entry.as_ref().is_some_and(|transfer| is_its(transfer) && waits(transfer))
        })
    }

    /// The collective of a transfer.
    pub(in crate::world) fn collective_of(&self, i: u32) -> Option<u32> {
        self.get(i)?.collective
    }

    /// Nobody waits for the transfers of a collective any more. Returns those that nothing ends.
    pub(in crate::world) fn orphan(&mut self, collective: u32) -> Vec<Transfer> {
        let mut refused = Vec::new();
        for (i, entry) in (0..).zip(&mut self.entries) {
            let Some(transfer) = entry.as_mut().filter(|transfer| transfer.collective == Some(collective)) else {
                continue;
            };
            transfer.collective = None;
            if transfer.is_refused {
                self.free.push(i);
                refused.extend(entry.take());
            }
        }
        refused
    }

    /// The context of each transfer.
    pub(in crate::world) fn contexts(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().flatten().map(|transfer| context_of(transfer.key))
    }
}

/// The context of a message.
pub(in crate::world) const fn context_of(key: StepKey) -> u32 {
    key.context >> 16
}
