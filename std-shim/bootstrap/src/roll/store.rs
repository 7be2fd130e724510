//! The key-value store of the job.

use super::{Act, LinkId, Roll};
use crate::message::{KEY_MAX, Tell, VALUE_MAX};

/// Largest total size of keys and values, in bytes.
pub(super) const STORE_MAX: usize = 16 << 20;

impl Roll {
    /// A rank stores a value.
    pub(crate) fn handle_put(&mut self, link: LinkId, key: Vec<u8>, value: Vec<u8>) {
        let bytes = key.len() + value.len();
        let before = self.store.get(&key).map_or(0, |old| key.len() + old.len());
        let fits = key.len() <= KEY_MAX && value.len() <= VALUE_MAX && self.stored - before + bytes <= STORE_MAX;
        if fits {
            self.stored = self.stored - before + bytes;
            self.store.insert(key, value);
        }
        self.acts.push_back(Act::Tell(link, Tell::Stored(fits)));
    }

    /// A rank looks up a value.
    pub(crate) fn handle_get(&mut self, link: LinkId, key: &[u8]) {
        self.acts.push_back(Act::Tell(link, Tell::Value(self.store.get(key).cloned())));
    }
}
