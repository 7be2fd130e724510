//! How collectives over messages are done: as the user says, `bruck:k=2,segments=4`, as a table of what was measured says, the user's or
//! that which is built in, or as the model chooses (`unisono_core::schedule::choose`).

mod table;

use alloc::sync::Arc;
use core::fmt;
use std::path::Path;
use std::sync::OnceLock;

pub use table::{Line, LineError, Span, Table, TableError, lines_of};
use unisono_core::collective::{Plan, Verb};
use unisono_core::schedule::{
    Algorithm, Choice, Given, Link, Plan as Schedule, Refused, algorithms, choose, choose_given,
};

/// What can be tuned: the verbs, and their names on the command line and in the environment.
pub const VERBS: [(Verb, &str, &str); 11] = [
    (Verb::Barrier, "barrier", "BARRIER"),
    (Verb::Broadcast, "broadcast", "BROADCAST"),
    (Verb::Reduce, "reduce", "REDUCE"),
    (Verb::Allreduce, "allreduce", "ALLREDUCE"),
    (Verb::Gather, "gather", "GATHER"),
    (Verb::Scatter, "scatter", "SCATTER"),
    (Verb::Allgather, "allgather", "ALLGATHER"),
    (Verb::Alltoall, "alltoall", "ALLTOALL"),
    (Verb::ReduceScatter, "reduce-scatter", "REDUCE_SCATTER"),
    (Verb::Scan, "scan", "SCAN"),
    (Verb::Exscan, "exscan", "EXSCAN"),
];

/// What was measured where this was built.
const BUILT_IN: &str = include_str!("tuning/measured.tuning");

/// The most segments that can be asked for.
pub const SEGMENTS_MAX: u32 = 4096;

/// What a message over UDP costs by the model: a constant, so that it is equal on all ranks. Overhead and bytes as `unisono
/// bench rate` and `bandwidth` find them between two processes of one host; there latency is 3 to 70 µs, by who has to be
/// scheduled, and between hosts some 10 µs.
pub const UDP: Link = Link { latency_ns: 10_000, overhead_ns: 2_300, ps_per_byte: 500, sharing: 1 };

/// What a message between two ranks costs where all are on one node, through their rings: equal on all ranks, too.
pub const RINGS: Link = Link { latency_ns: 1_000, overhead_ns: 400, ps_per_byte: 200, sharing: 1 };

/// What carries the messages of a job's collectives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Carrier {
    /// Datagrams, between some of the ranks at least.
    Udp,
    /// The rings of one node.
    Rings,
}

impl Carrier {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Udp, Self::Rings];

    /// As tables name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Rings => "rings",
        }
    }

    /// What its messages cost by the model, where so many ranks share a processor: then most of a message's latency is work of theirs.
    pub const fn link(self, sharing: u16) -> Link {
        let link = match self {
            Self::Udp => UDP,
            Self::Rings => RINGS,
        };
        if sharing < 2 { link } else { Link { overhead_ns: link.latency_ns / 10 * 3, sharing, ..link } }
    }
}

/// How the user wants a verb to be done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Override {
    verb: Verb,
    given: Given,
}

impl Override {
    /// Reads `algorithm`, or `algorithm:option=number,…` with the options `k` (ports), `radix` (of a k-nomial tree) and
    /// `segments`. What is not said is chosen.
    ///
    /// # Errors
    /// [`OverrideError`] says what can be.
    pub fn new(verb: Verb, text: &str) -> Result<Self, OverrideError> {
        let (name, options) = text.split_once(':').map_or((text, None), |(name, options)| (name, Some(options)));
        let algorithm = algorithms(verb).iter().find(|algorithm| algorithm.name() == name);
        let algorithm = *algorithm.ok_or(OverrideError::Algorithm { allowed: algorithms(verb) })?;
        let (mut ports, mut radix, mut segments) = (None, None, None);
        for option in options.into_iter().flat_map(|options| options.split(',')) {
            let unknown = || OverrideError::Option { given: option.to_owned() };
            let (name, value) = option.split_once('=').ok_or_else(unknown)?;
            let most_ports = u32::from(Schedule::PORTS);
            match name {
                "k" => store(&mut ports, "k", value, 1, most_ports)?,
                "radix" if algorithm != Algorithm::Knomial => return Err(OverrideError::Radix),
                "radix" => store(&mut radix, "radix", value, 2, most_ports + 1)?,
                "segments" => store(&mut segments, "segments", value, 1, SEGMENTS_MAX)?,
                _ => return Err(unknown()),
            }
        }
        let narrow = |number: Option<u32>| number.and_then(|number| u8::try_from(number).ok());
        let given = Given { algorithm, ports: narrow(ports), radix: narrow(radix), segments };
        Ok(Self { verb, given })
    }
}

