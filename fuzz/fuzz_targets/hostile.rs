//! Two endpoints over a network that damages or lies as the input says (`unisono_tests::scenarios::hostile`): its first byte says which.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unisono_tests::scenarios::hostile::{Choices, lies, noise};

fuzz_target!(|bytes: &[u8]| {
    let Some((first, choices)) = bytes.split_first() else { return };
    let phase = if first & 1 == 0 { noise } else { lies };
    let outcome = phase(Choices::given(choices), u64::MAX);
    assert!(outcome.is_clean(), "{outcome:?}");
});
