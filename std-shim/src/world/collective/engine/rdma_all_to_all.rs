//! An alltoall by remote writes (Mamidala 2008, §6.1): every rank lets the others write into its output, an allgather
//! exchanges the keys, and every rank writes its blocks into the outputs of all others, each with an immediate value.
//! A rank has its result when a value of every other rank has arrived and its own writes have ended.
//!
//! Of the first steps the adapter may write the blocks, over reliable connections (§8.1: a choice between time and
//! memory). The value follows as a message once such a block is in place.
//!
//! A rank writes to another one after that one's key, and so its call, has arrived. The keys of a persistent alltoall
//! are exchanged once: its later rounds begin with a barrier.

use unisono_core::collective::{Failure, FailureCause, Poll};
use unisono_core::ids::{CollectiveId, Rank as Member, RemoteKey};
use unisono_core::rma::RKey;
use unisono_core::schedule::StepOperation;

use super::schedule::CachedSchedule;
use super::scratch_pool::ScratchBlock;
use crate::world::process::remote_access::NativeMemory;

/// Bytes of an output in the exchange.
pub(in crate::world) const OUTPUT: usize = size_of::<[u64; 4]>();

/// A rank's output, as others name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct RemoteOutput {
    pub(in crate::world) key: RKey,
    /// For their adapters.
    pub(in crate::world) native: NativeMemory,
}

impl RemoteOutput {
    const UNKNOWN: Self = Self { key: RKey { index: 0, key: RemoteKey(0) }, native: NativeMemory::NONE };

    /// As the exchange carries it.
    pub(in crate::world) fn encode(self) -> [u8; OUTPUT] {
        let [address, native_key] = self.native.0;
        zerocopy::transmute!([u64::from(self.key.index), self.key.key.0, address, native_key])
    }

    /// Such an output.
    fn decode(bytes: [u8; OUTPUT]) -> Self {
        let [index, key, address, native_key]: [u64; 4] = zerocopy::transmute!(bytes);
        Self { key: RKey { index: index as u16, key: RemoteKey(key) }, native: NativeMemory([address, native_key]) }
    }
}

/// The immediate value of a call's writes: the context, and the low half of the call's number.
pub(in crate::world) const fn immediate(id: CollectiveId) -> u32 {
    id.context << 16 | id.sequence & 0xffff
}

/// The collective that exchanges the keys of a call, or holds its ranks back until all have entered the next round.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Exchange {
    /// The call.
    pub(in crate::world) of: u32,
    /// The memory of the exchange's buffers: this rank's key, then those of all.
    pub(in crate::world) block: ScratchBlock,
}

/// A write of a block, as it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct BlockWrite {
    /// The call, and its identity: another call may have its place meanwhile.
    pub(in crate::world) collective: u32,
    pub(in crate::world) id: CollectiveId,
    /// Whether it carries the value that announces the block.
    pub(in crate::world) announces: bool,
}

/// The outputs that a call has opened: of this rank, and of others to its adapter.
#[derive(Debug)]
pub(in crate::world) struct OpenedOutputs {
    pub(in crate::world) own: Option<RKey>,
    pub(in crate::world) others: Vec<(Member, RKey)>,
}

/// A write to be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct NextWrite {
    pub(in crate::world) to: Member,
    pub(in crate::world) key: RKey,
    /// Whether it carries the block, and its value.
    pub(in crate::world) has_block: bool,
    pub(in crate::world) announces: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The exchange is under way.
    Exchanging,
    /// Blocks are written.
    Writing,
    /// It was not started, or is complete.
    Complete,
    Failed(Failure),
}

/// What is known of a rank.
#[derive(Clone, Copy, Debug)]
struct Peer {
    output: RemoteOutput,
    /// Whether this rank's block for it was written, and its block for this rank has arrived.
    is_written: bool,
    has_arrived: bool,
}

