//! Communicators: creation, contexts, slots in shared memory, revocation, agreement and shrinking. This program is the
//! rank program, too.

mod program;

use core::time::Duration;
use std::env;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use program::{expect, run};
use rustix::process::{Signal, getpid, kill_process};
use unisono::collective::{CollectiveError, SystemOperation, UserOperation};
use unisono::{Communicator, CreateError, Failure, Rank, Status, Tag, World};

/// Transports and progress modes.
const EVERYWHERE: [&str; 6] = [
    "-n 4 --progress engine",
    "-n 4 --progress thread",
    "-n 4 --progress hybrid",
    "-n 4 --device udp --progress engine",
    "-n 4 --device udp --progress thread",
    "-n 4 --device udp --progress hybrid",
];

/// Longest time until the survivors of a failure continue.
const BOUND: Duration = Duration::from_secs(4);

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        match env::args().nth(1).as_deref() {
            Some("many") => many_on_four(&world),
            Some("split") => splits(&world),
            Some("again") => contexts_are_used_again(&world),
            Some("rooms") => rooms_are_used_again(&world),
            Some("death") => return death_in_a_room(&world),
            Some("panic") => panic_in_a_room(&world),
            Some("refused") => rooms_survive_refusals(&world),
            Some("misuse") => misuse(&world),
            Some("messages") => messages_stay_apart(&world),
            Some("revoke") => revoked(&world),
            Some("taken") => taken_out_and_revoked(&world),
            Some("single") => of_one(&world),
            Some("reused") => revoked_before_and_after(&world),
            Some("agree") => agree(&world),
            Some("threads") => threads_make_communicators(&world),
            Some("alone") => alone(&world),
            Some("overtaken") => overtaken(&world),
            Some("late") => return late(world),
            Some(seed) if seed.parse::<u64>().is_ok() => survive(&world, seed.parse().expect("a number")),
            part => panic!("{part:?} is no part"),
        }
        world.finish().expect("a good end");
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("many_collectives_are_under_way_on_four_communicators", || everywhere("many")),
        ("splits_nest_and_order_by_key", splits_nest_and_order_by_key),
        ("contexts_are_used_again_when_they_are_free", contexts_are_used_again_when_they_are_free),
        ("slots_are_reused_when_all_have_freed_them", slots_are_reused_when_all_have_freed_them),
        ("a_failure_in_one_slot_does_not_affect_the_others", a_failure_in_one_slot_does_not_affect_the_others),
        ("slots_are_free_after_refusals", || expect(&run("-n 4", "refused"), 0, &[])),
        ("a_function_that_panics_in_a_slot_leaves_no_rank_waiting", a_function_panics_in_a_room),
        ("messages_of_communicators_never_mix", || everywhere("messages")),
        ("a_revoked_communicator_fails_everywhere", || everywhere("revoke")),
        ("matched_probes_of_a_revoked_communicator_fail", || everywhere("taken")),
        ("a_communicator_of_one_is_revoked_as_any_other", || expect(&run("-n 2", "single"), 0, &[])),
        ("a_revocation_is_of_one_communicator", || everywhere("reused")),
        ("threads_make_communicators_at_once", || everywhere("threads")),
        ("a_communicator_of_one_waits_for_nobody", || everywhere("alone")),
        ("one_that_awaits_a_member_holds_up_no_other_communicator", || everywhere("overtaken")),
        ("all_agree", || everywhere("agree")),
        ("survivors_shrink_and_go_on", survivors_shrink_and_go_on),
        ("misuse_is_a_typed_error", misuse_is_a_typed_error),
        ("communicators_that_outlive_the_world_fail", || expect(&run("-n 2", "late"), 0, &["finished"; 2])),
        ("ranks_with_other_settings_are_named", ranks_with_other_settings_are_named),
    ])
}

fn everywhere(part: &str) {
    for options in EVERYWHERE {
        expect(&run(options, part), 0, &[]);
    }
}

fn splits_nest_and_order_by_key() {
    for options in ["-n 1", "-n 3", "-n 8", "-n 7 --nodes 2", "-n 6 --device udp --loss 3% --reorder 3%"] {
        expect(&run(options, "split"), 0, &[]);
    }
}

fn contexts_are_used_again_when_they_are_free() {
    for options in ["-n 2", "-n 3 --device udp"] {
        expect(&run(options, "again"), 0, &[]);
    }
}

fn slots_are_reused_when_all_have_freed_them() {
    for options in ["-n 2", "-n 4", "-n 4 --progress thread", "-n 6 --nodes 2"] {
        expect(&run(options, "rooms"), 0, &[]);
    }
}

fn a_failure_in_one_slot_does_not_affect_the_others() {
    for mode in ["engine", "thread", "hybrid"] {
        let options = format!("-n 4 --device shm --progress {mode} --on-death tell");
        expect(&run(&options, "death"), 137, &["went on"; 3]);
    }
}

fn a_function_panics_in_a_room() {
    for mode in ["engine", "thread", "hybrid"] {
        expect(&run(&format!("-n 4 --device shm --progress {mode}"), "panic"), 0, &["continued"; 4]);
    }
}

