//! Enumerated options, and small numbers with bounds. Each is parsed from its text and prints it.

use core::{fmt, str::FromStr};

use unisono_core::schedule::Leaders;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $default:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }

        impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        }

        impl FromStr for $name {
            type Err = ChoiceError;

            fn from_str(text: &str) -> Result<Self, ChoiceError> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(ChoiceError { words: &[$($word,)*] }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str(match self { $(Self::$variant => $word,)* })
            }
        }
    };
}

words! {
    /// The device that transports messages.
    DeviceChoice, Auto {
        /// Shared memory within a node, UDP between nodes.
        Auto = "auto",
        /// Shared memory only: one node.
        Shm = "shm",
        /// UDP sockets.
        Udp = "udp",
        /// InfiniBand or RoCE.
        Verbs = "verbs",
    }
}

impl DeviceChoice {
    /// Whether this version contains the device.
    ///
    /// ```
    /// use unisono::environment::DeviceChoice;
    ///
    /// assert!(DeviceChoice::Udp.is_built());
    /// ```
    pub const fn is_built(self) -> bool {
        match self {
            Self::Auto | Self::Shm | Self::Udp => true,
            Self::Verbs => cfg!(feature = "verbs"),
        }
    }
}

words! {
    /// Which ranks form a group over which collectives are composed: those with one unit of their [`Location`].
    ///
    /// [`Location`]: super::Location
    SubgroupRule, Host {
        /// The ranks of the nodes that are connected to one switch.
        Switch = "switch",
        /// The ranks of one node.
        Host = "host",
        /// Those of them whose processors are in one socket.
        Socket = "socket",
        /// Those whose processors are in one NUMA node.
        Numa = "numa",
        /// Those whose processors share their last-level cache.
        Cache = "cache",
        /// Those whose first rail is at one adapter and port, or one interface.
        Rail = "rail",
        /// The ranks of a group that the user has chosen.
        Group = "group",
    }
}

words! {
    /// How the leaders of the last level exchange their parts.
    LeaderMeans, Auto {
        /// By messages, or where the model selects it by multicast.
        Auto = "auto",
        /// By messages.
        Messages = "messages",
        /// Barriers and short allreduces by a token tree.
        TokenTree = "token-tree",
        /// Barriers and short allreduces by a combining tree.
        CombiningTree = "combining-tree",
        /// Broadcasts by multicast.
        Multicast = "multicast",
        /// Alltoalls, of all ranks, by remote writes.
        Rdma = "rdma",
    }
}

words! {
    /// Which ranks of a node or other unit take part between units in a composed broadcast, reduce or allreduce.
    LeaderChoice, Auto {
        /// By the model.
        Auto = "auto",
        /// One leads each unit.
        One = "one",
        /// Each leads a part of the vector, where units have equally many ranks.
        All = "all",
    }
}

impl LeaderChoice {
    /// The leaders that the user has chosen.
    pub(crate) const fn given(self) -> Option<Leaders> {
        match self {
            Self::Auto => None,
            Self::One => Some(Leaders::One),
            Self::All => Some(Leaders::All),
        }
    }
}

words! {
    /// Whether the blocks that the leaders of units collect go down to the other ranks in parts, as they arrive.
    PartsChoice, Auto {
        /// By the model.
        Auto = "auto",
        /// They do.
        On = "on",
        /// All blocks at once.
        Off = "off",
    }
}

words! {
    /// How the members of a subgroup exchange their parts of a composed collective.
    GroupMeans, Auto {
        /// In innermost subgroups by the means that is faster for the collective and its length; by messages in others.
        Auto = "auto",
        /// By messages.
        Messages = "messages",
        /// In shared memory, whose slots are published and polled, if no subgroup of the level has ranks of several nodes.
        Slots = "slots",
    }
}

words! {
    /// How the work queues of an RDMA adapter are written.
    QueuesChoice, Auto {
        /// Directly where this library supports the adapter and the system maps its queues, else through libibverbs.
        Auto = "auto",
        /// Through libibverbs.
        Library = "library",
        /// Directly, by this library.
        Raw = "raw",
    }
}

#[cfg(feature = "verbs")]
impl From<QueuesChoice> for unisono_verbs::ud::QueueChoice {
    fn from(choice: QueuesChoice) -> Self {
        match choice {
            QueuesChoice::Auto => Self::Auto,
            QueuesChoice::Library => Self::Library,
            QueuesChoice::Raw => Self::Raw,
        }
    }
}

words! {
    /// The progress mode: what makes progress while the program computes (Koop et al. 2007, §4.2.2).
    Progress, Engine {
        /// Only calls into the library make progress.
        Engine = "engine",
        /// A thread that wakes up periodically.
        Thread = "thread",
        /// A thread that probes of peers and immediate collectives wake up.
        Hybrid = "hybrid",
    }
}

words! {
    /// What finds corrupted datagrams.
    Integrity, Crc32c {
        /// A CRC-32C in each.
        Crc32c = "crc32c",
        /// The link itself, or nothing.
        Link = "link",
    }
}

