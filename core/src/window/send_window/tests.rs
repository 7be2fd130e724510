//! Acknowledgements that change nothing or arrive in time.

use super::*;
use crate::device::{DeviceQueue, Posting, Ticket};
use crate::path::PathParameters;
use crate::time::Nanos;
use crate::window::congestion::CongestionControl;
use crate::window::rails::{RailChoice, RailLoad, RailRecords, RailState};
use crate::wire::{Acknowledgement, Bitmap, Echo};

type Window = SendWindow<Nanos, 8, 16>;

const PATH: Path<Nanos> =
    Path::new(PathParameters { granularity: 100, max_probe_interval: 100_000, control: CongestionControl::Fixed });
const UNITS: u32 = 1000;

const fn posting(ticket: u32) -> Posting {
    Posting { queue: DeviceQueue::Polled, ticket: Ticket(ticket) }
}

fn acknowledgement(cumulative: u32, credit: u16) -> Acknowledgement<16> {
    let cumulative = Psn::new(cumulative);
    Acknowledgement { cumulative, credit, selective: Bitmap::EMPTY, echo: None, answers_probe: false, nack: false }
}

fn handle_piggybacked(window: &mut Window, path: &mut Path<Nanos>, now: u64, cumulative: u32, credit: u16) {
    window.handle_sign_of_life();
    window.handle_ack(now, &acknowledgement(cumulative, credit), false, Rail(0), &mut Rails::one(path));
    while window.release().is_some() {}
    if window.is_acknowledged() {
        window.watch(now, UNITS);
    }
}

#[test]
fn redundant_ack_has_the_effect_of_its_acknowledgement() {
    let cases = [(3, 3, false, false), (3, 1, false, false), (3, 1, true, false), (3, 1, false, true)];
    let mut known = [0; 4];
    for (known, (sent, acknowledged, drains, contradicts)) in known.iter_mut().zip(cases) {
        let (mut window, mut path) = (Window::new(Psn::new(0)), PATH);
        handle_piggybacked(&mut window, &mut path, 0, 0, 6);
        for i in 0..sent {
            let piece = SegmentRef { operation: i, part: 0 };
            let segment = window
                .push(0, piece, posting(i + 1), &mut Rails::one(&mut path), RailChoice::ANY)
                .expect("six are granted");
            if drains && i + 1 == sent {
                window.return_credit(segment.psn);
            }
        }
        window.handle_completed(DeviceQueue::Polled, Ticket(sent));
        handle_piggybacked(&mut window, &mut path, 10_000, acknowledged, 4);
        if contradicts {
            handle_piggybacked(&mut window, &mut path, 20_000, 9, 4);
        }
        for (cumulative, credit) in (0..6).flat_map(|cumulative| (0..8).map(move |credit| (cumulative, credit))) {
            let (mut short, mut long) = (window, window);
            if short.is_redundant_ack(1_000_000, Psn::new(cumulative), credit, UNITS) {
                handle_piggybacked(&mut long, &mut path.clone(), 1_000_000, cumulative, credit);
                *known += 1;
            }
            assert_eq!(short, long, "{sent} {acknowledged} {cumulative} {credit}");
        }
    }
    // Of credits 0 to 7: those within the current credit; once it is returned, all of them; after an acknowledgement of
    // what was not sent, none.
    assert_eq!(known, [5, 6, 8, 0]);
}

