//! The trees of a process's communicators: their machines, the values that these combine, and their messages until they
//! are handled or sent.
//!
//! A communicator has a tree per shape, of all its ranks or of the leaders of its subgroups. It is made by the first call or
//! message that names it, and lives as long as the communicator: its epochs are the calls on it, which may overlap. A
//! collective of the communicator is a call, or the leaders' step of one is.

use alloc::collections::VecDeque;

use unisono_core::collective::FailureCause;
use unisono_core::collective::token_tree::header::{TREE_HEADER, TreeHeader, TreeShape};
use unisono_core::collective::token_tree::{
    Arrival, Body, Epoch, Message, Operand, Payload, Position, ReleasePath, TokenTree, TreeConfig,
};
use unisono_core::ids::{PeerId, Rank as Member, StepId};
use unisono_core::message::collective_transport::StepKey;
use unisono_core::schedule::BlockSpan;
use unisono_core::time::{Nanos, units};

use super::scratch_pool::ScratchBlock;
use super::transfer::context_of;
use crate::environment::tuning::{TREE_BYTES_MAX, UNITS_MAX};

/// Epochs with a record: twice the calls of a tree that a rank may have open.
const EPOCHS: usize = 8;
/// Most shapes of trees of a communicator, and most messages of a peer that wait to be handled.
const SHAPES_MAX: usize = 16;
const ARRIVALS_MAX: usize = 64;
/// Nanoseconds of quiet after which a token is passed: about a hop.
const PATIENCE: u64 = 30_000;
/// Nanoseconds until a rank first asks for a release that is sent by multicast.
const REPAIR: u64 = 2_000_000;

/// A rank's part in the calls on a tree.
pub(in crate::world) type Tree = TokenTree<Nanos, UNITS_MAX, EPOCHS>;

/// A message that has arrived.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct TreeArrival {
    pub(in crate::world) from: PeerId,
    pub(in crate::world) header: TreeHeader,
    /// Whether it was sent to all members, by multicast.
    pub(in crate::world) is_multicast: bool,
    /// Its values, and their bytes in all.
    pub(in crate::world) values: Option<ScratchBlock>,
    pub(in crate::world) bytes: u32,
}

/// A message to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::world) struct TreeSend {
    pub(in crate::world) to: PeerId,
    pub(in crate::world) key: StepKey,
    /// Header and values.
    pub(in crate::world) bytes: Vec<u8>,
}

/// One call on a tree: its key, and its values.
#[derive(Debug, Default)]
pub(in crate::world) struct EpochRecord {
    epoch: Epoch,
    key: Option<StepKey>,
    /// Bytes of a value.
    bytes: usize,
    /// A value per operand.
    values: Vec<u8>,
}

impl EpochRecord {
    /// Where an operand begins. The range of its bytes lies within `values`.
    pub(in crate::world) fn range(&self, operand: Operand) -> core::ops::Range<usize> {
        let number = match operand {
            Operand::Input => 0,
            Operand::Output => 1,
            Operand::Subtree => 2,
            Operand::Prefix => 3,
            Operand::Suffix => 4,
            Operand::Claim(number) => 5 + usize::from(number),
            Operand::Child(number) => 5 + UNITS_MAX + usize::from(number),
        };
        let first = number.saturating_mul(self.bytes).min(self.values.len());
        first..first.saturating_add(self.bytes).min(self.values.len())
    }

    pub(in crate::world) fn value(&self, operand: Operand) -> &[u8] {
        self.values.get(self.range(operand)).unwrap_or_default()
    }

    pub(in crate::world) fn value_mut(&mut self, operand: Operand) -> &mut [u8] {
        let range = self.range(operand);
        self.values.get_mut(range).unwrap_or_default()
    }

    pub(in crate::world) fn copy(&mut self, from: Operand, into: Operand) {
        let (from, into) = (self.range(from), self.range(into));
        self.values.copy_within(from, into.start);
    }

    pub(in crate::world) fn values_mut(&mut self) -> &mut [u8] {
        &mut self.values
    }
}

