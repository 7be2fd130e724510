//! Collectives between the processes of a job. This program is their rank program, too.

#[path = "collectives/all_leaders.rs"]
mod all_leaders;
mod program;

use core::time::Duration;
use std::env;
use std::os::fd::AsFd as _;
use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::Instant;

use program::{command, expect, run};
use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use unisono::collective::{
    AsView as _, CollectiveError, Partition, PartitionMut, Reproducible, SystemOperation, UserOperation, Vector, View,
    ViewMut,
};
use unisono::environment::InheritedSegment;
use unisono::{Communicator, Failure, Rank, SplitType, Tag, World};
use unisono_shmem::host::file::{Mapping, reopen};
use unisono_shmem::rank_slot::{Occupant, RankSlot};

/// Block lengths in elements: through slots, through the bulk area in one chunk and in several, by single copy.
const COUNTS: [usize; 7] = [0, 1, 3, 200, 3000, 20_000, 150_001];
/// Longest time until a survivor detects a failure.
const BOUND: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    if let Some(rank) = env::var_os("UNISONO_RANK") {
        if env::args().nth(1).is_some_and(|part| part == "apart") && rank == "1" {
            use_slot();
        }
        let world = World::join().expect("a world");
        match env::args().nth(1).as_deref() {
            Some("right") => everything_is_right(&world),
            Some("elements") => every_element_type_is_reduced(&world),
            Some("disagree") => disagree(&world),
            Some("another") => make_another_call(&world),
            Some("groups") => expect_group_means(&world),
            Some("take") => take_slots(&world),
            Some("roots") => take_the_next_for_the_root(&world),
            Some("givers") => give_what_nobody_takes(&world),
            Some("memory") => lack_memory(&world),
            Some("block") => block_too_long(&world),
            Some("immediate") => many_under_way(&world),
            Some("reproducible") => brackets_are_fixed(&world),
            Some("varying") => blocks_of_any_length(&world),
            Some("panic") => panic_in_a_function(&world),
            Some("spoilt") => panic_in_a_group(&world),
            Some("apart") => share_no_memory_with_one(&world),
            Some("leaders") => all_leaders::be_a_rank(&world),
            Some("leader") => wait_for_a_leader_that_gave_up(&world),
            Some(seed) => survive(&world, seed.parse().expect("a number")),
            None => panic!("a part"),
        }
        world.finish().expect("a good end");
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("processes_compute_what_they_should", processes_compute_what_they_should),
        ("a_process_alone_needs_nobody", || everything_is_right(&World::join().expect("a world"))),
        ("many_collectives_are_under_way_at_a_time", many_collectives_are_under_way_at_a_time),
        ("blocks_differ_in_length", blocks_differ_in_length),
        ("results_are_reproducible", results_are_reproducible),
        ("a_function_that_panics_does_so_where_it_is_waited_for", a_function_panics),
        ("a_function_that_panics_in_a_group_fails_all_ranks", a_function_panics_in_a_group),
        ("a_rank_without_its_nodes_memory_has_no_slots", a_rank_without_its_nodes_memory),
        ("who_does_something_else_is_named", who_does_something_else_is_named),
        ("another_call_of_one_rank_is_an_error", another_call_of_one_rank_is_an_error),
        ("roots_that_go_round_are_told", roots_that_go_round_are_told),
        ("who_lacks_memory_lets_nobody_wait", who_lacks_memory_lets_nobody_wait),
        ("who_has_a_block_too_long_lets_nobody_wait", who_has_a_block_too_long_lets_nobody_wait),
        ("who_takes_what_others_do_not_give_is_error", who_takes_what_others_do_not_give_is_error),
        ("processes_apart_compute_what_they_should", processes_apart_compute_what_they_should),
        ("survivors_name_who_is_missing", survivors_name_who_is_missing),
        ("death_is_learned_from_a_leader_that_gave_up", death_is_learned_from_a_leader_that_gave_up),
        ("subgroups_compute_what_all_ranks_do", subgroups_compute_what_all_ranks_do),
        ("parts_of_a_vector_are_led_by_all_ranks", all_leaders::parts_of_a_vector_are_led_by_all_ranks),
        ("leaders_of_parts_learn_of_failures", all_leaders::leaders_of_parts_learn_of_failures),
        ("survivors_name_a_leader_that_is_missing", all_leaders::survivors_name_a_leader_that_is_missing),
    ])
}

fn processes_compute_what_they_should() {
    for ranks in [1, 2, 3, 5] {
        expect(&run(&format!("-n {ranks}"), "right"), 0, &[]);
    }
}

fn processes_apart_compute_what_they_should() {
    for options in ["-n 2 --device udp", "-n 3 --device udp --loss 5% --reorder 5%", "-n 4 --nodes 2", "-n 5 --nodes 3"]
    {
        expect(&run(options, "right"), 0, &[]);
    }
}

