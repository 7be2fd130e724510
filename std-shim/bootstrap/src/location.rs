//! Where a process runs: the parts of the network and of its node that it shares with other processes.

use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

/// The units that a process is in, each by a number that is equal for processes in the same unit. `None`: not known, or
/// the process may move between several.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Location {
    /// The switch that its node is connected to.
    pub switch: Option<u32>,
    /// The socket (processor package), among those of its node.
    pub socket: Option<u32>,
    /// The NUMA node, among those of its node.
    pub numa: Option<u32>,
    /// The last-level cache, among those of its node.
    pub cache: Option<u32>,
    /// The adapter and port, or the interface, of its first rail, among those of its node.
    pub rail: Option<u32>,
    /// A group that the user has chosen.
    pub group: Option<u32>,
}

/// The text is no [`Location`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected numbers of units, such as socket=1,cache=3; units are switch, socket, numa, cache, rail and group")]
pub struct LocationError;

impl Location {
    /// The same, with the units of `other` that are not known here.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let Self { switch, socket, numa, cache, rail, group } = self;
        Self {
            switch: switch.or(other.switch),
            socket: socket.or(other.socket),
            numa: numa.or(other.numa),
            cache: cache.or(other.cache),
            rail: rail.or(other.rail),
            group: group.or(other.group),
        }
    }

    /// The units and their names.
    const fn units(&self) -> [(&'static str, Option<u32>); 6] {
        let Self { switch, socket, numa, cache, rail, group } = *self;
        [("switch", switch), ("socket", socket), ("numa", numa), ("cache", cache), ("rail", rail), ("group", group)]
    }
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let mut location = Self::default();
        for unit in text.split(',') {
            let (name, number) = unit.split_once('=').ok_or(LocationError)?;
            let known = match name {
                "switch" => &mut location.switch,
                "socket" => &mut location.socket,
                "numa" => &mut location.numa,
                "cache" => &mut location.cache,
                "rail" => &mut location.rail,
                "group" => &mut location.group,
                _ => return Err(LocationError),
            };
            let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
            let number = number.parse().ok().filter(|_| is_plain).ok_or(LocationError)?;
            if known.replace(number).is_some() {
                return Err(LocationError);
            }
        }
        Ok(location)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.units().into_iter().filter_map(|(name, number)| Some((name, number?)));
        for (at, (name, number)) in known.enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(to, "{comma}{name}={number}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_read_as_it_is_written() {
        for text in ["switch=0", "socket=1,cache=4294967295", "switch=1,socket=2,numa=3,cache=4,rail=6,group=5"] {
            assert_eq!(text.parse().map(|location: Location| location.to_string()).as_deref(), Ok(text));
        }
        for text in
            ["", "socket", "socket=", "socket=-1", "socket=+1", "core=1", "socket=1,", "numa=1,numa=1", "cache=1x"]
        {
            assert_eq!(text.parse::<Location>(), Err(LocationError), "{text}");
        }
    }

    #[test]
    fn a_location_keeps_what_is_given() {
        let found = Location { socket: Some(3), numa: Some(4), ..Location::default() };
        let given = Location { socket: Some(0), group: Some(9), ..Location::default() };
        assert_eq!(given.or(found).to_string(), "socket=0,numa=4,group=9");
    }
}