/// A communicator, and this rank's place in it.
#[derive(Clone, Debug)]
pub(in crate::world) struct TreeName {
    pub(in crate::world) context: u32,
    pub(in crate::world) generation: u32,
    pub(in crate::world) own: Member,
    pub(in crate::world) size: u32,
    /// The ranks of a tree of leaders, by their numbers in the communicator; else none.
    pub(in crate::world) leaders: Box<[Member]>,
}

/// A call on a tree: a collective, or the leaders' step of a composed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct TreeTask {
    /// Its index in the progress table.
    pub(in crate::world) collective: u32,
    pub(in crate::world) step: Option<LeadersStep>,
}

/// A step of the leaders of the last level: a barrier, or an allreduce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) struct LeadersStep {
    pub(in crate::world) step: StepId,
    pub(in crate::world) from: BlockSpan,
    pub(in crate::world) into: BlockSpan,
}

/// A tree of a communicator.
#[derive(Debug)]
pub(in crate::world) struct CommunicatorTree {
    pub(in crate::world) context: u32,
    pub(in crate::world) shape: TreeShape,
    /// As of messages: the low bits of the communicator's generation.
    generation: u16,
    pub(in crate::world) tree: Tree,
    /// As of its name.
    leaders: Box<[Member]>,
    /// Started calls that have not entered.
    pub(in crate::world) waiting: VecDeque<TreeTask>,
    /// Calls that have entered and are not over.
    pub(in crate::world) open: Vec<(Epoch, TreeTask)>,
    /// Calls whose result is in the output.
    pub(in crate::world) left: Vec<TreeTask>,
    records: [EpochRecord; EPOCHS],
}

impl CommunicatorTree {
    fn new(name: TreeName, shape: TreeShape) -> Option<Self> {
        let TreeName { context, generation, own, size, leaders } = name;
        let (degree, path) = (shape.degree.into(), ReleasePath::Tree);
        let (patience, repair) = (units(PATIENCE), shape.is_multicast.then(|| units(REPAIR)));
        let config = TreeConfig { size, degree, units: shape.units, path, patience, repair };
        let tree = Tree::new(own, &config, Epoch(0)).ok()?;
        let (waiting, open, left) = (VecDeque::new(), Vec::new(), Vec::new());
        let generation = generation as u16;
        Some(Self { context, shape, generation, tree, leaders, waiting, open, left, records: Default::default() })
    }

    /// The rank in the communicator of a rank of the tree.
    pub(in crate::world) fn rank_of(&self, number: Member) -> Member {
        self.leaders.get(number.0 as usize).copied().unwrap_or(number)
    }

    /// The rank in the tree of a rank of the communicator.
    pub(in crate::world) fn number_of(&self, rank: Member) -> Option<Member> {
        if self.leaders.is_empty() {
            return Some(rank);
        }
        (0..).map(Member).zip(&self.leaders).find(|(_, leader)| **leader == rank).map(|(number, _)| number)
    }

    /// The record of an epoch, whose values have `bytes` bytes each. `None` if the epoch has another key, or values of
    /// another length: not every rank makes the same call.
    pub(in crate::world) fn record(&mut self, epoch: Epoch, key: StepKey, bytes: usize) -> Option<&mut EpochRecord> {
        let children = self.tree.position().children() as usize;
        let record = self.records.get_mut(epoch.0 as usize % EPOCHS)?;
        if record.epoch != epoch || record.key.is_none() {
            // The tree frees a record when every rank has left its epoch, and refuses epochs further ahead.
            (record.epoch, record.key, record.bytes) = (epoch, Some(key), bytes);
            record.values.clear();
        }
        // An Ask has no values.
        if record.bytes == 0 {
            record.bytes = bytes;
        }
        let operands = 5 + UNITS_MAX + children;
        record.values.resize(operands.saturating_mul(record.bytes), 0);
        (record.key == Some(key) && (bytes == 0 || record.bytes == bytes)).then_some(record)
    }

