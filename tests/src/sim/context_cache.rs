//! The cache of queue-pair contexts in an adapter (Mamidala 2008, §2.2.2 and §8.2): it holds the contexts that were used
//! last, and fetches any other one from the memory of the host.

use alloc::collections::BTreeMap;
use std::collections::HashMap;

use super::NodeId;

/// A queue pair of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueuePair {
    /// The one for datagrams of all peers (UD).
    Datagram,
    /// One for a peer alone (RC).
    Connection {
        /// The peer.
        peer: NodeId,
        /// Its number among the connections with that peer.
        number: u32,
    },
}

/// A cache of contexts that replaces the least recently used one.
#[derive(Clone, Debug)]
pub struct ContextCache {
    capacity: usize,
    /// When each context in the cache was used last, in uses; and the contexts in that order.
    last_use: HashMap<QueuePair, u64>,
    by_age: BTreeMap<u64, QueuePair>,
    uses: u64,
    misses: u64,
}

impl ContextCache {
    /// An empty cache of that number of contexts.
    pub fn new(capacity: u32) -> Self {
        Self { capacity: capacity as usize, last_use: HashMap::new(), by_age: BTreeMap::new(), uses: 0, misses: 0 }
    }

    /// Uses a context. Returns whether it was in the cache. If it was not, it replaces the least recently used one.
    pub fn touch(&mut self, context: QueuePair) -> bool {
        self.uses += 1;
        let before = self.last_use.insert(context, self.uses);
        if let Some(before) = before {
            self.by_age.remove(&before);
        }
        self.by_age.insert(self.uses, context);
        if self.by_age.len() > self.capacity
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.last_use.remove(&oldest);
        }
        self.misses += u64::from(before.is_none());
        before.is_some()
    }

    /// Uses of contexts that were not in the cache.
    pub const fn misses(&self) -> u64 {
        self.misses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn connection(peer: u32) -> QueuePair {
        QueuePair::Connection { peer: NodeId(peer), number: 0 }
    }

    fn touch_all(cache: &mut ContextCache, peers: impl IntoIterator<Item = u32>) -> Vec<bool> {
        peers.into_iter().map(|peer| cache.touch(connection(peer))).collect()
    }

    #[test]
    fn a_use_protects_a_context_from_replacement() {
        let mut cache = ContextCache::new(2);
        // 3 replaces 2, since 1 was used after it.
        assert_eq!(touch_all(&mut cache, [1, 2, 1, 3, 1, 2]), [false, false, true, false, true, false]);
        assert_eq!(cache.misses(), 4);
    }

    #[test]
    fn connections_of_one_peer_and_the_datagram_queue_pair_have_contexts_of_their_own() {
        let mut cache = ContextCache::new(3);
        let second = QueuePair::Connection { peer: NodeId(1), number: 1 };
        for context in [connection(1), second, QueuePair::Datagram] {
            assert!(!cache.touch(context), "{context:?}");
        }
        assert!([connection(1), second, QueuePair::Datagram].into_iter().all(|context| cache.touch(context)));
    }

    #[test]
    fn a_cache_of_no_context_misses_always() {
        assert_eq!(touch_all(&mut ContextCache::new(0), [1, 1, 1]), [false; 3]);
    }

    /// In turn, all hit or all miss: one more context than fit is enough.
    #[test]
    fn contexts_in_turn_miss_once_if_they_fit_and_always_if_not() {
        for (contexts, misses) in [(1, 1), (16, 16), (17, 17 * 5), (64, 64 * 5)] {
            let mut cache = ContextCache::new(16);
            touch_all(&mut cache, (0..5).flat_map(|_| 0..contexts));
            assert_eq!(cache.misses(), misses, "{contexts} contexts");
        }
    }

    proptest! {
        /// A context is in the cache if fewer others than fit were used since its last use.
        #[test]
        fn hits_are_those_of_the_definition(capacity in 0_u32..6, peers in prop::collection::vec(0_u32..8, 0..80)) {
            let mut cache = ContextCache::new(capacity);
            for (at, &peer) in peers.iter().enumerate() {
                let since = peers[..at].iter().rposition(|earlier| *earlier == peer);
                let expected = since.is_some_and(|since| {
                    let mut others = peers[since + 1..at].to_vec();
                    others.sort_unstable();
                    others.dedup();
                    others.len() < capacity as usize
                });
                prop_assert_eq!(cache.touch(connection(peer)), expected, "use {} of {:?}", at, &peers);
            }
        }
    }
}
