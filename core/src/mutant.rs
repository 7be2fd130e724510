//! Rules that a build can break on purpose, so that a model proves that it detects it.

/// Whether this build breaks the rule of that name, as the models' runner of mutants sets it by `--cfg`.
macro_rules! mutant {
    ($name:literal) => {
        cfg!(mutant = $name)
    };
}
