//! All ranks of the model, and the messages between them.

use alloc::collections::VecDeque;

use unisono_core::collective::token_tree::{Body, Epoch, Message, RankRange};

use super::rank::{RankState, Value, number};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct InTransit {
    pub(super) message: Message,
    pub(super) values: [Option<Value>; 2],
}

/// Copies of a release that have not arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Copies {
    pub(super) sent: InTransit,
    pub(super) from: u8,
    /// A bit per receiver.
    pub(super) receivers: u32,
}

/// All ranks, and the messages between them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State<const M: usize, const S: usize> {
    pub(super) ranks: Vec<RankState<M, S>>,
    /// By child: to its parent, and from it.
    pub(super) channels: Vec<[VecDeque<InTransit>; 2]>,
    pub(super) copies: Vec<Copies>,
    /// By epoch: the claims that were released, in rank order.
    pub(super) claims: Vec<Vec<(u32, u32)>>,
    /// By epoch: a bit per rank whose copy of a release was lost.
    pub(super) lost: Vec<u32>,
    pub(super) losses: u8,
    pub(super) doubles: u8,
    pub(super) early_asks: u8,
    pub(super) tree: usize,
    pub(super) dead: Option<u8>,
    pub(super) broken: Option<&'static str>,
}

impl<const M: usize, const S: usize> State<M, S> {
    /// The first rule that is broken counts.
    pub(super) fn violate(&mut self, rule: &'static str) {
        self.broken.get_or_insert(rule);
    }

    pub(super) fn parent(&self, rank: usize) -> Option<usize> {
        self.ranks[rank].machine.position().parent().map(|parent| parent.0 as usize)
    }

    pub(super) fn is_alive(&self, rank: usize) -> bool {
        self.dead != Some(rank as u8)
    }

    pub(super) fn living(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ranks.len()).filter(|rank| self.is_alive(*rank))
    }

    /// Whether messages to the rank arrive.
    pub(super) fn takes(&self, rank: usize) -> bool {
        self.is_alive(rank) && !self.ranks[rank].has_ended
    }

    /// Messages on their way to a rank vanish.
    pub(super) fn drop_messages_to(&mut self, rank: usize) {
        for child in 1..self.ranks.len() {
            if child == rank {
                self.channels[child][1].clear();
            } else if self.parent(child) == Some(rank) {
                self.channels[child][0].clear();
            }
        }
        for release in (0..self.copies.len()).rev() {
            self.remove_copy(release, rank);
        }
    }

    /// Whether a request of the rank for a release is on its way, or an answer: a timeout is longer than a round trip.
    pub(super) fn is_asking(&self, rank: usize) -> bool {
        let below = (1..self.ranks.len()).filter(|child| self.parent(*child) == Some(rank));
        let edges = below.map(|child| (child, 1)).chain([(rank, 0)]);
        edges.into_iter().any(|(child, out)| {
            let [sent, received] = [&self.channels[child][out], &self.channels[child][1 - out]];
            sent.iter().any(|sent| matches!(sent.message.body, Body::Ask { .. }))
                || received.iter().any(|sent| matches!(sent.message.body, Body::Release(_)))
        })
    }

    /// The copy for one receiver has arrived, or never will.
    pub(super) fn remove_copy(&mut self, release: usize, rank: usize) {
        self.copies[release].receivers &= !(1 << rank);
        if self.copies[release].receivers == 0 {
            self.copies.remove(release);
        }
    }

    /// A release is sent: for the first time, or perhaps once more.
    pub(super) fn claim(&mut self, epoch: Epoch, claim: RankRange, is_first: bool) {
        let claims = &mut self.claims[usize::from(number(epoch))];
        let is_known = claims.contains(&(claim.first, claim.end));
        if claims.iter().any(|(first, end)| claim.overlaps(RankRange::new(*first, *end))) && (is_first || !is_known) {
            self.violate("claims are disjoint, and each is released once");
        } else if !is_known {
            claims.push((claim.first, claim.end));
            claims.sort_unstable();
        }
    }

    /// The copies on their way: release and receiver.
    pub(super) fn receivers(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let receivers = |set: u32| (0..32).filter(move |rank| set & 1 << rank != 0);
        let copies = self.copies.iter().enumerate();
        copies.flat_map(move |(release, copies)| receivers(copies.receivers).map(move |rank| (release, rank)))
    }
}
