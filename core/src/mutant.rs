//! Rules that can be broken on purpose, to show that a model depends on each of them.

/// Whether this rule is broken: never, unless built with `--cfg mutants`.
#[cfg(not(mutants))]
macro_rules! mutant {
    ($name:literal) => {
        cfg!(mutants)
    };
}

/// Whether this rule is the one that [`break_rule`] named.
#[cfg(mutants)]
macro_rules! mutant {
    ($name:literal) => {{
        const RULE: u64 = crate::mutant::hash($name);
        crate::mutant::is_broken(RULE)
    }};
}

#[cfg(mutants)]
pub use rules::*;

/// The rule that is broken in this process.
#[cfg(mutants)]
mod rules {
    use core::sync::atomic::{AtomicU64, Ordering};

    static BROKEN: AtomicU64 = AtomicU64::new(0);

    /// Breaks one rule from now on.
    pub fn break_rule(name: &str) {
        BROKEN.store(hash(name), Ordering::Relaxed);
    }

    /// Whether the rule with this [`hash`] is broken.
    pub fn is_broken(rule: u64) -> bool {
        BROKEN.load(Ordering::Relaxed) == rule
    }

    /// FNV-1a of a rule's name.
    pub const fn hash(name: &str) -> u64 {
        let (mut rest, mut hash) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325_u64);
        while let [first, others @ ..] = rest {
            hash = (hash ^ *first as u64).wrapping_mul(0x0100_0000_01b3);
            rest = others;
        }
        hash
    }
}
