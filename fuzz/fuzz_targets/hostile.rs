//! Fuzz target: two endpoints over a network that damages or forges datagrams as the input selects
//! (`unisono_tests::scenarios::hostile`). The first byte selects which of the two.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unisono_tests::scenarios::hostile::{Choices, lies, noise};

fuzz_target!(|bytes: &[u8]| {
    let Some((first, choices)) = bytes.split_first() else { return };
    let phase = if first & 1 == 0 { noise } else { lies };
    let outcome = phase(Choices::given(choices), u64::MAX);
    assert!(outcome.is_clean(), "{outcome:?}");
});
