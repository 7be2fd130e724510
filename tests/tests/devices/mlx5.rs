//! Endpoints over raw mlx5 work queues and a software adapter.

use unisono_core::counters::{Counters, Metric};
use unisono_core::device::{Device, DeviceEvent, DeviceQueue, Received, Token, Transmit, TxReason};
use unisono_core::endpoint::operation::EnqueueError;
use unisono_core::endpoint::{Config as EndpointConfig, Event, Handler, Verdict};
use unisono_core::ids::{Incarnation, PeerId, PlacementId, Rail, RemoteKey};
use unisono_core::progress::make_progress;
use unisono_core::span::Span;
use unisono_memory::endpoint_storage::{EndpointSizes, ProcessEndpoint};
use unisono_tests::mlx5::adapter::{AdapterDevice, AdapterMemory, Adapters, Config, Fabric, Omitted, peer};
use unisono_udp::fault_injection::{Faults, Probability};
use unisono_verbs::mlx5::Stride;
use unisono_verbs::queue_memory::Barrier;
use unisono_verbs::raw::Failure;

const MESSAGES: u32 = 3_000;
/// Bytes of the placement.
const BYTES: usize = 3_000_003;
const KEY: RemoteKey = RemoteKey(0x1234_5678_9abc_def0);
/// Nanoseconds of a round of the clock.
const ROUND_NS: u64 = 2_000;
const ROUNDS: u64 = 3_000_000;

fn data(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (number as usize * 31 + i * 7 + (i >> 8)) as u8).collect()
}

/// Bytes of a message after its number.
const fn length(number: u32, longest: u32) -> u32 {
    number * 37 % longest
}

struct Inbox {
    to: Span,
    received: u32,
    lengths: Vec<u32>,
    counters: Counters,
}

impl Handler for Inbox {
    fn handle_eager(&mut self, _: PeerId, head: &[u8], bytes: u32) -> Verdict {
        let number = head.first_chunk().map(|number| u32::from_le_bytes(*number));
        assert_eq!(number, Some(self.received), "in order");
        self.received += 1;
        self.lengths.push(bytes - 4);
        Verdict::Place { to: self.to.part(0, bytes - 4), start: 4 }
    }

    fn record(&mut self, what: Metric) {
        self.counters.count(what);
    }
}

const fn incarnation(rank: u32) -> Incarnation {
    Incarnation(0x1000 + rank)
}

struct End {
    rank: u32,
    device: AdapterDevice,
    memory: AdapterMemory,
    endpoint: ProcessEndpoint,
    inbox: Inbox,
    from: Span,
    to: Span,
    granted: PlacementId,
    longest: u32,
    sent: u32,
    completed: u32,
    placed: bool,
    delivered: bool,
}

impl End {
    fn new(rank: u32, device: AdapterDevice, mut memory: AdapterMemory) -> Self {
        let (limits, other) = (device.limits(), PeerId(1 - rank));
        let mut make = |bytes: usize| Span { region: memory.make(bytes), offset: 0, bytes: bytes as u32 };
        let (from, to, inbox) = (make(BYTES), make(BYTES), make(limits.mtu as usize));
        memory.write(from.region, 0, &data(rank, BYTES));
        let config = EndpointConfig::new(PeerId(rank), incarnation(rank), &limits);
        let mut endpoint = ProcessEndpoint::new(0, config, EndpointSizes::of_job(2).pools());
        endpoint.add_peer(0, other, incarnation(other.0), limits.mtu);
        let granted = endpoint.grant(other, to, KEY).expect("room");
        let inbox = Inbox { to: inbox, received: 0, lengths: Vec::new(), counters: Counters::default() };
        let longest = limits.mtu - 64;
        let (sent, completed, placed, delivered) = (0, 0, false, false);
        Self { rank, device, memory, endpoint, inbox, from, to, granted, longest, sent, completed, placed, delivered }
    }

    fn other(&self) -> PeerId {
        PeerId(1 - self.rank)
    }