    /// Whether a release that was sent by multicast is of the call that this rank makes, or may make.
    fn expects(&self, header: &TreeHeader, bytes: usize) -> bool {
        let Message { epoch, body, .. } = header.message;
        let record = self.records.get(epoch.0 as usize % EPOCHS);
        let known = record.filter(|record| record.epoch == epoch && record.key.is_some());
        let is_its =
            |record: &EpochRecord| record.key == Some(header.key()) && (record.bytes == 0 || record.bytes == bytes);
        matches!(body, Body::Release(_)) && header.values == [true, false] && known.is_none_or(is_its)
    }

    /// The record of an epoch that has one.
    pub(in crate::world) fn known(&mut self, epoch: Epoch) -> Option<&mut EpochRecord> {
        self.records.get_mut(epoch.0 as usize % EPOCHS).filter(|record| record.epoch == epoch && record.key.is_some())
    }

    /// Hands a message of `from` to the tree, or one that was sent by multicast, and stores its values.
    ///
    /// # Errors
    /// Its sender broke the protocol, or makes another call than a third rank.
    pub(in crate::world) fn handle(
        &mut self,
        now: u64,
        from: Option<Member>,
        header: &TreeHeader,
        values: &[u8],
    ) -> Result<(), FailureCause> {
        let arrival = match from {
            Some(from) => self.tree.handle_message(now, from, &header.message),
            None if !self.expects(header, values.len()) => return Err(FailureCause::Disagrees),
            None => self.tree.handle_multicast(now, &header.message),
        };
        let stored: Payload = match arrival {
            // It may be of an epoch whose record is that of another one now.
            Arrival::Store([None, None]) => return Ok(()),
            Arrival::Store(stored) => stored,
            Arrival::ProtocolViolation => return Err(FailureCause::Corrupt),
        };
        let count = header.values.iter().filter(|follows| **follows).count();
        let bytes = values.len().checked_div(count).unwrap_or(0);
        let record = self.record(header.message.epoch, header.key(), bytes).ok_or(FailureCause::Disagrees)?;
        let mut rest = values.chunks(bytes.max(1));
        for (operand, follows) in stored.into_iter().zip(header.values) {
            let value = if follows { rest.next().unwrap_or_default() } else { &[] };
            match operand {
                Some(_) if !follows => return Err(FailureCause::Corrupt),
                Some(operand) => {
                    let into = record.value_mut(operand);
                    if into.len() != value.len() {
                        return Err(FailureCause::Corrupt);
                    }
                    into.copy_from_slice(value);
                }
                None => {}
            }
        }
        Ok(())
    }

    /// A message with its values.
    pub(in crate::world) fn message(&mut self, message: Message, payload: Payload) -> Option<(StepKey, Vec<u8>)> {
        let (shape, generation) = (self.shape, self.generation);
        let record = self.known(message.epoch)?;
        let key = record.key?;
        let values = payload.map(|operand| operand.is_some());
        let header = TreeHeader { shape, generation, context: key.context, sequence: key.sequence, message, values };
        let mut bytes = header.encode().to_vec();
        payload.into_iter().flatten().for_each(|operand| bytes.extend_from_slice(record.value(operand)));
        Some((key, bytes))
    }
}

/// The trees of a process.
#[derive(Debug, Default)]
pub(in crate::world) struct TokenTrees {
    pub(in crate::world) trees: Vec<CommunicatorTree>,
    /// Messages that have arrived.
    pub(in crate::world) arrivals: VecDeque<TreeArrival>,
    /// Messages that wait for room. While there are any, no call ends: what reports later that this rank has finished
    /// must not overtake them.
    pub(in crate::world) outbox: VecDeque<TreeSend>,
    /// Whether a tree has something to do.
    pub(in crate::world) has_work: bool,
    /// The first deadline of a tree.
    pub(in crate::world) deadline: Option<u64>,
    pub(in crate::world) counters: TreeCounters,
}

