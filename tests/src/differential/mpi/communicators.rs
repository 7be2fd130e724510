//! Communicators of a program: those of its splits, made in several ways, and those of single steps.

use core::ops::Range;

use fastrand::Rng;

use super::datatype::list;
use super::script::Script;

/// Communicators of a step.
const HALF: usize = 60;
pub(super) const BRIDGE: usize = 61;
const MERGED: usize = 62;
pub(super) const TOPOLOGY: usize = 63;

/// Makes the communicators of a split: by a split, by groups, or as a duplicate.
pub(super) fn split(
    script: &mut Script,
    rng: &mut Rng,
    members: &[Vec<u32>],
    of: usize,
    colors: &[Option<u32>],
    keys: &[i32],
    into: &Range<usize>,
) {
    let way = rng.u8(0..6);
    for ((rank, color), key) in members[of].iter().zip(colors).zip(keys) {
        let child = into.clone().find(|child| members[*child].contains(rank));
        // A rank without a color takes part, and gets no communicator.
        let made = child.unwrap_or(HALF);
        let of_parent = |rank: &u32| members[of].iter().position(|member| member == rank).unwrap_or(0);
        let group: Vec<usize> = child.map_or(Vec::new(), |child| members[child].iter().map(of_parent).collect());
        match (way, color) {
            (0, _) => script.line(*rank, format!("create {of} {made} {}{}", group.len(), list(&group))),
            (1, Some(color)) => {
                script.line(*rank, format!("create_group {of} {made} {color} {}{}", group.len(), list(&group)));
            }
            (1, None) => {}
            (2 | 3, Some(_)) => {
                script.line(*rank, format!("split {of} {HALF} {} {key}", color.map_or(-1, i64::from)));
                script.line(*rank, format!("{} {HALF} {made}", if way == 2 { "dup" } else { "idup" }));
                script.line(*rank, format!("disconnect {HALF}"));
            }
            _ => script.line(*rank, format!("split {of} {made} {} {key}", color.map_or(-1, i64::from))),
        }
        if let Some(child) = child {
            script.line(*rank, format!("members {child}"));
            script.expect(*rank, format!("M{}", list(&members[child])));
        }
    }
}

/// Divides the members of a communicator into two groups and connects them. Returns the groups.
pub(super) fn bridge(script: &mut Script, rng: &mut Rng, of: usize, members: &[u32]) -> [Vec<u32>; 2] {
    let mut sides: Vec<bool> = members.iter().map(|_| rng.bool()).collect();
    // Neither is empty.
    sides[0] = false;
    sides[members.len() - 1] = true;
    let group = |side: bool| members.iter().zip(&sides).filter(move |(_, of)| **of == side).map(|(rank, _)| *rank);
    let groups = [group(false).collect::<Vec<_>>(), group(true).collect()];
    let leader = |side: bool| sides.iter().position(|of| *of == side).unwrap_or(0);
    let tag = rng.u8(..);
    for (rank, side) in members.iter().zip(&sides) {
        script.line(*rank, format!("split {of} {HALF} {} 0", u8::from(*side)));
        script.line(*rank, format!("bridge {of} {BRIDGE} {HALF} {} {tag}", leader(!side)));
        script.line(*rank, format!("members {BRIDGE}"));
        let [own, other] = [usize::from(*side), usize::from(!side)];
        script.expect(*rank, format!("M{}", list(&groups[own])));
        script.expect(*rank, format!("N{}", list(&groups[other])));
    }
    groups
}

/// Merges the two groups and frees the communicators.
pub(super) fn merge(script: &mut Script, rng: &mut Rng, groups: &[Vec<u32>; 2]) {
    let high = rng.usize(0..2);
    for (side, group) in groups.iter().enumerate() {
        for rank in group {
            script.line(*rank, format!("merge {BRIDGE} {MERGED} {}", u8::from(side == high)));
            script.line(*rank, format!("members {MERGED}"));
            script.expect(*rank, format!("M{}{}", list(&groups[1 - high]), list(&groups[high])));
            for made in [MERGED, BRIDGE, HALF] {
                script.line(*rank, format!("disconnect {made}"));
            }
        }
    }
}

