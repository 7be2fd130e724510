//! The source of an attacker's choices: a seed or fuzzer input.

/// Random numbers, or the bytes that a fuzzer gives: when those are used up, every choice is 0, which does no harm.
#[derive(Clone, Debug)]
pub enum Choices {
    /// Seeded.
    Random(fastrand::Rng),
    /// Given, with the place of the next one.
    Given(Vec<u8>, usize),
}

impl Choices {
    /// Seeded random choices.
    pub fn random(seed: u64) -> Self {
        Self::Random(fastrand::Rng::with_seed(seed))
    }

    /// Choices from these bytes.
    pub fn given(bytes: &[u8]) -> Self {
        Self::Given(bytes.to_vec(), 0)
    }

    /// Whether every choice from now on is 0.
    pub(super) const fn are_used_up(&self) -> bool {
        match self {
            Self::Random(_) => false,
            Self::Given(bytes, next) => *next >= bytes.len(),
        }
    }

    /// 0 to 255.
    pub(super) fn byte(&mut self) -> u8 {
        match self {
            Self::Random(random) => random.u8(..),
            Self::Given(bytes, next) => {
                let byte = bytes.get(*next).copied().unwrap_or(0);
                *next += 1;
                byte
            }
        }
    }

    /// 32 bits.
    pub(super) fn word(&mut self) -> u32 {
        match self {
            Self::Random(random) => random.u32(..),
            Self::Given(..) => u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()]),
        }
    }

    /// Below `n`, which is at least 1.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.word() as usize % n
    }
}
