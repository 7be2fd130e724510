//! The catalogue of models, each small enough to explore all of them within minutes, and of the mutants that they must
//! detect.

use core::marker::PhantomData;

use unisono_core::collective::token_tree::ReleasePath;
use unisono_core::collective::{CollectiveKind, Order};
use unisono_core::multicast::AckMode;
use unisono_core::schedule::{Algorithm, GroupLevels, HierarchyOptions, Leaders, LowerTrees, Spec};

use super::attached::{AttachOptions, AttachingRank};
use super::clock::{Abstract, Clock, Relative};
use super::collective::{Collective, MessageLimits};
#[cfg(not(feature = "optimize_for_size"))]
use super::congestion::{self, Congestion};
use super::group_pool::{Creation, PoolOptions, PooledGroups};
use super::lane::Lane;
use super::message::{self, Messages, SentMessage};
use super::messenger::{ANNOUNCED, EAGER, Fetches, Messengers};
use super::multicast::{MulticastOptions, MulticastStream};
use super::peer_lifecycle::{self, PeerLifecycle};
use super::placements::Placements;
#[cfg(not(feature = "optimize_for_size"))]
use super::rails::TwoRails;
use super::rma::{Events, RemoteAccess, Step};
use super::token_tree::{ReleasePaths, TokenTrees, TreeOptions, TreeSizes};
use super::window::{self, Window};
use crate::model_checker::{ExplorationReport, Explorer};

/// Four ranks on two hosts, and by two caches of one host.
const HOSTS: &[&[u32]] = &[&[0, 0, 1, 1]];
const CACHES: &[&[u32]] = &[&[0, 0, 1, 1], &[0; 4]];
/// Levels with steps of their own: the innermost, at all ranks or at those of one host; that of the leaders; both.
const INNERMOST: GroupLevels = GroupLevels::INNERMOST;
const ONE_HOST: [GroupLevels; 4] = [INNERMOST, INNERMOST, GroupLevels::NONE, GroupLevels::NONE];
const LEADERS: GroupLevels = GroupLevels::NONE.with(1);
const BOTH_LEVELS: GroupLevels = INNERMOST.with(1);

/// Expected result of an exploration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Every state is safe, and each can finish.
    Holds,
    /// Some state is unsafe: the environment is worse than the protocol can withstand.
    Fails,
}

/// A model and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct CatalogueEntry {
    /// Its name.
    pub name: &'static str,
    /// Segments of a window, and bits of a sequence number.
    pub widths: (usize, u32),
    /// The clock, and the bits of transmission counts and probe numbers.
    pub time: (&'static str, u32),
    /// Messages that are sent.
    pub messages: &'static str,
    /// Datagrams in flight.
    pub in_flight: usize,
    /// Number of later deliveries after which a datagram disappears.
    pub lifetime: Option<i8>,
    /// Other events of the model, and why there are no more.
    pub notes: &'static str,
    /// Expected result.
    pub expected: Expected,
    explore: fn(Explorer) -> ExplorationReport,
}

impl CatalogueEntry {
    /// Explores it.
    pub fn explore(&self, explorer: Explorer) -> ExplorationReport {
        (self.explore)(explorer)
    }
}

/// Makes the entry of a window model: everything that is printed is what is explored.
macro_rules! window {
    ($name:literal, $clock:ty, $w:literal, $bits:literal, $n:literal, $lifetime:literal, $credits:expr, $options:expr, $expected:ident, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: ($w, $bits),
            time: (<$clock>::NAME, <$clock as unisono_core::time::Time>::COUNT_MASK.count_ones()),
            messages: "any",
            in_flight: $n,
            lifetime: Some($lifetime),
            notes: $notes,
            expected: Expected::$expected,
            explore: |explorer| {
                explorer.explore(&Window::<$clock, $w, $bits, $n> {
                    lifetime: $lifetime,
                    credits: $credits,
                    options: $options,
                    clock: PhantomData,
                })
            },
        }
    };
}

/// Makes the entry of a model of two rails.
#[cfg(not(feature = "optimize_for_size"))]
macro_rules! rails {
    ($name:literal, $w:literal, $n:literal, $messages:literal, $model:expr, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: ($w, 6),
            time: ("chosen", 2),
            messages: $messages,
            in_flight: 4 * $n,
            lifetime: None,
            notes: $notes,
            expected: Expected::Holds,
            explore: |explorer| {
                explorer.explore(&{
                    const MODEL: TwoRails<$w, $n> = $model;
                    MODEL
                })
            },
        }
    };
}

/// Makes the entry of a peer-lifecycle model: windows of 2 segments with PSNs of 3 bits, and 2 messages under way,
/// unless it says otherwise.
macro_rules! lifecycle {
    ($name:literal, $n:literal, $messages:literal, $options:expr, $notes:literal) => {
        lifecycle!($name, $n, (2, 3, 2), $messages, $options, $notes)
    };
    ($name:literal, $n:literal, ($w:literal, $bits:literal, $m:literal), $messages:literal, $options:expr, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: ($w, $bits),
            time: ("abstract", 0),
            messages: $messages,
            in_flight: $n,
            lifetime: None,
            notes: $notes,
            expected: Expected::Holds,
            explore: |explorer| explorer.explore(&PeerLifecycle::<$n, $w, $bits, $m>::new($options)),
        }
    };
}

/// Groups with one leader each, and nothing in parts.
const ONE_LEADER: HierarchyOptions =
    HierarchyOptions { lower: LowerTrees { radix: 2, ports: 1 }, in_parts: false, leaders: Leaders::One };
/// Blocks go down to the groups as they arrive.
const IN_PARTS: HierarchyOptions = HierarchyOptions { in_parts: true, ..ONE_LEADER };
/// All ranks lead.
const ALL_LEADERS: HierarchyOptions = HierarchyOptions { leaders: Leaders::All, ..ONE_LEADER };

