//! The archive that the kernel unpacks as its first file system: cpio's "newc" (kernel,
//! Documentation/driver-api/early-userspace/buffer-format.rst).

use alloc::collections::BTreeSet;

const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// An archive that grows.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
}

impl Archive {
    /// A file that may be executed, and the directories above it. `path` has no leading slash.
    pub(super) fn file(&mut self, path: &str, contents: &[u8]) {
        self.above(path);
        self.entry(path, EXECUTABLE, contents);
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, path: &str, to: &str) {
        self.above(path);
        self.entry(path, LINK, to.as_bytes());
    }

    /// A directory, and those above it.
    pub(super) fn directory(&mut self, path: &str) {
        self.above(path);
        if self.directories.insert(path.to_owned()) {
            self.entry(path, DIRECTORY, &[]);
        }
    }

    /// All of it, closed.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn above(&mut self, path: &str) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.directory(above);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let links = 1;
        let fields = [self.entries, mode, 0, 0, links, 0, contents.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(contents);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_directories_come_first_and_once() {
        let mut archive = Archive::default();
        archive.file("a/b/c", b"hello");
        archive.file("a/b/d", b"");
        archive.link("a/e", "b/c");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let names: Vec<_> = [&b"a\0"[..], b"a/b\0", b"a/b/c\0", b"a/b/d\0", b"a/e\0", b"TRAILER!!!\0"]
            .iter()
            .map(|name| {
                let found: Vec<_> =
                    (0..bytes.len()).filter(|at| at % 4 == 2 && bytes[*at..].starts_with(name)).collect();
                assert_eq!(found.len(), 1, "{name:?} at {found:?}");
                found[0]
            })
            .collect();
        assert!(names.is_sorted());
        assert!(bytes[names[2] + 6..].starts_with(b"hello") && (names[2] + 6) % 4 == 0);
    }
}
