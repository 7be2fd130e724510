//! Time to create an address handle, and whether handles outlive the windows of their peers.

use core::time::Duration;
use std::time::Instant;

use unisono_core::device::{Device, DeviceEvent, PathRequest};
use unisono_core::ids::PeerId;
use unisono_core::span::Span;

use super::compare::median;
use super::{Adapter, Outcome, VerbsEnd, within};

/// Handles that are made to be timed.
const MADE: u32 = 200;
/// Messages, at intervals in which windows, which are kept for 10 ms, are released.
const MESSAGES: u32 = 50;
const APART: Duration = Duration::from_millis(20);

/// Costs of handles.
#[derive(Clone, Copy, Debug)]
pub struct Handles {
    /// Median microseconds from the request for a handle until it exists.
    pub one_us: f64,
    /// Messages that were sent, one way, each after a pause in which windows are released.
    pub messages: u32,
    /// Handles that both ends made for them and for their acknowledgements.
    pub made: u64,
}

/// Makes handles again and again, then sends messages with pauses.
///
/// # Errors
/// A handle is not made, or a message does not arrive.
pub fn handles(adapters: [Adapter<'_>; 2]) -> Outcome<Handles> {
    let [mut here, mut there] = VerbsEnd::pair(adapters)?;
    let mut times = Vec::new();
    for _ in 0..MADE {
        here.device.request_path(PathRequest::Forget(PeerId(1)));
        let started = Instant::now();
        here.device.request_path(PathRequest::Resolve(PeerId(1)));
        let path = |fact: &DeviceEvent| matches!(fact, DeviceEvent::Path { .. });
        within(Duration::from_secs(1), "an address handle", || Ok(here.device.poll_event().filter(path)))?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    let made = |ends: [&VerbsEnd; 2]| ends.map(|end| end.device.counters().handles_made.get()).iter().sum::<u64>();
    let before = made([&here, &there]);
    let payload = Span { region: here.regions.allocate(64)?, offset: 0, bytes: 64 };
    for message in 1..=MESSAGES {
        let now = here.now();
        here.endpoint.send(now, PeerId(1), &[], Some(payload)).map_err(|error| format!("{error:?}"))?;
        within(Duration::from_secs(1), "a message", || {
            here.drive();
            there.drive();
            Ok((there.counter.messages == message).then_some(()))
        })?;
        let pause = Instant::now();
        while pause.elapsed() < APART {
            here.drive();
            there.drive();
        }
    }
    Ok(Handles { one_us: median(&times), messages: MESSAGES, made: made([&here, &there]) - before })
}
