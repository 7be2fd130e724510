//! One rank of the model: its machine and its buffers.

use unisono_core::collective::token_tree::{Combination, Epoch, Operand, ReleasePath, TokenTree, TreeConfig};
use unisono_core::ids::Rank;
use unisono_core::time::AbstractTime;

/// The next epoch is 0.
pub(super) const FIRST: Epoch = Epoch(u32::MAX);

pub(super) const fn number(epoch: Epoch) -> u8 {
    epoch.since(FIRST) as u8
}

pub(super) const fn epoch_of(number: u8) -> Epoch {
    Epoch(FIRST.0.wrapping_add(number as u32))
}

/// Contributions of `first` to before `end`, in order, of one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Value {
    pub(super) epoch: u8,
    pub(super) first: u8,
    pub(super) end: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct RankState<const M: usize, const S: usize> {
    pub(super) machine: TokenTree<AbstractTime, M, S>,
    pub(super) entered: u8,
    /// A bit per epoch that it has left; that failed.
    pub(super) left: u8,
    pub(super) failed: u8,
    /// It knows of the failed rank.
    pub(super) knows_failed: bool,
    /// It takes no more messages.
    pub(super) has_ended: bool,
    /// By record and operand.
    buffers: Vec<Option<Value>>,
}

impl<const M: usize, const S: usize> RankState<M, S> {
    /// Before any call.
    ///
    /// # Panics
    /// The tree's units exceed `M`.
    pub(super) fn new(rank: u32, tree: &TreeConfig, path: ReleasePath) -> Self {
        let mut machine = TokenTree::new(Rank(rank), tree, FIRST).expect("a tree that exists");
        machine.set_path(path);
        Self {
            machine,
            entered: 0,
            left: 0,
            failed: 0,
            knows_failed: false,
            has_ended: false,
            buffers: vec![None; S * (4 + M + tree.degree as usize)],
        }
    }

    /// Forgets the values of epochs that every rank has left.
    pub(super) fn free_buffers(&mut self) {
        let all_left = number(self.machine.all_left());
        for buffer in &mut self.buffers {
            *buffer = buffer.filter(|value| value.epoch >= all_left);
        }
    }

    fn buffer(&mut self, epoch: Epoch, operand: Operand) -> &mut Option<Value> {
        let operands = self.buffers.len() / S;
        let number = match operand {
            Operand::Input => unreachable!("the input is read only"),
            Operand::Output => 0,
            Operand::Subtree => 1,
            Operand::Prefix => 2,
            Operand::Suffix => 3,
            Operand::Claim(release) => 4 + usize::from(release),
            Operand::Child(child) => 4 + M + usize::from(child),
        };
        &mut self.buffers[epoch.0 as usize % S * operands + number]
    }

    pub(super) fn load(&mut self, rank: usize, epoch: Epoch, operand: Operand) -> Option<Value> {
        if operand == Operand::Input {
            let (epoch, rank) = (number(epoch), rank as u8);
            let is_lent = epoch < self.entered && self.left & 1 << epoch == 0;
            return is_lent.then_some(Value { epoch, first: rank, end: rank + 1 });
        }
        self.buffer(epoch, operand).filter(|value| value.epoch == number(epoch))
    }

    pub(super) fn store(&mut self, epoch: Epoch, operand: Operand, value: Option<Value>) {
        *self.buffer(epoch, operand) = value;
    }

    /// Whether both are there and are neighbours. Operands that are not used again are forgotten, so that fewer states
    /// differ.
    pub(super) fn combine(&mut self, rank: usize, epoch: Epoch, combination: Combination) -> bool {
        let Combination { left, right, into } = combination;
        let [Some(before), Some(after)] = [left, right].map(|operand| self.load(rank, epoch, operand)) else {
            return false;
        };
        for operand in [left, right] {
            if into != Operand::Output && operand != Operand::Input {
                self.store(epoch, operand, None);
            }
        }
        self.store(epoch, into, Some(Value { end: after.end, ..before }));
        before.end == after.first
    }
}
