//! The units of processors as an XML file of hwloc describes them, which `lstopo FILE.xml` writes.
//!
//! Versions 1.x, 2.x and 3.x are read: the objects of processors, packages, NUMA nodes and caches, by their `cpuset`. The
//! file is taken to describe this node, whatever `HWLOC_THISSYSTEM` says.

use alloc::collections::BTreeSet;
use core::cmp::Reverse;
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Once, OnceLock};
use std::{env, panic};

use rustix::thread::CpuSet;
use xml::attribute::OwnedAttribute;
use xml::reader::XmlEvent;
use xml::{Encoding, ParserConfig};

use super::{Location, ProcessorUnit, location_of};

/// The variable that names the file, to hwloc itself, too.
const VARIABLE: &str = "HWLOC_XMLFILE";
/// Most bytes of a file.
const BYTES_MAX: u64 = 16 << 20;
/// Most elements of a file.
const ELEMENTS_MAX: u32 = 1 << 18;
/// Most elements that are nested in each other.
const DEPTH_MAX: u32 = 64;
/// Most attributes of an element.
const ATTRIBUTES_MAX: usize = 64;

/// A file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TopologyError {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("it is not a regular file")]
    NotRegular,
    #[error("it has more than 16 MiB")]
    TooLong,
    #[error("it is not XML: {0}")]
    Malformed(#[from] xml::reader::Error),
    #[error("it makes the XML parser panic")]
    ParserPanicked,
    #[error("it declares entities or namespaces, which files of hwloc do not")]
    Declarations,
    #[error("it has more than {ELEMENTS_MAX} elements, or they are nested more than {DEPTH_MAX} deep")]
    TooManyElements,
    #[error("its first element is {0}, not topology")]
    NoTopology(String),
    #[error("its version is {0:?}: expected 1, 2 or 3")]
    UnknownVersion(String),
    #[error("an object has {name}={value:?}: {expected}")]
    Attribute { name: &'static str, value: String, expected: &'static str },
    #[error("it has no processor")]
    NoProcessor,
    #[error("it does not have processor {0}, which this process may use")]
    ProcessorMissing(usize),
}

/// The units of the processors of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Topology {
    processors: BTreeSet<usize>,
    units: HashMap<(ProcessorUnit, usize), Candidate>,
}

/// A unit that has a processor. The greatest one is that of the processor: a cache of the highest level; of several NUMA
/// nodes the one of the fewest processors, and of those with the same processors the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Candidate {
    /// The level of a cache.
    level: u32,
    processors: Reverse<usize>,
    number: Reverse<u32>,
}

impl Topology {
    /// That of the file which the environment names. The file is read once per process. `None`: it names none, or a file
    /// that is not used, of which a warning says why.
    pub(super) fn from_environment() -> Option<&'static Self> {
        static TOPOLOGY: OnceLock<Option<Topology>> = OnceLock::new();
        let read = || {
            let path = env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
            Self::read(path.as_ref()).inspect_err(warn).ok()
        };
        TOPOLOGY.get_or_init(read).as_ref()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no file of hwloc.
    fn read(path: &Path) -> Result<Self, TopologyError> {
        // Opening a FIFO without a writer would wait.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(TopologyError::NotRegular);
        }
        let mut text = Vec::new();
        file.take(BYTES_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > BYTES_MAX {
            return Err(TopologyError::TooLong);
        }
        // The documentation of `xml` does not exclude panics.
        panic::catch_unwind(|| Self::parse(&text)).unwrap_or(Err(TopologyError::ParserPanicked))
    }

