//! The core's machine of remote memory access. It numbers the ranks that take part, from the first operation or message of
//! each on: the others have no record in it.

use unisono_core::ids::PeerId;
use unisono_core::rma::{
    Action, Arrival, Entry, Immediate, OperationRecord, RegionRecord, RequesterState, Rma, RmaCall, RmaCompletion,
    RmaOperationId, RmaPools, RmaStartError, RmaStorage, Staging, TargetState,
};

/// Regions, operations and entries of a process.
const REGIONS: usize = 4096;
const OPERATIONS: usize = 1024;
pub(super) const ENTRIES: usize = 128;
/// Most unanswered requests per target.
const OUTSTANDING: u8 = 32;
/// Ranks that have records at first.
const FIRST_PEERS: usize = 16;

/// Records in boxed slices.
#[derive(Debug)]
pub(super) struct Boxes;

impl RmaStorage for Boxes {
    type Regions = Box<[RegionRecord]>;
    type Operations = Box<[OperationRecord]>;
    type Targets = Box<[TargetState]>;
    type Entries = Box<[Entry]>;
    type Requesters = Box<[RequesterState]>;
}

/// The machine of a process.
#[derive(Debug)]
pub(super) struct RmaMachine {
    /// The core's machine, for calls that name no rank.
    pub(super) rma: Rma<Boxes>,
    /// By rank: its number and 1, or 0.
    numbers: Box<[u32]>,
    /// By number: the rank.
    ranks: Vec<PeerId>,
    /// Number of ranks with records.
    capacity: usize,
}

impl RmaMachine {
    /// For a job of this number of ranks.
    pub(super) fn new(ranks: u32, staging: Staging) -> Self {
        let capacity = FIRST_PEERS.min(ranks as usize);
        let pools = RmaPools {
            regions: vec![RegionRecord::FREE; REGIONS].into(),
            operations: vec![OperationRecord::FREE; OPERATIONS].into(),
            targets: vec![TargetState::FREE; capacity].into(),
            entries: vec![Entry::FREE; ENTRIES].into(),
            requesters: vec![RequesterState::FREE; capacity].into(),
        };
        let numbers = vec![0; ranks as usize].into();
        Self { rma: Rma::new(pools, OUTSTANDING, staging), numbers, ranks: Vec::new(), capacity }
    }

    /// The number of a rank, if it has one.
    fn known(&self, rank: PeerId) -> Option<PeerId> {
        self.numbers.get(rank.0 as usize)?.checked_sub(1).map(PeerId)
    }

    /// The number of a rank; `room`: bytes of the longest message to it, or 0. `None`: the job has no such rank.
    fn number(&mut self, rank: PeerId, room: u32) -> Option<PeerId> {
        if let Some(number) = self.known(rank) {
            return Some(number);
        }
        let place = self.numbers.get_mut(rank.0 as usize)?;
        if self.ranks.len() == self.capacity {
            self.capacity *= 2;
            let targets = vec![TargetState::FREE; self.capacity].into();
            self.rma.grow_peers(targets, vec![RequesterState::FREE; self.capacity].into());
        }
        let number = PeerId(self.ranks.len() as u32);
        self.ranks.push(rank);
        *place = number.0 + 1;
        if room > 0 {
            self.rma.connect(number, room);
        }
        Some(number)
    }

    fn rank(&self, number: PeerId) -> PeerId {
        self.ranks.get(number.0 as usize).copied().unwrap_or(number)
    }

    /// A rank can be sent messages of `room` bytes.
    pub(super) fn connect(&mut self, rank: PeerId, room: u32) {
        if let Some(number) = self.known(rank) {
            self.rma.connect(number, room);
        }
    }

    /// A rank failed, finished, or was replaced.
    pub(super) fn disconnect(&mut self, rank: PeerId) {
        if let Some(number) = self.known(rank) {
            self.rma.disconnect(number);
        }
    }

    /// As [`Rma::start`], of an operation on a rank that can be sent messages of `room` bytes.
    pub(super) fn start(&mut self, call: &RmaCall, room: u32) -> Result<RmaOperationId, RmaStartError> {
        let to = self.number(call.to, room).ok_or(RmaStartError::UnknownPeer)?;
        self.rma.start(&RmaCall { to, ..*call })
    }

