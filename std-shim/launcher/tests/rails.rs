//! Jobs whose ranks reach each other over several rails, one of which may be cut. This program is their rank program,
//! too.

mod program;

use core::time::Duration;
use std::env;
use std::process::ExitCode;
use std::time::Instant;

use program::{expect, run};
use unisono::collective::SystemOperation;
use unisono::environment::{DeviceChoice, Integrity, RailPlace, RailsChoice, RailsMax};
use unisono::{Rank, Settings, Tag, World};

/// Longest time that a rank waits for the death or the return of a rail.
const BOUND: Duration = Duration::from_secs(60);
/// Numbers in a large allreduce, bytes of a message.
const NUMBERS: usize = 8_000;
const MESSAGE: usize = 20_000;

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        match env::args().nth(1).as_deref() {
            Some("work") => work(),
            Some("cut") => cut(false),
            Some("return") => cut(true),
            Some("differ") => differ(),
            Some("ports") => ports(),
            Some("added") => added(),
            Some("one") => one_wants_checksums(),
            Some("refused") => println!("{}", World::join().err().expect("no such rail")),
            _ => panic!("a part"),
        }
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("every_rail_carries_messages", every_rail_carries_messages),
        ("each_port_of_a_schedule_has_a_rail", each_port_of_a_schedule_has_a_rail),
        ("a_cut_amid_allreduces_loses_nothing", a_cut_amid_allreduces_loses_nothing),
        ("a_rail_that_returns_is_used_again", a_rail_that_returns_is_used_again),
        ("a_rail_that_is_added_carries_messages", a_rail_that_is_added_carries_messages),
        ("rails_that_do_not_fit_are_refused", rails_that_do_not_fit_are_refused),
        ("checksums_are_agreed_on", checksums_are_agreed_on),
    ])
}

/// The statistics of the ranks.
fn stats(options: &str, part: &str, lines: &[&str]) -> Vec<serde_json::Value> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let options = format!("{options} --stats-file {}", file.path().display());
    expect(&run(&options, part), 0, lines);
    let text = std::fs::read_to_string(file.path()).expect("the statistics");
    let stats: Vec<_> = text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert!(!stats.is_empty());
    stats
}

/// A counter of each rail.
fn of_rails(stats: &serde_json::Value, name: &str) -> Vec<u64> {
    let rails = stats["rails"].as_array().expect("a list");
    rails.iter().map(|rail| rail[name].as_u64().expect("a number")).collect()
}

fn every_rail_carries_messages() {
    for (options, rails) in [
        ("-n 2 --device udp --rails 2 --mtu 1400", 2),
        ("-n 4 --nodes 2 --rails 127.0.0.1,127.0.0.2,::1 --mtu 1400 --loss 1% --reorder 1% --dup 1%", 3),
        ("-n 3 --device udp --rails 4 --mtu 4000 --gso off --progress hybrid", 4),
        ("-n 4 --nodes 4 --rails lo,127.0.0.0/8 --mtu 1400 --progress thread", 2),
    ] {
        for rank in stats(options, "work", &[]) {
            let (sent, received) = (of_rails(&rank, "bytes_sent"), of_rails(&rank, "bytes_received"));
            assert_eq!((sent.len(), received.len()), (rails, rails), "{options}: {rank}");
            for bytes in [&sent, &received] {
                let all: u64 = bytes.iter().sum();
                assert!(bytes.iter().all(|bytes| *bytes > all / 200), "{options}: {bytes:?}");
            }
        }
    }
}

fn each_port_of_a_schedule_has_a_rail() {
    for options in [
        "-n 3 --device udp --rails 2 --mtu 1400 --gather direct:k=2",
        "-n 3 --device udp --rails 2 --mtu 1400 --gather direct:k=2 --loss 1% --progress hybrid",
    ] {
        expect(&run(options, "ports"), 0, &["rank 1 sends over rail 0", "rank 2 sends over rail 1"]);
    }
}

fn a_cut_amid_allreduces_loses_nothing() {
    for options in [
        "-n 2 --device udp --rails 2 --mtu 1400 --cut 1@100",
        "-n 4 --nodes 2 --rails 3 --mtu 1400 --cut 1@200 --loss 1%",
        "-n 3 --device udp --rails 2 --mtu 1400 --cut 1@150 --progress hybrid",
    ] {
        for rank in stats(options, "cut", &[]) {
            assert!(of_rails(&rank, "injected_cut")[1] > 0 && of_rails(&rank, "deaths")[1] > 0, "{options}: {rank}");
            assert_eq!(&rank["rails"][1]["alive"], &false, "{options}: {rank}");
        }
    }
}

fn a_rail_that_returns_is_used_again() {
    // The first rail, over which control messages prefer to leave.
    for rank in stats("-n 2 --device udp --rails 2 --mtu 1400 --cut 0@100+300", "return", &[]) {
        assert!(of_rails(&rank, "injected_cut")[0] > 0 && of_rails(&rank, "deaths")[0] > 0, "{rank}");
    }
}