/// Makes the entry of a collective's model: ranks, or the groups of ranks over which it is composed, and how; segments;
/// blocks of the longest eager message, credit and headers.
macro_rules! collective {
    ($name:literal, $collective:ident, $algorithm:ident, over $groups:expr, $options:ident, $($rest:tt)+) => {
        collective!(@entry $name, $collective, $algorithm, $groups.len() as u32, "a plan over groups",
            |spec, limits| Collective::over_groups(spec, &$groups, $options, limits), $($rest)+)
    };
    ($name:literal, $collective:ident, $algorithm:ident, $size:literal, $($rest:tt)+) => {
        collective!(@entry $name, $collective, $algorithm, $size, "a plan", Collective::new, $($rest)+)
    };
    (@entry $name:literal, $collective:ident, $algorithm:ident, $size:expr, $messages:literal, $model:expr,
     $segments:literal, $room:expr, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: (0, 0),
            time: ("none", 0),
            messages: $messages,
            in_flight: 0,
            lifetime: None,
            notes: $notes,
            expected: Expected::Holds,
            explore: |explorer| {
                let spec = Spec {
                    segments: $segments,
                    order: Order::Rank,
                    ..Spec::new(CollectiveKind::$collective, Algorithm::$algorithm, $size, 1)
                };
                let (limit, credit, headers) = $room;
                explorer.explore(&$model(spec, MessageLimits { limit, credit, headers }))
            },
        }
    };
}

/// Makes the entry of a model of steps of subgroups: collectives (kind, root, segments), the groupings, innermost first, how
/// they are composed, in parts unless given, and where each rank's subgroups have steps.
macro_rules! lane {
    ($name:literal, $calls:tt, $groupings:expr, $levels:expr, $notes:literal) => {
        lane!($name, $calls, $groupings, IN_PARTS, $levels, $notes)
    };
    ($name:literal, [$(($collective:ident, $root:literal, $segments:literal)),+], $groupings:expr, $options:expr, $levels:expr, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: (0, 0),
            time: ("none", 0),
            messages: "schedules over subgroups",
            in_flight: 0,
            lifetime: None,
            notes: $notes,
            expected: Expected::Holds,
            explore: |explorer| {
                let calls = [$((CollectiveKind::$collective, $root, $segments)),+];
                explorer.explore(&Lane::new(&calls, $groupings, $options, $levels))
            },
        }
    };
}

/// Makes the entry of a model of remote memory access: scripts, messages in an endpoint, entries, unanswered requests.
macro_rules! remote_access {
    ($name:literal, $scripts:expr, $room:literal, $entries:literal, $outstanding:literal, $events:expr, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: (0, 0),
            time: ("none", 0),
            messages: "a script",
            in_flight: $room,
            lifetime: None,
            notes: $notes,
            expected: Expected::Holds,
            explore: |explorer| {
                explorer.explore(&RemoteAccess {
                    scripts: $scripts,
                    room: $room,
                    entries: $entries,
                    outstanding: $outstanding,
                    events: $events,
                })
            },
        }
    };
}

/// Makes the entry of a message model.
macro_rules! message {
    ($name:literal, $ranks:literal, $messages:literal, $model:expr, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: (message::HEADERS as usize, message::SLOTS as u32),
            time: ("none", 0),
            messages: $messages,
            in_flight: 0,
            lifetime: None,
            notes: $notes,
            expected: Expected::Holds,
            explore: |explorer| {
                let model: Messages<$ranks> = $model;
                explorer.explore(&model)
            },
        }
    };
}

/// Makes the entry of a model of messengers.
macro_rules! messenger {
    ($name:literal, $messages:literal, $model:expr, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: (8, 5),
            time: ("abstract", 0),
            messages: $messages,
            in_flight: 0,
            lifetime: None,
            notes: $notes,
            expected: Expected::Holds,
            explore: |explorer| explorer.explore(&$model),
        }
    };
}

/// Messengers without loss, that can read no memory of each other.
const MESSENGERS: Messengers = Messengers {
    messages: &[],
    flood: false,
    losses: 0,
    step: EAGER,
    fetches: Fetches::Copied(0),
    failures: 0,
    gives_up: false,
};

/// Makes the entry of a token tree's model: releases and records of epochs, ranks, degrees, units.
macro_rules! token_tree {
    ($name:literal, $m:literal, $s:literal, $ranks:expr, $degrees:expr, $units:expr, $epochs:literal, $options:expr, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: ($m, $s),
            time: ("abstract", 0),
            messages: concat!("calls ", $epochs),
            in_flight: 0,
            lifetime: None,
            notes: $notes,
            expected: Expected::Holds,
            explore: |explorer| {
                let sizes = TreeSizes { ranks: $ranks, degrees: $degrees, units: $units };
                explorer.explore(&TokenTrees::<$m, $s>::new(sizes, TreeOptions { epochs: $epochs, ..$options }))
            },
        }
    };
}

/// Makes the entry of a multicast model.
macro_rules! multicast {
    ($name:literal, $options:expr, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: (2, 3),
            time: ("abstract", 0),
            messages: "4",
            in_flight: 0,
            lifetime: None,
            notes: $notes,
            expected: Expected::Holds,
            explore: |explorer| explorer.explore(&MulticastStream::new($options)),
        }
    };
}

/// Makes the entry of a model of a rank that attaches and detaches.
macro_rules! attached {
    ($name:literal, $options:expr, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: (0, 0),
            time: ("none", 0),
            messages: "calls",
            in_flight: 0,
            lifetime: None,
            notes: $notes,
            expected: Expected::Holds,
            explore: |explorer| explorer.explore(&AttachingRank::new($options)),
        }
    };
}

/// A rank attaches twice and detaches once, amid four calls.
const ATTACHING: AttachOptions =
    AttachOptions { calls: 4, ahead: 1, requests: (2, 1), under_way: 2, refuses: false, has_other: false };

