//! Which member acknowledges to which, and who repairs its losses.

use crate::ids::Rank;

/// How the messages of a root are acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AckMode {
    /// All members acknowledge to the root.
    Basic,
    /// A member acknowledges for itself and its children in a tree below the stream's root. The root repairs.
    Tree {
        /// Children of a member, at most.
        degree: u32,
    },
    /// The first members after the root are co-roots, which get each segment by unicast, too. Root and co-roots each
    /// have an equal part of the other members, for which they collect acknowledgements and repair losses.
    CoRoot {
        /// Co-roots.
        count: u32,
    },
}

/// The acknowledgement tree of one root's stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Topology {
    /// How messages are acknowledged.
    pub mode: AckMode,
    /// Members when the group was created, with ranks from 0. Those that join later acknowledge to the root.
    pub founders: u32,
    /// The root.
    pub root: Rank,
}

impl Topology {
    /// The member that `rank` acknowledges to while all members live; `None` for the root.
    pub fn parent(&self, rank: Rank) -> Option<Rank> {
        if rank == self.root {
            return None;
        }
        let parent = match (self.mode, self.place(rank)) {
            (_, None) | (AckMode::Basic, _) => 0,
            (AckMode::Tree { degree }, Some(place)) => place.saturating_sub(1).checked_div(degree).unwrap_or(0),
            (AckMode::CoRoot { count }, Some(place)) => {
                let parts = count.saturating_add(1);
                place.checked_sub(parts).and_then(|leaf| leaf.checked_rem(parts)).unwrap_or(0)
            }
        };
        Some(self.rank(parent))
    }

    /// The co-root of this number, from 0.
    pub fn co_root(&self, number: u32) -> Option<Rank> {
        let AckMode::CoRoot { count } = self.mode else { return None };
        let place = number.saturating_add(1);
        (number < count && place < self.size()).then(|| self.rank(place))
    }

    /// Whether the member collects acknowledgements of others, and repairs their losses, as a co-root.
    pub fn is_co_root(&self, rank: Rank) -> bool {
        let AckMode::CoRoot { count } = self.mode else { return false };
        self.place(rank).is_some_and(|place| place > 0 && place <= count)
    }

    /// The root and the founders.
    fn size(&self) -> u32 {
        self.founders.saturating_add(u32::from(self.root.0 >= self.founders))
    }

    /// The founder's place, 0 being the root's.
    fn place(&self, rank: Rank) -> Option<u32> {
        if rank.0 >= self.founders {
            return (rank == self.root).then_some(0);
        }
        Some(match rank.0.checked_sub(self.root.0) {
            _ if self.root.0 >= self.founders => rank.0.saturating_add(1),
            Some(place) => place,
            None => rank.0.saturating_add(self.founders).saturating_sub(self.root.0),
        })
    }

    /// The inverse of [`place`](Self::place).
    fn rank(&self, place: u32) -> Rank {
        if place == 0 {
            return self.root;
        }
        if self.root.0 >= self.founders {
            return Rank(place.saturating_sub(1));
        }
        let rank = self.root.0.saturating_add(place);
        Rank(rank.checked_sub(self.founders).unwrap_or(rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn children(topology: Topology, of: u32) -> impl Iterator<Item = u32> {
        (0..topology.founders).filter(move |rank| topology.parent(Rank(*rank)) == Some(Rank(of)))
    }

    #[test]
    fn root_handles_an_equal_part_of_the_leaves_and_the_co_roots() {
        for (members, count) in [(9, 2), (16, 3), (64, 7), (65, 7), (5, 0)] {
            for root in [0, 3, members - 1] {
                let mode = AckMode::CoRoot { count };
                let topology = Topology { mode, founders: members, root: Rank(root) };
                let own = children(topology, root).count() as u32;
                let leaves = members - 1 - count;
                assert!((leaves / (count + 1)..=leaves.div_ceil(count + 1)).contains(&(own - count)), "{topology:?}");
                for number in 0..count {
                    let co_root = topology.co_root(number).unwrap();
                    assert!(topology.is_co_root(co_root) && topology.parent(co_root) == Some(Rank(root)));
                }
                assert_eq!(topology.co_root(count), None);
            }
        }
    }

    #[test]
    fn tree_has_its_degree_and_late_members_belong_to_the_root() {
        let topology = Topology { mode: AckMode::Tree { degree: 2 }, founders: 7, root: Rank(3) };
        assert!(
            children(topology, 3).eq([4, 5]) && children(topology, 4).eq([0, 6]) && children(topology, 5).eq([1, 2])
        );
        assert_eq!(topology.parent(Rank(7)), Some(Rank(3)));
        let late = Topology { root: Rank(9), ..topology };
        assert!(children(late, 9).eq([0, 1]) && children(late, 0).eq([2, 3]), "a late root precedes the founders");
        assert_eq!(late.parent(Rank(8)), Some(Rank(9)));
    }
}
