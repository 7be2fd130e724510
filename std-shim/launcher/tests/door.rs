//! What a program finds in the prelude: numbers as buffers, values, peers, new vectors, futures, grids, node
//! communicators; and the statistics of a job. This program is its rank program, too.

mod program;

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Waker};
use std::env;
use std::process::{Command, ExitCode, Stdio};

use program::{command, expect, run};
use unisono::prelude::*;

const MEANS: [&str; 3] = ["--device shm", "--device udp", "--nodes 2"];

#[derive(Clone, Copy, PartialEq, Debug, Equivalence)]
struct Particle {
    is_charged: bool,
    place: [f64; 3],
    charge: (i8, char),
}

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let ended = World::join().map_err(Error::from).and_then(|world| {
            match env::args().nth(1).as_deref() {
                Some("peers") => peers(&world)?,
                Some("values") => values(&world)?,
                Some("futures") => futures(&world)?,
                Some("grid") => grid(&world),
                Some("node") => node(&world)?,
                Some("units") => units(&world)?,
                Some("location") => println!("{}", world.locations()?[world.rank().0 as usize].location),
                part => panic!("{part:?} is no part"),
            }
            Ok(world.finish()?)
        });
        return ended.map_or_else(|error| panic!("{error:?}"), |()| ExitCode::SUCCESS);
    }
    program::run_tests(&[
        ("peers_send_and_are_roots", || everywhere("peers")),
        ("values_that_are_no_plain_bytes_are_sent", || everywhere("values")),
        ("requests_are_futures", || everywhere("futures")),
        ("neighbours_of_a_grid_exchange_blocks", || everywhere("grid")),
        ("a_node_has_a_communicator", || {
            for (options, size) in [("-n 4", "4"), ("-n 4 --nodes 2", "2"), ("-n 4 --nodes 4", "1")] {
                expect(&run(options, "node"), 0, &[size; 4]);
            }
        }),
        ("units_of_a_node_have_communicators", || {
            for (options, sizes) in
                [("--sockets 2", "2 1 4"), ("--sockets 1", "4 2 4"), ("--nodes 2 --sockets 2", "1 1 2")]
            {
                expect(&run(&format!("-n 4 --caches 2 {options}"), "units"), 0, &[sizes; 4]);
            }
        }),
        ("units_are_those_of_a_file_of_hwloc", units_are_those_of_a_file_of_hwloc),
        ("statistics_are_written_for_every_rank", statistics_are_written_for_every_rank),
    ])
}

fn everywhere(part: &str) {
    MEANS.iter().for_each(|means| expect(&run(&format!("-n 4 {means}"), part), 0, &[]));
}

/// `HWLOC_XMLFILE` replaces sysfs in ranks and in `unisono info`, where the file can be used.
fn units_are_those_of_a_file_of_hwloc() {
    let file = env::temp_dir().join(format!("unisono-hwloc-{}.xml", std::process::id()));
    let info = || {
        let mut info = Command::new(env!("CARGO_BIN_EXE_unisono"));
        let output = info.args(["info"]).env("HWLOC_XMLFILE", &file).stdin(Stdio::null()).output().expect("starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{output:?}");
        (text(&output.stdout), text(&output.stderr))
    };
    let ranks = || command("-n 2", "location").env("HWLOC_XMLFILE", &file).stdin(Stdio::null()).output();
    let all = vec!["0xffffffff"; 32].join(",");
    let object = |kind: &str| format!(r#"<object type="{kind}" os_index="77" cpuset="{all}"/>"#);
    let objects = ["Package", "NUMANode", "L3Cache", "PU"].map(object).concat();
    let text = format!(r#"<topology version="2.0"><object type="Machine">{objects}</object></topology>"#);
    std::fs::write(&file, &text).expect("written");
    let (printed, errors) = info();
    assert!(
        printed.contains("\nlocation           socket=77,numa=77,cache=0\n") && errors.is_empty(),
        "{printed}{errors}"
    );
    // The ranks of a job on one host are at the loopback.
    let loopback = std::fs::read_to_string("/sys/class/net/lo/ifindex").expect("an index");
    let units = format!("socket=77,numa=77,cache=0,rail={}", loopback.trim());
    expect(&ranks().expect("starts"), 0, &[units.as_str(); 2]);
    std::fs::write(&file, &text[..text.len() - 1]).expect("written");
    let (printed, errors) = info();
    let reason = "cannot use the file of HWLOC_XMLFILE, using sysfs: it is not XML: ";
    assert!(!printed.contains("=77") && errors.contains(reason), "{printed}{errors}");
    let output = ranks().expect("starts");
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("=77"), "{output:?}");
    let _ = std::fs::remove_file(&file);
}

fn statistics_are_written_for_every_rank() {
    let file = env::temp_dir().join(format!("unisono-stats-{}", std::process::id()));
    let output = run(&format!("-n 4 --device udp --stats --stats-file {}", file.display()), "peers");
    expect(&output, 0, &[]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(printed.lines().filter(|line| line.contains(" ends: ")).count(), 4, "{printed}");
    let text = std::fs::read_to_string(&file).expect("written");
    let _ = std::fs::remove_file(&file);
    let mut ranks: Vec<u64> = text
        .lines()
        .map(|line| {
            let stats: serde_json::Value = serde_json::from_str(line).expect("JSON");
            // The message that is no whole number of elements was dropped.
            assert!(stats["sent"]["first"].as_u64() > Some(0) && stats["operations_failed"] == 1, "{line}");
            stats["rank"].as_u64().expect("a rank")
        })
        .collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1, 2, 3]);
}

fn next(world: &World) -> Rank {
    Rank((world.rank().0 + 1) % world.size())
}