/// A call.
#[derive(Debug)]
pub(in crate::world) struct RdmaAllToAll {
    pub(super) plan: CachedSchedule,
    pub(super) id: CollectiveId,
    stage: Stage,
    /// By rank.
    peers: Box<[Peer]>,
    /// Whether the outputs were exchanged.
    pub(in crate::world) knows_outputs: bool,
    /// The key of this rank's output.
    pub(in crate::world) key: Option<RKey>,
    /// Number of blocks whose write was started, this rank's own included.
    next: u32,
    /// Number of steps, after the first one, that the adapter may execute.
    native_steps: u16,
    /// Ranks that have their block, and not its value.
    unannounced: Vec<Member>,
}

impl RdmaAllToAll {
    /// A call that was not started.
    pub(super) fn new(id: CollectiveId, plan: CachedSchedule, native_steps: u16) -> Self {
        let unknown = Peer { output: RemoteOutput::UNKNOWN, is_written: false, has_arrived: false };
        let peers = vec![unknown; plan.size() as usize].into();
        Self {
            plan,
            id,
            stage: Stage::Complete,
            peers,
            knows_outputs: false,
            key: None,
            next: 0,
            native_steps,
            unannounced: Vec::new(),
        }
    }

    pub(super) fn restart(&mut self, id: CollectiveId) {
        (self.id, self.stage, self.next) = (id, Stage::Exchanging, 0);
        self.unannounced.clear();
        let own = self.plan.rank().0 as usize;
        for (i, peer) in self.peers.iter_mut().enumerate() {
            (peer.is_written, peer.has_arrived) = (i == own, i == own);
        }
    }

    /// Whether the exchange is still to be started, or under way.
    pub(in crate::world) fn is_exchanging(&self) -> bool {
        self.stage == Stage::Exchanging
    }

    /// Number of ranks.
    pub(in crate::world) fn size(&self) -> usize {
        self.peers.len()
    }

    /// The outputs of all ranks, one after the other: all have entered the call.
    pub(in crate::world) fn handle_outputs(&mut self, outputs: &[u8]) {
        for (peer, output) in self.peers.iter_mut().zip(outputs.as_chunks::<OUTPUT>().0) {
            peer.output = RemoteOutput::decode(*output);
        }
        self.knows_outputs = true;
        self.handle_barrier();
    }

    /// All ranks have entered the call.
    pub(in crate::world) fn handle_barrier(&mut self) {
        if self.stage == Stage::Exchanging {
            self.stage = Stage::Writing;
        }
    }

    /// The rank of a step.
    fn rank_of(&self, step: u32) -> Option<(Member, &Peer)> {
        let to = (u64::from(self.plan.rank().0) + u64::from(step)) % u64::from(self.plan.size());
        Some((Member(to as u32), self.peers.get(to as usize)?))
    }

    /// The ranks to which the adapter may write, with their outputs.
    pub(in crate::world) fn native_outputs(&self) -> impl Iterator<Item = (Member, RemoteOutput)> {
        let steps = 1..=u32::from(self.native_steps).min(self.plan.size() - 1);
        steps.filter_map(|step| self.rank_of(step)).map(|(to, peer)| (to, peer.output))
    }

    /// The call is over. Returns the key of this rank's output, and the outputs to which the adapter may have written.
    pub(in crate::world) fn close(&mut self) -> OpenedOutputs {
        let others = self.native_outputs().map(|(rank, output)| (rank, output.key)).collect();
        OpenedOutputs { own: self.key.take(), others }
    }

    /// Whether the adapter may execute steps.
    pub(in crate::world) const fn is_hybrid(&self) -> bool {
        self.native_steps > 0
    }

    /// The next write: a value that is still owed, or a block, that of the calling rank first.
    pub(in crate::world) fn next_write(&self) -> Option<NextWrite> {
        if self.stage != Stage::Writing {
            return None;
        }
        if let Some(to) = self.unannounced.last().copied() {
            let key = self.peers.get(to.0 as usize)?.output.key;
            return Some(NextWrite { to, key, has_block: false, announces: true });
        }
        let (to, peer) = self.rank_of(self.next).filter(|_| self.next < self.plan.size())?;
        let is_native = (1..=u32::from(self.native_steps)).contains(&self.next);
        Some(NextWrite { to, key: peer.output.key, has_block: true, announces: !is_native })
    }

