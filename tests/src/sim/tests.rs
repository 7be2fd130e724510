use core::num::NonZeroU64;

use unisono_core::{
    device::{
        Armed, Destination, Device, DeviceEvent, GroupError, Memory, PathRequest, Received, Slot, Ticket, Token,
        Transmit,
    },
    ids::GroupId,
    span::{Region, Span},
};

use super::*;

fn network(count: u32, config: Config) -> (Network, Vec<NodeId>) {
    let network = Network::new(7, config);
    let nodes = (0..count).map(|_| network.add_node()).collect();
    (network, nodes)
}

fn transmit(to: NodeId, head: u8) -> Transmit {
    Transmit {
        to: PeerId::from(to).into(),
        queue: DeviceQueue::Polled,
        header_bytes: head,
        payload: None,
        solicited: false,
        reason: TxReason::First,
    }
}

/// Posts a datagram that is only this number.
fn post(device: &mut SimDevice, to: NodeId, number: u32) {
    let mut token = device.token(DeviceQueue::Polled).expect("the ring has room");
    token.header_room()[..4].copy_from_slice(&number.to_le_bytes());
    token.post(&transmit(to, 4), None);
}

fn send(network: &Network, from: NodeId, to: NodeId, number: u32) {
    let mut device = network.device(from);
    post(&mut device, to, number);
    device.flush(DeviceQueue::Polled);
}

fn number(received: &impl Received) -> u32 {
    u32::from_le_bytes(received.prefix().try_into().expect("four bytes"))
}

/// Receives and releases all that waits.
fn receive_all(device: &mut SimDevice, lane: DeviceQueue) -> Vec<u32> {
    let mut numbers = Vec::new();
    while let Some(received) = device.receive(lane) {
        numbers.push(number(&received));
        device.release(received.slot());
    }
    numbers
}

/// Steps until nothing happens any more; what each step's node received, with its time.
fn run(network: &Network) -> Vec<(u64, NodeId, u32)> {
    let mut arrivals = Vec::new();
    while let Some(step) = network.step() {
        let numbers = receive_all(&mut network.device(step.node), DeviceQueue::Polled);
        arrivals.extend(numbers.into_iter().map(|number| (step.at, step.node, number)));
    }
    arrivals
}

fn assert_accounted(network: &Network) {
    let counts = network.counts();
    let made = counts.sent + counts.replicated + counts.duplicated + counts.forged;
    assert_eq!(made, counts.delivered + counts.dropped_in_all(), "{counts:?}");
    assert_eq!((network.in_flight(), network.active_nodes()), (0, 0), "something is left behind");
}

fn chance(value: f64) -> unisono_udp::fault_injection::Probability {
    unisono_udp::fault_injection::Probability::new(value).expect("a probability")
}

const GIGABYTE: Option<NonZeroU64> = NonZeroU64::new(1_000_000_000);

#[test]
fn datagram_takes_serialization_and_propagation() {
    let link = Link { ingress_bytes_per_s: GIGABYTE, egress_bytes_per_s: GIGABYTE, overhead: 92, ..Link::default() };
    let (network, nodes) = network(2, Config { link, ..Config::default() });
    send(&network, nodes[0], nodes[1], 1);
    send(&network, nodes[0], nodes[1], 2);
    // 4 bytes, 4 of checksum, 92 of overhead: 100 ns on each link; the second follows through a pipe.
    assert_eq!(run(&network), [(5_200, nodes[1], 1), (5_300, nodes[1], 2)]);
    assert_accounted(&network);
}

