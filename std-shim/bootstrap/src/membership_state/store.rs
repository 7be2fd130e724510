//! The key-value store of the job.

use super::{ConnectionId, Effect, MembershipState};
use crate::message::{KEY_MAX, ServerMessage, VALUE_MAX};

/// Largest total size of keys and values, in bytes.
pub(super) const STORE_MAX: usize = 16 << 20;

impl MembershipState {
    /// A rank stores a value.
    pub(crate) fn handle_put(&mut self, link: ConnectionId, key: Vec<u8>, value: Vec<u8>) {
        let bytes = key.len() + value.len();
        let before = self.store.get(&key).map_or(0, |old| key.len() + old.len());
        let fits = key.len() <= KEY_MAX && value.len() <= VALUE_MAX && self.stored - before + bytes <= STORE_MAX;
        if fits {
            self.stored = self.stored - before + bytes;
            self.store.insert(key, value);
        }
        self.effects.push_back(Effect::Send(link, ServerMessage::Stored(fits)));
    }

    /// A rank looks up a value.
    pub(crate) fn handle_get(&mut self, link: ConnectionId, key: &[u8]) {
        self.effects.push_back(Effect::Send(link, ServerMessage::Value(self.store.get(key).cloned())));
    }
}
