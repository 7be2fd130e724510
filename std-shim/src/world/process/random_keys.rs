//! Random keys, fetched from the operating system in batches.

/// Keys fetched at a time.
const BATCH: usize = 64;

#[derive(Debug)]
pub(in crate::world) struct RandomKeys {
    unused: Vec<u64>,
}

impl RandomKeys {
    pub(in crate::world) const fn new() -> Self {
        Self { unused: Vec::new() }
    }

    /// 64 random bits that were never returned before.
    pub(in crate::world) fn next(&mut self) -> u64 {
        loop {
            if let Some(key) = self.unused.pop() {
                return key;
            }
            let mut bytes = [0_u8; BATCH * 8];
            // Linux's generator does not fail once seeded, and joining a job has used it before.
            if getrandom::fill(&mut bytes).is_ok() {
                self.unused.extend(bytes.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk)));
            }
        }
    }
}