fn previous(world: &World) -> Rank {
    Rank((world.rank().0 + world.size() - 1) % world.size())
}

fn peers(world: &World) -> Result<(), Error> {
    let own = world.rank().0;
    world.process_at_rank(next(world)).send(&vec![own; 3 + own as usize], Tag(1))?;
    let from = previous(world);
    let (received, status) = world.process_at_rank(from).receive::<u32>(Tag(1))?;
    assert_eq!((received, status.source), (vec![from.0; 3 + from.0 as usize], from));
    // A long message, and one that is no whole number of elements.
    let long = vec![own; 100_000];
    world.scope(|scope| {
        let send = scope.immediate_send(&long, next(world), Tag(2))?;
        assert_eq!(world.receive::<u32>(None, Tag(2))?.0, vec![from.0; 100_000]);
        send.wait().map(drop)
    })?;
    world.send(&[1_u8; 7], next(world), Tag(3))?;
    assert_eq!(world.receive::<u32>(from, Tag(3)).map(drop), Err(Failure::Truncated { bytes: 7 }));
    let root = world.process_at_rank(Rank(2));
    let (mut number, mut sum) = (own, 0);
    root.broadcast_into(&mut number)?;
    assert_eq!(number, 2);
    root.reduce_into(&own, &mut sum, SystemOperation::sum())?;
    assert_eq!(sum, if own == 2 { 6 } else { 0 });
    world.all_reduce_into(&own, &mut sum, SystemOperation::max())?;
    assert_eq!(sum, 3);
    Ok(())
}

fn values(world: &World) -> Result<(), Error> {
    let particle = |rank: Rank| Particle {
        is_charged: rank.0 % 2 == 1,
        place: [f64::from(rank.0); 3],
        charge: (-1, char::from_u32('α' as u32 + rank.0).expect("a character")),
    };
    let own = vec![particle(world.rank()); 2 + world.rank().0 as usize];
    world.send_values(&own, next(world), Tag(1))?;
    let (received, status) = world.receive_values::<Particle>(previous(world), Tag(1))?;
    assert_eq!(received, vec![particle(previous(world)); 2 + previous(world).0 as usize]);
    assert_eq!(status.bytes, received.len() * 30);
    let mut shared = [particle(world.rank())];
    world.broadcast_values(&mut shared, Rank(1))?;
    assert_eq!(shared, [particle(Rank(1))]);
    // Bytes that are no such values.
    world.send(&[7_u8; 30], next(world), Tag(2))?;
    let refused = world.receive_values::<Particle>(previous(world), Tag(2)).map(drop);
    assert_eq!(refused, Err(Failure::Truncated { bytes: 30 }));
    Ok(())
}

fn futures(world: &World) -> Result<(), Error> {
    let (own, mut received, mut sum) = ([world.rank().0; 1000], [0; 1000], [0_u32]);
    let (to, from) = (next(world), previous(world));
    world.scope(|scope| {
        let receive = scope.immediate_receive_into(&mut received, from, Tag(1))?;
        let send = scope.immediate_send(&own, to, Tag(1))?;
        let reduce = scope.immediate_all_reduce_into(&own[..1], &mut sum, SystemOperation::sum())?;
        let mut all = pin!(async move {
            reduce.await?;
            send.await?;
            Ok::<_, Error>(receive.await?)
        });
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let core::task::Poll::Ready(ended) = all.as_mut().poll(&mut context) {
                assert_eq!(ended?.source, from);
                return Ok::<_, Error>(());
            }
        }
    })?;
    assert_eq!((received, sum), ([from.0; 1000], [6]));
    Ok(())
}

fn grid(world: &World) {
    // With two points in a periodic dimension, both neighbours are one rank.
    for dimensions in [vec![(4, true)], vec![(2, true), (2, false)], vec![(3, false)], vec![(1, true), (4, false)]] {
        let grid = Grid::new(&dimensions);
        let made = world.cartesian(grid.clone()).expect("a communicator");
        let is_point = u64::from(world.rank().0) < grid.points();
        assert_eq!(made.is_some(), is_point);
        let Some(made) = made else { continue };
        let neighbours = grid.neighbours(made.communicator().rank());
        let own = made.communicator().rank().0;
        let mut all = vec![u32::MAX; neighbours.len()];
        made.neighbour_all_gather_into(&[own], &mut all).expect("gathered");
        let expected: Vec<u32> = neighbours.iter().map(|rank| rank.map_or(u32::MAX, |rank| rank.0)).collect();
        assert_eq!(all, expected, "{dimensions:?}");
        let to_each: Vec<u32> = (0..neighbours.len() as u32).map(|number| 10 * own + number).collect();
        made.neighbour_all_to_all_into(&to_each, &mut all).expect("exchanged");
        // What comes from the n-th neighbour was sent in the opposite direction.
        let sent =
            |(number, rank): (usize, &Option<Rank>)| rank.map_or(u32::MAX, |rank| 10 * rank.0 + (number as u32 ^ 1));
        assert_eq!(all, neighbours.iter().enumerate().map(sent).collect::<Vec<u32>>(), "{dimensions:?}");
    }
    assert!(world.cartesian(Grid::new(&[(5, true)])).is_err());
}

fn units(world: &World) -> Result<(), Error> {
    let [socket, cache, rail] =
        [SplitType::Socket, SplitType::Cache, SplitType::Rail].map(|unit| world.split_by_type(unit));
    println!("{} {} {}", socket?.size(), cache?.size(), rail?.size());
    let own = world.locations()?[world.rank().0 as usize].location;
    assert!(own.socket.is_some() && own.cache.is_some(), "{own}");
    Ok(())
}

fn node(world: &World) -> Result<(), Error> {
    println!("{}", world.split_by_type(SplitType::Shared)?.size());
    Ok(())
}
