//! `--check`: a message that is received as another type than was sent is an error, and all others arrive as ever. This
//! program is its rank program, too.

mod program;

use std::env;
use std::process::{Command, ExitCode, Stdio};

use program::{expect, run};
use unisono::prelude::*;
use unisono::{Field, TypeCode};

/// All means, with several progress modes.
const MEANS: [&str; 6] = [
    "-n 1",
    "-n 3 --device shm",
    "-n 3 --device udp",
    "-n 4 --nodes 2 --progress hybrid",
    "-n 3 --nodes 2 --progress thread",
    "-n 3 --device udp --loss 5% --dup 2% --reorder 5% --seed 7",
];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        return play();
    }
    program::run_tests(&[
        ("another_type_is_an_error", || everywhere("types", "--check")),
        ("equal_types_arrive", || everywhere("messages", "--check")),
        ("unchecked_types_are_bytes", || everywhere("unchecked", "")),
        ("all_ranks_check_or_none", all_ranks_check_or_none),
    ])
}

fn everywhere(part: &str, option: &str) {
    for means in MEANS {
        let ranks = means.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number of ranks");
        expect(&run(&format!("{means} {option}"), part), 0, &vec!["right"; ranks]);
    }
}

fn all_ranks_check_or_none() {
    let own = env::current_exe().expect("this program");
    let script = "if [ $UNISONO_RANK = 1 ]; then export UNISONO_CHECK=off; fi; exec \"$0\" types";
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.args(["run", "-n", "2", "--check", "--", "sh", "-c", script]).arg(own).stdin(Stdio::null());
    let output = command.output().expect("unisono starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("differ"), "{errors}");
}

type Outcome = Result<(), Box<dyn core::error::Error>>;

fn play() -> ExitCode {
    let world = match World::join() {
        Ok(world) => world,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let played = match env::args().nth(1).as_deref() {
        Some("types") => types(&world),
        Some("messages") => messages(&world),
        _ => unchecked(&world),
    };
    if let Err(error) = played.and_then(|()| Ok(world.finish()?)) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    println!("right");
    ExitCode::SUCCESS
}

fn neighbours(world: &World) -> (Rank, Rank) {
    let (rank, size) = (world.rank().0, world.size());
    (Rank((rank + 1) % size), Rank((rank + size - 1) % size))
}

fn check(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// The error is that of a message from this rank, with these types.
fn is_mismatch<T>(received: Result<T, Failure>, from: Rank, types: [&str; 2]) -> Outcome {
    match received {
        Err(Failure::TypeMismatch { rank, sent, expected }) => {
            let named = (rank, sent.to_string(), expected.to_string());
            check(named == (from, types[0].to_owned(), types[1].to_owned()), &format!("{named:?}"))
        }
        Err(other) => Err(other.into()),
        Ok(_) => Err(format!("{types:?} was received").into()),
    }
}

#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Default)]
#[zerocopy(crate = "unisono::zerocopy")]
#[repr(C)]
struct Pair {
    one: u32,
    other: f32,
}

/// What was sent is of another type, at any length and on any way.
fn types(world: &World) -> Outcome {
    let (next, before) = neighbours(world);
    for count in [1, 100, 3000, 300_000] {
        let (sent, mut into) = (vec![7_u32; count], vec![0.0_f32; count]);
        world.scope(|scope| {
            let send = scope.immediate_send(&sent, next, Tag(1))?;
            is_mismatch(world.receive_into(&mut into, before, Tag(1)), before, ["u32", "f32"])?;
            send.wait()?;
            Ok::<(), Box<dyn core::error::Error>>(())
        })?;
        // A request, and a datatype.
        let column = Datatype::of::<u64>().vector(count, 1, 2)?;
        let mut words = vec![0_u64; 2 * count];
        let mut view = ViewMut::of(&mut words, 1, &column)?;
        world.scope(|scope| {
            let receive = scope.immediate_receive_into(&mut view, None, None)?;
            let send = scope.immediate_send(&sent, next, Tag(2))?;
            is_mismatch(receive.wait(), before, ["u32", "u64"])?;
            send.wait()?;
            Ok::<(), Box<dyn core::error::Error>>(())
        })?;
        world.barrier()?;
    }
    // A probed message, and one into a vector.
    world.scope(|scope| {
        let sends = [scope.immediate_send(&[1_i64], next, Tag(3))?, scope.immediate_send(&[1_i64], next, Tag(4))?];
        is_mismatch(world.matched_probe(before, Tag(3))?.receive_into(&mut [0_u64]), before, ["i64", "u64"])?;
        is_mismatch(world.receive::<u8>(before, Tag(4)), before, ["i64", "u8"])?;
        Ok::<(), Box<dyn core::error::Error>>(wait_all(&sends).map(|_| ())?)
    })?;
    // Structures.
    world.send(&[Pair::default()], world.rank(), Tag(5))?;
    let failed = world.receive_into(&mut [0_u32; 2], world.rank(), Tag(5));
    let is_named = |sent: TypeCode| sent.to_string().starts_with("a type of the program");
    check(matches!(failed, Err(Failure::TypeMismatch { sent, .. }) if is_named(sent)), "a structure is no number")?;
    // Structures of datatypes, with the same bytes, in another order of fields and in the same one.
    let field = |datatype, offset| Field { count: 1, offset, datatype };
    let [int, float] = [Datatype::of::<u32>(), Datatype::of::<f64>()];
    let one = Datatype::structure(&[field(&int, 0), field(&float, 8)])?;
    let other = Datatype::structure(&[field(&float, 0), field(&int, 8)])?;
    let (sent, mut into) = ([0_u64; 4], [0_u64; 4]);
    for (datatype, is_same) in [(&other, false), (&one, true)] {
        let view = View::bytes_of(&sent, 2, &one)?;
        world.scope(|scope| {
            let send = scope.immediate_send(&view, next, Tag(6))?;
            let received = world.receive_into(&mut ViewMut::bytes_of(&mut into, 2, datatype)?, before, Tag(6));
            let is_refused = matches!(received, Err(Failure::TypeMismatch { .. }));
            check(is_refused != is_same, &format!("structures of datatypes: {received:?}"))?;
            send.wait()?;
            Ok::<(), Box<dyn core::error::Error>>(())
        })?;
    }
    let failed = Error::from(failed.expect_err("another type"));
    check((failed.class(), failed.rank()) == (ErrorClass::Disagreement, Some(world.rank())), "the class")
}

/// Every kind of message with its own type.
fn messages(world: &World) -> Outcome {
    let ((next, before), own) = (neighbours(world), world.rank().0);
    for count in [0, 1, 100, 3000, 300_000] {
        let (sent, mut into) = (vec![own; count], vec![u32::MAX; count + 1]);
        let status = world.send_receive_into(&sent, next, Tag(1), &mut into, before, Tag(1))?;
        check(status.bytes == 4 * count && into[..count] == vec![before.0; count], "sent and received")?;
        check(into[count] == u32::MAX, "and no more")?;
        world.scope(|scope| {
            let sends =
                [scope.immediate_send(&sent, next, Tag(2))?, scope.immediate_synchronous_send(&sent, next, Tag(3))?];
            check(world.probe(before, Tag(2))?.bytes == 4 * count, "a probe returns the length")?;
            check(world.receive::<u32>(before, Tag(2))?.0 == vec![before.0; count], "received into a vector")?;
            let mut into = vec![0_u32; count];
            check(world.receive_into(&mut into, None, Tag(3))?.bytes == 4 * count, "from any rank")?;
            Ok::<(), Box<dyn core::error::Error>>(wait_all(&sends).map(|_| ())?)
        })?;
        // A message that is longer than its receive.
        if count > 0 {
            world.scope(|scope| {
                let send = scope.immediate_send(&sent, next, Tag(4))?;
                let failed = world.receive_into(&mut vec![0_u32; count - 1], before, Tag(4));
                check(failed == Err(Failure::Truncated { bytes: 4 * count as u64 }), "truncated")?;
                let _ = send.wait();
                Ok::<(), Box<dyn core::error::Error>>(())
            })?;
        }
    }
    // A column to a row, persistent and buffered messages, structures, values, and one that is withdrawn.
    let matrix: Vec<f64> = (0..12).map(f64::from).collect();
    let (column, mut row) = (Datatype::of::<f64>().vector(3, 1, 4)?, [0.0; 3]);
    let (mut last, view) = ([0_u8; 1], View::of(&matrix, 1, &column)?);
    let (mut data, mut into) = ([own; 3], [0; 3]);
    world.scope(|scope| {
        let send = scope.immediate_send(&view, next, Tag(5))?;
        world.receive_into(&mut row, before, Tag(5))?;
        send.wait()?;
        let withdrawn = scope.immediate_receive_into(&mut last, before, Tag(99))?;
        check(withdrawn.cancel(), "it has matched nothing")?;
        world.scope(|inner| {
            let mut send = inner.persistent_send(&mut data, next, Tag(6))?;
            let mut receive = inner.persistent_receive_into(&mut into, before, Tag(6))?;
            for _ in 0..3 {
                start_all([&mut receive, &mut send])?;
                check(receive.wait()?.bytes == 12 && receive.data()? == [before.0; 3], "a persistent receive")?;
                send.wait()?;
            }
            Ok::<(), Box<dyn core::error::Error>>(())
        })
    })?;
    check(row == [0.0, 4.0, 8.0], "a column")?;
    let mut buffer = world.attach_buffer(vec![0; 4096]);
    buffer.buffered_send(&[Pair { one: own, other: 0.5 }], next, Tag(7))?;
    check(world.receive::<Pair>(before, Tag(7))?.0[0].one == before.0, "a buffered message")?;
    buffer.detach().0?;
    world.send_values(&[('u', true)], world.rank(), Tag(8))?;
    check(world.receive_values::<(char, bool)>(world.rank(), Tag(8))?.0 == [('u', true)], "values")?;
    let mut sum = [1_u64];
    world.all_reduce_in_place(&mut sum, SystemOperation::sum())?;
    let half = world.split_by_color(Some(own % 2))?.ok_or("a member")?;
    half.barrier()?;
    check(sum == [u64::from(world.size())], "the sum")
}

/// Without the option a message is bytes.
fn unchecked(world: &World) -> Outcome {
    let (next, before) = neighbours(world);
    let mut into = [0.0_f32];
    world.send_receive_into(&[1.0_f32.to_bits()], next, Tag(1), &mut into, before, Tag(1))?;
    check(into == [1.0], "the bytes")
}