words! {
    /// Whether a feature is used.
    Switch, Off {
        /// Used.
        On = "on",
        /// Not used.
        Off = "off",
    }
}

impl Switch {
    /// Whether it is on.
    ///
    /// ```
    /// use unisono::environment::Switch;
    ///
    /// assert!(Switch::On.is_on() && !Switch::Off.is_on());
    /// ```
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

/// A node's shared-memory segment as the launcher passes it: `17`, `17@4242`, or `none`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InheritedSegment {
    /// A file descriptor that this process has inherited.
    Descriptor {
        /// Its number.
        number: u32,
        /// A process that keeps it open under this number while the job runs, in case this process no longer has it.
        holder: Option<u32>,
    },
    /// The node has no segment.
    Nothing,
}

impl FromStr for InheritedSegment {
    type Err = InheritedSegmentError;

    fn from_str(text: &str) -> Result<Self, InheritedSegmentError> {
        if text == "none" {
            return Ok(Self::Nothing);
        }
        let number = |text: &str| {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| plain).ok_or(InheritedSegmentError)
        };
        let (of, holder) = match text.split_once('@') {
            Some((of, holder)) => (of, Some(number(holder)?)),
            None => (text, None),
        };
        Ok(Self::Descriptor { number: number(of)?, holder })
    }
}

impl fmt::Display for InheritedSegment {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptor { number, holder: Some(holder) } => write!(to, "{number}@{holder}"),
            Self::Descriptor { number, holder: None } => number.fmt(to),
            Self::Nothing => to.write_str("none"),
        }
    }
}

/// The text does not name a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a descriptor and its process, such as 17@4242, or none")]
pub struct InheritedSegmentError;

/// The text is not a value of the option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected one of {}", words.join(", "))]
pub struct ChoiceError {
    words: &'static [&'static str],
}

/// Length of a UDP payload in bytes, header and checksum included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mtu(u16);

impl Mtu {
    /// The smallest: every IPv4 host accepts it.
    pub const MIN: u16 = 576;
    /// The largest UDP payload over IPv4.
    pub const MAX: u16 = 65507;

    /// `None` outside [`MIN`](Self::MIN) to [`MAX`](Self::MAX).
    ///
    /// ```
    /// use unisono::environment::Mtu;
    ///
    /// assert!(Mtu::new(1500).is_some() && Mtu::new(100).is_none());
    /// ```
    pub const fn new(bytes: u32) -> Option<Self> {
        if bytes >= Self::MIN as u32 && bytes <= Self::MAX as u32 { Some(Self(bytes as u16)) } else { None }
    }

    /// In bytes.
    ///
    /// ```
    /// assert_eq!(unisono::environment::Mtu::new(9000).map(|mtu| mtu.bytes()), Some(9000));
    /// ```
    pub const fn bytes(self) -> u32 {
        self.0 as u32
    }
}

impl FromStr for Mtu {
    type Err = MtuError;

    fn from_str(text: &str) -> Result<Self, MtuError> {
        text.parse().ok().and_then(Self::new).ok_or(MtuError)
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// The text is not a valid MTU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a number of bytes from {} to {}", Mtu::MIN, Mtu::MAX)]
pub struct MtuError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_parses_to_what_printed_it() {
        for device in DeviceChoice::ALL {
            assert_eq!(device.to_string().parse(), Ok(*device));
        }
        for queues in QueuesChoice::ALL {
            assert_eq!(queues.to_string().parse(), Ok(*queues));
        }
        for progress in Progress::ALL {
            assert_eq!(progress.to_string().parse(), Ok(*progress));
        }
        for switch in Switch::ALL {
            assert_eq!(switch.to_string().parse(), Ok(*switch));
        }
    }

    #[test]
    fn segments_are_given_by_descriptor_or_not_at_all() {
        let given = |holder| InheritedSegment::Descriptor { number: 17, holder };
        for (text, given) in [("17@4242", given(Some(4242))), ("17", given(None)), ("none", InheritedSegment::Nothing)]
        {
            assert_eq!(text.parse(), Ok(given));
            assert_eq!(given.to_string(), text);
        }
        for text in ["", "@", "17@", "@1", "-1@1", "1@+1", "None", "4294967296@1", "0x3@1", "1@2@3"] {
            assert_eq!(text.parse::<InheritedSegment>(), Err(InheritedSegmentError), "{text}");
        }
    }

    #[test]
    fn a_wrong_word_names_the_right_ones() {
        let refused = "Engine".parse::<Progress>().expect_err("words are lower case");
        assert_eq!(refused.to_string(), "expected one of engine, thread, hybrid");
    }

    #[test]
    fn mtu_has_bounds() {
        assert_eq!("576".parse::<Mtu>().map(Mtu::bytes), Ok(576));
        assert_eq!("65507".parse::<Mtu>().map(Mtu::bytes), Ok(65507));
        for text in ["575", "65508", "-1", "", "1500B", "4294968872"] {
            assert_eq!(text.parse::<Mtu>(), Err(MtuError), "{text}");
        }
    }
}
