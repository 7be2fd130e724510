//! Where a process runs: which cache, NUMA node and socket its processors have, as Linux reports it, or as the launcher
//! divides its ranks.

use core::num::NonZero;
use std::fs;
use std::path::Path;

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity};

pub use unisono_bootstrap::{Location, LocationError};

/// Where this process runs: the units that have all processors that its main thread may use (its affinity). Switch and
/// group are not known.
///
/// ```
/// println!("{}", unisono::environment::own_location());
/// ```
pub fn own_location() -> Location {
    let Ok(allowed) = sched_getaffinity(Some(getpid())) else {
        return Location::default();
    };
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    location_of(Path::new("/sys/devices/system/cpu"), &processors)
}

/// The units that have all of these processors. `cpu` is the folder of all processors in sysfs.
fn location_of(cpu: &Path, processors: &[usize]) -> Location {
    let common = |unit: fn(&Path) -> Option<u32>| {
        let mut units = processors.iter().map(|processor| unit(&cpu.join(format!("cpu{processor}"))));
        let first = units.next()??;
        units.all(|unit| unit == Some(first)).then_some(first)
    };
    Location { socket: common(socket), numa: common(numa_node), cache: common(last_level_cache), ..Location::default() }
}

/// The socket of a processor: the system numbers it −1 where it has none.
fn socket(processor: &Path) -> Option<u32> {
    number(&processor.join("topology/physical_package_id"))
}

/// The NUMA node of a processor: its folder has an entry `node0`.
fn numa_node(processor: &Path) -> Option<u32> {
    let mut entries = fs::read_dir(processor).ok()?.flatten();
    entries.find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

/// The last-level cache of a processor, by the first processor that shares it.
fn last_level_cache(processor: &Path) -> Option<u32> {
    let caches = fs::read_dir(processor.join("cache")).ok()?.flatten().map(|entry| entry.path());
    let has_data = |cache: &Path| fs::read_to_string(cache.join("type")).is_ok_and(|kind| kind.trim() != "Instruction");
    let levels =
        caches.filter(|cache| has_data(cache)).filter_map(|cache| Some((number(&cache.join("level"))?, cache)));
    let (_, last) = levels.max_by_key(|(level, _)| *level)?;
    let shared = fs::read_to_string(last.join("shared_cpu_list")).ok()?;
    shared.trim().split(['-', ',']).next()?.parse().ok()
}

fn number(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
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

    /// Two sockets of two NUMA nodes of two processors; the caches of level 3 are those of the NUMA nodes.
    fn machine() -> tempfile::TempDir {
        let machine = tempfile::tempdir().expect("a folder");
        for processor in 0_usize..8 {
            let folder = machine.path().join(format!("cpu{processor}"));
            let write = |file: &str, text: String| {
                let file = folder.join(file);
                fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
                fs::write(file, text).expect("a file");
            };
            write("topology/physical_package_id", format!("{}\n", processor / 4));
            write(&format!("node{}/cpulist", processor / 2), String::new());
            for (index, (level, kind)) in [(1, "Data"), (1, "Instruction"), (3, "Unified")].into_iter().enumerate() {
                write(&format!("cache/index{index}/level"), format!("{level}\n"));
                write(&format!("cache/index{index}/type"), format!("{kind}\n"));
                let first = if level == 3 { processor / 2 * 2 } else { processor };
                let shared = if level == 3 { format!("{first}-{}\n", first + 1) } else { format!("{first}\n") };
                write(&format!("cache/index{index}/shared_cpu_list"), shared);
            }
        }
        machine
    }

    #[test]
    fn a_process_is_in_the_units_that_have_all_its_processors() {
        let machine = machine();
        let text = |processors: &[usize]| location_of(machine.path(), processors).to_string();
        assert_eq!(text(&[5]), "socket=1,numa=2,cache=4");
        assert_eq!(text(&[2, 3]), "socket=0,numa=1,cache=2");
        assert_eq!(text(&[1, 2]), "socket=0");
        assert_eq!(text(&[3, 4]), "");
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[7, 8]), "", "nothing is known of a processor");
    }

    #[test]
    fn units_that_the_system_does_not_number_are_unknown() {
        let machine = machine();
        fs::write(machine.path().join("cpu0/topology/physical_package_id"), "-1\n").expect("a file");
        fs::write(machine.path().join("cpu0/cache/index2/shared_cpu_list"), "\n").expect("a file");
        assert_eq!(location_of(machine.path(), &[0]).to_string(), "numa=0");
    }

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