#[test]
fn piggybacked_ack_is_timely_until_a_timeout_would_be_due() {
    let (mut window, mut path) = (Window::new(Psn::new(0)), PATH);
    let push = |window: &mut Window, now| {
        let posting = posting(window.next().get() + 1);
        window
            .push(now, SegmentRef::default(), posting, &mut Rails::one(&mut { PATH }), RailChoice::ANY)
            .expect("four are granted");
        window.handle_completed(posting.queue, posting.ticket);
    };
    handle_piggybacked(&mut window, &mut path, 0, 0, 4);
    push(&mut window, 0);
    assert_eq!(window.is_prompt(64, Psn::new(1), &path), None, "no round trip measured");
    let echo = Some(Echo { psn: Psn::new(0), count: 0, hold: 0 });
    window.handle_ack(
        50 * 64,
        &Acknowledgement { echo, ..acknowledgement(1, 4) },
        false,
        Rail(0),
        &mut Rails::one(&mut path),
    );
    while window.release().is_some() {}
    push(&mut window, 10_000 * 64);
    // The measured round trip is 50 units; the margin, which is at least 100, is four times the deviation.
    for (units, expected) in [(0, true), (150, true), (151, false)] {
        assert_eq!(window.is_prompt((10_000 + units) * 64, Psn::new(2), &path), Some(expected), "{units}");
    }
    for (cumulative, what) in [(1, "known"), (3, "never sent"), (0, "released")] {
        assert_eq!(window.is_prompt(10_000 * 64, Psn::new(cumulative), &path), None, "{what}");
    }
    let (whole, rtt) = (path.congestion, path.rtt);
    path.congestion.handle_loss(1 << 30, 1 << 20, &rtt, &CongestionControl::Delay { target: 1 }, 4);
    assert_eq!(window.is_prompt(10_000 * 64, Psn::new(2), &path), Some(false), "a small window needs measurements");
    path.congestion = whole;
    window.request_resend(Psn::new(1), &mut Rails::one(&mut path));
    assert_eq!(window.is_prompt(10_000 * 64, Psn::new(2), &path), None, "lost");
    assert!(window.resend(20_000 * 64, posting(3), &mut Rails::one(&mut path)).is_some());
    assert_eq!(window.is_prompt(20_000 * 64, Psn::new(2), &path), None, "sent twice: ambiguous which copy arrived");
}

#[test]
fn acknowledgements_that_are_late_over_a_slow_rail_contradict_nothing() {
    /// Whether 40 such acknowledgements, each a timeout after the one before, contradict what was sent: one segment.
    fn contradict(count: usize, cumulative: u32) -> bool {
        let (mut window, mut path) = (Window::new(Psn::new(7)), PATH);
        let (mut states, mut loads) = ([RailState::FREE; 2], [RailLoad::IDLE; 2]);
        let (states, loads) = (&mut states[..count], &mut loads[..count]);
        Rails::new(&mut path, RailRecords { states, loads }).start(PATH.parameters, 0);
        let mut acknowledge = |window: &mut Window, now, cumulative| {
            let mut rails = Rails::new(&mut path, RailRecords { states, loads });
            window.handle_ack(now, &acknowledgement(cumulative, 4), false, Rail(0), &mut rails);
            rails.path(Rail(0)).timeout()
        };
        let timeout = acknowledge(&mut window, 0, 7);
        let (mut path, mut states, mut loads) = (PATH, [RailState::FREE; 2], [RailLoad::IDLE; 2]);
        let mut rails = Rails::new(&mut path, RailRecords { states: &mut states[..count], loads: &mut loads[..count] });
        window.push(0, SegmentRef::default(), posting(1), &mut rails, RailChoice::ANY).expect("four are granted");
        window.handle_completed(DeviceQueue::Polled, Ticket(1));
        acknowledge(&mut window, 64, 8);
        while window.release().is_some() {}
        for round in 1..=40 {
            acknowledge(&mut window, round * 128 * u64::from(timeout), cumulative);
        }
        window.is_contradicted()
    }
    assert_eq!([7, 0x9000].map(|released| contradict(0, released)), [true; 2]);
    assert_eq!([7, 0x9000].map(|released| contradict(2, released)), [false; 2]);
    assert!(contradict(0, 9) && contradict(2, 9), "never sent");
}

