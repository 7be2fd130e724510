//! The JSON output of `unisono bench` and `unisono info`.

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
    // Ranks 0 and 1 share memory.
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
        for key in ["duplicates", "bytes_sent", "bytes_accepted"] {
            assert!(counters[key].as_u64().is_some_and(|count| count > 0), "{key}: {counters}");
        }
        for key in ["duplicates_resent", "withdrawn", "granted", "out_of_order", "spurious"] {
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

/// A number greater than zero.
fn is_figure(value: &Value) -> bool {
    value.as_f64().is_some_and(|figure| figure > 0.0)
}

/// Checks the common keys of a job of two ranks that share memory, and these figures.
fn expect(measure: &str, bytes: u64, figures: &[&str]) -> Value {
    let object = one("-n 2", measure);
    let name = measure.split(' ').next().expect("a name");
    for (key, value) in [("bench", name.into()), ("device", "shm".into()), ("ranks", 2.into()), ("bytes", bytes.into())]
    {
        let value: Value = value;
        assert_eq!(object[key], value, "{key}: {object}");
    }
    for key in figures {
        assert!(is_figure(&object[*key]), "{key}: {object}");
    }
    object
}

#[test]
fn latency_has_its_keys() {
    let object = expect("latency --bytes 8", 8, &["one_way_ns", "one_way_ns_p50", "one_way_ns_p99"]);
    assert!(object["one_way_ns_p50"].as_f64() <= object["one_way_ns_p99"].as_f64(), "{object}");
}

#[test]
fn bandwidth_has_its_keys() {
    let private = expect("bandwidth --bytes 64K --for 50ms", 65536, &["bytes_per_s"]);
    assert_eq!(private["buffers"], "private");
    let shared = expect("bandwidth --bytes 64K --for 50ms --buffers segment", 65536, &["bytes_per_s"]);
    assert_eq!(shared["buffers"], "segment");
}

#[test]
fn rate_has_its_keys() {
    expect("rate --bytes 64 --for 50ms", 64, &["messages_per_s"]);
}

#[test]
fn barrier_has_its_keys() {
    expect("barrier", 0, &["time_ns"]);
}

#[test]
fn every_collective_has_its_keys() {
    let names = [
        "broadcast",
        "gather",
        "scatter",
        "all_gather",
        "all_to_all",
        "reduce",
        "all_reduce",
        "reduce_scatter",
        "scan",
    ];
    for name in names {
        let object = expect(&format!("collective {name} --bytes 64"), 64, &["time_ns"]);
        assert_eq!(object["collective"], name);
    }
}

#[test]
fn transfer_has_its_keys() {
    let object = one("-n 2 --device udp --loss 5% --seed 7", "transfer --bytes 1M");
    assert_eq!((&object["bench"], &object["bytes"]), (&"transfer".into(), &(1 << 20).into()));
    assert!(object["hash_sent"].is_string() && object["hash_sent"] == object["hash_received"], "{object}");
    for key in ["bytes_per_s", "data_sent", "data_minimum"] {
        assert!(is_figure(&object[key]), "{key}: {object}");
    }
    for key in ["resent_nack", "resent_probe", "resent_spurious"] {
        assert!(object[key].is_u64(), "{key}: {object}");
    }
    assert!(object["data_sent"].as_u64() >= object["data_minimum"].as_u64(), "{object}");
}

/// One round of the scan's two schedules and the selected algorithm over both transports, with and without a terminal.
#[test]
fn tune_shows_its_progress_on_terminals_only() {
    let tune = format!("{} tune -n 2 --only scan --most 8 --rounds 1", env!("CARGO_BIN_EXE_unisono"));
    let run = |program: &str, options: &[&str]| {
        let output = Command::new(program).args(options).stdin(Stdio::null()).output().expect("starts");
        assert!(output.status.success(), "{output:?}");
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let [table, errors] = run("sh", &["-c", &tune]);
    assert!(table.starts_with("unisono tuning 3\nfor version=") && errors.is_empty(), "{table}{errors}");
    let [seen, _] = run("script", &["-qec", &format!("stty cols 100; {tune} >/dev/null"), "/dev/null"]);
    assert!(seen.contains("/6 jobs"), "{seen:?}");
}

#[test]
fn exit_code_of_a_check_follows_from_the_printed_ratios() {
    let mut tune = Command::new(env!("CARGO_BIN_EXE_unisono"));
    tune.args(["tune", "-n", "2", "--carrier", "rings", "--only", "barrier", "--rounds", "1", "--check"]);
    let output = tune.stdin(Stdio::null()).output().expect("unisono starts");
    let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let call = text.lines().next().expect("a call");
    let is_good = call.contains("  good ");
    assert!(text.lines().count() == 2 && call.contains("  rings barrier of 0: "), "{text}{errors}");
    assert_eq!(output.status.code(), Some(i32::from(!is_good)), "{text}{errors}");
    assert_eq!(errors.contains("where 90 % are required"), !is_good, "{text}{errors}");
}

/// These measurements of the only round, as those of the round of finalists.
fn again(measured: &str) -> String {
    measured.replace("\"round\":1,", "\"round\":2,")
}

#[test]
fn tune_continues_where_it_was_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let [table, record] = ["my.tuning", "my.tuning.measured"].map(|name| directory.path().join(name));
    let tune = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.args(["tune", "-n", "3", "--only", "barrier", "--rounds", "1", "-o"]);
        command.arg(&table).args(["--", "--nodes", "3"]).stdin(Stdio::null());
        command
    };
    let mut first = tune().spawn().expect("unisono starts");
    let measured = || std::fs::read_to_string(&record).unwrap_or_default();
    while measured().lines().count() < 3 {
        assert_eq!(first.try_wait().expect("a status"), None);
        std::thread::sleep(core::time::Duration::from_millis(10));
    }
    first.kill().expect("killed");
    first.wait().expect("a status");
    let kept = measured();
    let end = kept.rfind('\n').expect("a line");
    // What is known is not measured again.
    let slow = kept[..=end].replace("\"time_ns\":", "\"time_ns\":1e12,\"was_ns\":");
    std::fs::write(&record, slow.clone() + &again(&slow)).expect("written");
    let output = tune().output().expect("unisono starts");
    assert!(output.status.success() && !record.exists(), "{output:?}");
    let written = std::fs::read_to_string(&table).expect("a table");
    assert!(written.lines().any(|line| line.starts_with("udp/") && line.contains(" barrier 3 0- ")), "{written}");
    assert!(written.ends_with("in: unisono run -n 3 --nodes 3\n"), "{written}");
    let table = table.to_str().expect("UTF-8");
    one(&format!("-n 3 --nodes 3 --tuning {table}"), "barrier");
}

