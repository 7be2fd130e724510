//! The values that a rank holds in one epoch, and the order in which they are combined.
//!
//! A rank's operands stand in rank order: prefix, its own, those of its children, suffix. Neighbours are combined as
//! soon as both are known, into the left one; so what stands left at the end is in rank order, whatever arrived first.

use super::Payload;

/// A buffer of one epoch. Input and output belong to the call, the others to the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// This rank's contribution: read only, and not after the epoch was left.
    Input,
    /// This rank's result. It may be the same memory as the input.
    Output,
    /// This rank's contribution and all that was combined with it.
    Subtree,
    /// The value of the claim's ranks before the subtree.
    Prefix,
    /// The value of the claim's ranks after the subtree.
    Suffix,
    /// The value of the subtree of child `0`.
    Child(u8),
    /// The value of release `0`, by its record.
    Claim(u8),
}

/// `into` becomes `left · right`; it may be the same as either. Operands are in rank order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Combination {
    /// The left operand.
    pub left: Operand,
    /// The right operand.
    pub right: Operand,
    /// The result.
    pub into: Operand,
}

/// Which operands are known, by their number: prefix, own, children, suffix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Operands {
    known: u32,
    /// The first of each run of operands that were combined: the run's value is in its buffer.
    heads: u32,
    /// The own run is no longer in the input.
    moved: bool,
    children: u8,
}

const PREFIX: u32 = 0;
const OWN: u32 = 1;
const FIRST_CHILD: u32 = 2;

impl Operands {
    pub(super) const fn new(children: u32) -> Self {
        Self { known: 0, heads: 0, moved: false, children: children as u8 }
    }

    const fn suffix(self) -> u32 {
        FIRST_CHILD.wrapping_add(self.children as u32)
    }

    const fn add(&mut self, number: u32) {
        self.known |= bit(number);
        self.heads |= bit(number);
    }

    const fn knows(self, number: u32) -> bool {
        self.known & bit(number) != 0
    }

    pub(super) const fn add_own(&mut self) {
        self.add(OWN);
    }

    pub(super) const fn add_child(&mut self, child: u32) {
        self.add(FIRST_CHILD.wrapping_add(child));
    }

    pub(super) const fn add_prefix(&mut self) {
        self.add(PREFIX);
    }

    pub(super) const fn add_suffix(&mut self) {
        self.add(self.suffix());
    }

    pub(super) const fn knows_own(self) -> bool {
        self.knows(OWN)
    }

    pub(super) const fn knows_child(self, child: u32) -> bool {
        self.knows(FIRST_CHILD.wrapping_add(child))
    }

    /// The children whose values are not known.
    pub(super) const fn missing(self) -> u32 {
        let all = bit(self.children as u32).wrapping_sub(1);
        !(self.known >> FIRST_CHILD) & all
    }

    const fn operand(self, number: u32) -> Operand {
        match number {
            PREFIX => Operand::Prefix,
            OWN if self.moved => Operand::Subtree,
            OWN => Operand::Input,
            _ if number == self.suffix() => Operand::Suffix,
            _ => Operand::Child(number.wrapping_sub(FIRST_CHILD) as u8),
        }
    }

    /// Combines the first two neighbouring runs, if there are two.
    pub(super) fn combine(&mut self) -> Option<Combination> {
        let mut rest = self.heads;
        while rest != 0 {
            let left = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            let right = rest.trailing_zeros();
            let between = below(right) & !below(left.wrapping_add(1));
            if rest != 0 && self.known & between == between {
                let [from, with] = [left, right].map(|number| self.operand(number));
                self.heads &= !bit(right);
                self.moved |= left == OWN;
                return Some(Combination { left: from, right: with, into: self.operand(left) });
            }
        }
        None
    }

    /// The value of the run that starts first: of all operands when none is missing.
    pub(super) fn value(self) -> Option<Operand> {
        (self.heads != 0).then(|| self.operand(self.heads.trailing_zeros()))
    }

