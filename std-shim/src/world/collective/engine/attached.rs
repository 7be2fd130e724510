//! Ranks that join the group of a root themselves, since their leader is late: what a rank that is no leader knows, and the
//! message of a stream that lists such ranks, by their ranks in the job.
//!
//! ```text
//! +-----------------------------------+
//! |            0xffff 0000            |  in place of a call's context
//! +-----------------------------------+
//! |                 0                 |
//! +-----------------------------------+
//! |  rank, the call after which it    |  of each
//! |  gets calls by multicast …        |
//! +-----------------------------------+
//! ```

use alloc::collections::VecDeque;

use unisono_core::ids::{PeerId, Rank as Member};
use unisono_core::multicast::{
    AttachChange, AttachConfig, AttachedList, AttachedRank, AttachedRanks, Attachment, DynamicAttach, GroupMember,
};

use super::context::ALL_CONTEXTS;
use super::rooted_stream::WINDOW;
use super::scratch_pool::ScratchBlock;

/// Ranks that a root's stream has beside its leaders, at most.
const PLACES: usize = 16;
/// Calls for which a rank follows its leader after it has asked the root.
pub(in crate::world) const AHEAD: u32 = 16;
/// Broadcasts of a root before a rank may attach, and broadcasts without long waits after which it detaches.
const WARMUP: u32 = 8;
const LINGER: u32 = 64;
/// Calls of which a rank remembers when it entered them: those that it may be ahead of its leader.
const ENTERED: usize = WINDOW + AHEAD as usize;

/// The attached ranks of a root, and a list of them.
pub(in crate::world) type AttachedPeers = AttachedRanks<PLACES>;
pub(in crate::world) type PeerList = AttachedList<PLACES>;

/// Whether a message that begins with this word is a list: no call has such a key.
pub(in crate::world) const fn is_list(key: u32) -> bool {
    key >> 16 == ALL_CONTEXTS
}

/// The bytes of a list.
pub(in crate::world) fn encode(list: &PeerList) -> Vec<u8> {
    let ranks = list.ranks().flat_map(|attached| [attached.rank.0, attached.after]);
    [ALL_CONTEXTS << 16, 0].into_iter().chain(ranks).flat_map(u32::to_le_bytes).collect()
}

/// The list whose ranks are these bytes. `None`: there is more than whole ranks, or too many.
pub(in crate::world) fn parse(bytes: &[u8]) -> Option<PeerList> {
    let (ranks, []) = bytes.as_chunks::<8>() else { return None };
    let word = |bytes: [u8; 4]| u32::from_le_bytes(bytes);
    PeerList::new(
        ranks
            .iter()
            .map(|[a, b, c, d, after @ ..]| AttachedRank { rank: Member(word([*a, *b, *c, *d])), after: word(*after) }),
    )
}

/// A rank that is not a leader in the broadcasts of a root.
#[derive(Debug)]
pub(in crate::world) struct Follower {
    pub(in crate::world) context: u32,
    pub(in crate::world) generation: u32,
    /// The root's rank in the communicator.
    pub(in crate::world) caller: Member,
    pub(in crate::world) root: PeerId,
    pub(in crate::world) attachment: Attachment,
    /// Calls that wait for the root's answer.
    pub(in crate::world) undecided: Vec<u32>,
    /// What a stream needs, from before the root is asked until it has answered.
    pub(in crate::world) reserved: Option<(Vec<GroupMember>, ScratchBlock)>,
    /// The root has refused it: it does not ask again.
    pub(in crate::world) is_refused: bool,
    decision: DynamicAttach,
    /// The latest calls, and when this rank entered them.
    entered: VecDeque<(u32, u64)>,
}

impl Follower {
    /// A rank that attaches while it waits longer than `threshold` µs for its leader in the mean.
    pub(in crate::world) fn new(
        (context, generation): (u32, u32),
        (caller, root): (Member, PeerId),
        threshold: u32,
    ) -> Self {
        Self {
            context,
            generation,
            caller,
            root,
            attachment: Attachment::default(),
            undecided: Vec::new(),
            reserved: None,
            is_refused: false,
            decision: Self::decision(threshold),
            entered: VecDeque::new(),
        }
    }

    const fn decision(threshold: u32) -> DynamicAttach {
        DynamicAttach::new(AttachConfig { threshold, warmup: WARMUP, linger: LINGER })
    }

    /// This rank has entered a call. What it is to do then: in a call of long ago that its leader has not reported, that
    /// was not late.
    pub(in crate::world) fn enter(&mut self, now: u64, sequence: u32) -> Option<AttachChange> {
        self.entered.push_back((sequence, now));
        if self.entered.len() <= ENTERED {
            return None;
        }
        self.entered.pop_front();
        self.decision.record(0, 1)
    }

    /// Its leader reports that the data of a call had arrived before it entered the call. What this rank is to do then.
    pub(in crate::world) fn handle_late(&mut self, now: u64, sequence: u32) -> Option<AttachChange> {
        let place = self.entered.iter().position(|(call, _)| *call == sequence)?;
        let (_, at) = *self.entered.get(place)?;
        self.entered.drain(..=place);
        let waited = now.saturating_sub(at) / 1000;
        // Its leader was not late in those before.
        let before = (0..place).filter_map(|_| self.decision.record(0, 1)).next();
        before.or_else(|| self.decision.record(waited.try_into().unwrap_or(u32::MAX), 0))
    }

    /// Its decisions begin anew.
    pub(in crate::world) const fn begin_anew(&mut self, threshold: u32) {
        self.decision = Self::decision(threshold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_the_wire() {
        let ranks = [(3, 7), (0x0102_0304, u32::MAX)].map(|(rank, after)| AttachedRank { rank: Member(rank), after });
        let list = PeerList::new(ranks).expect("few enough");
        let bytes = encode(&list);
        let (head, ranks) = bytes.split_at(8);
        assert!(is_list(u32::from_le_bytes(head[..4].try_into().unwrap())) && !is_list(0xfffe_ffff));
        assert_eq!(parse(ranks), Some(list));
        assert_eq!(parse(&[]), Some(PeerList::default()));
        assert_eq!(parse(&ranks[1..]), None);
        assert_eq!(parse(&[0; 8 * (PLACES + 1)]), None);
    }

    #[test]
    fn a_rank_attaches_while_its_leader_is_late() {
        let mut follower = Follower::new((1, 0), (Member(0), PeerId(0)), 500);
        let ms = 1_000_000;
        let mut call = 0;
        let mut enter = |follower: &mut Follower, wait: Option<u64>| {
            call += 1;
            let at = 100 * ms * u64::from(call);
            let early = follower.enter(at, call);
            early.or(wait.and_then(|wait| follower.handle_late(at + wait, call)))
        };
        assert!((1..WARMUP).all(|_| enter(&mut follower, Some(ms)).is_none()));
        assert_eq!(enter(&mut follower, Some(ms)), Some(AttachChange::Attach));
        let stays = (0..1000).take_while(|_| enter(&mut follower, None).is_none()).count();
        assert!((ENTERED + LINGER as usize..900).contains(&stays), "{stays}");
        assert_eq!(follower.handle_late(0, 1), None, "forgotten");
    }
}
