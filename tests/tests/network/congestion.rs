//! Several senders share a link whose queue is hardly longer than the delay that is aimed at.

use unisono_tests::scenarios::incast::{Scenario, run};

#[test]
fn loss_with_delay_makes_senders_yield() {
    // A datagram of 1468 bytes takes 12 µs on the link: 14 of them the 160 µs that are aimed at.
    let slow =
        Scenario { senders: 8, slots: 4096, queue: 24, steady_ns: 200_000_000, ..Scenario::new(1_000_000_000, 1404) };
    let [_, steady] = run(&slow, 3);
    // 41 % while only the delay counts.
    assert!(steady.loss() < 0.36, "{}", steady.loss());
    assert!(steady.goodput >= 0.95, "{}", steady.goodput);
}
