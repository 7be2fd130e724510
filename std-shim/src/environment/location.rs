//! Where a process runs: which cache, NUMA node and socket its processors have, as Linux reports it or a file of hwloc
//! describes it, or as the launcher divides its ranks.

mod hwloc;
mod sysfs;

use core::num::NonZero;

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity};

pub use unisono_bootstrap::{Location, LocationError};

/// Where this process runs: the units that have all processors that its main thread may use (its affinity). Switch and
/// group are not known.
///
/// Where `HWLOC_XMLFILE` names a file of hwloc 1.x to 3.x, it describes the units, else sysfs. A file that cannot be used,
/// or that lacks one of these processors, is reported by a warning, and sysfs is used.
///
/// ```
/// println!("{}", unisono::environment::own_location());
/// ```
pub fn own_location() -> Location {
    let Ok(allowed) = sched_getaffinity(Some(getpid())) else {
        return Location::default();
    };
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    let described = hwloc::Topology::from_environment().and_then(|topology| topology.location(&processors));
    described.unwrap_or_else(|| {
        location_of(&processors, |unit, processor| sysfs::number(sysfs::PROCESSORS.as_ref(), unit, processor))
    })
}

/// A kind of unit that has processors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ProcessorUnit {
    /// A processor package.
    Socket,
    /// A NUMA node.
    Numa,
    /// The cache of the highest level that holds data.
    LastLevelCache,
}

/// The units that have all of these processors. `number` returns that of the unit of a processor.
fn location_of(processors: &[usize], number: impl Fn(ProcessorUnit, usize) -> Option<u32>) -> Location {
    let common = |unit| {
        let mut numbers = processors.iter().map(|processor| number(unit, *processor));
        let first = numbers.next()??;
        numbers.all(|number| number == Some(first)).then_some(first)
    };
    Location {
        socket: common(ProcessorUnit::Socket),
        numa: common(ProcessorUnit::Numa),
        cache: common(ProcessorUnit::LastLevelCache),
        ..Location::default()
    }
}

/// The numbers of units among which a launcher divides ranks. `None`: they are not divided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct UnitCounts {
    /// Switches of the job's nodes.
    pub switches: Option<NonZero<u32>>,
    /// Sockets of each node.
    pub sockets: Option<NonZero<u32>>,
    /// Last-level caches of each socket: of each node, which then has one socket, if sockets are not given.
    pub caches: Option<NonZero<u32>>,
}

impl UnitCounts {
    /// Where a rank runs: `rank` of the `ranks` ranks of `node`, one of `nodes`. Nodes are divided among the switches,
    /// and the ranks of a node among its sockets and caches, evenly and in order.
    ///
    /// ```
    /// use core::num::NonZero;
    /// use unisono::environment::UnitCounts;
    ///
    /// let two = UnitCounts { sockets: NonZero::new(2), ..UnitCounts::default() };
    /// assert_eq!(two.location((0, 1), (3, 4)).to_string(), "socket=1");
    /// ```
    pub fn location(&self, (node, nodes): (u32, u32), (rank, ranks): (u32, u32)) -> Location {
        let part = |index: u32, all: u32, parts: u32| {
            (u64::from(index) * u64::from(parts) / u64::from(all.max(1))).try_into().unwrap_or(u32::MAX)
        };
        let sockets = self.sockets.map_or(1, NonZero::get);
        let cache = self.caches.map(|caches| part(rank, ranks, sockets.saturating_mul(caches.get())));
        let socket = match (cache, self.caches) {
            (Some(cache), Some(caches)) => cache / caches.get(),
            _ => part(rank, ranks, sockets),
        };
        Location {
            switch: self.switches.map(|switches| part(node, nodes, switches.get())),
            socket: self.sockets.or(self.caches).map(|_| socket),
            cache,
            ..Location::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_node_of_caches_has_one_socket() {
        let counts = UnitCounts { caches: NonZero::new(3), ..UnitCounts::default() };
        let texts = [0, 1, 2].map(|rank| counts.location((0, 1), (rank, 3)).to_string());
        assert_eq!(texts, ["socket=0,cache=0", "socket=0,cache=1", "socket=0,cache=2"]);
    }

    proptest! {
        #[test]
        fn ranks_are_divided_evenly_and_caches_do_not_cross_sockets(
            ranks in 1_u32..40, sockets in 1_u32..6, caches in 1_u32..5,
        ) {
            let counts = UnitCounts { sockets: NonZero::new(sockets), caches: NonZero::new(caches), switches: None };
            let located: Vec<Location> = (0..ranks).map(|rank| counts.location((0, 1), (rank, ranks))).collect();
            prop_assert!(located.iter().all(|at| at.cache.map(|cache| cache / caches) == at.socket));
            prop_assert!(located.is_sorted_by_key(|at| at.cache));
            for cache in 0..sockets * caches {
                let here = located.iter().filter(|at| at.cache == Some(cache)).count() as u32;
                let even = ranks / (sockets * caches);
                prop_assert!(here == even || here == even + 1);
            }
        }
    }
}
