use unisono::fault::{Faults, Probability};

use super::{
    flaw::{Flaw, Flawed},
    *,
};
use crate::sim::{Completion, Config, Link};

#[test]
fn simulated_device_conforms() {
    assert_conforms(|| SimFixture::new(Config::default()));
}

#[test]
fn simulated_device_conforms_at_the_smallest_and_largest_sizes() {
    let smallest = Config { mtu: 576, receive_slots: 4, holdable: 1, ring: 1, interrupts: false, ..Config::default() };
    assert_conforms(|| SimFixture::new(smallest));
    assert_conforms(|| SimFixture::new(Config { mtu: 65_507, receive_slots: 40, holdable: 200, ..Config::default() }));
}

#[test]
fn simulated_device_conforms_with_late_completions_and_slow_links() {
    let rate = core::num::NonZeroU64::new(125_000_000);
    let link = Link { ingress_bytes_per_s: rate, egress_bytes_per_s: rate, jitter_ns: 3_000, ..Link::default() };
    assert_conforms(|| SimFixture::new(Config { completion: Completion::After(50_000), link, ..Config::default() }));
}

#[test]
fn simulated_device_conforms_on_a_faulty_link() {
    let chance = |value| Probability::new(value).expect("a probability");
    let faults =
        Faults { loss: chance(0.05), reorder: chance(0.05), duplicate: chance(0.02), corrupt: chance(0.01), seed: 0 };
    assert_conforms(|| SimFixture::new(Config { faults, ..Config::default() }));
}

#[test]
fn cases_that_do_not_apply_are_said_to_be_skipped() {
    let findings = examine(|| SimFixture::new(Config { interrupts: false, ..Config::default() }));
    let skipped = findings.iter().filter(|finding| matches!(finding.outcome, Outcome::Skipped(_)));
    let skipped: Vec<_> = skipped.map(|finding| finding.case).collect();
    assert_eq!(skipped, ["lanes_count_their_tickets_apart", "lanes_are_separate"]);
}

/// Which cases find the flaw.
fn found(flaw: Flaw) -> Vec<&'static str> {
    let config = Config { receive_slots: 32, holdable: 16, ..Config::default() };
    let findings = examine(|| Flawed::new(SimFixture::new(config), flaw));
    let broken = |finding: &Finding| matches!(finding.outcome, Outcome::Broken(_));
    findings.into_iter().filter(broken).map(|finding| finding.case).collect()
}

#[test]
fn wrapper_without_flaw_conforms() {
    assert_conforms(|| Flawed::new(SimFixture::new(Config::default()), Flaw::None));
}

#[test]
fn every_flaw_is_found_by_its_case() {
    let expected = [
        (Flaw::ChangesByte, "every_length_arrives_byte_exact"),
        (Flaw::LosesEmpty, "every_length_arrives_byte_exact"),
        (Flaw::LosesOneInEight, "full_ring_loses_nothing"),
        (Flaw::ShowsShortHead, "every_length_arrives_byte_exact"),
        (Flaw::PlacesOneOff, "placed_bytes_land_exactly"),
        (Flaw::PlacesShort, "placed_bytes_land_exactly"),
        (Flaw::NamesEveryPeer, "senders_are_told_apart"),
        (Flaw::NamesNobody, "senders_are_told_apart"),
        (Flaw::KeepsOneHeld, "held_datagrams_outlive_an_overrun"),
        (Flaw::RenamesHeld, "held_datagrams_outlive_an_overrun"),
        (Flaw::HoldsInRing, "held_datagrams_outlive_an_overrun"),
        (Flaw::NeverReleases, "released_slots_serve_again"),
        (Flaw::CompletesEarly, "payload_may_change_after_its_ticket"),
        (Flaw::CompletesAhead, "tickets_are_contiguous_and_complete"),
        (Flaw::NeverCompletes, "tickets_are_contiguous_and_complete"),
        (Flaw::SkipsTicket, "tickets_are_contiguous_and_complete"),
        (Flaw::PostsUnused, "unused_token_posts_nothing"),
        (Flaw::HasOneLane, "lanes_are_separate"),
        (Flaw::NeverPending, "arming_a_lane_that_waits_says_pending"),
        (Flaw::RaisesNothing, "no_wake_up_is_lost"),
        (Flaw::IgnoresWishes, "wishes_are_answered"),
        (Flaw::ForgetsLives, "dead_and_foreign_spans_have_no_address"),
    ];
    for (flaw, case) in expected {
        let found = found(flaw);
        assert!(found.contains(&case), "{flaw:?} was found by {found:?} only");
    }
}

#[test]
#[should_panic = "every_length_arrives_byte_exact: a datagram of 0 bytes never arrived"]
fn broken_promises_are_explained() {
    assert_conforms(|| Flawed::new(SimFixture::new(Config::default()), Flaw::LosesEmpty));
}
