//! The interrupt queue wakes a sleeping process.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use unisono_core::device::{Armed, Device, DeviceQueue, Received, Token, Transmit, TxReason};
use unisono_core::ids::PeerId;
use unisono_verbs::ud::WakeReason;

use super::{Adapter, Outcome, connect_devices, device};

/// The sender waits so long before it sends: the other is asleep by then.
const BEFORE: Duration = Duration::from_millis(300);
const BOUND: Duration = Duration::from_secs(5);

/// A thread sleeps on the second adapter's interrupt lane. A datagram that does not solicit an event leaves it asleep;
/// one that does wakes it. Returns the time that it slept, and the processor time that this took.
///
/// # Errors
/// It was not woken, or by the wrong datagram.
pub fn interrupt(adapters: [Adapter<'_>; 2]) -> Outcome<[Duration; 2]> {
    let (mut from, mut to) = (device(adapters[0], 2)?, device(adapters[1], 2)?);
    connect_devices(&mut [&mut from, &mut to])?;
    if to.arm(DeviceQueue::Interrupt) != Armed::Armed {
        return Err("something waits before anything was sent".into());
    }
    let bell = to.arrival_waiter(DeviceQueue::Interrupt);
    // Before the thread: on a busy host it starts later than the datagrams are timed from.
    let started = Instant::now();
    let sleeper = thread::spawn(move || {
        let busy = thread_time();
        let woken = bell.wait(Some(BOUND));
        (woken, started.elapsed(), thread_time().saturating_sub(busy))
    });
    for solicited in [false, true] {
        thread::sleep(BEFORE);
        if sleeper.is_finished() {
            return Err("it was woken by what does not solicit an event".into());
        }
        let mut token = from.token(DeviceQueue::Polled).ok_or("no free entry")?;
        token.header_room()[0] = solicited.into();
        let (to, at, cause) = (PeerId(1), DeviceQueue::Interrupt, TxReason::Probe);
        token.post(
            &Transmit { to: to.into(), queue: at, header_bytes: 1, payload: None, solicited, reason: cause },
            None,
        );
        from.flush(DeviceQueue::Polled);
    }
    let (woken, slept, busy) = sleeper.join().map_err(|_| "the sleeper panicked")?;
    if woken != WakeReason::Arrived || slept < 2 * BEFORE {
        return Err(format!("{woken:?} after {slept:?}").into());
    }
    for expected in [0, 1] {
        let datagram = to.receive(DeviceQueue::Interrupt).ok_or("it woke for nothing")?;
        if datagram.prefix() != [expected] || !datagram.is_from(PeerId(0)) {
            return Err("it woke for another datagram".into());
        }
        let slot = datagram.slot();
        to.release(slot);
    }
    Ok([slept, busy])
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
