//! Credit keeps 256 senders from drowning 64 slots (`--bin incast` measures longer).

use unisono_tests::scenarios::incast::{Scenario, run};

#[test]
fn incast_drops_little_that_was_granted_and_shares_the_link() {
    let scenario = Scenario { steady_ns: 3_000_000, ..Scenario::new(100_000_000_000, 4096) };
    let [start, steady] = run(&scenario, 3);
    assert!(start.unadmitted >= 256, "everyone begins without credit");
    assert!(steady.loss() <= 0.001, "{steady:?}");
    assert!(steady.goodput >= 0.8, "{}", steady.goodput);
    assert!(steady.fairness() >= 0.9, "{}", steady.fairness());
}
