//! Tuning tables: the fastest measured algorithm of each collective, by carrier, ranks and bytes.
//!
//! ```text
//! # carrier  collective  ranks  bytes    choice
//! udp        allreduce   4      0-2895   doubling
//! udp/2      allreduce   4-8    2896-    knomial:k=1,segments=4
//! ```
//! `host:slots+` or `host:messages+` before a choice: it is that of the leaders of the hosts, whose ranks exchange their parts
//! by these means. After the carrier: how many ranks share a processor; without it, any number. A range is one number, `least-most` or
//! `least-`. Bytes are per rank; of an alltoall and a reduce-scatter per pair; of reductions and scans the vector. No
//! two lines apply to the same call. Where no line applies, the model selects.

use core::fmt;
use core::fmt::Write as _;

use unisono_core::collective::{CollectiveKind, CollectiveSpec};

use super::{COLLECTIVES, Carrier, Override, OverrideError};

/// A range of numbers, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NumberRange {
    min: u64,
    max: u64,
}

impl NumberRange {
    /// `None` if `most < least`.
    ///
    /// ```
    /// use unisono::environment::tuning::NumberRange;
    ///
    /// assert!(NumberRange::new(2, 8).is_some() && NumberRange::new(8, 2).is_none());
    /// ```
    pub const fn new(least: u64, most: u64) -> Option<Self> {
        if least <= most { Some(Self { min: least, max: most }) } else { None }
    }

    const fn contains(self, number: u64) -> bool {
        self.min <= number && number <= self.max
    }

    const fn overlaps(self, other: Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }

    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
        match text.split_once('-') {
            None => number(text).and_then(|one| Self::new(one, one)),
            Some((least, "")) => Self::new(number(least)?, u64::MAX),
            Some((least, most)) => Self::new(number(least)?, number(most)?),
        }
    }
}

impl fmt::Display for NumberRange {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { min: least, max: most } if least == most => least.fmt(to),
            Self { min: least, max: u64::MAX } => write!(to, "{least}-"),
            Self { min: least, max: most } => write!(to, "{least}-{most}"),
        }
    }
}

/// A line of a table: an algorithm, and the calls that it applies to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TuningLine {
    /// The transport of the messages.
    pub carrier: Carrier,
    /// Ranks that share a processor. `None`: any number.
    pub sharing: Option<NumberRange>,
    /// Ranks of the communicator.
    pub ranks: NumberRange,
    /// Bytes of the call.
    pub bytes: NumberRange,
    /// The algorithm.
    pub algorithm: Override,
}

impl TuningLine {
    fn overlaps(&self, other: &Self) -> bool {
        let share = self.sharing.zip(other.sharing).is_none_or(|(one, other)| one.overlaps(other));
        (self.carrier, self.algorithm.kind, share) == (other.carrier, other.algorithm.kind, true)
            && self.ranks.overlaps(other.ranks)
            && self.bytes.overlaps(other.bytes)
    }

    pub(super) fn parse(text: &str) -> Result<Self, TuningLineError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [carrier, verb, ranks, bytes, choice] = words[..] else {
            return Err(TuningLineError::Words { given: words.len() });
        };
        let (carrier, sharing) = carrier.split_once('/').map_or((carrier, None), |(one, other)| (one, Some(other)));
        let carrier = Carrier::ALL.into_iter().find(|known| known.name() == carrier).ok_or(TuningLineError::Carrier)?;
        let named = |(_, name, _): &&(CollectiveKind, &str, &str)| *name == verb;
        let (verb, ..) = COLLECTIVES.iter().find(named).ok_or(TuningLineError::Collective)?;
        let span =
            |text: &str| NumberRange::parse(text).ok_or_else(|| TuningLineError::Range { given: text.to_owned() });
        let (sharing, wanted) = (sharing.map(span).transpose()?, Override::new(*verb, choice)?);
        if carrier == Carrier::Rings && wanted.hosts().is_some() {
            return Err(TuningLineError::OneHost);
        }
        Ok(Self { carrier, sharing, ranks: span(ranks)?, bytes: span(bytes)?, algorithm: wanted })
    }
}

impl fmt::Display for TuningLine {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { carrier, sharing, ranks, bytes, algorithm: wanted } = self;
        let named = COLLECTIVES.iter().find(|(verb, ..)| *verb == wanted.kind).map_or("", |(_, name, _)| name);
        to.write_str(carrier.name())?;
        sharing.map_or(Ok(()), |sharing| write!(to, "/{sharing}"))?;
        write!(to, " {named} {ranks} {bytes} {wanted}")
    }
}

