//! The settings of message transport, and which of them apply to which device.

use super::{
    AcksChoice, AttachThreshold, BoundedDuration, DeviceChoice, EagerPool, GroupsChoice, Integrity, Mtu,
    MulticastChoice, OnDeath, Progress, QueuesChoice, RailsChoice, RailsMax, SettingsError, SilenceTimeout,
    StuckTimeout, Switch, UnreachableTimeout, VariableName, WatchdogTimeout,
};
use core::{net::IpAddr, num::NonZero, time::Duration};
use unisono_udp::fault_injection::Faults;

/// Most reliable connections of a rank.
pub const RC_LIMIT_MAX: u16 = 256;
const RC_LIMIT_DEFAULT: u32 = 64;

/// The settings of message transport.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TransportSettings {
    /// The device.
    pub device: DeviceChoice,
    /// The progress mode.
    pub progress: Progress,
    /// Largest datagram. `None`: from the link.
    pub mtu: Option<Mtu>,
    /// Whether to use segmentation offload (GSO). `None`: if the kernel supports it.
    pub gso: Option<Switch>,
    /// The rails.
    pub rails: RailsChoice,
    /// Rails that there is room for, including those that are added later. `None`: for those of `rails`.
    pub rails_max: Option<RailsMax>,
    /// What finds corrupted datagrams. `None`: CRC-32C, unless all ranks are reached through the loopback.
    pub integrity: Option<Integrity>,
    /// How work queues of an RDMA adapter are written. `None`: the default.
    pub queues: Option<QueuesChoice>,
    /// Reliable connections of a rank at a time, over which an RDMA adapter accesses windows of other ranks and reads
    /// payloads: up to [`RC_LIMIT_MAX`]; 0: none. `None`: 64.
    pub rc_limit: Option<u16>,
    /// Memory for unexpected messages. `None`: 1 MiB.
    pub eager_pool: Option<EagerPool>,
    /// Faults injected into outgoing datagrams.
    pub faults: Faults,
    /// The policy when a rank fails.
    pub on_death: OnDeath,
    /// Silence of a peer after which it is considered failed. `None`: its process's liveness is queried instead.
    pub silence: Option<SilenceTimeout>,
    /// Time in a collective after which the missing ranks are reported. `None`: never.
    pub watchdog: Option<WatchdogTimeout>,
    /// Time without progress after which a blocked rank reports its waits, so that the launcher finds ranks that wait for
    /// each other. `None`: 10 s.
    pub stuck: Option<StuckTimeout>,
    /// Time without a datagram from a peer that makes progress after which it is considered failed. `None`: 30 s.
    pub unreachable: Option<UnreachableTimeout>,
    /// Where multicast groups are.
    pub multicast: MulticastChoice,
    /// When they are made.
    pub groups: GroupsChoice,
    /// Who acknowledges multicasts to whom.
    pub multicast_acks: AcksChoice,
    /// Mean wait for a late leader from which on a rank joins a multicast group itself. `None`: it never does.
    pub attach: Option<AttachThreshold>,
    /// Whether a message that is received as another type than was sent is an error. `None`: no.
    pub check: Option<Switch>,
    /// Bytes of a rendezvous message that one clear-to-send grants. `None`: 2³¹. For tests; no variable sets it.
    pub grant: Option<NonZero<u32>>,
}

impl TransportSettings {
    /// The time without progress after which a blocked rank reports its waits.
    ///
    /// ```
    /// use core::time::Duration;
    /// use unisono::Settings;
    ///
    /// assert_eq!(Settings::default().transport.stuck_timeout(), Duration::from_secs(10));
    /// ```
    pub fn stuck_timeout(&self) -> Duration {
        self.stuck.map_or(Duration::from_secs(10), BoundedDuration::duration)
    }

