use core::net::{Ipv4Addr, Ipv6Addr};

use unisono_udp::fault_injection::{Faults, Probability};
use unisono_udp::{MTU_MIN, Options};

use unisono_shmem::layout::{PAGE, SegmentSizes, WaitMode};

use super::{
    flaw::{Flaw, Flawed},
    *,
};
use unisono_verbs::mlx5::Stride;

use crate::mlx5::adapter::{self, Fabric};
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
fn simulated_device_conforms_with_rails_and_with_and_without_groups() {
    assert_conforms(|| SimFixture::new(Config { rails: 8, groups: 0, ..Config::default() }));
    let config = Config { rails: 2, groups: 2, join_ns: 15_000_000, ..Config::default() };
    assert_conforms(|| SimFixture::new(config));
}

fn faults() -> Faults {
    let chance = |value| Probability::new(value).expect("a probability");
    Faults {
        loss: chance(0.05),
        reorder: chance(0.05),
        duplicate: chance(0.02),
        corrupt: chance(0.01),
        seed: 0,
        cut: None,
    }
}

#[test]
fn simulated_device_conforms_on_a_faulty_link() {
    assert_conforms(|| SimFixture::new(Config { faults: faults(), ..Config::default() }));
}

fn udp() -> Options {
    Options { receive_buffer: 1 << 20, holdable: 40, ..Options::new(Ipv4Addr::LOCALHOST.into(), 3) }
}

#[test]
fn udp_device_conforms() {
    assert_conforms(|| UdpFixture::new(udp()));
}

#[test]
fn udp_device_conforms_with_groups() {
    assert_conforms(|| UdpFixture::new(Options { groups: 2, ..udp() }));
    assert_conforms(|| UdpFixture::new(Options { groups: 2, gso: false, mtu: Some(1472), ..udp() }));
}

#[test]
fn udp_device_conforms_with_rails() {
    let addresses = ["127.0.0.1", "127.0.0.2", "::1"].map(|address| address.parse().expect("an address"));
    let gso = Options { further_rails: addresses.to_vec(), ..udp() };
    assert_conforms(|| UdpFixture::new(gso.clone()));
    let faulty = Options { gso: false, mtu: Some(1452), faults: faults(), groups: 2, ..gso.clone() };
    assert_conforms(|| UdpFixture::new(faulty.clone()));
}

#[test]
fn udp_device_conforms_without_offload_at_the_smallest_mtu() {
    assert_conforms(|| UdpFixture::new(Options { gso: false, mtu: Some(MTU_MIN), ..udp() }));
}

#[test]
fn udp_device_conforms_on_a_faulty_link_and_over_ipv6() {
    let local = Ipv6Addr::LOCALHOST.into();
    assert_conforms(|| UdpFixture::new(Options { local, mtu: Some(1452), faults: faults(), ..udp() }));
}

fn segment() -> SegmentSizes {
    SegmentSizes {
        collective_area: PAGE as u32,
        pool: PAGE as u32,
        ..SegmentSizes::of_node(3, WaitMode::Oversubscribed)
    }
}

#[test]
fn ring_device_conforms() {
    assert_conforms(|| ShmemFixture::new(segment(), 40));
}

#[test]
fn ring_device_conforms_at_the_smallest_sizes() {
    let smallest = SegmentSizes { ring_entries: 16, ring_bulk: 1 << 13, ..segment() };
    assert_conforms(|| ShmemFixture::new(smallest, 1));
    assert_conforms(|| ShmemFixture::new(SegmentSizes { ring_entries: 8, ring_bulk: 1 << 14, ..segment() }, 3));
}

#[test]
fn mlx5_device_conforms_on_infiniband() {
    assert_conforms(|| AdapterFixture::new(adapter::Config::default()));
}

#[test]
fn mlx5_device_conforms_on_ethernet() {
    for fabric in [Fabric::Ethernet4, Fabric::Ethernet6] {
        let config = adapter::Config { fabric, flame: 0, stride: Stride::Long, ..adapter::Config::default() };
        assert_conforms(|| AdapterFixture::new(config));
    }
}

