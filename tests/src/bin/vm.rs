//! Checks of the verbs device on Soft-RoCE, in virtual machines that this program boots.
//!
//! `cargo run --release -p unisono-tests --bin vm`: every check in a machine of its own. `… --bin vm -- COMMAND`: a
//! line for the machine's shell. `… --bin vm -- compare --bar`: device and endpoint against perftest, UCX and
//! libfabric, ten turns of three rounds. Ends with status 1 when a check failed or a machine gave no verdict.
//! docs/building.md says what it fetches.

use core::time::Duration;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use unisono_tests::harness::cpu_latency::CpuLatencyRequest;
use unisono_tests::harness::packages::{install, missing_program};
use unisono_tests::sample::Sample;
use unisono_tests::vm::{Outcome, Parts, Task};

/// Boots machines with Soft-RoCE devices.
#[derive(Parser, Debug)]
struct Options {
    /// Soft-RoCE devices of the machine
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4))]
    devices: u32,
    /// Seconds that the command may take
    #[arg(long, default_value_t = 240)]
    limit: u64,
    /// Runs only the checks whose name contains this
    #[arg(long, conflicts_with = "command")]
    only: Option<String>,
    /// Runs part K of N of the checks, counted from 0
    #[arg(long, value_name = "K/N", default_value_t = Sample::ALL, conflicts_with = "command")]
    sample: Sample,
    /// A line for the machine's shell instead of the checks; programs lie in /host
    #[arg(trailing_var_arg = true)]
    command: Vec<String>,
}

/// A check: a command that ends with status 0 when what its name says holds.
struct Check {
    name: &'static str,
    devices: u32,
    limit: u64,
    command: &'static str,
}

const fn check(name: &'static str, devices: u32, limit: u64, command: &'static str) -> Check {
    Check { name, devices, limit, command }
}

// Sends on one processor: Soft-RoCE of this kernel retries forever, without yielding, while the interface is being
// removed, on every processor that sends at that moment; the other processor has to remove the interface.
macro_rules! taken_away {
    ($queues:literal) => {
        concat!(
            "cd /host; export UNISONO_DEVICE=verbs UNISONO_QUEUES=",
            $queues,
            "
        taskset 1 ./unisono run -n 2 -- ./unisono bench rate --bytes 64 --for 50s >/said 2>&1 & job=$!
        until test $(ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c uverbs) -ge 2; do sleep 1; done
        sleep 3; ip link del net0; read before rest </proc/uptime
        wait $job && exit 1
        read after rest </proc/uptime; cat /said
        echo from $before to $after; test $((${after%.*} - ${before%.*})) -le 5 && grep -q 'network device is gone' /said"
        )
    };
}

// Both directions lose, double and overtake datagrams.
macro_rules! faulty_transfer {
    ($queues:literal) => {
        concat!(
            "for i in 0 1; do
            tc qdisc add dev net$i root netem limit 10000 delay 200us loss 5% duplicate 2% reorder 95% || exit 1
        done
        /host/guest --queues ",
            $queues,
            " transfer --resent 1000; status=$?
        tc -s qdisc show dev net0 | grep Sent; exit $status"
        )
    };
}

// Runs a job, and sets the numbers of operations that adapters were to execute, and of those that they did not.
macro_rules! native_windows {
    () => {
        "set -e
        cd /host; export UNISONO_DEVICE=verbs UNISONO_STATS_FILE=/tmp/stats
        job() {
            echo \"$@\"; rm -f /tmp/stats; ./unisono run \"$@\" >/tmp/said 2>&1 || { cat /tmp/said; exit 1; }
            posted=0 failed=0
            sed -n 's/.*\"native\":{\"posted\":\\([0-9]*\\),\"failed\":\\([0-9]*\\)}.*/\\1 \\2/p' /tmp/stats >/tmp/native
            while read one two; do posted=$((posted + one)) failed=$((failed + two)); done </tmp/native
            echo posted $posted, failed $failed
        }"
    };
}

