//! Collectives over messages in the simulated network; all of them: `cargo run --release -p unisono-tests --bin
//! schedules`.

use unisono_core::collective::CollectiveKind;
use unisono_tests::scenarios::schedules::{ExpectedResult, Outcome, WorkloadFilter, run, workloads};
use unisono_udp::fault_injection::{Faults, Probability};

fn faulty() -> Faults {
    let chance = Probability::new(0.05).expect("a probability");
    Faults { loss: chance, reorder: chance, ..Faults::default() }
}

#[test]
fn some_collectives_of_up_to_9_ranks_are_correct_under_faults() {
    let mut sum = Outcome::default();
    for size in 1..=9 {
        let list = workloads(size, WorkloadFilter { ports: 3, one_in: 40, seed: 11 });
        let outcome = run(&list, 3, faulty(), u64::from(size));
        assert_eq!((outcome.wrong, outcome.unfinished), (0, 0), "{size} ranks");
        assert_eq!(outcome.collectives, list.len() as u64);
        sum += outcome;
    }
    assert!(sum.eager > 0 && sum.announced > 0 && sum.asked > 0 && sum.faults > 0, "{sum:?}");
}

#[test]
fn lists_of_collectives_have_every_verb_and_every_root() {
    let all = workloads(5, WorkloadFilter { ports: 2, one_in: 1, seed: 1 });
    let roots =
        |verb| (0..5).all(|root| all.iter().any(|work| work.call.collective == verb && work.call.root.0 == root));
    assert!(
        [CollectiveKind::Broadcast, CollectiveKind::Reduce, CollectiveKind::Gather, CollectiveKind::Scatter]
            .into_iter()
            .all(roots)
    );
    let verbs: std::collections::HashSet<CollectiveKind> = all.iter().map(|work| work.call.collective).collect();
    assert_eq!(verbs.len(), 11);
}

/// Expected results differ between collectives, ranks and roots, so that a comparison can fail.
#[test]
fn expected_results_differ_by_collective_rank_and_root() {
    let all = workloads(4, WorkloadFilter { ports: 1, one_in: 1, seed: 1 });
    let long = all
        .iter()
        .filter(|work| work.elements == 7 && !work.call.varying && work.call.collective != CollectiveKind::Barrier);
    for work in long {
        let contents = ExpectedResult::new(work);
        let outputs: Vec<&[u8]> = (0..4).filter_map(|rank| contents.output(rank)).collect();
        assert!(!outputs.is_empty() && outputs.iter().all(|output| !output.is_empty()), "{work:?}");
        if matches!(
            work.call.collective,
            CollectiveKind::Scatter
                | CollectiveKind::Alltoall
                | CollectiveKind::ReduceScatter
                | CollectiveKind::Scan
                | CollectiveKind::Exscan
        ) {
            assert!(outputs.windows(2).all(|pair| pair[0] != pair[1]), "{work:?}");
        }
    }
}
