//! Verification of one collective, from its schedules to its result, against the collective's definition.

use crate::dependencies::{is_before, no_race, promised};
use crate::group::{Group, Listed};
use crate::group_steps::{GroupSteps, execute};
use crate::memory::{Combined, Memory, Value};
use std::collections::HashMap;
use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, Order, Poll};
use unisono_core::ids::StepId;
use unisono_core::schedule::{BlockBuffer, Spec, Step, StepOperation};

type Messages = HashMap<(u32, u32, u32), (usize, usize)>;

/// The sends of all ranks, by (sender, receiver, key): each has its own receive, of the same length, on the same port.
pub(crate) fn match_messages(steps: &[Vec<Step>]) -> Result<Messages, String> {
    let (mut sends, mut receives): (Messages, Messages) = Default::default();
    for (rank, steps) in steps.iter().enumerate() {
        for (i, step) in steps.iter().enumerate() {
            let twice = match step.operation {
                StepOperation::Send { to, key, .. } => sends.insert((rank as u32, to.0, key), (rank, i)),
                StepOperation::Receive { of, key, .. } => receives.insert((of.0, rank as u32, key), (rank, i)),
                _ => None,
            };
            if twice.is_some() {
                return Err(format!("rank {rank} uses a key again: {step:?}"));
            }
        }
    }
    for (message, (sender, i)) in &sends {
        let (receiver, j) = receives.get(message).ok_or_else(|| format!("nobody receives {message:?}"))?;
        match (steps[*sender][*i].operation, steps[*receiver][*j].operation) {
            (StepOperation::Send { from, port, .. }, StepOperation::Receive { into, port: other, .. })
                if from.blocks.len() == into.blocks.len() && from.segment == into.segment && port == other => {}
            (send, receive) => return Err(format!("{send:?} from {sender} does not fit {receive:?}")),
        }
    }
    if sends.len() == receives.len() { Ok(sends) } else { Err("a receive that nobody sends".into()) }
}

/// Checks that messages, copies and reductions join blocks of the same size if sizes vary.
fn sizes_agree(group: &Group, steps: &[Vec<Step>], sends: &Messages) -> Result<(), String> {
    if !group.may_vary || group.call.collective == CollectiveKind::Broadcast {
        return Ok(());
    }
    let memories: Vec<Memory> = group.extents.iter().map(Memory::new).collect();
    let (blocks, in_place) = (group.extents[0].blocks, group.call.in_place);
    let classes = |rank: usize, span: unisono_core::schedule::BlockSpan| -> Vec<_> {
        span.blocks.iter().map(|b| memories[rank].buffers.class(span.buffer, b, blocks, in_place)).collect()
    };
    for (rank, steps) in steps.iter().enumerate() {
        for step in steps {
            if let StepOperation::Copy { from, into } | StepOperation::Reduce { from, into, .. } = step.operation
                && classes(rank, from) != classes(rank, into)
            {
                return Err(format!("sizes differ at rank {rank}: {step:?}"));
            }
        }
    }
    for ((of, to, key), (sender, i)) in sends {
        let receive = steps[*to as usize].iter().find_map(|step| match step.operation {
            StepOperation::Receive { of: from, key: other, into, .. } if from.0 == *of && other == *key => Some(into),
            _ => None,
        });
        if let (StepOperation::Send { from, .. }, Some(into)) = (steps[*sender][*i].operation, receive)
            && classes(*sender, from) != classes(*to as usize, into)
        {
            return Err(format!("sizes differ from {of} to {to}: {from:?} {into:?}"));
        }
    }
    Ok(())
}

/// The set of ranks that a rank knows to have entered.
type Known = u64;

/// The group after its steps ran, in one possible order, with sends that complete at once. `no_race` checks that all
/// other orders give the same result, and the tests of `progress` that they complete.
pub(crate) struct After {
    pub(crate) memories: Vec<Memory>,
    pub(crate) combined: Combined,
    pub(crate) known: Vec<Known>,
    /// Steps that each rank completed.
    pub(crate) done: Vec<usize>,
    /// Messages and blocks sent to each rank.
    pub(crate) sent_to: Vec<(u32, u32)>,
}

pub(crate) fn run(group: &Group, steps: &[Vec<Step>]) -> Result<After, String> {
    let after = run_until(group, steps, &vec![usize::MAX; group.size()])?;
    match after.done.iter().zip(steps).position(|(done, steps)| *done < steps.len()) {
        Some(rank) => Err(format!("rank {rank} waits at {:?}", steps[rank][after.done[rank]])),
        None => Ok(after),
    }
}

