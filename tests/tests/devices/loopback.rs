//! The conformance suite over [`End`]: three of them, joined by a hub that carries what they flush.

extern crate alloc;

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::collections::HashMap;

use unisono_core::device::{Armed, Device, DeviceEvent, DeviceQueue, Limits, Memory, PathRequest, Slot, Ticket};
use unisono_core::ids::PeerId;
use unisono_core::span::{Region, Span};
use unisono_loopback::device::{LoopbackDatagram, LoopbackDevice, LoopbackToken, MTU};
use unisono_loopback::regions::{Bytes, Regions};
use unisono_tests::conformance::{Fixture, TestMemory, assert_conforms};

/// The regions of one end.
struct Table(Regions<'static, 256>);

/// Datagrams on their way, by receiver: sender, bytes, how many of them.
type Hub = Rc<RefCell<HashMap<PeerId, VecDeque<(PeerId, [u8; MTU], u16)>>>>;

/// An end that sends its datagrams when it is flushed, and receives waiting ones before each poll.
struct Attached {
    end: LoopbackDevice<'static>,
    hub: Hub,
}

impl Attached {
    fn take_in(&mut self) {
        let mut hub = self.hub.borrow_mut();
        for (from, datagram, bytes) in hub.get_mut(&self.end.rank()).into_iter().flat_map(|queue| queue.drain(..)) {
            self.end.arrive(from, &datagram, bytes);
        }
    }
}

impl Device for Attached {
    type Address = Bytes<'static>;
    type Token<'a> = LoopbackToken<'a, 'static>;
    type Received<'a> = LoopbackDatagram<'a>;

    fn limits(&self) -> Limits {
        self.end.limits()
    }

    fn token(&mut self, lane: DeviceQueue) -> Option<LoopbackToken<'_, 'static>> {
        self.end.token(lane)
    }

    fn flush(&mut self, lane: DeviceQueue) {
        self.end.flush(lane);
        let mut datagram = [0; MTU];
        while let Some((to, bytes)) = self.end.depart(&mut datagram) {
            if let Some(queue) = self.hub.borrow_mut().get_mut(&to) {
                queue.push_back((self.end.rank(), datagram, bytes));
            }
        }
    }

    fn completed(&mut self, lane: DeviceQueue) -> Ticket {
        self.end.completed(lane)
    }

    fn receive(&mut self, lane: DeviceQueue) -> Option<LoopbackDatagram<'_>> {
        self.take_in();
        self.end.receive(lane)
    }

    fn place(&mut self, from: Slot, start: u16, bytes: u32, to: Bytes<'static>) {
        self.end.place(from, start, bytes, to);
    }

    fn hold(&mut self, slot: Slot) {
        self.end.hold(slot);
    }

    fn held(&self, slot: Slot) -> LoopbackDatagram<'_> {
        self.end.held(slot)
    }

    fn release(&mut self, slot: Slot) {
        self.end.release(slot);
    }

    fn arm(&mut self, lane: DeviceQueue) -> Armed {
        self.take_in();
        self.end.arm(lane)
    }

    fn request_path(&mut self, request: PathRequest) {
        self.end.request_path(request);
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.end.poll_event()
    }
}

struct Ends;

impl Table {
    fn bytes(&self, region: Region, offset: usize, bytes: usize) -> Bytes<'static> {
        let bytes = u32::try_from(bytes).expect("regions are small");
        self.address(Span { region, offset, bytes }).expect("the suite stays within its regions")
    }
}

impl Memory for Table {
    type Address = Bytes<'static>;

    fn address(&self, span: Span) -> Option<Bytes<'static>> {
        self.0.address(span)
    }
}

impl TestMemory for Table {
    fn make(&mut self, bytes: usize) -> Region {
        let fresh = Vec::leak((0..bytes).map(|_| AtomicU8::new(0)).collect());
        self.0.make(fresh).expect("the suite keeps few regions alive")
    }

    fn retire(&mut self, region: Region) {
        self.0.retire(region).expect("the suite retires a region once");
    }

    fn write(&mut self, region: Region, offset: usize, from: &[u8]) {
        let to = self.bytes(region, offset, from.len());
        to.iter().zip(from).for_each(|(to, from)| to.store(*from, Relaxed));
    }

    fn read(&mut self, region: Region, offset: usize, count: usize) -> Vec<u8> {
        self.bytes(region, offset, count).iter().map(|byte| byte.load(Relaxed)).collect()
    }
}

impl Fixture for Ends {
    type Device = Attached;
    type Memory = Table;

    fn connect(&mut self, count: u32) -> Vec<(Attached, Table)> {
        let hub = Rc::new(RefCell::new((0..count).map(|rank| (PeerId(rank), VecDeque::new())).collect()));
        let attach = |rank| {
            let mut end = LoopbackDevice::new();
            end.attach(PeerId(rank), count);
            (Attached { end, hub: Rc::clone(&hub) }, Table(Regions::new()))
        };
        (0..count).map(attach).collect()
    }

    /// A hub has no clock.
    fn advance(&mut self, _: u64) {}

    fn wait(&mut self, device: &mut Attached, lane: DeviceQueue, _: u64) -> bool {
        device.arm(lane) == Armed::Pending
    }

    fn is_faulty(&self) -> bool {
        false
    }
}

#[test]
fn an_end_of_a_wire_conforms() {
    assert_conforms(|| Ends);
}
