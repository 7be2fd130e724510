//! A virtio network adapter on the PCI bus (Virtual I/O Device 1.2, 5.1), as a [`phy::Device`].
//!
//! Frames lie in memory of their own, which the adapter reads and writes where it is: physical addresses are addresses.
//! A frame belongs either to the adapter or to the driver: only a pointer names it while the adapter owns it.
//!
//! Without a check of its own on this wire a datagram still has its trailer, so that UDP's checksum is left out; IPv4's
//! is not.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use heapless::Vec;
use smoltcp::phy::{self, Checksum, ChecksumCapabilities, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use smoltcp::wire::EthernetAddress;
use static_cell::ConstStaticCell;
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::pci::PciTransport;
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

use crate::{exit, memory, pci, say};

const VENDOR: u16 = 0x1af4;
/// Transitional and modern device IDs.
const DEVICES: [u16; 2] = [0x1000, 0x1041];
/// Frames that wait to be received, and descriptors of either queue.
const QUEUE: usize = 256;
/// Frames that wait to be sent.
const SENDING: usize = 64;
/// Bytes of a frame's memory: the adapter's header, of 12 bytes, and the frame.
const BYTES: usize = 2048;
/// Bytes of the longest frame.
const FRAME: usize = 1514;
/// Pages of the queues: descriptors and rings.
const PAGES: usize = 8;

type Frame = [u8; BYTES];
type Driver = VirtIONetRaw<Pages, PciTransport, QUEUE>;

/// Memory that the adapter reads and writes.
#[repr(C, align(4096))]
struct Pool {
    pages: UnsafeCell<[[u8; PAGE_SIZE]; PAGES]>,
    frames: UnsafeCell<[Frame; QUEUE + SENDING]>,
}

// SAFETY: pages are given away once, by `Pages`; frames belong to the one network there is.
unsafe impl Sync for Pool {}

#[unsafe(link_section = ".bss.pool")]
static POOL: Pool =
    Pool { pages: UnsafeCell::new([[0; PAGE_SIZE]; PAGES]), frames: UnsafeCell::new([[0; BYTES]; QUEUE + SENDING]) };
/// Pages that are allocated.
static PAGES_ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static TAKEN: ConstStaticCell<()> = ConstStaticCell::new(());

/// Memory for the queues: pages of the pool, which are never freed.
#[derive(Debug)]
enum Pages {}

// SAFETY: `dma_alloc` gives out zeroed pages of a static, each once and none back; all memory is mapped at its own
// address, where the adapter finds it, and registers are where `address_of` says, mapped as long as the image runs.
unsafe impl Hal for Pages {
    /// No page is allocated twice; all are zero, as boot.s left them. Without a free page: address 0, which the driver
    /// treats as a failure.
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let first = PAGES_ALLOCATED.load(Relaxed);
        let start = POOL.pages.get().cast::<[u8; PAGE_SIZE]>().wrapping_add(first).cast();
        match (first.checked_add(pages), NonNull::new(start)) {
            (Some(end), Some(start)) if end <= PAGES => {
                PAGES_ALLOCATED.store(end, Relaxed);
                (start.addr().get() as PhysAddr, start)
            }
            _ => (0, NonNull::dangling()),
        }
    }

    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
        0
    }

    /// Mapped for all time, and nobody else's. `find` has asked before whether it is.
    unsafe fn mmio_phys_to_virt(physical: PhysAddr, bytes: usize) -> NonNull<u8> {
        memory::address_of(physical, bytes as u64).unwrap_or_else(|| {
            say!("the network's registers are not mapped");
            exit::exit(exit::FAULTED)
        })
    }

    /// All memory is the adapter's, at its own address.
    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.addr().get() as PhysAddr
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

/// The frame of each descriptor.
#[derive(Debug)]
struct FrameTable([Option<u16>; QUEUE]);

impl FrameTable {
    fn set(&mut self, descriptor: u16, frame: u16) {
        if let Some(owner) = self.0.get_mut(usize::from(descriptor)) {
            *owner = Some(frame);
        }
    }

    /// `None`: the adapter owns no frame under this descriptor.
    fn get(&self, descriptor: u16) -> Option<u16> {
        self.0.get(usize::from(descriptor)).copied().flatten()
    }

    fn clear(&mut self, descriptor: u16) {
        if let Some(owner) = self.0.get_mut(usize::from(descriptor)) {
            *owner = None;
        }
    }
}

/// The adapter and the frames.
pub struct VirtioNet {
    driver: Driver,
    receiving: FrameTable,
    sending: FrameTable,
    /// Free transmit frames.
    free: Vec<u16, SENDING>,
    /// The frame that was returned last: goes back to the adapter with the next call.
    handed_out: Option<u16>,
    overlong: u32,
}

impl core::fmt::Debug for VirtioNet {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.debug_struct("Network")
            .field("free", &self.free.len())
            .field("handed_out", &self.handed_out)
            .finish_non_exhaustive()
    }
}