    /// As [`Rma::handle`], of a message from a rank that can be sent messages of `room` bytes.
    pub(super) fn handle(&mut self, from: PeerId, room: u32, head: &[u8], bytes: u32) -> Arrival {
        match self.number(from, room) {
            Some(from) => self.rma.handle(from, head, bytes),
            None => Arrival::Violation,
        }
    }

    /// As [`Rma::poll_action`].
    pub(super) fn poll_action(&mut self, can_grant: bool) -> Option<Action> {
        Some(match self.rma.poll_action(can_grant)? {
            Action::Send { to, head, payload, owner, solicited } => {
                Action::Send { to: self.rank(to), head, payload, owner, solicited }
            }
            Action::Grant { from, into, operation } => Action::Grant { from: self.rank(from), into, operation },
            Action::Place { to, placement, key, from, owner } => {
                Action::Place { to: self.rank(to), placement, key, from, owner }
            }
            other @ (Action::Execute { .. } | Action::Idle) => other,
        })
    }

    /// As [`Rma::poll_completion`].
    pub(super) fn poll_completion(&mut self) -> Option<RmaCompletion> {
        let ended = self.rma.poll_completion()?;
        Some(RmaCompletion { peer: self.rank(ended.peer), ..ended })
    }

    /// As [`Rma::poll_immediate`].
    pub(super) fn poll_immediate(&mut self) -> Option<Immediate> {
        let value = self.rma.poll_immediate()?;
        Some(Immediate { from: self.rank(value.from), ..value })
    }
}

#[cfg(test)]
mod tests {
    use unisono_core::ids::RemoteKey;
    use unisono_core::rma::operation::RmaRequest;
    use unisono_core::rma::{RKey, RemoteSpan};
    use unisono_core::span::Region;

    use super::*;

    const RANKS: u32 = 16_384;

    fn flush(to: u32) -> RmaCall {
        let at = RemoteSpan { region: RKey { index: 0, key: RemoteKey(0) }, offset: 0 };
        RmaCall { to: PeerId(to), at, request: RmaRequest::Flush, fence: false, user: to }
    }

    #[test]
    fn ranks_have_records_once_they_take_part() {
        let mut machine = RmaMachine::new(RANKS, Staging { region: Region::new(1, 1), slot: 64 });
        for rank in 0..RANKS {
            machine.connect(PeerId(rank), 1000);
        }
        assert_eq!((machine.ranks.len(), machine.capacity), (0, FIRST_PEERS));
        assert_eq!(size_of::<TargetState>() + size_of::<RequesterState>(), 72);
        // More than there are records for, in all parts of the job.
        let used: Vec<u32> = (0..40).map(|i| i * 409 + 7).collect();
        for rank in &used {
            assert!(machine.start(&flush(*rank), 1000).is_ok());
        }
        assert_eq!((machine.ranks.len(), machine.capacity), (40, 64));
        let mut reached = Vec::new();
        while let Some(action) = machine.poll_action(false) {
            let Action::Send { to, .. } = action else { panic!("{action:?}") };
            reached.push(to.0);
        }
        assert_eq!(reached, used);
        machine.disconnect(PeerId(7));
        let ended = machine.poll_completion().expect("its flush has ended");
        assert_eq!((ended.peer, ended.user, ended.result.is_err()), (PeerId(7), 7, true));
        // It was restarted.
        assert_eq!(machine.start(&flush(7), 0), Err(RmaStartError::UnknownPeer));
        machine.connect(PeerId(7), 500);
        assert!(machine.start(&flush(7), 500).is_ok());
        let sent = machine.poll_action(false);
        assert!(matches!(sent, Some(Action::Send { to: PeerId(7), .. })), "{sent:?}");
        assert_eq!((machine.ranks.len(), machine.capacity), (40, 64));
    }

    #[test]
    fn a_rank_that_does_not_exist_or_cannot_be_reached_is_refused() {
        let mut machine = RmaMachine::new(2, Staging { region: Region::new(1, 1), slot: 64 });
        assert_eq!(machine.start(&flush(1), 0), Err(RmaStartError::UnknownPeer));
        assert_eq!(machine.start(&flush(2), 1000), Err(RmaStartError::UnknownPeer));
        assert_eq!(machine.handle(PeerId(2), 1000, &[70; 40], 40), Arrival::Violation);
        machine.connect(PeerId(1), 1000);
        assert!(machine.start(&flush(1), 1000).is_ok());
    }
}