/// Rank r runs those of its first `until[r]` steps that can run.
pub(crate) fn run_until(group: &Group, steps: &[Vec<Step>], until: &[usize]) -> Result<After, String> {
    let size = group.size();
    let mut after = After {
        memories: group.extents.iter().map(Memory::new).collect(),
        combined: Combined::default(),
        known: vec![0; size],
        done: vec![0; size],
        sent_to: vec![(0, 0); size],
    };
    let mut flying: HashMap<(u32, u32, u32), (Vec<Value>, Known)> = HashMap::new();
    let steps: Vec<&[Step]> = steps.iter().zip(until).map(|(steps, until)| &steps[..steps.len().min(*until)]).collect();
    let mut executors: Vec<_> = steps.iter().map(|steps| Listed::executor(group.call.collective, steps)).collect();
    // Receives that wait for their message.
    let mut waiting: Vec<Vec<(StepId, StepOperation)>> = vec![Vec::new(); size];
    // Only signals are checked for the ranks that have entered.
    let signals =
        matches!(group.call.collective, CollectiveKind::Barrier | CollectiveKind::Reduce | CollectiveKind::Broadcast);
    let promised: Vec<Vec<u64>> = steps.iter().map(|s| if signals { promised(s) } else { Vec::new() }).collect();
    // The ranks known by each receive.
    let mut sent: Vec<Vec<(usize, Known)>> = vec![Vec::new(); size];
    let mut group_steps = GroupSteps::new(steps.iter().copied());
    let mut group_known: HashMap<(usize, usize), Known> = HashMap::new();
    let mut moved = true;
    while moved {
        moved = false;
        for rank in 0..size {
            let memory = &mut after.memories[rank];
            let executor = &mut executors[rank];
            let mut next = core::mem::take(&mut waiting[rank]);
            next.reverse();
            loop {
                // Waiting receives go first.
                let (step, operation) = match next.pop() {
                    Some(waited) => waited,
                    None => match executor.poll() {
                        Poll::Request(step, operation) => (step, operation),
                        _ => break,
                    },
                };
                let i = step.0 as usize;
                let known_before = |sent: &[(usize, Known)]| {
                    let before = sent.iter().filter(|(j, _)| *j < i && is_before(&promised[rank], *j, i));
                    before.fold(1 << rank, |known, (_, more)| known | more)
                };
                match operation {
                    StepOperation::Send { to, key, from, .. } => {
                        let known = known_before(&sent[rank]);
                        flying.insert((rank as u32, to.0, key), (memory.load(from)?, known));
                        let (messages, blocks) = &mut after.sent_to[to.0 as usize];
                        (*messages, *blocks) = (*messages + 1, *blocks + from.blocks.len());
                    }
                    StepOperation::Receive { of, key, into, .. } => {
                        let Some((values, known)) = flying.remove(&(of.0, rank as u32, key)) else {
                            waiting[rank].push((step, operation));
                            continue;
                        };
                        memory.store(into, &values)?;
                        if signals {
                            sent[rank].push((i, known));
                        }
                    }
                    StepOperation::Copy { from, into } => {
                        let values = memory.load(from)?;
                        memory.store(into, &values)?;
                    }
                    StepOperation::Reduce { from, into, fold } => {
                        memory.reduce(&mut after.combined, from, into, fold)?
                    }
                    StepOperation::Group(_) => {
                        group_known.insert((rank, i), known_before(&sent[rank]));
                        group_steps.begin(rank, i);
                        continue;
                    }
                }
                executor.handle_done(step);
                moved = true;
            }
        }
        while let Some(parts) = group_steps.next() {
            execute(&parts, &mut after.memories, &mut after.combined)?;
            let (.., first) = parts[0];
            let known = |rank: &usize, i: &usize| group_known.get(&(*rank, *i)).copied().unwrap_or(0);
            let everybody = parts.iter().fold(0, |all, (rank, i, _)| all | known(rank, i));
            let of_root =
                parts.iter().find(|(.., step)| step.number == step.root).map_or(0, |(rank, i, _)| known(rank, i));
            for (rank, i, step) in &parts {
                let learned = match first.collective {
                    CollectiveKind::Barrier | CollectiveKind::ReduceScatter | CollectiveKind::Allgather => everybody,
                    CollectiveKind::Reduce | CollectiveKind::Gather if step.number == step.root => everybody,
                    CollectiveKind::Broadcast | CollectiveKind::Scatter => of_root,
                    _ => 0,
                };
                if signals {
                    sent[*rank].push((*i, learned));
                }
                executors[*rank].handle_done(StepId(*i as u32));
            }
            moved = true;
        }
    }
    for (rank, sent) in sent.iter().enumerate() {
        after.known[rank] = sent.iter().fold(1 << rank, |known, (_, more)| known | more);
        after.done[rank] = executors[rank].completed() as usize;
    }
    Ok(after)
}