/// Makes the entry of a model of pooled groups.
macro_rules! group_pool {
    ($name:literal, $options:expr, $notes:literal) => {
        CatalogueEntry {
            name: $name,
            widths: (0, 0),
            time: ("abstract", 0),
            messages: "2 creations",
            in_flight: 0,
            lifetime: None,
            notes: $notes,
            expected: Expected::Holds,
            explore: |explorer| explorer.explore(&PooledGroups::new($options)),
        }
    };
}

/// All ranks create two communicators, and two of them another one, with or after that.
const POOLED: PoolOptions = PoolOptions {
    creations: [Creation { parent: 0b111, first: 0b011 }, Creation { parent: 0b011, first: 0b011 }],
    target: 1,
    losses: 0,
    refuses: false,
};

/// All acknowledge to the root.
const BASIC: MulticastOptions = MulticastOptions::new(AckMode::Basic);
/// One member acknowledges for another.
const BELOW: MulticastOptions = MulticastOptions::new(AckMode::Tree { degree: 2 });
/// One co-root, which has one leaf, as the root has.
const CO_ROOT: MulticastOptions = MulticastOptions::new(AckMode::CoRoot { count: 1 });

const fn sent(from: u8, tag: u32, bytes: u64) -> SentMessage {
    SentMessage { from, tag, bytes, synchronous: false }
}

/// Short, eager, announced.
const MIXED: [SentMessage; 3] = [sent(0, 1, 1), sent(0, 1, 2), sent(0, 2, 3)];
const SLOTTED: [SentMessage; 3] = [sent(0, 1, 2), sent(0, 1, 2), sent(0, 2, 2)];
const SHORT: [SentMessage; 4] = [sent(0, 1, 1), sent(0, 1, 1), sent(0, 1, 1), sent(0, 2, 1)];
const FOUR: [SentMessage; 4] =
    [sent(0, 1, 1), SentMessage { synchronous: true, ..sent(0, 1, 2) }, sent(0, 2, 3), sent(0, 1, 2)];
const PAIRS: [SentMessage; 4] = [sent(0, 1, 2), sent(0, 2, 1), sent(1, 1, 1), sent(1, 2, 3)];

/// A source and a tag, or any.
type Asked = (Option<u32>, Option<u32>);

const EXACT: [Asked; 2] = [(Some(0), Some(1)), (Some(0), Some(2))];
const WILD: [Asked; 4] = [(Some(0), Some(1)), (Some(0), Some(2)), (None, Some(1)), (None, None)];
const LAST_OR_ANY: [Asked; 2] = [(Some(0), Some(2)), (None, None)];
const PLAINLY: message::MessageOptions =
    message::MessageOptions { cancels: 0, withdrawals: 0, probe: false, fetch: false, pulls_late: false };

const ALL: window::WindowOptions =
    window::WindowOptions { finish_late: true, probe_late: true, lack_window: true, renew: true, both_queues: false };
const SWIFT: window::WindowOptions = window::WindowOptions { finish_late: false, probe_late: false, ..ALL };
const PLAIN: window::WindowOptions = window::WindowOptions { lack_window: false, renew: false, ..SWIFT };
const QUEUES: window::WindowOptions = window::WindowOptions { finish_late: true, both_queues: true, ..PLAIN };

const STAY: peer_lifecycle::LifecycleOptions = peer_lifecycle::LifecycleOptions {
    messages: [1, 1],
    sends: 1,
    restart: [true, true],
    suspicions: 0,
    finish_late: false,
    double: true,
    batch: 1,
    settled: false,
    leave: false,
};
const LEAVE: peer_lifecycle::LifecycleOptions =
    peer_lifecycle::LifecycleOptions { messages: [1, 0], leave: true, ..STAY };
/// One rank sends, and what is in flight arrives in batches.
const BURST: peer_lifecycle::LifecycleOptions = peer_lifecycle::LifecycleOptions {
    messages: [4, 0],
    sends: 4,
    restart: [false; 2],
    batch: 3,
    settled: true,
    ..STAY
};

const TREE: TreeOptions = TreeOptions {
    epochs: 1,
    has_values: true,
    paths: ReleasePaths::Same(ReleasePath::Multicast),
    losses: 0,
    doubles: 0,
    crash: false,
    ends: false,
    asks: true,
    early_asks: 0,
    polls_late: false,
};

