//! What `unisono bench` says of a job, as JSON.

use std::process::{Command, Stdio};

use serde_json::Value;

/// The objects that a job prints.
fn measured(options: &str, measure: &str) -> Vec<Value> {
    let own = env!("CARGO_BIN_EXE_unisono");
    let mut job = Command::new(own);
    job.arg("run").args(options.split_whitespace()).args(["--", own, "bench"]).args(measure.split_whitespace());
    let output = job.arg("--json").stdin(Stdio::null()).output().expect("unisono starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options} {measure}: {errors}");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("an object per line")).collect()
}

fn one(options: &str, measure: &str) -> Value {
    let [object] = <[Value; 1]>::try_from(measured(options, measure)).expect("one object");
    object
}

#[test]
fn device_is_the_one_that_carries_what_is_measured() {
    let barrier = |options| one(options, "barrier")["device"].clone();
    assert_eq!(
        ["-n 2", "-n 2 --device udp", "-n 3 --nodes 2", "-n 2 --nodes 2", "-n 1", "-n 1 --device shm"].map(barrier),
        ["shm", "udp", "mixed", "udp", "udp", "shm"]
    );
    // Ranks 0 and 1 are neighbours.
    let transfer = one("-n 3 --nodes 2", "transfer --bytes 64K");
    assert_eq!((&transfer["device"], &transfer["data_minimum"]), (&"shm".into(), &0.into()));
    let transfer = one("-n 2 --nodes 2", "transfer --bytes 64K");
    assert_eq!(transfer["device"], "udp");
    assert!(transfer["data_minimum"].as_u64().is_some_and(|least| least > 0), "{transfer}");
    let exchange = measured("-n 3 --nodes 2", "exchange --bytes 64K");
    assert!(exchange.len() == 3 && exchange.iter().all(|rank| rank["device"] == "mixed"), "{exchange:?}");
}
