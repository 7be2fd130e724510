//! One rank's part in one epoch.

use super::operands::Operands;
use super::{Body, Epoch, Message, Operand, Payload, Position, RankRange, ReleasePath, Request, Token};
use crate::ids::Rank;
use crate::time::Time;

/// What an epoch needs of its tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'t> {
    pub(super) position: &'t Position,
    pub(super) path: ReleasePath,
    /// Units of 64 ns.
    pub(super) patience: u32,
    pub(super) repair: u32,
    pub(super) all_left: Epoch,
}

/// What a rank has done for its subtree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// It collects values, with a token if one has arrived.
    Collecting(Option<Token>),
    /// It has sent an Ack, which holds its subtree's value.
    Acknowledged,
    /// It has divided its token among `children`, of which `unsent` still wait for theirs.
    Passed { token: Token, children: u32, unsent: u32 },
    /// It has released its claim.
    Released,
}

/// A release, its own or received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Release {
    claim: RankRange,
    value: Operand,
    left: Epoch,
    /// Neighbours that it has to be sent to.
    pending: u32,
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
    releases: [Option<Release>; M],
    /// Ranks in `releases`.
    covered: u32,
    /// Ranks whose values the output holds.
    combined: u32,
    /// When the latest child acknowledged, or else this rank entered.
    quiet_since: Option<T::Instant>,
    /// When to ask for what is missing.
    repair_at: Option<T::Instant>,
    /// How often it was asked for in vain.
    attempts: u8,
    /// The first rank that no release covers, to be asked for.
    gap: Option<u32>,
}

/// The bit of the parent in sets of neighbours, beside those of the children.
const PARENT: u32 = 1 << 31;

/// A neighbour in the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Neighbour {
    Parent,
    Child(u32),
}

impl Neighbour {
    pub(super) fn find(position: &Position, rank: Rank) -> Option<Self> {
        if position.parent() == Some(rank) {
            return Some(Self::Parent);
        }
        position.child_number(rank).map(Self::Child)
    }

    const fn bit(self) -> u32 {
        match self {
            Self::Parent => PARENT,
            Self::Child(number) => 1_u32.wrapping_shl(number),
        }
    }

    /// The first of a set.
    const fn first_of(set: u32) -> Option<Self> {
        match set {
            0 => None,
            PARENT => Some(Self::Parent),
            _ => Some(Self::Child(set.trailing_zeros())),
        }
    }

    fn rank(self, position: &Position) -> Option<Rank> {
        match self {
            Self::Parent => position.parent(),
            Self::Child(number) => Some(Rank(position.child(number).first)),
        }
    }
}

