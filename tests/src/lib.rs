//! Simulated network, models and harnesses of unisono. Not published.
