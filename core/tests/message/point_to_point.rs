//! Random programs on 2 to 4 ranks, with minimal memory, in any interleaving.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use unisono_core::message::point_to_point::{Config, Mode};
use unisono_core::message::{Envelope, Pattern};

use crate::host::{Job, Message, Step, envelope};
use crate::storage::Sizes;

const SHORT: u32 = 8;
const EAGER: u32 = 64;

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![3 => Just(Mode::Standard), 1 => Just(Mode::Synchronous), 1 => Just(Mode::Ready)]
}

/// Empty, short, in a slot, longer than a slot, by rendezvous.
fn bytes() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0_u64, 8, 9, 32, 33, 64, 65, 1 << 33])
}

/// Sender, receiver, context, tag, bytes.
type Sent = (usize, usize, u32, u32, u64, Mode);
/// Whether source and tag are named, bytes of the buffer, and the kind of receive.
type Asked = (bool, bool, u64, u8);

fn message(ranks: usize) -> impl Strategy<Value = (Sent, Asked)> {
    let sent = (0..ranks, 0..ranks, 0..2_u32, 0..3_u32, bytes(), mode());
    let asked = (any::<bool>(), any::<bool>(), prop_oneof![3 => Just(u64::MAX), 1 => bytes()], 0..12_u8);
    (sent, asked)
}

#[derive(Clone, Debug)]
struct Case {
    ranks: usize,
    headers: u16,
    slots: usize,
    pairs: Vec<(Sent, Asked)>,
    /// The order in which receives are posted, relative to the sends.
    shuffle: Vec<usize>,
    choices: Vec<usize>,
}

fn case(most: usize) -> impl Strategy<Value = Case> {
    (2..=4_usize).prop_flat_map(move |ranks| {
        (
            1..=3_u16,
            0..=2_usize,
            prop::collection::vec(message(ranks), 1..most),
            prop::collection::vec(any::<usize>(), most),
            prop::collection::vec(any::<usize>(), 0..most * 12),
        )
            .prop_map(move |(headers, slots, pairs, shuffle, choices)| Case {
                ranks,
                headers,
                slots,
                pairs,
                shuffle,
                choices,
            })
    })
}

impl Case {
    fn job(&self) -> Job {
        let mut programs = vec![Vec::new(); self.ranks];
        let mut messages = Vec::new();
        for (index, ((from, to, context, tag, bytes, mode), _)) in self.pairs.iter().copied().enumerate() {
            messages.push(Message { envelope: envelope(context, from as u32, tag), to, bytes, mode });
            programs[from].push(Step::Send(index));
        }
        // One receive per message, each made to match one of them, in any order between the sends.
        for (index, ((_, to, ..), (sourced, tagged, room, how))) in self.pairs.iter().copied().enumerate() {
            let Envelope { context, source, tag } = messages[index].envelope;
            let pattern = Pattern { context, source: sourced.then_some(source), tag: tagged.then_some(tag) };
            let step = match how {
                0 => Step::Probe(pattern, false),
                1 => Step::Probe(pattern, true),
                2 => Step::Cancel(self.shuffle[index] % 4),
                _ => Step::Receive(pattern, room),
            };
            let program = &mut programs[to];
            program.insert(self.shuffle[index] % (program.len() + 1), step);
        }
        for (index, ((from, ..), (.., how))) in self.pairs.iter().enumerate() {
            let program = &mut programs[*from];
            let sent = program.iter().position(|step| matches!(step, Step::Send(message) if *message == index));
            if let Some(sent) = sent.filter(|_| (3..6).contains(how)) {
                let later = sent + 1 + self.shuffle[index] % (program.len() - sent);
                program.insert(later, Step::CancelSend(index));
            }
        }
        // A probe blocks the operations after it, so probes come last.
        for program in &mut programs {
            program.sort_by_key(|step| matches!(step, Step::Probe(..)));
        }
        let config = Config { headers: self.headers, short: SHORT, slot: 32, seed: 0 };
        let records = self.pairs.len();
        let sizes = Sizes { peers: self.ranks, receives: records, sends: records, slots: self.slots, spare: 1 };
        Job::new(config, sizes, EAGER, messages, programs)
    }
}

fn run(case: &Case) -> Job {
    let mut job = case.job();
    for choice in &case.choices {
        if !job.step(*choice) {
            break;
        }
    }
    job.settle();
    job.judge();
    job
}

/// The generated cases are relevant: with so little memory every kind of header is sent, and most messages are
/// received.
#[test]
fn random_programs_send_every_kind_of_header() {
    let mut runner = TestRunner::deterministic();
    let (mut kinds, mut parts, mut taken, mut cancelled, mut sent) = ([0; 16], 0, 0, 0, 0);
    for _ in 0..300 {
        let case = case(40).new_tree(&mut runner).expect("no case is rejected").current();
        let job = run(&case);
        job.kinds.iter().zip(&mut kinds).for_each(|(here, all)| *all += here);
        parts += job.parts;
        let [here, withdrawn] = job.counts();
        taken += here;
        cancelled += withdrawn;
        sent += case.pairs.len();
    }
    assert!(kinds.iter().all(|count| *count >= 50) && parts >= 50, "{kinds:?}, {parts}");
    assert!(taken * 2 > sent && cancelled >= 200, "{taken} and {cancelled} of {sent}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(debug_assertions) { 3000 } else { 60000 }, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn everything_that_can_complete_does_and_nothing_overtakes(case in case(24)) {
        run(&case);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn long_programs_complete(case in case(400)) {
        run(&case);
    }
}