/// The message breaks the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Violation;

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
            releases: [None; M],
            covered: 0,
            combined: 0,
            quiet_since: None,
            repair_at: None,
            attempts: 0,
            gap: None,
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
            && children & Neighbour::Child(child).bit() != 0
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
        let has_acknowledged = self.stage == Stage::Acknowledged;
        if !(has_acknowledged && mutant!("race_ignored")) {
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
        claim: RankRange,
        left: Epoch,
        tree: Surroundings<'_>,
    ) -> Result<Payload, Violation> {
        if claim.is_empty() || !tree.position.all().covers(claim) {
            return Err(Violation);
        }
        let from = from.map_or(0, Neighbour::bit);
        for release in self.releases.iter_mut().flatten() {
            if mutant!("duplicate_kept") {
                continue;
            }
            if release.claim == claim {
                release.pending &= !from;
                return Ok([None; 2]);
            }
            if release.claim.overlaps(claim) {
                return Err(Violation);
            }
        }
        if claim.contains(tree.position.rank().0) && !self.has_contributed() {
            return Err(Violation);
        }
        let pending = match tree.path {
            ReleasePath::Multicast => 0,
            ReleasePath::Tree => Self::neighbours(tree.position) & !from,
        };
        let value = self.keep(claim, None, left, pending).ok_or(Violation)?;
        self.attempts = 0;
        self.arm_repair(now, tree);
        Ok([Some(value), None])
    }

    /// A neighbour lacks the releases from `gap` on. What this rank lacks itself it does not answer: the neighbour asks
    /// again.
    pub(super) fn handle_ask(&mut self, from: Neighbour, gap: u32) {
        for release in self.releases.iter_mut().flatten() {
            if gap < release.claim.end {
                release.pending |= from.bit();
            }
        }
    }

    fn neighbours(position: &Position) -> u32 {
        let children = 1_u32.wrapping_shl(position.children()).wrapping_sub(1);
        if position.parent().is_some() { children | PARENT } else { children }
    }

    /// Records a release in the first free record; `None` if there is none. Its value is in `value`, or else in the
    /// buffer of the record.
    fn keep(&mut self, claim: RankRange, value: Option<Operand>, left: Epoch, pending: u32) -> Option<Operand> {
        let (number, free) = self.releases.iter_mut().enumerate().find(|(_, release)| release.is_none())?;
        let value = value.unwrap_or(Operand::Claim(number as u8));
        *free = Some(Release { claim, value, left, pending });
        self.covered = self.covered.wrapping_add(claim.len());
        Some(value)
    }

    fn arm_repair(&mut self, now: T::Instant, tree: Surroundings<'_>) {
        let has_multicast = tree.path == ReleasePath::Multicast;
        self.repair_at = (has_multicast && self.has_contributed() && self.covered != tree.position.size()).then(|| {
            let backoff = u32::from(self.attempts.min(T::MAX_BACKOFF).min(MAX_BACKOFF));
            T::after(now, tree.repair.saturating_mul(1_u32.wrapping_shl(backoff)))
        });
    }

    /// Children that a token would be divided among: none if there are too many, or none is missing.
    fn candidates(&self) -> u32 {
        let missing = self.operands.missing();
        let is_enough = |token: Token| missing.count_ones() <= u32::from(token.units) || mutant!("units_ignored");
        match self.stage {
            Stage::Collecting(Some(token)) if self.is_entered() && is_enough(token) => missing,
            _ => 0,
        }
    }

    /// When to call [`Self::handle_timeout`].
    pub(super) fn deadline(&self, patience: u32) -> Option<T::Instant> {
        if self.candidates() != 0 {
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
        if let (Stage::Collecting(Some(token)), true) = (self.stage, children != 0) {
            self.stage = Stage::Passed { token, children, unsent: children };
            self.arm_repair(now, tree);
        } else {
            self.gap = self.first_gap();
            self.attempts = self.attempts.saturating_add(1).min(T::MAX_BACKOFF).min(MAX_BACKOFF);
            self.arm_repair(now, tree);
            if mutant!("asks_once") {
                self.repair_at = None;
            }
        }
    }

    /// The first rank that no release covers.
    fn first_gap(&self) -> Option<u32> {
        let mut next = 0;
        // Each release moves it once at most.
        for _ in 0..M {
            match self.release_from(next) {
                Some(release) => next = release.claim.end,
                None => break,
            }
        }
        Some(next)
    }

    fn release_from(&self, first: u32) -> Option<Release> {
        self.releases.iter().flatten().find(|release| release.claim.first == first).copied()
    }

    /// The next request.
    pub(super) fn poll(&mut self, now: T::Instant, tree: Surroundings<'_>) -> Option<Request> {
        if self.has_values
            && self.is_entered()
            && let Some(combination) = self.operands.combine()
        {
            return Some(Request::Combine { epoch: self.epoch, combination });
        }
        self.contribute(now, tree)
            .or_else(|| self.answer(tree))
            .or_else(|| self.ask(tree))
            .or_else(|| self.finish(tree))
    }

    /// Sends the Ack, the tokens or the release.
    fn contribute(&mut self, now: T::Instant, tree: Surroundings<'_>) -> Option<Request> {
        let is_entered = self.is_entered() || mutant!("entry_unawaited");
        let is_whole = self.operands.missing() == 0;
        match (self.stage, tree.position.parent()) {
            (Stage::Collecting(None), Some(parent)) if self.is_entered() && (is_whole || mutant!("ack_early")) => {
                self.acknowledge(now, parent, tree)
            }
            (Stage::Collecting(Some(_)), Some(parent)) if self.is_entered() && is_whole && mutant!("holder_acks") => {
                self.acknowledge(now, parent, tree)
            }
            (Stage::Collecting(Some(token)), _) if is_entered && is_whole => self.release(now, token.claim, tree),
            (Stage::Passed { token, children, unsent }, _) if unsent != 0 => {
                let child = unsent.trailing_zeros();
                let unsent = unsent & unsent.wrapping_sub(1);
                self.stage = Stage::Passed { token, children, unsent };
                Some(self.pass(token, children, child, tree))
            }
            _ => None,
        }
    }

    fn acknowledge(&mut self, now: T::Instant, parent: Rank, tree: Surroundings<'_>) -> Option<Request> {
        self.stage = Stage::Acknowledged;
        self.arm_repair(now, tree);
        let payload = [self.operands.value(), None];
        Some(Request::Send { to: parent, message: self.message(Body::Ack, self.left, tree), payload })
    }

    fn release(&mut self, now: T::Instant, claim: RankRange, tree: Surroundings<'_>) -> Option<Request> {
        if self.has_values && self.operands.leave_input() {
            return Some(Request::Copy { epoch: self.epoch, from: Operand::Input, into: Operand::Subtree });
        }
        let value = self.operands.value()?;
        let pending = match tree.path {
            ReleasePath::Multicast => 0,
            ReleasePath::Tree => Self::neighbours(tree.position),
        };
        self.stage = Stage::Released;
        self.keep(claim, Some(value), self.left, pending)?;
        self.arm_repair(now, tree);
        let message = self.message(Body::Release(claim), self.left, tree);
        let payload = [Some(value), None];
        match tree.path {
            ReleasePath::Multicast => Some(Request::Multicast { message, payload }),
            ReleasePath::Tree => None,
        }
    }

    /// The part of the token for one of the children: its claim runs from that of the child before, or from the token's
    /// first rank, to the end of its subtree, or of the token for the last child.
    fn pass(&self, token: Token, children: u32, child: u32, tree: Surroundings<'_>) -> Request {
        let earlier = children & Neighbour::Child(child).bit().wrapping_sub(1);
        let later = children & !earlier & !Neighbour::Child(child).bit();
        let (subtree, is_last) = (tree.position.child(child), later == 0);
        let first = match earlier {
            0 => token.claim.first,
            _ => tree.position.child(31_u32.saturating_sub(earlier.leading_zeros())).end,
        };
        let end = if is_last && !mutant!("claim_shortened") { token.claim.end } else { subtree.end };
        let (units, shares) = (u32::from(token.units), children.count_ones());
        let more = u32::from(earlier.count_ones() < units.checked_rem(shares).unwrap_or(0));
        let share = units.checked_div(shares).unwrap_or(0).wrapping_add(more);
        let units = if mutant!("units_copied") { token.units } else { share as u8 };
        let part = Token { claim: RankRange::new(first, end), units };
        let payload = self.operands.around(child, is_last);
        let message = self.message(Body::Token(part), self.left, tree);
        Request::Send { to: Rank(subtree.first), message, payload }
    }

    /// Sends a release to a neighbour that waits for it.
    fn answer(&mut self, tree: Surroundings<'_>) -> Option<Request> {
        let release = self.releases.iter_mut().flatten().find(|release| release.pending != 0)?;
        let neighbour = Neighbour::first_of(release.pending)?;
        release.pending &= !neighbour.bit();
        let Release { claim, value, left, .. } = *release;
        Some(Request::Send {
            to: neighbour.rank(tree.position)?,
            message: self.message(Body::Release(claim), left, tree),
            payload: [Some(value), None],
        })
    }

    /// Asks for the first gap: the child whose claim covers it, else the parent.
    fn ask(&mut self, tree: Surroundings<'_>) -> Option<Request> {
        let gap = self.gap.take()?;
        let to = match self.stage {
            Stage::Passed { token, children, .. } if token.claim.contains(gap) && !mutant!("asks_parent") => {
                Neighbour::Child(Self::holder(children, gap, tree.position))
            }
            _ => Neighbour::Parent,
        };
        let message = self.message(Body::Ask { gap }, self.left, tree);
        Some(Request::Send { to: to.rank(tree.position)?, message, payload: [None; 2] })
    }

    /// The child whose part of the token covers the rank.
    fn holder(children: u32, rank: u32, position: &Position) -> u32 {
        let mut rest = children;
        loop {
            let child = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            if rest == 0 || rank < position.child(child).end {
                return child;
            }
        }
    }

    /// Combines the claims in rank order and leaves, when they tile all ranks.
    fn finish(&mut self, tree: Surroundings<'_>) -> Option<Request> {
        let is_tiled = self.covered == tree.position.size() || (mutant!("leaves_untiled") && self.covered != 0);
        if !is_tiled || !self.is_entered() || self.is_complete {
            return None;
        }
        if self.has_values
            && let Some(request) = self.combine_claims(tree.position)
        {
            return Some(request);
        }
        self.is_complete = true;
        self.repair_at = None;
        self.gap = None;
        if mutant!("releases_dropped") {
            self.releases = [None; M];
        }
        Some(Request::Leave { epoch: self.epoch })
    }

    fn combine_claims(&mut self, position: &Position) -> Option<Request> {
        let next = |first: u32| {
            let arrived_first = self.releases.iter().flatten().nth(usize::from(first != 0)).copied();
            if mutant!("claims_unordered") { arrived_first } else { self.release_from(first) }
        };
        let (epoch, into) = (self.epoch, Operand::Output);
        if self.combined >= position.size() {
            return None;
        }
        let first = next(self.combined)?;
        if self.combined != 0 {
            self.combined = self.combined.wrapping_add(first.claim.len());
            let combination = super::Combination { left: into, right: first.value, into };
            return Some(Request::Combine { epoch, combination });
        }
        let Some(second) = next(first.claim.end) else {
            self.combined = first.claim.len();
            return Some(Request::Copy { epoch, from: first.value, into });
        };
        self.combined = first.claim.len().wrapping_add(second.claim.len());
        let combination = super::Combination { left: first.value, right: second.value, into };
        Some(Request::Combine { epoch, combination })
    }

    /// Every rank has left the epochs before this one: known when the claims tile all ranks.
    pub(super) fn left_by_all(&self) -> Epoch {
        self.releases.iter().flatten().fold(self.epoch, |least, release| least.earlier(release.left))
    }

    const fn message(&self, body: Body, left: Epoch, tree: Surroundings<'_>) -> Message {
        Message { epoch: self.epoch, left, all_left: tree.all_left, body }
    }
}

/// Largest exponent of the backoff of asking.
const MAX_BACKOFF: u8 = 5;