#[test]
fn equal_seeds_give_equal_runs() {
    let faults = Faults {
        loss: chance(0.1),
        reorder: chance(0.2),
        duplicate: chance(0.1),
        corrupt: chance(0.1),
        seed: 0,
        cut: None,
    };
    let link = Link { jitter_ns: 900, ..Link::default() };
    let history = |seed| {
        let network = Network::new(seed, Config { faults, link, ..Config::default() });
        let nodes: Vec<_> = (0..5).map(|_| network.add_node()).collect();
        for round in 0..200 {
            send(&network, nodes[round % 5], nodes[(round * 3 + 1) % 5], round as u32);
        }
        let history = run(&network);
        assert_accounted(&network);
        history
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}

#[test]
fn faults_strike_and_are_counted() {
    let faults = Faults {
        loss: chance(0.05),
        reorder: chance(0.05),
        duplicate: chance(0.02),
        corrupt: chance(0.01),
        seed: 0,
        cut: None,
    };
    let (network, nodes) = network(2, Config { faults, ..Config::default() });
    let mut order = Vec::new();
    for sent in 0..20_000 {
        send(&network, nodes[0], nodes[1], sent);
        order.extend(run_for(&network, 500));
    }
    order.extend(run(&network).into_iter().map(|(_, _, number)| number));
    let counts = network.counts();
    let is_about = |count: u64, expected: u64| count.abs_diff(expected) < expected / 4;
    assert!(is_about(counts.dropped(Dropped::Lost), 1_000), "{counts:?}");
    assert!(is_about(counts.duplicated, 380), "{counts:?}");
    assert!(is_about(counts.dropped(Dropped::Corrupt), 194), "{counts:?}");
    assert!(is_about(counts.reordered, 969), "{counts:?}");
    assert_eq!(order.len() as u64, counts.delivered);
    assert!(!order.is_sorted(), "frames were overtaken");
    let latest_seen = order.iter().scan(0, |latest: &mut u32, &number| {
        *latest = number.max(*latest);
        Some(*latest - number)
    });
    assert!(latest_seen.max().expect("frames arrived") <= 2 * 8 + 1, "overtaken by 1 to 8 later ones");
    assert_accounted(&network);
}

fn run_for(network: &Network, ns: u64) -> Vec<u32> {
    let (deadline, mut numbers) = (network.now() + ns, Vec::new());
    while let Some(step) = network.step_until(deadline) {
        numbers.extend(receive_all(&mut network.device(step.node), DeviceQueue::Polled));
    }
    assert_eq!(network.now(), deadline);
    numbers
}

#[test]
fn frame_waiting_to_be_overtaken_leaves_when_nothing_follows() {
    let faults = Faults { reorder: chance(1.0), ..Faults::default() };
    let (network, nodes) = network(2, Config { faults, ..Config::default() });
    send(&network, nodes[0], nodes[1], 9);
    assert_eq!(run(&network), [(25_000, nodes[1], 9)]);
    assert_accounted(&network);
}

#[test]
fn queue_and_slots_drop_what_exceeds_them() {
    let link = Link { ingress_bytes_per_s: GIGABYTE, queue: 8, ..Link::default() };
    let (network, nodes) = network(2, Config { link, receive_slots: 5, ..Config::default() });
    for sent in 0..20 {
        send(&network, nodes[0], nodes[1], sent);
    }
    while network.step().is_some() {}
    let counts = network.counts();
    assert_eq!((counts.dropped(Dropped::QueueFull), counts.dropped(Dropped::NoSlot), counts.delivered), (12, 3, 5));
    assert_eq!(receive_all(&mut network.device(nodes[1]), DeviceQueue::Polled), [0, 1, 2, 3, 4]);
    assert_accounted(&network);
}

#[test]
fn cuts_are_one_way_and_partitions_both_ways() {
    let (network, nodes) = network(3, Config::default());
    network.cut(nodes[0], nodes[1]);
    send(&network, nodes[0], nodes[1], 1);
    send(&network, nodes[1], nodes[0], 2);
    assert_eq!(run(&network), [(5_000, nodes[0], 2)]);
    network.restore(nodes[0], nodes[1]);
    network.partition(&nodes[..1], &nodes[1..]);
    send(&network, nodes[0], nodes[2], 3);
    send(&network, nodes[2], nodes[0], 4);
    send(&network, nodes[1], nodes[2], 5);
    assert_eq!(run(&network), [(10_000, nodes[2], 5)]);
    network.restore_all();
    send(&network, nodes[2], nodes[0], 6);
    assert_eq!(run(&network), [(15_000, nodes[0], 6)]);
    assert_eq!(network.counts().dropped(Dropped::Cut), 3);
    assert_accounted(&network);
}

#[test]
fn link_down_loses_both_ways_and_is_reported() {
    let (network, nodes) = network(2, Config::default());
    send(&network, nodes[0], nodes[1], 1);
    network.set_linked(nodes[1], false);
    send(&network, nodes[1], nodes[0], 2);
    assert_eq!(run(&network), []);
    let mut device = network.device(nodes[1]);
    assert_eq!((device.poll_event(), device.poll_event()), (Some(DeviceEvent::Down(Rail(0))), None));
    network.set_linked(nodes[1], true);
    send(&network, nodes[1], nodes[0], 3);
    assert_eq!(run(&network).len(), 1);
    assert_eq!(device.poll_event(), Some(DeviceEvent::Up(Rail(0))));
    assert_eq!(network.counts().dropped(Dropped::Down), 2);
    assert_accounted(&network);
}

#[test]
fn crashed_device_is_dead_and_the_restarted_one_fresh() {
    let (network, nodes) = network(2, Config { completion: Completion::After(50_000), ..Config::default() });
    let mut former = network.device(nodes[1]);
    let region = network.memory(nodes[1]).make(8);
    send(&network, nodes[1], nodes[0], 1);
    send(&network, nodes[0], nodes[1], 2);
    let step = network.step().expect("the datagram of node 1 arrives first");
    assert_eq!(step.node, nodes[0]);
    assert_eq!(receive_all(&mut network.device(nodes[0]), DeviceQueue::Polled), [1]);
    let step = network.step().expect("the datagram of node 0 arrives");
    assert_eq!(step.node, nodes[1]);
    send(&network, nodes[0], nodes[1], 3);
    network.crash(nodes[1]);
    assert_eq!(network.step_until(10_000), None, "datagram 3 finds nobody");
    send(&network, nodes[0], nodes[1], 4);
    assert!(former.token(DeviceQueue::Polled).is_none() && former.receive(DeviceQueue::Polled).is_none());
    let mut device = network.restart(nodes[1]);
    assert_eq!(network.memory(nodes[1]).address(Span { region, offset: 0, bytes: 1 }), None);
    assert_eq!(device.token(DeviceQueue::Polled).map(|token| token.ticket()), Some(Ticket(1)));
    assert_eq!(network.step().map(|step| step.at), Some(15_000));
    assert!(former.receive(DeviceQueue::Polled).is_none());
    assert_eq!(receive_all(&mut device, DeviceQueue::Polled), [4], "datagrams to the former life still arrive");
    run(&network);
    assert_eq!(device.completed(DeviceQueue::Polled), Ticket(0), "completions of the former life do not count");
    assert_eq!(network.counts().dropped(Dropped::Crashed), 1);
    assert_accounted(&network);
}

#[test]
fn late_completion_may_follow_the_arrival() {
    let (network, nodes) = network(2, Config { completion: Completion::After(8_000), ring: 2, ..Config::default() });
    let mut device = network.device(nodes[0]);
    post(&mut device, nodes[1], 1);
    post(&mut device, nodes[1], 2);
    assert!(device.token(DeviceQueue::Polled).is_none(), "the ring has two entries");
    device.flush(DeviceQueue::Polled);
    assert_eq!(network.step().map(|step| (step.at, step.node)), Some((5_000, nodes[1])));
    assert_eq!((device.completed(DeviceQueue::Polled), device.token(DeviceQueue::Polled).is_none()), (Ticket(0), true));
    run(&network);
    assert_eq!((network.now(), device.completed(DeviceQueue::Polled)), (8_000, Ticket(2)));
    assert!(device.token(DeviceQueue::Polled).is_some());
}

#[test]
#[should_panic = "changed the payload of an unfinished posting"]
fn changing_an_unfinished_payload_is_noticed() {
    let (network, nodes) = network(2, Config { completion: Completion::After(8_000), ..Config::default() });
    let (mut device, mut memory) = (network.device(nodes[0]), network.memory(nodes[0]));
    let region = memory.make(100);
    let payload = memory.address(Span { region, offset: 0, bytes: 100 });
    device.token(DeviceQueue::Polled).expect("room").post(&transmit(nodes[1], 0), payload);
    device.flush(DeviceQueue::Polled);
    memory.write(region, 99, &[1]).expect("inside");
    while network.step().is_some() {}
}

#[test]
#[should_panic = "released before, or never received"]
fn releasing_twice_is_noticed() {
    let (network, nodes) = network(2, Config::default());
    send(&network, nodes[0], nodes[1], 1);
    network.step();
    let mut device = network.device(nodes[1]);
    let slot: Slot = device.receive(DeviceQueue::Polled).expect("it arrived").slot();
    device.release(slot);
    device.release(slot);
}

#[test]
fn region_made_again_has_another_life() {
    let (network, nodes) = network(2, Config::default());
    let mut memory = network.memory(nodes[0]);
    let first = memory.make(10);
    memory.write(first, 2, b"abc").expect("inside");
    assert_eq!(memory.read(Span { region: first, offset: 1, bytes: 5 }).as_deref(), Some(&b"\0abc\0"[..]));
    memory.retire(first);
    let second = memory.make(10);
    assert_eq!((second.index(), second.generation()), (first.index(), first.generation() + 1));
    let span = |region: Region, offset, bytes| Span { region, offset, bytes };
    assert_eq!(memory.address(span(first, 0, 1)), None);
    assert_eq!(memory.read(span(second, 0, 10)), Some(vec![0; 10]));
    assert_eq!(memory.address(span(second, 8, 3)), None);
    assert_eq!(memory.address(span(second, usize::MAX, 2)), None);
    assert_eq!(network.memory(nodes[1]).address(span(second, 0, 1)), None, "it is another node's");
}

#[test]
fn busy_node_is_stepped_later_but_its_interrupt_lane_at_once() {
    let (network, nodes) = network(2, Config::default());
    network.busy(nodes[1], 1_000_000);
    assert_eq!(network.device(nodes[1]).arm(DeviceQueue::Interrupt), Armed::Armed);
    send(&network, nodes[0], nodes[1], 1);
    let mut device = network.device(nodes[0]);
    device
        .token(DeviceQueue::Polled)
        .expect("room")
        .post(&Transmit { queue: DeviceQueue::Interrupt, ..transmit(nodes[1], 4) }, None);
    device.flush(DeviceQueue::Polled);
    assert_eq!(network.step(), Some(Step { at: 5_000, node: nodes[1], lane: DeviceQueue::Interrupt }));
    let mut device = network.device(nodes[1]);
    assert!(device.take_event(DeviceQueue::Interrupt) && !device.take_event(DeviceQueue::Interrupt));
    assert_eq!(receive_all(&mut device, DeviceQueue::Interrupt), [0]);
    assert_eq!(run(&network), [(1_000_000, nodes[1], 1)]);
    assert_accounted(&network);
}

#[test]
fn earliest_wake_up_counts_and_none_is_lost() {
    let (network, nodes) = network(2, Config::default());
    for at in [700, 300, 500] {
        network.wake_at(nodes[0], at);
    }
    network.wake_at(nodes[1], 400);
    let steps = core::iter::from_fn(|| network.step()).map(|step| (step.at, step.node)).collect::<Vec<_>>();
    assert_eq!(steps, [(300, nodes[0]), (400, nodes[1])]);
    network.wake_at(nodes[0], 100);
    assert_eq!(network.step().map(|step| step.at), Some(400), "a time that is past means now");
    assert_eq!(network.step(), None);
}

#[test]
fn harness_takes_changes_and_forges_datagrams() {
    let (network, nodes) = network(2, Config::default());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&seen);
    network.watch(move |sighting| log.borrow_mut().push((sighting.what, sighting.cause)));
    network.tamper(|passing| {
        passing.bytes[1] = 1;
        if passing.bytes[0] == 2 { TamperVerdict::Take } else { TamperVerdict::Pass }
    });
    send(&network, nodes[0], nodes[1], 1);
    send(&network, nodes[0], nodes[1], 2);
    network.forge(NodeId(77), nodes[1], DeviceQueue::Polled, &[3, 0, 0, 0]);
    let mut device = network.device(nodes[1]);
    network.step();
    network.step();
    let mut receive = || {
        let received = device.receive(DeviceQueue::Polled).expect("two arrive");
        device.release(received.slot());
        (number(&received), received.is_from(PeerId(0)), received.is_from(PeerId(77)))
    };
    assert_eq!((receive(), receive()), ((0x101, true, false), (0x103, false, true)));
    let first = Some(TxReason::First);
    let expected = [
        (DatagramFate::Sent, first),
        (DatagramFate::Sent, first),
        (DatagramFate::Dropped(Dropped::Tampered), first),
        (DatagramFate::Sent, None),
        (DatagramFate::Delivered, first),
        (DatagramFate::Delivered, None),
    ];
    assert_eq!(*seen.borrow(), expected);
    assert_accounted(&network);
}

