//! The sources' own examples, computed from their rules: `cases.txt`, one case per paragraph.
//!
//! A paragraph's first line is its specification; its other lines state the sends, targets and contents of every
//! process after each step. A line `slip` names a cell that the source prints differently from its own rule.

use crate::group::Group;
use crate::memory::Value;
use crate::verify::{After, run_until};
use core::fmt::Write;
use unisono_core::collective::CollectiveKind;
use unisono_core::schedule::{Algorithm, BlockBuffer, Spec, Step, StepOperation};

const CASES: &str = include_str!("cases.txt");

/// Steps of one rank before the first message of round `round`, or before the steps after the last message.
fn steps_before(steps: &[Step], round: u32) -> usize {
    let key = |step: &Step| match step.operation {
        StepOperation::Send { key, .. } | StepOperation::Receive { key, .. } => Some(key),
        _ => None,
    };
    match steps.iter().position(|step| key(step).is_some_and(|key| key >= round)) {
        Some(first) => first,
        None if steps.iter().any(|step| key(step).is_some()) => {
            // The copies of the last round, as many as its receives, belong to it.
            let last = steps.iter().filter_map(key).max();
            let messages = steps.iter().rposition(|step| key(step) == last).map_or(0, |i| i + 1);
            let receives = |step: &&Step| matches!(step.operation, StepOperation::Receive { .. }) && key(step) == last;
            let copies = steps.iter().filter(receives).count();
            if steps.len() > messages + copies { messages + copies } else { steps.len() }
        }
        None => steps.len(),
    }
}

fn after(group: &Group, round: u32) -> After {
    let until: Vec<usize> = group.steps.iter().map(|steps| steps_before(steps, round)).collect();
    run_until(group, &group.steps, &until).expect("runs")
}

fn rounds(group: &Group) -> u32 {
    group.plans[0].rounds()
}

/// The targets of each process in a round.
fn targets(group: &Group, rank: usize, round: u32) -> String {
    let to = group.steps[rank].iter().filter_map(|step| match step.operation {
        StepOperation::Send { to, key, .. } if key == round => Some(to.0.to_string()),
        _ => None,
    });
    to.collect::<Vec<_>>().join(" ")
}

/// Source and block, in the papers' notation.
fn cell(value: Option<Value>) -> String {
    match value {
        Some(Value::Own(rank, block, _)) => format!("{rank}{block}"),
        _ => "..".into(),
    }
}

/// Messages, and the output from the process's own block on.
fn allgather(group: &Group, own_first: bool) -> String {
    let mut text = String::new();
    for round in 0..rounds(group) {
        writeln!(text, "step {}", round + 1).expect("text");
        for (rank, memory) in after(group, round + 1).memories.iter().enumerate() {
            let size = group.size() as u32;
            let order = (0..size).map(|b| if own_first { (b + rank as u32) % size } else { b });
            let has = order.filter_map(|block| match memory.read(BlockBuffer::Output, block, 0) {
                Some(Value::Own(of, ..)) => Some(of.to_string()),
                _ => None,
            });
            let has = has.collect::<Vec<_>>().join(" ");
            writeln!(text, "P{rank} to {} has {has}", targets(group, rank, round)).expect("text");
        }
    }
    text
}

/// Block `row` of process `rank` before round `round`.
fn forwarded(group: &Group, round: u32, row: u32, rank: usize) -> String {
    cell(after(group, round).memories[rank].read(BlockBuffer::Scratch, row, 0))
}

/// Process-memory configurations: a row per block, a column per process.
fn alltoall(group: &Group) -> String {
    let mut text = String::new();
    for round in 0..=rounds(group) {
        match round {
            0 => writeln!(text, "phase 1"),
            _ => writeln!(text, "step {}", round - 1),
        }
        .expect("text");
        let after = after(group, round);
        for row in 0..group.size() as u32 {
            let cells = after.memories.iter().map(|memory| cell(memory.read(BlockBuffer::Scratch, row, 0)));
            writeln!(text, "{}", cells.collect::<Vec<_>>().join(" ")).expect("text");
        }
    }
    text
}

fn signals(group: &Group) -> String {
    let mut text = String::new();
    for round in 0..rounds(group) {
        let all = (0..group.size()).map(|rank| format!("{rank}>{}", targets(group, rank, round)));
        writeln!(text, "step {} {}", round + 1, all.collect::<Vec<_>>().join(", ")).expect("text");
    }
    text
}

/// The group of a paragraph's first line: collective, algorithm, processes, ports.
fn parse(line: &str) -> Group {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |i: usize| words[i].parse().unwrap_or_else(|_| panic!("a number in {line:?}"));
    let verb = [
        ("allgather", CollectiveKind::Allgather),
        ("alltoall", CollectiveKind::Alltoall),
        ("barrier", CollectiveKind::Barrier),
    ];
    let algorithm = [
        ("standard-exchange", Algorithm::StandardExchange),
        ("doubling", Algorithm::Doubling),
        ("bruck", Algorithm::Bruck),
        ("dissemination", Algorithm::Dissemination),
    ];
    let verb = verb.iter().find(|known| known.0 == words[0]).expect("a verb").1;
    let algorithm = algorithm.iter().find(|known| known.0 == words[1]).expect("an algorithm").1;
    Group::new(Spec::new(verb, algorithm, number(2), number(4) as u8)).expect("not refused")
}

/// `slip step S row R PX printed A rule B`: S is a step of the alltoall.
fn check_slip(group: &Group, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["slip", "step", step, "row", row, process, "printed", printed, "rule", rule] = words[..] else {
        panic!("no slip: {line:?}");
    };
    let number = |word: &str| word.parse::<u32>().unwrap_or_else(|_| panic!("a number in {line:?}"));
    let rank = number(process.trim_start_matches('P')) as usize;
    assert_eq!(forwarded(group, number(step) + 1, number(row), rank), rule, "{line}");
    assert_ne!(printed, rule, "{line}");
}

#[test]
fn schedules_are_the_examples_of_the_sources() {
    let mut cases = 0;
    for paragraph in CASES.split("\n\n") {
        let lines: Vec<&str> = paragraph.lines().filter(|line| !line.starts_with('#')).collect();
        let Some((first, rest)) = lines.split_first() else { continue };
        let group = parse(first);
        let (slips, shown): (Vec<&str>, Vec<&str>) = rest.iter().partition(|line| line.starts_with("slip"));
        let text = match group.call.collective {
            CollectiveKind::Barrier => signals(&group),
            CollectiveKind::Alltoall => alltoall(&group),
            _ => allgather(&group, group.call.algorithm == Algorithm::Bruck),
        };
        assert_eq!(shown, text.lines().collect::<Vec<_>>(), "{first}\n{text}");
        slips.iter().for_each(|line| check_slip(&group, line));
        cases += 1;
    }
    assert_eq!(cases, 7);
}