    /// That write was started.
    pub(in crate::world) fn begin_next(&mut self) {
        if self.unannounced.pop().is_none() {
            self.next += 1;
        }
    }

    /// A rank has this rank's block, and is still to learn it.
    pub(in crate::world) fn handle_placed(&mut self, to: Member) {
        self.unannounced.push(to);
    }

    /// A rank has this rank's block.
    pub(in crate::world) fn handle_written(&mut self, to: Member) {
        if let Some(peer) = self.peers.get_mut(to.0 as usize) {
            peer.is_written = true;
        }
    }

    /// A rank's block has arrived. Returns false if it had before.
    pub(in crate::world) fn handle_arrived(&mut self, from: Member) -> bool {
        self.peers.get_mut(from.0 as usize).is_some_and(|peer| !core::mem::replace(&mut peer.has_arrived, true))
    }

    /// The ranks that it waits for.
    pub(in crate::world) fn awaited(&self) -> impl Iterator<Item = Member> {
        let is_open = matches!(self.stage, Stage::Exchanging | Stage::Writing);
        let open = (0..).zip(&self.peers).filter(move |(_, peer)| is_open && !(peer.is_written && peer.has_arrived));
        open.map(|(rank, _)| Member(rank))
    }

    pub(super) fn poll(&self) -> Poll<StepOperation> {
        match self.stage {
            Stage::Complete => Poll::Complete,
            Stage::Writing if self.next_write().is_none() && self.awaited().next().is_none() => Poll::Complete,
            Stage::Exchanging | Stage::Writing => Poll::Pending,
            Stage::Failed(failure) => Poll::Failed(failure),
        }
    }

    pub(super) fn handle_failed(&mut self, peer: Member) {
        if self.awaited().any(|awaited| awaited == peer) {
            self.abort(peer, FailureCause::Missing);
        }
    }

    pub(super) fn abort(&mut self, peer: Member, cause: FailureCause) {
        if matches!(self.stage, Stage::Exchanging | Stage::Writing) {
            let (id, collective) = (self.id, self.plan.kind());
            self.stage = Stage::Failed(Failure { rank: peer, cause, id, collective });
        }
    }

    /// The first blocks of which each was written.
    pub(super) fn completed(&self) -> u32 {
        let size = self.peers.len() as u32;
        let from_own = (0..size).map(|step| (u64::from(self.plan.rank().0) + u64::from(step)) % u64::from(size));
        let written = from_own.map_while(|rank| self.peers.get(rank as usize).filter(|peer| peer.is_written));
        written.count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::super::schedule::{Groups, ScheduleCache};
    use super::*;
    use crate::environment::tuning::MulticastUse;
    use crate::environment::tuning::{Override, Tuning};
    use proptest::prelude::*;
    use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};

    fn call(rank: u32, size: u32, algorithm: &str) -> RdmaAllToAll {
        let mut tuning = Tuning::default();
        tuning.set(Override::new(CollectiveKind::Alltoall, algorithm).expect("an algorithm"));
        let spec = CollectiveSpec {
            collective: CollectiveKind::Alltoall,
            rank: Member(rank),
            size,
            root: Member(0),
            bytes: 8,
            grain: 1,
            order: Order::Any,
            in_place: false,
            reduction_id: 0,
        };
        let plan = ScheduleCache::new(tuning, false, MulticastUse::Unavailable)
            .schedule(&spec, false, Groups::default())
            .expect("a plan");
        let Machine::Rdma(call) = Machine::new(CollectiveId { context: 3, sequence: 0 }, plan) else {
            panic!("remote writes");
        };
        call
    }

    fn output(i: u32) -> RemoteOutput {
        let key = RKey { index: i as u16 + 1, key: RemoteKey(u64::from(i) << 40 | 5) };
        RemoteOutput { key, native: NativeMemory([u64::from(i), 7]) }
    }

    fn outputs(size: u32) -> Vec<u8> {
        (0..size).flat_map(|i| output(i).encode()).collect()
    }