/// The adapter that the emulator was given, ready. `None`: none, it does not work, or it was found before.
pub fn find() -> Option<VirtioNet> {
    let function = pci::find(|info| info.vendor_id == VENDOR && DEVICES.contains(&info.device_id))?;
    // All are mapped, so that none of its registers is missing later.
    for (physical, bytes) in pci::memories(function) {
        memory::address_of(physical, bytes)?;
    }
    TAKEN.try_take()?;
    let transport = PciTransport::new::<Pages, _>(&mut pci::devices(), function).ok()?;
    let mut driver = Driver::new(transport).ok()?;
    driver.disable_interrupts();
    let none = || FrameTable([None; QUEUE]);
    let mut network =
        VirtioNet { driver, receiving: none(), sending: none(), free: Vec::new(), handed_out: None, overlong: 0 };
    for frame in (QUEUE..).take(SENDING) {
        network.free.push(u16::try_from(frame).ok()?).ok()?;
    }
    for frame in 0..QUEUE {
        network.post_receive(u16::try_from(frame).ok()?);
    }
    Some(network)
}

/// A frame's memory.
fn frame(index: u16) -> NonNull<Frame> {
    let index = usize::from(index).min(QUEUE + SENDING - 1);
    NonNull::new(POOL.frames.get().cast::<Frame>().wrapping_add(index)).unwrap_or(NonNull::dangling())
}

impl VirtioNet {
    /// The hardware address.
    pub fn hardware(&self) -> EthernetAddress {
        EthernetAddress(self.driver.mac_address())
    }

    /// Frames that were too long and therefore not sent.
    pub const fn overlong(&self) -> u32 {
        self.overlong
    }

    /// Gives the adapter a frame to write to.
    fn post_receive(&mut self, index: u16) {
        // SAFETY: the frame is ours, and nobody has a reference to it.
        let memory = unsafe { frame(index).as_mut() };
        // SAFETY: the reference ends here, and no other is made before the adapter gives it back.
        if let Ok(descriptor) = unsafe { self.driver.receive_begin(memory) } {
            self.receiving.set(descriptor, index);
        }
    }

    /// The oldest frame that the adapter has written to, and its bytes.
    fn next_received(&mut self) -> Option<(u16, usize, usize)> {
        let descriptor = self.driver.poll_receive()?;
        let index = self.receiving.get(descriptor)?;
        // SAFETY: the adapter is done with it, and nobody else has a reference to it.
        let memory = unsafe { frame(index).as_mut() };
        // SAFETY: the frame that this descriptor was made for.
        let (start, bytes) = unsafe { self.driver.receive_complete(descriptor, memory) }.ok()?;
        self.receiving.clear(descriptor);
        Some((index, start, bytes))
    }

    /// Reclaims the frames that the adapter has sent.
    fn reclaim(&mut self) {
        while let Some(descriptor) = self.driver.poll_transmit() {
            let Some(index) = self.sending.get(descriptor) else { return };
            // SAFETY: the adapter is done with it, and nobody else has a reference to it.
            let memory = unsafe { frame(index).as_ref() };
            // SAFETY: the frame that this descriptor was made for.
            if unsafe { self.driver.transmit_complete(descriptor, memory) }.is_err() {
                return;
            }
            self.sending.clear(descriptor);
            // There are no more than it has room for.
            let _ = self.free.push(index);
        }
    }

    fn send<R>(&mut self, bytes: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        let index = self.free.pop();
        // A token exists only while there is a free one.
        let Some(index) = index else { return write(&mut []) };
        // SAFETY: it is ours, and nobody has a reference to it.
        let memory = unsafe { frame(index).as_mut() };
        let header = self.driver.fill_buffer_header(memory).unwrap_or(0);
        let end = header.saturating_add(bytes.min(FRAME));
        let written = write(memory.get_mut(header..end).unwrap_or_default());
        let whole = memory.get(..end).filter(|_| bytes <= FRAME);
        // SAFETY: the reference ends here, and no other is made before the adapter gives it back.
        match whole.map(|whole| unsafe { self.driver.transmit_begin(whole) }) {
            Some(Ok(descriptor)) => self.sending.set(descriptor, index),
            _ => {
                self.overlong = self.overlong.saturating_add(1);
                let _ = self.free.push(index);
            }
        }
        written
    }
}

/// A received frame.
#[derive(Debug)]
pub struct ReceivedFrame<'a>(&'a [u8]);

impl phy::RxToken for ReceivedFrame<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

/// A frame to send.
#[derive(Debug)]
pub struct TransmitFrame<'a>(&'a mut VirtioNet);

impl phy::TxToken for TransmitFrame<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, write: F) -> R {
        self.0.send(bytes, write)
    }
}

impl phy::Device for VirtioNet {
    type RxToken<'a> = ReceivedFrame<'a>;
    type TxToken<'a> = TransmitFrame<'a>;

    fn receive(&mut self, _: Instant) -> Option<(ReceivedFrame<'_>, TransmitFrame<'_>)> {
        if let Some(index) = self.handed_out.take() {
            self.post_receive(index);
        }
        self.reclaim();
        if self.free.is_empty() {
            return None;
        }
        let (index, start, bytes) = self.next_received()?;
        self.handed_out = Some(index);
        // SAFETY: it is ours until the next call, for which this borrow has to end; sending touches other frames.
        let memory: &Frame = unsafe { frame(index).as_ref() };
        let end = start.saturating_add(bytes).min(BYTES);
        Some((ReceivedFrame(memory.get(start..end).unwrap_or_default()), TransmitFrame(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<TransmitFrame<'_>> {
        if self.free.is_empty() {
            self.reclaim();
        }
        (!self.free.is_empty()).then_some(TransmitFrame(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut checksum = ChecksumCapabilities::default();
        checksum.udp = Checksum::None;
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME;
        capabilities.max_burst_size = Some(QUEUE);
        capabilities.checksum = checksum;
        capabilities
    }
}