#[test]
fn path_is_answered() {
    let (network, nodes) = network(2, Config::default());
    let mut device = network.device(nodes[0]);
    let rail = Rail(0);
    device.request_path(PathRequest::Resolve(nodes[1].into()));
    device.request_path(PathRequest::Resolve(PeerId(2)));
    device.request_path(PathRequest::Forget(PeerId(2)));
    assert_eq!(network.step().map(|step| step.node), Some(nodes[0]));
    assert_eq!(device.poll_event(), Some(DeviceEvent::Path { peer: nodes[1].into(), rail, mtu: 1468 }));
    let none = DeviceEvent::NoPath { peer: PeerId(2), rail };
    assert_eq!((device.poll_event(), device.poll_event()), (Some(none), None));
    assert_accounted(&network);
}

#[test]
fn idle_nodes_keep_nothing() {
    let (network, nodes) = network(100_000, Config::default());
    for pair in 0..1_000 {
        send(&network, nodes[pair * 7], nodes[99_999 - pair], 1);
    }
    assert_eq!(run(&network).len(), 1_000);
    assert_accounted(&network);
}

/// Posts a number to a destination.
fn send_to(network: &Network, from: NodeId, to: Destination, number: u32) {
    let mut device = network.device(from);
    let mut token = device.token(DeviceQueue::Polled).expect("the ring has room");
    token.header_room()[..4].copy_from_slice(&number.to_le_bytes());
    token.post(&Transmit { to, ..transmit(from, 4) }, None);
    device.flush(DeviceQueue::Polled);
}

