//! Soft-RoCE's own queues, posted directly: devices on adapters of this host.

use alloc::sync::Arc;
use core::net::{IpAddr, Ipv6Addr};
use core::ptr::NonNull;
use core::time::Duration;
use std::fs;
use std::time::Instant;

use unisono::region::{Address, Regions};
use unisono_core::device::{Cause, Device, HEAD, Lane, PeerId, Received, Token, Transmit};
use unisono_verbs::raw::{Buffer, Options, Raw, Slabs};
use unisono_verbs::registered::Slab;
use unisono_verbs::rxe::kernel::{Depth, Pair, Ring};
use unisono_verbs::rxe::{Path, Queues, Route};
use unisono_verbs::ud::Domain;

use super::{KEY, Outcome};

/// A datagram takes no longer.
const BOUND: Duration = Duration::from_secs(2);

/// A device over queues that the kernel mapped.
pub type DirectDevice = Raw<'static, Queues<Ring, Ring, Ring>, Address>;

/// How much of everything a device has.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Datagrams of a lane that can wait.
    pub receive_slots: u32,
    /// Datagrams that can be set aside.
    pub holdable: u32,
    /// Postings of a lane.
    pub sends: u32,
    /// Longer datagrams are gathered.
    pub inline: usize,
}

impl Default for Size {
    fn default() -> Self {
        Self { receive_slots: 512, holdable: 256, sends: 255, inline: 128 }
    }
}

/// A device and its queue pairs.
#[derive(Debug)]
pub struct Direct {
    /// The device.
    pub device: DirectDevice,
    /// Its adapter.
    pub domain: Arc<Domain>,
    /// Queue pairs of its lanes.
    pub pairs: [Arc<Pair>; 2],
}

/// `count` devices on these adapters in turn, which know each other as peers 0 and so on. What they use is never given back.
///
/// # Errors
/// An adapter cannot be used.
pub fn connect(adapters: &[impl AsRef<str>], count: u32, size: Size) -> Outcome<Vec<Direct>> {
    let adapters = adapters.iter().cycle().take(count as usize);
    let devices: Outcome<Vec<_>> = adapters.map(|adapter| make(adapter.as_ref(), count, size)).collect();
    let mut devices = devices?;
    let ends: Outcome<Vec<_>> = devices.iter().map(End::of).collect();
    let ends = ends?;
    for (direct, here) in devices.iter_mut().zip(&ends) {
        for (peer, there) in (0..).map(PeerId).zip(&ends) {
            direct.device.set_path(peer, Some(here.path(there)));
        }
    }
    Ok(devices)
}

fn make(adapter: &str, peers: u32, size: Size) -> Outcome<Direct> {
    let domain = Domain::open(Some(adapter))?;
    let (mtu, lanes) = (domain.mtu(), 2);
    let depth = Depth { sends: size.sends, receives: size.receive_slots, inline: size.inline as u32 };
    let ((polled, first), (interrupt, second)) = (Pair::new(&domain, depth, KEY)?, Pair::new(&domain, depth, KEY)?);
    let buffers = lanes * size.receive_slots + size.holdable;
    let slabs = Slabs {
        heads: slab(&domain, (lanes * size.sends.next_power_of_two()) as usize * HEAD)?,
        buffers: slab(&domain, buffers as usize * (mtu as usize + 40).next_multiple_of(64))?,
    };
    let options = Options {
        mtu,
        receive_slots: size.receive_slots,
        inline: size.inline,
        granularity_ns: 250_000,
        lossless: false,
    };
    let (table, paths) = (vec![Buffer::FREE; buffers as usize].leak(), vec![None; peers as usize].leak());
    let device = Raw::new(options, [Some(first), Some(second)], slabs, table, paths);
    Ok(Direct { device: device.ok_or("the queues are too small")?, domain, pairs: [polled, interrupt] })
}

/// Registered memory that lives as long as the process.
fn slab(domain: &Arc<Domain>, bytes: usize) -> Outcome<Slab> {
    let memory = vec![[0_u64; 8]; bytes.div_ceil(64)].leak();
    let start = NonNull::from(memory).cast();
    // SAFETY: it is never given back.
    let registration = unsafe { domain.register(start, bytes)? };
    let key = registration.key();
    core::mem::forget(registration);
    // SAFETY: registered above, and nobody else's.
    Ok(unsafe { Slab::new(start, bytes, key) })
}