/// Blocking, immediate and persistent collectives over nodes and simulated groups, of any sizes.
fn subgroups_compute_what_all_ranks_do() {
    let host = "-n 5 --nodes 2 --hierarchy host:slots";
    let sockets = "-n 8 --nodes 2 --sockets 2 --hierarchy host,socket:slots";
    let both = "-n 8 --nodes 2 --caches 2 --hierarchy cache:slots,host:slots,net:messages";
    let leaders = "-n 9 --nodes 2 --sockets 2 --hierarchy host:slots,socket";
    let caches = "-n 6 --nodes 2 --switches 2 --caches 2 --hierarchy switch,cache";
    let simulated = "-n 6 --nodes 2 --hierarchy 4,2 --allreduce ring";
    let five = "-n 8 --nodes 2 --switches 2 --sockets 2 --caches 2 --hierarchy switch,host,socket,numa,cache";
    let halves = "-n 9 --nodes 2 --hierarchy 8,4,2";
    // Of the parts but the first one, each takes its turn.
    let mut others = ["immediate", "varying", "elements"].into_iter().cycle();
    let mut parts = || ["right"].into_iter().chain(others.next());
    for options in [
        host,
        "-n 5 --nodes 2 --hierarchy host",
        simulated,
        "-n 5 --device udp --hierarchy 2",
        sockets,
        both,
        leaders,
        caches,
        five,
        halves,
    ] {
        for part in parts() {
            expect(&run(options, part), 0, &[]);
        }
    }
    expect(&run(both, "immediate"), 0, &[]);
    // Every rank of a node leads a part, and what arrives goes down in parts, whether that pays or not.
    let pairs = "-n 8 --nodes 4 --hierarchy host --allreduce ring --broadcast bruck --allgather doubling";
    for options in ["-n 6 --nodes 2 --hierarchy host:slots --broadcast ring", pairs, "-n 6 --device udp --hierarchy 3"]
    {
        for part in parts() {
            let mut job = command(options, part);
            job.envs([("UNISONO_LEADERS", "all"), ("UNISONO_PARTS", "on")]);
            expect(&job.stdin(Stdio::null()).output().expect("unisono starts"), 0, &[]);
        }
    }
    for part in ["right", "immediate", "varying"] {
        // Ranks that share processors compose nothing unasked.
        let mut auto = command("-n 5 --nodes 2", part);
        expect(&auto.env("UNISONO_SHARING", "1").output().expect("unisono starts"), 0, &[]);
    }
    let (default, messages) = ("-n 5 --nodes 2 --hierarchy host", "-n 5 --nodes 2 --hierarchy host:messages");
    for (options, levels) in [(host, "1"), (sockets, "1"), (both, "2 1"), (default, "1"), (messages, "0")] {
        expect(&run(options, &format!("groups {levels}")), 0, &[]);
    }
    // Of eight slots, communicators of several nodes take five unasked, or all that they ask for.
    for (choice, taken, left) in [("host", 5, 3), ("auto", 5, 3), ("host:slots", 8, 0), ("host:messages", 0, 4)] {
        let mut job = command(&format!("-n 4 --nodes 2 --hierarchy {choice}"), &format!("take {taken} {left}"));
        expect(&job.env("UNISONO_SHARING", "1").output().expect("unisono starts"), 0, &[]);
    }
    for options in [host, "-n 6 --device udp --hierarchy 3,2"] {
        expect(&run(options, "reproducible"), 0, &[]);
    }
    // Where the ranks' processors are, the system says.
    expect(&run("-n 4 --nodes 2 --pin --hierarchy host,cache", "right"), 0, &[]);
    expect(&run("-n 4 --nodes 2 --hierarchy off", "elements"), 0, &[]);
    expect(&run("-n 4 --nodes 2 --loss 5% --hierarchy 3", "right"), 0, &[]);
}

fn many_collectives_are_under_way_at_a_time() {
    let modes = ["engine", "thread", "hybrid"];
    for (means, mode) in ["-n 3", "-n 4 --device udp", "-n 4 --nodes 2"].into_iter().zip(modes.into_iter().cycle()) {
        expect(&run(&format!("{means} --progress {mode}"), "immediate"), 0, &[]);
    }
}

fn blocks_differ_in_length() {
    for means in ["-n 1", "-n 3", "-n 4 --device udp", "-n 5 --nodes 2 --loss 5%"] {
        expect(&run(means, "varying"), 0, &[]);
    }
}

fn results_are_reproducible() {
    for means in
        ["-n 1", "-n 2", "-n 5", "-n 5 --device udp --reduce knomial:radix=3", "-n 6 --nodes 2 --allreduce ring"]
    {
        expect(&run(means, "reproducible"), 0, &[]);
    }
}

fn a_function_panics() {
    for means in ["-n 2", "-n 2 --device udp", "-n 2 --nodes 2 --progress hybrid"] {
        expect(&run(&format!("{means} --on-death tell"), "panic"), 0, &["caught"; 2]);
    }
    // In the step of a group, and of leaders.
    expect(&run("-n 4 --nodes 2 --hierarchy host:slots --on-death tell", "panic"), 0, &["caught"; 4]);
    let leaders = "-n 8 --nodes 2 --hierarchy 4:slots,2";
    expect(&run(&format!("{leaders} --on-death tell"), "panic"), 0, &["caught"; 8]);
}

/// Of groups of three ranks, one that is not the leader panics.
fn a_function_panics_in_a_group() {
    let slots = "-n 6 --nodes 2 --hierarchy host:slots --on-death tell";
    for mode in ["engine", "thread"] {
        for part in [
            "all_reduce 1 duplicate",
            "all_reduce 5 world",
            "immediate 4 duplicate",
            "reduce 2 duplicate",
            "reduce 4 world",
        ] {
            expect(&run(&format!("{slots} --progress {mode}"), &format!("spoilt {part}")), 0, &["caught"; 6]);
        }
    }
}

fn a_rank_without_its_nodes_memory() {
    expect(&run("-n 5 --nodes 2 --hierarchy host:slots", "apart"), 0, &["0 0", "1 0", "2 0", "3 1", "4 1"]);
    expect(&run("-n 3", "apart"), 0, &["0 0", "1 0", "2 0"]);
}

fn who_does_something_else_is_named() {
    for options in ["-n 2", "-n 2 --device udp", "-n 2 --nodes 2"] {
        expect(&run(options, "disagree"), 0, &[]);
    }
}