/// All models, those that take longest first.
pub const MODELS: &[CatalogueEntry] = &[
    window!("relative-2", Relative<0>, 2, 3, 2, 4, &[0, 2], ALL, Holds, ""),
    window!(
        "window-3",
        Abstract<0>,
        3,
        4,
        2,
        10,
        &[3],
        SWIFT,
        Holds,
        "postings finish and probes leave at once: late ones take more than 2.6 × 10^8 transitions, 4.5 GiB"
    ),
    window!("window-3-late", Abstract<0>, 3, 4, 2, 10, &[0, 2], ALL, Holds, "credit keeps one of three segments back"),
    window!("window-2", Abstract<0>, 2, 3, 2, 4, &[0, 2], ALL, Holds, ""),
    window!("window-2-one", Abstract<0>, 2, 3, 1, 4, &[0, 1, 2], ALL, Holds, ""),
    window!("window-2-queues", Abstract<0>, 2, 3, 1, 4, &[2], QUEUES, Holds, "segments are posted on both queues"),
    window!("counts-2", Abstract<1>, 2, 3, 2, 0, &[2], PLAIN, Holds, "lifetime 1 takes 10^7 states"),
    window!("counts-2-one", Abstract<3>, 2, 3, 1, 4, &[0, 2], ALL, Holds, ""),
    window!(
        "relative-3",
        Relative<0>,
        3,
        4,
        2,
        10,
        &[2],
        PLAIN,
        Holds,
        "credit keeps one of three segments back: all three are found within 4 × 10^7 states, but whether each can finish takes more than 4.5 GiB"
    ),
    window!("relative-2-one", Relative<0>, 2, 3, 1, 4, &[0, 2], ALL, Holds, ""),
    window!("window-3-long", Abstract<0>, 3, 4, 2, 11, &[3], PLAIN, Fails, "the smallest lifetime that fails"),
    window!("window-2-long", Abstract<0>, 2, 3, 2, 5, &[2], PLAIN, Fails, "the smallest lifetime that fails"),
    // Built for size, losses do not change the window.
    #[cfg(not(feature = "optimize_for_size"))]
    CatalogueEntry {
        name: "congestion",
        widths: (congestion::FULL as usize, 0),
        time: ("12 units", 0),
        messages: "none",
        in_flight: 0,
        lifetime: None,
        notes: "one peer's window by delay; round trips and losses in time and late",
        expected: Expected::Holds,
        explore: |explorer| explorer.explore(&Congestion),
    },
    lifecycle!(
        "life-stay",
        2,
        "1+1",
        peer_lifecycle::LifecycleOptions { double: false, ..STAY },
        "both restart, nobody leaves; doubled: 10^7 states"
    ),
    lifecycle!(
        "life-double",
        2,
        "1+1",
        peer_lifecycle::LifecycleOptions { restart: [true, false], ..STAY },
        "one restarts, nobody leaves"
    ),
    // Built for size, the core has one rail.
    #[cfg(not(feature = "optimize_for_size"))]
    rails!(
        "rails-loss",
        3,
        2,
        "3",
        TwoRails { messages: 3, losses: 1, ..TwoRails::PATIENT },
        "one loss; timers are longer than a round trip"
    ),
    // Built for size, the core has one rail.
    #[cfg(not(feature = "optimize_for_size"))]
    rails!(
        "rails-suspended",
        2,
        2,
        "2",
        TwoRails { messages: 2, losses: 1, suspended: true, ..TwoRails::PATIENT },
        "one loss, and the receiver is suspended once; timers are longer than a round trip"
    ),
    // Built for size, the core has one rail.
    #[cfg(not(feature = "optimize_for_size"))]
    rails!(
        "rails-cut",
        3,
        2,
        "3",
        TwoRails { messages: 3, cut: true, ..TwoRails::PATIENT },
        "one cut; timers are longer than a round trip"
    ),
    // Built for size, the core has one rail.
    #[cfg(not(feature = "optimize_for_size"))]
    rails!(
        "rails-cut-loss",
        3,
        2,
        "3",
        TwoRails { messages: 3, losses: 1, cut: true, ..TwoRails::PATIENT },
        "one loss and one cut; timers are longer than a round trip"
    ),
    // Built for size, the core has one rail.
    #[cfg(not(feature = "optimize_for_size"))]
    rails!(
        "rails-early",
        2,
        1,
        "2",
        TwoRails { messages: 2, cut: true, restored: true, patient: false, ..TwoRails::PATIENT },
        "one cut that ends; timers expire at any time"
    ),
    // Built for size, the core has one rail.
    #[cfg(not(feature = "optimize_for_size"))]
    rails!(
        "rails-ports",
        3,
        2,
        "3",
        TwoRails { messages: 3, losses: 1, cut: true, ports: true, ..TwoRails::PATIENT },
        "messages prefer the rails in turn, one loss and one cut; timers are longer than a round trip"
    ),
    // Built for size, the core has one rail.
    #[cfg(not(feature = "optimize_for_size"))]
    rails!(
        "rails-full",
        3,
        2,
        "3",
        TwoRails { messages: 3, losses: 1, cut: true, full: true, ..TwoRails::PATIENT },
        "both rails are full of segments to other peers; one loss and one cut; timers are longer than a round trip"
    ),
    // Built for size, the core has one rail.
    #[cfg(not(feature = "optimize_for_size"))]
    rails!(
        "rails-lacking",
        3,
        2,
        "3",
        TwoRails { messages: 3, losses: 1, lacking: true, ..TwoRails::PATIENT },
        "the peer lacks a rail; one loss; timers are longer than a round trip"
    ),
    lifecycle!("life-leave", 2, "1+0", LEAVE, "both restart and leave"),
    lifecycle!(
        "life-suspect",
        2,
        "2+0",
        peer_lifecycle::LifecycleOptions { messages: [2, 0], suspicions: 1, double: false, ..STAY },
        "both restart, one is declared dead while it lives"
    ),
    lifecycle!(
        "life-late",
        2,
        "1+0",
        peer_lifecycle::LifecycleOptions {
            suspicions: 1,
            restart: [false; 2],
            finish_late: true,
            double: false,
            ..LEAVE
        },
        "postings finish late, one is declared dead while it lives, both leave"
    ),
    lifecycle!(
        "life-three",
        3,
        "1+0",
        peer_lifecycle::LifecycleOptions { messages: [1, 0], ..STAY },
        "both restart, nobody leaves"
    ),
    lifecycle!(
        "life-one",
        1,
        "1+1",
        peer_lifecycle::LifecycleOptions {
            messages: [1, 1],
            finish_late: true,
            restart: [false; 2],
            double: false,
            ..LEAVE
        },
        "postings finish late, both leave"
    ),
    lifecycle!(
        "burst",
        3,
        (8, 5, 4),
        "4+0",
        BURST,
        "one way, in batches; timers fire when nothing is in flight; nobody restarts or leaves"
    ),
    lifecycle!(
        "burst-restart",
        3,
        (8, 5, 4),
        "3+0",
        peer_lifecycle::LifecycleOptions { messages: [3, 0], restart: [true, false], double: false, ..BURST },
        "one way, in batches; timers fire when nothing is in flight; the sender restarts"
    ),
    collective!("coll-broadcast", Broadcast, Knomial, 3, 4, (1, 1, 1), "4 segments, credit 1, one header"),
    collective!("coll-allgather", Allgather, Bruck, 3, 1, (1, 2, 1), "payloads longer than a block are announced"),
    collective!("coll-allreduce", Allreduce, StandardExchange, 3, 2, (1, 1, 1), "correction steps, 2 segments"),
    collective!("coll-scan", Scan, Dissemination, over [0, 0, 1, 1], ONE_LEADER, 2, (1, 1, 1), "two groups of two ranks, 2 segments"),
    collective!("coll-exscan", Exscan, Ring, over [0, 1, 1, 2], ONE_LEADER, 1, (1, 1, 1), "groups of one and of two ranks"),
    collective!("coll-leaders", Reduce, Knomial, over [0, 0, 1, 1], ALL_LEADERS, 1, (1, 1, 1), "all of two groups of two lead"),
    collective!("coll-parts", Allgather, Ring, over [0, 0, 1], IN_PARTS, 1, (1, 1, 1), "groups of two ranks and of one, in parts"),
    lane!(
        "lane",
        [(Allreduce, 0, 1), (Broadcast, 3, 1)],
        HOSTS,
        [INNERMOST; 4],
        "an allreduce and a broadcast at a time"
    ),
    lane!("lane-segments", [(Broadcast, 0, 2), (Reduce, 2, 2)], HOSTS, [INNERMOST; 4], "two segments each"),
    lane!(
        "lane-parts",
        [(Allgather, 0, 1), (Allreduce, 0, 1)],
        HOSTS,
        [INNERMOST; 4],
        "an allgather in parts, and an allreduce"
    ),
    lane!("lane-one", [(Barrier, 0, 1), (Allreduce, 0, 1), (Barrier, 0, 1)], HOSTS, ONE_HOST, "three, on one host"),
    lane!(
        "lane-levels",
        [(Allreduce, 0, 1), (Broadcast, 2, 2), (Barrier, 0, 1)],
        CACHES,
        [BOTH_LEVELS; 4],
        "caches and their leaders"
    ),
    lane!(
        "lane-leaders",
        [(Barrier, 0, 1), (Broadcast, 1, 1), (Reduce, 0, 1)],
        CACHES,
        [LEADERS; 4],
        "leaders only; one that the root replaces"
    ),
    lane!(
        "lane-all-leaders",
        [(Allreduce, 0, 1), (Broadcast, 3, 1), (Reduce, 1, 1)],
        HOSTS,
        ALL_LEADERS,
        [INNERMOST; 4],
        "all of two groups of two lead, three at a time"
    ),
    lane!(
        "lane-one-all-leaders",
        [(Reduce, 2, 1), (Broadcast, 1, 1), (Allreduce, 0, 1)],
        HOSTS,
        ALL_LEADERS,
        ONE_HOST,
        "the same, one of them by messages"
    ),
    remote_access!(
        "rma-updates",
        [&[Step::Add, Step::Accumulate, Step::Add], &[Step::Add, Step::Add]],
        2,
        1,
        2,
        Events::NONE,
        "one entry, both sides full"
    ),
    remote_access!(
        "rma-both",
        [&[Step::Write, Step::Flush, Step::ReadLong], &[Step::MaskedSwap, Step::WriteImmediate]],
        2,
        1,
        2,
        Events::NONE,
        "writes of two messages, one entry, both sides full"
    ),
    remote_access!(
        "rma-reads",
        [&[Step::ReadLong, Step::Add, Step::ReadShort], &[Step::ReadShort]],
        2,
        2,
        2,
        Events::NONE,
        "answers overtake each other"
    ),
    remote_access!(
        "rma-refused",
        [&[Step::Forge, Step::WriteShort, Step::WriteOutside, Step::Flush], &[Step::WriteImmediate]],
        2,
        1,
        2,
        Events::NONE,
        "a wrong key and a wrong length"
    ),
    remote_access!(
        "rma-refused-long",
        [&[Step::WriteLongOutside, Step::WriteShort, Step::Flush], &[]],
        2,
        1,
        2,
        Events::NONE,
        "a write of two messages that ends outside"
    ),
    remote_access!(
        "rma-queued",
        [&[Step::Add, Step::Add], &[Step::Add, Step::Add]],
        2,
        1,
        1,
        Events::NONE,
        "one unanswered request, one entry, both sides full"
    ),
    remote_access!(
        "rma-refused-immediate",
        [&[Step::ForgeImmediate, Step::Add], &[Step::Add]],
        2,
        1,
        2,
        Events::NONE,
        "a wrong key of a write of two messages, one entry"
    ),
    remote_access!(
        "rma-revoked",
        [&[Step::ReadLong, Step::Write, Step::Add], &[Step::Add]],
        2,
        2,
        2,
        Events { revokes: Some(1), ..Events::NONE },
        "the region is revoked at any time"
    ),
    remote_access!(
        "rma-restart",
        [&[Step::Write, Step::Add, Step::ReadLong], &[Step::Add, Step::ReadShort]],
        2,
        1,
        2,
        Events { restarts: true, ..Events::NONE },
        "a target fails and is replaced at any time"
    ),
    remote_access!(
        "rma-revoked-restart",
        [&[Step::Write, Step::Add], &[Step::ReadLong, Step::Add]],
        2,
        1,
        2,
        Events { revokes: Some(0), restarts: true, ..Events::NONE },
        "one entry, both sides full; a region is revoked, and its reader replaced, at any time"
    ),
    remote_access!(
        "rma-once",
        [&[Step::WriteShort, Step::WriteShort, Step::Flush], &[]],
        2,
        1,
        1,
        Events { once: true, ..Events::NONE },
        "a region of one use"
    ),
    remote_access!(
        "rma-once-answered",
        [&[Step::Add, Step::ReadShort, Step::Add], &[]],
        2,
        2,
        2,
        Events { once: true, ..Events::NONE },
        "a region of one use; its use is answered"
    ),
    remote_access!(
        "rma-blocks",
        [&[Step::AccumulateBlocks, Step::ReadBlocks, Step::ReadBlocksOutside], &[Step::ReadBlocks, Step::Add]],
        2,
        1,
        2,
        Events { revokes: Some(1), ..Events::NONE },
        "blocks at a distance; one entry; the region is revoked at any time"
    ),
    CatalogueEntry {
        name: "placements",
        widths: (8, 5),
        time: ("abstract", 0),
        messages: "2 grants",
        in_flight: 1,
        lifetime: None,
        notes: "a peer that misuses its grants; the owner withdraws them at any time",
        expected: Expected::Holds,
        explore: |explorer| explorer.explore(&Placements { grants: 2, numbers: 5 }),
    },
    message!(
        "message-four",
        2,
        "4",
        Messages { sent: &FOUR, patterns: &LAST_OR_ANY, receives: 4, options: PLAINLY },
        "W and bits: headers and slots"
    ),
    message!(
        "message-three",
        3,
        "2+2",
        Messages { sent: &PAIRS, patterns: &LAST_OR_ANY, receives: 3, options: PLAINLY },
        "two ranks send to a third"
    ),
    message!(
        "message-probe",
        2,
        "3",
        Messages {
            sent: &MIXED,
            patterns: &WILD,
            receives: 3,
            options: message::MessageOptions { probe: true, fetch: true, ..PLAINLY },
        },
        "one matched probe of anything"
    ),
    message!(
        "message-two",
        2,
        "3",
        Messages {
            sent: &SLOTTED,
            patterns: &EXACT,
            receives: 3,
            options: message::MessageOptions { cancels: 1, fetch: true, ..PLAINLY },
        },
        "no wildcards; one receive is cancelled"
    ),
    message!(
        "message-behind",
        2,
        "4",
        Messages {
            sent: &SHORT,
            patterns: &EXACT,
            receives: 3,
            options: message::MessageOptions { cancels: 1, fetch: true, ..PLAINLY },
        },
        "no wildcards; one receive is cancelled"
    ),
    message!(
        "message-withdrawn",
        2,
        "3",
        Messages {
            sent: &SLOTTED,
            patterns: &EXACT,
            receives: 2,
            options: message::MessageOptions { withdrawals: 1, probe: true, fetch: true, pulls_late: true, ..PLAINLY },
        },
        "one send is cancelled; one matched probe of anything; payloads are fetched at any time"
    ),
    messenger!(
        "messenger",
        "2 and a collective's",
        Messengers { messages: &[EAGER, ANNOUNCED], losses: 1, ..MESSENGERS },
        "endpoints and messengers; one datagram is lost"
    ),
    messenger!(
        "messenger-flood",
        "2 and a collective's",
        Messengers { messages: &[ANNOUNCED, ANNOUNCED], flood: true, ..MESSENGERS },
        "announced messages fill every record of their class until the collective is complete"
    ),
    messenger!(
        "messenger-fetch",
        "1 and a collective's",
        Messengers { messages: &[ANNOUNCED], step: ANNOUNCED, fetches: Fetches::Copied(ANNOUNCED), ..MESSENGERS },
        "the receiver copies both payloads out of the sender's memory, each in two parts"
    ),
    messenger!(
        "messenger-unreachable",
        "1 and a collective's",
        Messengers { messages: &[ANNOUNCED], step: ANNOUNCED, fetches: Fetches::Copied(EAGER), ..MESSENGERS },
        "the receiver copies a part of both payloads, and cannot read the rest"
    ),
    messenger!(
        "messenger-read",
        "1 and a collective's",
        Messengers { messages: &[ANNOUNCED], step: ANNOUNCED, fetches: Fetches::Started, failures: 1, ..MESSENGERS },
        "the transport reads both payloads, each in two parts that end at any time, and of which one may fail"
    ),
    messenger!(
        "messenger-read-ended",
        "1 and a collective's",
        Messengers { messages: &[ANNOUNCED], step: ANNOUNCED, fetches: Fetches::Started, gives_up: true, ..MESSENGERS },
        "the same without failure; the collective's message is cancelled, the sender dies"
    ),
    token_tree!(
        "token-loss",
        2,
        2,
        &[5],
        &[2],
        &[2],
        1,
        TreeOptions { losses: 1, doubles: 1, early_asks: 0, ..TREE },
        "one copy of a release is lost, one doubled"
    ),
    token_tree!("token-six", 2, 2, &[1, 2, 3, 4, 5, 6], &[1, 2, 3], &[0, 1, 2], 1, TREE, "no faults"),
    token_tree!(
        "token-crash",
        2,
        2,
        &[4],
        &[1, 2, 3],
        &[0, 1, 2],
        1,
        TreeOptions { crash: true, ..TREE },
        "one rank dies; what it has sent is lost or not"
    ),
    token_tree!(
        "token-barrier",
        2,
        2,
        &[4],
        &[2, 3],
        &[1, 2],
        1,
        TreeOptions { has_values: false, losses: 1, early_asks: 1, ..TREE },
        "no values; one copy is lost"
    ),
    token_tree!(
        "token-epochs",
        1,
        4,
        &[3],
        &[1, 2],
        &[0, 1],
        2,
        TreeOptions { losses: 1, early_asks: 1, ..TREE },
        "two open at a time; one copy is lost"
    ),
    token_tree!(
        "token-late",
        2,
        2,
        &[1, 2, 3, 4],
        &[1, 2, 3],
        &[0, 1, 2],
        1,
        TreeOptions { polls_late: true, ..TREE },
        "several messages arrive between polls"
    ),
    token_tree!("token-queue", 1, 2, &[2, 3], &[1, 2], &[0, 1], 3, TREE, "one open at a time"),
    token_tree!(
        "token-unicast",
        2,
        2,
        &[1, 2, 3, 4],
        &[1, 2, 3],
        &[0, 1, 2],
        1,
        TreeOptions { paths: ReleasePaths::Same(ReleasePath::Tree), ..TREE },
        "releases go from neighbour to neighbour"
    ),
    token_tree!(
        "token-mixed",
        2,
        2,
        &[3],
        &[1, 2],
        &[0, 1, 2],
        1,
        TreeOptions { paths: ReleasePaths::Every, losses: 1, ..TREE },
        "releases of each rank go by multicast, along the tree, or both; one copy is lost"
    ),
    token_tree!(
        "token-both",
        2,
        2,
        &[4],
        &[1, 2],
        &[0, 1, 2],
        1,
        TreeOptions { paths: ReleasePaths::Same(ReleasePath::Both), losses: 6, asks: false, ..TREE },
        "releases go both ways, every copy may be lost, and nobody asks"
    ),
    token_tree!(
        "token-end",
        1,
        2,
        &[3],
        &[1, 2],
        &[0, 1],
        1,
        TreeOptions { losses: 2, early_asks: 0, ends: true, ..TREE },
        "two copies are lost; ranks that have left end"
    ),
    multicast!("multicast-basic", MulticastOptions { losses: 1, ..BASIC }, "one datagram is lost"),
    multicast!(
        "multicast-delayed",
        MulticastOptions { ack_every: 2, losses: 2, ..BASIC },
        "two datagrams are lost; acknowledgements of every second segment"
    ),
    multicast!("multicast-tree", MulticastOptions { losses: 2, ..BELOW }, "two datagrams are lost"),
    multicast!("multicast-co-root", MulticastOptions { losses: 2, ..CO_ROOT }, "two datagrams are lost"),
    multicast!(
        "multicast-co-root-death",
        MulticastOptions { losses: 1, mortal: 0b10, ..CO_ROOT },
        "one datagram is lost; the co-root dies"
    ),
    multicast!(
        "multicast-member-death",
        MulticastOptions { losses: 1, mortal: 0b1000, ..CO_ROOT },
        "one datagram is lost; the co-root's leaf dies"
    ),
    multicast!("multicast-root-death", MulticastOptions { losses: 1, mortal: 1, ..BASIC }, "the root dies"),
    multicast!(
        "multicast-deaf",
        MulticastOptions { goes_deaf: true, ..BASIC },
        "from some moment on the group gets nothing; two reports at a time"
    ),
    multicast!("multicast-join", MulticastOptions { losses: 1, joins: true, ..BASIC }, "a member joins; one loss"),
    attached!("attached", ATTACHING, "a rank attaches, detaches and attaches again"),
    attached!("attached-now", AttachOptions { ahead: 0, ..ATTACHING }, "it promises nothing"),
    attached!("attached-refused", AttachOptions { refuses: true, ..ATTACHING }, "the root may refuse"),
    attached!(
        "attached-two",
        AttachOptions { calls: 3, requests: (1, 1), has_other: true, ..ATTACHING },
        "another rank attaches"
    ),
    group_pool!("group-pool", PoolOptions { losses: 1, ..POOLED }, "two creations that overlap; a probe is lost"),
    group_pool!("group-pool-two", PoolOptions { target: 2, ..POOLED }, "two groups are ready or being made"),
    group_pool!(
        "group-pool-whole",
        PoolOptions { creations: [Creation { parent: 0b111, first: 0b111 }; 2], ..POOLED },
        "communicators of all ranks"
    ),
    group_pool!("group-pool-refused", PoolOptions { refuses: true, ..POOLED }, "a rank cannot join"),
];