fn survivors_shrink_and_go_on() {
    for seed in 0..12_u64 {
        let means = ["--device shm", "--device udp", "--nodes 2"][seed as usize % 3];
        let mode = ["engine", "thread", "hybrid"][seed as usize / 3 % 3];
        let options = format!("-n 5 {means} --progress {mode} --on-death tell");
        expect(&run(&options, &seed.to_string()), 137, &["went on"; 3]);
    }
}

fn misuse_is_a_typed_error() {
    for options in ["-n 3", "-n 3 --device udp"] {
        expect(&run(options, "misuse"), 0, &[]);
    }
}

/// Rank 1's environment has another tuning, or another device, than rank 0's.
fn ranks_with_other_settings_are_named() {
    for (setting, what) in [("UNISONO_ALLGATHER=ring", "algorithms"), ("UNISONO_SILENCE=9s", "a device")] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_unisono"));
        let script =
            format!("[ $UNISONO_RANK = 1 ] && export {setting}; exec {}", env::current_exe().expect("this").display());
        command.args(["run", "-n", "3", "--", "sh", "-c", &format!("{script} many")]);
        let output = command.output().expect("unisono starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(what) && errors.contains("Differs { rank: Rank("),
            "{errors}"
        );
    }
}

fn value(rank: u32, round: usize, at: usize) -> i64 {
    i64::from(rank) * 1_000_003 + round as i64 * 7919 + at as i64
}

/// The buffers of one round on one communicator.
struct Round {
    on: usize,
    round: usize,
    given: Vec<i64>,
    sum: Vec<i64>,
    whole: Vec<i64>,
    shared: Vec<i64>,
}

impl Round {
    fn new(on: usize, communicator: &Communicator, world_rank: u32, round: usize) -> Self {
        let count = [1, 40, 3000, 9000][round % 4];
        let given: Vec<i64> = (0..count).map(|at| value(world_rank, round, at)).collect();
        let is_root = communicator.rank().0 == round as u32 % communicator.size();
        let shared = if is_root { given.clone() } else { vec![0; count] };
        Self { on, round, sum: vec![0; count], whole: vec![0; count * communicator.size() as usize], given, shared }
    }

    fn check(&self, communicator: &Communicator) {
        let (ranks, what) = (communicator.group(), format!("round {} on {}", self.round, self.on));
        let of = |rank: Rank| (0..self.given.len()).map(move |at| value(rank.0, self.round, at));
        assert!(self.whole.iter().copied().eq(ranks.iter().flat_map(of)), "allgather: {what}");
        let total = (0..self.given.len()).map(|at| ranks.iter().map(|rank| value(rank.0, self.round, at)).sum::<i64>());
        assert!(self.sum.iter().copied().eq(total), "allreduce: {what}");
        let root = ranks.world_rank(Rank(self.round as u32 % communicator.size())).expect("a root");
        assert!(self.shared.iter().copied().eq(of(root)), "broadcast: {what}");
    }
}

/// Sixteen collectives of four kinds on each of four communicators, all started before one is waited for, in an order
/// of each rank's own.
fn many_on_four(world: &World) {
    let (rank, size) = (world.rank().0, world.size());
    let reversed = world.split_by_color_with_key(0, -(rank as i32)).expect("a split").expect("a member");
    let parity = world.split_by_color(rank % 2).expect("a split").expect("a member");
    let copy = reversed.duplicate().expect("a duplicate");
    assert_eq!((reversed.rank(), parity.rank(), copy.rank()), (Rank(size - 1 - rank), Rank(rank / 2), reversed.rank()));
    let all: [&Communicator; 4] = [world, &reversed, &parity, &copy];
    let rounds = (0..4).flat_map(|round| (0..4).map(move |on| (on, round)));
    let mut rounds: Vec<Round> = rounds.map(|(on, round)| Round::new(on, all[on], rank, round)).collect();
    world.scope(|scope| {
        let mut requests = Vec::new();
        for Round { on, round, given, sum, whole, shared } in &mut rounds {
            let (scope, root) = (scope.on(all[*on]), Rank(*round as u32 % all[*on].size()));
            requests.push(scope.immediate_all_reduce_into(given, sum, SystemOperation::sum()));
            requests.push(scope.immediate_all_gather_into(given, whole));
            requests.push(scope.immediate_broadcast_into(shared, root));
            requests.push(scope.immediate_barrier());
        }
        assert_eq!(requests.len(), 64);
        fastrand::Rng::with_seed(rank.into()).shuffle(&mut requests);
        // Some complete when the scope ends.
        for request in requests.into_iter().skip(3) {
            request.expect("begun").wait().expect("a good end");
        }
    });
    rounds.iter().for_each(|round| round.check(all[round.on]));
}

/// The sum of the members' ranks in the World.
fn sum_of(communicator: &Communicator, world: &World) -> u32 {
    let mut sum = [0];
    communicator.all_reduce_into(&[world.rank().0], &mut sum, SystemOperation::sum()).expect("an allreduce");
    sum[0]
}

fn splits(world: &World) {
    let (rank, size) = (world.rank().0, world.size());
    assert_eq!(sum_of(world, world), (0..size).sum::<u32>());
    // Halves of halves, down to single ranks.
    let executed = world.last_collective();
    assert_eq!(executed.map(|last| last.collective), (size > 1).then_some("all_reduce"));
    let (mut now, mut halves) = (world.duplicate().expect("a duplicate"), 0);
    assert_eq!(world.last_collective(), executed, "the user called none");
    while now.size() > 1 {
        let (low, before) = (now.rank().0 < now.size() / 2, now.group());
        let next = now.split_by_color(u32::from(low)).expect("a split").expect("a member");
        let expected = before.iter().filter(|rank| (before.number(*rank).expect("a member").0 < now.size() / 2) == low);
        assert!(next.group().iter().eq(expected));
        assert_eq!(sum_of(&next, world), next.group().iter().map(|rank| rank.0).sum::<u32>());
        // The parent communicator is freed; the children remain.
        (now, halves) = (next, halves + 1);
    }
    assert_eq!((now.rank(), now.group().iter().next()), (Rank(0), Some(Rank(rank))));
    // A rank without a color gets no communicator; keys define the order, negative ones first.
    let key = if rank.is_multiple_of(3) { i32::MIN + rank as i32 } else { i32::MAX - rank as i32 };
    let odd = world.split_by_color_with_key((rank % 4 != 1).then_some(7), key).expect("a split");
    assert_eq!(odd.is_some(), rank % 4 != 1);
    if let Some(odd) = odd {
        let mut order: Vec<u32> = (0..size).filter(|rank| rank % 4 != 1).collect();
        order.sort_by_key(|rank| (!rank.is_multiple_of(3), if rank.is_multiple_of(3) { *rank } else { size - rank }));
        assert!(odd.group().iter().map(|rank| rank.0).eq(order), "{:?}", odd.group());
        let mut all = vec![0; odd.size() as usize];
        odd.all_gather_into(&[rank], &mut all).expect("an allgather");
        assert!(odd.group().iter().map(|rank| rank.0).eq(all));
    }
    // By group: all but the last, in reverse order.
    let members: Vec<Rank> = (0..size.max(2) - 1).rev().map(Rank).collect();
    let group = world.group().include(&members).expect("members");
    let part = world.split_by_subgroup_collective(&group).expect("a communicator");
    assert_eq!(part.as_ref().map(|part| part.group()), group.number(world.rank()).map(|_| group.clone()));
    if let Some(part) = part {
        assert_eq!(part.group().translate(part.rank(), &world.group()), Some(world.rank()));
        let mut value = [rank];
        part.broadcast_into(&mut value, Rank(0)).expect("a broadcast");
        assert_eq!(value, [size.max(2) - 2]);
        assert_eq!(sum_of(&part, world), (0..size.max(2) - 1).sum::<u32>());
    }
    world.barrier().expect("a barrier");
}

/// Many more communicators than contexts exist at a time, while one of them stays in use at one rank only.
fn contexts_are_used_again(world: &World) {
    let kept = world.duplicate().expect("a duplicate");
    let mut last = world.duplicate().expect("a duplicate");
    for round in 0..10_000_u32 {
        last = if round % 2 == 0 { world.duplicate() } else { last.duplicate() }.expect("a duplicate");
        if round % 64 == 0 {
            let mut sum = [0_u32];
            last.all_reduce_into(&[round], &mut sum, SystemOperation::sum()).expect("an allreduce");
            assert_eq!(sum, [round * world.size()]);
        }
    }
    // Freed by some ranks, kept by others: not reused before all have freed it.
    let mut kept = Some(kept);
    for round in 0..world.size() {
        if round == world.rank().0 {
            kept = None;
        }
        let others: Vec<_> = (0..3).map(|_| world.duplicate().expect("a duplicate")).collect();
        if let Some(kept) = &kept {
            assert_eq!(kept.size(), world.size());
        }
        others.iter().for_each(|other| assert_eq!(sum_of(other, world), (0..world.size()).sum::<u32>()));
    }
}

/// One round of three kinds, each waited for.
fn round_on(communicator: &Communicator, on: usize, world: &World, at: usize) {
    let mut round = Round::new(on, communicator, world.rank().0, at);
    communicator.all_reduce_into(&round.given, &mut round.sum, SystemOperation::sum()).expect("an allreduce");
    communicator.all_gather_into(&round.given, &mut round.whole).expect("an allgather");
    communicator.barrier().expect("a barrier");
    let root = Rank(at as u32 % communicator.size());
    communicator.broadcast_into(&mut round.shared, root).expect("a broadcast");
    round.check(communicator);
}

/// More communicators than slots, of overlapping groups, freed in an order of each rank's own, some while other ranks
/// still read the last published data.
fn rooms_are_used_again(world: &World) {
    let (rank, size) = (world.rank().0, world.size());
    let mut random = fastrand::Rng::with_seed(rank.into());
    let mut kept: Vec<Communicator> = Vec::new();
    for turn in 0..120_usize {
        let key = if turn % 3 == 0 { -(rank as i32) } else { 0 };
        let color = [0, rank % 2, u32::from(rank < size / 2), u32::from(rank == turn as u32 % size)][turn % 4];
        let made = world.split_by_color_with_key(color, key).expect("a split").expect("a member");
        round_on(&made, turn, world, turn);
        let nested = if turn % 5 == 0 { made.duplicate().ok() } else { None };
        if let Some(nested) = &nested {
            round_on(nested, turn, world, turn + 1);
        }
        // The publisher does not wait for the readers.
        let root = Rank(turn as u32 % made.size());
        let mut last = if made.rank() == root { [turn; 9] } else { [0; 9] };
        if made.rank() != root && random.u8(..) < 60 {
            thread::sleep(Duration::from_micros(random.u64(..2000)));
        }
        made.broadcast_into(&mut last, root).expect("a broadcast");
        assert_eq!(last, [turn; 9]);
        if turn % 4 < 3 {
            drop(made);
        } else {
            kept.push(made);
        }
        if kept.len() == 12 {
            kept.iter().enumerate().for_each(|(on, one)| round_on(one, on, world, on));
            random.shuffle(&mut kept);
            kept.clear();
        }
    }
    world.barrier().expect("a barrier");
}

/// Rank 1 is killed. Members of its communicator slots get errors there; communicators without it continue.
fn death_in_a_room(world: &World) -> ExitCode {
    let rank = world.rank().0;
    let whole = world.split_by_color_with_key(0, -(rank as i32)).expect("a split").expect("a member");
    let rest = world.split_by_color((rank != 1).then_some(0)).expect("a split");
    let spare = world.split_by_color((rank != 1).then_some(0)).expect("a split");
    (0..4).for_each(|at| round_on(&whole, 0, world, at));
    if rank == 1 {
        kill_process(getpid(), Signal::KILL).expect("own process");
    }
    let (rest, spare) = (rest.expect("a member"), spare.expect("a member"));
    let error = loop {
        if let Err(error) = whole.all_reduce_in_place(&mut [1_u64], SystemOperation::sum()) {
            break error;
        }
    };
    let dead = Rank(whole.size() - 2);
    assert!(matches!(error, CollectiveError::Missing { rank, .. } if rank == dead), "{error}");
    assert!(
        whole.barrier().is_err() && whole.broadcast_into(&mut [0_u8; 1 << 20], Rank(0)).is_err(),
        "it stays failed"
    );
    (0..4).for_each(|at| round_on(&rest, 1, world, at));
    // A failure over messages also ends the slot, and the other way round.
    if rank == 0 {
        spare.revoke();
    }
    let ended = loop {
        if let Err(error) = spare.barrier() {
            break error;
        }
    };
    assert!(matches!(ended, CollectiveError::Revoked), "{ended}");
    // A slot is free for the survivors although one of its members never freed it.
    drop((whole, spare));
    for at in 0..20 {
        let again = rest.duplicate().expect("a duplicate");
        round_on(&again, 2, world, at);
    }
    println!("went on");
    ExitCode::SUCCESS
}

/// The log output while communicators are created.
static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Logged;

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// More creations fail than there are slots, with rank 3 a member of none: the slots stay available.
fn rooms_survive_refusals(world: &World) {
    let group = world.group().exclude(&[Rank(3)]).expect("members");
    let other = group.exclude(&[Rank(0)]).expect("members");
    for _ in 0..10 {
        let given = if world.rank() == Rank(2) { &other } else { &group };
        match world.split_by_subgroup_collective(given) {
            Ok(None) => assert_eq!(world.rank(), Rank(3)),
            made => assert!(matches!(made.map(|_| ()), Err(CreateError::Disagrees(_)))),
        }
        world.barrier().expect("a barrier");
    }
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::DEBUG).with_writer(|| Logged);
    let made = tracing::subscriber::with_default(subscriber.finish(), || world.duplicate().expect("a duplicate"));
    round_on(&made, 0, world, 1);
    let logged = String::from_utf8_lossy(&LOGGED.lock().expect("no panic")).into_owned();
    assert!(logged.contains("in_slot=true"), "{logged}");
}

