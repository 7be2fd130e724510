//! The device that a rank reaches the others by.

use unisono::environment::DeviceChoice;
use unisono::{Rank, World};

/// The device by which this rank reaches the others (or, alone, itself), or `mixed`.
pub(super) fn device(world: &World) -> String {
    let others = (0..world.size()).map(Rank).filter(|rank| *rank != world.rank());
    let mut devices = others.map(|rank| world.device_to(rank));
    let alone = || if world.node().is_some() { DeviceChoice::Shm } else { world.device_to(world.rank()) };
    let one = devices.next().unwrap_or_else(alone);
    if devices.all(|other| other == one) { one.to_string() } else { String::from("mixed") }
}