impl fmt::Display for Override {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Given { algorithm, ports, radix, segments } = self.given;
        to.write_str(algorithm.name())?;
        let options = [("k", ports.map(u32::from)), ("radix", radix.map(u32::from)), ("segments", segments)];
        let said = options.into_iter().filter_map(|(name, number)| Some((name, number?)));
        said.enumerate()
            .try_for_each(|(n, (name, number))| write!(to, "{}{name}={number}", if n == 0 { ':' } else { ',' }))
    }
}

/// Why a text says nothing of how a verb can be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OverrideError {
    /// The verb has no such algorithm.
    #[error("one of {} is expected", allowed.iter().map(|algorithm| algorithm.name()).collect::<Vec<_>>().join(", "))]
    Algorithm {
        /// Those that it has.
        allowed: &'static [Algorithm],
    },
    /// There is no such option.
    #[error("options are k=, radix= and segments=, separated by commas, not {given:?}")]
    Option {
        /// What was written.
        given: String,
    },
    /// The number is none, or out of range.
    #[error("{name}= is a number from {least} to {most}")]
    Range {
        /// The option.
        name: &'static str,
        /// Its least value.
        least: u32,
        /// Its greatest.
        most: u32,
    },
    /// An option twice.
    #[error("{name}= is given twice")]
    Twice {
        /// The option.
        name: &'static str,
    },
    /// A base for an algorithm that counts in k + 1.
    #[error("radix= is for knomial: other algorithms count in base k + 1")]
    Radix,
}

fn store(to: &mut Option<u32>, name: &'static str, value: &str, least: u32, most: u32) -> Result<(), OverrideError> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| plain && (least..=most).contains(number));
    let number = number.ok_or(OverrideError::Range { name, least, most })?;
    match to.replace(number) {
        None => Ok(()),
        Some(_) => Err(OverrideError::Twice { name }),
    }
}

/// Why a collective is done as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// It is quickest by the model.
    Model,
    /// It was quickest where this was built.
    BuiltIn,
    /// It was quickest when it was measured.
    Table,
    /// The user said so.
    Override,
}

/// How a collective is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Decision {
    /// So.
    pub choice: Choice,
    /// Why.
    pub reason: Reason,
    /// Why not as the user said, who said something.
    pub refused: Option<Refused>,
}

/// What the user says about collectives. Equal on all ranks of a job, or they do not understand each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tuning {
    overrides: [Option<Override>; VERBS.len()],
    /// What was measured, and the file that it was read from.
    table: Option<(Arc<Table>, Arc<str>)>,
    /// Ranks that share a processor, as the model takes it.
    sharing: Option<u16>,
}

impl Tuning {
    /// From now on the override's verb is done so.
    pub fn set(&mut self, wanted: Override) {
        if let Some(place) = self.overrides.get_mut(wanted.verb as usize) {
            *place = Some(wanted);
        }
    }

    /// What the user says of a verb.
    pub fn get(&self, verb: Verb) -> Option<Override> {
        self.overrides.get(verb as usize).copied().flatten()
    }