/// A function of one rank panics where every rank combines its share: that rank continues, and the others report it as
/// missing.
fn panic_in_a_room(world: &World) {
    let whole = world.duplicate().expect("a duplicate");
    let own = whole.rank();
    let spoilt =
        UserOperation::commutative(move |l: &u64, r: &u64| if own == Rank(1) { panic!("spoilt") } else { l + r });
    let mut data = vec![1_u64; 5000];
    let call = || whole.all_reduce_in_place(&mut data, spoilt);
    let ended = std::panic::catch_unwind(core::panic::AssertUnwindSafe(call));
    match (own, ended) {
        (Rank(1), Err(panic)) => assert_eq!(panic.downcast_ref(), Some(&"spoilt")),
        (_, Ok(Err(CollectiveError::Missing { rank: Rank(1), .. }))) => {}
        (_, ended) => panic!("rank {own}: {:?}", ended.ok()),
    }
    let again = whole.barrier();
    assert!(matches!(again, Err(CollectiveError::Missing { rank: Rank(1), .. })), "{again:?}");
    // The rank stays alive until the others have their errors.
    assert_eq!(sum_of(world, world), (0..world.size()).sum::<u32>());
    println!("continued");
}

/// The same tags and lengths on three communicators at a time, received in another order than sent.
fn messages_stay_apart(world: &World) {
    let (rank, size) = (world.rank().0, world.size());
    let backwards = world.split_by_color_with_key(0, -(rank as i32)).expect("a split").expect("a member");
    let copy = world.duplicate().expect("a duplicate");
    let all: [&Communicator; 3] = [world, &backwards, &copy];
    for count in [1, 2, 100, 5000, 40_000] {
        let content = |on: usize, from: Rank| -> Vec<u64> {
            (0..count).map(|at| (on as u64) << 40 | u64::from(from.0) << 32 | at).collect()
        };
        let given: Vec<Vec<u64>> = (0..3).map(|on| content(on, world.rank())).collect();
        let mut into = vec![vec![0; count as usize]; 3];
        world.scope(|scope| {
            let right = |on: &Communicator| Rank((on.rank().0 + 1) % size);
            let sends: Vec<_> = (0..3)
                .map(|on| scope.on(all[on]).immediate_send(&given[on], right(all[on]), Tag(7)).expect("begun"))
                .collect();
            for (on, into) in into.iter_mut().enumerate().rev() {
                let left = Rank((all[on].rank().0 + size - 1) % size);
                // Any source means any member of this communicator.
                let source = (on != 1).then_some(left);
                let receive = scope.on(all[on]).immediate_receive_into(into, source, Tag(7)).expect("begun");
                let status = receive.wait().expect("a message");
                assert_eq!((status.source, status.tag, status.bytes), (left, Tag(7), 8 * count as usize));
            }
            sends.into_iter().for_each(|send| _ = send.wait().expect("sent"));
        });
        for (on, into) in into.iter().enumerate() {
            let left = all[on].group().world_rank(Rank((all[on].rank().0 + size - 1) % size)).expect("a member");
            assert_eq!(*into, content(on, left), "{count} on {on}");
        }
    }
    // A message that arrives with the first poll is reported as any other.
    for (on, count) in all.into_iter().flat_map(|on| [1, 2, 5, 100].map(|count| (on, count))) {
        let (left, right) = (Rank((on.rank().0 + size - 1) % size), Rank((on.rank().0 + 1) % size));
        for room in [count, 1] {
            on.send(&vec![on.rank().0; count], right, Tag(8)).expect("sent");
            // Most likely it has arrived, and nothing has polled.
            thread::sleep(Duration::from_millis(1));
            let (mut into, bytes) = (vec![size; room], 4 * count);
            let received = on.receive_into(&mut into, left, Tag(8));
            if room < count {
                assert_eq!(received, Err(Failure::Truncated { bytes: bytes as u64 }));
            } else {
                assert_eq!(received, Ok(Status { source: left, tag: Tag(8), bytes }));
                assert_eq!(into, vec![left.0; count]);
            }
        }
    }
    assert_eq!(copy.send(&[1_u8], Rank(size), Tag(0)), Err(Failure::UnknownRank(Rank(size))));
    // Freed by its sender while its message is in flight or unexpected: not reused before it is received.
    if rank == 0 {
        copy.send(&[41_u32], Rank(1), Tag(9)).expect("sent");
        drop(copy);
        for round in 0..50_u32 {
            let other = world.duplicate().expect("a duplicate");
            other.send(&[round], Rank(1), Tag(9)).expect("sent");
        }
    } else {
        for round in 0..50_u32 {
            let (other, mut into) = (world.duplicate().expect("a duplicate"), [0]);
            if rank == 1 {
                other.receive_any_into(&mut into, None).expect("a message");
                assert_eq!(into, [round]);
            }
        }
        let mut into = [0_u32];
        if rank == 1 {
            copy.receive_any_into(&mut into, None).expect("a message");
            assert_eq!(into, [41]);
        }
    }
    world.barrier().expect("a barrier");
}

