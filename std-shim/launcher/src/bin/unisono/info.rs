//! `unisono info`: the devices, limits and network interfaces of this machine.

mod adapters;
mod collectives;

use crate::memory::Memory;
use crate::offload::{has_gro, has_gso};
use crate::refusal::Refusal;
use clap::Args;
use core::net::{IpAddr, Ipv4Addr};
use serde::Serialize;
use std::{
    fs,
    io::{self, Write},
    net::UdpSocket,
    thread,
};
use unisono::environment::{DeviceChoice, Location, QueuesChoice, RailsChoice, Settings, own_location};
use unisono_core::device::Device;

/// Options of `unisono info`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Show the algorithm of each collective of a job, and what selected it
    #[arg(long)]
    collectives: bool,
    /// The rails that are shown, as of `unisono run` [default: UNISONO_RAILS]
    #[arg(long, value_name = "RAILS", conflicts_with = "collectives")]
    rails: Option<RailsChoice>,
    #[command(flatten)]
    job: collectives::JobOptions,
}

#[derive(Serialize, Debug)]
struct Info {
    version: &'static str,
    rust_version: &'static str,
    kernel: String,
    processors: usize,
    /// The units that have all processors that this process may use, or that are given.
    location: Location,
    /// Devices that this version contains and that can be opened.
    devices: Vec<String>,
    udp: Option<Udp>,
    /// The rails that a rank on this machine would use.
    rails: Vec<Rail>,
    /// Why it would have none.
    rails_refused: Option<String>,
    shared_memory: Option<Memory>,
    /// Why shared memory is not available.
    shared_memory_refused: Option<String>,
    adapters: Vec<adapters::Adapter>,
    /// Why no adapter is available.
    adapters_refused: Option<String>,
    interfaces: Vec<Interface>,
    receive_memory_limit_bytes: Option<u64>,
}

#[derive(Serialize, Debug)]
struct Udp {
    /// MTU of the loopback as the device determines it, in bytes of UDP payload.
    loopback_mtu: u32,
    receive_slots: u32,
    receive_memory_asked_bytes: u32,
    receive_memory_granted_bytes: usize,
    gso: bool,
    gro: bool,
}

#[derive(Serialize, Debug)]
struct Rail {
    /// `None`: where the other ranks of the job reach this rank.
    address: Option<IpAddr>,
    interface: Option<String>,
    mtu: Option<u32>,
}

#[derive(Serialize, Debug)]
struct Interface {
    name: String,
    address: IpAddr,
    mtu: Option<u32>,
}

/// Prints the information to the standard output.
pub(crate) fn print(options: Options) -> Result<(), Refusal> {
    let mut to = io::stdout().lock();
    if options.collectives {
        return options.job.print(options.json, &mut to);
    }
    if options.job.is_tuned() {
        return Err(Refusal::usage("options for algorithms of collectives need --collectives"));
    }
    let settings = Settings::from_environment().map_err(Refusal::usage)?;
    let rails = options.rails.unwrap_or(settings.transport.rails);
    let location = settings.locality.location.or(own_location());
    let info = Info::collect(settings.transport.queues.unwrap_or_default(), &rails, location);
    let written = if options.json {
        serde_json::to_string(&info).map_err(io::Error::from).and_then(|line| writeln!(to, "{line}"))
    } else {
        info.write(&mut to)
    };
    written.map_err(Refusal::failed)
}