#[test]
fn mlx5_device_conforms_at_the_smallest_sizes() {
    let config = adapter::Config {
        mtu: 576,
        receive_slots: 5,
        holdable: 1,
        blocks: 4,
        inline: 0,
        interrupts: false,
        ..adapter::Config::default()
    };
    assert_conforms(|| AdapterFixture::new(config));
    assert_conforms(|| AdapterFixture::new(adapter::Config { inline: 188, holdable: 100, ..config }));
}

#[test]
fn mlx5_device_conforms_on_a_faulty_fabric() {
    // A link of this kind drops what is corrupted.
    let faults = Faults { corrupt: Probability::default(), ..faults() };
    assert_conforms(|| AdapterFixture::new(adapter::Config { faults, ..adapter::Config::default() }));
}

#[test]
fn ethernet_device_conforms() {
    assert_conforms(|| EthernetFixture::new(1514, 64, 40, Faults::default()));
}

#[test]
fn ethernet_device_conforms_at_the_smallest_and_largest_sizes() {
    assert_conforms(|| EthernetFixture::new(14 + 28 + 576, 4, 1, Faults::default()));
    assert_conforms(|| EthernetFixture::new(9014, 16, 100, Faults::default()));
}

#[test]
fn ethernet_device_conforms_on_a_faulty_link() {
    assert_conforms(|| EthernetFixture::new(1514, 64, 40, faults()));
}

#[test]
fn cases_that_do_not_apply_are_said_to_be_skipped() {
    let findings = examine(|| SimFixture::new(Config { interrupts: false, ..Config::default() }));
    let skipped = findings.iter().filter(|finding| matches!(finding.outcome, Outcome::Skipped(_)));
    let skipped: Vec<_> = skipped.map(|finding| finding.case).collect();
    assert_eq!(
        skipped,
        ["queues_count_their_tickets_separately", "queues_complete_their_own_payloads", "queues_are_separate"]
    );
}

/// Which cases find the flaw.
fn found(flaw: Flaw) -> Vec<&'static str> {
    let config = Config { receive_slots: 32, holdable: 16, rails: 2, ..Config::default() };
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
        (Flaw::NamesEveryPeer, "senders_are_distinguished"),
        (Flaw::NamesNobody, "senders_are_distinguished"),
        (Flaw::KeepsOneHeld, "held_datagrams_outlive_an_overrun"),
        (Flaw::RenamesHeld, "held_datagrams_outlive_an_overrun"),
        (Flaw::HoldsInRing, "held_datagrams_outlive_an_overrun"),
        (Flaw::NeverReleases, "released_slots_serve_again"),
        (Flaw::CompletesEarly, "payload_may_change_after_its_ticket"),
        (Flaw::CompletesAhead, "tickets_are_contiguous_and_complete"),
        (Flaw::NeverCompletes, "tickets_are_contiguous_and_complete"),
        (Flaw::SkipsTicket, "tickets_are_contiguous_and_complete"),
        (Flaw::PostsUnused, "unused_token_posts_nothing"),
        (Flaw::HasOneLane, "queues_are_separate"),
        (Flaw::NeverPending, "waiting_datagram_is_reported_or_raises_an_event"),
        (Flaw::RaisesNothing, "armed_lane_raises_an_event"),
        (Flaw::IgnoresPathRequests, "path_requests_are_answered"),
        (Flaw::HasOneRail, "every_rail_delivers"),
        (Flaw::ResolvesOneRail, "path_requests_are_answered"),
        (Flaw::JoinsNothing, "members_of_a_group_receive"),
        (Flaw::NeverLeaves, "groups_are_joined_and_left"),
        (Flaw::NeverLeaves, "members_of_a_group_receive"),
        (Flaw::JoinsTwo, "members_of_a_group_receive"),
        (Flaw::DeniesGroups, "groups_are_joined_and_left"),
        (Flaw::IgnoresGenerations, "dead_and_foreign_spans_have_no_address"),
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
