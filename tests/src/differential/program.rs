//! A program: communicators, collectives and messages, drawn from a seed.

use core::ops::Range;

use fastrand::Rng;

use crate::collectives::Collective;

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// `send`.
    Standard,
    /// `synchronous_send`.
    Synchronous,
    /// `immediate_send`.
    Immediate,
    /// `immediate_synchronous_send`.
    ImmediateSynchronous,
}

/// A message; ranks are those of its communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// The communicator.
    pub on: usize,
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// The tag.
    pub tag: u32,
    /// Its length.
    pub bytes: usize,
    /// How it is sent.
    pub mode: SendMode,
}

/// How a rank receives its messages of a communicator in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveMode {
    /// By source and tag.
    Exact,
    /// From any source, by tag.
    AnySource,
    /// By source, with any tag.
    AnyTag,
    /// From any source, with any tag.
    Any,
    /// By matched probes for any source and tag.
    Probe,
}

impl ReceiveMode {
    const ALL: [Self; 5] = [Self::Exact, Self::AnySource, Self::AnyTag, Self::Any, Self::Probe];

    /// Whether a later message of another source could match.
    pub const fn has_any_source(self) -> bool {
        matches!(self, Self::AnySource | Self::Any | Self::Probe)
    }

    /// Whether messages with different tags compete for a receive.
    pub const fn has_any_tag(self) -> bool {
        matches!(self, Self::AnyTag | Self::Any | Self::Probe)
    }
}

/// An immediate collective beside the messages of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overlap {
    /// The communicator.
    pub on: usize,
    /// Which collective.
    pub kind: OverlapKind,
    /// Elements of 4 bytes.
    pub length: usize,
}

/// The collectives that overlap messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverlapKind {
    /// A barrier.
    Barrier,
    /// A broadcast from this rank.
    Broadcast(u32),
    /// A sum at all ranks.
    Allreduce,
    /// An allgather.
    Allgather,
}

/// Something that a round starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// A message.
    Message(Message),
    /// A collective.
    Overlap(Overlap),
}

/// Messages and collectives that overlap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Round {
    /// What each rank starts, in this order.
    pub starts: Vec<Start>,
    /// How a rank receives, by communicator and rank in it.
    pub receives: Vec<(usize, u32, ReceiveMode)>,
    /// The seed of the order in which receives are posted and waited for.
    pub order: u64,
}

impl Round {
    /// How this rank receives on this communicator.
    pub fn receive_mode(&self, on: usize, rank: u32) -> ReceiveMode {
        let found = self.receives.iter().find(|(of, to, _)| (*of, *to) == (on, rank));
        found.map_or(ReceiveMode::Exact, |(.., mode)| *mode)
    }
}

/// One step, taken by the members of its communicators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Splits a communicator.
    Split {
        /// The communicator.
        of: usize,
        /// The color of each member.
        colors: Vec<Option<u32>>,
        /// The key of each member.
        keys: Vec<i32>,
        /// The communicators that this makes, in the order of the colors.
        into: Range<usize>,
    },
    /// A collective in any form.
    Collective {
        /// The communicator.
        on: usize,
        /// The collective.
        what: Collective,
        /// Bytes of the whole vector.
        bytes: usize,
    },
    /// Messages.
    Messages(Round),
}

/// A program of all ranks of a job. Communicator 0 is the World.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Its steps.
    pub steps: Vec<Step>,
    /// The members of each communicator, as ranks of the World.
    pub members: Vec<Vec<u32>>,
}

