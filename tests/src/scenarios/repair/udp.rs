//! Measures the repair time of lost datagrams over real UDP sockets on loopback.
//!
//! Two threads, an endpoint and a device each; the sender's frames are lost at random beneath the checksum. Both
//! devices record departures and arrivals: an original that never arrived was lost, and the clock of its repair runs
//! from the call that handed it to the injector until a copy comes out of the receiver's device.

use core::error::Error;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::collections::HashMap;
use std::thread;
use std::time::Instant;

use unisono_core::counters::{Counters, Metric};
use unisono_core::device::{Device, DeviceQueue, TxReason};
use unisono_core::endpoint::{Config, Event, Handler, Verdict};
use unisono_core::ids::{Incarnation, PeerId};
use unisono_core::progress::make_progress;
use unisono_core::span::Span;
use unisono_memory::endpoint_storage::{EndpointSizes, ProcessEndpoint};
use unisono_memory::memory_regions::Regions;
use unisono_udp::fault_injection::{Faults, Probability};
use unisono_udp::{MTU_MAX, Options, Udp};

use super::recording_device::{RecordingDevice, other};
use super::{PAYLOAD, WARM_UP, WINDOW};

/// Bytes of a datagram: more than header, payload and checksum.
const MTU: u32 = 1500;
/// One in this many originals is lost, so that few losses share a window.
const SPACING: u32 = 1024;
/// One in this many datagrams is lost where bursts are short.
const TAIL_SPACING: u32 = 32;
/// Messages of a burst.
const BURST: u32 = 16;
/// Messages under way at most.
const UNDER_WAY: u32 = 1024;
const BUDGET: u32 = 64;

/// The measurements.
#[derive(Clone, Debug, Default)]
pub struct UdpRepairs {
    /// Nanoseconds from the lost original's departure to a copy's arrival, and why that copy was sent.
    pub repairs: Vec<(u64, TxReason)>,
    /// Losses that were never repaired.
    pub unrepaired: usize,
    /// Nanoseconds of round trips, the peer's hold time excluded.
    pub round_trips_ns: Vec<u64>,
    /// The sender's counters.
    pub counters: Counters,
    /// Datagrams that the injector took, control included, and those that the kernel lost.
    pub lost: [u64; 2],
}

/// The message handler of an end: places every message in the same buffer, in order.
struct Inbox {
    to: Span,
    delivered: u32,
    round_trips_ns: Vec<u64>,
    counters: Counters,
}

impl Handler for Inbox {
    fn handle_eager(&mut self, _: PeerId, head: &[u8], _: u32) -> Verdict {
        assert_eq!(head.get(..4), Some(&self.delivered.to_le_bytes()[..]), "in order");
        self.delivered += 1;
        Verdict::Place { to: self.to, start: 4 }
    }

    fn record(&mut self, what: Metric) {
        self.counters.count(what);
        if let Metric::RoundTrip(units) = what {
            self.round_trips_ns.push(u64::from(units) * 64);
        }
    }
}

struct UdpEnd {
    rank: u32,
    endpoint: ProcessEndpoint,
    device: RecordingDevice,
    regions: Regions,
    inbox: Inbox,
    sent: u32,
    completed: u32,
}

impl UdpEnd {
    fn new(rank: u32, clock: Instant, faults: Faults) -> Result<Self, Box<dyn Error>> {
        let local = core::net::Ipv4Addr::LOCALHOST.into();
        let udp = Udp::bind(&Options { mtu: Some(MTU), faults, ..Options::new(local, 2) })?;
        let config = Config::new(PeerId(rank), incarnation(rank), &udp.limits());
        // SAFETY: this thread alone uses the region, which is not freed.
        let mut regions = unsafe { Regions::new() };
        let region = regions.allocate(PAYLOAD as usize)?;
        let to = Span { region, offset: 0, bytes: PAYLOAD };
        let inbox = Inbox { to, delivered: 0, round_trips_ns: Vec::new(), counters: Counters::default() };
        let endpoint = ProcessEndpoint::new(0, config, EndpointSizes::of_job(2).pools());
        Ok(Self { rank, endpoint, device: RecordingDevice::new(udp, clock), regions, inbox, sent: 0, completed: 0 })
    }

    fn add_peer(&mut self, there: &Self) -> Result<(), Box<dyn Error>> {
        let peer = other(self.rank);
        let path = there.device.udp.local()?;
        self.device.udp.set_path(peer, path, MTU_MAX)?;
        self.endpoint.add_peer(self.device.now(), peer, incarnation(peer.0), self.device.limits().mtu);
        Ok(())
    }

    fn send(&mut self) -> bool {
        let (head, now) = (self.sent.to_le_bytes(), self.device.now());
        let taken = self.endpoint.send(now, other(self.rank), &head, Some(self.inbox.to)).is_ok();
        self.sent += u32::from(taken);
        taken
    }

    fn drive(&mut self) {
        let now = self.device.now();
        let Self { endpoint, device, regions, inbox, .. } = self;
        make_progress(now, DeviceQueue::Polled, endpoint, device, regions, inbox, BUDGET);
        while let Some(event) = self.endpoint.poll_event(now) {
            self.completed += u32::from(matches!(event, Event::Completed(_, Ok(()))));
        }
    }

