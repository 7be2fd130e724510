//! Execution in random order, as dependencies and messages allow: every collective completes, with the same result.

use crate::group::{Group, Listed, calls};
use crate::group_steps::{GroupSteps, Part, execute};
use crate::memory::{Combined, Memory, Value};
use crate::verify::{After, result};
use std::collections::HashMap;
use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, Poll};
use unisono_core::ids::StepId;
use unisono_core::schedule::{Algorithm, Executor, Spec, Step, StepOperation};

/// xorshift.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }
}

/// When a send completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sends {
    /// When its receive has begun: nothing is buffered.
    Taken,
    /// At any time: everything is buffered.
    Buffered,
}

#[derive(Clone)]
enum Event {
    Begin(usize, usize),
    Finish(usize, usize),
    /// Sender, its step, receiver, its step.
    Meet(usize, usize, usize, usize),
    Deliver(usize, usize),
    Group(Vec<Part>),
}

type Key = (u32, u32, u32);

struct World<'g> {
    group: &'g Group,
    sends: Sends,
    memories: Vec<Memory>,
    combined: Combined,
    executors: Vec<Executor<Listed<'g>>>,
    events: Vec<Event>,
    sending: HashMap<Key, (usize, usize)>,
    receiving: HashMap<Key, (usize, usize)>,
    flying: HashMap<Key, Vec<Value>>,
    group_steps: GroupSteps,
}

impl<'g> World<'g> {
    fn new(group: &'g Group, sends: Sends) -> Self {
        let size = group.size();
        let mut world = Self {
            group,
            sends,
            memories: group.extents.iter().map(Memory::new).collect(),
            combined: Combined::default(),
            executors: group.executors(),
            events: Vec::new(),
            sending: HashMap::new(),
            receiving: HashMap::new(),
            flying: HashMap::new(),
            group_steps: GroupSteps::new(group.steps.iter().map(Vec::as_slice)),
        };
        (0..size).for_each(|rank| world.look(rank));
        world
    }

    fn step(&self, rank: usize, i: usize) -> Step {
        self.group.steps[rank][i]
    }

    /// Lists the steps of a rank that may begin now.
    fn look(&mut self, rank: usize) {
        while let Poll::Request(StepId(i), operation) = self.executors[rank].poll() {
            assert_eq!(operation, self.step(rank, i as usize).operation);
            self.events.push(Event::Begin(rank, i as usize));
        }
    }

    fn finish(&mut self, rank: usize, i: usize) {
        self.executors[rank].handle_done(StepId(i as u32));
        self.look(rank);
    }

    fn meet(&mut self, key: Key) {
        if let (Some((sender, i)), Some((receiver, j))) = (self.sending.get(&key), self.receiving.get(&key)) {
            self.events.push(Event::Meet(*sender, *i, *receiver, *j));
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Begin(rank, i) => match self.step(rank, i).operation {
                StepOperation::Send { to, key, .. } => {
                    let key = (rank as u32, to.0, key);
                    self.sending.insert(key, (rank, i));
                    match self.sends {
                        Sends::Taken => self.meet(key),
                        Sends::Buffered => self.events.push(Event::Finish(rank, i)),
                    }
                }
                StepOperation::Receive { of, key, .. } => {
                    let key = (of.0, rank as u32, key);
                    self.receiving.insert(key, (rank, i));
                    match self.sends {
                        Sends::Taken => self.meet(key),
                        Sends::Buffered if self.flying.contains_key(&key) => self.events.push(Event::Deliver(rank, i)),
                        Sends::Buffered => {}
                    }
                }
                StepOperation::Group(_) => {
                    self.group_steps.begin(rank, i);
                    self.events.extend(self.group_steps.next().map(Event::Group));
                }
                StepOperation::Copy { .. } | StepOperation::Reduce { .. } => self.events.push(Event::Finish(rank, i)),
            },
            Event::Finish(rank, i) => {
                match self.step(rank, i).operation {
                    StepOperation::Copy { from, into } => {
                        let values = self.memories[rank].load(from)?;
                        self.memories[rank].store(into, &values)?;
                    }
                    StepOperation::Reduce { from, into, fold } => {
                        self.memories[rank].reduce(&mut self.combined, from, into, fold)?;
                    }
                    StepOperation::Send { to, key, from, .. } => {
                        let key = (rank as u32, to.0, key);
                        self.flying.insert(key, self.memories[rank].load(from)?);
                        if let Some((receiver, j)) = self.receiving.get(&key) {
                            self.events.push(Event::Deliver(*receiver, *j));
                        }
                    }
                    StepOperation::Receive { .. } | StepOperation::Group(_) => {}
                }
                self.finish(rank, i);
            }
            Event::Group(parts) => {
                execute(&parts, &mut self.memories, &mut self.combined)?;
                parts.iter().for_each(|(rank, i, _)| self.finish(*rank, *i));
                // Their next ones may have been begun before.
                self.events.extend(core::iter::from_fn(|| self.group_steps.next()).map(Event::Group));
            }
            Event::Meet(sender, i, receiver, j) => {
                if let (StepOperation::Send { from, .. }, StepOperation::Receive { into, .. }) =
                    (self.step(sender, i).operation, self.step(receiver, j).operation)
                {
                    let values = self.memories[sender].load(from)?;
                    self.memories[receiver].store(into, &values)?;
                }
                self.finish(sender, i);
                self.finish(receiver, j);
            }
            Event::Deliver(rank, i) => {
                if let StepOperation::Receive { of, key, into, .. } = self.step(rank, i).operation {
                    let values = self.flying.remove(&(of.0, rank as u32, key)).ok_or("delivered twice")?;
                    self.memories[rank].store(into, &values)?;
                }
                self.finish(rank, i);
            }
        }
        Ok(())
    }
}

