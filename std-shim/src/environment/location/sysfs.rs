//! The units of a processor, as Linux reports them in sysfs.

use std::fs;
use std::path::Path;

use super::ProcessorUnit;

/// The folder of all processors.
pub(super) const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The number of the unit of a processor. `processors` is the folder of all of them.
pub(super) fn number(processors: &Path, unit: ProcessorUnit, processor: usize) -> Option<u32> {
    let processor = processors.join(format!("cpu{processor}"));
    match unit {
        ProcessorUnit::Socket => socket(&processor),
        ProcessorUnit::Numa => numa_node(&processor),
        ProcessorUnit::LastLevelCache => last_level_cache(&processor),
    }
}

/// The socket of a processor: the system numbers it −1 where it has none.
fn socket(processor: &Path) -> Option<u32> {
    read_number(&processor.join("topology/physical_package_id"))
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
        caches.filter(|cache| has_data(cache)).filter_map(|cache| Some((read_number(&cache.join("level"))?, cache)));
    let (_, last) = levels.max_by_key(|(level, _)| *level)?;
    let shared = fs::read_to_string(last.join("shared_cpu_list")).ok()?;
    shared.trim().split(['-', ',']).next()?.parse().ok()
}

fn read_number(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::location_of;
    use super::*;

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
        let text = |processors: &[usize]| {
            location_of(processors, |unit, processor| number(machine.path(), unit, processor)).to_string()
        };
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
        assert_eq!(location_of(&[0], |unit, processor| number(machine.path(), unit, processor)).to_string(), "numa=0");
    }
}
