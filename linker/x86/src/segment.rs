//! The shared memory: BAR 2 of QEMU's `ivshmem-plain` (docs/specs/ivshmem-spec.rst).

use unisono_shmem::segment::Segment;

use crate::{memory, pci};

const VENDOR: u16 = 0x1af4;
const DEVICE: u16 = 0x1110;
const BAR: u8 = 2;

/// The segment that the emulator was given. `None`: none, or it is not mapped.
pub fn find() -> Option<Segment<'static>> {
    let function = pci::find(|info| (info.vendor_id, info.device_id) == (VENDOR, DEVICE))?;
    let (physical, bytes) = pci::memory(function, BAR)?;
    let base = memory::address_of(physical, bytes)?;
    // SAFETY: the device's memory, aligned to its size and mapped for as long as the image runs; nothing else is made
    // of it here.
    Some(unsafe { Segment::new(base, usize::try_from(bytes).ok()?) })
}