/// Some of all pairs of calls, and those in which once nobody noticed that the rank asked had done its part in shared
/// memory.
fn another_call_of_one_rank_is_an_error() {
    let known = ["broadcast:2 all_gather:2 3", "scatter:2 all_reduce:2 1", "all_to_all:2 gather:2 1"];
    let calls: Vec<String> = [2, 200_000]
        .into_iter()
        .flat_map(|count| {
            let kinds = ["broadcast", "reduce", "gather", "scatter", "all_reduce", "all_gather", "all_to_all"];
            let more = ["barrier", "all_gather_varcount", "reduce_scatter"];
            kinds.into_iter().chain(more).map(move |kind| format!("{kind}:{count}"))
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(28);
    let drawn = (0..30).map(|_| {
        let [one, other] = [&calls[random.usize(..calls.len())], &calls[random.usize(..calls.len())]];
        // Barriers have no length.
        let differs = one != other && !(one.starts_with("barrier") && other.starts_with("barrier"));
        format!("{one} {} {}", if differs { other } else { "scatter:3" }, random.u8(..4))
    });
    let means = [
        "-n 4 --nodes 2 --hierarchy host:slots",
        "-n 4 --nodes 2 --hierarchy host",
        "-n 8 --nodes 2 --hierarchy 4:slots,2:slots",
    ];
    for (part, options) in known.into_iter().map(str::to_owned).chain(drawn).zip(means.into_iter().cycle()) {
        expect(&run(options, &format!("another {part}")), 0, &[]);
    }
    // Of one collective, short calls are made in slots and long ones by messages.
    let lengths = ["reduce", "gather", "all_reduce", "all_gather", "reduce_scatter"].into_iter().zip(0..);
    for (kind, who) in lengths {
        let part = format!("another {kind}:2 {kind}:200000 {}", who % 4);
        expect(&run("-n 4 --nodes 2 --hierarchy host", &part), 0, &[]);
    }
}

fn roots_that_go_round_are_told() {
    for (options, mode) in
        ["-n 3", "-n 4 --device udp", "-n 4 --nodes 2"].into_iter().zip(["engine", "thread", "hybrid"])
    {
        expect(&run(&format!("{options} --progress {mode}"), "roots"), 0, &[]);
    }
}

fn who_takes_what_others_do_not_give_is_error() {
    for options in ["-n 3", "-n 3 --device udp", "-n 4 --nodes 2", "-n 4 --nodes 2 --hierarchy host:slots"] {
        for misuse in 0..6 {
            for on in ["world", "room"] {
                expect(&run(options, &format!("givers {misuse} {on}")), 0, &[]);
            }
        }
    }
}

fn who_lacks_memory_lets_nobody_wait() {
    for options in ["-n 3", "-n 3 --device udp", "-n 4 --nodes 2"] {
        for part in ["memory World blocking", "memory World immediate", "memory room blocking", "memory room immediate"]
        {
            expect(&run(options, part), 0, &[]);
        }
    }
}

fn who_has_a_block_too_long_lets_nobody_wait() {
    for options in ["-n 3", "-n 3 --device udp"] {
        expect(&run(options, "block"), 0, &[]);
    }
}

/// Two ranks call with a block longer than a message can be, the others wait for theirs.
fn block_too_long(world: &World) {
    // These bytes are never accessed.
    let long = 1_usize << 32;
    let (rank, root) = (world.rank(), Rank(0));
    let (counts, at) = ([8, long, 8], [long, 0, long]);
    let data = if rank == root { vec![0_u8; long + 8] } else { Vec::new() };
    let blocks = if rank == root { Partition::new(&data, &counts, &at) } else { Partition::new(&data, &[], &[]) };
    let mut own = vec![0_u8; if rank == Rank(1) { long } else { 8 }];
    let (began, on) = (Instant::now(), world.duplicate().expect("a duplicate"));
    let ended = on.scatter_varcount_into(&blocks.expect("within"), &mut own, root);
    match rank.0 {
        0 | 1 => assert_eq!(ended, Err(CollectiveError::TooLong)),
        _ => assert!(matches!(ended, Err(CollectiveError::Missing { rank: Rank(0), .. })), "{ended:?}"),
    }
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    on.barrier().expect_err("it stays failed");
    world.barrier().expect("what others do goes on");
}

/// A rank's contribution is strided, and there is no memory to pack or to combine it.
fn lack_memory(world: &World) {
    let [on, form] = [2, 3].map(|at| env::args().nth(at).expect("an argument"));
    let duplicate = world.duplicate().expect("a duplicate");
    let on: &Communicator = if on == "duplicate" { &duplicate } else { world };
    let bytes = 2 << 20;
    let (mut into, whole) = (vec![0_u8; bytes], vec![1_u8; bytes]);
    let sum = SystemOperation::sum();
    on.all_reduce_in_place(&mut [1_u64], SystemOperation::sum()).expect("a sum");
    on.scope(|scope| scope.immediate_barrier().and_then(|barrier| barrier.wait())).expect("a barrier");
    let mut sums = |whole: View<'_, u8>| match &*form {
        "blocking" => on.all_reduce_into(&whole, &mut into, sum),
        _ => on.scope(|scope| scope.immediate_all_reduce_into(&whole, &mut into, sum)?.wait()),
    };
    // No further collective starts over either transport.
    let stays = |failed: &dyn Fn(CollectiveError) -> bool| {
        assert!(on.barrier().is_err_and(failed));
        assert!(on.scope(|scope| scope.immediate_barrier().is_err_and(failed)));
    };
    let started = Instant::now();
    if world.rank() == Rank(1) {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("its size");
        let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
        let most = pages * rustix::param::page_size() as u64 + (1 << 18);
        setrlimit(Resource::As, Rlimit { current: Some(most), maximum: None }).expect("a limit");
        let same = View::new(&[1_u8], 1, Vector::new(bytes, 1, 0)).expect("one element");
        let ended = sums(same);
        setrlimit(Resource::As, Rlimit { current: None, maximum: None }).expect("no limit");
        assert_eq!(ended, Err(CollectiveError::TooLong));
        stays(&|error| error == CollectiveError::TooLong);
        // The others do not see the rank's end; its error message may have to be sent again.
        let ended = Instant::now();
        while ended.elapsed() < BOUND + BOUND / 4 {
            assert!(world.immediate_probe(None, None).is_ok_and(|found| found.is_none()));
            thread::sleep(Duration::from_millis(1));
        }
        return;
    }
    let ended = sums(whole.as_view());
    let is_missing = |error| matches!(error, CollectiveError::Missing { rank: Rank(1), .. });
    assert!(ended.is_err_and(is_missing), "{ended:?}");
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    stays(&is_missing);
}

/// A rank that contributes to a rooted collective returns early; the waiting ranks get an error over every transport,
/// and that rank at its next call.
fn give_what_nobody_takes(world: &World) {
    let [misuse, on] = [2, 3].map(|at| env::args().nth(at).expect("an argument"));
    let duplicate = world.duplicate().expect("a duplicate");
    let on = if on == "world" { world } else { &duplicate };
    let (rank, root, sum) = (on.rank(), Rank(0), SystemOperation::sum());
    let is_root = rank == root;
    // Complete the setup of the communicator first.
    on.all_reduce_in_place(&mut [1_u64], sum).expect("a sum");
    let (mut long, mut into) = (vec![1_u64; 200_000], vec![0_u64; 200_000]);
    let started = Instant::now();
    let (ended, takes) = match misuse.as_str() {
        "0" => {
            let own = if is_root { 200_000 } else { 2 };
            (on.reduce_into(&long[..own], &mut into[..if is_root { own } else { 0 }], sum, root), is_root)
        }
        "1" => (on.broadcast_into(&mut long[..if is_root { 2 } else { 200_000 }], root), !is_root),
        "2" if is_root => {
            let size = on.size() as usize;
            let (counts, at): (Vec<usize>, Vec<usize>) = (vec![2; size], (0..size).map(|rank| 2 * rank).collect());
            let parts = PartitionMut::new(&mut into, &counts, &at).expect("within");
            (on.gather_varcount_into(&long[..2], parts, root), true)
        }
        "2" => (on.gather_into(&long[..2], &mut into[..0], root), false),
        // The root exposes its buffer and waits until it is read; the others start nothing else before their error.
        "3" if is_root => {
            let input = vec![1_u64; into.len() * on.size() as usize];
            let ended = on.scatter_into(&input, &mut into, root);
            (1..on.size()).for_each(|rank| on.send(&[0_u8], Rank(rank), Tag(1)).expect("sent"));
            (ended, false)
        }
        "3" => {
            let parts = PartitionMut::new(&mut into[..0], &[], &[]).expect("within");
            let ended = on.gather_varcount_into(&long[..2], parts, root);
            on.receive_into(&mut [0_u8], root, Tag(1)).expect("a word");
            (ended, false)
        }
        // Each of two ranks, or each of all, calls with itself as the root.
        "4" => (on.broadcast_into(&mut long[..2], Rank(rank.0.min(1))), false),
        _ => (on.scatter_into(&long[..2 * on.size() as usize], &mut into[..2], rank), false),
    };
    let is_error = |ended| matches!(ended, Err(CollectiveError::Disagrees { .. } | CollectiveError::Missing { .. }));
    assert!(!takes || is_error(ended), "{ended:?}");
    let ended = ended.and_then(|()| on.all_reduce_in_place(&mut [1_u64], sum));
    assert!(is_error(ended), "{ended:?}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

/// One rank makes another call than the others: one that its group executes in shared memory here and by messages there,
/// or the reverse. Each call is a collective and a number of elements.
fn make_another_call(world: &World) {
    let [usual, other, who] = [2, 3, 4].map(|at| env::args().nth(at).expect("an argument"));
    let call = if world.rank().0.to_string() == who { other } else { usual };
    let (kind, count) = call.split_once(':').expect("a number");
    let count: usize = count.parse().expect("a number");
    let (size, sum, root) = (world.size() as usize, SystemOperation::sum(), Rank(0));
    world.all_reduce_in_place(&mut [1_u64], sum).expect("a sum");
    let (mut block, mut all) = (vec![1_u64; count], vec![0_u64; count * size]);
    let of_root = if world.rank() == root { size } else { 0 };
    let (counts, at): (Vec<usize>, Vec<usize>) = (0..size).map(|rank| (count, count * rank)).unzip();
    let started = Instant::now();
    let ended = match kind {
        "barrier" => world.barrier(),
        "broadcast" => world.broadcast_into(&mut block[..], root),
        "reduce" => world.reduce_into(&block[..], &mut all[..count * of_root.min(1)], sum, root),
        "gather" => world.gather_into(&block[..], &mut all[..count * of_root], root),
        "scatter" => world.scatter_into(&all[..count * of_root], &mut block[..], root),
        "all_reduce" => world.all_reduce_in_place(&mut block[..], sum),
        "all_gather" => world.all_gather_into(&block[..], &mut all[..]),
        "all_gather_varcount" => {
            let parts = PartitionMut::new(&mut all, &counts, &at).expect("within");
            world.all_gather_varcount_into(&block[..], parts)
        }
        "reduce_scatter" => world.reduce_scatter_block_into(&all[..], &mut block[..], sum),
        "all_to_all" => world.all_to_all_into(&vec![1_u64; count * size], &mut all[..]),
        _ => panic!("{kind}"),
    };
    let ended = ended.and_then(|()| world.all_reduce_in_place(&mut [1_u64], sum));
    let is_error = matches!(ended, Err(CollectiveError::Disagrees { .. } | CollectiveError::Missing { .. }));
    assert!(is_error, "{ended:?}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

fn survivors_name_who_is_missing() {
    for seed in 0..16_u64 {
        let started = Instant::now();
        // On two cores, two ranks spin, and five sleep.
        let ranks = [2, 5][seed as usize / 4 % 2];
        let means =
            ["--device shm", "--device udp", "--nodes 2", "--nodes 2 --hierarchy host:slots"][seed as usize % 4];
        let named = vec!["named"; ranks - 1];
        expect(&run(&format!("-n {ranks} {means} --on-death tell"), &seed.to_string()), 137, &named);
        assert!(started.elapsed() < Duration::from_secs(20), "seed {seed}");
    }
}

fn death_is_learned_from_a_leader_that_gave_up() {
    for progress in ["engine", "thread", "hybrid"] {
        let options = format!("-n 4 --nodes 2 --hierarchy 2 --on-death silent --progress {progress}");
        expect(&run(&options, "leader"), 137, &["named"; 3]);
    }
}

/// Floating-point sums are bracketed as the number of ranks determines, in any communicator of all ranks.
fn brackets_are_fixed(world: &World) {
    let (rank, size) = (world.rank().0, world.size());
    let sum = Reproducible(SystemOperation::sum());
    let of = |rank: u32, at: usize| [1e16, 1.0, -1e16, 0.7][(rank as usize + at) % 4] + f64::from(rank) * 0.1;
    let bits = |sums: &[f64]| sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
    let others: Vec<Communicator> = (0..12).map(|_| world.duplicate().expect("another")).collect();
    for count in [1, 7, 3000] {
        let all = |sum: &dyn Fn(usize) -> f64| (0..count).map(sum).collect::<Vec<_>>();
        let own = all(&|at| of(rank, at));
        let wanted = bits(&all(&|at| binomial(0, size, &|rank| of(rank, at))));
        for communicator in [&**world, &others[0], &others[11]] {
            let mut into = vec![0.0; count];
            communicator.all_reduce_into(&own, &mut into, sum).expect("sums");
            assert_eq!(bits(&into), wanted, "{count} elements, rank {rank} of {size}");
            for root in (0..size).map(Rank) {
                let mut into = vec![0.0; if root.0 == rank { count } else { 0 }];
                communicator.reduce_into(&own, &mut into, sum, root).expect("sums");
                assert!(root.0 != rank || bits(&into) == wanted, "{count} elements at root {rank} of {size}");
            }
            communicator.all_reduce_in_place(&mut into, sum).expect("sums");
            communicator.scan_into(&own, &mut into, sum).expect("sums");
            assert_eq!(bits(&into), bits(&all(&|at| doubled(rank, u32::MAX, &|rank| of(rank, at)))));
        }
    }
}

/// The sum of a binomial tree over `count` ranks from the first on, which is its root.
fn binomial(first: u32, ranks: u32, of: &dyn Fn(u32) -> f64) -> f64 {
    let reaches = (0..u32::BITS).map(|bit| 1 << bit).take_while(|reach| *reach < ranks);
    reaches.fold(of(first), |sum, reach| sum + binomial(first + reach, reach.min(ranks - reach), of))
}

/// The partial sum of recursive doubling at a rank before a given distance.
fn doubled(rank: u32, reach: u32, of: &dyn Fn(u32) -> f64) -> f64 {
    let steps = (0..u32::BITS).map(|bit| 1 << bit).take_while(|step| *step < reach && *step <= rank);
    steps.fold(of(rank), |sum, step| doubled(rank - step, step, of) + sum)
}

/// Element `at` of the block from `from` to `to`.
fn number(from: u32, to: u32, at: usize) -> i64 {
    i64::from(from) * 1_000_003 - i64::from(to) * 77 + at as i64 * 13
}

fn block(from: u32, to: u32, count: usize) -> Vec<i64> {
    (0..count).map(|at| number(from, to, at)).collect()
}

/// The sum of every element type: exact, so that it is the flat schedule's.
fn every_element_type_is_reduced(world: &World) {
    let size = world.size();
    macro_rules! check {
        ($($element:ty),*) => {$(
            let mine: Vec<$element> = (0..11).map(|at| (world.rank().0 + at % 3) as $element).collect();
            let want: Vec<$element> =
                (0..11).map(|at| (0..size).map(|rank| rank + at % 3).sum::<u32>() as $element).collect();
            let mut all = vec![0 as $element; mine.len()];
            world.all_reduce_into(&mine, &mut all, SystemOperation::sum()).expect("an allreduce");
            assert_eq!(all, want, "{}", stringify!($element));
            let mut data = if world.rank() == Rank(size - 1) { want.clone() } else { vec![0 as $element; want.len()] };
            world.broadcast_into(&mut data, Rank(size - 1)).expect("a broadcast");
            assert_eq!(data, want, "{}", stringify!($element));
        )*};
    }
    check!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);
}

fn everything_is_right(world: &World) {
    let (rank, size, sum) = (world.rank().0, world.size(), SystemOperation::sum());
    // Keeps the first of the left and the last of the right operand, which must be adjacent.
    let joined = UserOperation::associative(|l: &[u32; 2], r: &[u32; 2]| {
        assert_eq!(l[1] + 1, r[0], "the operands are not adjacent");
        [l[0], r[1]]
    });
    for (round, count) in COUNTS.into_iter().enumerate() {
        let root = Rank(round as u32 % size);
        let what = format!("{count} elements, rank {rank} of {size}");
        let own = block(rank, 0, count);
        let (everyones, for_all): (Vec<_>, Vec<_>) = (
            (0..size).flat_map(|from| block(from, 0, count)).collect(),
            (0..size).flat_map(|to| block(rank, to, count)).collect(),
        );
        let total = |to, ranks: core::ops::Range<u32>| -> Vec<i64> {
            (0..count).map(|at| ranks.clone().map(|from| number(from, to, at)).sum()).collect()
        };

        let mut data = if rank == root.0 { own.clone() } else { vec![0; count] };
        world.broadcast_into(&mut data, root).expect("a broadcast");
        assert_eq!(data, block(root.0, 0, count), "broadcast: {what}");

        let mut all = vec![0; count * size as usize];
        world.all_gather_into(&own, &mut all).expect("an allgather");
        assert_eq!(all, everyones, "allgather: {what}");

        all.fill(0);
        world.gather_into(&own, if rank == root.0 { &mut all[..] } else { &mut [] }, root).expect("a gather");
        assert!(rank != root.0 || all == everyones, "gather: {what}");

        world.scatter_into(if rank == root.0 { &for_all[..] } else { &[] }, &mut data, root).expect("a scatter");
        assert_eq!(data, block(root.0, rank, count), "scatter: {what}");

        world.all_to_all_into(&for_all, &mut all).expect("an alltoall");
        assert!(all.iter().copied().eq((0..size).flat_map(|from| block(from, rank, count))), "alltoall: {what}");

        world.all_reduce_into(&own, &mut data, sum).expect("an allreduce");
        assert_eq!(data, total(0, 0..size), "allreduce: {what}");
        data.copy_from_slice(&own);
        world.all_reduce_in_place(&mut data, sum).expect("an allreduce");
        assert_eq!(data, total(0, 0..size), "allreduce in place: {what}");

        data.fill(0);
        world.reduce_into(&own, if rank == root.0 { &mut data[..] } else { &mut [] }, sum, root).expect("a reduce");
        assert!(rank != root.0 || data == total(0, 0..size), "reduce: {what}");

        world.reduce_scatter_block_into(&for_all, &mut data, sum).expect("a reduce-scatter");
        assert_eq!(data, total(rank, 0..size), "reduce-scatter: {what}");

        world.scan_into(&own, &mut data, sum).expect("a scan");
        assert_eq!(data, total(0, 0..rank + 1), "scan: {what}");
        data.fill(0);
        world.exclusive_scan_into(&own, &mut data, sum).expect("a scan");
        assert_eq!(data, total(0, 0..rank), "exclusive scan: {what}");

        let mut spans = vec![[0; 2]; count];
        world.all_reduce_into(&vec![[rank; 2]; count], &mut spans, joined).expect("an allreduce");
        assert_eq!(spans, vec![[0, size - 1]; count], "user operation: {what}");
        world.barrier().expect("a barrier");
    }
    // Misuse is detected before anything is published: the other ranks are not affected.
    let (size, stranger) = (size as usize, Rank(size));
    let unknown = CollectiveError::UnknownRank { rank: stranger, size: stranger.0 };
    assert_eq!(world.broadcast_into(&mut [0_u8], stranger), Err(unknown));
    let length = CollectiveError::Length { needed: 2 * size, given: 1 };
    assert_eq!(world.all_gather_into(&[1_u8, 2], &mut [0]), Err(length));
    assert_eq!(
        world.all_reduce_into(&[1.0_f32], &mut [0.0], SystemOperation::bitwise_or()),
        Err(CollectiveError::Undefined)
    );
    let mut matrix = [0_u8; 12];
    let column = |rows| ViewMut::new(&mut matrix, 1, Vector::new(rows, 1, 4)).map(|view| view.count());
    assert_eq!([1, 3, 4].map(column), [Ok(1), Ok(3), Err(CollectiveError::Length { needed: 13, given: 12 })]);
    let twice = ViewMut::new(&mut matrix, 2, Vector::new(3, 2, 4).resized(1)).map(|view| view.count());
    assert_eq!(twice, Err(CollectiveError::Overlapping));
    let mut column = ViewMut::new(&mut matrix, 1, Vector::new(3, 1, 4)).expect("within");
    let length = CollectiveError::Length { needed: 4, given: 3 };
    assert_eq!(world.all_reduce_into(&[1_u8; 4], &mut column, sum), Err(length));
    world.barrier().expect("a barrier");
}

/// Sixteen rounds of four collectives, all started before any is waited for, which each rank does in an order of its
/// own.
fn many_under_way(world: &World) {
    const ROUNDS: usize = 16;
    let (rank, size) = (world.rank().0, world.size());
    let count = |round: usize| [1, 40, 3000, 9000][round % 4];
    let given: Vec<Vec<i64>> = (0..ROUNDS).map(|round| block(rank, round as u32, count(round))).collect();
    let mut sums: Vec<Vec<i64>> = given.iter().map(|given| vec![0; given.len()]).collect();
    let mut all: Vec<Vec<i64>> = given.iter().map(|given| vec![0; size as usize * given.len()]).collect();
    let mut from_root: Vec<Vec<i64>> = (0..)
        .zip(&given)
        .map(|(round, given)| if rank == round % size { given.clone() } else { vec![0; given.len()] })
        .collect();
    let factor = 3;
    let weighted = UserOperation::commutative(move |l: &i64, r: &i64| l.wrapping_add(*r).wrapping_mul(factor) / factor);
    world.scope(|scope| {
        let mut requests = Vec::new();
        let buffers = given.iter().zip(&mut sums).zip(&mut all).zip(&mut from_root);
        for (round, (((given, sum), all), from_root)) in (0..).zip(buffers) {
            let weighs = round % 2 == 0;
            requests.push(if weighs {
                scope.immediate_all_reduce_into(given, sum, weighted)
            } else {
                scope.immediate_all_reduce_into(given, sum, SystemOperation::sum())
            });
            requests.push(scope.immediate_all_gather_into(given, all));
            requests.push(scope.immediate_broadcast_into(from_root, Rank(round % size)));
            requests.push(scope.immediate_barrier());
        }
        let mut random = fastrand::Rng::with_seed(rank.into());
        random.shuffle(&mut requests);
        // Some complete when the scope ends.
        for request in requests.into_iter().skip(3) {
            request.expect("begun").wait().expect("a good end");
        }
        world.barrier().expect("a barrier");
    });
    for round in 0..ROUNDS {
        let (count, root) = (count(round), round as u32 % size);
        let total = (0..count).map(|at| (0..size).map(|from| number(from, round as u32, at)).sum::<i64>());
        assert!(sums[round].iter().copied().eq(total), "allreduce of round {round}");
        let everyones = (0..size).flat_map(|from| block(from, round as u32, count));
        assert!(all[round].iter().copied().eq(everyones), "allgather of round {round}");
        assert_eq!(from_root[round], block(root, round as u32, count), "broadcast of round {round}");
    }
}

/// Blocks of `lengths`, in reverse order, with a gap after each.
fn scattered(lengths: &[usize]) -> (Vec<usize>, usize) {
    let mut end = 0;
    let begin = |length: &usize| {
        end += length + 1;
        end - length - 1
    };
    let mut at: Vec<usize> = lengths.iter().rev().map(begin).collect();
    at.reverse();
    (at, end)
}

fn blocks_of_any_length(world: &World) {
    let (rank, size) = (world.rank().0, world.size());
    let own = rank as usize;
    for unit in [0, 1, 50, 4000] {
        let root = Rank(unit as u32 % size);
        // The block from rank `from` to rank `to`; every third is empty.
        let length = |from: u32, to: u32| ((from + 2 * to) % 3) as usize * unit;
        let given = |from: u32, to: u32| block(from, to, length(from, to));
        let lengths: Vec<usize> = (0..size).map(|from| length(from, 0)).collect();
        let (at, whole) = scattered(&lengths);
        let mut all = vec![-1; whole];
        let holds = |all: &[i64], of: &dyn Fn(u32) -> Vec<i64>, at: &[usize]| {
            (0..size).all(|from| all[at[from as usize]..].starts_with(&of(from)))
        };
        let parts = PartitionMut::new(&mut all, &lengths, &at).expect("within");
        world.all_gather_varcount_into(&given(rank, 0), parts).expect("an allgather");
        assert!(holds(&all, &|from| given(from, 0), &at), "allgather of {unit}");
        assert_eq!(all.iter().filter(|value| **value == -1).count(), size as usize, "gaps are left alone");

        all.fill(-1);
        let parts = PartitionMut::new(&mut all, &lengths, &at).expect("within");
        world.gather_varcount_into(&given(rank, 0), parts, root).expect("a gather");
        assert!(rank != root.0 || holds(&all, &|from| given(from, 0), &at), "gather of {unit}");

        (0..size).for_each(|of| all[at[of as usize]..][..lengths[of as usize]].copy_from_slice(&given(of, 0)));
        let (parts, mut mine) = (Partition::new(&all, &lengths, &at).expect("within"), vec![-1; lengths[own]]);
        world.scatter_varcount_into(&parts, &mut mine, root).expect("a scatter");
        assert_eq!(mine, given(rank, 0), "scatter of {unit}");

        let outward: Vec<usize> = (0..size).map(|to| length(rank, to)).collect();
        let inward: Vec<usize> = (0..size).map(|from| length(from, rank)).collect();
        let ((out_at, out), (in_at, room)) = (scattered(&outward), scattered(&inward));
        let (mut out, mut into) = (vec![-1; out], vec![-1; room]);
        (0..size).for_each(|to| out[out_at[to as usize]..][..outward[to as usize]].copy_from_slice(&given(rank, to)));
        let parts = Partition::new(&out, &outward, &out_at).expect("within");
        let room = PartitionMut::new(&mut into, &inward, &in_at).expect("within");
        world.all_to_all_varcount_into(&parts, room).expect("an alltoall");
        assert!(holds(&into, &|from| given(from, rank), &in_at), "alltoall of {unit}");
    }
    let mut none = [0_i64; 0];
    let parts = PartitionMut::new(&mut none, &[], &[]).expect("within");
    let refused = world.all_gather_varcount_into(&[1], parts);
    assert_eq!(refused, Err(CollectiveError::Length { needed: size as usize, given: 0 }));
    world.barrier().expect("a barrier");
}

/// The panic of one rank's function leaves its call; the other rank reports it as missing.
fn panic_in_a_function(world: &World) {
    let own = world.rank();
    let spoilt =
        UserOperation::commutative(move |l: &u64, r: &u64| if own == Rank(0) { panic!("spoilt") } else { l + r });
    let call = || world.all_reduce_into(&[1_u64; 100], &mut [0; 100], spoilt);
    let ended = std::panic::catch_unwind(core::panic::AssertUnwindSafe(call));
    match (own, ended) {
        (Rank(0), Err(panic)) => assert_eq!(panic.downcast_ref(), Some(&"spoilt")),
        (_, Ok(ended)) => {
            let next = ended.and_then(|()| world.barrier());
            assert!(matches!(next, Err(CollectiveError::Missing { rank: Rank(0), .. })), "{next:?}");
        }
        _ => panic!("rank {own} got no error"),
    }
    println!("caught");
}

/// The function of one rank panics in a reduction of 32 KiB, to which all ranks of a group apply it. No rank waits for
/// long, and other communicators are as before.
fn panic_in_a_group(world: &World) {
    let [kind, victim, on] = [2, 3, 4].map(|at| env::args().nth(at).expect("an argument"));
    let duplicate = world.duplicate().expect("a duplicate");
    let (on, other): (&Communicator, &Communicator) =
        if on == "duplicate" { (&duplicate, world) } else { (world, &duplicate) };
    let (own, victim, root) = (on.rank(), Rank(victim.parse().expect("a rank")), Rank(0));
    let spoilt =
        UserOperation::commutative(move |l: &u64, r: &u64| if own == victim { panic!("spoilt") } else { l + r });
    let (data, mut into) = (vec![1_u64; 4096], vec![0_u64; 4096]);
    let started = Instant::now();
    let ended = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| match &*kind {
        "all_reduce" => on.all_reduce_into(&data, &mut into, spoilt),
        "immediate" => on.scope(|scope| scope.immediate_all_reduce_into(&data, &mut into, spoilt)?.wait()),
        _ => on.reduce_into(&data, if own == root { &mut into[..] } else { &mut [] }, spoilt, root),
    }));
    let has_panicked = ended.is_err();
    let next = ended.unwrap_or(Ok(())).and_then(|()| on.barrier());
    assert!(matches!(next, Err(CollectiveError::Missing { rank, .. }) if rank == victim), "{next:?}");
    assert_eq!(has_panicked, own == victim);
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    on.barrier().expect_err("it stays failed");
    other.all_reduce_into(&data, &mut into, SystemOperation::sum()).expect("a sum");
    assert!(into.iter().all(|sum| *sum == u64::from(world.size())));
    println!("caught");
}

/// Claims the slot of this rank in the node's segment, as an earlier incarnation of it: this one gets no shared memory.
fn use_slot() {
    let given: InheritedSegment = env::var("UNISONO_SEGMENT").expect("given").parse().expect("a descriptor");
    let InheritedSegment::Descriptor { number, holder } = given else { panic!("no segment") };
    let file = reopen(number, holder).expect("a segment");
    let (mapping, layout) = Mapping::open(file.as_fd()).expect("a segment");
    // SAFETY: only the slot is used.
    let segment = unsafe { mapping.segment() };
    let slot = RankSlot::of(segment, &layout, 1).expect("a slot");
    slot.claim(Occupant { rank: 1, incarnation: 1, process: 1 }).expect("it is free");
}

/// One rank does not share its node's memory: no rank of that node uses slots in the World, and none at all in a
/// duplicate. Prints on how many of these this rank uses some.
fn share_no_memory_with_one(world: &World) {
    assert_eq!(world.node().is_none(), world.rank() == Rank(1));
    let duplicate = world.duplicate().expect("a duplicate");
    let uses_slots = |on: &Communicator| {
        for count in [60_000, 3000, 1] {
            let mut sums = vec![0; count];
            on.all_reduce_into(&vec![1_u32; count], &mut sums, SystemOperation::sum()).expect("sums");
            assert_eq!(sums, vec![world.size(); count]);
        }
        let record = on.last_collective().expect("an allreduce");
        record.is_in_slots || record.slot_levels != 0
    };
    let used = [uses_slots(world), uses_slots(&duplicate)].map(usize::from);
    println!("{} {}", world.rank(), used.into_iter().sum::<usize>());
}

/// The levels with shared memory of a World on two nodes, and of duplicates: those of each rank, in turn.
fn expect_group_means(world: &World) {
    let levels: Vec<u32> = env::args().skip(2).map(|levels| levels.parse().expect("a number")).collect();
    let expected = levels.get(world.rank().0 as usize % levels.len());
    let duplicates: Vec<Communicator> = (0..3).map(|_| world.duplicate().expect("a duplicate")).collect();
    for on in core::iter::once(&**world).chain(&duplicates) {
        // Two are under way at a time, of which the groups of ranks execute the same one first.
        let (mut words, mut sums, own) = (vec![0; world.size() as usize], [0; 2], [world.rank().0]);
        on.scope(|scope| {
            let words = scope.immediate_all_gather_into(&own, &mut words)?;
            let sum = scope.immediate_all_reduce_into(&[1_u32, 2], &mut sums, SystemOperation::sum())?;
            sum.wait()?;
            words.wait()
        })
        .expect("words and sums");
        assert_eq!(sums, [world.size(), 2 * world.size()]);
        assert!(words.into_iter().eq(0..world.size()));
        let record = on.last_collective().expect("an allreduce");
        assert!(record.levels > 1 && Some(&record.slot_levels) == expected, "{record}");
    }
}

/// Duplicates of a World on two nodes take a number of slots, and communicators of each node as many as are left, up to
/// four.
fn take_slots(world: &World) {
    let [taken, left] = [2, 3].map(|place| env::args().nth(place).and_then(|number| number.parse::<usize>().ok()));
    let used = |all: &[Communicator]| {
        let sums = all.iter().map(|on| {
            let mut sum = [0];
            on.all_reduce_into(&[1_u32], &mut sum, SystemOperation::sum()).expect("a sum");
            assert_eq!(sum, [on.size()]);
            on.last_collective().expect("an allreduce")
        });
        sums.filter(|record| record.is_in_slots || record.slot_levels != 0).count()
    };
    let duplicates: Vec<Communicator> = (0..9).map(|_| world.duplicate().expect("a duplicate")).collect();
    let of_node = || world.split_by_type(SplitType::Shared).expect("a communicator of this node");
    let of_nodes: Vec<Communicator> = (0..4).map(|_| of_node()).collect();
    assert_eq!([used(&duplicates), used(&of_nodes)].map(Some), [taken, left]);
    // What is given back is taken again.
    drop((duplicates, of_nodes));
    world.barrier().expect("all have given theirs back");
    assert_eq!(used(&[of_node()]), 1);
}

fn disagree(world: &World) {
    let other = Rank(1 - world.rank().0);
    let ended = match world.rank() {
        Rank(0) => world.all_reduce_into(&[1_u32, 2], &mut [0; 2], SystemOperation::sum()),
        _ => world.all_reduce_into(&[1_u32, 2], &mut [0; 2], SystemOperation::max()),
    };
    let Err(CollectiveError::Disagrees { rank, collective: "all_reduce", .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(rank, other);
    assert_eq!(world.broadcast_into(&mut [0_u8], Rank(0)), ended, "it stays failed");
}

/// No rank sends: ranks that detect it return an error, the others report those as missing. In a communicator slot,
/// over messages, and in the World.
fn take_the_next_for_the_root(world: &World) {
    let next = Rank((world.rank().0 + 1) % world.size());
    let other = world.duplicate().expect("another");
    for (on, count) in [(&other, 8), (&other.duplicate().expect("a third"), 10_000_000), (&**world, 8)] {
        let ended = on.broadcast_into(&mut vec![0_u8; count], next);
        let named = match ended {
            Err(CollectiveError::Disagrees { rank, .. } | CollectiveError::Missing { rank, .. }) => rank,
            ended => panic!("{ended:?}"),
        };
        assert_ne!(named, on.rank());
        on.barrier().expect_err("it stays failed");
    }
}

/// The leaders, ranks 0 and 2, learn of a death by a message and do not enter the barrier. Rank 3 waits there for its
/// leader alone, which is alive, and it watches rank 0.
fn wait_for_a_leader_that_gave_up(world: &World) {
    const REPORTED: Tag = Tag(1);
    let victim = Rank(1);
    world.barrier().expect("all are alive");
    match world.rank() {
        Rank(1) => kill_process(getpid(), Signal::KILL).expect("own process"),
        Rank(3) => {
            let error = world.barrier().expect_err("a rank is dead");
            assert!(matches!(error, CollectiveError::Missing { rank, .. } if rank == victim), "{error:?}");
            for leader in [0, 2].map(Rank) {
                world.send(&[0_u8], leader, REPORTED).expect("alive");
            }
        }
        _ => {
            let failure = world.receive_into(&mut [0_u8], victim, Tag(0)).expect_err("it is dead");
            assert_eq!(failure, Failure::PeerFailed(victim));
            let started = Instant::now();
            // It asks whether the message is there: one that waited for rank 3 would end as a deadlock.
            while world.immediate_probe(Rank(3), REPORTED).expect("alive").is_none() {
                assert!(started.elapsed() < 5 * BOUND, "rank 3 reports nothing");
                world.progress();
            }
            world.receive_into(&mut [0_u8], Rank(3), REPORTED).expect("it has arrived");
        }
    }
    println!("named");
}

/// One rank is killed at a random time, the others name it.
fn survive(world: &World, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let size = world.size();
    let (victim, after) = (Rank(random.u32(..size)), Duration::from_micros(random.u64(200..5000)));
    let (count, sum) = ([1, 3000, 60_000][seed as usize / 2 % 3], SystemOperation::sum());
    let (data, mut all, mut one) = (vec![1_i64; size as usize * count], vec![0; size as usize * count], vec![0; count]);
    if world.rank() == victim {
        thread::spawn(move || {
            thread::sleep(after);
            kill_process(getpid(), Signal::KILL).expect("own process");
        });
    }
    let mut started = Instant::now();
    let error = loop {
        started = started.max(Instant::now());
        let verb = random.u32(..8);
        let root = Rank(random.u32(..size));
        let ended = match verb {
            0 => world.barrier(),
            1 => world.broadcast_into(&mut one, root),
            2 => world.all_gather_into(&data[..count], &mut all),
            3 => world.all_to_all_into(&data, &mut all),
            4 => world.all_reduce_into(&data[..count], &mut one, sum),
            5 => world.gather_into(&data[..count], &mut all, root),
            6 => world.scatter_into(&data, &mut one, root),
            _ => world.reduce_scatter_block_into(&data, &mut one, sum),
        };
        if let Err(error) = ended {
            break error;
        }
    };
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    let CollectiveError::Missing { rank, .. } = error else { panic!("{error:?}") };
    assert_eq!(rank, victim, "{error}");
    println!("named");
}
