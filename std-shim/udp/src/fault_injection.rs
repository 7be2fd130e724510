//! The fault injector: loses, reorders, duplicates and corrupts frames of an unreliable link, reproducibly from a seed.
//!
//! [`FaultInjector`] decides the outcome of each frame and [`ReorderQueue`] orders the reordered frames; the device
//! carries out the [`FaultOutcome`] and counts it. Frames are whole: header, payload and checksum trailer.

mod cut;

pub use cut::{Cut, CutError, CutTarget};

use core::{error::Error, fmt, str::FromStr};

/// A reordered frame is overtaken by 1 to this many later ones.
pub const REORDER_MAX: u8 = 8;

/// A number from 0 to 1. Written `0.05` or `5%`.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct Probability(f64);

impl Probability {
    /// Returns an error if `value` is not a number from 0 to 1.
    pub fn new(value: f64) -> Result<Self, ProbabilityError> {
        if (0.0..=1.0).contains(&value) { Ok(Self(value.abs())) } else { Err(ProbabilityError::OutOfRange) }
    }

    /// The value, from 0 to 1.
    pub const fn value(self) -> f64 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = ProbabilityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number.trim_end(), 100.0),
            None => (text, 1.0),
        };
        let value: f64 = number.parse().map_err(|_| ProbabilityError::NotANumber)?;
        Self::new(value / scale)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}%", self.0 * 100.0)
    }
}

/// Why a text or number is not a probability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbabilityError {
    /// It is not a number.
    NotANumber,
    /// It is NaN, below 0 or above 1 (100%).
    OutOfRange,
}

impl fmt::Display for ProbabilityError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::NotANumber => "not a number: write it as 0.05 or 5%",
            Self::OutOfRange => "a probability must lie between 0 and 1 (0% and 100%)",
        })
    }
}

impl Error for ProbabilityError {}

/// The fault probabilities of a link: each fault is drawn independently for each frame.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// The frame is lost.
    pub loss: Probability,
    /// 1 to [`REORDER_MAX`] later frames leave before it.
    pub reorder: Probability,
    /// The frame is sent twice. Each copy is reordered and corrupted on its own.
    pub duplicate: Probability,
    /// One to eight bits of one byte change.
    pub corrupt: Probability,
    /// A rail, or all groups, lose everything for a while.
    pub cut: Option<Cut>,
    /// Equal seeds give equal outcomes. Each process of a job adds its rank to the seed.
    pub seed: u64,
}

impl Faults {
    /// Whether all fault probabilities are zero and nothing is cut.
    pub fn is_none(&self) -> bool {
        self.cut.is_none() && [self.loss, self.reorder, self.duplicate, self.corrupt].iter().all(|fault| fault.0 == 0.0)
    }
}

/// A bit error in one byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BitFlip {
    /// Index into the frame.
    pub byte: usize,
    /// Mask of the flipped bits, at least one.
    pub bits: u8,
}

impl BitFlip {
    /// Flips the bits. Does nothing if the frame is too short.
    pub fn apply(self, frame: &mut [u8]) {
        if let Some(byte) = frame.get_mut(self.byte) {
            *byte ^= self.bits;
        }
    }
}

/// The outcome for one copy of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CopyOutcome {
    /// Later frames that leave before it: 0, or 1 to [`REORDER_MAX`].
    pub overtaken_by: u8,
    /// Its bit error, if any.
    pub flip: Option<BitFlip>,
}

/// The outcome for a frame: its copies. No copy means that it is lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FaultOutcome {
    /// The frame, unless it is lost.
    pub first: Option<CopyOutcome>,
    /// Its duplicate, if there is one.
    pub second: Option<CopyOutcome>,
}

impl FaultOutcome {
    /// The copies that are sent.
    pub fn copies(self) -> impl Iterator<Item = CopyOutcome> {
        self.first.into_iter().chain(self.second)
    }
}

