//! One rank's part in one epoch.

use super::neighbour::{Neighbour, Neighbours};
use super::operands::Operands;
use super::releases::{KnownRelease, Output, Releases};
use super::{
    Body, Epoch, Message, Operand, Payload, Position, RankRange, Release, ReleasePath, Request, Token, Violation,
};
use crate::ids::Rank;
use crate::time::Time;

/// What an epoch needs of its tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'t> {
    pub(super) position: &'t Position,
    pub(super) path: ReleasePath,
    /// Units of 64 ns.
    pub(super) patience: u32,
    pub(super) repair: Option<u32>,
    pub(super) all_left: Epoch,
}

/// What a rank has done for its subtree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// It collects values, with a token if one has arrived. It may have acknowledged before the token arrived.
    Collecting(Option<Token>),
    /// It has sent an Ack, which holds its subtree's value.
    Acknowledged,
    /// It has divided its token among `children`, of which `unsent` still wait for theirs.
    Passed { token: Token, children: Neighbours, unsent: Neighbours },
    /// It has released its claim.
    Released,
}

/// One rank's part in one epoch, with up to `M` releases.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct EpochState<T: Time, const M: usize> {
    pub(super) epoch: Epoch,
    stage: Stage,
    operands: Operands,
    has_values: bool,
    is_complete: bool,
    /// The least epoch that one of the ranks in `operands` had not left when it entered.
    left: Epoch,
    releases: Releases<M>,
    /// When the latest child acknowledged, or else this rank entered.
    quiet_since: Option<T::Instant>,
    /// When to ask for what is missing.
    repair_at: Option<T::Instant>,
    /// How often it was asked for in vain.
    attempts: u8,
    /// It has to ask.
    asks: bool,
}

/// Largest exponent of the backoff of asking.
const MAX_BACKOFF: u8 = 5;

impl<T: Time, const M: usize> EpochState<T, M> {
    /// The root holds a token of `units`, with the claim to all ranks.
    pub(super) fn new(epoch: Epoch, position: &Position, units: u8) -> Self {
        let token = position.parent().is_none().then(|| Token { claim: position.all(), units });
        Self {
            epoch,
            stage: Stage::Collecting(token),
            operands: Operands::new(position.children()),
            has_values: false,
            is_complete: false,
            left: epoch,
            releases: Releases::NONE,
            quiet_since: None,
            repair_at: None,
            attempts: 0,
            asks: false,
        }
    }

    /// This rank enters; the first epoch that it has not left is `left`.
    pub(super) fn enter(&mut self, now: T::Instant, left: Epoch, has_values: bool) {
        self.operands.add_own();
        self.left = self.left.earlier(left);
        self.has_values = has_values;
        self.quiet_since = self.quiet_since.or(Some(now));
    }

