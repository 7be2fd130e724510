//! Fuzz target: two endpoints over a network that damages or forges datagrams as the input selects
//! (`unisono_tests::scenarios::hostile`). The first byte selects which, and whether they exchange messages or access each
//! other's memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unisono_tests::scenarios::hostile::{Choices, lies, noise, rma_lies, rma_noise};

fuzz_target!(|bytes: &[u8]| {
    let Some((first, choices)) = bytes.split_first() else { return };
    let phase = [noise, lies, rma_noise, rma_lies][usize::from(first & 3)];
    let outcome = phase(Choices::given(choices), u64::MAX);
    assert!(outcome.is_clean(), "{outcome:?}");
});