impl Program {
    /// The program of a seed.
    pub fn draw(seed: u64, ranks: u32, steps: usize) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let mut program = Self { steps: Vec::new(), members: vec![(0..ranks).collect()] };
        let all = Collective::all();
        for _ in 0..steps {
            let on = rng.usize(0..program.members.len());
            let step = match rng.u8(0..10) {
                0 if program.members.len() < 12 => program.split(on, rng),
                0..5 => {
                    let bytes = length(rng) * if rng.bool() { program.members[on].len() } else { 1 };
                    Step::Collective { on, what: all[rng.usize(0..all.len())], bytes }
                }
                _ => Step::Messages(program.round(rng)),
            };
            program.steps.push(step);
        }
        program
    }

    fn split(&mut self, of: usize, rng: &mut Rng) -> Step {
        let parent = &self.members[of];
        let colors: Vec<Option<u32>> = parent.iter().map(|_| Some(rng.u32(0..4)).filter(|color| *color < 3)).collect();
        let keys: Vec<i32> = parent.iter().map(|_| rng.i32(-2..=2)).collect();
        let start = self.members.len();
        let children: Vec<Vec<u32>> = (0..3)
            .filter_map(|color| {
                let mut of_color: Vec<(i32, usize)> =
                    keys.iter().copied().zip(0..).filter(|(_, rank)| colors[*rank] == Some(color)).collect();
                of_color.sort_unstable();
                (!of_color.is_empty()).then(|| of_color.iter().map(|(_, rank)| parent[*rank]).collect())
            })
            .collect();
        self.members.extend(children);
        Step::Split { of, colors, keys, into: start..self.members.len() }
    }

    fn round(&self, rng: &mut Rng) -> Round {
        let used: Vec<usize> = (0..rng.usize(1..=3)).map(|_| rng.usize(0..self.members.len())).collect();
        let mut receives = Vec::new();
        for (on, members) in self.members.iter().enumerate().filter(|(on, _)| used.contains(on)) {
            for rank in 0..members.len() as u32 {
                receives.push((on, rank, ReceiveMode::ALL[rng.usize(0..ReceiveMode::ALL.len())]));
            }
        }
        let mut round = Round { starts: Vec::new(), receives, order: rng.u64(..) };
        for _ in 0..rng.usize(1..30) {
            let on = used[rng.usize(0..used.len())];
            let size = self.members[on].len() as u32;
            let start = if rng.u8(0..8) == 0 {
                Start::Overlap(Overlap { on, kind: overlap_kind(size, rng), length: length(rng) / 4 })
            } else {
                let (from, to) = (rng.u32(0..size), rng.u32(0..size));
                // A rank that probes does so after its own sends: nobody may wait for it before.
                let waits = from != to && round.receive_mode(on, to) != ReceiveMode::Probe;
                let mode = match rng.u8(0..6) {
                    0 if waits => SendMode::Standard,
                    1 if waits => SendMode::Synchronous,
                    2 => SendMode::ImmediateSynchronous,
                    _ => SendMode::Immediate,
                };
                Start::Message(Message { on, from, to, tag: rng.u32(0..3), bytes: length(rng), mode })
            };
            round.starts.push(start);
        }
        round
    }
}

fn overlap_kind(size: u32, rng: &mut Rng) -> OverlapKind {
    match rng.u8(0..4) {
        0 => OverlapKind::Barrier,
        1 => OverlapKind::Broadcast(rng.u32(0..size)),
        2 => OverlapKind::Allreduce,
        _ => OverlapKind::Allgather,
    }
}

/// A length in bytes: often short, about the limits of inline, eager and segmented messages, rarely long.
fn length(rng: &mut Rng) -> usize {
    match rng.u8(0..10) {
        0 => 0,
        1..5 => rng.usize(1..64),
        5..7 => rng.usize(64..2048),
        7..9 => rng.usize(2048..40_000),
        _ => rng.usize(40_000..600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_program() {
        assert_eq!(Program::draw(7, 5, 50), Program::draw(7, 5, 50));
        assert_ne!(Program::draw(7, 5, 50), Program::draw(8, 5, 50));
    }

    #[test]
    fn programs_use_everything() {
        let programs: Vec<Program> = (0..40).map(|seed| Program::draw(seed, 6, 40)).collect();
        let steps = || programs.iter().flat_map(|program| &program.steps);
        let rounds = || steps().filter_map(|step| if let Step::Messages(round) = step { Some(round) } else { None });
        for mode in ReceiveMode::ALL {
            assert!(rounds().any(|round| round.receives.iter().any(|(.., other)| *other == mode)), "{mode:?}");
        }
        let starts = || rounds().flat_map(|round| &round.starts);
        for mode in [SendMode::Standard, SendMode::Synchronous, SendMode::Immediate, SendMode::ImmediateSynchronous] {
            let has_mode = |start: &&Start| matches!(start, Start::Message(message) if message.mode == mode);
            assert!(starts().any(|start| has_mode(&start)), "{mode:?}");
        }
        assert!(starts().any(|start| matches!(start, Start::Overlap(_))));
        for what in Collective::all() {
            assert!(
                steps().any(|step| matches!(step, Step::Collective { what: other, .. } if *other == what)),
                "{what}"
            );
        }
    }
}