/// A tuning table.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TuningTable {
    lines: Vec<TuningLine>,
}

impl TuningTable {
    /// A table of these lines.
    ///
    /// ```
    /// use unisono::environment::Override;
    /// use unisono::environment::tuning::{Carrier, NumberRange, TuningTable, lines_from_fastest};
    /// use unisono_core::collective::CollectiveKind;
    ///
    /// let ranks = NumberRange::new(2, 8).expect("a range");
    /// let fastest = [(64, "bruck"), (4096, "ring")];
    /// let fastest = fastest.map(|(bytes, name)| (bytes, Override::new(CollectiveKind::Allgather, name).ok()));
    /// let lines = lines_from_fastest((Carrier::Udp, None), ranks, &fastest);
    /// assert!(TuningTable::new(lines).is_ok());
    /// ```
    ///
    /// # Errors
    /// Two of them apply to the same call.
    pub fn new(lines: Vec<TuningLine>) -> Result<Self, TuningTableError> {
        for (n, line) in lines.iter().enumerate() {
            if let Some(other) = lines.iter().take(n).find(|other| other.overlaps(line)) {
                return Err(TuningTableError::Overlap { line: line.to_string(), other: other.to_string() });
            }
        }
        Ok(Self { lines })
    }

    /// Whether a line is composed over hosts.
    pub(super) fn names_hosts(&self) -> bool {
        self.lines.iter().any(|line| line.algorithm.hosts().is_some())
    }

    /// The algorithm of a call, if `sharing` ranks share a processor. `None`: no line applies.
    ///
    /// ```
    /// # use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
    /// # use unisono_core::ids::Rank;
    /// # let spec = CollectiveSpec {
    /// #     collective: CollectiveKind::Allgather, rank: Rank(0), size: 4, root: Rank(0), bytes: 8, grain: 1, order: Order::Any,
    /// #     in_place: false, reduction_id: 0,
    /// # };
    /// use unisono::environment::tuning::{Carrier, TuningTable};
    ///
    /// let empty = TuningTable::default();
    /// assert_eq!(empty.find(Carrier::Udp, 1, &spec), None);
    /// ```
    pub fn find(&self, carrier: Carrier, sharing: u16, plan: &CollectiveSpec) -> Option<Override> {
        let (ranks, bytes) = (u64::from(plan.size), plan.bytes as u64);
        let is_for = |line: &&TuningLine| {
            (line.carrier, line.algorithm.kind) == (carrier, plan.collective)
                && line.sharing.is_none_or(|known| known.contains(sharing.into()))
                && line.ranks.contains(ranks)
                && line.bytes.contains(bytes)
        };
        self.lines.iter().find(is_for).map(|line| line.algorithm)
    }
}

impl fmt::Display for TuningTable {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(to, "{line}"))
    }
}

/// Why a line is not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TuningLineError {
    /// Wrong number of words.
    #[error("expected carrier, collective, ranks, bytes and choice, not {given} words")]
    Words {
        /// Number of words.
        given: usize,
    },
    /// Unknown carrier.
    #[error("the carrier must be udp or rings")]
    Carrier,
    /// Unknown collective.
    #[error("expected one of {}", COLLECTIVES.map(|(_, name, _)| name).join(", "))]
    Collective,
    /// Not a range of numbers.
    #[error("expected a number, least-most or least-, not {given:?}")]
    Range {
        /// The given text.
        given: String,
    },
    /// Ranks that reach each other by rings are on one host.
    #[error("a collective over rings is of one host, and not composed over several")]
    OneHost,
    /// Not a valid algorithm.
    #[error(transparent)]
    Choice(#[from] OverrideError),
}

/// Why lines are not a tuning table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TuningTableError {
    /// Two lines apply to the same call.
    #[error("{line:?} overlaps with {other:?}: only one line may apply to a call")]
    Overlap {
        /// The later line.
        line: String,
        /// The earlier line.
        other: String,
    },
}

