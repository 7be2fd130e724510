//! The primitives under loom: every interleaving, and every value that the memory model permits.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p unisono-shmem models
//! ```

mod barrier;
mod ring;
mod slot_collectives;

use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::io::Write;
use std::panic;
use std::sync::{Arc, Mutex, PoisonError};

use loom::model::Builder;

use crate::segment::{Memory, Site, WEAKENED};

/// One model at a time, since the weakened site is one for all.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a model with this site weakened, or none. Returns the number of executions, or `None` if one failed.
fn explore(builder: &Builder, weakened: Option<Site>, model: impl Fn() + Sync + Send + 'static) -> Option<usize> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let site = weakened.and_then(|site| Site::ORDERING.iter().position(|known| *known == site));
    WEAKENED.store(site.unwrap_or(usize::MAX), Ordering::Relaxed);
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    // The first model has installed loom's own hook, which hides how its threads end.
    let hook = weakened.map(|_| panic::take_hook());
    if weakened.is_some() {
        panic::set_hook(Box::new(|_| ()));
    }
    let ended = panic::catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            count.fetch_add(1, Ordering::Relaxed);
            model();
        });
    }));
    if let Some(hook) = hook {
        panic::set_hook(hook);
    }
    WEAKENED.store(usize::MAX, Ordering::Relaxed);
    ended.ok().map(|()| executions.load(Ordering::Relaxed))
}

/// Asserts that the model holds, and that it fails when any of these sites loses its ordering.
fn assert_needs(name: &str, builder: &Builder, sites: &[Site], model: impl Fn() + Clone + Sync + Send + 'static) {
    let executions = explore(builder, None, model.clone());
    // Bypasses the capture of the test harness.
    let _ = writeln!(std::io::stdout(), "{name}: {executions:?} executions");
    assert!(executions.is_some(), "{name} fails");
    for site in sites {
        assert_eq!(explore(builder, Some(*site), model.clone()), None, "{name} does not need {site:?}");
    }
}

/// As [`assert_needs`], for `ranks` ranks over fresh memory of `bytes` bytes, each word of which is `first`.
fn assert_ranks_need(
    name: &str,
    builder: &Builder,
    sites: &[Site],
    (ranks, bytes, first): (u32, usize, u32),
    body: impl Fn(&Memory, u32) + Clone + Sync + Send + 'static,
) {
    assert_needs(name, builder, sites, in_ranks((ranks, bytes, first), body));
}

/// Every rank in a thread of its own.
fn in_ranks(
    (ranks, bytes, first): (u32, usize, u32),
    body: impl Fn(&Memory, u32) + Clone + Sync + Send + 'static,
) -> impl Fn() + Clone + Sync + Send + 'static {
    move || {
        let memory = loom::sync::Arc::new(Memory::new(bytes, first));
        let others: Vec<_> = (1..ranks)
            .map(|rank| {
                let (memory, body) = (memory.clone(), body.clone());
                loom::thread::spawn(move || body(&memory, rank))
            })
            .collect();
        body(&memory, 0);
        for other in others {
            other.join().unwrap();
        }
    }
}
