//! Processes that share the memory segment of their node. This program is their rank program, too.

mod program;

use core::{fmt::Write as _, time::Duration};
use std::{
    env, fs, io,
    io::Write as _,
    net::TcpListener,
    os::{
        fd::BorrowedFd,
        unix::{fs::OpenOptionsExt, process::CommandExt},
    },
    process::{Command, ExitCode, Output, Stdio},
    thread,
    time::Instant,
};

use program::{expect, run};
use unisono::{Node, NodeRankState, Rank, Tag, World};
use unisono_shmem::host::wait_strategy::PollScope;
use unisono_shmem::segment::{Site, Word};

const BOUND: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        return play();
    }
    program::run_tests(&[
        ("only_ranks_of_a_node_share_memory", only_ranks_of_a_node_share_memory),
        ("agents_create_the_segments_of_their_hosts", agents_create_the_segments_of_their_hosts),
        ("a_job_of_one_uses_shared_memory_only_if_requested", a_job_of_one_uses_shared_memory_only_if_requested),
        ("closed_descriptor_is_reopened_through_the_launcher", closed_descriptor_is_reopened_through_the_launcher),
        ("ranks_without_a_launcher_share_memory", ranks_without_a_launcher_share_memory),
        ("documented_srun_lines_start_a_job", documented_srun_lines_start_a_job),
        ("pinned_ranks_have_processors_together", pinned_ranks_have_processors_together),
        ("first_rank_without_memory_leaves_its_node_without", first_rank_without_memory_leaves_its_node_without),
        ("without_record_locks_nothing_is_shared", without_record_locks_nothing_is_shared),
        ("failure_is_detected_through_the_system", failure_is_detected_through_the_system),
        ("wait_for_a_rank_that_dies_ends", wait_for_a_rank_that_dies_ends),
        ("message_from_a_rank_that_dies_is_not_waited_for", message_from_a_rank_that_dies_is_not_waited_for),
        ("garbage_in_a_rank_slot_is_detected", garbage_in_a_rank_slot_is_detected),
        ("descriptor_of_another_file_is_refused", descriptor_of_another_file_is_refused),
    ])
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn only_ranks_of_a_node_share_memory() {
    for (options, lines) in [
        ("-n 3", ["0 of 0 1 2", "1 of 0 1 2", "2 of 0 1 2"].as_slice()),
        ("-n 5 --nodes 2", &["0 of 0 1 2", "1 of 0 1 2", "2 of 0 1 2", "3 of 3 4", "4 of 3 4"]),
        ("-n 3 --nodes 2", &["0 of 0 1", "1 of 0 1", "2 alone"]),
        ("-n 3 --nodes 2 --loss 5% --seed 7", &["0 of 0 1", "1 of 0 1", "2 alone"]),
        ("-n 2 --loss 5% --seed 7", &["0 alone", "1 alone"]),
        ("-n 2 --device shm", &["0 of 0 1", "1 of 0 1"]),
        ("-n 2 --device udp", &["0 alone", "1 alone"]),
    ] {
        expect(&run(options, "attach"), 0, lines);
    }
}

fn agents_create_the_segments_of_their_hosts() {
    let directory = tempfile::tempdir().expect("a directory");
    // A remote shell that stays on this host.
    let rsh = directory.path().join("rsh");
    let mut file = fs::OpenOptions::new().create_new(true).write(true).mode(0o700).open(&rsh).expect("a new file");
    file.write_all(b"#!/bin/sh\nshift\nexec \"$@\"\n").expect("written");
    drop(file);
    let options = format!("--hosts a:2,localhost:3,b:1 --rsh {}", rsh.display());
    let lines = ["0 of 0 1", "1 of 0 1", "2 of 2 3 4", "3 of 2 3 4", "4 of 2 3 4", "5 alone"];
    expect(&run(&options, "attach"), 0, &lines);
}

fn a_job_of_one_uses_shared_memory_only_if_requested() {
    expect(&run("-n 1", "attach"), 0, &["0 alone"]);
    expect(&run("-n 1 --device shm", "attach"), 0, &["0 of 0"]);
}

/// As below a program that closes all inherited descriptors.
fn closed_descriptor_is_reopened_through_the_launcher() {
    expect(&run("-n 2 --device shm", "lose"), 0, &["0 of 0 1", "1 of 0 1"]);
}