/// Lines from the algorithms that are the fastest from some size on, by ascending sizes: the first from 0 bytes, each up to
/// the next one. `None`: the selected one is fast enough, and has no line.
///
/// ```
/// use unisono::environment::Override;
/// use unisono::environment::tuning::{Carrier, NumberRange, TuningTable, lines_from_fastest};
/// use unisono_core::collective::CollectiveKind;
///
/// let ranks = NumberRange::new(2, 8).expect("a range");
/// let fastest = [(8, "bruck"), (4096, "ring")];
/// let fastest = fastest.map(|(bytes, name)| (bytes, Override::new(CollectiveKind::Allgather, name).ok()));
/// let lines = lines_from_fastest((Carrier::Udp, None), ranks, &fastest);
/// assert_eq!(lines[0].to_string(), "udp allgather 2-8 0-4095 bruck");
/// assert_eq!(lines[1].to_string(), "udp allgather 2-8 4096- ring");
/// ```
pub fn lines_from_fastest(
    (carrier, sharing): (Carrier, Option<NumberRange>),
    ranks: NumberRange,
    fastest: &[(u64, Option<Override>)],
) -> Vec<TuningLine> {
    let mut lines: Vec<TuningLine> = Vec::new();
    let mut least = 0;
    for (n, (_, algorithm)) in fastest.iter().enumerate() {
        let next = fastest.get(n + 1).map(|(next, _)| *next);
        if next.is_some_and(|next| next <= least) {
            continue;
        }
        let most = next.map_or(u64::MAX, |next| next - 1);
        match (algorithm, lines.last_mut()) {
            (None, _) => {}
            (Some(same), Some(last)) if last.algorithm == *same && last.bytes.max.checked_add(1) == Some(least) => {
                last.bytes.max = most;
            }
            (Some(algorithm), _) => {
                let line = |bytes| TuningLine { carrier, sharing, ranks, bytes, algorithm: *algorithm };
                lines.extend(NumberRange::new(least, most).map(line));
            }
        }
        least = most.saturating_add(1);
    }
    lines
}

