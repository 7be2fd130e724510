//! An Ethernet in memory: the ports of one hub, as adapters of `smoltcp`.

use alloc::{collections::VecDeque, rc::Rc};
use core::cell::RefCell;

use unisono_ethernet::smoltcp::{
    phy::{self, DeviceCapabilities, Medium},
    time::Instant,
    wire::{EthernetAddress, EthernetFrame},
};
use unisono_udp::fault_injection::{FaultInjector, Faults, ReorderQueue};

/// Where a UDP payload begins. Faults change nothing before it, and no question: links check their frames, of which an
/// adapter's driver may lose that check.
const PAYLOAD: usize = 42;

/// Frames that wait at a port.
#[derive(Debug)]
struct PortQueue {
    hardware: EthernetAddress,
    frames: VecDeque<Vec<u8>>,
}

/// Frames go to the port of their address, or to all but the sender's. At most `slots` wait at a port; more are lost.
#[derive(Debug)]
pub struct Hub {
    ports: Vec<PortQueue>,
    slots: usize,
    injector: FaultInjector,
    delayed: ReorderQueue<(usize, Vec<u8>)>,
}

/// A port of a hub.
#[derive(Clone, Debug)]
pub struct Port {
    hub: Rc<RefCell<Hub>>,
    number: usize,
    mtu: usize,
    slots: usize,
}

impl Hub {
    /// The ports of a hub whose frames have at most `mtu` bytes, with these faults.
    pub fn ports(count: u8, mtu: usize, slots: usize, faults: Faults) -> Vec<Port> {
        let queue = |number| PortQueue { hardware: hardware(number), frames: VecDeque::new() };
        let ports = (0..count).map(queue).collect();
        let hub = Self { ports, slots, injector: FaultInjector::new(faults), delayed: ReorderQueue::default() };
        let hub = Rc::new(RefCell::new(hub));
        (0..count).map(|number| Port { hub: Rc::clone(&hub), number: number.into(), mtu, slots }).collect()
    }

    fn send(&mut self, from: usize, frame: Vec<u8>) {
        for passage in self.injector.next_outcome(frame.len()).copies() {
            let mut frame = frame.clone();
            if let (Some(flip), Some(payload)) = (passage.flip, frame.get_mut(PAYLOAD..)) {
                flip.apply(payload);
            }
            let (ports, slots) = (&mut self.ports, self.slots);
            self.delayed.push((from, frame), passage.overtaken_by, |(from, frame)| deliver(ports, slots, from, &frame));
        }
    }
}

fn deliver(ports: &mut [PortQueue], slots: usize, from: usize, frame: &[u8]) {
    let Ok(read) = EthernetFrame::new_checked(frame) else { return };
    let to = read.dst_addr();
    for (number, port) in ports.iter_mut().enumerate() {
        if number != from && (to.is_broadcast() || to == port.hardware) && port.frames.len() < slots {
            port.frames.push_back(frame.to_vec());
        }
    }
}

/// The address of the port of this number.
pub const fn hardware(number: u8) -> EthernetAddress {
    EthernetAddress([2, 0, 0, 0, 0, number])
}

impl Port {
    /// Delivers the frames that were held back for reordering.
    pub fn settle(&self) {
        let hub = &mut *self.hub.borrow_mut();
        let (ports, slots) = (&mut hub.ports, hub.slots);
        hub.delayed.flush_idle(|(from, frame)| deliver(ports, slots, from, &frame));
    }

    /// Injects a frame.
    pub fn inject(&self, frame: Vec<u8>) {
        if let Some(queue) = self.hub.borrow_mut().ports.get_mut(self.number) {
            queue.frames.push_back(frame);
        }
    }

    /// Removes the next waiting frame.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.hub.borrow_mut().ports.get_mut(self.number)?.frames.pop_front()
    }
}

/// A received frame.
#[derive(Debug)]
pub struct ReceivedFrame(Vec<u8>);

impl phy::RxToken for ReceivedFrame {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

/// Room for a frame.
#[derive(Debug)]
pub struct TransmitFrame<'a>(&'a Port);

impl phy::TxToken for TransmitFrame<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, write: F) -> R {
        let mut frame = vec![0; bytes];
        let written = write(&mut frame);
        assert!(bytes <= self.0.mtu, "a frame of {bytes} bytes");
        self.0.hub.borrow_mut().send(self.0.number, frame);
        written
    }
}

impl phy::Device for Port {
    type RxToken<'a> = ReceivedFrame;
    type TxToken<'a> = TransmitFrame<'a>;

    fn receive(&mut self, _: Instant) -> Option<(ReceivedFrame, TransmitFrame<'_>)> {
        let frame = self.take()?;
        Some((ReceivedFrame(frame), TransmitFrame(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<TransmitFrame<'_>> {
        Some(TransmitFrame(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu;
        capabilities.max_burst_size = Some(self.slots);
        capabilities
    }
}