/// Decides the outcome of each frame, reproducibly from a seed.
#[derive(Clone, Debug)]
pub struct FaultInjector {
    faults: Faults,
    random: fastrand::Rng,
}

impl FaultInjector {
    /// An injector at the start of the seed's sequence.
    pub fn new(faults: Faults) -> Self {
        Self { faults, random: fastrand::Rng::with_seed(faults.seed) }
    }

    /// The outcome of the next frame, of `bytes` bytes.
    pub fn next_outcome(&mut self, bytes: usize) -> FaultOutcome {
        if self.draw(self.faults.loss) {
            return FaultOutcome { first: None, second: None };
        }
        let first = self.copy_outcome(bytes);
        let second = self.draw(self.faults.duplicate).then(|| self.copy_outcome(bytes));
        FaultOutcome { first: Some(first), second }
    }

    fn copy_outcome(&mut self, bytes: usize) -> CopyOutcome {
        let overtaken_by = if self.draw(self.faults.reorder) { self.random.u8(1..=REORDER_MAX) } else { 0 };
        let flip = (bytes > 0 && self.draw(self.faults.corrupt))
            .then(|| BitFlip { byte: self.random.usize(..bytes), bits: self.random.u8(1..) });
        CopyOutcome { overtaken_by, flip }
    }

    fn draw(&mut self, fault: Probability) -> bool {
        self.random.f64() < fault.0
    }
}

/// Outgoing frames: frames that are not reordered leave at once; a reordered frame leaves after its number of later
/// frames.
///
/// It never sleeps and uses no clock. Each frame leaves once `overtaken_by` later frames were pushed, and
/// [`flush_idle`](Self::flush_idle) releases all. The owner calls it when nothing was pushed for some time.
#[derive(Clone, Debug)]
pub struct ReorderQueue<F> {
    pushed: u64,
    /// Unordered, each with the push that releases it; a handful.
    waiting: Vec<ReorderedFrame<F>>,
}

#[derive(Clone, Debug)]
struct ReorderedFrame<F> {
    due: u64,
    serial: u64,
    frame: F,
}

impl<F> Default for ReorderQueue<F> {
    fn default() -> Self {
        Self { pushed: 0, waiting: Vec::new() }
    }
}

impl<F> ReorderQueue<F> {
    /// Adds a frame. Calls `out` for the frame and for those that it releases, in sending order.
    pub fn push(&mut self, frame: F, overtaken_by: u8, mut out: impl FnMut(F)) {
        self.pushed += 1;
        let due = self.pushed + u64::from(overtaken_by);
        if overtaken_by == 0 {
            out(frame);
        } else {
            self.waiting.push(ReorderedFrame { due, serial: self.pushed, frame });
        }
        self.release_due(self.pushed, out);
    }

    /// Releases all waiting frames.
    pub fn flush_idle(&mut self, out: impl FnMut(F)) {
        self.release_due(u64::MAX, out);
    }