    pub(super) const fn is_entered(&self) -> bool {
        self.operands.knows_own()
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether this rank's value is in an Ack, a token or a release.
    const fn has_contributed(&self) -> bool {
        !matches!(self.stage, Stage::Collecting(_))
    }

    /// An Ack of a child.
    pub(super) fn handle_ack(&mut self, now: T::Instant, child: u32, left: Epoch) -> Result<Payload, Violation> {
        if let Stage::Passed { token, children, .. } = self.stage
            && children.contains(Neighbour::Child(child))
        {
            if !mutant!("late_ack_counted") {
                // It crossed the token, on which the child releases (rule 4).
                return Ok([None; 2]);
            }
            self.stage = Stage::Collecting(Some(token));
        }
        if self.operands.knows_child(child) {
            return Err(Violation);
        }
        self.operands.add_child(child);
        if !mutant!("subtree_forgotten") {
            self.left = self.left.earlier(left);
        }
        self.quiet_since = Some(now);
        Ok([Some(Operand::Child(child as u8)), None])
    }

    /// A token from the parent.
    pub(super) fn handle_token(
        &mut self,
        token: Token,
        left: Epoch,
        position: &Position,
    ) -> Result<Payload, Violation> {
        let (claim, subtree) = (token.claim, position.subtree());
        let is_sound = claim.covers(subtree) && position.all().covers(claim) && token.units > 0;
        if !is_sound || !matches!(self.stage, Stage::Collecting(None) | Stage::Acknowledged) {
            return Err(Violation);
        }
        if self.stage != Stage::Acknowledged || !mutant!("race_ignored") {
            self.stage = Stage::Collecting(Some(token));
        }
        self.left = self.left.earlier(left);
        let (before, after) = (claim.first < subtree.first, subtree.end < claim.end);
        if before {
            self.operands.add_prefix();
        }
        if after {
            self.operands.add_suffix();
        }
        Ok([before.then_some(Operand::Prefix), after.then_some(Operand::Suffix)])
    }

    /// A release: by multicast, or from a neighbour.
    pub(super) fn handle_release(
        &mut self,
        now: T::Instant,
        from: Option<Neighbour>,
        Release { claim, is_passed_on }: Release,
        left: Epoch,
        tree: Surroundings<'_>,
    ) -> Result<Payload, Violation> {
        if claim.is_empty() || !tree.position.all().covers(claim) {
            return Err(Violation);
        }
        let from = from.map_or(Neighbours::NONE, Neighbours::one);
        let receivers = if is_passed_on { Neighbours::all(tree.position).without(from) } else { Neighbours::NONE };
        if self.releases.knows(claim, from, receivers)? {
            return Ok([None; 2]);
        }
        if claim.contains(tree.position.rank().0) && !self.has_contributed() {
            return Err(Violation);
        }
        let value = self.releases.add(claim, None, left, receivers).ok_or(Violation)?;
        self.attempts = 0;
        self.arm_repair(now, tree);
        Ok([Some(value), None])
    }

    /// A neighbour lacks the releases from `gap` on. What this rank lacks itself it does not answer: the neighbour asks
    /// again.
    pub(super) fn handle_ask(&mut self, from: Neighbour, gap: u32) {
        self.releases.request(Neighbours::one(from), gap);
    }

    /// This rank will answer no more Asks: it sends its neighbours the releases that they may lack.
    pub(super) fn send_releases(&mut self, position: &Position) {
        self.releases.send_all(Neighbours::all(position));
    }

    fn arm_repair(&mut self, now: T::Instant, tree: Surroundings<'_>) {
        let lacks_release = self.has_contributed() && self.releases.covered() != tree.position.size();
        let is_asking = tree.path != ReleasePath::Tree || !mutant!("asks_by_own_path");
        self.repair_at = tree.repair.filter(|_| lacks_release && is_asking).map(|repair| {
            let times = 1_u32.wrapping_shl(self.attempts.into());
            T::after(now, repair.saturating_mul(times))
        });
    }

    /// Children that a token would be divided among: none if there are too many, or none is missing.
    fn candidates(&self) -> Neighbours {
        let missing = Neighbours::children(self.operands.missing());
        let is_enough = |token: Token| missing.count() <= u32::from(token.units) || mutant!("units_ignored");
        match self.stage {
            Stage::Collecting(Some(token)) if self.is_entered() && is_enough(token) => missing,
            _ => Neighbours::NONE,
        }
    }

    /// When to call [`Self::handle_timeout`].
    pub(super) fn deadline(&self, patience: u32) -> Option<T::Instant> {
        if !self.candidates().is_empty() {
            return self.quiet_since.map(|since| T::after(since, patience));
        }
        self.repair_at
    }

    /// The deadline has passed: passes the token on, or asks for a release.
    pub(super) fn handle_timeout(&mut self, now: T::Instant, tree: Surroundings<'_>) {
        if !self.deadline(tree.patience).is_some_and(|at| T::is_due(now, at)) {
            return;
        }
        let children = self.candidates();
        if let Stage::Collecting(Some(token)) = self.stage
            && !children.is_empty()
        {
            self.stage = Stage::Passed { token, children, unsent: children };
            self.arm_repair(now, tree);
            return;
        }
        self.asks = true;
        self.attempts = self.attempts.saturating_add(1).min(T::MAX_BACKOFF).min(MAX_BACKOFF);
        self.arm_repair(now, tree);
        if mutant!("asks_once") {
            self.repair_at = None;
        }
    }

    /// The next request.
    pub(super) fn poll(&mut self, now: T::Instant, tree: Surroundings<'_>) -> Option<Request> {
        if self.has_values
            && self.is_entered()
            && let Some(combination) = self.operands.combine()
        {
            return Some(Request::Combine { epoch: self.epoch, combination });
        }
        let contribution = self.contribute(now, tree);
        contribution.or_else(|| self.answer(tree)).or_else(|| self.ask(tree)).or_else(|| self.finish(tree))
    }

    /// Sends the Ack, the tokens or the release.
    fn contribute(&mut self, now: T::Instant, tree: Surroundings<'_>) -> Option<Request> {
        let is_entered = self.is_entered();
        let is_whole = self.operands.missing() == 0;
        match (self.stage, tree.position.parent()) {
            (Stage::Collecting(None), Some(parent)) if is_entered && (is_whole || mutant!("ack_early")) => {
                Some(self.acknowledge(now, parent, tree))
            }
            (Stage::Collecting(Some(_)), Some(parent)) if is_entered && is_whole && mutant!("holder_acks") => {
                Some(self.acknowledge(now, parent, tree))
            }
            (Stage::Collecting(Some(token)), _) if is_whole && (is_entered || mutant!("entry_unawaited")) => {
                self.release(now, token.claim, tree)
            }
            (Stage::Passed { token, children, mut unsent }, _) => {
                let Some(Neighbour::Child(child)) = unsent.pop() else { return None };
                self.stage = Stage::Passed { token, children, unsent };
                Some(self.pass(token, children, child, tree))
            }
            _ => None,
        }
    }

    fn acknowledge(&mut self, now: T::Instant, parent: Rank, tree: Surroundings<'_>) -> Request {
        self.stage = Stage::Acknowledged;
        self.arm_repair(now, tree);
        let message = self.message(Body::Ack, self.left, tree);
        Request::Send { to: parent, message, payload: [self.operands.value(), None] }
    }

    /// Releases a claim. Its value is kept beyond the call, so it must not be in the input.
    fn release(&mut self, now: T::Instant, claim: RankRange, tree: Surroundings<'_>) -> Option<Request> {
        if self.has_values && self.operands.leave_input() {
            return Some(Request::Copy { epoch: self.epoch, from: Operand::Input, into: Operand::Subtree });
        }
        let value = self.operands.value()?;
        self.stage = Stage::Released;
        let (is_multicast, receivers) = match tree.path {
            ReleasePath::Multicast => (true, Neighbours::NONE),
            ReleasePath::Tree => (false, Neighbours::all(tree.position)),
            ReleasePath::Both => (true, Neighbours::all(tree.position)),
        };
        self.releases.add(claim, Some(value), self.left, receivers)?;
        self.arm_repair(now, tree);
        let message = self.message(Body::Release(Release { claim, is_passed_on: false }), self.left, tree);
        is_multicast.then_some(Request::Multicast { message, payload: [Some(value), None] })
    }

    /// The part of the token for one of the children: its claim runs from that of the child before, or from the token's
    /// first rank, to the end of its subtree, or of the token for the last child.
    fn pass(&self, token: Token, children: Neighbours, child: u32, tree: Surroundings<'_>) -> Request {
        let earlier = children.before(child);
        let is_last = children.last_child() == Some(child);
        let (units, parts) = (u32::from(token.units), children.count());
        let more = earlier.count() < units.checked_rem(parts).unwrap_or(0);
        let part = units.checked_div(parts).unwrap_or(0).wrapping_add(more.into());
        let units = if mutant!("units_copied") { token.units } else { part as u8 };
        let part = Token { claim: Self::part(token.claim, children, child, tree.position), units };
        let message = self.message(Body::Token(part), self.left, tree);
        let to = Rank(tree.position.child(child).first);
        Request::Send { to, message, payload: self.operands.around(child, is_last) }
    }

    /// The claim of one of the children among which a token is divided.
    fn part(claim: RankRange, children: Neighbours, child: u32, position: &Position) -> RankRange {
        let is_last = children.last_child() == Some(child);
        let first = children.before(child).last_child().map_or(claim.first, |before| position.child(before).end);
        let end = if is_last && !mutant!("claim_shortened") { claim.end } else { position.child(child).end };
        RankRange::new(first, end)
    }

    /// The neighbours without whose next message this rank cannot leave: children that have not acknowledged, or whose
    /// part of the token is not released, and the parent where the rest of the releases comes from.
    pub(super) fn awaited(&self, position: &Position) -> Neighbours {
        if !self.is_entered() || self.is_complete {
            return Neighbours::NONE;
        }
        let size = position.size();
        let (claim, mut parts) = match self.stage {
            Stage::Collecting(_) => return Neighbours::children(self.operands.missing()),
            Stage::Passed { token, children, .. } => (token.claim, children),
            Stage::Acknowledged | Stage::Released => (RankRange::new(0, 0), Neighbours::NONE),
        };
        let children = parts;
        let mut awaited = Neighbours::NONE;
        while let Some(Neighbour::Child(child)) = parts.pop() {
            let part = Self::part(claim, children, child, position);
            if self.releases.covered_of(part) != part.len() {
                awaited = awaited.with(Neighbours::one(Neighbour::Child(child)));
            }
        }
        let elsewhere = self.releases.covered().wrapping_sub(self.releases.covered_of(claim));
        let lacks_elsewhere = elsewhere != size.saturating_sub(claim.len());
        if lacks_elsewhere && position.parent().is_some() && !mutant!("parent_unawaited") {
            awaited = awaited.with(Neighbours::one(Neighbour::Parent));
        }
        awaited
    }

    /// Sends a release to a neighbour that waits for it.
    fn answer(&mut self, tree: Surroundings<'_>) -> Option<Request> {
        let release = self.releases.pending()?;
        let to = release.pending.pop()?.rank(tree.position)?;
        let KnownRelease { claim, value, left, is_passed_on, .. } = *release;
        let message = self.message(Body::Release(Release { claim, is_passed_on }), left, tree);
        Some(Request::Send { to, message, payload: [Some(value), None] })
    }

    /// Asks for the first gap: the child whose claim covers it, else the parent.
    fn ask(&mut self, tree: Surroundings<'_>) -> Option<Request> {
        let gap = self.releases.first_gap();
        if !core::mem::take(&mut self.asks) || gap >= tree.position.size() {
            return None;
        }
        let to = match self.stage {
            Stage::Passed { token, children, .. } if token.claim.contains(gap) && !mutant!("asks_parent") => {
                Self::holder(children, gap, tree.position)?
            }
            _ => Neighbour::Parent,
        };
        let message = self.message(Body::Ask { gap }, self.left, tree);
        Some(Request::Send { to: to.rank(tree.position)?, message, payload: [None; 2] })
    }

    /// The child whose part of the token covers the rank.
    fn holder(mut children: Neighbours, rank: u32, position: &Position) -> Option<Neighbour> {
        loop {
            let child = children.pop()?;
            let Neighbour::Child(number) = child else { return None };
            if children.is_empty() || rank < position.child(number).end {
                return Some(child);
            }
        }
    }

    /// Combines the claims in rank order and leaves, when they tile all ranks.
    fn finish(&mut self, tree: Surroundings<'_>) -> Option<Request> {
        let (size, covered) = (tree.position.size(), self.releases.covered());
        let is_tiled = covered == size || (mutant!("leaves_untiled") && covered != 0);
        if !is_tiled || !self.is_entered() || self.is_complete {
            return None;
        }
        let epoch = self.epoch;
        if self.has_values
            && let Some(output) = self.releases.combine(size)
        {
            return Some(match output {
                Output::Copied(from) => Request::Copy { epoch, from, into: Operand::Output },
                Output::Combined(combination) => Request::Combine { epoch, combination },
            });
        }
        self.is_complete = true;
        self.repair_at = None;
        if mutant!("releases_dropped") {
            self.releases = Releases::NONE;
        }
        Some(Request::Leave { epoch })
    }

    /// Every rank has left the epochs before this one: known when the claims tile all ranks.
    pub(super) fn left_by_all(&self) -> Epoch {
        self.releases.least_left(self.epoch)
    }

    const fn message(&self, body: Body, left: Epoch, tree: Surroundings<'_>) -> Message {
        Message { epoch: self.epoch, left, all_left: tree.all_left, body }
    }
}