#[test]
fn rails_have_links_of_their_own() {
    let (network, nodes) = network(2, Config { rails: 2, ..Config::default() });
    let rate = NonZeroU64::new(8_000_000);
    network.set_rail_link(nodes[0], Rail(1), Link { egress_bytes_per_s: rate, ..Link::default() });
    network.set_rail_link(nodes[1], Rail(1), Link { ingress_bytes_per_s: rate, queue: 2, ..Link::default() });
    let to = |rail| Destination::Peer { peer: nodes[1].into(), rail: Rail(rail) };
    for number in 0..3 {
        send_to(&network, nodes[0], to(1), number);
        send_to(&network, nodes[0], to(0), 10 + number);
        send_to(&network, nodes[0], to(2), 20 + number);
    }
    // On the second rail a frame of 8 bytes takes 1 µs to leave, and as long to arrive.
    let arrivals: Vec<_> = run(&network).into_iter().map(|(at, _, number)| (at, number)).collect();
    assert_eq!(arrivals, [(5_000, 10), (5_000, 11), (5_000, 12), (7_000, 0), (8_000, 1), (9_000, 2)]);
    assert_eq!(network.counts().dropped(Dropped::UnknownPeer), 3);
    network.set_rail_linked(nodes[1], Rail(1), false);
    assert_eq!(network.device(nodes[1]).poll_event(), Some(DeviceEvent::Down(Rail(1))));
    send_to(&network, nodes[0], to(1), 3);
    send_to(&network, nodes[0], to(0), 4);
    assert_eq!(run(&network).into_iter().map(|(_, _, number)| number).collect::<Vec<_>>(), [4]);
}

