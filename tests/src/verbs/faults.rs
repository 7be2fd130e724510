//! Failures are reported, queues are recreated, and traffic resumes.

use core::time::Duration;
use std::process::Command;
use std::time::Instant;
use std::{fs, thread};

use unisono_core::device::{Device, DeviceEvent, DeviceQueue, Received, Token, Transmit, TxReason};
use unisono_core::ids::{PeerId, Rail};
use unisono_memory::memory_regions::Address;
use unisono_verbs::ud::{Domain, Ud, UdOptions};

use super::{Adapter, Outcome, VerbsEnd, connect_devices, device, within};

const BOUND: Duration = Duration::from_secs(5);
/// The bar for a removed interface.
const REMOVAL: Duration = Duration::from_secs(1);

/// Both ends exchange messages; the queue pair of each in turn is forced into error. Returns how often one was made
/// anew.
///
/// # Errors
/// It was not reported, or messages do not arrive any more.
pub fn queue_failure(adapters: [Adapter<'_>; 2]) -> Outcome<u64> {
    let mut ends = VerbsEnd::pair(adapters)?;
    let mut sent = [0; 2];
    exchange(&mut ends, &mut sent)?;
    for failing in [0, 1, 1, 0] {
        let rebuilt = ends[failing].device.counters().rebuilt.get();
        ends[failing].device.fail(DeviceQueue::Polled)?;
        exchange(&mut ends, &mut sent)?;
        if ends[failing].device.counters().rebuilt.get() == rebuilt {
            return Err("a queue in error was not made anew".into());
        }
    }
    // The other lane is mended as well, and the device says what happened.
    let device = &mut ends[0].device;
    device.fail(DeviceQueue::Interrupt)?;
    let mut facts = Vec::new();
    within(BOUND, "the report of the interrupt lane", || {
        while device.receive(DeviceQueue::Interrupt).is_some() {}
        facts.extend(device.poll_event());
        Ok((facts == [DeviceEvent::Down(Rail(0)), DeviceEvent::Up(Rail(0))]).then_some(()))
    })?;
    Ok(ends.iter().map(|end| end.device.counters().rebuilt.get()).sum())
}

/// The interface goes down and up between messages. Returns how long it took until traffic resumed.
///
/// # Errors
/// As [`queue_failure`].
pub fn link_failure(adapters: [Adapter<'_>; 2], interface: &str) -> Outcome<Duration> {
    let mut ends = VerbsEnd::pair(adapters)?;
    let mut sent = [0; 2];
    exchange(&mut ends, &mut sent)?;
    ip(&["link", "set", interface, "down"])?;
    let device = &mut ends[0].device;
    within(BOUND, "the report that the port is down", || {
        Ok((device.poll_event() == Some(DeviceEvent::Down(Rail(0)))).then_some(()))
    })?;
    thread::sleep(Duration::from_millis(200));
    ip(&["link", "set", interface, "up"])?;
    let up = Instant::now();
    within(BOUND, "the report that the port is up", || {
        Ok((device.poll_event() == Some(DeviceEvent::Up(Rail(0)))).then_some(()))
    })?;
    exchange(&mut ends, &mut sent)?;
    Ok(up.elapsed())
}

/// A completion queue that is smaller than its receive queue is overrun. Returns how often that was reported.
///
/// # Errors
/// As [`queue_failure`].
pub fn overrun(adapters: [Adapter<'_>; 2]) -> Outcome<u64> {
    let mut from = device(adapters[0], 2)?;
    let small = UdOptions { completions: Some(16), receive_slots: 256, ..adapters[1].options(2) };
    let mut to = Ud::new(&Domain::open(Some(adapters[1].name))?, &small)?;
    connect_devices(&mut [&mut from, &mut to])?;
    for _ in 0..64 {
        post(&mut from, 0)?;
    }
    from.flush(DeviceQueue::Polled);
    let tally = to.counters();
    within(BOUND, "the report of the overrun", || {
        thread::sleep(Duration::from_millis(1));
        to.poll_event();
        Ok((tally.overruns.get() > 0 && tally.rebuilt.get() > 0).then_some(()))
    })?;
    while let Some(slot) = to.receive(DeviceQueue::Polled).map(|datagram| datagram.slot()) {
        to.release(slot);
    }
    for number in 1..50 {
        post(&mut from, number)?;
        from.flush(DeviceQueue::Polled);
        let slot = within(BOUND, "a datagram after the overrun", || {
            to.poll_event();
            Ok(to
                .receive(DeviceQueue::Polled)
                .filter(|datagram| datagram.prefix() == [number])
                .map(|datagram| datagram.slot()))
        })?;
        to.release(slot);
        from.completed(DeviceQueue::Polled);
    }
    Ok(tally.overruns.get())
}

/// The interface is removed. Returns how long it took until the device said so and was closed, and the adapter gone.
///
/// # Errors
/// It took longer than a second.
pub fn removal(adapters: [Adapter<'_>; 2], interface: &str) -> Outcome<Duration> {
    let mut ends = VerbsEnd::pair(adapters)?;
    exchange(&mut ends, &mut [0; 2])?;
    let [mut end, other] = ends;
    let interface = interface.to_owned();
    let started = Instant::now();
    let remover = thread::spawn(move || ip(&["link", "del", &interface]));
    let mut down = false;
    within(BOUND, "the device to close", || {
        down |= end.device.poll_event() == Some(DeviceEvent::Down(Rail(0)));
        Ok((down && end.device.is_closed()).then_some(()))
    })?;
    let closed = started.elapsed();
    if closed > REMOVAL {
        return Err(format!("the device closed after {} ms only", closed.as_millis()).into());
    }
    drop(other);
    // Postings are lost, and the device stays usable as an object.
    post(&mut end.device, 1)?;
    end.device.flush(DeviceQueue::Polled);
    end.device.completed(DeviceQueue::Polled);
    remover.join().map_err(|_| "ip panicked")??;
    within(BOUND, "the adapter to go", || {
        Ok((!fs::exists(format!("/sys/class/infiniband/{}", adapters[0].name))?).then_some(()))
    })?;
    Ok(closed)
}

/// A few messages each way, which all arrive.
fn exchange(ends: &mut [VerbsEnd; 2], sent: &mut [u32; 2]) -> Outcome<()> {
    for _ in 0..32 {
        for ((end, sent), to) in ends.iter_mut().zip(sent.iter_mut()).zip([1, 0]) {
            let now = end.now();
            end.endpoint.send(now, PeerId(to), &[7; 16], None).map_err(|error| format!("{error:?}"))?;
            *sent += 1;
        }
    }
    let [here, there] = ends;
    within(BOUND, "messages", || {
        for end in [&mut *here, &mut *there] {
            end.drive();
            while end.event().is_some() {}
        }
        Ok((here.counter.messages == sent[1] && there.counter.messages == sent[0]).then_some(()))
    })
}

fn post(device: &mut Ud<Address>, number: u8) -> Outcome<()> {
    let mut token = device.token(DeviceQueue::Polled).ok_or("no free entry")?;
    token.header_room()[0] = number;
    let (to, at, cause) = (PeerId(1), DeviceQueue::Polled, TxReason::First);
    token.post(
        &Transmit { to: to.into(), queue: at, header_bytes: 1, payload: None, solicited: false, reason: cause },
        None,
    );
    Ok(())
}

fn ip(arguments: &[&str]) -> Outcome<()> {
    let status = Command::new("ip").args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(format!("ip {arguments:?}: {status}").into()) }
}