    /// Moves the own run out of the input, which the caller must not lend beyond the call.
    pub(super) fn leave_input(&mut self) -> bool {
        self.value() == Some(Operand::Input) && !core::mem::replace(&mut self.moved, true)
    }

    /// The values for the token of a child whose own is missing: of the run before it, and after it if its claim is the
    /// last.
    pub(super) fn around(self, child: u32, is_last: bool) -> Payload {
        let at = FIRST_CHILD.wrapping_add(child);
        let (before, after) = (at.wrapping_sub(1), at.wrapping_add(1));
        let run = 31_u32.saturating_sub((self.heads & below(at)).leading_zeros());
        [self.knows(before).then(|| self.operand(run)), (is_last && self.knows(after)).then(|| self.operand(after))]
    }
}

const fn bit(number: u32) -> u32 {
    1_u32.wrapping_shl(number)
}

/// All operands before that one.
const fn below(number: u32) -> u32 {
    bit(number).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::{vec, vec::Vec};

    use super::*;

    fn combined(operands: &mut Operands) -> Vec<(Operand, Operand, Operand)> {
        core::iter::from_fn(|| operands.combine()).map(|each| (each.left, each.right, each.into)).collect()
    }

    use Operand::{Child, Input, Prefix, Subtree, Suffix};

    #[test]
    fn children_are_combined_in_rank_order_whenever_they_arrive() {
        let mut operands = Operands::new(3);
        operands.add_child(2);
        operands.add_child(1);
        assert_eq!(combined(&mut operands), [(Child(1), Child(2), Child(1))]);
        operands.add_own();
        assert_eq!((combined(&mut operands), operands.missing()), (vec![], 0b1));
        operands.add_child(0);
        assert_eq!(combined(&mut operands), [(Input, Child(0), Subtree), (Subtree, Child(1), Subtree)]);
        assert_eq!((operands.value(), operands.missing()), (Some(Subtree), 0));
    }

    #[test]
    fn the_prefix_takes_everything() {
        let mut operands = Operands::new(1);
        operands.add_own();
        operands.add_child(0);
        assert_eq!(combined(&mut operands), [(Input, Child(0), Subtree)]);
        operands.add_suffix();
        operands.add_prefix();
        assert_eq!(combined(&mut operands), [(Prefix, Subtree, Prefix), (Prefix, Suffix, Prefix)]);
        assert_eq!(operands.value(), Some(Prefix));
    }

    #[test]
    fn a_leaf_keeps_no_value_in_its_input() {
        let mut leaf = Operands::new(0);
        leaf.add_own();
        assert_eq!(leaf.value(), Some(Input));
        assert!(leaf.leave_input() && !leaf.leave_input());
        assert_eq!(leaf.value(), Some(Subtree));
        let mut leaf = Operands::new(0);
        leaf.add_own();
        leaf.add_suffix();
        assert_eq!(combined(&mut leaf), [(Input, Suffix, Subtree)]);
        assert!(!leaf.leave_input());
    }

    #[test]
    fn tokens_take_the_values_around_the_child() {
        // Children 1 and 3 of 5 are missing; a prefix and a suffix are known.
        let mut operands = Operands::new(5);
        operands.add_prefix();
        operands.add_suffix();
        operands.add_own();
        for child in [4, 0, 2] {
            operands.add_child(child);
        }
        combined(&mut operands);
        assert_eq!(operands.missing(), 0b1010);
        assert_eq!(operands.around(1, false), [Some(Prefix), None]);
        assert_eq!(operands.around(3, true), [Some(Child(2)), Some(Child(4))]);
        // Neighbouring children: nothing between their claims.
        let mut operands = Operands::new(2);
        operands.add_own();
        assert_eq!(operands.around(0, false), [Some(Input), None]);
        assert_eq!(operands.around(1, true), [None, None]);
    }
}
