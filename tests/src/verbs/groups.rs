//! Datagrams to a group reach every adapter that joined it, and no other.

use core::net::IpAddr;
use core::time::Duration;

use unisono_core::device::{Destination, Device, DeviceQueue, Received, Token, Transmit, TxReason};
use unisono_core::ids::{GroupId, PeerId};
use unisono_memory::memory_regions::Address;
use unisono_verbs::ud::{Domain, Ud, UdOptions};

use super::{Adapter, Outcome, connect_devices, within};

const GROUP: GroupId = GroupId(7);

/// Datagrams to the group.
const COUNT: u8 = 16;
const BOUND: Duration = Duration::from_secs(2);

/// Sends to a group that all adapters joined; each member gets every datagram, from the first adapter. Then the last
/// one leaves, and gets none. Returns how many were received.
///
/// # Errors
/// Something did not come, or came that should not.
pub fn multicast(adapters: &[Adapter<'_>], group: IpAddr) -> Outcome<usize> {
    let device = |adapter: &Adapter<'_>| {
        let options = UdOptions { groups: 1, ..adapter.options(adapters.len() as u32) };
        Ok(Ud::new(&Domain::open(Some(adapter.name))?, &options)?)
    };
    let mut devices = adapters.iter().map(device).collect::<Outcome<Vec<Ud<Address>>>>()?;
    connect_devices(&mut devices.iter_mut().collect::<Vec<_>>())?;
    for device in &mut devices {
        device.set_group(GROUP, group)?;
        device.join(GROUP)?;
    }
    send(&mut devices[0])?;
    let mut received = 0;
    for (device, adapter) in devices.iter_mut().zip(adapters) {
        received += receive(device, adapter.name, COUNT)?;
    }
    let last = devices.len() - 1;
    devices[last].leave(GROUP)?;
    send(&mut devices[0])?;
    for (device, adapter) in devices.iter_mut().zip(adapters).take(last) {
        received += receive(device, adapter.name, COUNT)?;
    }
    if devices[last].poll(DeviceQueue::Polled) {
        return Err("a datagram came to an adapter that has left".into());
    }
    Ok(received)
}

fn send(device: &mut Ud<Address>) -> Outcome<()> {
    for number in 0..COUNT {
        let mut token = device.token(DeviceQueue::Polled).ok_or("no free entry")?;
        token.header_room()[..4].copy_from_slice(&[number; 4]);
        let transmit = Transmit {
            to: Destination::Group(GROUP),
            queue: DeviceQueue::Polled,
            header_bytes: 4,
            payload: None,
            solicited: false,
            reason: TxReason::First,
        };
        token.post(&transmit, None);
    }
    device.flush(DeviceQueue::Polled);
    Ok(())
}

fn receive(device: &mut Ud<Address>, adapter: &str, count: u8) -> Outcome<usize> {
    for number in 0..count {
        let slot = within(BOUND, &format!("datagram {number} at {adapter}"), || {
            let Some(datagram) = device.receive(DeviceQueue::Polled) else { return Ok(None) };
            if datagram.prefix() != [number; 4] || !datagram.is_from(PeerId(0)) {
                return Err(format!("{adapter} got {:?} instead of datagram {number}", datagram.prefix()).into());
            }
            Ok(Some(datagram.slot()))
        })?;
        device.release(slot);
    }
    Ok(count.into())
}
