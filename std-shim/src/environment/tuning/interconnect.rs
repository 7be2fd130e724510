//! The transport of a communicator's messages, and what they cost in the model.

use unisono_core::schedule::{GroupModel, LinkModel, SlotModel};

use super::Tuning;
use crate::environment::link_speed::LinkSpeed;

/// Cost of a UDP message in the model: a constant, so that it is equal on all ranks. Overhead and bandwidth are those
/// that `unisono bench rate` and `bandwidth` measure between two processes of one host. The latency is between that of
/// one host, which depends on the scheduler, and that between hosts.
pub const UDP_COST: LinkModel = LinkModel {
    latency_ns: 10_000,
    overhead_ns: 2_300,
    ps_per_byte: 500,
    sharing: 1,
    per_host: 1,
    ps_per_byte_within: 500,
};

/// Cost of a message through the shared-memory rings of one node in the model: equal on all ranks, too.
pub const RINGS_COST: LinkModel = LinkModel {
    latency_ns: 1_000,
    overhead_ns: 400,
    ps_per_byte: 200,
    sharing: 1,
    per_host: 1,
    ps_per_byte_within: 200,
};

/// Cost of a step through the slots of a node's memory in the model: equal on all ranks, too. A message through the rings is
/// two copies.
pub const SLOTS_COST: SlotModel = SlotModel { latency_ns: 300, overhead_ns: 100, ps_per_byte: 100, sharing: 1 };

/// Time of a step through slots if ranks share a processor: each is scheduled once.
const SHARED_STEP_NS: u32 = 1_500;

/// The transport of a job's messages for collectives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Carrier {
    /// Datagrams, at least between some of the ranks.
    Udp,
    /// The shared-memory rings of one node.
    Rings,
}

impl Carrier {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Udp, Self::Rings];

    /// Its name in tables.
    ///
    /// ```
    /// use unisono::environment::tuning::Carrier;
    ///
    /// assert_eq!(Carrier::ALL.map(Carrier::name), ["udp", "rings"]);
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Rings => "rings",
        }
    }

    /// The cost of its messages in the model, if `sharing` ranks share a processor: then most of the latency counts as
    /// overhead.
    ///
    /// ```
    /// use unisono::environment::tuning::Carrier;
    ///
    /// assert!(Carrier::Rings.cost(1).latency_ns < Carrier::Udp.cost(1).latency_ns);
    /// ```
    pub const fn cost(self, sharing: u16) -> LinkModel {
        let link = match self {
            Self::Udp => UDP_COST,
            Self::Rings => RINGS_COST,
        };
        if sharing < 2 { link } else { LinkModel { overhead_ns: link.latency_ns / 10 * 3, sharing, ..link } }
    }
}

/// How the ranks of a communicator reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Interconnect {
    /// The transport of their messages, between hosts if there are several.
    pub carrier: Carrier,
    /// The fewest adjacent ranks of a host, which share its link; 1: a host has one, or its ranks are not adjacent.
    pub per_host: u16,
}

impl From<Carrier> for Interconnect {
    fn from(carrier: Carrier) -> Self {
        Self { carrier, per_host: 1 }
    }
}

impl Tuning {
    /// The speed of the link that the ranks of a host share, if it is known.
    ///
    /// ```
    /// let mut tuning = unisono::environment::Tuning::default();
    /// tuning.set_link_speed("25G".parse()?);
    /// assert_eq!(tuning.link_speed(), "25G".parse().ok());
    /// # Ok::<(), unisono::environment::LinkSpeedError>(())
    /// ```
    pub const fn link_speed(&self) -> Option<LinkSpeed> {
        self.link_speed
    }

    /// Sets the speed of the link that the ranks of a host share.
    ///
    /// ```
    /// use unisono::environment::tuning::{Carrier, Tuning};
    ///
    /// let mut tuning = Tuning::default();
    /// tuning.set_link_speed("1G".parse()?);
    /// assert_eq!(tuning.cost(Carrier::Udp.into()).ps_per_byte, 8000);
    /// # Ok::<(), unisono::environment::LinkSpeedError>(())
    /// ```
    pub const fn set_link_speed(&mut self, speed: LinkSpeed) {
        self.link_speed = Some(speed);
    }

    /// The cost of a message in the model. A byte takes no less time than the link needs for it.
    ///
    /// ```
    /// use unisono::environment::tuning::{Carrier, Interconnect, Tuning};
    ///
    /// let hosts = Interconnect { carrier: Carrier::Udp, per_host: 4 };
    /// assert_eq!(Tuning::default().cost(hosts).per_host, 4);
    /// ```
    pub fn cost(&self, Interconnect { carrier, per_host }: Interconnect) -> LinkModel {
        let link = carrier.cost(self.sharing());
        let slowest = self.link_speed.filter(|_| carrier == Carrier::Udp).map_or(0, LinkSpeed::ps_per_byte);
        let ps_per_byte_within = RINGS_COST.ps_per_byte;
        LinkModel { per_host, ps_per_byte: link.ps_per_byte.max(slowest), ps_per_byte_within, ..link }
    }

    /// The cost of messages within a group in the model, and of steps through slots if its ranks have them.
    ///
    /// ```
    /// use unisono::environment::tuning::{SLOTS_COST, Tuning};
    ///
    /// let tuning = Tuning::default();
    /// assert_eq!((tuning.group_cost(true).slots, tuning.group_cost(false).slots), (Some(SLOTS_COST), None));
    /// ```
    pub fn group_cost(&self, has_slots: bool) -> GroupModel {
        let slots = match self.sharing() {
            0 | 1 => SLOTS_COST,
            sharing => {
                SlotModel { latency_ns: SHARED_STEP_NS, overhead_ns: SHARED_STEP_NS / 10 * 3, sharing, ..SLOTS_COST }
            }
        };
        GroupModel { messages: self.cost(Carrier::Rings.into()), slots: has_slots.then_some(slots) }
    }
}
