//! What a process's rails carried, and which of them live.

use core::net::IpAddr;
use core::time::Duration;

use unisono_core::ids::Rail;
use unisono_memory::endpoint_storage::ProcessEndpoint;
use unisono_udp::{BindError, MAX_RAILS, UdpCounters};

use super::World;
use crate::environment::{RailPlace, RailPlaceError};

/// What one rail of this process carried since the start. Of an only adapter, datagrams without their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RailStats {
    /// The address of its sockets, or of its adapter's port (GID).
    pub local: Option<IpAddr>,
    /// Datagrams that the kernel or the adapter accepted.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Datagrams that neither accepted.
    pub lost: u64,
    /// Datagrams that fault injection lost because the rail is cut.
    pub injected_cut: u64,
    /// Times that the kernel or the adapter reported the link down.
    pub link_downs: u64,
    /// Times that it stopped being used: its link was down, or a peer did not answer over it.
    pub deaths: u64,
    /// Whether it is in use now.
    pub is_alive: bool,
    /// The smoothed round trip to some peer at the last check.
    pub round_trip: Option<Duration>,
    /// The retransmission timeout to that peer.
    pub timeout: Option<Duration>,
}

/// What the device counts of one rail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RailCounts {
    sent: u64,
    sent_bytes: u64,
    received: u64,
    received_bytes: u64,
    lost: u64,
    injected_cut: u64,
    link_downs: u64,
}

impl RailCounts {
    pub(super) fn of_udp(counters: &UdpCounters, rail: Rail) -> Self {
        counters.rails.get(usize::from(rail.0)).map_or_else(Self::default, |rail| Self {
            sent: rail.sent.get(),
            sent_bytes: rail.sent_bytes.get(),
            received: rail.received.get(),
            received_bytes: rail.received_bytes.get(),
            lost: rail.lost.get(),
            injected_cut: rail.injected_cut.get(),
            link_downs: rail.link_downs.get(),
        })
    }

    /// Of an only rail.
    #[cfg(feature = "verbs")]
    pub(super) fn of_adapter(counters: &unisono_verbs::ud::UdCounters) -> Self {
        let lost = counters.lost_no_path.get().wrapping_add(counters.lost_in_error.get());
        Self { sent: counters.sent.get(), received: counters.received.get(), lost, ..Self::default() }
    }
}

#[cfg(feature = "verbs")]
impl From<unisono_verbs::ud::UdRailCounts> for RailCounts {
    fn from(counts: unisono_verbs::ud::UdRailCounts) -> Self {
        let unisono_verbs::ud::UdRailCounts { sent, sent_bytes, lost, received, received_bytes, link_downs } = counts;
        Self { sent, sent_bytes, received, received_bytes, lost, injected_cut: 0, link_downs }
    }
}

/// Counts the deaths of rails.
#[derive(Default, Debug)]
pub(super) struct RailMonitor {
    /// The rails that are open, one bit for each.
    open: u8,
    doubtful: u8,
    deaths: [u64; MAX_RAILS as usize],
    round_trips: [Option<RoundTrip>; MAX_RAILS as usize],
}

/// The smoothed round trip and the retransmission timeout to a peer, in units of 64 ns.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smoothed: u32,
    timeout: u32,
}

/// Units of 64 ns as a time.
fn time(units: u32) -> Duration {
    Duration::from_nanos(u64::from(units) * 64)
}

impl RailMonitor {
    /// A rail is open from the start.
    pub(super) const fn open(&mut self, rail: Rail) {
        self.open |= 1 << (rail.0 & 7);
    }

    /// A rail has opened; it is not in use before a peer answers over it, and has not died.
    pub(super) const fn open_later(&mut self, rail: Rail) {
        self.open(rail);
        self.doubtful |= 1 << (rail.0 & 7);
    }

