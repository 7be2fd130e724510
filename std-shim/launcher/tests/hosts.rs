//! A job on two hosts: two network namespaces with a veth cable between them are the hosts, and `ip netns exec` is the
//! remote shell. Needs `ip` and `unshare`, and either root or unprivileged user namespaces; fails without them.

mod member;

use core::time::Duration;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, ExitCode, Output, Stdio},
    time::Instant,
};

const INSIDE: &str = "INSIDE_NAMESPACES";
const SET_UP: &str = "set -e
mount -t tmpfs tmpfs /run && mkdir /run/netns
ip netns add a && ip netns add b
ip link add cable netns a type veth peer name cable netns b
ip -n a addr add 10.77.0.1/24 dev cable && ip -n b addr add 10.77.0.2/24 dev cable
for host in a b; do ip -n $host link set lo up; ip -n $host link set cable up; done
exec \"$@\"";

fn main() -> ExitCode {
    if let Some(code) = member::play() {
        return code;
    }
    if env::var_os(INSIDE).is_none() {
        return enter();
    }
    let tests: [(&str, fn()); 7] = [
        ("both_hosts_join", both_hosts_join),
        ("messages_cross_the_cable", messages_cross_the_cable),
        ("datagrams_larger_than_the_cable_cross_it", datagrams_larger_than_the_cable_cross_it),
        ("ranks_know_the_speed_of_their_links", ranks_know_the_speed_of_their_links),
        ("agents_report_liveness_and_failures", agents_report_liveness_and_failures),
        ("a_failure_ends_the_other_host_too", a_failure_ends_the_other_host_too),
        ("a_killed_agent_takes_its_ranks_along", a_killed_agent_takes_its_ranks_along),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

/// Runs this program again in namespaces that end with it.
fn enter() -> ExitCode {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "--mount", "sh", "-c", SET_UP, "sh"]).arg(env::current_exe().expect("this program"));
    match command.env(INSIDE, "yes").status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("the test of hosts failed, or its network namespaces could not be made ({status}): see above");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the test of hosts cannot make network namespaces: unshare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn command(options: &str, part: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", "a", env!("CARGO_BIN_EXE_unisono"), "run", "--rsh", "ip netns exec"]);
    command.args(options.split_whitespace()).arg("--").args(part).stdin(Stdio::null());
    command.env_remove(INSIDE);
    command
}

fn run(options: &str, part: &str) -> Output {
    let own = env::current_exe().expect("this program");
    command(options, &[own.to_str().expect("UTF-8"), part]).output().expect("ip starts")
}

fn expect(output: &Output, code: i32, lines: &str) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let shown = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), lines.to_owned()), "{shown}");
}

fn both_hosts_join() {
    let line = "0@10.77.0.1 0@10.77.0.1 1@10.77.0.2 1@10.77.0.2\n";
    let output = run("--hosts localhost:2,b:2", "exchange");
    expect(&output, 0, &line.repeat(4));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = "0@10.77.0.1 1@10.77.0.2\n";
    expect(&run("--hosts a:1,b:1", "exchange"), 0, &line.repeat(2));
}

fn messages_cross_the_cable() {
    transfers("--hosts a:1,b:1 --device udp");
}

/// The MTU of the cable is 1500 bytes: the kernel fragments larger datagrams after it has rejected one.
fn datagrams_larger_than_the_cable_cross_it() {
    transfers("--hosts a:1,b:1 --device udp --mtu 9000");
    transfers("--hosts a:1,b:1 --device udp --mtu 9000 --gso off");
}

fn transfers(options: &str) {
    let bench = ["unisono", "bench", "transfer", "--bytes", "256K", "--json"];
    let output = command(options, &bench).output().expect("ip starts");
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let shown = format!("{line} {}", String::from_utf8_lossy(&output.stderr));
    assert!(line["hash_sent"].is_string() && line["hash_sent"] == line["hash_received"], "{shown}");
    assert_eq!((line["bytes"].as_u64(), output.status.code()), (Some(256 << 10), Some(0)), "{shown}");
}

/// The system takes a cable between namespaces for one of 10 Gbit/s.
fn ranks_know_the_speed_of_their_links() {
    let mut job = command("--hosts a:1,b:1 --device udp", &["unisono", "bench", "barrier"]);
    let output = job.env("UNISONO_LOG", "unisono=debug").output().expect("ip starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors.matches("links of the hosts speed=10G").count(), 2, "{errors}");
}

fn agents_report_liveness_and_failures() {
    expect(&run("--hosts a:1,b:2 --on-death tell", "reported"), 137, "survived\nsurvived\n");
    expect(&run("--hosts a:1,b:2 --on-death silent", "silent"), 137, "survived\nsurvived\n");
}

fn a_failure_ends_the_other_host_too() {
    let script = "if [ $UNISONO_RANK = 1 ]; then exit 6; else exec sleep 60; fi";
    let began = Instant::now();
    let output = command("--hosts a:1,b:1", &["sh", "-c", script]).output().expect("ip starts");
    expect(&output, 6, "");
    assert!(began.elapsed() < Duration::from_secs(5));
}

fn a_killed_agent_takes_its_ranks_along() {
    // The rank's parent is the agent of its host.
    let script = "echo $PPID; exec sleep 60";
    let mut command = command("--hosts b:1", &["sh", "-c", script]);
    let mut job: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ip starts");
    let mut agent = String::new();
    BufReader::new(job.stdout.take().expect("piped")).read_line(&mut agent).expect("a line");
    let agent = agent.trim().parse().ok().and_then(Pid::from_raw).expect("a process");
    kill_process(agent, Signal::KILL).expect("the agent runs");
    let output = job.wait_with_output().expect("ends");
    expect(&output, 1, "");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("the connection to the agent on b is lost"), "{errors}");
    assert!(errors.contains("rank 0") && errors.contains("lost with its node"), "{errors}");
}