/// The ranks that each rank of a topology sends to, and those that it receives from. None: nobody.
#[derive(Debug)]
pub(super) struct Neighbours {
    pub(super) out: Vec<Vec<Option<usize>>>,
    pub(super) from: Vec<Vec<Option<usize>>>,
}

/// Makes a topology of all ranks of a communicator, or of the first of them. Returns its neighbours.
pub(super) fn topology(script: &mut Script, rng: &mut Rng, of: usize, members: &[u32]) -> Neighbours {
    match rng.u8(0..3) {
        0 => cartesian(script, rng, of, members),
        1 => graph(script, rng, of, members),
        _ => distributed(script, rng, of, members),
    }
}

fn cartesian(script: &mut Script, rng: &mut Rng, of: usize, members: &[u32]) -> Neighbours {
    let first = rng.usize(1..=members.len());
    let dimensions = [first, rng.usize(1..=members.len() / first)];
    // Two blocks of one neighbour would have no agreed order.
    let periods = dimensions.map(|size| size > 2 && rng.bool());
    for rank in members {
        let flags = periods.map(u8::from);
        script.line(*rank, format!("cartesian {of} {TOPOLOGY} 2{}{}", list(&dimensions), list(&flags)));
    }
    let all = dimensions[0] * dimensions[1];
    let neighbours = |rank: usize| {
        let at = [rank / dimensions[1], rank % dimensions[1]];
        let mut found = Vec::new();
        for dimension in 0..2 {
            for step in [-1_isize, 1] {
                let size = dimensions[dimension] as isize;
                let moved = at[dimension] as isize + step;
                let inside = periods[dimension] || (0..size).contains(&moved);
                let mut there = at;
                there[dimension] = moved.rem_euclid(size).unsigned_abs();
                found.push(inside.then_some(there[0] * dimensions[1] + there[1]));
            }
        }
        found
    };
    let out: Vec<_> = (0..all).map(neighbours).collect();
    Neighbours { from: out.clone(), out }
}

fn graph(script: &mut Script, rng: &mut Rng, of: usize, members: &[u32]) -> Neighbours {
    let all = rng.usize(1..=members.len());
    let mut edges = vec![Vec::new(); all];
    for from in 0..all {
        for to in from + 1..all {
            if rng.bool() {
                edges[from].push(to);
                edges[to].push(from);
            }
        }
    }
    edges.iter_mut().for_each(|of| rng.shuffle(of));
    let ends: Vec<usize> = edges
        .iter()
        .scan(0, |end, of| {
            *end += of.len();
            Some(*end)
        })
        .collect();
    let flat = edges.concat();
    for rank in members {
        let text = format!("graph {of} {TOPOLOGY} {all}{} {}{}", list(&ends), flat.len(), list(&flat));
        script.line(*rank, text);
    }
    let out: Vec<Vec<_>> = edges.iter().map(|of| of.iter().map(|to| Some(*to)).collect()).collect();
    Neighbours { from: out.clone(), out }
}

fn distributed(script: &mut Script, rng: &mut Rng, of: usize, members: &[u32]) -> Neighbours {
    let all = members.len();
    let (mut out, mut from) = (vec![Vec::new(); all], vec![Vec::new(); all]);
    for (sender, receivers) in out.iter_mut().enumerate() {
        for (receiver, senders) in from.iter_mut().enumerate() {
            if rng.u8(0..3) == 0 {
                receivers.push(receiver);
                senders.push(sender);
            }
        }
    }
    for (rank, member) in members.iter().enumerate() {
        rng.shuffle(&mut out[rank]);
        rng.shuffle(&mut from[rank]);
        let (from, out) = (&from[rank], &out[rank]);
        let text = format!("{}{} {}{}", from.len(), list(from), out.len(), list(out));
        script.line(*member, format!("distributed {of} {TOPOLOGY} {text}"));
    }
    let known = |lists: Vec<Vec<usize>>| lists.into_iter().map(|of| of.into_iter().map(Some).collect()).collect();
    Neighbours { out: known(out), from: known(from) }
}