/// Continues the hash `before` with the text of `what`; equal for equal tables.
pub(in crate::environment) fn digest(what: &impl fmt::Display, before: u64) -> u64 {
    struct Fnv(u64);
    impl fmt::Write for Fnv {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            // FNV-1a (Fowler, Noll, Vo).
            self.0 = text.bytes().fold(self.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
            Ok(())
        }
    }
    let mut hash = Fnv(before);
    let _ = writeln!(hash, "{what}");
    hash.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unisono_core::collective::Order;
    use unisono_core::ids::Rank;

    const TEXT: &str = "udp allreduce 4-8 0-2895 doubling\nudp allreduce 4-8 2896- knomial:k=1,segments=4\n\
                        rings allreduce 4 0- ring\nudp barrier 2- 0 knomial\n";

    fn parse(text: &str) -> Result<TuningTable, TuningTableError> {
        TuningTable::new(text.lines().map(|line| TuningLine::parse(line).expect("a line")).collect())
    }

    fn plan(verb: CollectiveKind, size: u32, bytes: usize) -> CollectiveSpec {
        let (rank, root) = (Rank(0), Rank(0));
        CollectiveSpec {
            collective: verb,
            rank,
            size,
            root,
            bytes,
            grain: 8,
            order: Order::Any,
            in_place: false,
            reduction_id: 0,
        }
    }

    #[test]
    fn a_call_is_found_by_carrier_ranks_and_bytes() {
        let table = parse(TEXT).expect("a table");
        assert_eq!(table.to_string(), TEXT);
        let find = |carrier, verb, size, bytes| {
            table.find(carrier, 1, &plan(verb, size, bytes)).map_or_else(String::new, |wanted| wanted.to_string())
        };
        assert_eq!(find(Carrier::Udp, CollectiveKind::Allreduce, 4, 2895), "doubling");
        assert_eq!(find(Carrier::Udp, CollectiveKind::Allreduce, 8, 2896), "knomial:k=1,segments=4");
        assert_eq!(find(Carrier::Udp, CollectiveKind::Allreduce, 4, usize::MAX), "knomial:k=1,segments=4");
        assert_eq!(find(Carrier::Udp, CollectiveKind::Allreduce, 9, 8), "");
        assert_eq!(find(Carrier::Rings, CollectiveKind::Allreduce, 4, 8), "ring");
        assert_eq!(find(Carrier::Rings, CollectiveKind::Allreduce, 5, 8), "");
        assert_eq!(find(Carrier::Udp, CollectiveKind::Barrier, 100_000, 0), "knomial");
        assert_eq!(find(Carrier::Udp, CollectiveKind::Reduce, 4, 8), "");
    }

    #[test]
    fn ranks_that_share_processors_have_lines_of_their_own() {
        let text = "udp/1 reduce 4 0- ring\nudp/2- reduce 4 0- halving\nudp scan 4 0- ring\n";
        let table = parse(text).expect("a table");
        assert_eq!(table.to_string(), text);
        let find = |sharing, verb| table.find(Carrier::Udp, sharing, &plan(verb, 4, 8)).map(|one| one.to_string());
        assert_eq!(find(1, CollectiveKind::Reduce).as_deref(), Some("ring"));
        assert_eq!(find(7, CollectiveKind::Reduce).as_deref(), Some("halving"));
        assert_eq!(find(7, CollectiveKind::Scan).as_deref(), Some("ring"));
        for twice in ["udp/5 reduce 4 0- ring", "udp reduce 4 8 ring", "udp/3 scan 2- 0- ring"] {
            assert!(matches!(parse(&format!("{text}{twice}\n")), Err(TuningTableError::Overlap { .. })), "{twice}");
        }
    }

    #[test]
    fn invalid_lines_are_refused_with_the_reason() {
        for (line, reason) in [
            ("udp allreduce 4 0-", "expected carrier, collective, ranks, bytes and choice, not 4 words"),
            ("tcp allreduce 4 0- ring", "the carrier must be udp or rings"),
            ("udp all_reduce 4 0- ring", "expected one of barrier, broadcast, reduce, allreduce"),
            ("udp/ allreduce 4 0- ring", "expected a number, least-most or least-, not \"\""),
            ("udp/2/3 allreduce 4 0- ring", "expected a number, least-most or least-, not \"2/3\""),
            ("udp allreduce 4-2 0- ring", "expected a number, least-most or least-, not \"4-2\""),
            ("udp allreduce +4 0- ring", "expected a number, least-most or least-, not \"+4\""),
            ("udp allreduce -4 0- ring", "expected a number, least-most or least-, not \"-4\""),
            ("udp allreduce 4 0- pairwise", "expected one of doubling, standard-exchange, knomial, halving, ring"),
            ("udp allreduce 4 0- ring:segments=0", "segments= must be a number from 1 to 4096"),
        ] {
            let said = TuningLine::parse(line).expect_err("refused").to_string();
            assert!(said.starts_with(reason), "{line}: {said}");
        }
        let twice = parse(&format!("{TEXT}udp allreduce 8-9 2895 ring\n")).expect_err("refused").to_string();
        let first = "\"udp allreduce 8-9 2895 ring\" overlaps with \"udp allreduce 4-8 0-2895 doubling\": \
                     only one line may apply to a call";
        assert_eq!(twice, first);
    }

    #[test]
    fn adjacent_sizes_share_a_line() {
        let wanted = |text| Override::new(CollectiveKind::Allreduce, text).ok();
        let ranks = NumberRange::new(4, 4).expect("a span");
        let lines = |fastest: &[(u64, Option<Override>)]| -> Vec<String> {
            lines_from_fastest((Carrier::Udp, None), ranks, fastest).iter().map(TuningLine::to_string).collect()
        };
        let (doubling, ring) = (wanted("doubling"), wanted("ring"));
        let fastest = [(8, doubling), (1024, doubling), (8192, wanted("knomial")), (1 << 20, ring)];
        assert_eq!(
            lines(&fastest),
            [
                "udp allreduce 4 0-8191 doubling",
                "udp allreduce 4 8192-1048575 knomial",
                "udp allreduce 4 1048576- ring"
            ]
        );
        // Sizes at which the selected algorithm is fast enough have none.
        let fastest = [(8, None), (1024, ring), (8192, None), (1 << 20, ring)];
        assert_eq!(lines(&fastest), ["udp allreduce 4 1024-8191 ring", "udp allreduce 4 1048576- ring"]);
        // What wins from the same size on as the next one wins nowhere.
        assert_eq!(
            lines(&[(0, doubling), (64, None), (64, ring)]),
            ["udp allreduce 4 0-63 doubling", "udp allreduce 4 64- ring"]
        );
        assert_eq!(lines(&[(0, doubling), (0, ring)]), ["udp allreduce 4 0- ring"]);
        assert_eq!(lines_from_fastest((Carrier::Udp, None), ranks, &[]), []);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(udp|udp/2-?|rings|x) (allreduce|barrier) [0-9-]{0,4} [0-9-]{0,4} (ring|knomial).{0,5}") {
            if let Ok(line) = TuningLine::parse(&text) {
                prop_assert_eq!(TuningLine::parse(&line.to_string()), Ok(line));
            }
        }
    }
}