/// What others have to know of a device.
#[derive(Clone, Copy, Debug)]
struct End {
    port: u8,
    gid_index: u8,
    address: IpAddr,
    mac: [u8; 6],
    qpns: [u32; 2],
    mtu: u32,
}

impl End {
    fn of(direct: &Direct) -> Outcome<Self> {
        let (domain, gid) = (&direct.domain, direct.domain.gid());
        let address = Ipv6Addr::from(gid.gid.0);
        Ok(Self {
            port: domain.port(),
            gid_index: gid.index,
            address: address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4),
            mac: mac(gid.interface)?,
            qpns: direct.pairs.each_ref().map(|pair| pair.number()),
            mtu: domain.mtu(),
        })
    }

    fn path(&self, to: &Self) -> Path {
        let route = Route {
            port: self.port,
            gid_index: self.gid_index,
            from: self.address,
            to: to.address,
            mac: to.mac,
            hop_limit: 64,
        };
        Path::new(&route, to.qpns, KEY, self.mtu.min(to.mtu))
    }
}

/// The hardware address of the interface of this number.
fn mac(interface: u32) -> Outcome<[u8; 6]> {
    for entry in fs::read_dir("/sys/class/net")? {
        let folder = entry?.path();
        if fs::read_to_string(folder.join("ifindex")).is_ok_and(|index| index.trim() == interface.to_string()) {
            let written = fs::read_to_string(folder.join("address"))?;
            let bytes: Result<Vec<_>, _> = written.trim().split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
            return bytes?.try_into().map_err(|_| "an address of six bytes".into());
        }
    }
    Err(format!("there is no interface {interface}").into())
}

impl Direct {
    /// Regions that the adapter knows.
    pub fn regions(&self) -> Regions {
        Regions::of(Arc::clone(&self.domain))
    }

    /// A lane's queue pair fails and is made anew.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn rebuild(&mut self, lane: Lane) -> Outcome<()> {
        let pair = &self.pairs[lane as usize];
        pair.fail()?;
        self.device.completed(lane);
        pair.stop()?;
        self.device.reset(lane);
        Ok(pair.start()?)
    }
}

/// Waits for the event of a lane.
pub fn wait(device: &mut DirectDevice, lane: Lane, bound: Duration) -> bool {
    let pair = device.queues_mut(lane).map(|queues| Arc::clone(queues.received_seam().called().pair()));
    let bound = i32::try_from(bound.as_millis()).unwrap_or(i32::MAX).max(1);
    let raised = pair.is_some_and(|pair| pair.take_event(bound));
    if raised {
        device.saw_event(lane);
    }
    raised
}

/// Datagrams go through while the sender's queue pair, then the receiver's, fails and is made anew. Says how often.
///
/// # Errors
/// A datagram does not arrive, or the kernel refuses.
pub fn direct_failure(adapters: [&str; 2]) -> Outcome<u32> {
    let mut devices = connect(&adapters, 2, Size::default())?;
    let mut failures = 0;
    for round in 0..20_u8 {
        for failing in 0..2 {
            devices[failing].rebuild(Lane::Polled)?;
            failures += 1;
            for number in 0..50 {
                let (started, head) = (Instant::now(), [round, number]);
                send(&mut devices[0].device, head)?;
                while !arrives(&mut devices[1].device, head) {
                    if started.elapsed() > BOUND {
                        return Err(format!("datagram {number} after failure {failures} does not arrive").into());
                    }
                }
            }
        }
    }
    Ok(failures)
}

fn send(device: &mut DirectDevice, head: [u8; 2]) -> Outcome<()> {
    let cause = Cause::First;
    let transmit = Transmit { to: PeerId(1), at: Lane::Polled, head: 2, payload: None, solicited: false, cause };
    let mut token = device.token(Lane::Polled).ok_or("the ring is full")?;
    token.head()[..2].copy_from_slice(&head);
    token.post(&transmit, None);
    device.flush(Lane::Polled);
    Ok(())
}

fn arrives(device: &mut DirectDevice, head: [u8; 2]) -> bool {
    let Some(datagram) = device.receive(Lane::Polled) else { return false };
    let (slot, found) = (datagram.slot(), datagram.head() == head && datagram.is_from(PeerId(0)));
    device.release(slot);
    found
}