/// Rail 1 answers a probe late, after an acknowledgement over rail 0 of all that was sent.
#[test]
fn late_answer_asks_again_only_for_what_a_dead_rail_carried() {
    /// Whether a probe is to be sent after the answer.
    fn asks_again(dies: bool) -> bool {
        let (mut window, mut path) = (Window::new(Psn::new(0)), PATH);
        let (mut states, mut loads) = ([RailState::FREE; 2], [RailLoad::IDLE; 2]);
        let mut rails = Rails::new(&mut path, RailRecords { states: &mut states, loads: &mut loads });
        rails.start(PATH.parameters, 0);
        window.handle_ack(0, &acknowledgement(0, 6), false, Rail(0), &mut rails);
        for i in 0..2 {
            window
                .push(0, SegmentRef::default(), posting(i + 1), &mut rails, RailChoice::ANY)
                .expect("six are granted");
        }
        window.handle_completed(DeviceQueue::Polled, Ticket(2));
        if dies {
            rails.handle_death(Rail(0));
        } else {
            rails.request_probe(Some(Rail(1)));
        }
        let (rail, count, covered) = rails.take_probe(0, 2).expect("one is requested");
        assert_eq!((rail, covered), (Rail(1), if dies { 0b11 } else { 0b10 }));
        window.handle_ack(64, &acknowledgement(2, 6), false, Rail(0), &mut rails);
        while window.release().is_some() {}
        assert!(!rails.wants_probe());
        let echo = Some(Echo { psn: Psn::new(2), count, hold: 0 });
        let late = Acknowledgement { echo, answers_probe: true, ..acknowledgement(1, 6) };
        assert!(window.handle_ack(128, &late, false, Rail(1), &mut rails).stale);
        rails.wants_probe()
    }
    assert_eq!([true, false].map(asks_again), [true, false]);
}

#[test]
fn a_late_acknowledgement_that_shows_a_loss_halves_the_congestion_window() {
    /// The room of a path whose window was whole, after an acknowledgement of all five segments, or of the last four, 200
    /// units after they left; the shortest round trip is 50 units, and 100 more is the target.
    fn room(all_arrive: bool) -> u32 {
        let control = CongestionControl::Delay { target: 100 };
        let mut path = Path::new(PathParameters { control, ..PATH.parameters });
        let mut window = Window::new(Psn::new(0));
        handle_piggybacked(&mut window, &mut path, 0, 0, 8);
        path.rtt.sample(50);
        for i in 0..5 {
            window
                .push(64, SegmentRef::default(), posting(i + 1), &mut Rails::one(&mut path), RailChoice::ANY)
                .expect("granted");
        }
        window.handle_completed(DeviceQueue::Polled, Ticket(5));
        let mut selective = Bitmap::EMPTY;
        (0..if all_arrive { 0 } else { 4 }).for_each(|i| selective.insert(i));
        let echo = Some(Echo { psn: Psn::new(4), count: 0, hold: 0 });
        let late = Acknowledgement { selective, echo, ..acknowledgement(if all_arrive { 5 } else { 0 }, 8) };
        window.handle_ack(201 * 64, &late, false, Rail(0), &mut Rails::one(&mut path));
        path.congestion.room(0, 8)
    }
    assert_eq!([true, false].map(room), [7, 4]);
}

#[test]
fn no_burst_leaves_before_a_lost_segment() {
    let (mut window, mut path) = (Window::new(Psn::new(0)), PATH);
    handle_piggybacked(&mut window, &mut path, 0, 0, 6);
    for i in 0..2 {
        window
            .push(0, SegmentRef::default(), posting(i + 1), &mut Rails::one(&mut path), RailChoice::ANY)
            .expect("six are granted");
    }
    window.handle_completed(DeviceQueue::Polled, Ticket(2));
    assert_eq!(window.burst_room(&path), 4);
    window.request_resend(Psn::new(0), &mut Rails::one(&mut path));
    assert_eq!(window.burst_room(&path), 0);
    assert!(window.resend(64, posting(3), &mut Rails::one(&mut path)).is_some());
    assert_eq!(window.burst_room(&path), 4);
}
