//! Reliable multicast in the simulated network: latency of repairs, acknowledgements per message, deaths.

use unisono_core::multicast::AckMode;
use unisono_tests::scenarios::multicast::{ROUND_TRIP_NS, StreamOutcome, StreamRun, run};

const MODES: [AckMode; 4] =
    [AckMode::Basic, AckMode::Tree { degree: 2 }, AckMode::CoRoot { count: 2 }, AckMode::CoRoot { count: 0 }];

/// Every living member has every message.
fn assert_complete(options: &StreamRun, outcome: &StreamOutcome) {
    assert!(outcome.is_idle, "{options:?}");
    for (rank, arrived) in outcome.arrived.iter().enumerate().skip(1) {
        let is_dead = options.death.is_some_and(|(dead, ..)| dead == rank as u32);
        assert!(is_dead || arrived.len() == options.messages as usize, "{} at {rank}: {options:?}", arrived.len());
    }
}

#[test]
fn message_that_lost_a_packet_arrives_by_the_lossless_median_and_two_round_trips() {
    for mode in MODES {
        let lossless = StreamRun::new(9, mode, 1000);
        let median = run(&lossless, 1).median_ns();
        // Of one member, of several at a time, of all, and bursts; not of the last message.
        let some = (5..990).step_by(10).map(|psn| (psn, 1 + psn / 10 % 8));
        let several = (7..990).step_by(50).flat_map(|psn| [1, 4, 7].map(|member| (psn, member)));
        let all = (31..990).step_by(100).flat_map(|psn| (1..9).map(move |member| (psn, member)));
        let bursts = (52..990).step_by(100).flat_map(|psn| (psn..psn + 5).map(|psn| (psn, 8)));
        let lost = some.chain(several).chain(all).chain(bursts).collect();
        let options = StreamRun { lost, ..lossless };
        let outcome = run(&options, 1);
        assert_complete(&options, &outcome);
        assert!(outcome.losses as usize == options.lost.len(), "{} losses", outcome.losses);
        for (psn, _) in &options.lost {
            let latency = outcome.latency_ns(*psn as usize);
            assert!(latency <= median + 2 * ROUND_TRIP_NS, "{mode:?}: {latency} ns for {psn}, median {median} ns");
        }
        let repaired: u64 = outcome.counters.iter().map(|counters| counters.repaired + counters.repaired_all).sum();
        let copies: u64 = outcome.counters.iter().map(|counters| counters.repaired + 8 * counters.repaired_all).sum();
        assert!(repaired <= outcome.losses && copies * 10 <= outcome.losses * 12, "{mode:?}: {copies} copies");
    }
}

#[test]
fn root_with_co_roots_handles_its_part_of_the_acknowledgements() {
    for (members, count) in [(9, 0), (9, 2), (16, 3), (36, 5), (64, 7)] {
        let options = StreamRun::new(members, AckMode::CoRoot { count }, 200);
        let outcome = run(&options, 2);
        assert_complete(&options, &outcome);
        let expected = (members - 1 - count) / (count + 1) + count;
        assert_eq!(outcome.counters[0].reports, u64::from(expected * options.messages), "{members} {count}");
    }
}

#[test]
fn delayed_acknowledgements_are_as_many_fewer() {
    let options = StreamRun { ack_every: 8, bytes: 8_000, ..StreamRun::new(9, AckMode::Basic, 100) };
    let outcome = run(&options, 3);
    assert_complete(&options, &outcome);
    let reports = outcome.counters[0].reports;
    assert!(reports <= 8 * 100 + 8, "{reports} reports of 800 segments");
}

#[test]
fn streams_with_random_losses_complete() {
    for mode in MODES {
        for (seed, random_loss) in [(4, 50), (5, 10), (6, 3)] {
            let options = StreamRun { random_loss, bytes: 2_500, ack_every: 4, ..StreamRun::new(9, mode, 300) };
            assert_complete(&options, &run(&options, seed));
        }
    }
}

#[test]
fn lost_tail_is_found_by_probe() {
    for mode in MODES {
        let all = (1..9).map(|member| (9, member)).collect();
        for lost in [[(9, 8)].into(), all] {
            let options = StreamRun { lost, ..StreamRun::new(9, mode, 10) };
            let outcome = run(&options, 7);
            assert_complete(&options, &outcome);
            assert!(outcome.counters[0].probes > 0 && outcome.losses > 0, "{mode:?}");
        }
    }
}

#[test]
fn death_stalls_the_stream_until_it_is_known() {
    const KNOWN_NS: u64 = 500_000;
    for mode in MODES {
        for dead in [1, 2, 3, 8] {
            for random_loss in [0, 30] {
                let death = Some((dead, 100_000, 100_000 + KNOWN_NS));
                let options = StreamRun { death, random_loss, ..StreamRun::new(9, mode, 400) };
                let outcome = run(&options, 8);
                assert_complete(&options, &outcome);
                if random_loss == 0 {
                    let last = (0..400).map(|message| outcome.latency_ns(message)).max();
                    assert!(last <= Some(KNOWN_NS + 10 * ROUND_TRIP_NS), "{last:?} {mode:?} {dead}");
                }
            }
        }
    }
}
