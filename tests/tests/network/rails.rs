//! Two or three rails between two processes: striping by rate, cuts, and nothing sent again that has arrived.

use core::num::NonZeroU64;

use unisono_core::collective::CollectiveKind;
use unisono_core::device::DeviceEvent;
use unisono_core::endpoint::Event;
use unisono_core::ids::Rail;
use unisono_core::schedule::{Algorithm, Spec};
use unisono_core::window::rails::RailState;
use unisono_tests::scenarios::ports::{self, PortScenario};
use unisono_tests::scenarios::rails::{RECEIVER, RailStream, SENDER};
use unisono_tests::scenarios::schedules::{Workload, run_over};
use unisono_tests::sim::node::{SimProcess, job};
use unisono_tests::sim::{Config, Link, Network, NodeId};

const MS: u64 = 1_000_000;

#[test]
fn rails_of_different_rates_are_all_busy() {
    for rates in [[900_000_000, 300_000_000], [300_000_000, 900_000_000], [500_000_000, 500_000_000]] {
        let mut stream = RailStream::new(7, &rates, 256 << 10);
        stream.run_until(40 * MS);
        let share = stream.utilization(10 * MS, 40 * MS, [0, 1]);
        assert!(share >= 0.95, "{rates:?}: {share}");
        assert_eq!(stream.finish(120 * MS), (0, 0));
        assert_eq!((stream.resent(), stream.deaths()), ((0, 0), 0));
    }
}

#[test]
fn suspended_process_kills_no_rail() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let rates = [random.u64(100..400) * 1_000_000, random.u64(100..400) * 1_000_000];
        let mut stream = RailStream::new(seed, &rates, 4 << 10);
        // The answer over one rail may find the process suspended again.
        stream.set_delay(Rail(random.u8(0..2)), random.u64(0..300_000));
        let mut at = 10 * MS;
        stream.run_until(at);
        for _ in 0..20 {
            stream.suspend(*random.choice(&[SENDER, RECEIVER]).expect("two"), random.u64(0..20 * MS));
            at += random.u64(0..22 * MS);
            stream.run_until(at);
        }
        assert_eq!(stream.finish(at + 1_000 * MS), (0, 0), "seed {seed}");
        assert_eq!((stream.deaths(), stream.resent()), (0, (0, 0)), "seed {seed}");
    }
}

#[test]
fn rail_that_falls_behind_by_more_than_a_timeout_lives() {
    for rail in [0, 1] {
        let mut stream = RailStream::new(10, &[500_000_000; 2], 64 << 10);
        stream.run_until(20 * MS);
        stream.set_delay(Rail(rail), stream.timeout_ns() * 3 / 2);
        stream.run_until(60 * MS);
        assert_eq!((stream.deaths(), stream.resent()), (0, (0, 0)), "rail {rail}");
        assert_eq!(stream.finish(1_000 * MS), (0, 0));
    }
}

#[test]
fn rail_that_is_cut_one_way_is_left() {
    let mut stream = RailStream::new(11, &[500_000_000; 2], 64 << 10);
    stream.run_until(20 * MS);
    stream.network.cut_rail(SENDER, RECEIVER, Rail(1));
    stream.run_until(60 * MS);
    let share = stream.utilization(30 * MS, 60 * MS, [0]);
    assert!(share >= 0.95 && stream.deaths() == 1, "{share}, {} deaths", stream.deaths());
    assert_eq!(stream.finish(1_000 * MS), (0, 0));
    assert_eq!(stream.resent().1, 0);
}

#[test]
fn cut_rail_pauses_for_three_timeouts_and_leaves_the_other_busy() {
    for rail in [0, 1] {
        let mut stream = RailStream::new(8, &[500_000_000; 2], 64 << 10);
        stream.run_until(20 * MS);
        let timeout = stream.timeout_ns();
        stream.cut(Rail(rail));
        stream.run_until(60 * MS);
        let (pause, share) =
            (stream.longest_pause(20 * MS), stream.utilization(30 * MS, 60 * MS, [1 - usize::from(rail)]));
        assert!(pause <= 3 * timeout, "{pause} ns, timeout {timeout} ns");
        assert!(share >= 0.95, "{share}");
        stream.restore(Rail(rail));
        stream.run_until(160 * MS);
        let share = stream.utilization(140 * MS, 160 * MS, [0, 1]);
        assert!(share >= 0.95, "{share} after the cut");
        assert_eq!(stream.finish(3_000 * MS), (0, 0));
        assert_eq!(stream.resent().1, 0);
    }
}

