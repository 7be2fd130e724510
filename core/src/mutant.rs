//! Rules that can be broken on purpose, to show that a model depends on each of them.

/// Whether this rule is broken: only in a build with `--cfg mutant="…"`, its name.
macro_rules! mutant {
    ($name:literal) => {
        cfg!(mutant = $name)
    };
}
