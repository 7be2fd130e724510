//! The devices, by PCI's configuration mechanism 1 (PCI Local Bus 3.0, 3.2.2.3.2).

use virtio_drivers::transport::pci::bus::{
    BarInfo, Command, ConfigurationAccess, DeviceFunction, DeviceFunctionInfo, PciRoot,
};
use x86_64::instructions::port::Port;

/// Access through the two ports.
#[derive(Debug)]
pub struct Ports;

fn select(function: DeviceFunction, register: u8) {
    let DeviceFunction { bus, device, function } = function;
    let at = u32::from(bus) << 16 | u32::from(device) << 11 | u32::from(function) << 8 | u32::from(register & !3);
    // SAFETY: a PC has this register there; one processor runs, and no handler uses it.
    unsafe { Port::<u32>::new(0xcf8).write(1 << 31 | at) };
}

impl ConfigurationAccess for Ports {
    fn read_word(&self, function: DeviceFunction, register: u8) -> u32 {
        select(function, register);
        // SAFETY: a PC has this register there; one processor runs, and no handler uses it. Reading configuration has
        // no effects that matter here.
        unsafe { Port::new(0xcfc).read() }
    }

    fn write_word(&mut self, function: DeviceFunction, register: u8, value: u32) {
        select(function, register);
        // SAFETY: a PC has this register there; one processor runs, and no handler uses it. What is written enables a
        // device and places its registers, as the driver of that device does.
        unsafe { Port::new(0xcfc).write(value) }
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Self
    }
}

/// The devices of the first bus.
pub fn devices() -> PciRoot<Ports> {
    PciRoot::new(Ports)
}

/// The first device that this is true of, made ready to answer and to read memory.
pub fn find(wanted: impl Fn(&DeviceFunctionInfo) -> bool) -> Option<DeviceFunction> {
    let mut root = devices();
    let (function, _) = root.enumerate_bus(0).find(|(_, info)| wanted(info))?;
    root.set_command(function, Command::MEMORY_SPACE | Command::IO_SPACE | Command::BUS_MASTER);
    Some(function)
}

/// Where a device's memory lies: physical address, bytes.
pub fn memory(function: DeviceFunction, bar: u8) -> Option<(u64, u64)> {
    match devices().bar_info(function, bar).ok()?? {
        BarInfo::Memory { address, size, .. } => Some((address, size)),
        BarInfo::IO { .. } => None,
    }
}

/// All of a device's memories, as [`memory`].
pub fn memories(function: DeviceFunction) -> impl Iterator<Item = (u64, u64)> {
    let bars = devices().bars(function).unwrap_or_default();
    bars.into_iter().flatten().filter_map(|bar| match bar {
        BarInfo::Memory { address, size, .. } => Some((address, size)),
        BarInfo::IO { .. } => None,
    })
}
