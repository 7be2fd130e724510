//! The hardware baseline: figures of `unisono bench floor` on this machine.

use std::{io, path::Path};

use serde_json::Value;

use crate::contenders::unisono_command;

/// Figures of two processes without any library.
#[derive(Clone, PartialEq, Debug)]
pub struct Floor {
    /// Nanoseconds of a line passed there and back.
    pub line_rtt: f64,
    /// Nanoseconds of a bare barrier.
    pub barrier: f64,
    /// Nanoseconds of 8 bytes through a ring and back through another.
    pub ring_rtt: f64,
    /// Copy rates by size and working set.
    pub copies: Vec<Copies>,
}

/// Bytes per second of messages.
#[derive(Clone, PartialEq, Debug)]
pub struct Copies {
    /// Of a message.
    pub bytes: u32,
    /// Buffers of the receiver, used in turn.
    pub places: u32,
    /// The receiver copies what the sender has just written.
    pub memcpy: f64,
    /// The better of a single copy by the kernel and two pipelined ones.
    pub private: f64,
}

impl Floor {
    /// Measures lines, and copies of messages of `bytes` bytes if there are any.
    ///
    /// # Errors
    /// It fails, does not end, or prints something else.
    pub fn measure(binary: &Path, bytes: u32) -> io::Result<Self> {
        let mut command = unisono_command::limited(binary);
        command.args(["bench", "floor", "--json", "--bytes", &bytes.to_string()]);
        unisono_command::read(command, Self::parse)
    }

    fn parse(text: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(text).ok()?;
        let copies = object.get("copies")?.as_array()?.iter().map(Copies::read).collect::<Option<_>>()?;
        let number = |key| object.get(key)?.as_f64();
        let [line_rtt, barrier, ring_rtt] = ["line_rtt_ns", "barrier_ns", "ring_rtt_ns"].map(number);
        Some(Self { line_rtt: line_rtt?, barrier: barrier?, ring_rtt: ring_rtt?, copies })
    }

    /// Of one size and working set.
    pub fn of(&self, bytes: u32, places: u32) -> Option<&Copies> {
        self.copies.iter().find(|copies| (copies.bytes, copies.places) == (bytes, places))
    }
}

impl Copies {
    fn read(object: &Value) -> Option<Self> {
        let whole = |key| object.get(key)?.as_u64()?.try_into().ok();
        let speed = |key| object.get(key)?.as_f64();
        // Absent where the kernel refuses.
        let readv = speed("readv_bytes_per_s").unwrap_or(0.0);
        Some(Self {
            bytes: whole("bytes")?,
            places: whole("places")?,
            memcpy: speed("memcpy_bytes_per_s")?,
            private: speed("two_copy_bytes_per_s")?.max(readv),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"line_rtt_ns":266.0,"barrier_ns":137.0,"ring_rtt_ns":290.0,"copies":[
        {"bytes":65536,"places":1,"memcpy_bytes_per_s":9,"readv_bytes_per_s":7,"two_copy_bytes_per_s":5},
        {"bytes":65536,"places":64,"memcpy_bytes_per_s":8,"readv_bytes_per_s":null,"two_copy_bytes_per_s":4}]}"#;

    #[test]
    fn the_better_private_loop_counts() {
        let floor = Floor::parse(TEXT).expect("whole");
        assert_eq!((floor.line_rtt, floor.barrier, floor.ring_rtt), (266.0, 137.0, 290.0));
        assert_eq!(floor.of(65536, 1).map(|copies| (copies.memcpy, copies.private)), Some((9.0, 7.0)));
        assert_eq!(floor.of(65536, 64).map(|copies| (copies.memcpy, copies.private)), Some((8.0, 4.0)));
        assert_eq!(floor.of(65537, 1), None);
    }

    #[test]
    fn what_lacks_a_figure_is_none() {
        for part in ["\"line_rtt_ns\":266.0,", "\"places\":1,", "\"two_copy_bytes_per_s\":4"] {
            assert_eq!(Floor::parse(&TEXT.replace(part, "")), None, "{part}");
        }
    }
}