/// A run that is killed after the first schedule with slots within hosts continues as if that had taken the least time: its
/// table selects that schedule, in the job and in what `info` prints.
#[test]
fn a_table_selects_schedules_over_hosts_that_tune_measured() {
    let directory = tempfile::tempdir().expect("a directory");
    let [table, record] = ["my.tuning", "my.tuning.measured"].map(|name| directory.path().join(name));
    let tune = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.args(["tune", "-n", "4", "--only", "allreduce", "--most", "8", "--rounds", "1", "-o"]);
        command.arg(&table).args(["--", "--nodes", "2"]).stdin(Stdio::null());
        command
    };
    let mut first = tune().spawn().expect("unisono starts");
    let measured = || std::fs::read_to_string(&record).unwrap_or_default();
    let has_slots = |text: &str| text.contains("host:slots+") && text.ends_with('\n');
    while !has_slots(&measured()) {
        assert_eq!(first.try_wait().expect("a status"), None);
        std::thread::sleep(core::time::Duration::from_millis(10));
    }
    first.kill().expect("killed");
    first.wait().expect("a status");
    let kept = measured();
    let whole = kept.rfind('\n').expect("a line");
    assert!(kept.contains(" host:messages+"), "{kept}");
    let fastest = |line: &str| {
        let is_slots = line.contains(" host:slots+");
        let line = if is_slots { line.replace("\"time_ns\":", "\"time_ns\":1,\"was_ns\":") } else { line.to_owned() };
        line + "\n"
    };
    let kept: String = kept[..whole].lines().map(fastest).collect();
    let slots = kept.lines().filter(|line| line.contains(" host:slots+")).map(|line| line.to_owned() + "\n");
    std::fs::write(&record, kept.clone() + &again(&slots.collect::<String>())).expect("written");
    let output = tune().output().expect("unisono starts");
    assert!(output.status.success() && !record.exists(), "{output:?}");
    let written = std::fs::read_to_string(&table).expect("a table");
    let line = written.lines().find(|line| line.contains(" allreduce 4 0- host:slots+")).expect("a line").to_owned();
    let (_, algorithm) = line.split_once("host:slots+").expect("an algorithm");
    let table = table.to_str().expect("UTF-8");
    let record = |options: &str| {
        let options = format!("-n 4 --nodes 2 {options}");
        one(&options, "collective all_reduce --bytes 8")["record"].as_str().expect("a record").to_owned()
    };
    let begin = format!("all_reduce of 8 bytes by {algorithm}:k=1,segments=1");
    let (levels, slots) = ("over 2 levels over messages", "in shared memory within groups");
    let tuned = record(&format!("--tuning {table}"));
    assert_eq!(tuned, format!("{begin} {levels}, {slots}: table; groups: table; means: table"));
    let option = record(&format!("--allreduce host:messages+{algorithm}"));
    assert_eq!(option, format!("{begin} {levels}: override; groups: override; means: override"));
    let off = record(&format!("--tuning {table} --hierarchy off"));
    assert!(!off.contains("levels") && !off.contains("table"), "{off}");
    let info = |options: &[&str]| {
        let mut info = Command::new(env!("CARGO_BIN_EXE_unisono"));
        info.args(["info", "--collectives", "-n", "4", "--bytes", "8"]).args(options);
        String::from_utf8_lossy(&info.output().expect("unisono starts").stdout).into_owned()
    };
    let shown = info(&["--nodes", "2", "--tuning", table]);
    let row = shown.lines().find(|line| line.starts_with("allreduce ")).expect("a row");
    assert!(row.contains(&format!("{algorithm}:k=1 of 2 leaders, slots")), "{row}");
    assert!(row.ends_with(" table; groups: table; means: table"), "{row}");
    let unused = "schedules over hosts, of an option or the table, are not used: ";
    for (options, reason) in [
        (["--nodes", "2", "--hierarchy", "off", "--tuning", table], "--hierarchy selects the subgroups"),
        (["--nodes", "4", "--sharing", "1", "--scan", "host+ring"], "no host has several ranks, or there is only one"),
    ] {
        let shown = info(&options);
        assert!(shown.starts_with(&format!("{unused}{reason}\n")), "{shown}");
    }
}

