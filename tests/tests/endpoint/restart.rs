//! A process restarts under the same UDP address: nothing of its former incarnation is delivered to it, or by it.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::time::Instant;

use unisono_core::counters::{Counters, DropReason, Metric};
use unisono_core::device::{Device, DeviceQueue};
use unisono_core::endpoint::{Config, Endpoint, Event, Handler, Verdict};
use unisono_core::ids::{Incarnation, PeerId};
use unisono_core::progress::make_progress;
use unisono_memory::endpoint_storage::{EndpointSizes, ProcessEndpoint};
use unisono_memory::memory_regions::Regions;
use unisono_udp::{Options, Path, Udp};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SENDER: PeerId = PeerId(0);
const RESTARTED: PeerId = PeerId(1);

/// Handles short messages: incarnation and number.
#[derive(Default)]
struct Inbox {
    messages: Vec<[u32; 2]>,
    counters: Counters,
}

impl Handler for Inbox {
    fn handle_eager(&mut self, _: PeerId, head: &[u8], _: u32) -> Verdict {
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        self.messages.push([word(0), word(4)]);
        Verdict::Release
    }

    fn record(&mut self, what: Metric) {
        self.counters.count(what);
    }
}

struct Process {
    endpoint: ProcessEndpoint,
    device: Udp,
    inbox: Inbox,
    incarnation: Incarnation,
}

impl Process {
    fn new(started: Instant, rank: PeerId, ports: [u16; 2], incarnation: Incarnation) -> Self {
        let device = Udp::bind(&Options { ports, ..Options::new(HERE, 2) }).expect("a device");
        let config = Config::new(rank, incarnation, &device.limits());
        let now = started.elapsed().as_nanos() as u64;
        let endpoint = Endpoint::new(now, config, EndpointSizes::of_job(2).pools());
        Self { endpoint, device, inbox: Inbox::default(), incarnation }
    }

    fn path(&self) -> Path {
        self.device.local().expect("an address")
    }

    fn add_peer(&mut self, started: Instant, peer: PeerId, path: Path, incarnation: Incarnation) {
        self.device.set_path(peer, path, self.device.mtu()).expect("a path");
        let mtu = self.device.limits().mtu;
        self.endpoint.add_peer(started.elapsed().as_nanos() as u64, peer, incarnation, mtu);
    }

    /// Sends messages with this incarnation and each of these numbers.
    fn send_words(&mut self, started: Instant, to: PeerId, incarnation: u32, numbers: core::ops::Range<u32>) {
        let now = started.elapsed().as_nanos() as u64;
        for number in numbers {
            let words = [incarnation.to_le_bytes(), number.to_le_bytes()].concat();
            self.endpoint.send(now, to, &words, None).expect("room");
        }
    }

    fn drive(&mut self, started: Instant) -> Vec<Event> {
        let now = started.elapsed().as_nanos() as u64;
        // SAFETY: it gives out no address: nothing is registered.
        let regions = unsafe { Regions::new() };
        make_progress(now, DeviceQueue::Polled, &mut self.endpoint, &mut self.device, &regions, &mut self.inbox, 64);
        core::iter::from_fn(|| self.endpoint.poll_event(now)).collect()
    }
}

#[test]
fn restarted_process_has_nothing_to_do_with_its_former_lives() {
    let started = Instant::now();
    let mut sender = Process::new(started, SENDER, [0; 2], Incarnation(1));
    let mut other = Process::new(started, RESTARTED, [0; 2], Incarnation(100));
    let path = other.path();
    let ports = [path.polled, path.interrupt];
    for incarnation in 100..110 {
        sender.add_peer(started, RESTARTED, path, Incarnation(incarnation));
        other.add_peer(started, SENDER, sender.path(), Incarnation(1));
        sender.send_words(started, RESTARTED, incarnation, 0..50);
        sender.drive(started);
        if incarnation % 2 == 0 {
            // Some arrive in this life, the rest stays with the sender.
            other.drive(started);
        }
        drop(other);
        let next = Incarnation(incarnation + 1);
        other = Process::new(started, RESTARTED, ports, next);
        other.add_peer(started, SENDER, sender.path(), Incarnation(1));
        // The sender still believes in the former life, and repairs towards it.
        let mut failed = false;
        let deadline = Instant::now() + Duration::from_secs(2);
        while !failed && Instant::now() < deadline {
            other.drive(started);
            for event in sender.drive(started) {
                failed |= event == Event::PeerFailed(RESTARTED);
            }
        }
        assert!(failed, "a reset ends life {incarnation}");
        assert!(other.inbox.messages.is_empty(), "life {} got {:?}", incarnation + 1, other.inbox.messages);
        assert!(other.inbox.counters.dropped_for(DropReason::Stale) > 0, "something of the former life arrived");
        assert_eq!(other.incarnation, next);
    }
    sender.add_peer(started, RESTARTED, path, Incarnation(110));
    sender.send_words(started, RESTARTED, 110, 7..8);
    let deadline = Instant::now() + Duration::from_secs(2);
    while other.inbox.messages.is_empty() && Instant::now() < deadline {
        sender.drive(started);
        other.drive(started);
    }
    assert_eq!(other.inbox.messages, [[110, 7]]);
}

/// Messages of an incarnation that its peer receives while bootstrap announces that incarnation.
const WORDS: u32 = 8;

#[test]
fn words_of_a_former_life_are_not_delivered() {
    let started = Instant::now();
    let mut peer = Process::new(started, SENDER, [0; 2], Incarnation(1));
    let mut other = Process::new(started, RESTARTED, [0; 2], Incarnation(100));
    let path = other.path();
    let ports = [path.polled, path.interrupt];
    let mut expected = Vec::new();
    for incarnation in 100..110 {
        peer.add_peer(started, RESTARTED, path, Incarnation(incarnation));
        other.add_peer(started, SENDER, peer.path(), Incarnation(1));
        other.send_words(started, SENDER, incarnation, 0..WORDS);
        if incarnation % 2 == 0 {
            expected.extend((0..WORDS).map(|number| [incarnation, number]));
            let deadline = Instant::now() + Duration::from_secs(2);
            while peer.inbox.messages.len() < expected.len() && Instant::now() < deadline {
                other.drive(started);
                peer.drive(started);
            }
            other.send_words(started, SENDER, incarnation, WORDS..2 * WORDS);
        }
        // What leaves now, under credit or not, is read when bootstrap has named the next life.
        other.drive(started);
        drop(other);
        other = Process::new(started, RESTARTED, ports, Incarnation(incarnation + 1));
        assert_eq!(peer.inbox.messages, expected, "in life {incarnation}");
    }
    peer.add_peer(started, RESTARTED, path, Incarnation(110));
    other.add_peer(started, SENDER, peer.path(), Incarnation(1));
    other.send_words(started, SENDER, 110, 0..1);
    expected.push([110, 0]);
    let deadline = Instant::now() + Duration::from_secs(2);
    while peer.inbox.messages.len() < expected.len() && Instant::now() < deadline {
        other.drive(started);
        peer.drive(started);
    }
    assert_eq!(peer.inbox.messages, expected);
    let late = peer.inbox.counters.dropped_for(DropReason::Stale);
    assert!(late >= 10, "each life left something behind: {late}");
}