fn a_rail_that_is_added_carries_messages() {
    for (options, used) in [
        ("-n 2 --device udp --rails-max 2 --mtu 1400", 2),
        ("-n 4 --nodes 2 --rails-max 3 --mtu 1400 --loss 1%", 2),
        ("-n 3 --device udp --rails-max 2 --mtu 1400 --progress hybrid", 2),
        ("-n 2 --device udp --rails 2 --rails-max 3 --mtu 1400 --progress thread", 3),
    ] {
        for rank in stats(options, "added", &[]) {
            let sent = of_rails(&rank, "bytes_sent");
            assert!(sent.iter().take(used).all(|bytes| *bytes > MESSAGE as u64), "{options}: {rank}");
            assert!(of_rails(&rank, "deaths").iter().all(|deaths| *deaths == 0), "{options}: {rank}");
        }
    }
}

fn rails_that_do_not_fit_are_refused() {
    let missing = "this host has no rail 240.0.0.0/8 (--rails, UNISONO_RAILS): no address of its interfaces, and no \
                   adapter, is there";
    expect(&run("-n 1 --rails lo,240.0.0.0/8", "refused"), 0, &[missing]);
    let refused = run("-n 2 --rails 5", "work");
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && errors.contains("a number of rails from 1 to 4"), "{errors}");
    let end = "start all ranks with as many (--rails, UNISONO_RAILS), and with as much room for more (--rails-max, \
               UNISONO_RAILS_MAX)";
    let differ = |max: [u32; 2], rank, theirs, own| {
        let [their_max, own_max] = max;
        format!(
            "rank {rank} starts with {theirs} rails of at most {their_max}, and this rank with {own} of at most \
             {own_max}: {end}"
        )
    };
    // The job ends with the first rank that leaves it.
    for (options, max) in
        [("-n 3 --device udp --rails 2", [2, 3]), ("-n 3 --device udp --rails 2 --rails-max 4", [4, 4])]
    {
        let refused = run(options, "differ");
        let printed = String::from_utf8_lossy(&refused.stdout).into_owned();
        let lines = [differ(max, 0, 2, 3), differ([max[1], max[0]], 2, 3, 2)];
        assert!(
            !printed.is_empty() && printed.lines().all(|line| lines.iter().any(|known| known == line)),
            "{printed}"
        );
    }
}

fn checksums_are_agreed_on() {
    for (options, part, integrity) in [
        ("-n 2 --device udp", "work", "link"),
        ("-n 2 --device udp --integrity crc32c", "work", "crc32c"),
        ("-n 2 --device udp --corrupt 1%", "work", "crc32c"),
        ("-n 3 --device udp", "one", "crc32c"),
    ] {
        for rank in stats(options, part, &[]) {
            assert_eq!(rank["integrity"], integrity, "{options}: {rank}");
        }
    }
    let refused = run("-n 2 --device udp --integrity link --corrupt 1%", "work");
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && errors.contains("found by crc32c only"), "{errors}");
}

/// A message to the next rank and one from the previous, and two allreduces; checks all of them.
fn round(world: &World, number: u32) {
    let (rank, size) = (world.rank().0, world.size());
    let content = |rank: u32| (0..MESSAGE as u32).map(move |i| (i ^ number.wrapping_mul(31) ^ rank << 5) as u8);
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let data: Vec<u8> = content(rank).collect();
    let mut arrived = vec![0; MESSAGE];
    world
        .scope(|scope| {
            let receive = scope.immediate_receive_into(&mut arrived[..], Rank(previous), Tag(0))?;
            let send = scope.immediate_send(&data[..], Rank(next), Tag(0))?;
            receive.wait()?;
            send.wait()
        })
        .expect("messages");
    assert!(arrived.iter().copied().eq(content(previous)), "round {number}");
    let mut sums: Vec<u64> = (0..NUMBERS as u64).map(|i| i + u64::from(number) + u64::from(rank)).collect();
    world.all_reduce_in_place(&mut sums, SystemOperation::sum()).expect("an allreduce");
    let ranks = u64::from(size) * u64::from(size - 1) / 2;
    let expected = |i: usize| (i as u64 + u64::from(number)) * u64::from(size) + ranks;
    assert!(sums.iter().enumerate().all(|(i, sum)| *sum == expected(i)), "round {number}");
}

/// Whether all ranks say yes.
fn all(world: &World, yes: bool) -> bool {
    let mut votes = [u32::from(yes)];
    world.all_reduce_in_place(&mut votes, SystemOperation::min()).expect("an allreduce");
    votes == [1]
}