/// A communicator that three ranks have freed, and the fourth revokes then, does not affect another one of the same
/// context; and one that a member revokes before others have started to use it is revoked there, too.
fn revoked_before_and_after(world: &World) {
    let (rank, last) = (world.rank(), Rank(3));
    let dropped = world.duplicate().expect("a duplicate");
    if rank == last {
        (0..3).for_each(|from| _ = world.receive_into(&mut [0_u8], Rank(from), Tag(1)).expect("it was dropped"));
        dropped.revoke();
        (0..3).for_each(|to| world.send(&[0_u8], Rank(to), Tag(2)).expect("sent"));
    } else {
        drop(dropped);
        world.send(&[0_u8], last, Tag(1)).expect("sent");
        world.receive_into(&mut [0_u8], last, Tag(2)).expect("revoked");
    }
    // Time for the wait on the missing ranks.
    thread::sleep(Duration::from_millis(if rank == Rank(1) { 50 } else { 0 }));
    world.barrier().expect("a barrier");
    let few = world.split_by_color(u32::from(rank == last)).expect("a split").expect("a member");
    for _ in 0..3 {
        let all = world.duplicate().expect("a duplicate");
        world.barrier().expect("a barrier");
        if rank == last {
            world.receive_into(&mut [0_u8], Rank(0), Tag(1)).expect("they have the other one");
            all.revoke();
            (0..3).for_each(|to| world.send(&[0_u8], Rank(to), Tag(2)).expect("sent"));
            continue;
        }
        drop(all);
        let other = few.duplicate().expect("another one");
        if rank == Rank(0) {
            world.send(&[0_u8], last, Tag(1)).expect("sent");
        }
        // After the revocation.
        world.receive_into(&mut [0_u8], last, Tag(2)).expect("revoked");
        assert_eq!(sum_of(&other, world), 3);
        assert!(!other.is_revoked());
    }
    for _ in 0..100 {
        let early = world.split_by_color(0).expect("a split").expect("a member");
        if rank == last {
            early.revoke();
        } else {
            let ended = early.receive_into(&mut [0_u8], last, Tag(3)).map(|_| ());
            assert_eq!(ended, Err(Failure::Revoked));
        }
    }
}