#[test]
fn datagram_to_a_group_leaves_once_and_reaches_the_other_members() {
    let rate = NonZeroU64::new(8_000_000);
    let link = Link { egress_bytes_per_s: rate, ..Link::default() };
    let (network, nodes) = network(5, Config { link, groups: 1, join_ns: 1_000, ..Config::default() });
    let group = GroupId(7);
    for node in [0, 1, 2, 3] {
        network.device(nodes[node]).join(group).expect("a group is free");
    }
    assert_eq!(network.device(nodes[0]).join(GroupId(8)), Err(GroupError::Full));
    // Nobody is known as a member yet; one who is none cannot send.
    send_to(&network, nodes[0], Destination::Group(group), 0);
    while network.step_until(1_000).is_some() {}
    send_to(&network, nodes[4], Destination::Group(group), 1);
    assert_eq!((network.step(), network.counts().dropped(Dropped::NoMember)), (None, 2));
    network.cut(nodes[0], nodes[2]);
    for number in 2..4 {
        send_to(&network, nodes[0], Destination::Group(group), number);
    }
    let expected = [(7_000, nodes[1], 2), (7_000, nodes[3], 2), (8_000, nodes[1], 3), (8_000, nodes[3], 3)];
    assert_eq!(run(&network), expected);
    network.crash(nodes[3]);
    network.restart(nodes[3]);
    network.restore_all();
    network.device(nodes[1]).leave(group).expect("a member");
    send_to(&network, nodes[0], Destination::Group(group), 4);
    assert_eq!(run(&network).into_iter().map(|(_, node, _)| node).collect::<Vec<_>>(), [nodes[2]]);
    let counts = network.counts();
    assert_eq!((counts.sent, counts.replicated, counts.delivered, counts.dropped(Dropped::Cut)), (5, 4, 5, 2));
}