/// Rounds until all ranks say yes. Returns their number.
fn rounds_until(world: &World, first: u32, mut is_done: impl FnMut(&World) -> bool) -> u32 {
    let (mut number, start) = (first, Instant::now());
    loop {
        round(world, number);
        number += 1;
        if all(world, is_done(world)) {
            return number;
        }
        assert!(start.elapsed() < BOUND, "{:?}", world.rail_stats());
    }
}

fn work() {
    let world = World::join().expect("a world");
    rounds_until(&world, 0, {
        let mut rounds = 0;
        move |_| {
            rounds += 1;
            rounds >= 20
        }
    });
    world.finish().expect("a good end");
}

fn cut(returns: bool) {
    let world = World::join().expect("a world");
    let rail = usize::from(!returns);
    let state = |world: &World| world.rail_stats()[rail];
    // Another program cuts the wire of an adapter.
    let on_adapters = Settings::from_environment().expect("settings").transport.device == DeviceChoice::Verbs;
    let mut has_died = false;
    let number = rounds_until(&world, 0, |world| {
        let state = state(world);
        has_died |= (on_adapters || state.injected_cut > 0) && !state.is_alive;
        has_died
    });
    let before = state(&world).sent_bytes;
    let sent = |world: &World| state(world).sent_bytes - before;
    if returns {
        // It carries messages again.
        rounds_until(&world, number, |world| state(world).is_alive && sent(world) > MESSAGE as u64);
    } else {
        let mut rounds = 0;
        rounds_until(&world, number, |_| {
            rounds += 1;
            rounds >= 20
        });
        // An adapter takes probes, whatever becomes of them.
        let most = if on_adapters { MESSAGE as u64 } else { 0 };
        assert!(sent(&world) <= most, "a cut rail carries nothing");
    }
    world.finish().expect("a good end");
}

/// The two others send their parts to rank 0 over a port each.
fn ports() {
    let world = World::join().expect("a world");
    let sent = || world.rail_stats().iter().map(|rail| rail.sent_bytes).collect::<Vec<_>>();
    let (rank, before) = (world.rank().0, sent());
    for number in 0..20 {
        let own = vec![number ^ rank; NUMBERS];
        let mut parts = vec![0; if rank == 0 { 3 * NUMBERS } else { 0 }];
        world.gather_into(&own, &mut parts[..], Rank(0)).expect("a gather");
        assert!(parts.chunks(NUMBERS).zip(0..).all(|(part, of)| part.iter().all(|value| *value == number ^ of)));
    }
    let after: Vec<u64> = sent().iter().zip(&before).map(|(after, before)| after - before).collect();
    let most = (0..after.len()).max_by_key(|rail| after[*rail]).expect("rails");
    let least = after.iter().min().expect("rails");
    if rank > 0 {
        assert!(after[most] > 20 * least, "{after:?}");
        println!("rank {rank} sends over rail {most}");
    }
    world.finish().expect("a good end");
}

/// The ranks add a rail, one after the other.
fn added() {
    let world = World::join().expect("a world");
    let place: RailPlace = "127.0.0.2".parse().expect("an address");
    let before = world.rail_stats().len();
    let mut number = 0;
    for rank in 0..world.size() {
        for _ in 0..3 {
            round(&world, number);
            number += 1;
        }
        if rank == world.rank().0 {
            assert_eq!(world.add_rail(&place).expect("room"), before);
        }
    }
    rounds_until(&world, number, |world| {
        let rail = world.rail_stats()[before];
        rail.is_alive && rail.sent_bytes.min(rail.received_bytes) > MESSAGE as u64
    });
    let rails_max = Settings::from_environment().expect("settings").transport.rails_max.map_or(1, RailsMax::get);
    for _ in before + 1..rails_max.into() {
        world.add_rail(&place).expect("room");
    }
    let refused = world.add_rail(&place).map_err(|error| error.to_string()).expect_err("no room");
    assert!(refused.contains("--rails-max"), "{refused}");
    let missing = world.add_rail(&"240.0.0.0/8".parse().expect("a network")).expect_err("no such rail");
    assert!(missing.to_string().contains("this host has no rail 240.0.0.0/8"), "{missing}");
    world.finish().expect("a good end");
}

/// One rank has another number of rails.
fn differ() {
    let mut settings = Settings::from_environment().expect("settings");
    if settings.position.expect("a rank").rank == Rank(2) {
        settings.transport.rails = RailsChoice::Count(3);
    }
    println!("{}", World::join_as(&settings).err().expect("other rails"));
}

fn one_wants_checksums() {
    let mut settings = Settings::from_environment().expect("settings");
    if settings.position.expect("a rank").rank == Rank(1) {
        settings.transport.integrity = Some(Integrity::Crc32c);
    }
    let world = World::join_as(&settings).expect("a world");
    for number in 0..5 {
        round(&world, number);
    }
    world.finish().expect("a good end");
}