/// Slots, messages of one node and of several, a table and an option, each with what selected it.
#[test]
fn the_record_of_a_call_says_what_ran_and_why() {
    let record = |options: &str, measure: &str| one(options, measure)["record"].as_str().map(str::to_owned);
    let table = tempfile::NamedTempFile::new().expect("a file");
    let text = "unisono tuning 3\nfor any\nudp reduce 2- 0- knomial\nend\n";
    std::fs::write(table.path(), text).expect("written");
    let tuned = format!("-n 2 --device udp --tuning {}", table.path().display());
    let small = |name| format!("collective {name} --bytes 8");
    for (options, measure, said) in [
        ("-n 2", "barrier".to_owned(), "barrier of 0 bytes by flat in shared memory: only algorithm"),
        ("-n 2", small("broadcast"), "broadcast of 8 bytes by flat in shared memory: rule"),
        ("-n 2", small("all_reduce"), "all_reduce of 8 bytes by flat in shared memory: rule"),
        (
            "-n 2 --device udp --scan ring",
            small("scan"),
            "scan of 8 bytes by ring:k=1,segments=1 over messages: override",
        ),
        (
            "-n 3 --nodes 2 --barrier token-tree",
            "barrier".to_owned(),
            "barrier of 0 bytes by token-tree over messages: override",
        ),
        (&tuned, small("reduce"), "reduce of 8 bytes by knomial:k=1,segments=1 over messages: table"),
        // Not the exchange of keys that precedes the writes.
        (
            "-n 2 --device udp --alltoall rdma",
            small("all_to_all"),
            "all_to_all of 8 bytes by rdma over messages: override",
        ),
        // A schedule over subgroups has no such algorithm.
        (
            "-n 4 --device udp --hierarchy 2 --alltoall bruck",
            small("all_to_all"),
            "all_to_all of 8 bytes by bruck:k=1,segments=1 over messages: override",
        ),
    ] {
        assert_eq!(record(options, &measure).as_deref(), Some(said), "{options} {measure}");
    }
    let model = record("-n 2", "barrier --messages").expect("a record");
    assert!(model.ends_with(" over messages: model"), "{model}");
    assert_eq!(record("-n 1", "barrier"), None);
}