    #[test]
    fn an_output_survives_the_exchange() {
        let key = RKey { index: 0x1234, key: RemoteKey(0x0123_4567_89ab_cdef) };
        let output = RemoteOutput { key, native: NativeMemory([u64::MAX - 1, 1 << 32 | 9]) };
        assert_eq!(RemoteOutput::decode(output.encode()), output);
    }

    #[test]
    fn values_distinguish_contexts_and_neighbouring_calls() {
        let value = |context, sequence| immediate(CollectiveId { context, sequence });
        assert_eq!(value(3, 0x1_0007), 0x3_0007);
        assert!(value(3, 7) != value(4, 7) && value(3, 7) != value(3, 8));
    }

    #[test]
    fn nothing_is_written_before_the_exchange_has_ended() {
        let mut call = call(1, 3, "rdma");
        call.restart(CollectiveId { context: 3, sequence: 1 });
        assert!(call.is_exchanging() && call.next_write().is_none() && call.poll() == Poll::Pending);
        call.handle_outputs(&outputs(3));
        let mut order = Vec::new();
        while let Some(NextWrite { to, key, has_block: true, announces: true }) = call.next_write() {
            order.push((to.0, key.index));
            call.begin_next();
        }
        assert_eq!(order, [(1, 2), (2, 3), (0, 1)]);
    }

    #[test]
    fn what_the_adapter_wrote_is_announced_once_it_is_in_place() {
        let mut call = call(1, 3, "hybrid:k=1");
        call.restart(CollectiveId { context: 3, sequence: 1 });
        call.handle_outputs(&outputs(3));
        assert!(call.native_outputs().eq([(Member(2), output(2))]));
        let mut announced = Vec::new();
        while let Some(NextWrite { to, has_block: true, announces, .. }) = call.next_write() {
            announced.push((to.0, announces));
            call.begin_next();
        }
        assert_eq!(announced, [(1, true), (2, false), (0, true)]);
        assert!(call.next_write().is_none());
        call.handle_placed(Member(2));
        let value = call.next_write();
        assert_eq!(value, Some(NextWrite { to: Member(2), key: output(2).key, has_block: false, announces: true }));
        call.begin_next();
        assert!(call.next_write().is_none() && call.poll() == Poll::Pending);
    }

    #[test]
    fn a_rank_that_is_not_needed_any_more_fails_nothing() {
        let mut call = call(0, 3, "rdma");
        call.restart(CollectiveId { context: 3, sequence: 1 });
        call.handle_outputs(&outputs(3));
        call.handle_written(Member(1));
        assert!(call.handle_arrived(Member(1)) && !call.handle_arrived(Member(1)));
        call.handle_failed(Member(1));
        assert_eq!(call.poll(), Poll::Pending);
        call.handle_failed(Member(2));
        assert!(matches!(call.poll(), Poll::Failed(Failure { rank: Member(2), cause: FailureCause::Missing, .. })));
    }

    proptest! {
        /// Whatever the order of its events, a round is complete after the last of them, and not before.
        #[test]
        fn a_round_ends_with_its_last_event((size, rank, order) in (2..6_u32).prop_flat_map(|size| {
            let events = Just((0..3 * size).collect::<Vec<u32>>()).prop_shuffle();
            (Just(size), 0..size, events)
        })) {
            let mut call = call(rank, size, "rdma");
            for sequence in 1..3 {
                call.restart(CollectiveId { context: 3, sequence });
                prop_assert_eq!(call.knows_outputs, sequence > 1);
                if call.knows_outputs { call.handle_barrier() } else { call.handle_outputs(&outputs(size)) }
                for event in &order {
                    prop_assert_eq!(call.poll(), Poll::Pending);
                    let of = Member(event % size);
                    match event / size {
                        0 => call.begin_next(),
                        _ if of.0 == rank => {}
                        1 => call.handle_written(of),
                        _ => prop_assert!(call.handle_arrived(of)),
                    }
                    if call.poll() == Poll::Complete {
                        break;
                    }
                }
                prop_assert_eq!(call.poll(), Poll::Complete);
                prop_assert_eq!(call.completed(), size);
                prop_assert!(call.next_write().is_none() && call.awaited().next().is_none());
            }
        }
    }
}
