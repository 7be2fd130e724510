//! `unisono bench floor` as a user runs it.

use serde_json::Value;
use std::{
    process::{Command, Output},
    thread,
};

fn floor(options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.args(["bench", "floor", "--json"]).args(options).output().expect("starts")
}

#[test]
fn floor_measures_without_a_launcher() {
    let output = floor(&[]);
    if thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("two processors"), "{errors}");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let floor: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&floor["bench"], &floor["ranks"]), (&"floor".into(), &2.into()));
    for key in ["bytes", "line_rtt_ns", "barrier_ns", "ring_rtt_ns", "memcpy_bytes_per_s"] {
        assert!(floor[key].as_f64().is_some_and(|figure| figure > 0.0), "{key}: {floor}");
    }
    let copies = floor["copies"].as_array().expect("a list");
    let sizes: Vec<_> = copies.iter().map(|copies| (copies["bytes"].as_u64(), copies["places"].as_u64())).collect();
    let expected = |places| [16, 18, 20, 22].map(|bits| (Some(1_u64 << bits), Some(places)));
    assert_eq!(sizes, [expected(1), expected(64)].concat());
    for copies in copies {
        for key in ["memcpy_bytes_per_s", "two_copy_bytes_per_s"] {
            assert!(copies[key].as_f64().is_some_and(|figure| figure > 0.0), "{key}: {copies}");
        }
        // Null if the kernel refuses it.
        assert!(copies["readv_bytes_per_s"].as_f64().is_none_or(|figure| figure > 0.0), "{copies}");
    }
}

#[test]
fn floor_copies_what_it_is_asked_to() {
    if thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
        return;
    }
    for (bytes, copies) in [("0", vec![]), ("256K", vec![1, 64])] {
        let output = floor(&["--bytes", bytes]);
        assert!(output.status.success(), "{output:?}");
        let floor: Value = serde_json::from_slice(&output.stdout).expect("one object");
        let places: Vec<_> = floor["copies"].as_array().into_iter().flatten().map(|copies| &copies["places"]).collect();
        assert_eq!(places, copies, "{floor}");
        assert!(floor["line_rtt_ns"].as_f64().is_some_and(|figure| figure > 0.0), "{floor}");
    }
    for bytes in ["8", "17M", "16777215T"] {
        let output = floor(&["--bytes", bytes]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("1K to 16M"), "{errors}");
    }
}
