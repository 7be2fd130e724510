//! What `unisono bench` says of a job, as JSON.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn job(options: &str, measure: &str) -> Output {
    let own = env!("CARGO_BIN_EXE_unisono");
    let mut job = Command::new(own);
    job.arg("run").args(options.split_whitespace()).args(["--", own, "bench"]).args(measure.split_whitespace());
    let output = job.arg("--json").stdin(Stdio::null()).output().expect("unisono starts");
    assert!(output.status.success(), "{options} {measure}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn objects(printed: &[u8]) -> Vec<Value> {
    let lines = printed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("an object per line")).collect()
}

/// The objects that a job prints.
fn measured(options: &str, measure: &str) -> Vec<Value> {
    objects(&job(options, measure).stdout)
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

#[test]
fn counters_are_all_there() {
    let faults = "-n 2 --device udp --mtu 1500 --loss 5% --reorder 5% --dup 5% --corrupt 5% --seed 7";
    let counted = objects(&job(faults, "exchange --bytes 4M --counters").stderr);
    assert_eq!(counted.len(), 2, "an object per rank");
    for counters in &counted {
        for key in ["duplicates", "granted", "bytes_sent", "bytes_accepted"] {
            assert!(counters[key].as_u64().is_some_and(|count| count > 0), "{key}: {counters}");
        }
        for key in ["duplicates_resent", "withdrawn", "out_of_order", "spurious"] {
            assert!(counters[key].is_u64(), "{key}: {counters}");
        }
        for key in ["sent", "accepted", "dropped", "datagram_bytes", "round_trip_64ns"] {
            assert!(counters[key].as_object().is_some_and(|counts| !counts.is_empty()), "{key}: {counters}");
        }
        let device = &counters["device"];
        for key in ["sent", "received", "bad_checksum", "injected_loss", "injected_duplicates", "injected_corruptions"]
        {
            assert!(device[key].as_u64().is_some_and(|count| count > 0), "{key}: {counters}");
        }
    }
}