/// As under srun: the launcher provides no segment. Ranks 0 and 1 are on one node, 2 and 3 on another.
fn foreign(more: impl Fn(usize, &mut Command)) -> Vec<Output> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let start = |rank: usize| {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_SIZE", "4");
        command.env("UNISONO_BOOTSTRAP", free.to_string()).env("UNISONO_SECRET", "the secret of this job");
        command.env("UNISONO_NODE", (rank / 2).to_string());
        more(rank, &mut command);
        command.spawn().expect("starts")
    };
    let ranks: Vec<_> = (0..4).map(start).collect();
    ranks.into_iter().map(|rank| rank.wait_with_output().expect("ends")).collect()
}

fn ranks_without_a_launcher_share_memory() {
    let outputs = foreign(|_, command| {
        command.arg("attach");
    });
    for (output, line) in outputs.iter().zip(["0 of 0 1", "1 of 0 1", "2 of 2 3", "3 of 2 3"]) {
        expect(output, 0, &[line]);
    }
    // All on one node, by the identity of their host.
    let outputs = foreign(|_, command| {
        command.arg("attach").env_remove("UNISONO_NODE").env("UNISONO_DEVICE", "shm");
    });
    for (rank, output) in outputs.iter().enumerate() {
        expect(output, 0, &[&format!("{rank} of 0 1 2 3")]);
    }
    let outputs = foreign(|_, command| {
        command.arg("attach").env("UNISONO_DEVICE", "shm");
    });
    for output in &outputs {
        expect(
            output,
            1,
            &["the device shm needs all ranks on one node, but the job has 2 nodes: use the device auto or udp"],
        );
    }
}

/// The documented lines for `srun`, which a shell function simulates.
fn documented_srun_lines_start_a_job() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let lines = include_str!("../../../docs/starters.md").lines().map(str::trim);
    let lines: Vec<&str> =
        lines.filter(|line| line.starts_with("export UNISONO_") || line.starts_with("srun ")).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    let given = lines.join("\n").replace("-n 64", "-n 3").replace(":4711", &format!(":{}", free.port()));
    let script = format!(
        "scontrol() {{ echo localhost; echo other; }}
         srun() {{
             export SLURM_NTASKS=$2
             shift 2
             for SLURM_PROCID in $(seq 0 $((SLURM_NTASKS - 1))); do SLURM_PROCID=$SLURM_PROCID \"$@\" & done
             wait
         }}
         {}",
        given.replace("./program", "\"$UNDER_TEST\" attach")
    );
    let mut shell = Command::new("sh");
    shell.arg("-ec").arg(script).env("UNDER_TEST", env::current_exe().expect("this program")).stdin(Stdio::null());
    expect(&shell.output().expect("starts"), 0, &["0 of 0 1 2", "1 of 0 1 2", "2 of 0 1 2"]);
}

/// Each rank and its parent are pinned to one processor.
fn pinned_ranks_have_processors_together() {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let outputs = foreign(|rank, command| {
        let program = core::mem::replace(command, Command::new("taskset"));
        command
            .args(["-c", &(rank % processors).to_string(), "timeout", "60"])
            .arg(program.get_program())
            .arg("waiting");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    });
    let expected = if processors > 1 { "Dedicated" } else { "Shared" };
    for output in &outputs {
        expect(output, 0, &[expected]);
    }
}

/// Rank 2 cannot create a segment, whose file would exceed its limit: it reports that, or is killed. Rank 3, on its
/// node, works without shared memory; the other node is not affected.
fn first_rank_without_memory_leaves_its_node_without() {
    for (trap, code, lines) in [("trap '' XFSZ; ", Some(0), "2 alone\n"), ("", None, "")] {
        let mut outputs = foreign(|rank, command| {
            command.env("UNISONO_ON_DEATH", "tell");
            if rank == 2 {
                let program = core::mem::replace(command, Command::new("sh"));
                let script = format!("{trap}ulimit -f 128; exec \"$0\" attach");
                command.arg("-c").arg(script).arg(program.get_program());
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
            } else {
                command.arg("attach");
            }
        });
        let second = outputs.remove(2);
        assert_eq!((second.status.code(), text(&second.stdout)), (code, lines.to_owned()), "{second:?}");
        for (output, line) in outputs.iter().zip(["0 of 0 1", "1 of 0 1", "3 alone"]) {
            expect(output, 0, &[line]);
        }
    }
}