#[test]
fn link_that_goes_down_is_left_at_once() {
    let mut stream = RailStream::new(9, &[500_000_000; 2], 64 << 10);
    stream.run_until(20 * MS);
    stream.network.set_rail_linked(SENDER, Rail(1), false);
    stream.run_until(40 * MS);
    let share = stream.utilization(22 * MS, 40 * MS, [0]);
    assert!(share >= 0.95, "{share}");
    stream.network.set_rail_linked(SENDER, Rail(1), true);
    stream.run_until(80 * MS);
    let share = stream.utilization(60 * MS, 80 * MS, [0, 1]);
    assert!(share >= 0.95, "{share} after the link is up");
    assert_eq!(stream.finish(2_000 * MS), (0, 0));
    assert_eq!(stream.resent().1, 0);
}

#[test]
fn a_rail_that_is_added_later_is_used() {
    let mut stream = RailStream::new(15, &[500_000_000; 2], 64 << 10);
    for node in [SENDER, RECEIVER] {
        stream.network.set_rail_linked(node, Rail(1), false);
    }
    stream.run_until(40 * MS);
    let share = stream.utilization(10 * MS, 40 * MS, [0]);
    assert!(share >= 0.95, "{share} of the only rail");
    // The sender's end comes first, and finds nobody there.
    stream.network.set_rail_linked(SENDER, Rail(1), true);
    stream.run_until(80 * MS);
    let share = stream.utilization(50 * MS, 80 * MS, [0]);
    assert!(share >= 0.95, "{share} of the only rail that both have");
    stream.network.set_rail_linked(RECEIVER, Rail(1), true);
    stream.nodes[0].endpoint.probe_rail(stream.network.now(), RECEIVER.into(), Rail(1));
    stream.nodes[0].wake();
    stream.run_until(120 * MS);
    let share = stream.utilization(100 * MS, 120 * MS, [0, 1]);
    assert!(share >= 0.95, "{share} of both");
    assert_eq!(stream.finish(2_000 * MS), (0, 0));
    assert_eq!(stream.resent().1, 0);
}

/// The receiver sends no data, and so has no send window that knows its rails: its link says which one carries its
/// acknowledgements.
#[test]
fn link_that_goes_down_at_the_receiver_carries_no_acknowledgements() {
    for rail in [0, 1] {
        let mut stream = RailStream::new(12, &[500_000_000; 2], 64 << 10);
        stream.run_until(20 * MS);
        stream.network.set_rail_linked(RECEIVER, Rail(rail), false);
        stream.run_until(60 * MS);
        let share = stream.utilization(30 * MS, 60 * MS, [1 - usize::from(rail)]);
        assert!(share >= 0.95, "rail {rail}: {share}");
        stream.network.set_rail_linked(RECEIVER, Rail(rail), true);
        assert_eq!(stream.finish(2_000 * MS), (0, 0), "rail {rail}");
    }
}

#[test]
fn random_cuts_lose_and_double_nothing() {
    // 200 with `--release`.
    for seed in 0..if cfg!(debug_assertions) { 20 } else { 200 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let rates = [random.u64(100..400) * 1_000_000, random.u64(100..400) * 1_000_000];
        let mut stream = RailStream::new(seed, &rates, 32 << 10);
        let mut at = 0;
        for _ in 0..random.u32(1..4) {
            at += random.u64(0..3 * MS);
            stream.run_until(at);
            let rail = Rail(random.u8(0..2));
            stream.cut(rail);
            at += random.u64(0..3 * MS);
            stream.run_until(at);
            stream.restore(rail);
        }
        assert_eq!(stream.finish(at + 3_000 * MS), (0, 0), "seed {seed}");
        assert_eq!(stream.resent().1, 0, "seed {seed}");
    }
}

#[test]
fn a_rail_without_path_fails_no_peer_that_another_reaches() {
    let mut stream = RailStream::new(13, &[500_000_000; 2], 64 << 10);
    stream.run_until(20 * MS);
    let event = DeviceEvent::NoPath { peer: RECEIVER.into(), rail: Rail(1) };
    stream.nodes[0].endpoint.handle_device_event(stream.network.now(), event);
    stream.run_until(40 * MS);
    assert_eq!(stream.finish(1_000 * MS), (0, 0));
}