    fn play(&mut self, now: u64, granted: PlacementId) {
        while self.sent < MESSAGES {
            let payload = self.from.part(self.sent, length(self.sent, self.longest));
            match self.endpoint.send(now, self.other(), &self.sent.to_le_bytes(), Some(payload)) {
                Ok(_) => self.sent += 1,
                Err(error) => {
                    assert_eq!(error, EnqueueError::Full);
                    break;
                }
            }
        }
        if !self.placed {
            self.placed = self.endpoint.place(now, self.other(), granted, KEY, self.from).is_ok();
        }
        let before = self.inbox.received;
        make_progress(now, DeviceQueue::Polled, &mut self.endpoint, &mut self.device, &self.memory, &mut self.inbox, 1);
        if self.inbox.received > before {
            self.check_message(self.inbox.received - 1);
        }
        while let Some(event) = self.endpoint.poll_event(now) {
            match event {
                Event::Completed(_, result) => {
                    assert_eq!(result, Ok(()));
                    self.completed += 1;
                }
                Event::Delivered(which, bytes) => {
                    assert_eq!((which, bytes as usize), (self.granted, BYTES));
                    self.delivered = true;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn check_message(&self, number: u32) {
        let bytes = self.inbox.lengths[number as usize];
        assert_eq!(bytes, length(number, self.longest));
        let found = self.memory.read(self.inbox.to.region, 0, bytes as usize);
        let expected = data(self.other().0, number as usize + bytes as usize);
        assert!(found == expected[number as usize..], "message {number}");
    }

    fn is_done(&self) -> bool {
        self.completed == MESSAGES + 1 && self.inbox.received == MESSAGES && self.delivered
    }
}

/// Two endpoints send each other messages and place data. Returns how many datagrams were sent again.
fn transfer(config: Config) -> u64 {
    let adapters = Adapters::new(config);
    let mut ends: Vec<_> =
        (0..).zip(adapters.connect(2)).map(|(rank, (device, memory))| End::new(rank, device, memory)).collect();
    let granted = [ends[1].granted, ends[0].granted];
    for round in 0.. {
        assert!(round < ROUNDS, "{:?}", ends.iter().map(|end| (end.sent, end.inbox.received)).collect::<Vec<_>>());
        for (end, granted) in ends.iter_mut().zip(granted) {
            end.play(round * ROUND_NS, granted);
        }
        if round % 16 == 0 {
            adapters.settle();
        }
        if ends.iter().all(End::is_done) {
            break;
        }
    }
    for end in &ends {
        assert!(end.memory.read(end.to.region, 0, BYTES) == data(end.other().0, BYTES), "the placement differs");
        let counts = end.device.counts();
        assert_eq!((counts.undeliverable, counts.malformed, counts.failed), (0, 0, 0));
    }
    assert!(adapters.violations().is_empty(), "{:#?}", adapters.violations());
    let again = [TxReason::ResentNack, TxReason::ResentProbe];
    ends.iter().flat_map(|end| again.map(|cause| end.inbox.counters.sent_for(cause))).sum()
}

#[test]
fn endpoints_exchange_messages_and_placements_over_raw_queues() {
    assert_eq!(transfer(Config::default()), 0);
}

#[test]
fn loss_on_the_fabric_is_repaired_over_raw_queues() {
    let chance = |value| Probability::new(value).expect("a probability");
    let faults = Faults { loss: chance(0.05), reorder: chance(0.05), duplicate: chance(0.02), ..Faults::default() };
    let config = Config { fabric: Fabric::Ethernet4, stride: Stride::Long, faults, ..Config::default() };
    assert!(transfer(config) > 50);
}

/// Posts a datagram of `bytes` bytes of payload to the other device.
fn post(ends: &mut [(AdapterDevice, AdapterMemory)], number: u8, bytes: usize) -> bool {
    let (device, memory) = &mut ends[0];
    let region = memory.make(bytes);
    let payload = Span { region, offset: 0, bytes: bytes as u32 };
    memory.write(region, 0, &vec![number; bytes]);
    let address = unisono_core::device::Memory::address(memory, payload);
    let Some(mut token) = device.token(DeviceQueue::Polled) else { return false };
    token.header_room()[0] = number;
    let cause = TxReason::First;
    let transmit = Transmit {
        to: peer(1).into(),
        queue: DeviceQueue::Polled,
        header_bytes: 8,
        payload: Some(payload),
        solicited: false,
        reason: cause,
    };
    token.post(&transmit, address);
    true
}

/// First bytes of the arrived datagrams.
fn arrived(device: &mut AdapterDevice) -> Vec<u8> {
    let mut heads = Vec::new();
    while let Some(datagram) = device.receive(DeviceQueue::Polled) {
        let (slot, head) = (datagram.slot(), datagram.prefix()[0]);
        heads.push(head);
        device.release(slot);
    }
    heads
}

#[test]
fn each_kind_of_barrier_is_missed() {
    let kinds = [
        Omitted::Sending(Barrier::ToDevice),
        Omitted::Sending(Barrier::ToRegister),
        Omitted::Sending(Barrier::Flush),
        Omitted::Receiving(Barrier::ToDevice),
        Omitted::Completing(Barrier::FromDevice),
        Omitted::Completing(Barrier::ToRegister),
        Omitted::Completing(Barrier::Flush),
    ];
    let play = |adapters: &Adapters| {
        let mut ends = adapters.connect(2);
        for number in 0..6 {
            post(&mut ends, number, 50 * usize::from(number));
            ends[0].0.flush(DeviceQueue::Polled);
            ends[0].0.completed(DeviceQueue::Polled);
            arrived(&mut ends[1].0);
            let _ = ends[1].0.arm(DeviceQueue::Polled);
        }
        adapters.violations()
    };
    assert_eq!(play(&Adapters::new(Config::default())), Vec::<String>::new());
    for kind in kinds {
        assert!(!play(&Adapters::without(Config::default(), kind)).is_empty(), "{kind:?}");
    }
}

#[test]
fn failed_queue_pair_is_reported_and_rebuilt() {
    let adapters = Adapters::new(Config::default());
    let mut ends = adapters.connect(2);
    for round in 0..3 {
        adapters.fail(0, DeviceQueue::Polled);
        adapters.fail(1, DeviceQueue::Polled);
        assert!(post(&mut ends, 1, 500));
        ends[0].0.flush(DeviceQueue::Polled);
        let ticket = ends[0].0.token(DeviceQueue::Polled).expect("room").ticket();
        assert_eq!(ends[0].0.completed(DeviceQueue::Polled).next(), ticket, "flushed in error is complete, too");
        assert!(arrived(&mut ends[1].0).is_empty());
        for (port, (device, _)) in (0..).zip(&mut ends) {
            assert_eq!(device.poll_event(), Some(DeviceEvent::Down(Rail(0))), "{round}");
            adapters.reset(port, DeviceQueue::Polled);
            device.reset(DeviceQueue::Polled);
            assert_eq!((device.poll_event(), device.poll_event()), (Some(DeviceEvent::Up(Rail(0))), None));
        }
        for number in 0..100 {
            assert!(post(&mut ends, number, 300));
            ends[0].0.flush(DeviceQueue::Polled);
            assert_eq!(arrived(&mut ends[1].0), [number]);
        }
    }
    assert_eq!(adapters.violations(), Vec::<String>::new());
}

#[test]
fn memory_that_is_not_registered_fails_the_queue_pair() {
    let adapters = Adapters::new(Config::default());
    let mut ends = adapters.connect(2);
    let region = ends[0].1.make(400);
    let payload = Span { region, offset: 0, bytes: 400 };
    let address = unisono_core::device::Memory::address(&ends[0].1, payload);
    ends[0].1.retire(region);
    let token = ends[0].0.token(DeviceQueue::Polled).expect("room");
    let cause = TxReason::First;
    let transmit = Transmit {
        to: peer(1).into(),
        queue: DeviceQueue::Polled,
        header_bytes: 0,
        payload: Some(payload),
        solicited: false,
        reason: cause,
    };
    token.post(&transmit, address);
    ends[0].0.flush(DeviceQueue::Polled);
    ends[0].0.completed(DeviceQueue::Polled);
    assert_eq!(ends[0].0.poll_event(), Some(DeviceEvent::Down(Rail(0))));
    assert_eq!(ends[0].0.counts().reason, Some(Failure::Protection));
}

/// Arbitrary completion queue entries cause no panic, no endless loop, and no overlong datagram.
#[test]
fn arbitrary_completions_do_no_harm() {
    let mut random = fastrand::Rng::with_seed(5);
    let (mut taken, mut malformed) = (0, 0);
    for round in 0..400 {
        let adapters = Adapters::new(Config { holdable: 4, ..Config::default() });
        let mut ends = adapters.connect(2);
        for number in 0..10 {
            post(&mut ends, number, 200);
        }
        ends[0].0.flush(DeviceQueue::Polled);
        // Owner and opcode as an adapter may write them, the rest anything; or all anything.
        let plausible = round % 2 == 0;
        for port in 0..2 {
            adapters.scribble(port, DeviceQueue::Polled, |at| match (at % 64, plausible) {
                (63, true) => random.choice([0, 0x20, 0x22, 0x30, 0xd0, 0xe0]).unwrap_or_default(),
                (60, true) => 0,
                (61, true) => random.u8(..64),
                (44 | 45, true) => 0,
                _ => random.u8(..),
            });
        }
        for (device, memory) in &mut ends {
            let mtu = device.limits().mtu;
            for _ in 0..300 {
                device.completed(DeviceQueue::Polled);
                let Some(datagram) = device.receive(DeviceQueue::Polled) else { continue };
                taken += 1;
                let (slot, bytes) = (datagram.slot(), datagram.bytes());
                assert!(bytes <= mtu && datagram.prefix().len() <= bytes as usize);
                let region = memory.make(bytes as usize);
                let to = unisono_core::device::Memory::address(memory, Span { region, offset: 0, bytes });
                device.place(slot, 0, bytes, to.expect("it lives"));
                device.release(slot);
                memory.retire(region);
            }
            malformed += device.counts().malformed;
        }
    }
    assert!(taken > 100 && malformed > 1000, "{taken} {malformed}");
}
