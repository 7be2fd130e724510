//! The page size of a segment, and why it is not larger.

use core::fmt;
use std::fs;

/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Why there are no reserved huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NoReservedPages {
    /// The kernel does not support this size.
    Unsupported,
    /// Fewer are free than the segment needs.
    TooFew {
        /// Pages that the segment needs.
        needed: u64,
        /// Pages that are free and not promised to another mapping.
        free: u64,
        /// Pages that the system has reserved.
        reserved: u64,
    },
    /// The kernel refused them with this `errno`.
    Refused(i32),
}

/// Why there are no transparent huge pages.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NoTransparentPages {
    /// The system's setting for shared memory forbids them; this is the setting.
    Setting(String),
    /// The kernel found no free huge page although it may use them.
    NoneFree,
}

/// The pages of a segment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SegmentPages {
    /// Reserved huge pages.
    Reserved,
    /// Transparent huge pages; why they are not reserved ones.
    Transparent(NoReservedPages),
    /// Small pages of this size in bytes; why not reserved huge ones, why not transparent ones.
    Small(usize, NoReservedPages, NoTransparentPages),
}

impl SegmentPages {
    /// Bytes of a page.
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Reserved | Self::Transparent(_) => HUGE,
            Self::Small(bytes, ..) => *bytes,
        }
    }
}

impl fmt::Display for SegmentPages {
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

impl fmt::Display for NoReservedPages {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => to.write_str("the kernel does not support this size"),
            Self::TooFew { reserved: 0, .. } => to.write_str("vm.nr_hugepages is 0"),
            Self::TooFew { needed, free, reserved } => {
                write!(to, "{needed} are needed, {free} of vm.nr_hugepages = {reserved} are free")
            }
            Self::Refused(error) => write!(to, "{}", std::io::Error::from_raw_os_error(*error)),
        }
    }
}

impl fmt::Display for NoTransparentPages {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(setting) => write!(to, "{TRANSPARENT} is {setting}"),
            Self::NoneFree => to.write_str("the kernel found no contiguous free memory of that size"),
        }
    }
}

impl NoReservedPages {
    /// The reason, after the kernel refused `bytes` bytes of them with this error.
    pub(crate) fn from_errno(error: rustix::io::Errno, bytes: usize) -> Self {
        use rustix::io::Errno;
        let pool = |what| fs::read_to_string(format!("{POOL}/{what}")).ok()?.trim().parse::<u64>().ok();
        match (pool("nr_hugepages"), pool("free_hugepages")) {
            (Some(reserved), Some(free)) if matches!(error, Errno::NOSPC | Errno::NOMEM) => {
                let free = free.saturating_sub(pool("resv_hugepages").unwrap_or(0));
                Self::TooFew { needed: bytes.div_ceil(HUGE) as u64, free, reserved }
            }
            (None, None) => Self::Unsupported,
            _ => Self::Refused(error.raw_os_error()),
        }
    }
}

impl NoTransparentPages {
    /// The reason according to the system's setting.
    pub(crate) fn from_system() -> Self {
        let setting = fs::read_to_string(TRANSPARENT).unwrap_or_default();
        let chosen = setting.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
        match chosen {
            Some("always" | "advise" | "within_size" | "force") => Self::NoneFree,
            Some(never) => Self::Setting(never.to_owned()),
            None => Self::Setting(String::from("not there")),
        }
    }
}
