//! Two rails of one send window: which are probed, and which segments an answer judges.

use unisono_core::device::{DeviceQueue, Posting, Ticket, TxReason};
use unisono_core::ids::{Psn, Rail};
use unisono_core::path::{Path, PathParameters};
use unisono_core::time::Nanos;
use unisono_core::window::congestion::CongestionControl;
use unisono_core::window::rails::{RailChoice, RailLoad, RailRecords, RailState, Rails};
use unisono_core::window::segment_ring::SegmentRef;
use unisono_core::window::send_window::{Probe, SendWindow};
use unisono_core::wire::{Acknowledgement, Bitmap, Echo};

type Window = SendWindow<Nanos, 8, 16>;

const PATH: PathParameters = PathParameters { granularity: 100, max_probe_interval: 100_000, ..PathParameters::NONE };

/// Sends a segment, whose posting is completed at once. Returns its rail.
fn push(window: &mut Window, now: u64, rails: &mut Rails<'_, Nanos>) -> Rail {
    let posting = Posting { queue: DeviceQueue::Polled, ticket: Ticket(window.next().get() + 1) };
    let segment = window.push(now, SegmentRef::default(), posting, rails, RailChoice::ANY).expect("room");
    window.handle_completed(posting.queue, posting.ticket);
    segment.rail
}

/// Lets the next timer expire. Returns when it does, and the probes that leave then.
fn expire(window: &mut Window, rails: &mut Rails<'_, Nanos>) -> (u64, Vec<Probe<16>>) {
    let now = window.next_deadline(rails).expect("a segment is not acknowledged");
    assert!(window.handle_timeout(now, rails));
    (now, core::iter::from_fn(|| window.probe(now, rails)).collect())
}

/// All segments before `cumulative` have arrived.
const fn acknowledgement(cumulative: u32, echo: Echo<16>, answers_probe: bool) -> Acknowledgement<16> {
    let (cumulative, echo) = (Psn::new(cumulative), Some(echo));
    Acknowledgement { cumulative, credit: 4, selective: Bitmap::EMPTY, echo, answers_probe, nack: false }
}

/// Rail 0 has answered once and is quick, rail 1 never. The timer of rail 0 expires twice before an answer over rail 1
/// would be late.
#[test]
fn slow_rail_is_probed_once_while_the_other_stays_silent() {
    let (mut path, mut window) = (Path::new(PATH), Window::new(Psn::new(0)));
    let (mut states, mut loads) = ([RailState::FREE; 2], [RailLoad::IDLE; 2]);
    let mut rails = Rails::new(&mut path, RailRecords { states: &mut states, loads: &mut loads });
    rails.start(PATH, 0);
    assert_eq!(push(&mut window, 0, &mut rails), Rail(0));
    let echo = Echo { psn: Psn::new(0), count: 0, hold: 0 };
    window.handle_ack(64, &acknowledgement(1, echo, false), false, Rail(0), &mut rails);
    assert_eq!(push(&mut window, 64, &mut rails), Rail(0));
    let probed = [(); 2].map(|()| {
        let (_, probes) = expire(&mut window, &mut rails);
        probes.iter().map(|probe| probe.rail).collect::<Vec<_>>()
    });
    assert_eq!(probed, [vec![Rail(0), Rail(1)], vec![Rail(0)]]);
}

/// Rail 1 is in doubt until it answers. Rail 0 loses the only segment, and answers its probe after rail 1.
#[test]
fn probe_shows_a_loss_on_its_rail_although_another_rail_lives_again_meanwhile() {
    let (mut path, mut window) = (Path::new(PATH), Window::new(Psn::new(0)));
    let (mut states, mut loads) = ([RailState::FREE; 2], [RailLoad::IDLE; 2]);
    let mut rails = Rails::new(&mut path, RailRecords { states: &mut states, loads: &mut loads });
    rails.start(PATH, 0b10);
    assert_eq!(push(&mut window, 0, &mut rails), Rail(0));
    let (now, probes) = expire(&mut window, &mut rails);
    for rail in [Rail(1), Rail(0)] {
        assert!(!window.has_lost(), "an answer over another rail shows no loss");
        let probe = probes.iter().rfind(|probe| probe.rail == rail).expect("both rails are probed");
        let echo = Echo { psn: probe.psn, count: probe.number, hold: 0 };
        window.handle_ack(now + 64, &acknowledgement(0, echo, true), false, rail, &mut rails);
    }
    let posting = Posting { queue: DeviceQueue::Polled, ticket: Ticket(2) };
    let again = window.resend(now + 64, posting, &mut rails);
    assert_eq!(again.map(|segment| segment.reason), Some(TxReason::ResentProbe));
}

/// A silent peer's segments fill both rails, and hold those to another peer back for as long as an answer may take.
#[test]
fn segments_to_a_silent_peer_hold_others_back_for_a_while() {
    const PATH: PathParameters = PathParameters { control: CongestionControl::Delay { target: 1000 }, ..self::PATH };
    const BULK: RailChoice = RailChoice { is_bulk: true, ..RailChoice::ANY };
    let mut loads = [RailLoad::IDLE; 2];
    let mut peers = [(); 2].map(|()| (Path::new(PATH), [RailState::FREE; 2], Window::new(Psn::new(0))));
    for (path, states, window) in &mut peers {
        let mut rails = Rails::new(path, RailRecords { states, loads: &mut loads });
        rails.start(PATH, 0);
        let granted =
            Acknowledgement { credit: 8, ..acknowledgement(0, Echo { psn: Psn::new(0), count: 0, hold: 0 }, false) };
        window.handle_ack(0, &granted, false, Rail(0), &mut rails);
    }
    let [silent, other] = &mut peers;
    for _ in 0..8 {
        let mut rails = Rails::new(&mut silent.0, RailRecords { states: &mut silent.1, loads: &mut loads });
        push(&mut silent.2, 0, &mut rails);
    }
    let mut rails = Rails::new(&mut other.0, RailRecords { states: &mut other.1, loads: &mut loads });
    assert!(other.2.has_room(&rails, BULK), "nothing is in flight to it");
    push(&mut other.2, 0, &mut rails);
    assert!(!other.2.has_room(&rails, BULK) && other.2.has_room(&rails, RailChoice::ANY));
    let mut has_room = || {
        let mut rails = Rails::new(&mut silent.0, RailRecords { states: &mut silent.1, loads: &mut loads });
        let (now, _) = expire(&mut silent.2, &mut rails);
        let rails = Rails::new(&mut other.0, RailRecords { states: &mut other.1, loads: &mut loads });
        (now, other.2.has_room(&rails, BULK))
    };
    let (at, _) = core::iter::from_fn(|| Some(has_room())).take(10).find(|(_, has_room)| *has_room).expect("in time");
    // Twice the target, and the timeout that follows.
    assert!((2000..=8000).contains(&(at / 64)), "after {} units", at / 64);
}
