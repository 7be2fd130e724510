//! Which pages a segment gets, and why not larger ones.

use core::fmt;
use std::fs;

/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Why there are no reserved huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NoneReserved {
    /// The kernel has none of this size.
    Unsupported,
    /// Fewer are free than the segment needs.
    Few {
        /// That the segment needs.
        needed: u64,
        /// That are free, and that nobody has been promised.
        free: u64,
        /// That the system has reserved.
        reserved: u64,
    },
    /// The system refuses them with this error.
    Refused(i32),
}

/// Why the system put none together.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NoneTransparent {
    /// Its setting for shared memory is this one.
    Setting(String),
    /// It found none although it may.
    NoneFree,
}

/// What a segment's pages are.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pages {
    /// Huge, reserved.
    Reserved,
    /// Huge, put together: why they are not reserved ones.
    Transparent(NoneReserved),
    /// Of the system's own size, in bytes: why not reserved, why not transparent ones.
    Small(usize, NoneReserved, NoneTransparent),
}

impl Pages {
    /// Bytes of a page.
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Reserved | Self::Transparent(_) => HUGE,
            Self::Small(bytes, ..) => *bytes,
        }
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved => to.write_str("2 MiB pages, reserved"),
            Self::Transparent(reserved) => write!(to, "2 MiB pages, transparent; no reserved ones: {reserved}"),
            Self::Small(bytes, reserved, transparent) => {
                write!(to, "{} KiB pages; no 2 MiB ones: {reserved}; {transparent}", bytes / 1024)
            }
        }
    }
}

impl fmt::Display for NoneReserved {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => to.write_str("the kernel reserves none of this size"),
            Self::Few { reserved: 0, .. } => to.write_str("vm.nr_hugepages is 0"),
            Self::Few { needed, free, reserved } => {
                write!(to, "{needed} are needed, {free} of vm.nr_hugepages = {reserved} are free")
            }
            Self::Refused(error) => write!(to, "{}", std::io::Error::from_raw_os_error(*error)),
        }
    }
}

impl fmt::Display for NoneTransparent {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(setting) => write!(to, "{TRANSPARENT} is {setting}"),
            Self::NoneFree => to.write_str("the system found no free memory of that size in one piece"),
        }
    }
}

impl NoneReserved {
    /// After the system refused so many bytes of them with this error.
    pub(crate) fn after(error: rustix::io::Errno, bytes: usize) -> Self {
        use rustix::io::Errno;
        let pool = |what| fs::read_to_string(format!("{POOL}/{what}")).ok()?.trim().parse::<u64>().ok();
        match (pool("nr_hugepages"), pool("free_hugepages")) {
            (Some(reserved), Some(free)) if matches!(error, Errno::NOSPC | Errno::NOMEM) => {
                let free = free.saturating_sub(pool("resv_hugepages").unwrap_or(0));
                Self::Few { needed: bytes.div_ceil(HUGE) as u64, free, reserved }
            }
            (None, None) => Self::Unsupported,
            _ => Self::Refused(error.raw_os_error()),
        }
    }
}

impl NoneTransparent {
    /// What the system's setting says.
    pub(crate) fn of_system() -> Self {
        let setting = fs::read_to_string(TRANSPARENT).unwrap_or_default();
        let chosen = setting.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
        match chosen {
            Some("always" | "advise" | "within_size" | "force") => Self::NoneFree,
            Some(never) => Self::Setting(never.to_owned()),
            None => Self::Setting(String::from("not there")),
        }
    }
}
