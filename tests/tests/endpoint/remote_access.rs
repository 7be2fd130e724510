//! Remote memory access over the simulated network (`--bin hostile -- --rma` feeds it ten million hostile datagrams).

use unisono_core::ids::{PeerId, RemoteKey};
use unisono_core::rma::atomic::{AtomicKind, AtomicOperation, Width};
use unisono_core::rma::operation::RmaRequest;
use unisono_core::rma::{RKey, RemoteSpan, Rights, RmaCall, RmaError};
use unisono_core::span::Span;
use unisono_tests::scenarios::hostile::{Choices, rma_lies, rma_noise};
use unisono_tests::scenarios::remote_access::process::{RmaProcess, RmaSizes, job};
use unisono_tests::scenarios::remote_access::{Asked, blocked_target, faulty, fetch_adds, random_operations};
use unisono_tests::sim::{Completion, Config, Network};

#[test]
fn fetch_adds_are_exact_under_loss_duplication_and_reordering() {
    let totals = fetch_adds(faulty(), 3, 4, 1000, 64);
    assert_eq!((totals.succeeded, totals.failed, totals.wrong), (3000, 0, 0), "{totals:?}");
}

#[test]
fn requesters_share_a_target_with_fewer_entries() {
    let totals = fetch_adds(faulty(), 4, 8, 400, 2);
    assert_eq!((totals.succeeded, totals.failed, totals.wrong), (2800, 0, 0), "{totals:?}");
}

#[test]
fn operations_of_any_length_equal_those_of_a_serial_memory() {
    for (seed, config) in [(5, faulty()), (6, Config { completion: Completion::After(30_000), ..faulty() })] {
        let totals = random_operations(config, seed, 100);
        assert!(totals.succeeded >= 200 && totals.failed == 0 && totals.wrong == 0, "{totals:?}");
    }
}

#[test]
fn reads_updates_and_flushes_wake_a_blocked_target_and_a_write_alone_does_not() {
    // Its acknowledgement is late before the target is asked for it.
    let (timeout, _) = blocked_target(Asked::Write);
    for asked in [Asked::Read, Asked::Atomic, Asked::Flush] {
        let (woken, ended) = blocked_target(asked);
        assert!(2 * woken < timeout && ended < timeout, "{asked:?}: {woken} and {ended} ns, after {timeout}");
    }
}

/// Starts these operations of rank 0. Returns the virtual nanoseconds until all have ended, and their results.
fn execute(network: &Network, nodes: &mut [RmaProcess], calls: &[RmaCall]) -> (u64, Vec<Result<u64, RmaError>>) {
    let start = network.now();
    for (user, call) in (0..).zip(calls) {
        nodes[0].rma().start(&RmaCall { user, ..*call }).expect("room");
    }
    nodes[0].wake();
    let mut results = vec![None; calls.len()];
    while results.iter().any(Option::is_none) {
        let step = network.step_until(start + 1_000_000_000).expect("every operation ends");
        for ended in nodes[step.node.0 as usize].drive(step.lane).completions {
            results[ended.user as usize] = Some(ended.result);
        }
    }
    (network.now() - start, results.into_iter().flatten().collect())
}

#[test]
fn refusals_return_within_two_round_trips_and_touch_nothing() {
    let network = Network::new(12, Config::default());
    let mut nodes = job(&network, 2, RmaSizes { operations: 4, entries: 4, outstanding: 4 });
    let memory = nodes[1].memory.make(64);
    let mut register = |rights| nodes[1].register(memory, 0, 64, rights).expect("room");
    let (all, read_only) = (register(Rights::READ | Rights::WRITE | Rights::ATOMIC), register(Rights::READ));
    let local = Span { region: nodes[0].memory.make(8), offset: 0, bytes: 8 };
    let call = |region: RKey, offset, request| {
        let at = RemoteSpan { region, offset };
        RmaCall { to: PeerId(1), at, request, fence: false, user: 0 }
    };
    let (read, write) =
        (RmaRequest::Read { into: local, stride: None }, RmaRequest::Write { from: local, immediate: None });
    let kind = AtomicKind::FetchAdd { add: 1, boundaries: 0 };
    let add = RmaRequest::Atomic(AtomicOperation { width: Width::Bits64, kind });
    let flush = call(all, 0, RmaRequest::Flush);
    let forged = RKey { key: RemoteKey(all.key.0 ^ 1), ..all };
    // The first operations open windows and credit.
    (0..8).for_each(|_| _ = execute(&network, &mut nodes, &[flush]));
    let (round_trip, ended) = execute(&network, &mut nodes, &[call(all, 0, read)]);
    assert_eq!(ended, [Ok(0)]);
    let refused = [
        ("another key", vec![call(forged, 0, read)]),
        ("a read beyond the end", vec![call(all, 57, read)]),
        ("a misaligned update", vec![call(all, 4, add)]),
        ("an update without the right", vec![call(read_only, 0, add)]),
        ("a write without the right", vec![call(read_only, 0, write), flush]),
    ];
    for (name, calls) in refused {
        let (elapsed, ended) = execute(&network, &mut nodes, &calls);
        assert!(ended.iter().any(Result::is_err), "{name}: {ended:?}");
        assert!(elapsed <= 2 * round_trip, "{name}: {elapsed} ns, a round trip takes {round_trip} ns");
        let (_, ended) = execute(&network, &mut nodes, &[call(all, 0, read)]);
        assert_eq!(ended, [Ok(0)], "later operations go on after {name}");
    }
    let held = nodes[1].memory.read(Span { region: memory, offset: 0, bytes: 64 });
    assert_eq!(held, Some(vec![0; 64]), "no byte was touched");
}

#[test]
fn bad_requests_and_a_hostile_network_touch_nothing_else() {
    let outcome = rma_noise(Choices::random(13), 4000);
    assert!(outcome.is_clean() && outcome.refused > 10 && outcome.restarts == 0, "{outcome:?}");
    let outcome = rma_lies(Choices::random(14), 4000);
    assert!(outcome.is_clean() && outcome.restarts > 0 && outcome.succeeded > 100, "{outcome:?}");
}