    /// From now on what was measured decides where the user says nothing.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn open(&mut self, path: &str) -> Result<(), TableError> {
        // Ranks may run elsewhere.
        let whole = std::path::absolute(path).ok();
        let path = whole.as_deref().and_then(Path::to_str).unwrap_or(path);
        self.table = Some((Arc::new(Table::open(Path::new(path))?), path.into()));
        Ok(())
    }

    /// Ranks that share a processor.
    pub fn sharing(&self) -> u16 {
        self.sharing.unwrap_or(1)
    }

    /// As [`sharing`](Self::sharing), where somebody has said it.
    pub const fn said_sharing(&self) -> Option<u16> {
        self.sharing
    }

    /// So many ranks share a processor.
    pub const fn set_sharing(&mut self, ranks: u16) {
        self.sharing = Some(ranks);
    }

    /// It is not known how many do, as of another job's.
    pub const fn forget_sharing(&mut self) {
        self.sharing = None;
    }

    /// All ranks of a job are on this host, which has so many processors: unless it was said, how many share one.
    pub fn share(&mut self, ranks: u32, processors: usize) {
        let sharing = (ranks as usize).div_ceil(processors.max(1));
        self.sharing.get_or_insert(u16::try_from(sharing).unwrap_or(u16::MAX));
    }

    /// Equal on ranks that choose the same.
    pub fn digest(&self) -> u64 {
        let begin = table::digest(built_in(), table::digest(&self.sharing(), 0xcbf2_9ce4_8422_2325));
        let said = VERBS.iter().filter_map(|(verb, name, _)| Some((name, self.get(*verb)?)));
        let said = said.fold(begin, |hash, (name, wanted)| table::digest(&format_args!("{name} {wanted}"), hash));
        self.table.as_ref().map_or(said, |(table, _)| table::digest(table, said))
    }

    /// How a collective is done: as the user says if that fits the call, else as a table says if that does, else as the one that
    /// is built in, else as the model chooses. The same on all ranks where `plan` differs in the rank only.
    ///
    /// # Errors
    /// There is no schedule for it at all: a rank outside the group, or too many ranks.
    pub fn choose(&self, plan: &Plan, varying: bool, carrier: Carrier) -> Result<Choice, Refused> {
        self.decide(plan, varying, carrier).map(|decision| decision.choice)
    }

    /// As [`choose`](Self::choose), and why.
    ///
    /// # Errors
    /// As there.
    pub fn decide(&self, plan: &Plan, varying: bool, carrier: Carrier) -> Result<Decision, Refused> {
        let link = carrier.link(self.sharing());
        let given = |wanted: Override| choose_given(plan, varying, &link, &wanted.given);
        let wanted = self.get(plan.verb).map(given);
        let refused = wanted.and_then(Result::err);
        let found = |table: &Table, reason| {
            let wanted = table.find(carrier, self.sharing(), plan)?;
            Some((given(wanted).ok()?, reason))
        };
        let measured = || self.table.as_ref().and_then(|(table, _)| found(table, Reason::Table));
        let (choice, reason) = match wanted {
            Some(Ok(choice)) => (choice, Reason::Override),
            _ => { measured() }
                .or_else(|| found(built_in(), Reason::BuiltIn))
                .unwrap_or_else(|| (choose(plan, varying, &link), Reason::Model)),
        };
        Schedule::new(choice.call(plan, varying)).map(|_| Decision { choice, reason, refused })
    }

    /// The variables, without prefix, that make another process read this.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        let table = self.table.as_ref().map(|(_, path)| ("TUNING", path.to_string()));
        let sharing = self.sharing.map(|sharing| ("SHARING", sharing.to_string()));
        let said = VERBS.into_iter().filter_map(|(verb, _, name)| Some((name, self.get(verb)?.to_string())));
        said.chain(table).chain(sharing)
    }
}

/// Where the model was found to be worse by more than a tenth.
fn built_in() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::read(BUILT_IN).unwrap_or_default())
}