impl Info {
    fn collect(queues: QueuesChoice, rails: &RailsChoice, location: Location) -> Self {
        let system = rustix::system::uname();
        let (udp, memory, adapters) = (Udp::probe(), Memory::probe(), adapters::ask(queues));
        let built = DeviceChoice::ALL.iter().filter(|device| **device != DeviceChoice::Auto && device.is_built());
        let works = |device: &&DeviceChoice| match device {
            DeviceChoice::Udp => udp.is_ok(),
            DeviceChoice::Shm => memory.is_ok(),
            DeviceChoice::Verbs => adapters.as_ref().is_ok_and(|all| all.iter().any(|one| one.queues.is_some())),
            _ => true,
        };
        let devices = built.filter(works).map(DeviceChoice::to_string).collect();
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
        let interface = |interface: if_addrs::Interface| {
            let mtu = number(&format!("/sys/class/net/{}/mtu", interface.name));
            Interface {
                mtu: mtu.and_then(|mtu| u32::try_from(mtu).ok()),
                address: interface.ip(),
                name: interface.name,
            }
        };
        let interfaces: Vec<Interface> =
            if_addrs::get_if_addrs().unwrap_or_default().into_iter().map(interface).collect();
        let rails = rails.addresses(|| IpAddr::V4(Ipv4Addr::UNSPECIFIED)).map(|addresses| {
            let of = |address: IpAddr| {
                let on = interfaces.iter().find(|interface| interface.address == address);
                Rail {
                    address: Some(address).filter(|address| !address.is_unspecified()),
                    interface: on.map(|interface| interface.name.clone()),
                    mtu: on.and_then(|interface| interface.mtu),
                }
            };
            addresses.into_iter().map(of).collect::<Vec<_>>()
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            rust_version: env!("CARGO_PKG_RUST_VERSION"),
            kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
            processors: thread::available_parallelism().map_or(1, usize::from),
            location,
            devices,
            udp: udp.ok(),
            adapters_refused: adapters.as_ref().err().cloned(),
            adapters: adapters.unwrap_or_default(),
            shared_memory_refused: memory.as_ref().err().map(ToString::to_string),
            shared_memory: memory.ok(),
            rails_refused: rails.as_ref().err().map(ToString::to_string),
            rails: rails.unwrap_or_default(),
            interfaces,
            receive_memory_limit_bytes: number("/proc/sys/net/core/rmem_max"),
        }
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let Self {
            version, rust_version, kernel, processors, location, devices, udp, shared_memory, interfaces, ..
        } = self;
        writeln!(to, "unisono {version} (Rust {rust_version} or later)")?;
        writeln!(to, "kernel             {kernel}")?;
        writeln!(to, "processors         {processors}")?;
        match location.to_string().as_str() {
            "" => writeln!(to, "location           unknown")?,
            known => writeln!(to, "location           {known}")?,
        }
        writeln!(to, "devices            {}", devices.join(" "))?;
        for Interface { name, address, mtu } in interfaces {
            let mtu = mtu.map_or_else(|| "unknown".to_owned(), |mtu| mtu.to_string());
            writeln!(to, "interface          {name} {address} mtu {mtu}")?;
        }
        if let Some(limit) = self.receive_memory_limit_bytes {
            writeln!(to, "net.core.rmem_max  {limit} bytes")?;
        }
        if let Some(udp) = udp {
            let Udp { receive_memory_granted_bytes: granted, receive_memory_asked_bytes: asked, .. } = udp;
            let yes = |yes| if yes { "yes" } else { "no" };
            writeln!(to, "udp receive memory {granted} bytes granted of {asked} requested")?;
            writeln!(to, "udp loopback       mtu {} bytes, {} receive slots", udp.loopback_mtu, udp.receive_slots)?;
            writeln!(to, "udp offload        gso {}, gro {}", yes(udp.gso), yes(udp.gro))?;
        }
        for (number, Rail { address, interface, mtu }) in self.rails.iter().enumerate() {
            let address = address.map_or_else(|| "the address of the job".to_owned(), |address| address.to_string());
            let interface = interface.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
            let mtu = mtu.map_or_else(String::new, |mtu| format!(" mtu {mtu}"));
            writeln!(to, "rail               {number} at {address}{interface}{mtu}")?;
        }
        if let Some(refused) = &self.rails_refused {
            writeln!(to, "rails              none: {refused}")?;
        }
        for (name, what) in shared_memory.iter().flat_map(Memory::lines) {
            writeln!(to, "{name:18} {what}")?;
        }
        for one in &self.adapters {
            let adapters::Adapter { name, port, gid, gid_index, encapsulation, mtu, .. } = one;
            writeln!(to, "adapter            {name} port {port}, GID {gid_index} {gid} ({encapsulation}), mtu {mtu}")?;
            let queues = one.queues.as_deref().unwrap_or("none");
            match &one.queues_refused {
                Some(refused) => writeln!(to, "queues             {name} {queues}: {refused}")?,
                None => writeln!(to, "queues             {name} {queues}")?,
            }
        }
        if let Some(refused) = &self.adapters_refused {
            writeln!(to, "adapters           none: {refused}")?;
        }
        if let Some(refused) = &self.shared_memory_refused {
            writeln!(to, "shared memory      none: {refused}")?;
        }
        Ok(())
    }
}

impl Udp {
    fn probe() -> Result<Self, unisono_udp::BindError> {
        let options = unisono_udp::Options::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
        let device = unisono_udp::Udp::bind(&options)?;
        let socket = UdpSocket::bind((options.local, 0))?;
        let sized = socket2::SockRef::from(&socket);
        // A refusal is not fatal: the granted size is queried next.
        let _ = sized.set_recv_buffer_size(usize::try_from(options.receive_buffer).unwrap_or(usize::MAX));
        Ok(Self {
            loopback_mtu: device.mtu(),
            receive_slots: device.limits().receive_slots,
            receive_memory_asked_bytes: options.receive_buffer,
            receive_memory_granted_bytes: sized.recv_buffer_size()?,
            gso: has_gso(&socket),
            gro: has_gro(&socket),
        })
    }
}