/// A table is used in a job of its signature, and refused in others.
#[test]
fn tables_of_other_machines_and_jobs_are_refused() {
    let own = env!("CARGO_BIN_EXE_unisono");
    let table = tempfile::NamedTempFile::new().expect("a file");
    let path = table.path().to_str().expect("UTF-8");
    let signature = one("-n 2 --device udp", "barrier")["signature"].as_str().expect("a signature").to_owned();
    let write = |signature: &str| {
        let text = format!("unisono tuning 3\nfor {signature}\nudp barrier 2- 0- knomial\nend\n");
        std::fs::write(table.path(), text).expect("written");
    };
    let run = |options: &str| {
        let mut job = Command::new(own);
        job.args(["run", "--tuning", path]).args(options.split_whitespace()).args(["--", own, "bench", "barrier"]);
        let output = job.stdin(Stdio::null()).output().expect("unisono starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    write(&signature);
    assert!(run("-n 2 --device udp").0);
    for (options, differs) in [
        ("-n 3 --device udp", "ranks-per-node=2 there, ranks-per-node=3 here"),
        ("-n 2", "device=udp there, device=shm here"),
        ("-n 2 --nodes 2", "nodes=1 there, nodes=2 here; ranks-per-node=2 there, ranks-per-node=1 here"),
    ] {
        let (is_done, errors) = run(options);
        assert!(!is_done && errors.contains(&format!("on another machine: {differs}: measure")), "{options}: {errors}");
    }
    let (key, processors) = signature.split_once("processors=").expect("processors");
    write(&format!("{key}processors=9{processors}"));
    let (is_done, errors) = run("-n 2 --device udp");
    assert!(!is_done && errors.contains("on another machine: processors=9"), "{errors}");
    let mut info = Command::new(own);
    let info = info.args(["info", "--collectives", "-n", "2", "--tuning", path]).output().expect("unisono starts");
    let errors = String::from_utf8_lossy(&info.stderr);
    assert!(info.status.code() == Some(2) && errors.contains("device=udp there, device=shm here"), "{errors}");
}

#[test]
fn info_reports_the_kind_of_pages_and_why() {
    let info = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        let output = command.arg("info").args(options).stdin(Stdio::null()).output().expect("unisono starts");
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let [object] = <[Value; 1]>::try_from(objects(&info(&["--json"]))).expect("one object");
    let memory = &object["shared_memory"];
    let (bytes, pages) = (memory["page_bytes"].as_u64(), memory["pages"].as_str().expect("why"));
    let huge = bytes == Some(2 << 20) && pages.starts_with("2 MiB pages");
    assert!(huge || bytes.is_some() && pages.contains("no 2 MiB ones: "), "{memory}");
    for key in ["liveness", "process_vm_readv"] {
        assert!(memory[key].as_str().is_some_and(|said| !said.is_empty()), "{key}: {memory}");
    }
    assert!(object["devices"].as_array().is_some_and(|devices| devices.contains(&"shm".into())), "{object}");
    let text = String::from_utf8(info(&[])).expect("UTF-8");
    let line = text.lines().find(|line| line.starts_with("shared memory ")).expect("a line");
    let said = line.trim_start_matches("shared memory").trim();
    // The number of free pages may change between the two calls.
    assert_eq!(said.split([',', ';']).next(), pages.split([',', ';']).next(), "{text}");
}
