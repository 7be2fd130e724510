//! `PMI_process_mapping`: which node each rank of a PMI-1 job is on.

use crate::{NodePosition, Task};

/// A block of a mapping: `nodes` nodes from `first` on have `ranks` ranks each.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: u32,
    nodes: u32,
    ranks: u32,
}

/// The blocks of `(vector,(first,nodes,ranks),…)`. The list repeats until all ranks have a node.
fn blocks(mapping: &str) -> Option<Vec<Block>> {
    let inner = mapping.trim().strip_prefix("(vector,")?.strip_suffix(')')?;
    let block = |text: &str| {
        let mut numbers = text.trim_matches(['(', ')', ' ']).split(',').map(|number| number.trim().parse().ok());
        let block = Block { first: numbers.next()??, nodes: numbers.next()??, ranks: numbers.next()?? };
        (block.nodes > 0 && block.ranks > 0).then_some(block)
    };
    inner.split("),").map(block).collect()
}

/// The place of a task on its node, by a mapping. `None` if the mapping is malformed.
pub(crate) fn node_position(mapping: &str, task: Task) -> Option<NodePosition> {
    let blocks = blocks(mapping)?;
    let nodes_of = |block: &Block| {
        let Block { first, nodes, ranks } = *block;
        (0..nodes).flat_map(move |node| core::iter::repeat_n(first.wrapping_add(node), ranks as usize))
    };
    let nodes = || blocks.iter().cycle().flat_map(nodes_of).take(task.size as usize);
    let node = nodes().nth(task.rank as usize)?;
    let count = |ranks: u32| nodes().take(ranks as usize).filter(|other| *other == node).count() as u32;
    Some(NodePosition { node, rank: count(task.rank), size: count(task.size) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn positions(mapping: &str, size: u32) -> Option<Vec<[u32; 3]>> {
        let position = |rank| node_position(mapping, Task { rank, size, position: None });
        let numbers = |at: NodePosition| [at.node, at.rank, at.size];
        (0..size).map(|rank| position(rank).map(numbers)).collect()
    }

    #[test]
    fn blocks_name_the_nodes() {
        let one_node = [[0, 0, 3], [0, 1, 3], [0, 2, 3]];
        assert_eq!(positions("(vector,(0,1,8))", 3).as_deref(), Some(one_node.as_slice()));
        let uneven = [[0, 0, 2], [0, 1, 2], [1, 0, 1]];
        assert_eq!(positions("(vector,(0,2,2))", 3).as_deref(), Some(uneven.as_slice()));
        let cyclic = [[0, 0, 2], [1, 0, 1], [0, 1, 2]];
        assert_eq!(positions("(vector,(0,2,1))", 3).as_deref(), Some(cyclic.as_slice()));
        let two_blocks = [[3, 0, 1], [5, 0, 2], [5, 1, 2]];
        assert_eq!(positions("(vector,(3,1,1), (5,1,2))", 3).as_deref(), Some(two_blocks.as_slice()));
    }

    proptest! {
        /// Whatever a starter says, a task has no place, or one on a node that has it.
        #[test]
        fn any_mapping_is_read(mapping in "\\(vector,(\\([0-9]{1,10},[0-9]{1,10},[0-9]{1,10}\\),?){1,3}\\)|.{0,40}", rank in 0_u32..50) {
            if let Some(at) = node_position(&mapping, Task { rank, size: 50, position: None }) {
                prop_assert!(at.rank < at.size && at.size <= 50);
            }
        }
    }
}