/// The verb that a variable tunes.
pub(super) fn verb_of(variable: &str) -> Option<Verb> {
    VERBS.iter().find(|(_, _, name)| *name == variable).map(|(verb, ..)| *verb)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unisono_core::collective::Order;
    use unisono_core::ids::Rank;

    fn plan(verb: Verb, size: u32) -> Plan {
        let (rank, root) = (Rank(0), Rank(0));
        Plan { verb, rank, size, root, bytes: 1000, grain: 8, order: Order::Any, in_place: false, kind: 0 }
    }

    fn tuned(verb: Verb, text: &str) -> Tuning {
        let mut tuning = Tuning::default();
        tuning.set(Override::new(verb, text).expect("good"));
        tuning
    }

    fn refused(verb: Verb, text: &str) -> String {
        Override::new(verb, text).expect_err("must be refused").to_string()
    }

    #[test]
    fn every_verb_and_algorithm_is_printed_as_it_is_read() {
        for (verb, ..) in VERBS {
            for algorithm in algorithms(verb) {
                for options in ["", ":k=2", ":segments=4096", ":k=16,segments=3"] {
                    let text = format!("{}{options}", algorithm.name());
                    assert_eq!(Override::new(verb, &text).expect("good").to_string(), text);
                }
            }
        }
        assert_eq!(
            VERBS.map(|(verb, ..)| tuned(verb, algorithms(verb)[0].name()).get(verb).map(|wanted| wanted.verb)),
            { VERBS.map(|(verb, ..)| Some(verb)) }
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        let barrier = "one of dissemination, knomial, doubling, standard-exchange is expected";
        assert_eq!(refused(Verb::Barrier, "bruck"), barrier);
        assert_eq!(refused(Verb::Barrier, ""), barrier);
        assert_eq!(refused(Verb::Scan, "Ring"), "one of dissemination, ring is expected");
        for text in ["bruck:", "bruck:k", "bruck:ports=2", "bruck:k=2,"] {
            assert!(refused(Verb::Allgather, text).starts_with("options are k=, radix= and segments="), "{text}");
        }
        for text in ["bruck:k=0", "bruck:k=17", "bruck:k=", "bruck:k=+1", "bruck:k=-1", "bruck:k=99999999999"] {
            assert_eq!(refused(Verb::Allgather, text), "k= is a number from 1 to 16", "{text}");
        }
        assert_eq!(refused(Verb::Gather, "knomial:radix=1"), "radix= is a number from 2 to 17");
        assert_eq!(refused(Verb::Gather, "knomial:segments=0"), "segments= is a number from 1 to 4096");
        assert_eq!(refused(Verb::Gather, "knomial:k=2,k=2"), "k= is given twice");
        let radix = "radix= is for knomial: other algorithms count in base k + 1";
        assert_eq!(refused(Verb::Gather, "direct:radix=3"), radix);
    }

    #[test]
    fn overrides_are_used_where_they_fit() {
        let tuning = tuned(Verb::Allgather, "bruck:k=2,segments=3");
        let decision = tuning.decide(&plan(Verb::Allgather, 20), false, Carrier::Udp).expect("a choice");
        let Choice { algorithm, ports, segments, .. } = decision.choice;
        assert_eq!((algorithm, ports, segments), (Algorithm::Bruck, 2, 3));
        assert_eq!((decision.reason, decision.refused), (Reason::Override, None));
        let other = tuning.decide(&plan(Verb::Alltoall, 20), false, Carrier::Rings).expect("a choice");
        let choice = choose(&plan(Verb::Alltoall, 20), false, &RINGS);
        assert_eq!(other, Decision { choice, reason: Reason::Model, refused: None });
        let ring = tuned(Verb::Reduce, "ring");
        let ordered = Plan { order: Order::Rank, ..plan(Verb::Reduce, 20) };
        let decision = ring.decide(&ordered, false, Carrier::Udp).expect("a choice");
        let choice = choose(&ordered, false, &UDP);
        assert_eq!(decision, Decision { choice, reason: Reason::Model, refused: Some(Refused::Order) });
        let stranger = Plan { rank: Rank(20), ..ordered };
        assert_eq!(ring.choose(&stranger, false, Carrier::Udp), Err(Refused::Rank));
    }

    #[test]
    fn a_table_decides_where_nothing_is_said() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = "unisono tuning 1\nudp reduce 2- 0-999 halving\nudp reduce 2- 1000- ring:k=1\n";
        std::fs::write(file.path(), text).expect("written");
        let path = file.path().to_str().expect("a path");
        let mut tuning = tuned(Verb::Reduce, "knomial:radix=3");
        tuning.open(path).expect("a table");
        let said = |tuning: &Tuning, plan: &Plan, carrier| {
            let decision = tuning.decide(plan, false, carrier).expect("a choice");
            (decision.choice.algorithm, decision.reason)
        };
        let reduce = plan(Verb::Reduce, 20);
        assert_eq!(said(&tuning, &reduce, Carrier::Udp), (Algorithm::Knomial, Reason::Override));
        let measured = Tuning { overrides: Default::default(), ..tuning.clone() };
        assert_eq!(said(&measured, &reduce, Carrier::Udp), (Algorithm::Ring, Reason::Table));
        assert_eq!(said(&measured, &Plan { bytes: 999, ..reduce }, Carrier::Udp), (Algorithm::Halving, Reason::Table));
        // A ring takes no operation that does not commute, and nothing was measured of rings.
        let ordered = Plan { order: Order::Rank, ..reduce };
        assert_eq!(said(&measured, &ordered, Carrier::Udp).1, Reason::Model);
        assert_eq!(said(&measured, &reduce, Carrier::Rings).1, Reason::Model);
        let variables: Vec<_> = tuning.variables().collect();
        assert_eq!(variables, [("REDUCE", "knomial:radix=3".to_owned()), ("TUNING", path.to_owned())]);
    }

    #[test]
    fn what_is_built_in_decides_before_the_model() {
        assert!(Table::read(BUILT_IN).is_ok_and(|table| table != Table::default() && table == *built_in()));
        let mut crowded = Tuning::default();
        crowded.share(4, 2);
        let said = |tuning: &Tuning, plan: &Plan, carrier| {
            let decision = tuning.decide(plan, false, carrier).expect("a choice");
            (decision.choice.algorithm, decision.reason)
        };
        let long = Plan { bytes: 1 << 16, ..plan(Verb::Allreduce, 4) };
        assert_eq!(said(&crowded, &long, Carrier::Udp), (Algorithm::Ring, Reason::BuiltIn));
        // Elsewhere, with a processor for each rank, and in rank order it is not known.
        assert_eq!(said(&crowded, &long, Carrier::Rings).1, Reason::Model);
        assert_eq!(said(&Tuning::default(), &long, Carrier::Udp).1, Reason::Model);
        assert_eq!(said(&crowded, &Plan { order: Order::Rank, ..long }, Carrier::Udp).1, Reason::Model);
        crowded.set(Override::new(Verb::Allreduce, "halving").expect("good"));
        assert_eq!(said(&crowded, &long, Carrier::Udp), (Algorithm::Halving, Reason::Override));
    }

    #[test]
    fn whoever_chooses_otherwise_has_another_digest() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut digests = Vec::new();
        for text in ["unisono tuning 1\nudp reduce 4 0- ring\n", "unisono tuning 1\nudp reduce 4 0- halving\n"] {
            std::fs::write(file.path(), text).expect("written");
            let mut tuning = Tuning::default();
            tuning.open(file.path().to_str().expect("a path")).expect("a table");
            let mut again = tuning.clone();
            assert_eq!(again.digest(), tuning.digest());
            again.set(Override::new(Verb::Scan, "ring").expect("good"));
            digests.extend([tuning.digest(), again.digest()]);
        }
        digests.extend([Tuning::default().digest(), tuned(Verb::Scan, "ring").digest()]);
        let mut crowded = Tuning::default();
        crowded.share(5, 2);
        assert_eq!(crowded.sharing(), 3);
        digests.push(crowded.digest());
        digests.extend([tuned(Verb::Exscan, "ring").digest(), tuned(Verb::Scan, "ring:k=2").digest()]);
        let count = digests.len();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), count);
    }

    proptest! {
        /// Whatever was asked for, what is chosen has a schedule, on every rank the same.
        #[test]
        fn what_is_chosen_has_a_schedule(
            verb in 0..VERBS.len(), algorithm in 0_usize..5, k in 1_u32..=16, segments in 1..=SEGMENTS_MAX,
            size in 1_u32..100, rank in 0_u32..100, root in 0_u32..100, bytes in 0_usize..1 << 24,
            ordered: bool, varying: bool,
        ) {
            let verb = VERBS[verb].0;
            let algorithm = algorithms(verb)[algorithm % algorithms(verb).len()];
            let tuning = tuned(verb, &format!("{}:k={k},segments={segments}", algorithm.name()));
            let order = if ordered { Order::Rank } else { Order::Any };
            let plan = Plan { bytes, order, root: Rank(root % size), ..plan(verb, size) };
            let choice = tuning.choose(&plan, varying, Carrier::Udp).expect("a choice");
            let other = Plan { rank: Rank(rank % size), ..plan };
            prop_assert_eq!(tuning.choose(&other, varying, Carrier::Udp), Ok(choice));
            prop_assert!(Schedule::new(choice.call(&other, varying)).is_ok());
        }

        #[test]
        fn no_text_panics(verb in 0..VERBS.len(), text in "[a-z-]{0,17}(:[a-z=,0-9]{0,20})?") {
            if let Ok(wanted) = Override::new(VERBS[verb].0, &text) {
                prop_assert_eq!(Override::new(VERBS[verb].0, &wanted.to_string()), Ok(wanted));
            }
        }
    }
}