/// What the trees of a process have sent and received to release.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::world) struct TreeCounters {
    /// Releases that were sent by multicast, and that arrived so.
    pub(in crate::world) multicasts: u64,
    pub(in crate::world) received: u64,
    /// Messages that asked for a release.
    pub(in crate::world) asks: u64,
}

impl TokenTrees {
    /// Whether a tree has something to do now.
    #[inline]
    pub(in crate::world) fn is_due(&self, now: u64) -> bool {
        self.has_work || self.deadline.is_some_and(|at| now >= at)
    }

    /// The index of the tree of a communicator, made if there is none. `None` if there is no such tree, or too many are
    /// asked for.
    pub(in crate::world) fn find(
        &mut self,
        context: u32,
        shape: TreeShape,
        name: impl FnOnce() -> Option<TreeName>,
    ) -> Option<usize> {
        let found = self.trees.iter().position(|tree| (tree.context, tree.shape) == (context, shape));
        if found.is_some() {
            return found;
        }
        if self.trees.iter().filter(|tree| tree.context == context).count() >= SHAPES_MAX {
            return None;
        }
        self.trees.push(CommunicatorTree::new(name()?, shape)?);
        Some(self.trees.len() - 1)
    }

    /// This rank calls nothing more on the trees of a communicator, or of any: it sends what others may lack.
    pub(in crate::world) fn end(&mut self, is_over: impl Fn(u32) -> bool) {
        for tree in self.trees.iter_mut().filter(|tree| is_over(tree.context)) {
            tree.tree.end();
            self.has_work = true;
        }
    }

    /// Whether nothing has to be sent.
    pub(in crate::world) fn is_idle(&self) -> bool {
        !self.has_work && self.outbox.is_empty()
    }

    /// The contexts whose messages wait to be sent.
    pub(in crate::world) fn busy_contexts(&self) -> impl Iterator<Item = u32> {
        self.outbox.iter().map(|send| context_of(send.key))
    }

    /// Whether a peer has sent more messages than any correct rank before they are handled. The network may double those
    /// that are sent by multicast.
    pub(in crate::world) fn has_too_many_of(&self, from: PeerId, is_multicast: bool) -> bool {
        let is_its = |arrival: &&TreeArrival| (arrival.from, arrival.is_multicast) == (from, is_multicast);
        self.arrivals.iter().filter(is_its).count() >= ARRIVALS_MAX
    }

    /// Whether a message asks for what an earlier one that waits to be handled asks for.
    pub(in crate::world) fn is_repeated(&self, from: PeerId, header: &TreeHeader) -> bool {
        let is_ask = |header: &TreeHeader| matches!(header.message.body, Body::Ask { .. });
        let is_same = |arrival: &TreeArrival| {
            let Message { epoch, .. } = arrival.header.message;
            let known = (arrival.from, arrival.header.key(), arrival.header.shape, epoch);
            is_ask(&arrival.header) && known == (from, header.key(), header.shape, header.message.epoch)
        };
        is_ask(header) && self.arrivals.iter().any(is_same)
    }

    /// The members that a call on a tree waits for.
    pub(in crate::world) fn awaited(&self, collective: u32) -> Vec<Member> {
        let open = self.trees.iter().flat_map(|tree| tree.open.iter().map(move |(epoch, of)| (tree, *epoch, *of)));
        let found = open.filter(|(.., of)| of.collective == collective);
        found.flat_map(|(tree, epoch, _)| tree.tree.awaited(epoch).map(|number| tree.rank_of(number))).collect()
    }

    /// Forgets a call that has failed.
    pub(in crate::world) fn forget(&mut self, collective: u32) {
        for tree in &mut self.trees {
            tree.waiting.retain(|of| of.collective != collective);
            tree.open.retain(|(_, of)| of.collective != collective);
            tree.left.retain(|of| of.collective != collective);
        }
    }

    /// Drops the trees and unsent messages of contexts that are over.
    pub(in crate::world) fn discard(&mut self, is_over: impl Fn(u32) -> bool) {
        self.trees.retain(|tree| !is_over(tree.context));
        self.outbox.retain(|send| !is_over(context_of(send.key)));
    }
}

