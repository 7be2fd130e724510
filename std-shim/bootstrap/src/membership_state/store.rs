//! The key-value store of the job.

use super::{ConnectionId, Effect, MembershipState};
use crate::message::{KEY_MAX, ServerMessage, VALUE_MAX};
use alloc::collections::BTreeMap;

/// Largest total size of keys and values, in bytes.
pub(super) const STORE_MAX: usize = 16 << 20;

/// Values by their keys.
#[derive(Debug, Default)]
pub(super) struct KeyValueStore {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Bytes of all keys and values.
    bytes: usize,
}

impl KeyValueStore {
    /// Stores a value in the place of an earlier one. Returns false, and changes nothing, if there is no room for it.
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let before = self.values.get(&key).map_or(0, |old| key.len() + old.len());
        let bytes = self.bytes - before + key.len() + value.len();
        let fits = key.len() <= KEY_MAX && value.len() <= VALUE_MAX && bytes <= STORE_MAX;
        if fits {
            self.bytes = bytes;
            self.values.insert(key, value);
        }
        fits
    }
}

impl MembershipState {
    /// A rank stores a value.
    pub(crate) fn handle_put(&mut self, link: ConnectionId, key: Vec<u8>, value: Vec<u8>) {
        let is_stored = self.store.put(key, value);
        self.effects.push_back(Effect::Send(link, ServerMessage::Stored(is_stored)));
    }

    /// A rank looks up a value.
    pub(crate) fn handle_get(&mut self, link: ConnectionId, key: &[u8]) {
        self.effects.push_back(Effect::Send(link, ServerMessage::Value(self.store.values.get(key).cloned())));
    }
}