// Runs a job, and sets the numbers of payloads that adapters have read, and of reads that failed.
macro_rules! payload_reads {
    () => {
        "set -e
        cd /host; export UNISONO_DEVICE=verbs UNISONO_STATS_FILE=/tmp/stats
        job() {
            echo \"$@\"; rm -f /tmp/stats; ./unisono run \"$@\" >/tmp/said 2>&1 || { cat /tmp/said; exit 1; }
            read=0 failed=0
            sed -n 's/.*\"payload_reads\":{\"executed\":\\([0-9]*\\),\"failed\":\\([0-9]*\\)}.*/\\1 \\2/p' /tmp/stats >/tmp/reads
            while read one two; do read=$((read + one)) failed=$((failed + two)); done </tmp/reads
            echo read $read, failed $failed
        }"
    };
}

// Runs the tests of windows and of regions over jobs with these options, but those of ranks that compute, which have a
// mode of progress of their own, and of fences, which need two nodes.
macro_rules! one_sided_suite {
    ($options:literal) => {
        concat!(
            "cd /host; export TEST_LAUNCHER=/host/unisono TEST_MEANS='",
            $options,
            "'
        ./regions && ./windows --skip compute --skip fence"
        )
    };
}

// A job of two ranks, each with two adapters of its own as rails: rail i of one reaches rail i of the other over the
// bridge. `all` sets the first number to how many rails have a field with a value that matches.
macro_rules! rails {
    ($rest:literal) => {
        concat!(
            "set -e
        cd /host; export UNISONO_DEVICE=verbs UNISONO_STATS_FILE=/tmp/stats
        job() {
            echo \"$@\"; rm -f /tmp/stats
            ./unisono run -n 2 --queues $1 -- sh -c 'export UNISONO_RAILS=rxe$UNISONO_RANK,rxe$((UNISONO_RANK + 2)):1
                exec ./rails '$2 >/tmp/said 2>&1 || { cat /tmp/said; exit 1; }
        }
        rails() { test $(tr '{' '\\n' </tmp/stats | grep '^\"local\"' | grep -c \"$1\") = $2 || { cat /tmp/stats; exit 1; }; }
        ",
            $rest
        )
    };
}

/// The checks, each in a machine of its own.
const CHECKS: [Check; 47] = [
    check(
        "devices are up and reach each other",
        2,
        30,
        "set -e
        test $(ibv_devinfo | grep -c PORT_ACTIVE) = 2
        ibv_ud_pingpong -d rxe1 -g 1 -n 100 >server & sleep 1; ibv_ud_pingpong -d rxe0 -g 1 -n 100 127.0.0.1; wait $!
        grep -q '100 iters' server
        /host/guest adapters",
    ),
    check("the device conforms", 3, 120, "/host/guest --queues library conformance"),
    check(
        "100 MB arrive over a faulty link",
        2,
        180,
        faulty_transfer!("library"),
    ),
    check("queues that are posted directly conform", 3, 120, "/host/guest --queues raw conformance"),
    check(
        "100 MB arrive over a faulty link, posted directly",
        2,
        180,
        faulty_transfer!("raw"),
    ),
    check(
        "ends that are posted directly and by libibverbs understand each other",
        2,
        180,
        "set -e
        /host/guest --queues raw,library conformance
        for i in 0 1; do tc qdisc add dev net$i root netem limit 10000 loss 5%; done
        for queues in raw,library library,raw; do /host/guest --queues $queues transfer --bytes 4000000 --resent 10; done",
    ),
    check("queues that are posted directly are made anew", 2, 30, "/host/guest --queues raw queue-failure"),
    check("queues that cannot be made directly leave nothing behind", 2, 60, "/host/guest --queues raw half-made"),
    check(
        "wake-ups, buffer release, a link down and an interface gone, posted directly",
        2,
        60,
        "set -e
        for check in interrupt lending 'link-failure net0' 'removal net0'; do
            echo $check; /host/guest --queues raw $check
        done",
    ),
    check("datagrams to a group reach all members, posted directly", 4, 30, "/host/guest --queues raw multicast 239.1.2.3"),
    check(
        "a job over queues that are posted directly, on a faulty link",
        2,
        180,
        "set -e
        cd /host
        for i in 0 1; do tc qdisc add dev net$i root netem limit 10000 loss 1%; done
        export UNISONO_DEVICE=verbs UNISONO_QUEUES=raw
        ./unisono run -n 2 -- ./unisono bench transfer --bytes 4M
        ./unisono run -n 2 --progress hybrid -- ./unisono bench latency --bytes 64
        ./unisono run -n 4 -- ./unisono bench collective all_reduce --bytes 64K",
    ),
    // Where the kernel says another version of its queues, libibverbs has them.
    check(
        "ranks of a job take queues that their kernel has",
        2,
        180,
        "set -e
        cd /host
        for i in 0 1; do tc qdisc add dev net$i root netem limit 10000 loss 1%; done
        export UNISONO_DEVICE=verbs UNISONO_LOG=unisono=info
        job() { ./unisono run -n 2 $1 -- ./unisono bench transfer --bytes 1M >/tmp/said 2>&1; }
        saw() { test $(grep -c \"$2\" /tmp/said) = $1 || { cat /tmp/said; exit 1; }; }
        ./unisono info >/tmp/said; saw 1 'queues  *rxe0 raw (rxe)$'; saw 1 '^devices .*verbs'
        job; saw 2 'queues raw (rxe)'
        job '--queues library'; saw 2 'queues library'
        echo 1 >/tmp/version; mount --bind /tmp/version /sys/class/infiniband_verbs/uverbs0/abi_version
        ./unisono info | grep 'queues  *rxe0 library: .* have version 1,'
        job; saw 1 'queues raw (rxe)'; saw 1 'queues library adapter'; saw 1 'cannot map the adapter queues.* have version 1,'
        job '--queues raw' && exit 1; saw 1 'have version 1,'
        mount --bind /tmp/version /sys/class/infiniband_verbs/uverbs1/abi_version
        UNISONO_QUEUES=raw ./unisono info >/tmp/said; saw 2 'queues  *rxe. none: .* have version 1,'; saw 0 '^devices .*verbs'",
    ),
    check(
        "ranks of a job find each other over verbs",
        2,
        120,
        "for i in 0 1; do tc qdisc add dev net$i root netem limit 10000 loss 1% || exit 1; done
        cd /host && ./unisono run -n 2 --device verbs --queues library -- ./unisono bench transfer --bytes 4M",
    ),
    check(
        "a job of 4 adapters exchanges and combines in every progress mode",
        4,
        180,
        "set -e
        cd /host; ./unisono info | grep ', GID '
        for progress in engine thread hybrid; do
            ./unisono run -n 4 --device verbs --queues library --progress $progress -- ./unisono bench exchange --bytes 1M
        done
        ./unisono run -n 4 --device verbs -- ./unisono bench collective all_reduce --bytes 64K",
    ),
    check(
        "messages and allreduces over two rails",
        4,
        240,
        rails!(
            "for queues in library raw; do job $queues work; rails '\"sent\":[0-9][0-9][0-9]' 4; done
        for i in 0 1 2 3; do tc qdisc add dev net$i root netem limit 10000 loss 1%; done
        job raw work; rails '\"alive\":true' 4
        ./unisono run -n 2 --rails 2 -- ./rails work; ./unisono run -n 2 --rails rxe0,rxe1 -- ./rails work
        ./unisono run -n 2 --rails rxe0,10.0.0.0/24 -- ./rails work 2>&1 | grep 'these rails apply to the device udp'
        ./unisono run -n 2 --rails rxe0,rxe7 -- ./rails refused | grep 'no RDMA adapter rxe7'"
        ),
    ),
    check(
        "a rail whose wire is cut amid allreduces loses nothing",
        4,
        240,
        rails!(
            "under_way() {
            until test $(ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c uverbs) -ge 4; do sleep 1; done; sleep 3
        }
        for queues in library raw; do
            (under_way; ip link set port2 down) & job $queues cut; wait; ip link set port2 up
            rails '\"alive\":false' 2; rails '\"link_downs\":[1-9]' 1
            (under_way; ip link set port0 down; sleep 5; ip link set port0 up) & job $queues return; wait
            rails '\"deaths\":[1-9]' 2; rails '\"link_downs\":[1-9]' 1
        done"
        ),
    ),
    check(
        "random programs of messages and collectives equal their serial execution",
        4,
        240,
        "/host/differential --adapters --runs 9 --steps 30",
    ),
    check(
        "operations over reliable connections",
        4,
        240,
        "set -e
        for queues in library raw raw,library,raw,library; do /host/guest --queues $queues rc-operations; done
        for i in 0 1 2 3; do tc qdisc add dev net$i root netem limit 10000 loss 1%; done
        for queues in library raw; do /host/guest --queues $queues rc-operations --lossy; done",
    ),
    check(
        "adapters access windows of other ranks",
        4,
        240,
        concat!(
            native_windows!(),
            "
        for queues in library raw; do for bytes in 8 300000; do
            job -n 2 --queues $queues -- ./guest windows --bytes $bytes; test $posted -gt 20; test $failed = 0
        done; done
        job -n 4 -- ./guest windows --bytes 5000; test $posted -gt 20
        job -n 2 --rc-limit 0 -- ./guest windows --bytes 5000; test $posted = 0
        # Each rank has three peers, and uses another one after a while.
        job -n 4 --rc-limit 1 -- ./guest windows --bytes 5000 --rounds 40 --pause 60; test $posted -gt 10; test $failed = 0"
        ),
    ),
    check(
        "adapters access regions of other ranks",
        2,
        120,
        concat!(
            native_windows!(),
            "
        for queues in library raw; do for bytes in 8 300000; do
            job -n 2 --queues $queues -- ./guest regions --bytes $bytes; test $posted -gt 20
        done; done"
        ),
    ),
    check(
        "windows and regions conform over datagrams of adapters",
        3,
        240,
        one_sided_suite!("-n 3 --device verbs --rc-limit 0 --progress hybrid"),
    ),
    check(
        "ranks that compute answer operations over datagrams of adapters",
        2,
        60,
        "cd /host; export TEST_LAUNCHER=/host/unisono TEST_MEANS='-n 2 --device verbs --rc-limit 0'; ./windows compute",
    ),
    check(
        "windows and regions conform over reliable connections",
        3,
        240,
        one_sided_suite!("-n 3 --device verbs --queues library"),
    ),
    check(
        "windows and regions conform over reliable connections that are posted directly",
        3,
        240,
        one_sided_suite!("-n 3 --device verbs --queues raw"),
    ),
    check(
        "windows and regions conform over few connections",
        4,
        240,
        one_sided_suite!("-n 4 --device verbs --rc-limit 1"),
    ),
    check(
        "ranks are killed amid operations over adapters",
        4,
        240,
        "cd /host && ./kills --means verbs --work windows --runs 24 && ./kills --means verbs --runs 12",
    ),
    check(
        "adapters access windows over a faulty link",
        2,
        180,
        concat!(
            native_windows!(),
            "
        for i in 0 1; do tc qdisc add dev net$i root netem limit 10000 loss 1%; done
        for bytes in 8 300000; do job -n 2 -- ./guest windows --bytes $bytes; test $posted -gt 20; done"
        ),
    ),
    check(
        "puts keep their order over a faulty link, by adapters and requests",
        3,
        120,
        "cd /host; export TEST_LAUNCHER=/host/unisono TEST_MEANS='-n 3 --device verbs --queues library;-n 3 --device verbs --queues raw'
        for i in 0 1 2; do tc qdisc add dev net$i root netem limit 10000 delay 1ms loss 3% || exit 1; done
        ./windows data_is",
    ),
    check(
        "windows are accessed over a link that loses everything for a while",
        2,
        180,
        concat!(
            native_windows!(),
            "
        (until grep -q begun /tmp/said; do sleep 0.1; done; tc qdisc add dev net0 root netem loss 100%; sleep 3; tc qdisc del dev net0 root) &
        job -n 2 -- ./guest windows --bytes 5000 --rounds 8 --reading 1500; test $posted -gt 20; test $failed -gt 0"
        ),
    ),
    check(
        "adapters write blocks of alltoalls",
        4,
        180,
        concat!(
            native_windows!(),
            "
        for queues in library raw; do
            job -n 4 --queues $queues --alltoall hybrid:k=2 -- ./guest all-to-all --bytes 40000; test $posted -gt 200; test $failed = 0
        done
        job -n 4 --alltoall rdma -- ./guest all-to-all --bytes 40000; test $posted = 0
        for i in 0 1 2 3; do tc qdisc add dev net$i root netem limit 10000 loss 1%; done
        job -n 4 --alltoall hybrid:k=3 -- ./guest all-to-all --bytes 16000; test $posted -gt 20"
        ),
    ),
    check(
        "adapters read payloads of messages and collectives",
        4,
        400,
        concat!(
            payload_reads!(),
            "
        # Soft-RoCE that is emulated may drop packets until a read fails.
        for queues in library raw; do for bytes in 65536 1000000; do
            job -n 2 --queues $queues -- ./guest messages --bytes $bytes; test $read -gt 60
        done; done
        job -n 2 -- ./guest messages --bytes 20000000 --rounds 4 --alone; test $read -gt 10
        job -n 2 --rc-limit 0 -- ./guest messages --bytes 100000; test $read = 0
        job -n 2 -- ./guest messages --bytes 20000 --alone; test $read = 0
        for bytes in 65536 300000 1000000; do
            job -n 4 --nodes 2 --hierarchy host:slots -- ./guest messages --bytes $bytes; test $read -gt 30
        done
        job -n 4 --rc-limit 1 -- ./guest messages --bytes 65536 --pause 60; test $read -gt 0"
        ),
    ),
    check(
        "adapters read payloads over a faulty link",
        2,
        240,
        concat!(
            payload_reads!(),
            "
        for i in 0 1; do tc qdisc add dev net$i root netem limit 10000 loss 1%; done
        for queues in library raw; do job -n 2 --queues $queues -- ./guest messages --bytes 300000; test $read -gt 20; done"
        ),
    ),
    check(
        "payloads whose read fails are sent",
        2,
        180,
        concat!(
            payload_reads!(),
            "
        (until grep -q begun /tmp/said; do sleep 0.1; done; tc qdisc add dev net0 root netem loss 100%; sleep 3; tc qdisc del dev net0 root) &
        job -n 2 -- ./guest messages --bytes 1000000 --rounds 200 --alone; test $read -gt 20; test $failed -gt 0"
        ),
    ),
    // Each adapter loses datagrams of its own.
    check(
        "broadcasts by multicast over adapters that lose datagrams",
        4,
        400,
        r#"set -e
        cd /host; export UNISONO_DEVICE=verbs
        for i in 0 1 2 3; do tc qdisc add dev port$i root netem limit 10000 loss 2%; done
        for queues in library raw; do
            ./unisono run -n 4 --queues $queues --broadcast multicast --stats-file /tmp/stats -- ./guest broadcast --bytes 1000000 --rounds 100
            sed -n 's/.*"multicast":{"sent":\([0-9]*\),.*"repaired":\([0-9]*\),"repaired_all".*/\1 \2/p' /tmp/stats >/tmp/streams
            cat /tmp/streams; sent=0 repaired=0
            while read one two; do sent=$((sent + one)) repaired=$((repaired + two)); done </tmp/streams
            test $sent -gt 20000; test $repaired -gt 1000
        done"#,
    ),
    check("a job whose adapter is taken away ends", 2, 60, taken_away!("library")),
    check("a job whose adapter is taken away ends, posted directly", 2, 60, taken_away!("raw")),
    check("datagrams to a group reach all members", 4, 30, "/host/guest --queues library multicast 239.1.2.3"),
    check("the interrupt lane wakes a sleeper", 2, 30, "/host/guest --queues library interrupt"),
    check("queues in error are made anew", 2, 30, "/host/guest --queues library queue-failure"),
    check("an overrun is reported and mended", 2, 30, "/host/guest --queues library overrun"),
    check("traffic resumes when the link is up again", 2, 30, "/host/guest --queues library link-failure net0"),
    check("a removed interface closes the device", 2, 30, "/host/guest --queues library removal net0"),
    check("idle peers cost their records only", 2, 60, "/host/guest --queues library memory"),
    check(
        "idle peers cost their records only, in small pages",
        2,
        60,
        "echo 0 >/proc/sys/vm/nr_hugepages; echo never >/sys/kernel/mm/transparent_hugepage/enabled
        for queues in library raw; do /host/guest --queues $queues memory || exit 1; done",
    ),
    check("address handles outlive windows", 2, 30, "/host/guest --queues library handles && /host/guest --queues raw handles"),
    check("memory is requested back while it is posted", 2, 30, "/host/guest --queues library lending"),
    check("latency and rate are close to a bare loop's", 2, 240, "/host/guest compare --turns 1"),
];

/// Programs that run in the machine. Comparisons need only the first.
const PROGRAMS: [&str; 4] = ["guest", "unisono", "differential", "kills"];
/// Tests of the launcher that do so, too.
const TESTS: [&str; 3] = ["rails", "regions", "windows"];

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Outcome<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the tests have no parent folder")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let parts = Parts::fetch(&target.join("vm"))?;
    let mut command = options.command.join(" ");
    let compares = command.starts_with("compare");
    build(&parts, &target, compares)?;
    let processor = parts.processor();
    println!("processor        {processor:?}");
    if !options.command.is_empty() {
        if compares {
            command.insert_str(0, "/host/guest ");
        }
        let _awake = compares.then(CpuLatencyRequest::begin);
        let limit = Duration::from_secs(options.limit);
        let task = Task { devices: options.devices, command: &command, limit, processor };
        let verdict = parts.boot(&task, |line| println!("{line}"))?;
        return Ok(verdict.status == 0);
    }
    let mut failed = 0;
    let only = options.only.as_deref().unwrap_or_default();
    let named = CHECKS.iter().filter(|check| check.name.contains(only)).enumerate();
    let chosen = || named.clone().filter(|(i, _)| options.sample.takes(*i)).map(|(_, check)| check);
    if chosen().next().is_none() {
        return Err(format!("no check of part {} has a name that contains {only:?}", options.sample).into());
    }
    for check in chosen() {
        let limit = Duration::from_secs(check.limit);
        let task = Task { devices: check.devices, command: check.command, limit, processor };
        let mut said = Vec::new();
        let verdict = parts.boot(&task, |line| said.push(line.to_owned()));
        let kept = verdict.as_ref().is_ok_and(|verdict| verdict.status == 0);
        let ended = match verdict {
            Ok(verdict) => {
                let (boot, all) = (verdict.boot.as_secs_f64(), verdict.all.as_secs_f64());
                let again =
                    if verdict.hung == 0 { String::new() } else { format!(", {} did not come up", verdict.hung) };
                format!("status {}, boot {boot:.1} s, all {all:.1} s{again}", verdict.status)
            }
            Err(error) => error.to_string(),
        };
        println!("{:<6} {} ({ended})", if kept { "passed" } else { "FAILED" }, check.name);
        if !kept {
            failed += 1;
            said.iter().for_each(|line| println!("       | {line}"));
        }
    }
    println!("verdict          {}", if failed == 0 { "passed".to_owned() } else { format!("{failed} FAILED") });
    Ok(failed == 0)
}

/// Builds the machine's programs with the feature `verbs` and shares them with the machine. Compared programs are
/// optimized over all crates, which takes minutes; checks need not be. The target folder is one of its own: other
/// harnesses run the `unisono` of the usual one, which must not be replaced meanwhile.
fn build(parts: &Parts, target: &Path, compares: bool) -> Outcome<()> {
    // The bindings of rdma-core are built with these.
    let bindings = "cmake libclang-dev";
    let cmake = Command::new("cmake").arg("--version").stdout(Stdio::null()).status();
    cmake.map_err(|error| missing_program("cmake", &error, bindings))?;
    let (profile, programs, tests) =
        if compares { ("fat", &PROGRAMS[..1], &[][..]) } else { ("release", &PROGRAMS[..], &TESTS[..]) };
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let target = target.join("verbs");
    cargo.args([
        "build",
        "--workspace",
        "--profile",
        profile,
        "--locked",
        "--quiet",
        "--features",
        "unisono-tests/verbs",
        "--message-format",
        "json-render-diagnostics",
    ]);
    cargo.arg("--target-dir").arg(&target);
    programs.iter().for_each(|program| _ = cargo.args(["--bin", program]));
    tests.iter().for_each(|test| _ = cargo.args(["--test", test]));
    let built = cargo.stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        return Err(format!("the machine's programs do not build; they need: {}", install(bindings)).into());
    }
    let messages = String::from_utf8(built.stdout)?;
    for name in programs.iter().chain(tests) {
        let program = executable(&messages, name).ok_or_else(|| format!("cargo names no program {name}"))?;
        parts.share(Path::new(program), name)?;
    }
    Ok(())
}

/// The program that cargo has built for the target with this name, by its messages: the name of a test's file has a hash.
fn executable<'m>(messages: &'m str, name: &str) -> Option<&'m str> {
    messages.lines().find_map(|message| {
        let (_, path) = message.split_once("\"executable\":\"")?;
        let (path, _) = path.split_once('"')?;
        message.contains(&format!("\"name\":\"{name}\"")).then_some(path)
    })
}