/// Two peers lack a path to each other over a rail; a third one has all.
#[test]
fn a_rail_that_one_peer_lacks_serves_the_other() {
    let network = Network::new(16, Config { rails: 2, ..Config::default() });
    let mut nodes: Vec<SimProcess> = job(&network, 3, |_, _| {});
    let (lacking, other) = ([NodeId(0), NodeId(2)], NodeId(1));
    for (from, to) in [(0, 1), (1, 0)].map(|(from, to)| (lacking[from], lacking[to])) {
        network.cut_rail(from, to, Rail(1));
        let event = DeviceEvent::NoPath { peer: to.into(), rail: Rail(1) };
        nodes[from.0 as usize].endpoint.handle_device_event(network.now(), event);
    }
    let mut arrived = [0; 3];
    for round in 1..=20 {
        // From the fourth round on, long enough for windows to be given back.
        for _ in 0..8 {
            for to in [other, lacking[1]] {
                nodes[0].send(to, &[7; 600]).expect("room");
            }
        }
        let pause = if round < 4 { 2 } else { 100 };
        let deadline = network.now() + pause * MS;
        while let Some(step) = network.step_until(deadline) {
            let node = &mut nodes[step.node.0 as usize];
            let failed = node.drive(step.lane).iter().any(|event| !matches!(event, Event::Completed(_, Ok(()))));
            assert!(!failed, "round {round}");
            assert_eq!(node.endpoint.doubtful_rails(), 0, "{:?}, round {round}", step.node);
            arrived[step.node.0 as usize] += node.take_messages().len();
        }
        let dead =
            |to: NodeId| nodes[0].endpoint.rail_states(to.into()).iter().map(RailState::is_dead).collect::<Vec<_>>();
        if round < 4 {
            assert_eq!((dead(other), dead(lacking[1])), (vec![false; 2], vec![false, true]), "round {round}");
        }
    }
    assert_eq!(arrived, [0, 160, 160]);
}

/// Two peers do not reach each other over a rail, and do not know why; a third one answers over it all the time.
#[test]
fn a_rail_that_is_dead_to_one_peer_dies_once() {
    let network = Network::new(17, Config { rails: 2, ..Config::default() });
    let mut nodes: Vec<SimProcess> = job(&network, 3, |_, _| {});
    network.cut_rail(NodeId(0), NodeId(2), Rail(1));
    network.cut_rail(NodeId(2), NodeId(0), Rail(1));
    let (mut deaths, mut doubtful, mut arrived) = (0, 0, [0; 3]);
    for _ in 0..200 {
        for _ in 0..4 {
            for to in [1, 2] {
                nodes[0].send(NodeId(to), &[7; 600]).expect("room");
            }
        }
        let deadline = network.now() + MS;
        while let Some(step) = network.step_until(deadline) {
            let node = &mut nodes[step.node.0 as usize];
            node.drive(step.lane);
            arrived[step.node.0 as usize] += node.take_messages().len();
            let now_doubtful = nodes[0].endpoint.doubtful_rails();
            deaths += (now_doubtful & !doubtful).count_ones();
            doubtful = now_doubtful;
        }
    }
    assert_eq!((deaths, doubtful, arrived), (1, 0b10, [0, 800, 800]));
}

#[test]
fn an_abort_leaves_over_a_rail_that_lives() {
    for rail in (0..3).map(Rail) {
        let mut stream = RailStream::new(14, &[500_000_000; 3], 64 << 10);
        stream.run_until(20 * MS);
        stream.network.set_rail_linked(SENDER, rail, false);
        stream.run_until(40 * MS);
        stream.nodes[0].endpoint.abort();
        stream.nodes[0].wake();
        let mut is_reported = false;
        while let Some(step) = stream.network.step_until(80 * MS) {
            let events = stream.nodes[step.node.0 as usize].drive(step.lane);
            is_reported |= events.contains(&Event::PeerFailed(SENDER.into()));
        }
        assert!(is_reported, "{rail:?}");
    }
}