    /// The time without a datagram from a peer that makes progress after which it is considered failed.
    ///
    /// ```
    /// use core::time::Duration;
    /// use unisono::Settings;
    ///
    /// assert_eq!(Settings::default().transport.unreachable_timeout(), Duration::from_secs(30));
    /// ```
    pub fn unreachable_timeout(&self) -> Duration {
        self.unreachable.map_or(Duration::from_secs(30), BoundedDuration::duration)
    }

    /// Reliable connections of a rank at a time.
    ///
    /// ```
    /// assert_eq!(unisono::Settings::default().transport.rc_limit(), 64);
    /// ```
    pub fn rc_limit(&self) -> u32 {
        self.rc_limit.map_or(RC_LIMIT_DEFAULT, u32::from)
    }

    /// Whether a message that is received as another type than was sent is an error.
    ///
    /// ```
    /// assert!(!unisono::Settings::default().transport.checks_types());
    /// ```
    pub fn checks_types(&self) -> bool {
        self.check.is_some_and(Switch::is_on)
    }

    /// Whether `ranks` ranks of a node share memory, in a job of `size` ranks. With fault injection they do so only if
    /// there are other nodes, since faults apply to datagrams only.
    ///
    /// ```
    /// let transport = unisono::Settings::default().transport;
    /// assert!(transport.shares_memory(4, 4) && !transport.shares_memory(1, 4));
    /// ```
    pub fn shares_memory(&self, ranks: usize, size: usize) -> bool {
        match self.device {
            DeviceChoice::Auto => ranks > 1 && (self.faults.is_none() || ranks < size),
            DeviceChoice::Shm => ranks > 0,
            DeviceChoice::Udp | DeviceChoice::Verbs => false,
        }
    }

    /// Whether datagrams from and to a process at these addresses need checksums.
    pub fn needs_checksums(&self, locals: &[IpAddr]) -> bool {
        match self.integrity {
            Some(integrity) => integrity == Integrity::Crc32c,
            None => self.faults.corrupt.value() > 0.0 || !locals.iter().all(IpAddr::is_loopback),
        }
    }

    /// Checks that the settings are consistent.
    ///
    /// ```
    /// assert!(unisono::Settings::default().transport.check().is_ok());
    /// ```
    ///
    /// # Errors
    /// The device is set explicitly, and other settings apply to another device.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.integrity == Some(Integrity::Link) && self.faults.corrupt.value() > 0.0 {
            let (name, value) = (VariableName("INTEGRITY"), Integrity::Link.to_string());
            let reason = "the corruption that is injected is found by crc32c only".to_owned();
            return Err(SettingsError::Invalid { name, value, reason });
        }
        if !matches!(self.device, DeviceChoice::Shm | DeviceChoice::Verbs) {
            return Ok(());
        }
        let faults = !self.faults.is_none() || self.faults.seed != 0;
        let reason = match (faults, self.mtu, self.gso) {
            (true, ..) => "fault injection applies to the device udp",
            (_, Some(_), _) => "the MTU applies to the device udp",
            (.., Some(_)) => "segmentation offload (GSO) applies to the device udp",
            _ if !self.has_rails_of_device() => "these rails apply to the device udp",
            _ if self.rails_max.is_some() => "room for more rails applies to the device udp",
            _ if self.integrity.is_some() => "the choice of integrity applies to the device udp",
            (false, None, None) => return Ok(()),
        };
        let reason = format!("{reason}, not to this one");
        Err(SettingsError::Invalid { name: VariableName("DEVICE"), value: self.device.to_string(), reason })
    }
}

impl TransportSettings {
    /// Whether the rails are ones that the device can have.
    fn has_rails_of_device(&self) -> bool {
        match (&self.rails, self.device) {
            (rails, DeviceChoice::Shm) => rails.is_default(),
            (RailsChoice::Places(places), DeviceChoice::Verbs) => {
                places.iter().flatten().all(|place| place.port().is_some())
            }
            _ => true,
        }
    }
}