/// Makes record locks fail for a process and its children, by a seccomp filter (`seccomp(2)`).
fn without_record_locks(command: &mut Command) -> &mut Command {
    let step = |code: u32, k: u32, skip: u8| libc::sock_filter { code: code as u16, jt: 0, jf: skip, k };
    // `struct seccomp_data`: the call's number, and the low half of its second argument.
    let (load, equal, answer) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let filter = move || {
        let mut steps = [
            step(load, 0, 0),
            step(equal, libc::SYS_fcntl as u32, 3),
            step(load, if cfg!(target_endian = "little") { 24 } else { 28 }, 0),
            step(equal, libc::F_SETLK as u32, 1),
            step(answer, libc::SECCOMP_RET_ERRNO | libc::ENOLCK as u32, 0),
            step(answer, libc::SECCOMP_RET_ALLOW, 0),
        ];
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: the command takes four numbers.
        let given_up = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        // SAFETY: a live program of as many steps as it says, which the system copies.
        let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        if (given_up, filtered) == (0, 0) { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec it makes two system calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(filter) }
}

fn without_record_locks_nothing_is_shared() {
    let launch = |options: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
        command.arg("run").args(options.split_whitespace()).arg("--");
        command.arg(env::current_exe().expect("this program")).arg("attach").stdin(Stdio::null());
        without_record_locks(&mut command).output().expect("starts")
    };
    let output = launch("-n 2");
    expect(&output, 0, &["0 alone", "1 alone"]);
    assert_eq!(
        text(&output.stderr).matches("no shared memory on this node: taking a record lock: ").count(),
        1,
        "{output:?}"
    );
    let refused = launch("-n 2 --device shm");
    assert!(!refused.status.success() && text(&refused.stderr).contains("record lock"), "{refused:?}");
    for output in foreign(|_, command| {
        without_record_locks(command.arg("attach"));
    }) {
        assert!(output.status.success() && text(&output.stdout).ends_with("alone\n"), "{output:?}");
    }
    let mut info = Command::new(env!("CARGO_BIN_EXE_unisono"));
    let output = without_record_locks(info.args(["info", "--json"])).output().expect("starts");
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    let devices = info["devices"].as_array().expect("a list");
    assert!(info["shared_memory"].is_null() && !devices.contains(&"shm".into()), "{info}");
    assert!(
        info["shared_memory_refused"].as_str().is_some_and(|why| why.starts_with("taking a record lock: ")),
        "{info}"
    );
}

fn failure_is_detected_through_the_system() {
    expect(&run("-n 3 --on-death silent", "die"), 137, &["0: 1 is dead", "2: 1 is dead"]);
}