/// Five ranks send two blocks over each of two ports.
const TWO_PORTS: PortScenario =
    PortScenario { ranks: 5, ports: 2, rails: 2, bits_per_s: 500_000_000, elements: 40_000, cut: None };

#[test]
fn each_port_of_a_schedule_has_a_rail() {
    for (ranks, ports, rails, elements) in [(5, 2, 2, 40_000), (5, 2, 2, 7), (7, 3, 2, 5_000), (5, 2, 4, 5_000)] {
        let scenario = PortScenario { ranks, ports, rails, elements, ..TWO_PORTS };
        let outcome = ports::run(&scenario, 21);
        assert_eq!((outcome.job.wrong, outcome.job.unfinished, outcome.misplaced), (0, 0, 0), "{scenario:?}");
        assert!(outcome.placed >= u64::from(ranks * (ranks - 1)), "{scenario:?}: {}", outcome.placed);
    }
}

#[test]
fn two_ports_on_two_rails_take_half_the_time() {
    let two = ports::run(&TWO_PORTS, 22).job.nanoseconds;
    let one = ports::run(&PortScenario { rails: 1, ..TWO_PORTS }, 22).job.nanoseconds;
    assert!(one as f64 / two as f64 >= 1.9, "{one} ns over one rail, {two} ns over two");
}

#[test]
fn a_port_whose_rail_is_cut_loses_nothing() {
    for rail in [0, 1].map(Rail) {
        for at in [MS / 2, 2 * MS] {
            let outcome = ports::run(&PortScenario { cut: Some((at, rail)), ..TWO_PORTS }, 23);
            assert_eq!((outcome.job.wrong, outcome.job.unfinished, outcome.misplaced), (0, 0, 0), "{rail:?}, {at} ns");
        }
    }
}

/// Eight ranks send to all others at once: queues of 20 ms come and go, and those of two rails differ.
#[test]
fn queues_of_many_peers_kill_no_rail() {
    let rate = NonZeroU64::new(50_000_000 / 8);
    let (propagation_ns, queue) = (50_000, 80);
    let link = Link { ingress_bytes_per_s: rate, egress_bytes_per_s: rate, propagation_ns, queue, ..Link::default() };
    for elements in [5_461, 21_845] {
        let config = Config { receive_slots: 1024, holdable: 512, granularity_ns: 250_000, ..Config::default() };
        let network = Network::new(5, Config { rails: 2, link, ..config });
        let call = Spec::new(CollectiveKind::Alltoall, Algorithm::Direct, 8, 1);
        let outcome = run_over(&network, &[Workload { call, elements }; 6], 1, 8192);
        assert_eq!((outcome.wrong, outcome.unfinished, outcome.rail_deaths), (0, 0, 0), "{elements} elements");
    }
}

/// Eight ranks send to all others at once, over one rail of 50 Mbit/s, or over two that have 3/4 and 1/4 of that.
#[test]
fn rails_of_different_rates_that_many_peers_share_carry_their_sum() {
    let link = |bits_per_s: u64| {
        let rate = NonZeroU64::new(bits_per_s / 8);
        let (propagation_ns, queue) = (50_000, 80);
        Link { ingress_bytes_per_s: rate, egress_bytes_per_s: rate, propagation_ns, queue, ..Link::default() }
    };
    let run = |elements, rates: &[u64]| {
        let config = Config { receive_slots: 1024, holdable: 512, granularity_ns: 250_000, ..Config::default() };
        let network = Network::new(5, Config { rails: rates.len() as u8, link: link(rates[0]), ..config });
        for (rail, rate) in (0..).zip(rates) {
            (0..8).for_each(|node| network.set_rail_link(NodeId(node), Rail(rail), link(*rate)));
        }
        let call = Spec::new(CollectiveKind::Alltoall, Algorithm::Direct, 8, 1);
        let outcome = run_over(&network, &[Workload { call, elements }; 6], 1, 8192);
        assert_eq!((outcome.wrong, outcome.unfinished, outcome.rail_deaths), (0, 0, 0), "{elements} elements");
        outcome.nanoseconds as f64
    };
    for (elements, least) in [(5_461, 0.85), (21_845, 1.0)] {
        let share = run(elements, &[50_000_000]) / run(elements, &[37_500_000, 12_500_000]);
        assert!(share >= least, "{elements} elements: {share}");
    }
}
