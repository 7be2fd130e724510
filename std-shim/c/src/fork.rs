//! Detection of `fork`: a child process shares sockets and memory with its parent, and must use neither.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;

static FORKED: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

extern "C" fn note_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Notes from now on when this process is a child.
pub(crate) fn watch() {
    // SAFETY: the handler only stores to an atomic, which is safe in a child.
    WATCH.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(note_child)) });
}

/// Whether this process was forked from one that has joined.
pub(crate) fn has_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}