fn wait_for_a_rank_that_dies_ends() {
    // On few processors both modes of waiting are covered.
    for ranks in [2, 9] {
        let output = run(&format!("-n {ranks} --on-death silent"), "await");
        let lines: Vec<String> =
            (0..ranks).filter(|rank| *rank != 1).map(|rank| format!("{rank}: 1 is Dead")).collect();
        expect(&output, 137, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

fn message_from_a_rank_that_dies_is_not_waited_for() {
    // In progress mode engine, only the record lock shows the failure this early: an agent is queried after 2 s.
    let output = run("-n 2 --on-death silent", "receive");
    expect(&output, 137, &["0: Err(PeerFailed(Rank(1)))"]);
}

fn garbage_in_a_rank_slot_is_detected() {
    expect(&run("-n 2", "scribble"), 0, &["0 is intact: false", "1 is intact: true"]);
}

fn descriptor_of_another_file_is_refused() {
    for number in ["0", "700@700", "4294967295@4294967295"] {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.arg("attach").stdin(Stdio::null());
        command.env("UNISONO_RANK", "0").env("UNISONO_SIZE", "1");
        command.env("UNISONO_DEVICE", "shm").env("UNISONO_SEGMENT", number);
        let output = command.output().expect("starts");
        expect(
            &output,
            1,
            &["the shared-memory segment cannot be used: the descriptor does not refer to a segment of unisono"],
        );
    }
}

/// Runs the part of a rank.
fn play() -> ExitCode {
    if env::args().nth(1).is_some_and(|part| part == "lose") {
        lose();
    }
    let world = match World::join() {
        Ok(world) => world,
        Err(error) => {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let node = world.node().cloned();
    let part = env::args().nth(1).expect("a part");
    match (part.as_str(), node) {
        ("attach", Some(node)) => attach(&world, &node),
        ("attach", None) => println!("{} alone", world.rank()),
        ("waiting", Some(node)) => println!("{:?}", node.waiting()),
        ("die", Some(node)) => die(&world, &node),
        ("await", Some(node)) => await_death(&world, &node),
        ("receive", Some(node)) => receive(&world, &node),
        ("scribble", Some(node)) => scribble(&world, &node),
        (part, node) => panic!("{part} with {node:?}"),
    }
    world.finish().expect("the live ranks finish");
    ExitCode::SUCCESS
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The first word of a rank's collective area.
fn first_word(node: &Node, local: u32) -> &'static Word {
    let area = node.layout().collective_area(local).expect("a rank of the node");
    // SAFETY: a word of a collective area, which no collective of this test uses.
    unsafe { node.raw_segment() }.word(area.offset).expect("an area of the segment")
}

/// Executes the part `attach` without the inherited descriptor.
fn lose() {
    let given = env::var("UNISONO_SEGMENT").expect("given");
    let number = given.split('@').next().and_then(|number| number.parse().ok()).expect("a descriptor");
    // SAFETY: the launcher has given it, and nobody has closed it.
    let given = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(given, rustix::io::FdFlags::CLOEXEC).expect("an open descriptor");
    let refused = Command::new(env::current_exe().expect("this program")).arg("attach").exec();
    panic!("{refused}");
}

/// Publishes its rank to the others, and prints the ranks that it has seen.
fn attach(world: &World, node: &Node) {
    assert_eq!(node.local_of(world.rank()), Some(node.local()));
    first_word(node, node.local()).publish(world.rank().0 + 1, Site::Plain);
    let mut line = format!("{} of", world.rank());
    for local in 0..node.size() {
        let word = first_word(node, local);
        until("all have published their ranks", || word.acquire(Site::Plain) != 0);
        assert_eq!(Rank(word.acquire(Site::Plain) - 1), node.rank_of(local));
        assert!(node.is_alive(local) && node.pid(local).is_some(), "{local}");
        write!(line, " {}", node.rank_of(local)).expect("room");
    }
    assert!(node.is_intact() && node.local_of(Rank(world.size())).is_none());
    println!("{line}");
}

fn die(world: &World, node: &Node) {
    if world.rank() == Rank(1) {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).expect("own process");
    }
    until("the system knows", || !node.is_alive(1));
    assert_eq!(node.rank_state(1), NodeRankState::Dead);
    assert!(node.is_alive(2 - node.local()), "the other survivor");
    println!("{}: 1 is dead", world.rank());
}

fn await_death(world: &World, node: &Node) {
    let word = first_word(node, 1);
    if world.rank() == Rank(1) {
        word.publish(1, Site::Plain);
        node.sleepers().wake(word);
        thread::sleep(Duration::from_millis(30));
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).expect("own process");
    }
    let deadline = Instant::now() + BOUND;
    let wait = |value: u32| {
        let mut rest = node.wait_strategy();
        while word.acquire(Site::Plain) != value {
            if rest.wait(Some((word, value - 1))) == PollScope::Everything {
                match node.rank_state(1) {
                    NodeRankState::Alive => assert!(Instant::now() < deadline, "the failure is not detected"),
                    standing => return Some(standing),
                }
            }
        }
        None
    };
    assert_eq!(wait(1), None);
    println!("{}: 1 is {:?}", world.rank(), wait(2).expect("nobody publishes this"));
}

fn receive(world: &World, node: &Node) {
    if world.rank() == Rank(1) {
        world.send(&[1_u8], Rank(0), Tag(1)).expect("sent");
        until("it has arrived", || world.is_flushed());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).expect("own process");
    }
    let mut byte = [0_u8];
    world.receive_into(&mut byte, Rank(1), Tag(1)).expect("arrives");
    let started = Instant::now();
    println!("0: {:?}", world.receive_into(&mut byte, Rank(1), Tag(1)));
    assert!(started.elapsed() < Duration::from_millis(1500) && !node.is_alive(1));
}

/// The second rank overwrites the first one's slot, except the words that identify its process.
fn scribble(world: &World, node: &Node) {
    let slot = node.layout().rank_slot(0).expect("a slot");
    if world.rank() == Rank(1) {
        // SAFETY: a rank slot is no pool, and what is written is what a broken process might write at any time.
        let segment = unsafe { node.raw_segment() };
        for word in segment.words(slot.offset + 64, 16).expect("its second line") {
            word.publish(0x5555_5555, Site::Plain);
        }
    } else {
        until("garbage arrives", || !node.is_intact());
    }
    println!("{} is intact: {}", world.rank(), node.is_intact());
}