/// Checks the result against the collective's definition.
pub(crate) fn result(group: &Group, after: &After) -> Result<(), String> {
    let Spec { collective: verb, size, root, segments, order, .. } = group.call;
    let everybody: Known = (1 << size) - 1;
    for (rank, known) in after.known.iter().enumerate() {
        let must = match verb {
            CollectiveKind::Barrier => everybody,
            CollectiveKind::Reduce if rank as u32 == root.0 => everybody,
            CollectiveKind::Broadcast => 1 << root.0,
            _ => 0,
        };
        if known & must != must {
            return Err(format!("rank {rank} leaves knowing {known:b}"));
        }
    }
    for (rank, memory) in after.memories.iter().enumerate() {
        let rank = rank as u32;
        for (block, s) in (0..memory.buffers.output).flat_map(|block| (0..segments).map(move |s| (block, s))) {
            let got = memory.read(BlockBuffer::Output, block, s).ok_or("no output")?;
            let of = if verb == CollectiveKind::ReduceScatter { rank } else { block };
            let wrong = || format!("rank {rank} has {got:?} in block {block}.{s}");
            if !verb.combines() {
                let want = match verb {
                    CollectiveKind::Broadcast => Value::Own(root.0, block, s),
                    CollectiveKind::Scatter => Value::Own(root.0, rank, s),
                    CollectiveKind::Alltoall => Value::Own(block, rank, s),
                    _ => Value::Own(block, 0, s),
                };
                if got != want {
                    return Err(wrong());
                }
                continue;
            }
            let last = match verb {
                CollectiveKind::Scan => rank + 1,
                CollectiveKind::Exscan => rank,
                _ => size,
            };
            if last == 0 {
                let before = Memory::new(&group.extents[rank as usize]).read(BlockBuffer::Output, block, s);
                if before != Some(got) {
                    return Err(wrong());
                }
                continue;
            }
            let want: Vec<Value> = (0..last).map(|rank| Value::Own(rank, of, s)).collect();
            let mut operands = Vec::new();
            after.combined.operands(got, &mut operands);
            if order == Order::Any && !matches!(verb, CollectiveKind::Scan | CollectiveKind::Exscan) {
                operands.sort();
            }
            if operands != want {
                return Err(format!("{}: {operands:?}", wrong()));
            }
            if verb == CollectiveKind::Allreduce && after.memories[0].read(BlockBuffer::Output, block, s) != Some(got) {
                return Err(format!("rank {rank} has other bits than rank 0 in block {block}.{s}"));
            }
        }
    }
    Ok(())
}

/// Every check of `steps` that needs no network.
pub(crate) fn verify_steps(group: &Group, steps: &[Vec<Step>]) -> Result<(), String> {
    let sends = match_messages(steps)?;
    sizes_agree(group, steps, &sends)?;
    for (extent, steps) in group.extents.iter().zip(steps) {
        no_race(&Memory::new(extent).buffers, steps)?;
    }
    result(group, &run(group, steps)?)
}

pub(crate) fn verify(group: &Group) -> Result<(), String> {
    verify_steps(group, &group.steps)
}

#[test]
fn dependencies_of_a_schedule_are_transitive_and_end_after_64_steps() {
    let signal = StepOperation::Copy {
        from: unisono_core::schedule::BlockSpan {
            buffer: BlockBuffer::Input,
            blocks: unisono_core::schedule::Blocks::NONE,
            segment: 0,
        },
        into: unisono_core::schedule::BlockSpan {
            buffer: BlockBuffer::Output,
            blocks: unisono_core::schedule::Blocks::NONE,
            segment: 0,
        },
    };
    let steps: Vec<Step> =
        (0..70).map(|i| Step { operation: signal, dependencies: u64::from(i % 2 == 1) << 1 }).collect();
    let promised = promised(&steps);
    assert!(is_before(&promised, 1, 7) && !is_before(&promised, 2, 7) && !is_before(&promised, 1, 6));
    assert!(is_before(&promised, 4, 69) && is_before(&promised, 3, 68) && !is_before(&promised, 6, 69));
}