/// Models that are too large: variants of those in [`MODELS`] without their restrictions. Explored by name only, as in
/// `models --only window-3-all --states 40000000`.
pub const TOO_LARGE: &[CatalogueEntry] = &[
    window!("window-3-all", Abstract<0>, 3, 4, 2, 10, &[3], ALL, Holds, "postings finish and probes leave late"),
    window!("relative-3-all", Relative<0>, 3, 4, 2, 10, &[3], PLAIN, Holds, "credit for all three segments"),
];

/// Each rule that can be broken on purpose, `mutant!("…")` in the core, and the model that must detect it.
pub const MUTANTS: &[(&str, &str)] = &[
    ("window_overfull", "window-2"),
    ("resend_unfinished", "window-2"),
    ("release_unfinished", "window-2-one"),
    ("queues_mixed", "window-2-queues"),
    ("stale_ack", "window-2"),
    ("bitmap_shifted", "window-2"),
    ("duplicate_accepted", "window-2"),
    ("window_too_far", "window-2"),
    ("answer_ignored", "window-2-one"),
    ("zero_credit_silent", "window-2-one"),
    ("probe_once", "window-2-one"),
    ("timer_unarmed", "window-2-one"),
    ("loss_unheard", "congestion"),
    ("longest_ignored", "relative-2-one"),
    ("any_life", "life-stay"),
    ("reset_unchecked", "life-stay"),
    ("rail_death_ignored", "rails-cut"),
    ("rail_death_unpaired", "rails-suspended"),
    ("pair_suffices", "rails-loss"),
    ("pair_unordered", "rails-loss"),
    ("silence_kept", "rails-loss"),
    ("late_answer_ignored", "rails-loss"),
    ("cross_rail_loss", "rails-loss"),
    ("arrived_sent_again", "rails-cut-loss"),
    ("preferred_rail_ignored", "rails-ports"),
    ("full_rail_used", "rails-full"),
    ("full_rail_closed", "rails-full"),
    ("unproven_rail_used", "rails-lacking"),
    ("reset_ignored", "life-suspect"),
    ("bye_early", "life-leave"),
    ("gap_forgiven", "life-suspect"),
    ("end_forgiven", "life-suspect"),
    ("orphan_kept", "life-late"),
    ("batch_committed_twice", "burst"),
    ("prediction_after_gap", "burst"),
    ("prediction_any_incarnation", "burst-restart"),
    ("rma_key_ignored", "rma-refused"),
    ("rma_bounds_late", "rma-refused"),
    ("rma_rest_ignored", "rma-refused-long"),
    ("rma_refused_early", "rma-refused-immediate"),
    ("rma_revoked_served", "rma-revoked"),
    ("rma_revoked_early", "rma-revoked"),
    ("rma_sent_forgotten", "rma-revoked-restart"),
    ("rma_refused_next", "rma-revoked-restart"),
    ("grant_reused", "placements"),
    ("grant_key_ignored", "placements"),
    ("rma_atomic_twice", "rma-updates"),
    ("rma_answer_misplaced", "rma-reads"),
    ("rma_flush_early", "rma-both"),
    ("rma_answer_waits", "rma-queued"),
    ("rma_grant_reused", "rma-once"),
    ("rma_once_early", "rma-once-answered"),
    ("rma_blocks_unchecked", "rma-blocks"),
    ("needs_ignored", "coll-allreduce"),
    ("begun_kept", "coll-allreduce"),
    ("blocked_forgotten", "coll-allreduce"),
    ("groups_before_behind", "coll-scan"),
    ("groups_before_left_out", "coll-exscan"),
    ("same_part_led", "coll-leaders"),
    ("same_part_scattered", "lane-all-leaders"),
    ("part_left_out", "coll-parts"),
    ("steps_not_counted", "lane"),
    ("turn_ignored", "lane"),
    ("want_silent", "coll-broadcast"),
    ("again_kept", "coll-broadcast"),
    ("latest_receive", "message-probe"),
    ("settled_early", "message-two"),
    ("promise_leaves", "message-two"),
    ("offer_leaves", "message-two"),
    ("offer_overtakes", "message-probe"),
    ("again_forgotten", "message-two"),
    ("asked_behind", "message-behind"),
    ("withdrawn_early", "message-withdrawn"),
    ("cancelled_promised", "message-withdrawn"),
    ("ends_while_read", "messenger"),
    ("ends_announced", "messenger"),
    ("grants_twice", "messenger"),
    ("delivered_early", "messenger"),
    ("overtakes_queued", "messenger"),
    ("pool_shared", "messenger-flood"),
    ("fin_early", "messenger-fetch"),
    ("fin_forgotten", "messenger-fetch"),
    ("rest_granted", "messenger-unreachable"),
    ("fetch_unfinished", "messenger-read"),
    ("failed_fetch_counts", "messenger-read"),
    ("fetched_part_kept", "messenger-read"),
    ("fetch_outlives_receive", "messenger-read-ended"),
    ("fetch_outlives_peer", "messenger-read-ended"),
    ("ack_early", "token-six"),
    ("entry_unawaited", "token-six"),
    ("units_ignored", "token-six"),
    ("units_copied", "token-six"),
    ("claim_shortened", "token-six"),
    ("holder_acks", "token-six"),
    ("race_ignored", "token-six"),
    ("late_ack_counted", "token-six"),
    ("leaves_untiled", "token-six"),
    ("claims_unordered", "token-six"),
    ("duplicate_kept", "token-loss"),
    ("asks_parent", "token-epochs"),
    ("asks_once", "token-epochs"),
    ("releases_dropped", "token-epochs"),
    ("subtree_forgotten", "token-epochs"),
    ("opens_more", "token-queue"),
    ("death_ignored", "token-crash"),
    ("parent_unawaited", "token-unicast"),
    ("known_not_passed_on", "token-both"),
    ("asks_by_own_path", "token-mixed"),
    ("ends_silently", "token-end"),
    ("freed_by_first_ack", "multicast-delayed"),
    ("window_overrun", "multicast-delayed"),
    ("old_segment_placed", "multicast-delayed"),
    ("delivered_out_of_order", "multicast-delayed"),
    ("gap_unreported", "multicast-delayed"),
    ("nack_ignored", "multicast-delayed"),
    ("tail_unprobed", "multicast-delayed"),
    ("co_root_forgets", "multicast-co-root"),
    ("probe_ends", "multicast-co-root"),
    ("freed_at_own_edge", "multicast-co-root-death"),
    ("acks_for_itself", "multicast-co-root-death"),
    ("adopted_at_own_edge", "multicast-co-root-death"),
    ("leaf_stays", "multicast-co-root-death"),
    ("dead_member_awaited", "multicast-co-root-death"),
    ("root_death_ignored", "multicast-root-death"),
    ("lost_to_all_again", "multicast-deaf"),
    ("deaf_unnoticed", "multicast-deaf"),
    ("joiner_unprobed", "multicast-join"),
    ("joins_at_edge", "multicast-join"),
    ("attached_unpromised", "attached"),
    ("attached_behind", "attached-now"),
    ("detached_at_once", "attached"),
    ("attached_impatient", "attached-two"),
    ("pool_untested", "group-pool"),
    ("pool_taken_again", "group-pool"),
    ("pool_own_choice", "group-pool"),
    ("pool_stays", "group-pool"),
    ("pool_taken_silently", "group-pool-whole"),
    ("pool_refilled_early", "group-pool"),
];

/// The model of a name.
pub fn find(name: &str) -> Option<&'static CatalogueEntry> {
    MODELS.iter().chain(TOO_LARGE).find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::mutant;

    #[test]
    fn every_mutant_has_a_model_and_stands_in_the_core() {
        for (mutant, model) in MUTANTS {
            assert!(find(model).is_some_and(|entry| entry.expected == Expected::Holds), "{mutant}");
        }
        mutant::check_list().expect("the list and the sources agree");
    }

    #[test]
    fn windows_with_one_datagram_in_flight_are_safe_and_can_finish() {
        let report = find("window-2-one").expect("it is in the list").explore(Explorer::default());
        assert!(report.holds(), "{report}");
    }
}
