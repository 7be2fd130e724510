//! Remote memory access over the simulated network (`--bin hostile -- --rma` feeds it ten million hostile datagrams).

use unisono_tests::scenarios::hostile::{Choices, rma_lies, rma_noise};
use unisono_tests::scenarios::remote_access::{Asked, blocked_target, faulty, fetch_adds, random_operations};
use unisono_tests::sim::{Completion, Config};

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

#[test]
fn bad_requests_and_a_hostile_network_touch_nothing_else() {
    let outcome = rma_noise(Choices::random(13), 4000);
    assert!(outcome.is_clean() && outcome.refused > 10 && outcome.restarts == 0, "{outcome:?}");
    let outcome = rma_lies(Choices::random(14), 4000);
    assert!(outcome.is_clean() && outcome.restarts > 0 && outcome.succeeded > 100, "{outcome:?}");
}
