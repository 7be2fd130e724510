//! Two endpoints over a network that lies as the input says (`unisono_tests::hostile`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use unisono_tests::hostile::{Choices, lies};

fuzz_target!(|bytes: &[u8]| {
    let outcome = lies(Choices::given(bytes), 64 + bytes.len() as u64 / 8);
    assert!(outcome.is_clean(), "{outcome:?}");
});
