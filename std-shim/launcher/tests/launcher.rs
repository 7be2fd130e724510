//! The launcher with real processes: exit codes, signals, policies, output, secrets.

use core::time::Duration;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Instant,
};

const BOUND: Duration = Duration::from_secs(5);

fn unisono(options: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.arg("run").args(options.split_whitespace()).arg("--").stdin(Stdio::null());
    command
}

fn shell(options: &str, script: &str) -> Command {
    let mut command = unisono(options);
    command.args(["sh", "-c", script]);
    command
}

fn run(mut command: Command) -> Output {
    command.output().expect("unisono starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn sorted(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(bytes).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A job whose ranks have written one line each.
fn running(options: &str, script: &str, ranks: usize) -> (Child, Vec<String>, impl Read) {
    let mut command = shell(options, script);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("unisono starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut lines = Vec::new();
    for _ in 0..ranks {
        let mut line = String::new();
        output.read_line(&mut line).expect("a line of each rank");
        lines.push(line.trim().to_owned());
    }
    (child, lines, output)
}

fn send(child: &Child, signal: Signal) {
    let launcher = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(launcher, signal).expect("the launcher runs");
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether the process has ended; a zombie that init has not reaped yet counts.
fn is_gone(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let number = Pid::from_raw(pid.parse().expect("a process ID")).expect("not zero");
    test_kill_process(number).is_err() || stat.contains(") Z ")
}

#[test]
fn unknown_settings_are_refused_by_every_command() {
    for command in ["info", "info --collectives -n 2", "bench floor", "tune -n 2", "bench barrier", "run -n 1 -- true"]
    {
        let mut unisono = Command::new(env!("CARGO_BIN_EXE_unisono"));
        unisono.args(command.split(' ')).env("UNISONO_GARBAGE", "1").stdin(Stdio::null());
        let output = run(unisono);
        let errors = text(&output.stderr);
        assert!(!output.status.success() && errors.contains("UNISONO_GARBAGE is not a setting"), "{command}: {errors}");
    }
}

#[test]
fn settings_of_another_device_are_refused() {
    for options in ["--device shm --seed 7", "--device shm --mtu 1500", "--device shm --gso off"] {
        let output = run(shell(&format!("-n 2 {options}"), "echo started"));
        let errors = text(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains("not to this one"), "{options}: {errors}");
        assert!(output.stdout.is_empty(), "{options}");
    }
}

#[test]
fn every_rank_gets_its_rank_and_placement() {
    let script = "echo $UNISONO_RANK $UNISONO_SIZE $UNISONO_NODE $UNISONO_LOCAL_RANK $UNISONO_LOCAL_SIZE \
                  $UNISONO_DEVICE $UNISONO_LOSS $UNISONO_SERVE";
    let output = run(shell("-n 3 --nodes 2 --device udp --loss 5%", script));
    let expected = ["0 3 0 0 2 udp 0.05 off", "1 3 0 1 2 udp 0.05 off", "2 3 1 0 1 udp 0.05 off"];
    assert_eq!(sorted(&output.stdout), expected);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn the_first_failure_is_the_exit_code_and_ends_the_others() {
    let began = Instant::now();
    let output = run(shell("-n 3", "if [ $UNISONO_RANK = 1 ]; then exit 7; else exec sleep 60; fi"));
    assert!(began.elapsed() < BOUND);
    assert_eq!(output.status.code(), Some(7));
    let errors = text(&output.stderr);
    assert!(
        errors.starts_with("unisono: rank 1 (pid ") && errors.contains("host localhost) exited with code 7"),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 1, "ranks that were ended are not reported: {errors}");
}

#[test]
fn a_signal_is_reported_by_name_and_code() {
    let output = run(shell("-n 2 --on-death silent", "[ $UNISONO_RANK = 0 ] || kill -KILL $$; echo goes on"));
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(text(&output.stdout), "goes on\n");
    assert!(text(&output.stderr).contains("killed by signal 9 (SIGKILL)"));
}

#[test]
fn a_rank_that_ignores_sigterm_is_killed_after_the_grace_time() {
    let script = "if [ $UNISONO_RANK = 1 ]; then sleep 0.1; exit 3; fi; trap '' TERM; while :; do sleep 0.05; done";
    let began = Instant::now();
    let output = run(shell("-n 2 --grace 200ms", script));
    assert_eq!(output.status.code(), Some(3));
    assert!((Duration::from_millis(200)..BOUND).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[test]
fn signals_reach_every_rank() {
    let script = "trap 'echo got $UNISONO_RANK; exit 0' USR1; echo ready; while :; do sleep 0.01; done";
    let (mut child, _, mut output) = running("-n 2", script, 2);
    send(&child, Signal::USR1);
    let mut got = Vec::new();
    output.read_to_end(&mut got).expect("the ranks end");
    assert_eq!(sorted(&got), ["got 0", "got 1"]);
    assert_eq!(child.wait().expect("ends").code(), Some(0));
}

#[test]
fn an_interrupt_goes_on_and_a_second_one_kills() {
    let script = "trap 'echo interrupted' INT; echo ready; while :; do sleep 0.01; done";
    let (mut child, _, output) = running("-n 1", script, 1);
    send(&child, Signal::INT);
    let mut line = String::new();
    let mut output = BufReader::new(output);
    output.read_line(&mut line).expect("the rank goes on");
    assert_eq!(line, "interrupted\n");
    assert!(child.try_wait().expect("ours").is_none());
    send(&child, Signal::INT);
    assert_eq!(child.wait().expect("ends").code(), Some(137));
}

#[test]
fn a_terminated_job_has_the_code_of_the_signal() {
    let (mut child, _, _output) = running("-n 2", "echo ready; exec sleep 60", 2);
    send(&child, Signal::TERM);
    assert_eq!(child.wait().expect("ends").code(), Some(143));
}

#[test]
fn ranks_do_not_survive_a_killed_launcher() {
    let (mut child, pids, _output) = running("-n 2", "echo $$; exec sleep 60", 2);
    child.kill().expect("runs");
    child.wait().expect("killed");
    until("the ranks are gone", || pids.iter().all(|pid| is_gone(pid)));
}

#[test]
fn ranks_of_an_agent_do_not_survive_a_killed_launcher() {
    let directory = tempfile::tempdir().expect("a directory");
    // A remote shell that stays on this host, and that outlives the launcher.
    let rsh = directory.path().join("rsh");
    script(&rsh, "#!/bin/sh\nshift\nexec setsid --wait sh -c '\"$@\"; true' sh \"$@\"\n");
    let options = format!("--hosts elsewhere:2 --rsh {}", rsh.display());
    let (mut child, pids, _output) = running(&options, "echo $$; exec sleep 60", 2);
    child.kill().expect("runs");
    child.wait().expect("killed");
    until("the ranks are gone", || pids.iter().all(|pid| is_gone(pid)));
}

fn script(path: &Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let options = fs::OpenOptions::new().create_new(true).write(true).mode(0o700).open(path);
    options.expect("a new file").write_all(text.as_bytes()).expect("written");
}

#[test]
fn an_agent_passes_output_input_and_codes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let rsh = directory.path().join("rsh");
    script(&rsh, "#!/bin/sh\nshift\nexec \"$@\"\n");
    let options = format!("--hosts a:1,b:2 --tag-output --rsh {}", rsh.display());
    let mut command = shell(&options, "echo $UNISONO_RANK $UNISONO_NODE; cat; [ $UNISONO_RANK != 2 ] || exit 4");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("unisono starts");
    child.stdin.take().expect("piped").write_all(b"input of rank 0\n").expect("taken");
    let output = child.wait_with_output().expect("ends");
    assert!(sorted(&output.stdout).contains(&"[2] 2 1".to_owned()), "{:?}", sorted(&output.stdout));
    let errors = text(&output.stderr);
    assert!(errors.contains("host b) exited with code 4"), "{errors}");
    assert_eq!(output.status.code(), Some(4));
    let mut command = shell(&options, "cat");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("unisono starts");
    child.stdin.take().expect("piped").write_all(b"input of rank 0\n").expect("taken");
    let output = child.wait_with_output().expect("ends");
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("[0] input of rank 0\n".to_owned(), String::new()));
}

#[test]
fn a_host_that_cannot_be_reached_ends_the_job() {
    let output = run(shell("--hosts a:1 --rsh false", "true"));
    let errors = text(&output.stderr);
    assert!(errors.contains("the remote shell for a ended before its agent connected: exit status: 1"), "{errors}");
    assert_eq!(output.status.code(), Some(127));
    let output = run(shell("--hosts a:1 --rsh /nonexistent/shell", "true"));
    assert!(text(&output.stderr).contains("cannot start the remote shell for a"));
    assert_eq!(output.status.code(), Some(127));
}

#[test]
fn tagged_lines_stay_whole() {
    let line = "x".repeat(3000);
    let script = format!("i=0; while [ $i -lt 100 ]; do echo {line}$UNISONO_RANK; i=$((i+1)); done; printf last");
    let output = run(shell("-n 3 --tag-output", &script));
    let lines = sorted(&output.stdout);
    assert_eq!(lines.len(), 303);
    for rank in 0..3 {
        let whole = format!("[{rank}] {line}{rank}");
        assert_eq!(lines.iter().filter(|line| **line == whole).count(), 100);
        assert!(lines.contains(&format!("[{rank}] last")));
    }
}

#[test]
fn errors_are_tagged_apart_from_output() {
    let output = run(shell("-n 2 --tag-output", "echo out; echo err >&2"));
    assert_eq!(sorted(&output.stdout), ["[0] out", "[1] out"]);
    assert_eq!(sorted(&output.stderr), ["[0] err", "[1] err"]);
}

#[test]
fn a_reader_that_goes_away_ends_the_writers() {
    let script = "while echo line; do :; done";
    let (mut child, _, output) = running("-n 2 --tag-output", script, 2);
    drop(output);
    until("the ranks notice", || child.try_wait().expect("ours").is_some());
}

#[test]
fn lines_of_ranks_never_mix() {
    // Each line is written in pieces, as `eprintln!` does.
    let script = "i=0; while [ $i -lt 50 ]; do printf \"rank $UNISONO_RANK \" >&2; printf \"line $i\" >&2; \
                  echo \" of rank $UNISONO_RANK\" >&2; i=$((i+1)); done; printf unfinished >&2; exit $UNISONO_RANK";
    for options in ["-n 4 --on-death silent", "-n 4 --nodes 2 --on-death silent"] {
        let output = run(shell(options, script));
        let errors = text(&output.stderr);
        for (rank, line) in (0..4).flat_map(|rank| (0..50).map(move |line| (rank, line))) {
            let whole = format!("rank {rank} line {line} of rank {rank}");
            assert_eq!(errors.lines().filter(|line| **line == whole).count(), 1, "{whole}: {errors}");
        }
        let own = errors.lines().filter(|line| line.starts_with("unisono: rank ")).count();
        let unfinished = errors.lines().filter(|line| *line == "unfinished").count();
        assert_eq!((own, unfinished, errors.lines().count()), (3, 4, 207), "{errors}");
    }
}

#[test]
fn a_message_follows_the_output_of_its_rank() {
    for _ in 0..10 {
        let output = run(shell("-n 2", "[ $UNISONO_RANK = 0 ] && exec sleep 60; echo its own error >&2; exit 3"));
        let errors = text(&output.stderr);
        assert!(errors.starts_with("its own error\nunisono: rank 1 (pid "), "{errors}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_job_quietly() {
    let script = "trap '' PIPE; while echo line; do :; done; echo the output is broken >&2";
    for options in ["-n 1", "-n 2", "-n 2 --tag-output"] {
        let (mut child, _, output) = running(options, script, 1);
        drop(output);
        let mut errors = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut errors).expect("text");
        assert_eq!((errors.as_str(), child.wait().expect("ends").code()), ("", Some(141)), "{options}");
    }
}

#[test]
fn a_command_that_prints_ends_quietly_with_its_reader() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.args(["info", "--collectives", "-n", "2"]).stdin(Stdio::null()).stderr(Stdio::piped());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command.stdout(writer).spawn().and_then(Child::wait_with_output).expect("unisono starts");
    assert_eq!(text(&output.stderr), "");
    assert!(!output.status.success(), "{}", output.status);
}

#[test]
fn an_error_of_a_rank_is_not_repeated_by_the_launcher() {
    // The rank rejects the launcher, which does not know the rank's secret.
    let mut command = unisono("-n 1");
    command.args(["env", "UNISONO_SECRET=another secret, quite long", env!("CARGO_BIN_EXE_unisono")]);
    let output = run({
        command.args(["bench", "barrier"]);
        command
    });
    let errors = text(&output.stderr);
    assert!(errors.contains("the other end does not know the secret of this job"), "{errors}");
    assert!(!errors.contains("WARN") && errors.lines().count() == 2, "{errors}");
}

#[test]
fn the_output_of_one_rank_is_not_changed() {
    let script = "[ $UNISONO_RANK = 0 ] || exit 0; printf 'no newline'; head -c 100000 /dev/zero";
    for options in ["-n 1", "-n 3"] {
        let output = run(shell(options, script)).stdout;
        assert!(output.len() == 100_010 && output.starts_with(b"no newline\0\0"), "{options}: {}", output.len());
    }
}

#[test]
fn the_program_needs_no_separator() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.args(["run", "-n", "2", "echo", "-n", "--", "x"]).stdin(Stdio::null());
    let output = run(command);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("-- x\n-- x", Some(0)));
}

#[test]
fn processes_left_by_a_rank_end_with_the_job() {
    for options in ["-n 1", "-n 1 --tag-output"] {
        let began = Instant::now();
        let output = run(shell(options, "sleep 60 & echo $!"));
        let pid = text(&output.stdout);
        let pid = pid.trim_start_matches("[0] ").trim();
        until("the process that the rank left is gone", || is_gone(pid));
        assert!(began.elapsed() < BOUND);
    }
}

#[test]
fn input_goes_to_rank_zero() {
    let mut command = shell("-n 2", "cat; echo end $UNISONO_RANK");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unisono starts");
    child.stdin.take().expect("piped").write_all(b"words\n").expect("taken");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(sorted(&output.stdout), ["end 0", "end 1", "words"]);
}

#[test]
fn no_argument_list_shows_the_secret() {
    let directory = tempfile::tempdir().expect("a directory");
    let rsh = directory.path().join("rsh");
    script(&rsh, "#!/bin/sh\nshift\n\"$@\"\n");
    let options = format!("--hosts localhost:1,b:1 --rsh {}", rsh.display());
    let show = "echo $UNISONO_SECRET; exec sleep 60";
    let (mut child, lines, _output) = running(&options, show, 2);
    let secret = lines.first().expect("a line");
    assert_eq!(secret.len(), 64);
    let mut seen = 0;
    for process in fs::read_dir("/proc").expect("procfs").filter_map(Result::ok) {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        seen += usize::from(line.contains("agent"));
        assert!(!line.contains(secret.as_str()), "{line}");
    }
    assert!(seen > 0, "the agent's command line was checked");
    send(&child, Signal::TERM);
    child.wait().expect("ends");
}

#[test]
fn pinned_ranks_get_processors_of_their_own() {
    let output = run(shell("-n 2 --pin", "grep Cpus_allowed_list /proc/self/status"));
    let allowed = sorted(&output.stdout);
    let processors = thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(allowed.len(), 2);
    assert_eq!(allowed[0] != allowed[1], processors > 1, "{allowed:?}");
}

#[test]
fn invalid_jobs_are_refused() {
    for (options, code, reason) in [
        ("-n 2 --nodes 2 --device shm", 2, "the device shm needs all ranks on one node, but the job has 2 nodes"),
        ("-n 2 --device shm --loss 5%", 2, "fault injection applies to the device udp"),
        ("-n 1 --device verbs", 2, "this unisono was built without the feature verbs (docs/verbs.md)"),
        ("-n 1 --bare-metal 1", 2, "from 1 to one less than all"),
        ("-n 1 --tuning /dev/null", 2, "--tuning /dev/null: a table must begin with the line \"unisono tuning 3\""),
    ] {
        let output = run(shell(options, "echo ran"));
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), String::new()));
        assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    }
    let mut command = unisono("-n 1");
    let output = run({
        command.arg("/nonexistent/program");
        command
    });
    assert_eq!(output.status.code(), Some(127));
    let mut command = shell("-n 1", "true");
    command.env("UNISONO_COLOUR", "blue");
    let output = run(command);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("UNISONO_COLOUR is not a setting of unisono"));
}

#[test]
fn unisono_itself_is_found_without_a_path() {
    let mut command = unisono("-n 1");
    command.args(["unisono", "--version"]).env("PATH", "/nonexistent");
    let output = run(command);
    assert_eq!(text(&output.stdout), format!("unisono {}\n", env!("CARGO_PKG_VERSION")));
}