/// One rank waits for a message, one for a receive, one in a collective, and the last one revokes the communicator.
fn revoked(world: &World) {
    let kept = world.duplicate().expect("a duplicate");
    for round in 0..3 {
        let backwards = kept.split_by_color_with_key(0, -(world.rank().0 as i32)).expect("a split").expect("a member");
        let on: &Communicator = if round < 2 { &backwards } else { world };
        assert!(!on.is_revoked());
        let ended = match on.rank() {
            Rank(0) => {
                thread::sleep(Duration::from_millis(30));
                on.revoke();
                on.send(&[1_u8], Rank(1), Tag(1))
            }
            Rank(1) => on.receive_into(&mut [0_u64; 4], Rank(0), Tag(1)).map(|_| ()),
            Rank(2) if round == 1 => on.send(&vec![1_u8; 1 << 20], Rank(0), Tag(1)),
            Rank(2) => on.synchronous_send(&[1_u8], Rank(0), Tag(1)),
            _ => match on.all_reduce_in_place(&mut [1.0_f64], SystemOperation::sum()) {
                Err(CollectiveError::Revoked) => Err(Failure::Revoked),
                other => panic!("{other:?}"),
            },
        };
        assert_eq!(ended, Err(Failure::Revoked), "rank {} of {round}", on.rank());
        assert!(on.is_revoked());
        assert_eq!(on.barrier(), Err(CollectiveError::Revoked));
        assert_eq!(on.broadcast_into(&mut [1_u8], Rank(3)), Err(CollectiveError::Revoked));
        assert_eq!(on.probe(Rank(2), None).map(|_| ()), Err(Failure::Revoked));
        assert_eq!(on.receive_any_into(&mut [1_u8], None).map(|_| ()), Err(Failure::Revoked));
        assert!(matches!(on.duplicate().map(|_| ()), Err(CreateError::Collective(CollectiveError::Revoked))));
        on.revoke();
        // Other communicators continue.
        assert_eq!(sum_of(&kept, world), (0..world.size()).sum::<u32>());
        let (right, left) = ((world.rank().0 + 1) % 4, (world.rank().0 + 3) % 4);
        let mut into = [0];
        kept.send(&[round], Rank(right), Tag(1)).expect("sent");
        kept.receive_into(&mut into, Rank(left), Tag(1)).expect("a message");
        assert_eq!(into, [round]);
    }
}

