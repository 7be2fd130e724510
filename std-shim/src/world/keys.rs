//! Random keys, fetched from the operating system in batches.

/// Keys fetched at a time.
const STORE: usize = 64;

#[derive(Debug)]
pub(super) struct Keys {
    store: Vec<u64>,
}

impl Keys {
    pub(super) const fn new() -> Self {
        Self { store: Vec::new() }
    }

    /// 64 random bits that were never returned before.
    pub(super) fn next(&mut self) -> u64 {
        loop {
            if let Some(key) = self.store.pop() {
                return key;
            }
            let mut bytes = [0_u8; STORE * 8];
            // Linux's generator does not fail once seeded, and joining a job has used it before.
            if getrandom::fill(&mut bytes).is_ok() {
                self.store.extend(bytes.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk)));
            }
        }
    }
}
