//! User code that panics where the library calls it: no buffer is in use by the library when the panic reaches the
//! user. This program is the rank program, too.

mod program;

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::env;
use std::panic::{catch_unwind, panic_any};
use std::process::ExitCode;
use std::thread;

use program::{expect, run};
use tracing::subscriber::set_global_default;
use tracing::{Event, Metadata, Subscriber, span};
use unisono::collective::{CollectiveError, UserOperation, Vector, ViewMut};
use unisono::{Communicator, Rank, Tag, World};

const MEANS: [&str; 4] = ["-n 2", "-n 2 --device udp", "-n 2 --nodes 2 --progress hybrid", "-n 3 --nodes 2"];

fn main() -> ExitCode {
    if env::var_os("UNISONO_RANK").is_some() {
        let world = World::join().expect("a world");
        match env::args().nth(1).as_deref() {
            Some("again") => panic_again(&world),
            Some("several") => panic_several_times(&world),
            Some("drop") => drop_functions(&world),
            Some("subscriber") => panic_in_a_subscriber(&world),
            part => panic!("{part:?} is no part"),
        }
        world.finish().expect("a good end");
        return ExitCode::SUCCESS;
    }
    program::run_tests(&[
        ("a_function_that_has_panicked_is_not_called_again", || everywhere("again", &["caught"; 3])),
        ("panic_payloads_of_several_functions_are_dropped_at_the_end", || everywhere("several", &["waited"])),
        ("a_function_may_use_the_world_when_it_is_dropped", || everywhere("drop", &[])),
        ("no_panic_leaves_a_buffer_in_use", || {
            for means in MEANS {
                expect(&run(&format!("{means} --on-death tell"), "subscriber"), 134, &[]);
            }
        }),
    ])
}

fn everywhere(part: &str, lines: &[&str]) {
    for means in MEANS {
        let ranks = if means.starts_with("-n 3") { 3 } else { 2 };
        expect(&run(&format!("{means} --on-death tell"), part), 0, lines.get(..ranks).unwrap_or(lines));
    }
}

/// A panic payload that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(thread::panicking(), "a second panic");
    }
}

fn spoilt(by: Rank) -> impl FnMut(&u64, &u64) -> u64 + Clone + Send {
    move |left: &u64, right: &u64| if by == Rank(0) { panic_any(Bomb) } else { left + right }
}

/// Whether `call` panicked. Leaks its payload.
fn has_panicked(call: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(call)).map_err(core::mem::forget).is_err()
}

/// Strided elements: the function would be called for each row.
fn panic_again(world: &World) {
    let own = world.rank();
    let mut data = [1_u64; 64];
    let mut ended = Ok(());
    let panicked = has_panicked(|| {
        let mut rows = ViewMut::new(&mut data, 1, Vector::new(16, 1, 4)).expect("rows");
        ended = world.all_reduce_in_place(&mut rows, UserOperation::commutative(spoilt(own)));
    });
    assert_eq!(panicked, own == Rank(0));
    let next = ended.and_then(|()| world.barrier());
    assert!(matches!(next, Err(CollectiveError::Missing { rank: Rank(0), .. })), "{next:?}");
    println!("caught");
}

/// The scope waits for the receive, although two functions have panicked before.
fn panic_several_times(world: &World) {
    let own = world.rank();
    let others: Vec<Communicator> = (0..3).map(|_| world.duplicate().expect("another")).collect();
    let [first, second, third] = others.as_slice() else { panic!("three") };
    if own == Rank(0) {
        let (mut a, mut b, mut received) = ([1_u64; 4], [1_u64; 4], [0_u8; 4]);
        let panicked = has_panicked(|| {
            world.scope(|scope| {
                let spoilt = UserOperation::commutative(spoilt(own));
                let _ = scope.on(first).immediate_all_reduce_in_place(&mut a, spoilt.clone());
                let _ = scope.on(second).immediate_all_reduce_in_place(&mut b, spoilt);
                let _ = scope.on(third).immediate_receive_into(&mut received, Rank(1), Tag(1));
            });
        });
        assert_eq!((panicked, received), (true, [7; 4]));
        println!("waited");
    } else {
        for on in [first, second] {
            let (mut data, sum) = ([1_u64; 4], UserOperation::commutative(spoilt(own)));
            let ended = on.scope(|scope| scope.immediate_all_reduce_in_place(&mut data, sum)?.wait());
            let next = ended.and_then(|()| on.barrier());
            assert!(matches!(next, Err(CollectiveError::Missing { rank: Rank(0), .. })), "{next:?}");
        }
        if own == Rank(1) {
            thread::sleep(Duration::from_millis(200));
            third.send(&[7_u8; 4], Rank(0), Tag(1)).expect("sent");
        }
    }
}

/// Calls a collective when it is dropped.
struct Calls<'a>(&'a World);

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        self.0.barrier().expect("all drop theirs");
    }
}

/// Functions that own communicators, whose drop takes the World's lock, or that call collectives in their drop.
fn drop_functions(world: &World) {
    let owning = || {
        let owned = world.duplicate().expect("another");
        UserOperation::commutative(move |left: &u64, right: &u64| left + right + u64::from(owned.size() == 0))
    };
    let (mut a, mut b, mut c, mut d) = ([1_u64], [1_u64], [1_u64], [1_u64]);
    world.scope(|scope| {
        scope.immediate_all_reduce_in_place(&mut a, owning()).expect("begun").wait().expect("done");
        drop(scope.immediate_all_reduce_in_place(&mut b, owning()).expect("begun"));
        let mut kept = scope.persistent_all_reduce_in_place(&mut c, owning()).expect("made");
        kept.start().expect("started");
        kept.wait().expect("done");
        drop(kept);
        core::mem::forget(scope.persistent_all_reduce_in_place(&mut d, owning()).expect("made"));
    });
    assert_eq!([a, b, c, d].map(|[sum]| sum), [1, 1, 1, 0].map(|more| 1 + u64::from(world.size() - 1) * more));
    let (mut e, calls) = ([1_u64], Calls(world));
    let sum = move |left: &u64, right: &u64| left + right + u64::from(calls.0.size() == 0);
    world.all_reduce_in_place(&mut e, UserOperation::commutative(sum)).expect("done");
    assert_eq!(e, [u64::from(world.size())]);
    let (refused, owned) = (world.duplicate().expect("another"), owning());
    refused.revoke();
    let ended = refused.scope(|scope| scope.immediate_all_reduce_in_place(&mut a, owned).map(|_| ()));
    assert_eq!(ended, Err(CollectiveError::Revoked));
}

/// A subscriber panics on the failure event during the progress that a receive makes: the process aborts before the
/// buffer is used again.
fn panic_in_a_subscriber(world: &World) {
    if world.rank() == Rank(1) {
        thread::sleep(Duration::from_millis(100));
        std::process::abort();
    }
    set_global_default(Panicking).expect("the only one");
    let unwound = has_panicked(|| assert!(world.receive_into(&mut [0_u8; 4], Rank(1), Tag(1)).is_err()));
    println!("{}", if unwound { "the buffer is still in use" } else { "no event was reported" });
    std::process::exit(0);
}

struct Panicking;

impl Subscriber for Panicking {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {
        panic!("an event");
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