/// A matched probe took a message of a synchronous send, and its communicator is revoked.
fn taken_out_and_revoked(world: &World) {
    for length in [8, 200_000] {
        for is_held in [false, true] {
            let on = world.duplicate().expect("a duplicate");
            match world.rank() {
                Rank(0) => {
                    let ended = on.synchronous_send(&vec![1_u8; length], Rank(1), Tag(1));
                    assert_eq!(ended, Err(Failure::Revoked), "{length} bytes, {is_held}");
                    world.send(&[1_u8], Rank(1), Tag(2)).expect("sent");
                }
                Rank(1) => {
                    let message = on.matched_probe(Rank(0), Tag(1)).expect("a message");
                    assert_eq!(message.status().bytes, length);
                    on.revoke();
                    let message = if is_held { Some(message) } else { None };
                    world.receive_into(&mut [0_u8], Rank(0), Tag(2)).expect("its sender got an error");
                    let ended = message.map(|message| message.receive_into(&mut vec![0_u8; length]).map(|_| ()));
                    assert!(ended.is_none_or(|ended| ended == Err(Failure::Revoked)));
                }
                _ => {}
            }
            world.barrier().expect("a barrier");
        }
    }
}

/// Calls that need no other rank fail, too.
fn of_one(world: &World) {
    let on = world.split_by_color(world.rank().0).expect("a split").expect("a member");
    let (sum, mut data) = (SystemOperation::sum(), [1_u64]);
    let (mut kept, mut into) = ([1_u64], [0_u64]);
    on.scope(|scope| {
        let mut again = scope.persistent_all_reduce_into(&mut kept, &mut into, sum).expect("prepared");
        again.start().expect("started");
        again.wait().expect("a sum");
        on.revoke();
        let revoked = Err(CollectiveError::Revoked);
        assert_eq!([on.barrier(), on.all_reduce_in_place(&mut data, sum), again.start()], [revoked; 3]);
        let begun = scope.immediate_all_reduce_in_place(&mut data, sum).map(|_| ());
        assert_eq!([begun, scope.persistent_barrier().map(|_| ())], [revoked; 2]);
    });
    let made = on.duplicate().map(|_| ());
    assert!(matches!(made, Err(CreateError::Collective(CollectiveError::Revoked))), "{made:?}");
    on.shrink().expect("the others live").barrier().expect("a barrier");
}