    /// Notes which rails are in use.
    #[inline]
    pub(super) fn note(&mut self, endpoint: &ProcessEndpoint) {
        let doubtful = endpoint.doubtful_rails() & self.open;
        if doubtful != self.doubtful {
            self.note_change(doubtful);
        }
    }

    #[cold]
    fn note_change(&mut self, doubtful: u8) {
        let died = doubtful & !self.doubtful;
        for (rail, deaths) in self.deaths.iter_mut().enumerate() {
            *deaths = deaths.wrapping_add(u64::from(died >> rail & 1));
        }
        tracing::info!(
            "rails out of use: {:?}",
            (0..MAX_RAILS).filter(|rail| doubtful >> rail & 1 != 0).collect::<Vec<_>>()
        );
        self.doubtful = doubtful;
    }

    /// Notes the round trips, now and then: it reads the records of all windows.
    pub(super) fn note_round_trips(&mut self, endpoint: &ProcessEndpoint) {
        for window in endpoint.all_rail_states().chunks(usize::from(endpoint.rails())) {
            for (state, round_trip) in window.iter().zip(&mut self.round_trips) {
                let (smoothed, timeout) = (state.path().rtt.smoothed(), state.path().timeout());
                if smoothed > 0 {
                    *round_trip = Some(RoundTrip { smoothed, timeout });
                }
            }
        }
    }

    /// The state of `rails` rails, of which the device knows the address and the counts.
    pub(super) fn stats(&self, rails: u8, known: impl Fn(Rail) -> (Option<IpAddr>, RailCounts)) -> Vec<RailStats> {
        let stats = |((rail, deaths), round_trip): ((Rail, &u64), &Option<RoundTrip>)| {
            let (local, counts) = known(rail);
            let RailCounts { sent, sent_bytes, received, received_bytes, lost, injected_cut, link_downs } = counts;
            RailStats {
                local,
                sent,
                sent_bytes,
                received,
                received_bytes,
                lost,
                injected_cut,
                link_downs,
                deaths: *deaths,
                is_alive: self.doubtful >> rail.0 & 1 == 0,
                round_trip: round_trip.map(|trip| time(trip.smoothed)),
                timeout: round_trip.map(|trip| time(trip.timeout)),
            }
        };
        (0..rails).map(Rail).zip(&self.deaths).zip(&self.round_trips).map(stats).collect()
    }
}

/// Why no rail was added.
#[derive(Debug, thiserror::Error)]
pub enum AddRailError {
    /// This host has none at the place.
    #[error(transparent)]
    Place(#[from] RailPlaceError),
    /// There is no room for it, or the kernel refused it.
    #[error("cannot open the rail: {0} (room for more: --rails-max, UNISONO_RAILS_MAX)")]
    Bind(#[from] BindError),
    /// All ranks had agreed to do without checksums, since their addresses are on the loopback.
    #[error("datagrams over {0} need checksums, which this job does without: start it with --integrity crc32c")]
    Unchecked(IpAddr),
    /// The device's rails are those that it started with.
    #[error("rails are added to the device udp only")]
    Unsupported,
}

impl World {
    /// Opens another rail, such as one at an interface that has appeared, and announces it to all ranks. Returns its
    /// number. It carries messages to each rank that has opened its rail of the same number, before or later, as soon as
    /// that rank answers over it. There must be room: `--rails-max`.
    ///
    /// ```no_run
    /// # fn example(world: &unisono::World) -> Result<(), Box<dyn std::error::Error>> {
    /// let number = world.add_rail(&"eth1".parse()?)?;
    /// assert!(world.rail_stats().len() > number);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`AddRailError`]; the rails are as before.
    pub fn add_rail(&self, place: &RailPlace) -> Result<usize, AddRailError> {
        let address = place.address()?;
        self.shared.lock().add_rail(address).map(|rail| usize::from(rail.0))
    }

    /// What each rail of this process carried, in the order of `--rails`; those that were added follow. At least one.
    pub fn rail_stats(&self) -> Vec<RailStats> {
        self.shared.lock().rail_stats()
    }
}