/// Whether a message's values can be those of a correct rank.
pub(in crate::world) fn is_sound(header: &TreeHeader, bytes: usize) -> bool {
    let values = header.values.iter().filter(|follows| **follows).count();
    let shape = header.shape;
    let is_tree = (1..=Position::MAX_DEGREE).contains(&shape.degree.into()) && usize::from(shape.units) <= UNITS_MAX;
    let is_whole = if values == 0 { bytes == 0 } else { bytes.is_multiple_of(values) };
    let is_released = !(shape.is_multicast && shape.is_of_leaders);
    is_tree && is_released && is_whole && bytes <= values * TREE_BYTES_MAX
}

const _: () = assert!(TREE_HEADER + 2 * TREE_BYTES_MAX <= 512);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unisono_core::collective::token_tree::{RankRange, Release, Request, Token};

    const SHAPE: TreeShape = TreeShape { degree: 2, units: 2, is_multicast: true, is_of_leaders: false };

    fn tree(own: u32, size: u32) -> CommunicatorTree {
        let name = TreeName { context: 1, generation: 3, own: Member(own), size, leaders: Box::default() };
        CommunicatorTree::new(name, SHAPE).expect("a tree")
    }
    const KEY: StepKey = StepKey { context: 1 << 16 | 7, sequence: 5, step: 0 };

    fn body() -> impl Strategy<Value = Body> {
        let claim = || (0_u32..8, 0_u32..9).prop_map(|(first, end)| RankRange::new(first, end));
        prop_oneof![
            Just(Body::Ack),
            (claim(), 0_u8..4).prop_map(|(claim, units)| Body::Token(Token { claim, units })),
            (claim(), any::<bool>()).prop_map(|(claim, is_passed_on)| Body::Release(Release { claim, is_passed_on })),
            (0_u32..9).prop_map(|gap| Body::Ask { gap }),
        ]
    }

    fn header() -> impl Strategy<Value = TreeHeader> {
        (body(), 0_u32..20, 0_u32..9, 0_u32..9, any::<[bool; 2]>(), 5_u32..7).prop_map(
            |(body, epoch, left, all_left, values, sequence)| TreeHeader {
                shape: SHAPE,
                generation: 3,
                context: KEY.context,
                sequence,
                message: Message {
                    epoch: Epoch(epoch),
                    left: Epoch(epoch.wrapping_sub(left)),
                    all_left: Epoch(epoch.wrapping_sub(all_left)),
                    body,
                },
                values,
            },
        )
    }

    proptest! {
        /// Whatever neighbours send, nothing panics, nothing is written outside the values, and the tree comes to rest.
        #[test]
        fn any_messages_are_handled(messages in prop::collection::vec((header(), 0_u32..9, 0_usize..40), 1..40)) {
            let mut tree = tree(1, 7);
            for (number, (header, from, bytes)) in messages.into_iter().enumerate() {
                let values = vec![1; bytes];
                if is_sound(&header, bytes) {
                    // The last one stands for a multicast.
                    let from = Some(Member(from)).filter(|_| from < 8);
                    let _ = tree.handle(number as u64, from, &header, &values);
                }
                if number % 5 == 0 && let Ok(epoch) = tree.tree.enter(number as u64, true) {
                    tree.record(epoch, KEY, 8);
                }
                let requests: Vec<Request> = core::iter::from_fn(|| tree.tree.poll(number as u64)).take(1000).collect();
                prop_assert!(requests.len() < 1000);
                for request in requests {
                    match request {
                        Request::Send { message, payload, .. } => {
                            let sent = tree.message(message, payload);
                            prop_assert!(sent.is_none_or(|(_, bytes)| TreeHeader::decode(&bytes).is_some()));
                        }
                        Request::Copy { epoch, from, into } => {
                            if let Some(record) = tree.known(epoch) {
                                record.copy(from, into);
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    #[test]
    fn another_call_in_the_same_epoch_disagrees() {
        let mut tree = tree(0, 3);
        let header = |sequence, body| {
            let message = Message { epoch: Epoch(0), left: Epoch(0), all_left: Epoch(0), body };
            let (context, values) = (KEY.context, [true, false]);
            TreeHeader { shape: SHAPE, generation: 3, context, sequence, message, values }
        };
        let (ack, from) = (Body::Ack, |rank| Some(Member(rank)));
        assert_eq!(tree.handle(0, from(1), &header(5, ack), &[3; 8]), Ok(()));
        assert_eq!(tree.known(Epoch(0)).map(|record| record.value(Operand::Child(0)).to_vec()), Some(vec![3; 8]));
        assert_eq!(tree.handle(0, from(2), &header(6, ack), &[3; 8]), Err(FailureCause::Disagrees));
        assert_eq!(tree.handle(0, from(1), &header(5, ack), &[3; 8]), Err(FailureCause::Corrupt));
        // A multicast of another call, or with a longer value, does not reach the tree, which would count it.
        let release = Body::Release(Release { claim: RankRange::new(1, 2), is_passed_on: false });
        assert_eq!(tree.handle(0, None, &header(6, release), &[3; 8]), Err(FailureCause::Disagrees));
        assert_eq!(tree.handle(0, None, &header(5, release), &[3; 9]), Err(FailureCause::Disagrees));
        assert_eq!(tree.handle(0, None, &header(5, ack), &[3; 8]), Err(FailureCause::Disagrees));
        assert_eq!(tree.handle(0, None, &header(5, release), &[4; 8]), Ok(()));
        assert_eq!(tree.known(Epoch(0)).map(|record| record.value(Operand::Claim(0)).to_vec()), Some(vec![4; 8]));
    }

    #[test]
    fn a_rank_that_is_slow_keeps_one_ask_of_an_epoch() {
        let mut trees = TokenTrees::default();
        let header = |epoch, body| {
            let message = Message { epoch: Epoch(epoch), left: Epoch(0), all_left: Epoch(0), body };
            let (context, values) = (KEY.context, [false; 2]);
            TreeHeader { shape: SHAPE, generation: 3, context, sequence: 5, message, values }
        };
        for epoch in [0, 1] {
            let header = header(epoch, Body::Ask { gap: 0 });
            trees.arrivals.push_back(TreeArrival {
                from: PeerId(2),
                header,
                is_multicast: false,
                values: None,
                bytes: 0,
            });
        }
        let is_repeated = |from, epoch, body| trees.is_repeated(PeerId(from), &header(epoch, body));
        assert!(is_repeated(2, 0, Body::Ask { gap: 3 }) && is_repeated(2, 1, Body::Ask { gap: 0 }));
        assert!(!is_repeated(1, 0, Body::Ask { gap: 0 }) && !is_repeated(2, 2, Body::Ask { gap: 0 }));
        assert!(!is_repeated(2, 0, Body::Ack), "no other message may be dropped");
    }

    #[test]
    fn shapes_and_lengths_of_no_correct_rank_are_refused() {
        let message = Message { epoch: Epoch(0), left: Epoch(0), all_left: Epoch(0), body: Body::Ack };
        let header =
            TreeHeader { shape: SHAPE, generation: 0, context: 0, sequence: 1, message, values: [true, false] };
        assert!(is_sound(&header, TREE_BYTES_MAX) && !is_sound(&header, TREE_BYTES_MAX + 1));
        assert!(is_sound(&TreeHeader { values: [false; 2], ..header }, 0));
        assert!(!is_sound(&TreeHeader { values: [false; 2], ..header }, 8));
        assert!(!is_sound(&TreeHeader { values: [true; 2], ..header }, 9));
        for (degree, units) in [(0, 1), (29, 1), (8, 5)] {
            let shape = TreeShape { degree, units, ..TreeShape::default() };
            assert!(!is_sound(&TreeHeader { shape, ..header }, 8));
        }
        let shape = TreeShape { is_of_leaders: true, ..SHAPE };
        assert!(!is_sound(&TreeHeader { shape, ..header }, 8), "leaders release by their tree");
    }
}