/// Each thread uses communicators of its own: contexts stay separate, and no thread hangs.
/// A thread makes a communicator of this rank alone while another one waits for all ranks, which wait for that.
fn alone(world: &World) {
    let alone = world.split_by_color(world.rank().0).expect("a part").expect("a member");
    let ready = world.duplicate().expect("a duplicate");
    thread::scope(|scope| {
        if world.rank() == Rank(0) {
            scope.spawn(|| world.duplicate().expect("a duplicate"));
            thread::sleep(Duration::from_millis(100));
            let twin = alone.duplicate().expect("a duplicate");
            assert_eq!((twin.size(), twin.rank()), (1, Rank(0)));
            twin.barrier().expect("a barrier of one");
            ready.barrier().expect("a barrier");
        } else {
            ready.barrier().expect("a barrier");
            world.duplicate().expect("a duplicate");
        }
    });
}

/// The other ranks duplicate the first communicator when they have a duplicate of the second.
fn overtaken(world: &World) {
    let [first, second] = [(); 2].map(|()| world.duplicate().expect("a duplicate"));
    let check = |made: Result<Communicator, CreateError>| made.expect("a duplicate").barrier().expect("a barrier");
    thread::scope(|scope| {
        if world.rank() == Rank(0) {
            scope.spawn(|| check(first.duplicate()));
            thread::sleep(Duration::from_millis(100));
            check(second.duplicate());
        } else {
            check(second.duplicate());
            check(first.duplicate());
        }
    });
}

fn threads_make_communicators(world: &World) {
    let parents = [world.duplicate(), world.duplicate(), world.split_by_color(0).map(|all| all.expect("a member"))];
    let everyone = (0..world.size()).sum::<u32>();
    thread::scope(|scope| {
        for parent in parents {
            let mut last = parent.expect("a communicator");
            scope.spawn(move || {
                for round in 0..40_u32 {
                    let next = if round % 3 == 0 {
                        last.shrink().expect("survivors")
                    } else {
                        last.duplicate().expect("a duplicate")
                    };
                    let mut sums = [world.rank().0, round];
                    next.all_reduce_in_place(&mut sums, SystemOperation::sum()).expect("an allreduce");
                    assert_eq!(sums, [everyone, round * world.size()]);
                    last = next;
                }
            });
        }
    });
}

fn agree(world: &World) {
    let backwards = world.split_by_color_with_key(0, -(world.rank().0 as i32)).expect("a split").expect("a member");
    for round in 0..20_u64 {
        let given = |rank: u32| !(1 << (u64::from(rank) + round));
        let all = (0..world.size()).fold(u64::MAX, |all, rank| all & given(rank));
        let on = if round % 2 == 0 { world } else { &backwards as &Communicator };
        let agreed = on.agree(given(world.rank().0)).expect("an agreement");
        assert_eq!((agreed.flags, agreed.failed.size()), (all, 0));
    }
    let same = backwards.shrink().expect("a communicator");
    assert_eq!((same.group(), same.rank()), (backwards.group(), backwards.rank()));
    // Also on a communicator on which nothing else is possible.
    backwards.revoke();
    assert_eq!(backwards.agree(5).map(|agreed| agreed.flags), Ok(5));
    let again = backwards.shrink().expect("a communicator");
    assert_eq!(sum_of(&again, world), (0..world.size()).sum::<u32>());
    assert_eq!(sum_of(&same, world), (0..world.size()).sum::<u32>());
}

