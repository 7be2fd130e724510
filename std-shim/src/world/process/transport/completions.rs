//! Operations of the transport that have ended, and that nobody has handled yet.

use alloc::collections::VecDeque;

use unisono_core::messenger::SendFailure;
use unisono_core::transport::Token;

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum Completion {
    /// A payload was read to its end, or will not be read.
    Sent { token: Token, failure: Option<SendFailure> },
    /// Granted memory was filled.
    Delivered(Token),
    /// A fetch has ended.
    #[cfg_attr(not(feature = "verbs"), expect(dead_code, reason = "only an adapter fetches by itself"))]
    Fetched { token: Token, is_ok: bool },
}

/// The ends of operations, in order.
#[derive(Debug, Default)]
pub(in crate::world) struct Completions {
    queue: VecDeque<Completion>,
}

impl Completions {
    pub(in crate::world) fn push(&mut self, completion: Completion) {
        self.queue.push_back(completion);
    }

    pub(in crate::world) fn pop(&mut self) -> Option<Completion> {
        self.queue.pop_front()
    }

    /// Removes the end of a fetch, for which nobody waits.
    #[cfg(feature = "verbs")]
    pub(in crate::world) fn forget_fetch(&mut self, of: Token) {
        self.queue.retain(|one| !matches!(one, Completion::Fetched { token, .. } if *token == of));
    }

    #[inline(always)]
    pub(in crate::world) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