    /// The time is proportional to the length of the text.
    fn parse(text: &[u8]) -> Result<Self, TopologyError> {
        let parser = ParserConfig::new()
            .override_encoding(Some(Encoding::Utf8))
            .allow_multiple_root_elements(false)
            .max_entity_expansion_depth(0)
            .max_attributes(ATTRIBUTES_MAX);
        let mut topology = Self::default();
        let (mut depth, mut elements) = (0_u32, 0_u32);
        for event in parser.create_reader(text) {
            match event? {
                XmlEvent::Doctype { syntax } if syntax.contains('[') => return Err(TopologyError::Declarations),
                XmlEvent::StartElement { namespace, .. } if !namespace.is_essentially_empty() => {
                    return Err(TopologyError::Declarations);
                }
                XmlEvent::StartElement { name, attributes, .. } => {
                    (depth, elements) = (depth + 1, elements + 1);
                    if depth > DEPTH_MAX || elements > ELEMENTS_MAX {
                        return Err(TopologyError::TooManyElements);
                    }
                    match name.local_name.as_str() {
                        "topology" if depth == 1 => check_version(&attributes)?,
                        _ if depth == 1 => return Err(TopologyError::NoTopology(name.local_name)),
                        "object" => topology.add(&attributes)?,
                        _ => {}
                    }
                }
                XmlEvent::EndElement { .. } => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if topology.processors.is_empty() { Err(TopologyError::NoProcessor) } else { Ok(topology) }
    }

    /// Adds an object, if it is a processor or one of the units.
    fn add(&mut self, attributes: &[OwnedAttribute]) -> Result<(), TopologyError> {
        let (Some(kind), Some(cpuset)) = (attribute(attributes, "type"), attribute(attributes, "cpuset")) else {
            return Ok(());
        };
        let (unit, level) = match kind {
            "PU" => {
                self.processors.extend(processors(cpuset)?);
                return Ok(());
            }
            "Package" | "Socket" => (ProcessorUnit::Socket, 0),
            "NUMANode" => (ProcessorUnit::Numa, 0),
            "Cache" if number(attributes, "cache_type")? == Some(INSTRUCTION) => return Ok(()),
            "Cache" => (ProcessorUnit::LastLevelCache, number(attributes, "depth")?.unwrap_or(0)),
            other => match cache_level(other) {
                Some(level) => (ProcessorUnit::LastLevelCache, level),
                None => return Ok(()),
            },
        };
        let processors = processors(cpuset)?;
        let number = match unit {
            // As in sysfs, by the first processor that shares it.
            ProcessorUnit::LastLevelCache => processors.first().and_then(|first| u32::try_from(*first).ok()),
            ProcessorUnit::Socket | ProcessorUnit::Numa => number(attributes, "os_index")?,
        };
        let Some(number) = number else { return Ok(()) };
        let candidate = Candidate { level, processors: Reverse(processors.len()), number: Reverse(number) };
        for processor in processors {
            let greatest = self.units.entry((unit, processor)).or_insert(candidate);
            *greatest = candidate.max(*greatest);
        }
        Ok(())
    }

    /// The units that have all of these processors. `None`: it does not have one of them, as one warning says.
    pub(super) fn location(&self, processors: &[usize]) -> Option<Location> {
        static WARNED: Once = Once::new();
        self.locate(processors).inspect_err(|error| WARNED.call_once(|| warn(error))).ok()
    }

    fn locate(&self, processors: &[usize]) -> Result<Location, TopologyError> {
        if let Some(missing) = processors.iter().find(|processor| !self.processors.contains(processor)) {
            return Err(TopologyError::ProcessorMissing(*missing));
        }
        let number = |unit, processor| self.units.get(&(unit, processor)).map(|candidate| candidate.number.0);
        Ok(location_of(processors, number))
    }
}

fn warn(error: &TopologyError) {
    tracing::warn!(
        file = %env::var_os(VARIABLE).unwrap_or_default().display(),
        "cannot use the file of {VARIABLE}, using sysfs: {error}"
    );
}

/// The `cache_type` of a cache of instructions.
const INSTRUCTION: u32 = 2;

/// The level of a cache that holds data, by the name of its type since 2.0: `L3Cache`, but not `L1iCache`.
fn cache_level(kind: &str) -> Option<u32> {
    kind.strip_prefix('L')?.strip_suffix("Cache")?.parse().ok()
}

/// Files of 1.x have no version.
fn check_version(attributes: &[OwnedAttribute]) -> Result<(), TopologyError> {
    let version = attribute(attributes, "version").unwrap_or("1");
    match version.split('.').next() {
        Some("1" | "2" | "3") => Ok(()),
        _ => Err(TopologyError::UnknownVersion(version.to_owned())),
    }
}

fn attribute<'a>(all: &'a [OwnedAttribute], name: &str) -> Option<&'a str> {
    all.iter().find(|attribute| attribute.name.local_name == name).map(|attribute| attribute.value.as_str())
}

/// A number. `None`: it is not given, or given as unknown, −1.
fn number(attributes: &[OwnedAttribute], name: &'static str) -> Result<Option<u32>, TopologyError> {
    let Some(value) = attribute(attributes, name) else { return Ok(None) };
    match value.parse::<u32>() {
        Ok(u32::MAX) => Ok(None),
        Ok(number) => Ok(Some(number)),
        Err(_) if value == "-1" => Ok(None),
        Err(_) => Err(TopologyError::Attribute { name, value: value.to_owned(), expected: "expected a number" }),
    }
}

/// The processors of a set, in ascending order, those that Linux can bind a process to: words of 32 bits, the most
/// significant first, of which those without bits may be empty, such as `0x1,,0x3`. A set without an end, which begins with
/// `0xf...f`, is refused.
fn processors(cpuset: &str) -> Result<Vec<usize>, TopologyError> {
    let word = |word: &str| {
        let digits = if word.is_empty() { "0" } else { word.strip_prefix("0x")? };
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| plain)
    };
    let mut all = Vec::new();
    for (index, text) in cpuset.rsplit(',').enumerate() {
        let bits = word(text).ok_or_else(|| TopologyError::Attribute {
            name: "cpuset",
            value: cpuset.chars().take(80).collect(),
            expected: "expected words of 32 bits, such as 0x00000001,0xffffffff",
        })?;
        let first = index * 32;
        if first < CpuSet::MAX_CPU {
            all.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