/// Two ranks are killed during collectives, one after the other; the others continue without them.
fn survive(world: &World, seed: u64) {
    let mut on = None;
    for death in 0..2_u32 {
        let mut random = fastrand::Rng::with_seed(2 * seed + u64::from(death));
        let now: &Communicator = on.as_ref().unwrap_or(world);
        let (victim, after) = (Rank(random.u32(..now.size())), Duration::from_micros(random.u64(100..8000)));
        let count = [1, 3000, 60_000][seed as usize % 3];
        if now.rank() == victim {
            thread::spawn(move || {
                thread::sleep(after);
                kill_process(getpid(), Signal::KILL).expect("own process");
            });
        }
        let mut all = vec![0; now.size() as usize * count];
        let started = Instant::now();
        let error = loop {
            let ended = match random.u32(..4) {
                0 => now.barrier(),
                1 => now.broadcast_into(&mut all[..count], Rank(random.u32(..now.size()))),
                2 => now.all_gather_into(&vec![1_i64; count], &mut all),
                _ => now.all_reduce_in_place(&mut all, SystemOperation::max()),
            };
            if let Err(error) = ended {
                break error;
            }
        };
        match error {
            CollectiveError::Missing { rank, .. } => assert_eq!(rank, victim, "{error}"),
            CollectiveError::Revoked => {}
            other => panic!("{other:?}"),
        }
        now.revoke();
        let agreed = now.agree(u64::from(now.rank() != victim)).expect("an agreement");
        assert_eq!(agreed.flags, 1);
        let next = now.shrink().expect("a communicator");
        assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
        assert_eq!(next.group(), now.group().exclude(&[victim]).expect("a member"));
        assert_eq!(now.failed(), now.group().include(&[victim]).expect("a member"));
        assert_eq!(now.barrier(), Err(CollectiveError::Revoked));
        let ranks = next.group();
        for _ in 0..20 {
            assert_eq!(sum_of(&next, world), ranks.iter().map(|rank| rank.0).sum::<u32>());
            let (right, left) = ((next.rank().0 + 1) % next.size(), (next.rank().0 + next.size() - 1) % next.size());
            let mut into = [0];
            next.send(&[world.rank().0 + death], Rank(right), Tag(3)).expect("sent");
            let status = next.receive_any_into(&mut into, Some(Tag(3))).expect("a message");
            assert_eq!(
                (status.source, into[0] - death),
                (Rank(left), ranks.world_rank(Rank(left)).expect("a member").0)
            );
        }
        // No rank fails before all have reached this point.
        next.agree(0).expect("an agreement");
        on = Some(next);
    }
    println!("went on");
}

fn misuse(world: &World) {
    let (rank, size) = (world.rank(), world.size());
    let pair = world.split_by_color(u32::from(rank.0 > 1)).expect("a split").expect("a member");
    // Ranks are those of the communicator.
    let unknown = CollectiveError::UnknownRank { rank: Rank(2), size: pair.size() };
    assert_eq!(pair.broadcast_into(&mut [0_u8], Rank(2)), Err(unknown));
    let length = CollectiveError::Length { needed: 2 * pair.size() as usize, given: 1 };
    assert_eq!(pair.all_gather_into(&[1_u8, 2], &mut [0]), Err(length));
    assert_eq!(
        pair.all_reduce_into(&[1.0_f32], &mut [0.0], SystemOperation::bitwise_or()),
        Err(CollectiveError::Undefined)
    );
    // A group of non-members, and groups that differ.
    let everyone = world.group();
    let refused = pair.split_by_subgroup_collective(&everyone).map(|_| ());
    assert!(matches!(refused, Err(CreateError::NotMember(_))), "{refused:?}");
    let group = if rank.0 == 2 { everyone.exclude(&[Rank(0)]).expect("members") } else { everyone };
    let refused = world.split_by_subgroup_collective(&group).map(|_| ());
    assert!(matches!(refused, Err(CreateError::Disagrees(_))), "{refused:?}");
    // None of these affected the World.
    let whole = world.duplicate().expect("a duplicate");
    assert_eq!(sum_of(&whole, world), (0..size).sum::<u32>());
    // Calls that differ between ranks fail on this communicator only, and name the ranks.
    let backwards = world.split_by_color_with_key(0, -(rank.0 as i32)).expect("a split").expect("a member");
    let count = if rank.0 == 0 { 3 } else { 2 };
    let ended = backwards.all_reduce_in_place(&mut vec![1_u64; count], SystemOperation::sum());
    let Err(CollectiveError::Disagrees { rank: named, .. } | CollectiveError::Missing { rank: named, .. }) = ended
    else {
        panic!("{ended:?}")
    };
    assert!(named.0 < size && named != backwards.rank(), "{named}");
    assert_eq!(backwards.barrier().err().map(|_| ()), Some(()), "it stays failed");
    // Also if some of them would use another transport than the others.
    let odd = rank.0 == 0;
    for misuse in 0..3 {
        let other = world.duplicate().expect("a duplicate");
        let mut data = vec![1_u64; if odd { 200_000 } else { 2 * size as usize }];
        let ended = match misuse {
            0 => other.all_reduce_in_place(&mut data, SystemOperation::sum()),
            1 if odd => other.all_gather_in_place(&mut data[..2 * size as usize]),
            1 => other.all_gather_into(&[1, 2], &mut data),
            _ if odd => other.all_gather_into(&[1, 2], &mut data[..2 * size as usize]),
            _ => other.barrier(),
        };
        let is_told = matches!(ended, Err(CollectiveError::Disagrees { .. } | CollectiveError::Missing { .. }));
        assert!(is_told, "{misuse}: {ended:?}");
    }
    assert_eq!(sum_of(&whole, world), (0..size).sum::<u32>());
}

fn late(world: World) -> ExitCode {
    let copy = world.duplicate().expect("a duplicate");
    let alone = world.split_by_color(world.rank().0).expect("a split").expect("a member");
    world.finish().expect("a good end");
    assert_eq!(copy.barrier(), Err(CollectiveError::Ended(Failure::Finished)));
    assert!(matches!(copy.duplicate().map(|_| ()), Err(CreateError::Collective(CollectiveError::Ended(_)))));
    assert_eq!(alone.size(), 1);
    assert_eq!(copy.send(&[1_u8], Rank(0), Tag(0)), Err(Failure::Finished));
    println!("finished");
    ExitCode::SUCCESS
}