/// Checks that all steps complete, and that the result is correct.
pub(crate) fn ends(group: &Group, sends: Sends, seed: u64) -> Result<(), String> {
    let mut random = Random(seed | 1);
    let mut world = World::new(group, sends);
    while !world.events.is_empty() {
        let next = random.below(world.events.len());
        let event = world.events.swap_remove(next);
        world.happen(event)?;
    }
    let done: Vec<usize> = world.executors.iter().map(|executor| executor.completed() as usize).collect();
    if let Some(rank) = done.iter().zip(&group.steps).position(|(done, steps)| *done < steps.len()) {
        return Err(format!("{sends:?}, seed {seed}: rank {rank} waits at step {}", done[rank]));
    }
    // `verify` checks which ranks are known to have entered; that does not depend on the order.
    let (size, memories, combined) = (group.size(), world.memories, world.combined);
    let after = After { memories, combined, known: vec![u64::MAX; size], done, sent_to: Vec::new() };
    result(group, &after).map_err(|why| format!("{sends:?}, seed {seed}: {why}"))
}

/// Every specification, with one to three segments in turn, or with each.
fn check(sizes: impl Iterator<Item = u32>, all_segments: bool) {
    for (n, call) in (0_u32..).zip(calls(sizes, &[1, 2, 3])) {
        for segments in if all_segments { 1..=3 } else { 1 + n % 3..=1 + n % 3 } {
            let group = Group::new(Spec { segments, ..call }).expect("not refused");
            let sends = if (n / 3 + segments) % 2 == 0 { Sends::Taken } else { Sends::Buffered };
            ends(&group, sends, u64::from(n) + 7).unwrap_or_else(|why| panic!("{:?}: {why}", group.call));
        }
    }
}

#[test]
fn every_schedule_of_up_to_7_ranks_ends_in_any_order() {
    check(1..=7, true);
}

#[test]
fn every_schedule_of_8_to_13_ranks_ends_in_any_order() {
    check(8..=13, false);
}

#[test]
fn every_schedule_of_14_to_17_ranks_ends_in_any_order() {
    check(14..=17, false);
}

/// A few ranks of a long schedule: steps beyond the 64 in progress wait.
#[test]
fn schedules_longer_than_their_window_end_in_any_order() {
    for (n, call) in (0_u64..).zip(calls(40..=40, &[1, 3, 16])) {
        if call.root.0 % 13 == 0 {
            let group = Group::new(Spec { segments: 2, ..call }).expect("not refused");
            let sends = if n % 2 == 0 { Sends::Taken } else { Sends::Buffered };
            ends(&group, sends, n).unwrap_or_else(|why| panic!("{call:?}: {why}"));
        }
    }
}

/// If every rank of a ring first waits for the rank before it, none begins; a step that waits for itself never does.
#[test]
fn schedules_that_cannot_end_are_noticed() {
    let mut group = Group::new(Spec::new(CollectiveKind::Allgather, Algorithm::Ring, 3, 1)).expect("not refused");
    let sends = |step: &&mut Step| matches!(step.operation, StepOperation::Send { key: 0, .. });
    for send in group.steps.iter_mut().flat_map(|steps| steps.iter_mut().filter(sends)) {
        send.dependencies |= 1;
    }
    for sends in [Sends::Taken, Sends::Buffered] {
        let why = ends(&group, sends, 1).expect_err("noticed");
        assert!(why.contains("waits"), "{why}");
    }
}

/// Under `Taken`, a receive that waits for its rank's own send to the same rank is half of a deadlock.
#[test]
fn schedules_that_end_only_with_buffers_are_noticed() {
    let mut group = Group::new(Spec::new(CollectiveKind::Alltoall, Algorithm::Direct, 2, 1)).expect("not refused");
    for steps in &mut group.steps {
        let receive = steps.iter().position(|step| matches!(step.operation, StepOperation::Receive { .. }));
        let receive = receive.expect("a receive");
        steps.swap(receive, receive + 1);
        steps[receive + 1].dependencies |= 1;
    }
    ends(&group, Sends::Buffered, 1).expect("buffers help");
    ends(&group, Sends::Taken, 1).expect_err("noticed");
}
