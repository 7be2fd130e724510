//! Kernel objects, until they are dropped, and the adapters that have mapped queues.

use alloc::format;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;

use super::command::{CREATE_COMPLETIONS, CREATE_PAIR, DESTROY_COMPLETIONS, DESTROY_PAIR, send_command_with_answer};
use super::mapping::Map;

/// The directory with the ABI version of each adapter's user interface, and the version of Soft-RoCE's queues that is
/// implemented here.
const DEVICES: &str = "/sys/class/infiniband_verbs";
const VERSION: u32 = 2;
/// The sysfs file with an adapter's network interface, which only Soft-RoCE has there.
const PARENT: &str = "parent";

/// Whether the adapter of this name is a Soft-RoCE device.
pub(crate) fn is_rxe(adapter: &str) -> bool {
    Path::new("/sys/class/infiniband").join(adapter).join(PARENT).exists()
}

/// The ABI version of an adapter's user interface, by the adapter's name. `None`: it has none.
fn interface_version(devices: &Path, adapter: &str) -> io::Result<Option<u32>> {
    for device in fs::read_dir(devices)? {
        let device = device?.path();
        // Some entries are not devices.
        if fs::read_to_string(device.join("ibdev")).is_ok_and(|name| name.trim_end() == adapter) {
            let version = fs::read_to_string(device.join("abi_version"))?;
            return version.trim_end().parse().map(Some).map_err(io::Error::other);
        }
    }
    Ok(None)
}

/// Checks that the driver knows the queues of an adapter.
///
/// # Errors
/// It is no Soft-RoCE device, or one with queues of another version.
pub(crate) fn check_version(adapter: &str) -> io::Result<()> {
    if !is_rxe(adapter) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    match interface_version(Path::new(DEVICES), adapter)? {
        Some(VERSION) => Ok(()),
        Some(other) => Err(io::Error::other(format!(
            "Soft-RoCE's queues have version {other}, only {VERSION} is supported; use --queues library"
        ))),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// A kernel object, until this is dropped.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) file: RawFd,
    pub(crate) handle: u32,
    pub(crate) destroy: u32,
    /// Words of the response to that.
    pub(crate) answer: usize,
}

impl Drop for Object {
    fn drop(&mut self) {
        // An error cannot be reported: the kernel frees everything with the file.
        let mut answer = [0; 2];
        let answer = answer.get_mut(..self.answer).unwrap_or_default();
        let _ = send_command_with_answer(self.file, self.destroy, &[self.handle, 0], answer);
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) object: Object,
    pub(crate) map: Map,
}

/// Creates a completion queue. `channel`: of its events, or −1.
pub(crate) fn completions(file: RawFd, entries: u32, channel: RawFd, element: u32) -> io::Result<Completions> {
    // Handle and entries, then offset, size and padding.
    let mut answer = [0; 2 + 4];
    send_command_with_answer(file, CREATE_COMPLETIONS, &[element, 0, entries, 0, channel as u32, 0], &mut answer)?;
    let [handle, _, place @ ..] = answer;
    let object = Object { file, handle, destroy: DESTROY_COMPLETIONS, answer: 2 };
    Ok(Completions { object, map: Map::new(file, place)? })
}

/// A queue pair, and the places of its queues, which are not mapped yet. If it shares a receive queue, it has none of
/// its own.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) object: Object,
    pub(crate) number: u32,
    pub(crate) receive: [u32; 4],
    pub(crate) send: [u32; 4],
}

/// Creates a queue pair by a command with these fields.
pub(crate) fn queue_pair(file: RawFd, fields: &[u32]) -> io::Result<QueuePair> {
    // The common response, then offset, size and padding of the receive queue and of the send queue.
    let mut answer = [0; 8 + 4 + 4];
    send_command_with_answer(file, CREATE_PAIR, fields, &mut answer)?;
    let [handle, number, .., a, b, c, d, e, f, g, h] = answer;
    let object = Object { file, handle, destroy: DESTROY_PAIR, answer: 1 };
    Ok(QueuePair { object, number, receive: [a, b, c, d], send: [e, f, g, h] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_adapter() {
        let devices = std::env::temp_dir().join(format!("unisono-verbs-{}", std::process::id()));
        for (device, adapter, version) in
            [("uverbs0", "rxe1\n", "1\n"), ("uverbs1", "rxe0\n", "2\n"), ("uverbs2", "rxe2\n", "\n")]
        {
            fs::create_dir_all(devices.join(device)).unwrap();
            fs::write(devices.join(device).join("ibdev"), adapter).unwrap();
            fs::write(devices.join(device).join("abi_version"), version).unwrap();
        }
        fs::write(devices.join("abi_version"), "6\n").unwrap();
        let found = ["rxe0", "rxe1", "rxe"].map(|adapter| interface_version(&devices, adapter).unwrap());
        let unread = interface_version(&devices, "rxe2").is_err();
        fs::remove_dir_all(&devices).unwrap();
        assert_eq!((found, unread), ([Some(2), Some(1), None], true));
        assert!(interface_version(&devices, "rxe0").is_err());
    }
}