    fn flush(&mut self) {
        while self.completed < self.sent {
            self.drive();
        }
    }
}

const fn incarnation(rank: u32) -> Incarnation {
    Incarnation(rank + 1)
}

/// Runs `send` at one end while the other receives. Returns both, and the PSNs that ended bursts.
fn run(
    seed: u64,
    spacing: u32,
    send: impl FnOnce(&mut UdpEnd) -> Vec<u32> + Send,
) -> Result<(UdpEnd, UdpEnd, Vec<u32>), Box<dyn Error>> {
    let clock = Instant::now();
    let loss = Probability::new(1.0 / f64::from(spacing)).unwrap_or_default();
    let mut from = UdpEnd::new(0, clock, Faults { loss, seed, ..Faults::default() })?;
    let mut to = UdpEnd::new(1, clock, Faults::default())?;
    from.add_peer(&to)?;
    to.add_peer(&from)?;
    let (done, sent) = (AtomicBool::new(false), AtomicU32::new(0));
    let last = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) || to.inbox.delivered < sent.load(Relaxed) {
                to.drive();
            }
        });
        let last = send(&mut from);
        sent.store(from.sent, Relaxed);
        done.store(true, Relaxed);
        last
    });
    Ok((from, to, last))
}

/// The repairs of lost originals: of those that `counts` names, by their place in the order of sending.
fn repairs(from: UdpEnd, to: &UdpEnd, counts: impl Fn(&[usize], usize) -> bool) -> UdpRepairs {
    let firsts: Vec<_> = from.device.sent.iter().filter(|record| record.cause == TxReason::First).collect();
    let base = firsts.first().map_or(0, |record| record.psn);
    let place = |psn: u32| psn.wrapping_sub(base) as usize;
    let mut arrivals = vec![None; firsts.len()];
    for record in &to.device.arrived {
        if let Some(first @ None) = arrivals.get_mut(place(record.psn)) {
            *first = Some(*record);
        }
    }
    let resent = from.device.sent.iter().filter(|record| record.cause != TxReason::First);
    let causes: HashMap<(u32, u8), TxReason> =
        resent.map(|record| ((record.psn, record.count), record.cause)).collect();
    let is_lost = |arrival: &Option<super::recording_device::Record>| arrival.is_none_or(|arrival| arrival.count != 0);
    let lost: Vec<usize> = arrivals.iter().enumerate().filter(|(_, at)| is_lost(at)).map(|(place, _)| place).collect();
    let mut outcome = UdpRepairs {
        round_trips_ns: from.inbox.round_trips_ns,
        counters: from.inbox.counters,
        lost: [from.device.udp.counters().injected_loss.get(), from.device.udp.counters().lost()],
        ..UdpRepairs::default()
    };
    for (i, at) in lost.iter().enumerate() {
        match (firsts.get(*at), arrivals.get(*at).copied().flatten()) {
            _ if !counts(&lost, i) => {}
            (Some(first), Some(copy)) => {
                let cause = causes.get(&(copy.psn, copy.count)).copied().unwrap_or(TxReason::First);
                outcome.repairs.push((copy.at.saturating_sub(first.at), cause));
            }
            _ => outcome.unrepaired += 1,
        }
    }
    outcome
}

/// A stream of messages back to back of which at least `losses` single ones are expected to be lost: with no other loss
/// in the window before or behind.
///
/// # Errors
/// The system refuses a socket.
pub fn stream(seed: u64, losses: usize) -> Result<UdpRepairs, Box<dyn Error>> {
    // Two of three losses are alone in their window.
    let messages = losses as u32 * 2 * SPACING;
    let (from, to, _) = run(seed, SPACING, |from| {
        while from.sent < messages {
            while from.sent < messages && from.sent - from.completed < UNDER_WAY && from.send() {}
            from.drive();
        }
        from.flush();
        Vec::new()
    })?;
    Ok(repairs(from, &to, |lost, i| {
        let apart = |other: Option<&usize>| other.is_none_or(|other| other.abs_diff(lost[i]) > WINDOW);
        apart(lost.get(i + 1)) && apart(i.checked_sub(1).and_then(|before| lost.get(before)))
    }))
}

/// Short bursts, back to back; the last message of at least `bursts` of them is expected to be lost.
///
/// # Errors
/// The system refuses a socket.
pub fn tail(seed: u64, bursts: usize) -> Result<UdpRepairs, Box<dyn Error>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (from, to, last) = run(seed, TAIL_SPACING, |from| {
        let mut last = Vec::new();
        for _ in 0..WARM_UP + bursts * TAIL_SPACING as usize * 5 / 4 {
            for _ in 0..random.u32(1..=BURST) {
                from.send();
            }
            last.push(from.sent - 1);
            from.flush();
        }
        last
    })?;
    Ok(repairs(from, &to, |lost, i| last.binary_search(&(lost[i] as u32)).is_ok()))
}
