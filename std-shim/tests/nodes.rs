//! Processes of this host that share memory. This program is their rank program, too.

use core::{fmt::Write as _, time::Duration};
use std::{
    env,
    process::{Command, ExitCode, Output, Stdio},
    thread,
    time::Instant,
};

use unisono::{
    node::{Node, Standing},
    rank::Rank,
    world::World,
};
use unisono_shmem::segment::{Site, Word};

const BOUND: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        return play();
    }
    let tests: [(&str, fn()); 5] = [
        ("ranks_of_a_node_share_memory_with_nobody_else", ranks_of_a_node_share_memory_with_nobody_else),
        ("who_runs_alone_shares_memory_only_if_asked", who_runs_alone_shares_memory_only_if_asked),
        ("death_is_known_to_the_system", death_is_known_to_the_system),
        ("garbage_in_a_seat_is_noticed", garbage_in_a_seat_is_noticed),
        ("descriptor_that_is_no_segment_is_refused", descriptor_that_is_no_segment_is_refused),
    ];
    let wanted = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    for (name, test) in tests.into_iter().filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| name.contains(wanted)))
    {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn run(options: &str, part: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.arg("run").args(options.split_whitespace()).arg("--");
    command.arg(env::current_exe().expect("this program")).arg(part).stdin(Stdio::null());
    command.output().expect("unisono starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn expect(output: &Output, code: i32, lines: &[&str]) {
    let mut found: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    found.sort();
    assert_eq!((output.status.code(), found.join("\n")), (Some(code), lines.join("\n")), "{output:?}");
}

fn ranks_of_a_node_share_memory_with_nobody_else() {
    for (options, lines) in [
        ("-n 3", ["0 of 0 1 2", "1 of 0 1 2", "2 of 0 1 2"].as_slice()),
        ("-n 5 --nodes 2", &["0 of 0 1 2", "1 of 0 1 2", "2 of 0 1 2", "3 of 3 4", "4 of 3 4"]),
        ("-n 3 --nodes 2", &["0 of 0 1", "1 of 0 1", "2 alone"]),
        ("-n 2 --device shm", &["0 of 0 1", "1 of 0 1"]),
        ("-n 2 --device udp", &["0 alone", "1 alone"]),
    ] {
        expect(&run(options, "meet"), 0, lines);
    }
}

fn who_runs_alone_shares_memory_only_if_asked() {
    expect(&run("-n 1", "meet"), 0, &["0 alone"]);
    expect(&run("-n 1 --device shm", "meet"), 0, &["0 of 0"]);
}

fn death_is_known_to_the_system() {
    expect(&run("-n 3 --on-death silent", "die"), 137, &["0: 1 is dead", "2: 1 is dead"]);
}

fn garbage_in_a_seat_is_noticed() {
    expect(&run("-n 2", "scribble"), 0, &["0 is intact: false", "1 is intact: true"]);
}

fn descriptor_that_is_no_segment_is_refused() {
    for number in ["0", "700", "4294967295"] {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.arg("meet").stdin(Stdio::null());
        command.env("UNISONO_RANK", "0").env("UNISONO_SIZE", "1");
        command.env("UNISONO_DEVICE", "shm").env("UNISONO_SEGMENT", number);
        let output = command.output().expect("starts");
        expect(&output, 1, &["shared memory: the descriptor is not that of a segment"]);
    }
}

/// As a rank.
fn play() -> ExitCode {
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
        ("meet", Some(node)) => meet(&world, &node),
        ("meet", None) => println!("{} alone", world.rank()),
        ("die", Some(node)) => die(&world, &node),
        ("scribble", Some(node)) => scribble(&world, &node),
        (part, node) => panic!("{part} with {node:?}"),
    }
    world.finish().expect("the living finish");
    ExitCode::SUCCESS
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The first word of a rank's board.
fn board(node: &Node, local: u32) -> &'static Word {
    let area = node.layout().board(local).expect("a rank of the node");
    node.segment().word(area.at).expect("an area of the segment")
}

/// Shows its number to the others, and says whose it has seen.
fn meet(world: &World, node: &Node) {
    assert_eq!(node.local_of(world.rank()), Some(node.local()));
    board(node, node.local()).publish(world.rank().0 + 1, Site::Plain);
    let mut line = format!("{} of", world.rank());
    for local in 0..node.size() {
        let word = board(node, local);
        until("everybody shows its number", || word.acquire(Site::Plain) != 0);
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
    assert_eq!(node.standing(1), Standing::Dead);
    assert!(node.is_alive(2 - node.local()), "the other survivor");
    println!("{}: 1 is dead", world.rank());
}

/// The second rank writes where it should not: over everything of the first one's seat but what says who it is.
fn scribble(world: &World, node: &Node) {
    let seat = node.layout().seat(0).expect("a seat");
    if world.rank() == Rank(1) {
        for word in node.segment().words(seat.at + 64, 16).expect("its second line") {
            word.publish(0x5555_5555, Site::Plain);
        }
    } else {
        until("garbage arrives", || !node.is_intact());
    }
    println!("{} is intact: {}", world.rank(), node.is_intact());
}
