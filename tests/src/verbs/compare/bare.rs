//! The device alone, in the loops of perftest.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::thread;
use std::time::Instant;

use unisono_core::device::{Device, DeviceQueue, HEADER_ROOM, Memory, Received, Token, Transmit, TxReason};
use unisono_core::ids::PeerId;
use unisono_core::span::Span;
use unisono_memory::memory_regions::{Address, Regions};
use unisono_verbs::ud::Ud;

use super::{DATAGRAMS, Processor, SHORT, TRIPS, WARM, median, pin};
use crate::verbs::{Adapter, Outcome, connect_devices, device};

const _: () = assert!(SHORT as usize == HEADER_ROOM);
/// Datagrams of a flush at most.
const CHAIN: u32 = 64;
/// Silence after which the rest is considered lost.
const SILENCE: Duration = Duration::from_secs(2);

fn pair(adapters: [Adapter<'_>; 2]) -> Outcome<[Ud<Address>; 2]> {
    let (mut here, mut there) = (device(adapters[0], 2)?, device(adapters[1], 2)?);
    connect_devices(&mut [&mut here, &mut there])?;
    Ok([here, there])
}

/// Posts one datagram, if an entry is free: a head and what is behind it.
fn post(device: &mut Ud<Address>, to: u32, head: u8, payload: Option<(Span, Address)>) -> bool {
    let Some(token) = device.token(DeviceQueue::Polled) else { return false };
    let (to, at, cause) = (PeerId(to), DeviceQueue::Polled, TxReason::First);
    let transmit = Transmit {
        to: to.into(),
        queue: at,
        header_bytes: head,
        payload: payload.map(|(span, _)| span),
        solicited: false,
        reason: cause,
    };
    token.post(&transmit, payload.map(|(_, address)| address));
    true
}

/// Consumes the next datagram, if there is one.
fn take(device: &mut Ud<Address>) -> bool {
    let Some(slot) = device.receive(DeviceQueue::Polled).map(|datagram| datagram.slot()) else { return false };
    device.release(slot);
    true
}

/// Waits for the next datagram.
fn wait(device: &mut Ud<Address>) -> Outcome<()> {
    let (mut looks, started) = (0_u32, Instant::now());
    while !take(device) {
        looks += 1;
        if looks.is_multiple_of(1 << 16) && started.elapsed() > SILENCE {
            return Err("a datagram was lost".into());
        }
    }
    Ok(())
}

/// Sends one short datagram.
fn send(device: &mut Ud<Address>, to: u32) {
    while !post(device, to, SHORT as u8, None) {}
    device.flush(DeviceQueue::Polled);
    device.completed(DeviceQueue::Polled);
}

/// Microseconds one way, median.
pub(super) fn latency(adapters: [Adapter<'_>; 2]) -> Outcome<f64> {
    pin(Processor::Here)?;
    let [mut here, mut there] = pair(adapters)?;
    thread::scope(|scope| {
        let echo = scope.spawn(move || -> Outcome<Ud<Address>> {
            pin(Processor::There)?;
            for _ in 0..WARM + TRIPS {
                wait(&mut there)?;
                send(&mut there, 0);
            }
            Ok(there)
        });
        let mut trips = Vec::new();
        for _ in 0..WARM + TRIPS {
            let started = Instant::now();
            send(&mut here, 1);
            wait(&mut here)?;
            trips.push(started.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        echo.join().map_err(|_| "the echo panicked")??;
        Ok(median(&trips[WARM as usize..]))
    })
}

/// Megabytes that arrive per second. What is lost does not count.
pub(super) fn rate(adapters: [Adapter<'_>; 2]) -> Outcome<f64> {
    pin(Processor::Here)?;
    let [mut here, mut there] = pair(adapters)?;
    // SAFETY: this thread alone uses the region, which is not freed before the device is done.
    let mut regions = unsafe { Regions::of(here.domain().clone()) };
    let bytes = here.limits().mtu;
    let span = Span { region: regions.allocate(bytes as usize)?, offset: 0, bytes };
    let payload = Some((span, regions.address(span).ok_or("the region lives")?));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = &over;
        let sink = scope.spawn(move || -> Outcome<(u32, Instant)> {
            pin(Processor::There)?;
            let (mut arrived, mut last) = (0, Instant::now());
            while arrived < DATAGRAMS {
                if take(&mut there) {
                    (arrived, last) = (arrived + 1, Instant::now());
                } else if over.load(Ordering::Relaxed) && last.elapsed() > SILENCE {
                    break;
                }
            }
            Ok((arrived, last))
        });
        let started = Instant::now();
        let mut sent = 0;
        while sent < DATAGRAMS {
            let before = sent;
            while sent < DATAGRAMS && sent - before < CHAIN && post(&mut here, 1, 0, payload) {
                sent += 1;
            }
            here.flush(DeviceQueue::Polled);
            here.completed(DeviceQueue::Polled);
        }
        over.store(true, Ordering::Relaxed);
        let (arrived, last) = sink.join().map_err(|_| "the sink panicked")??;
        Ok(f64::from(arrived) * f64::from(bytes) / (last - started).as_secs_f64() / 1e6)
    })
}