    /// Whether no frame is waiting.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of waiting frames.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    fn release_due(&mut self, upto: u64, mut out: impl FnMut(F)) {
        while let Some((index, _)) = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, waiting)| waiting.due <= upto)
            .min_by_key(|(_, waiting)| (waiting.due, waiting.serial))
        {
            out(self.waiting.swap_remove(index).frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<f64, ProbabilityError> {
        text.parse::<Probability>().map(Probability::value)
    }

    #[test]
    fn percent_and_fraction_are_the_same() {
        assert_eq!(parsed("5%"), Ok(0.05));
        assert_eq!(parsed("0.05"), Ok(0.05));
        assert_eq!(parsed(" 100 % "), Ok(1.0));
        assert_eq!(parsed("0"), Ok(0.0));
        assert_eq!(parsed("1"), Ok(1.0));
    }

    #[test]
    fn invalid_probabilities_are_refused() {
        for text in ["NaN", "nan%", "inf", "-inf%", "-0.1", "-1%", "1.01", "101%", "5"] {
            assert_eq!(parsed(text), Err(ProbabilityError::OutOfRange), "{text}");
        }
        for text in ["", "%", "five", "5%%", "0,05", "5% 5%"] {
            assert_eq!(parsed(text), Err(ProbabilityError::NotANumber), "{text}");
        }
        assert_eq!(Probability::new(f64::NAN), Err(ProbabilityError::OutOfRange));
    }

    fn faults(seed: u64) -> Faults {
        let chance = |value| Probability::new(value).unwrap();
        Faults {
            loss: chance(0.05),
            reorder: chance(0.1),
            duplicate: chance(0.02),
            corrupt: chance(0.01),
            seed,
            cut: None,
        }
    }

    #[test]
    fn equal_seeds_give_equal_outcomes() {
        let fates = |seed| {
            let mut injector = FaultInjector::new(faults(seed));
            (0..1000).map(|_| injector.next_outcome(100)).collect::<Vec<_>>()
        };
        assert_eq!(fates(7), fates(7));
        assert_ne!(fates(7), fates(8));
    }

    #[test]
    fn rates_are_those_asked_for() {
        let mut injector = FaultInjector::new(faults(1));
        let (mut lost, mut doubled, mut passages, mut overtaken, mut flipped) = (0, 0, 0, [0; 9], 0);
        for _ in 0..100_000 {
            let fate = injector.next_outcome(77);
            lost += u32::from(fate.first.is_none());
            doubled += u32::from(fate.second.is_some());
            for passage in fate.copies() {
                passages += 1;
                overtaken[usize::from(passage.overtaken_by)] += 1;
                if let Some(flip) = passage.flip {
                    assert!(flip.byte < 77 && flip.bits != 0);
                    flipped += 1;
                }
            }
        }
        let is_close = |count: u32, expected: f64| (f64::from(count) / expected - 1.0).abs() < 0.15;
        assert!(
            is_close(lost, 5000.0) && is_close(doubled, 1900.0) && is_close(flipped, 969.0),
            "{lost} {doubled} {flipped}"
        );
        assert_eq!(passages, 100_000 - lost + doubled);
        for count in &overtaken[1..] {
            assert!(is_close(*count, 1211.0), "{overtaken:?}");
        }
    }

    #[test]
    fn perfect_link_touches_nothing() {
        let mut injector = FaultInjector::new(Faults::default());
        assert!(Faults::default().is_none() && !faults(0).is_none());
        let untouched = FaultOutcome { first: Some(CopyOutcome::default()), second: None };
        assert!((0..1000).all(|_| injector.next_outcome(0) == untouched && injector.next_outcome(9) == untouched));
    }

    #[test]
    fn delayed_frame_is_overtaken_by_as_many_as_asked() {
        for overtaken_by in 1..=REORDER_MAX {
            let (mut delayed, mut order) = (ReorderQueue::default(), Vec::new());
            for frame in 0..20 {
                delayed.push(frame, if frame == 3 { overtaken_by } else { 0 }, |frame| order.push(frame));
            }
            assert_eq!(order.iter().position(|frame| *frame == 3), Some(3 + usize::from(overtaken_by)));
            assert!(delayed.is_empty());
            order.retain(|frame| *frame != 3);
            assert!(order.is_sorted());
        }
    }

    #[test]
    fn every_frame_leaves_once_and_few_wait() {
        let certain = Faults { reorder: Probability::new(1.0).unwrap(), ..Faults::default() };
        let (mut injector, mut delayed, mut order) = (FaultInjector::new(certain), ReorderQueue::default(), Vec::new());
        for frame in 0..1000_i32 {
            let fate = injector.next_outcome(1);
            for passage in fate.copies() {
                delayed.push(frame, passage.overtaken_by, |frame| order.push(frame));
            }
            assert!(delayed.len() <= usize::from(REORDER_MAX));
        }
        delayed.flush_idle(|frame| order.push(frame));
        assert!(delayed.is_empty() && !order.is_sorted());
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..1000));
    }
}
