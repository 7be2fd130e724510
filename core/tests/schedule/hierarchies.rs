//! Schedules over nested subgroups against the collectives' definitions: all groups of few ranks, and drawn groups of
//! more.
//!
//! `UNISONO_TEST_SEED` draws others; a failure prints the groups and the seed.

use crate::bounds::scratch;
use crate::clock::{Machine, run};
use crate::group::{Group, orders};
use crate::hockney::time;
use crate::progress::{Random, Sends, ends};
use crate::verify::verify;
use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
use unisono_core::ids::Rank;
use unisono_core::schedule::{
    Algorithm, BlockSpan, GroupLevels, GroupStep, HierarchicalPlan, Hierarchy, HierarchyOptions, Leaders, LinkModel,
    LowerTrees, Schedule, Spec, Step, StepOperation, Unsupported, choose,
};

const LOWER: LowerTrees = LowerTrees { radix: 2, ports: 1 };

/// The group of each rank, by grouping, innermost first.
#[derive(Clone, Debug)]
struct Levels(Vec<Vec<u32>>);

impl Levels {
    /// One grouping.
    fn two(groups: Vec<u32>) -> Self {
        Self(vec![groups])
    }

    fn hierarchy(&self) -> Hierarchy<Vec<u32>> {
        let Self(groupings) = self;
        let table = vec![0; Hierarchy::<Vec<u32>>::table_len(self.size() as usize, groupings.len())];
        let groupings: Vec<&[u32]> = groupings.iter().map(Vec::as_slice).collect();
        Hierarchy::new(&groupings, table).expect("a table of that length")
    }

    /// As [`hierarchy`](Self::hierarchy), with its table there.
    fn hierarchy_in<'t>(&self, table: &'t mut Vec<u32>) -> Hierarchy<&'t [u32]> {
        self.hierarchy().map(move |words| {
            *table = words;
            &table[..]
        })
    }

    fn size(&self) -> u32 {
        self.0[0].len() as u32
    }
}

/// All partitions of `size` ranks, as restricted growth strings.
fn partitions(size: usize) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    for _ in 0..size {
        all = all
            .into_iter()
            .flat_map(|groups: Vec<u32>| {
                let next = groups.iter().max().map_or(0, |last| last + 1);
                (0..=next).map(move |group| groups.iter().copied().chain([group]).collect())
            })
            .collect();
    }
    all
}

/// Whether ranks that share a group of `inner` share one of `outer`.
fn is_nested(inner: &[u32], outer: &[u32]) -> bool {
    (0..inner.len()).all(|a| (0..a).all(|b| inner[a] != inner[b] || outer[a] == outer[b]))
}

/// All nested groups of `size` ranks on up to `most` levels.
fn all_levels(size: usize, most: usize) -> Vec<Levels> {
    let mut last: Vec<Vec<Vec<u32>>> = partitions(size).into_iter().map(|groups| vec![groups]).collect();
    let mut all = last.clone();
    for _ in 2..most {
        let further = |levels: &Vec<Vec<u32>>| {
            let outer = partitions(size).into_iter().filter(|outer| is_nested(levels.last().expect("one"), outer));
            outer.map(|outer| levels.iter().cloned().chain([outer]).collect()).collect::<Vec<_>>()
        };
        last = last.iter().flat_map(further).collect();
        all.extend_from_slice(&last);
    }
    all.into_iter().map(Levels).collect()
}

/// Draws groups of any sizes, adjacent ranks or any, on up to six levels.
fn draw(random: &mut Random, size: usize) -> Levels {
    let groupings = [1, 1, 2, 2, 3, 4, 5][random.below(7)];
    // The outermost first.
    let most: Vec<usize> = (0..groupings).map(|i| 1 + random.below(if i == 0 { size } else { 4 })).rev().collect();
    let mut groups: Vec<Vec<u32>> =
        (0..size).map(|_| most.iter().map(|most| random.below(*most) as u32).collect()).collect();
    if random.below(3) != 0 {
        groups.sort_unstable();
    }
    Levels((0..groupings).rev().map(|i| groups.iter().map(|groups| groups[i]).collect()).collect())
}

/// Whether a call's blocks can go down the levels in parts.
fn has_parts(call: &Spec) -> bool {
    match call.collective {
        CollectiveKind::Allgather => true,
        CollectiveKind::Broadcast => matches!(call.algorithm, Algorithm::Bruck | Algorithm::Ring),
        _ => false,
    }
}

/// Whether every rank of a group can lead a part.
fn has_leaders(call: &Spec) -> bool {
    matches!(call.collective, CollectiveKind::Broadcast | CollectiveKind::Reduce | CollectiveKind::Allreduce)
}

/// Draws several groups of one size, with smaller groups in them or not: adjacent ranks or any.
fn draw_of_one_size(random: &mut Random) -> Levels {
    let (each, groups) = (2 + random.below(7), 2 + random.below(3));
    let mut outer: Vec<u32> = (0..groups as u32).flat_map(|group| vec![group; each]).collect();
    if random.below(2) == 0 {
        (1..outer.len()).rev().for_each(|last| outer.swap(last, random.below(last + 1)));
    }
    let inner = outer.iter().map(|group| group * 2 + random.below(2) as u32).collect();
    if random.below(2) == 0 { Levels(vec![inner, outer]) } else { Levels::two(outer) }
}

fn check(levels: &Levels, call: Spec, lower: LowerTrees, seed: u64) -> Result<(), Unsupported> {
    check_options(levels, call, lower.into(), seed)?;
    if has_parts(&call) {
        check_options(levels, call, HierarchyOptions { in_parts: true, ..lower.into() }, seed)?;
    }
    if has_leaders(&call) && levels.hierarchy().ranks_of_each_group().is_some() {
        check_options(levels, call, HierarchyOptions { leaders: Leaders::All, ..lower.into() }, seed)?;
    }
    Ok(())
}

fn check_options(levels: &Levels, call: Spec, options: HierarchyOptions, seed: u64) -> Result<(), Unsupported> {
    let mut table = Vec::new();
    let groups = levels.hierarchy_in(&mut table);
    check_group(levels, &Group::nested(call, options, groups, |_| GroupLevels::NONE)?, options, seed);
    if call.can_have_group_steps() {
        // All subgroups of all levels or of the innermost one, or two of three.
        let Levels(groupings) = levels;
        let has_steps = |rank: u32| {
            let of = |level: u32, group: u32| match seed % 4 {
                0 | 2 => !(u64::from(group) + seed).is_multiple_of(3),
                1 => true,
                _ => level == 0,
            };
            let path = (0..).zip(groupings).filter(|(level, groups)| of(*level, groups[rank as usize]));
            let below = path.fold(GroupLevels::NONE, |levels, (level, _)| levels.with(level));
            if of(groups.levels() - 1, 0) { below.with(groups.levels() - 1) } else { below }
        };
        check_group(levels, &Group::nested(call, options, groups, has_steps)?, options, seed);
    }
    Ok(())
}

fn check_group(levels: &Levels, group: &Group, lower: HierarchyOptions, seed: u64) {
    let call = group.call;
    verify(group).unwrap_or_else(|why| panic!("seed {seed}, {levels:?} {call:?} {lower:?}: {why}"));
    for (extent, steps) in group.extents.iter().zip(&group.steps) {
        let used = scratch(steps);
        assert!(used <= extent.scratch, "{levels:?} {call:?}: {used} blocks of scratch, not {}", extent.scratch);
    }
    let sends = if seed.is_multiple_of(2) { Sends::Taken } else { Sends::Buffered };
    ends(group, sends, seed).unwrap_or_else(|why| panic!("{levels:?} {call:?} {lower:?}: {why}"));
}

fn kinds() -> impl Iterator<Item = (CollectiveKind, Algorithm)> {
    CollectiveKind::ALL.iter().flat_map(|kind| Algorithm::ALL.map(|algorithm| (*kind, algorithm)))
}

fn exhaust(size: usize, most_levels: usize, segments: u32) {
    let mut checked = 0;
    for levels in all_levels(size, most_levels) {
        for (kind, algorithm) in kinds() {
            let base = Spec { segments, ..Spec::new(kind, algorithm, size as u32, 1) };
            for root in 0..if kind.is_rooted() { size as u32 } else { 1 } {
                for order in orders(kind).iter().filter(|order| **order != Order::Fixed) {
                    for in_place in [false, true] {
                        let call = Spec { root: Rank(root), order: *order, in_place, ..base };
                        checked += u32::from(check(&levels, call, LOWER, 1 + u64::from(checked)).is_ok());
                    }
                }
            }
        }
    }
    println!("{size} ranks, {segments} segments: {checked} schedules over subgroups");
    assert!(checked > 0);
}

#[test]
fn every_hierarchy_of_up_to_3_ranks_gives_what_its_collective_means() {
    for (size, segments) in [(1, 1), (1, 2), (2, 1), (2, 3), (3, 1), (3, 2)] {
        exhaust(size, 4, segments);
    }
}

#[test]
fn every_hierarchy_of_4_ranks_gives_what_its_collective_means() {
    exhaust(4, 3, 1);
}

/// Draws root, order, ports and the rest of a call.
fn draw_call(random: &mut Random, call: Spec) -> (Spec, LowerTrees) {
    let ports = 1 + random.below(3) as u8;
    let lower = LowerTrees { radix: 2 + random.below(3) as u8, ports: 1 + random.below(2) as u8 };
    let call = Spec {
        root: Rank(random.below(call.size as usize) as u32),
        order: if random.below(2) == 0 { Order::Any } else { Order::Rank },
        in_place: random.below(2) == 0,
        segments: 1 + random.below(2) as u32,
        ..Spec::new(call.collective, call.algorithm, call.size, ports)
    };
    let is_known = orders(call.collective).contains(&call.order);
    (if is_known { call } else { Spec { order: Order::Any, ..call } }, lower)
}

/// Each hierarchy with every collective and algorithm, and a drawn call.
fn drawn(hierarchies: u64, part: u64) {
    let seed = std::env::var("UNISONO_TEST_SEED").map_or(33, |seed| seed.parse().expect("a number"));
    let mut checked = 0;
    for number in 0..hierarchies {
        let seed = (seed * 31 + part) * 1_000_003 + number;
        let mut random = Random::new(seed);
        let levels = draw(&mut random, 1 + random_size(part, number));
        for (kind, algorithm) in kinds() {
            let (call, lower) = draw_call(&mut random, Spec::new(kind, algorithm, levels.size(), 1));
            checked += u32::from(check(&levels, call, lower, seed).is_ok());
        }
    }
    println!("seed {seed}, part {part}: {hierarchies} hierarchies, {checked} schedules over subgroups");
    assert!(checked as u64 > 10 * hierarchies);
}

/// Every rank of each group leads a part, over 125 drawn hierarchies of groups of one size.
#[test]
fn drawn_hierarchies_with_all_ranks_as_leaders_give_what_their_collectives_mean() {
    let seed = std::env::var("UNISONO_TEST_SEED").map_or(33, |seed| seed.parse().expect("a number"));
    let (mut checked, mut with_steps) = (0, 0);
    for number in 0..125 {
        let seed = (seed * 31 + 4) * 1_000_003 + number;
        let mut random = Random::new(seed);
        let levels = draw_of_one_size(&mut random);
        for (kind, algorithm) in kinds() {
            let (call, lower) = draw_call(&mut random, Spec::new(kind, algorithm, levels.size(), 1));
            let options = HierarchyOptions { leaders: Leaders::All, ..lower.into() };
            if has_leaders(&call) {
                let is_checked = check_options(&levels, call, options, seed).is_ok();
                checked += u32::from(is_checked);
                with_steps += u32::from(is_checked && !part_steps(&levels, call, options).is_empty());
            }
        }
    }
    println!("seed {seed}: {checked} schedules with all ranks as leaders, of {with_steps} in steps of groups");
    assert!(checked > 500 && with_steps > 150);
}

/// The steps of a rank's group that scatter or collect parts: collective, number of the rank, blocks of a part.
fn part_steps(levels: &Levels, call: Spec, options: HierarchyOptions) -> Vec<(CollectiveKind, u32, u32)> {
    let plan = HierarchicalPlan::with_group_steps(call, options, levels.hierarchy(), GroupLevels::INNERMOST);
    let plan = plan.expect("a schedule");
    let steps = (0..plan.steps()).filter_map(|i| match plan.step(i)?.operation {
        StepOperation::Group(GroupStep { collective, number, each, .. }) => Some((collective, number, each)),
        _ => None,
    });
    steps.collect()
}

/// A reduction scatters in each group, a broadcast in the root's; a reduce collects in the root's group, others in each.
/// Smaller groups within them, and segments, use messages.
#[test]
fn groups_scatter_and_collect_the_parts_of_all_leaders() {
    use CollectiveKind::{Allgather, Allreduce, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    let levels = Levels::two((0..12).map(|rank| rank / 4).collect());
    let options = HierarchyOptions { leaders: Leaders::All, ..LOWER.into() };
    let of = |collective, algorithm, rank| {
        let call = Spec { root: Rank(5), rank: Rank(rank), ..Spec::new(collective, algorithm, 12, 1) };
        part_steps(&levels, call, options)
    };
    for (rank, number) in [(2, 2), (5, 1), (6, 2), (9, 1)] {
        let in_ring = [(ReduceScatter, number, 3), (Allgather, number, 3)];
        assert_eq!(of(Allreduce, Algorithm::Ring, rank), in_ring);
        let is_of_root = rank / 4 == 1;
        let (up, down) = ((ReduceScatter, number, 1), (Gather, number, 1));
        assert_eq!(of(Reduce, Algorithm::Knomial, rank), if is_of_root { vec![up, down] } else { vec![up] });
        let (up, down) = ((Scatter, number, 1), (Allgather, number, 1));
        assert_eq!(of(Broadcast, Algorithm::Knomial, rank), if is_of_root { vec![up, down] } else { vec![down] });
    }
    let broadcast = Spec::new(Broadcast, Algorithm::Knomial, 12, 1);
    assert_eq!(part_steps(&levels, Spec { segments: 2, ..broadcast }, options), []);
    let nested = Levels([2, 4].map(|size| (0..12).map(|rank| rank / size).collect()).to_vec());
    assert_eq!(part_steps(&nested, broadcast, options), []);
}

/// All of 1 to 24 ranks in turn.
fn random_size(part: u64, number: u64) -> usize {
    ((number * 5 + part) % 24) as usize
}

#[test]
fn drawn_hierarchies_give_what_their_collectives_mean_1() {
    drawn(125, 0);
}

#[test]
fn drawn_hierarchies_give_what_their_collectives_mean_2() {
    drawn(125, 1);
}

#[test]
fn drawn_hierarchies_give_what_their_collectives_mean_3() {
    drawn(125, 2);
}

#[test]
fn drawn_hierarchies_give_what_their_collectives_mean_4() {
    drawn(125, 3);
}

/// The schedule of one rank over adjacent groups of `size` ranks.
fn adjacent(call: Spec, size: u32) -> Result<Vec<Step>, Unsupported> {
    let levels = Levels::two((0..call.size).map(|rank| rank / size).collect());
    let plan = HierarchicalPlan::new(call, LOWER, levels.hierarchy())?;
    Ok((0..plan.steps()).map(|i| plan.step(i).expect("a step")).collect())
}

/// A leader that forwards to other leaders and into its group waits only for its own message.
#[test]
fn levels_of_a_broadcast_are_joined_by_the_message_that_is_forwarded() {
    let base = Spec::new(CollectiveKind::Broadcast, Algorithm::Knomial, 16, 1);
    let steps = adjacent(Spec { rank: Rank(8), ..base }, 4).expect("a schedule");
    let into = |step: &Step| match step.operation {
        StepOperation::Send { to, .. } => Some((to.0, step.dependencies)),
        _ => None,
    };
    assert!(matches!(steps[0].operation, StepOperation::Receive { of: Rank(0), .. }));
    assert_eq!(steps[1..].iter().map(into).collect::<Vec<_>>(), [Some((12, 1)), Some((10, 2)), Some((9, 4))]);
}

/// A broadcast among the leaders by other means replaces exactly the messages between them.
#[test]
fn steps_of_the_leaders_are_those_between_leaders() {
    for (algorithm, segments) in [(Algorithm::Knomial, 1), (Algorithm::Ring, 3), (Algorithm::Bruck, 2)] {
        for (root, rank) in (0..12).flat_map(|root| (0..12).map(move |rank| (Rank(root), Rank(rank)))) {
            let base = Spec::new(CollectiveKind::Broadcast, algorithm, 12, 1);
            let levels = Levels::two((0..12).map(|rank| rank / 3).collect());
            let groups = levels.hierarchy();
            let leaders: Vec<Rank> = groups.top_leaders(root).collect();
            assert!(leaders.len() == 4 && leaders.contains(&root));
            let plan = HierarchicalPlan::new(Spec { rank, root, segments, ..base }, LOWER, groups).expect("a schedule");
            for i in 0..plan.steps() {
                let partner = match plan.step(i).expect("a step").operation {
                    StepOperation::Send { to, .. } => Some(to),
                    StepOperation::Receive { of, .. } => Some(of),
                    _ => None,
                };
                let is_between = leaders.contains(&rank) && partner.is_none_or(|partner| leaders.contains(&partner));
                assert_eq!(plan.is_of_leaders(i), is_between, "step {i} of rank {} with root {}", rank.0, root.0);
            }
            assert!(!plan.is_of_leaders(plan.steps()));
        }
    }
}

/// Only leaders exchange messages with other groups: as many as their collective has.
#[test]
fn messages_between_groups_are_those_of_the_leaders() {
    let crossing = |collective, algorithm| {
        let base = Spec::new(collective, algorithm, 12, 1);
        let crossing = (0..12).flat_map(|rank| {
            let steps = adjacent(Spec { rank: Rank(rank), ..base }, 3).expect("a schedule");
            steps.into_iter().filter_map(move |step| match step.operation {
                StepOperation::Send { to, .. } if to.0 / 3 != rank / 3 => Some((rank, to.0)),
                _ => None,
            })
        });
        let mut crossing: Vec<_> = crossing.collect();
        crossing.sort_unstable();
        crossing
    };
    let exchanged = crossing(CollectiveKind::Allreduce, Algorithm::Doubling);
    assert_eq!(exchanged, [(0, 3), (0, 6), (3, 0), (3, 9), (6, 0), (6, 9), (9, 3), (9, 6)]);
    for collective in [CollectiveKind::Scan, CollectiveKind::Exscan] {
        assert_eq!(crossing(collective, Algorithm::Dissemination), [(0, 3), (0, 6), (3, 6), (3, 9), (6, 9)]);
        assert_eq!(crossing(collective, Algorithm::Ring), [(0, 3), (3, 6), (6, 9)]);
    }
}

/// With all ranks as leaders the i-th ranks of the groups exchange the i-th part of the vector, which has as many blocks as
/// there are ranks in a group.
#[test]
fn all_leaders_send_their_parts_between_groups() {
    let levels = Levels::two((0..12).map(|rank| rank / 4).collect());
    let options = HierarchyOptions { leaders: Leaders::All, ..LOWER.into() };
    for (collective, algorithm, order, blocks) in [
        (CollectiveKind::Allreduce, Algorithm::Knomial, Order::Rank, 4),
        (CollectiveKind::Allreduce, Algorithm::Ring, Order::Any, 12),
        (CollectiveKind::Reduce, Algorithm::Knomial, Order::Any, 4),
        (CollectiveKind::Broadcast, Algorithm::Knomial, Order::Any, 4),
    ] {
        let call = Spec { order, root: Rank(5), ..Spec::new(collective, algorithm, 12, 1) };
        let mut sent = vec![0; 12];
        for rank in (0..12).map(Rank) {
            let plan = HierarchicalPlan::new(Spec { rank, ..call }, options, levels.hierarchy()).expect("a schedule");
            assert_eq!(plan.blocks(), blocks, "{collective:?}");
            for i in 0..plan.steps() {
                if let StepOperation::Send { to, from, .. } = plan.step(i).expect("a step").operation
                    && to.0 / 4 != rank.0 / 4
                {
                    assert_eq!(to.0 % 4, rank.0 % 4, "the ranks with the same number in their groups");
                    sent[rank.0 as usize] += from.blocks.len();
                }
            }
        }
        let leaves: Vec<u32> = sent.chunks(4).map(|group| group.iter().sum::<u32>()).collect();
        assert!(sent.chunks(4).all(|group| group.iter().all(|blocks| *blocks == group[0])), "{collective:?}: {sent:?}");
        // As much as one leader of each group sends: the tree's inner leaders and the root twice, a ring its share.
        let whole = |leaders: [u32; 3]| leaders.map(|vectors| vectors * blocks).to_vec();
        match (collective, algorithm) {
            (CollectiveKind::Allreduce, Algorithm::Ring) => assert_eq!(leaves, [16; 3]),
            (CollectiveKind::Allreduce, _) => assert_eq!(leaves, whole([2, 1, 1])),
            (CollectiveKind::Broadcast, _) => assert_eq!(leaves, whole([0, 2, 0])),
            _ => assert_eq!(leaves, whole([1, 0, 1])),
        }
    }
}

/// In parts, a leader sends its group's blocks down at once, and those of each message as soon as it has arrived; the others
/// of the group know the parts.
#[test]
fn parts_of_an_allgather_go_down_as_they_arrive() {
    let levels = Levels::two((0..8).map(|rank| rank / 2).collect());
    let options = HierarchyOptions { in_parts: true, ..LOWER.into() };
    let steps = |rank: u32| {
        let call = Spec { rank: Rank(rank), ..Spec::new(CollectiveKind::Allgather, Algorithm::Doubling, 8, 1) };
        let plan = HierarchicalPlan::new(call, options, levels.hierarchy()).expect("a schedule");
        (0..plan.steps()).map(|i| plan.step(i).expect("a step")).collect::<Vec<_>>()
    };
    let range = |span: BlockSpan| span.blocks.runs().collect::<Vec<_>>();
    let leader = steps(2);
    let mut down = Vec::new();
    for (i, step) in leader.iter().enumerate() {
        let StepOperation::Send { to: Rank(3), from, .. } = step.operation else { continue };
        let before = (0..i).filter(|earlier| step.dependencies >> (i - 1 - earlier) & 1 != 0);
        let awaited: Vec<u32> = before
            .filter_map(|earlier| match leader[earlier].operation {
                StepOperation::Receive { of, .. } => Some(of.0),
                _ => None,
            })
            .collect();
        down.push((range(from), awaited));
    }
    assert_eq!(down, [(vec![(2, 2)], vec![3]), (vec![(0, 2)], vec![0]), (vec![(4, 4)], vec![6])]);
    let received = steps(3).into_iter().filter_map(|step| match step.operation {
        StepOperation::Receive { of: Rank(2), into, .. } => Some(range(into)),
        _ => None,
    });
    assert_eq!(received.collect::<Vec<_>>(), [[(2, 2)], [(0, 2)], [(4, 4)]]);
}

/// If blocks cost nothing, a scan takes the rounds of the reduces up its levels, of the leaders' scan, and of the scans
/// down.
#[test]
fn scans_over_subgroups_take_the_rounds_of_a_tree_up_and_one_down() {
    for (shifts, rounds) in [(&[2][..], 2 + 2 + 2), (&[1], 1 + 3 + 1), (&[3], 3 + 1 + 3), (&[1, 3], 1 + 2 + 1 + 2 + 1)]
    {
        let levels = Levels(shifts.iter().map(|shift| (0..16).map(|rank| rank >> shift).collect()).collect());
        for kind in [CollectiveKind::Scan, CollectiveKind::Exscan] {
            let (mut table, call) = (Vec::new(), Spec::new(kind, Algorithm::Dissemination, 16, 1));
            let group =
                Group::nested(call, LOWER, levels.hierarchy_in(&mut table), |_| GroupLevels::NONE).expect("a schedule");
            assert_eq!(time(&group, 1, 0), rounds, "{kind:?} {levels:?}");
        }
    }
}

#[test]
fn schedules_over_subgroups_that_do_not_exist_are_refused_for_their_reason() {
    let groups = |inner: &[u32], call: Spec, lower: LowerTrees| {
        HierarchicalPlan::new(call, lower, Levels::two(inner.to_vec()).hierarchy()).err()
    };
    let (adjacent, mixed) = ([0, 0, 1, 1], [0, 1, 0, 1]);
    let reduce = Spec::new(CollectiveKind::Reduce, Algorithm::Knomial, 4, 1);
    assert_eq!(groups(&mixed, reduce, LOWER), None);
    assert_eq!(groups(&adjacent, Spec { order: Order::Rank, ..reduce }, LOWER), None);
    assert_eq!(groups(&mixed, Spec { order: Order::Rank, ..reduce }, LOWER), Some(Unsupported::Order));
    assert_eq!(groups(&adjacent, Spec { order: Order::Fixed, ..reduce }, LOWER), Some(Unsupported::Brackets));
    assert_eq!(groups(&adjacent, reduce, LowerTrees { radix: 1, ..LOWER }), Some(Unsupported::Radix));
    assert_eq!(groups(&adjacent, reduce, LowerTrees { ports: 0, ..LOWER }), Some(Unsupported::Ports));
    assert_eq!(groups(&adjacent, Spec { segments: 0, ..reduce }, LOWER), Some(Unsupported::Segments));
    assert_eq!(groups(&adjacent, Spec { segments: u32::MAX, ..reduce }, LOWER), Some(Unsupported::TooLong));
    assert_eq!(groups(&adjacent, Spec { size: 5, ..reduce }, LOWER), Some(Unsupported::Rank));
    assert_eq!(groups(&adjacent, Spec { root: Rank(4), ..reduce }, LOWER), Some(Unsupported::Rank));
    let allgather = Spec { varying: true, ..Spec::new(CollectiveKind::Allgather, Algorithm::Ring, 4, 1) };
    assert_eq!(groups(&adjacent, allgather, LOWER), None);
    assert_eq!(groups(&mixed, allgather, LOWER), Some(Unsupported::Varying));
    let gather = Spec { varying: true, ..Spec::new(CollectiveKind::Gather, Algorithm::Direct, 4, 1) };
    assert_eq!(groups(&adjacent, gather, LOWER), Some(Unsupported::Varying));
    let alltoall = Spec::new(CollectiveKind::Alltoall, Algorithm::Direct, 4, 1);
    assert_eq!(groups(&mixed, alltoall, LOWER), None);
    assert_eq!(groups(&adjacent, Spec { varying: true, ..alltoall }, LOWER), Some(Unsupported::Varying));
    let bruck = Spec { algorithm: Algorithm::Bruck, ..alltoall };
    assert_eq!(groups(&adjacent, bruck, LOWER), Some(Unsupported::Unavailable));
    for kind in [CollectiveKind::Scan, CollectiveKind::Exscan] {
        let scan = Spec::new(kind, Algorithm::Dissemination, 4, 1);
        let (in_order, fixed) = (Spec { order: Order::Rank, ..scan }, Spec { order: Order::Fixed, ..scan });
        assert_eq!((groups(&adjacent, scan, LOWER), groups(&adjacent, in_order, LOWER)), (None, None));
        assert_eq!(groups(&mixed, scan, LOWER), Some(Unsupported::Order), "prefixes of ranks are none of groups");
        assert_eq!(groups(&mixed, in_order, LOWER), Some(Unsupported::Order));
        assert_eq!(groups(&adjacent, fixed, LOWER), Some(Unsupported::Brackets));
    }
    let many = vec![0; 1 << 16];
    assert_eq!(groups(&many, Spec { size: 1 << 16, ..alltoall }, LOWER), Some(Unsupported::TooLong));
}

/// A message within a host, and messages between hosts over a fast link and over one of 1 Gbit/s.
const NEAR: LinkModel = LinkModel {
    latency_ns: 1_000,
    overhead_ns: 400,
    ps_per_byte: 200,
    sharing: 1,
    per_host: 1,
    ps_per_byte_within: 200,
};
const FAST: LinkModel = LinkModel {
    latency_ns: 10_000,
    overhead_ns: 2_300,
    ps_per_byte: 500,
    sharing: 1,
    per_host: 1,
    ps_per_byte_within: 200,
};
const SLOW: LinkModel = LinkModel { ps_per_byte: 8_000, ..FAST };

/// Bytes of a vector or a block.
const SIZES: [usize; 7] = [8, 128, 1024, 4096, 16384, 65536, 1 << 20];

/// Simulated times of one collective, in picoseconds.
struct Times {
    /// Of the selected flat schedule.
    flat: u64,
    /// Over hosts, with one leader of each, with parts, and with all ranks as leaders.
    one: u64,
    in_parts: Option<u64>,
    all: Option<u64>,
    /// Of the selected one.
    chosen: u64,
    /// Whether that is over hosts.
    is_composed: bool,
}

/// Ranks of a host share its link. `None`: the collective is not composed.
fn compare(kind: CollectiveKind, hosts: &[u32], root: u32, bytes: usize, far: &LinkModel) -> Option<Times> {
    let (size, rank, root) = (hosts.len() as u32, Rank(0), Rank(root));
    let (order, in_place, reduction_id, grain) = (Order::Any, false, 0, 1);
    let plan = CollectiveSpec { collective: kind, rank, size, root, bytes, grain, order, in_place, reduction_id };
    let levels = Levels::two(hosts.to_vec());
    let mut table = Vec::new();
    let groups = levels.hierarchy_in(&mut table);
    let links = |from: usize, to: usize| if hosts[from] == hosts[to] { NEAR } else { *far };
    let vector = matches!(kind, CollectiveKind::Broadcast | CollectiveKind::Reduce | CollectiveKind::Allreduce);
    let time = |group: &Group, segments: u32| {
        let cut = if vector { group.extents[0].blocks as usize } else { 1 };
        let machine = Machine { sharing: 1, links: &links, hosts };
        run(group, bytes.div_ceil(cut).div_ceil(segments as usize) as u64, machine)
    };
    let nested = choose(&groups.leaders(&plan), groups.leaders_vary(kind), far);
    let nested_spec = nested.spec(&plan, false);
    let over_hosts = |options: HierarchyOptions| {
        let group = Group::nested(nested_spec, options, groups, |_| GroupLevels::NONE).ok();
        group.map(|group| time(&group, nested.segments))
    };
    let flat = choose(&plan, false, &LinkModel { per_host: groups.per_host(), ..*far });
    let flat_group = Group::new(flat.spec(&plan, false)).expect("a schedule");
    let is_composed = groups.pays(&plan, LOWER, (&NEAR.into(), far), None);
    let one = over_hosts(LOWER.into())?;
    let in_parts = has_parts(&nested_spec).then(|| HierarchyOptions { in_parts: true, ..LOWER.into() });
    let can_have_all = has_leaders(&nested_spec) && groups.ranks_of_each_group().is_some();
    let all = can_have_all.then(|| HierarchyOptions { leaders: Leaders::All, ..LOWER.into() });
    let flat = time(&flat_group, flat.segments);
    let chosen = if is_composed { over_hosts(groups.options(&plan, LOWER, &NEAR.into(), far))? } else { flat };
    Some(Times {
        flat,
        one,
        in_parts: in_parts.and_then(over_hosts),
        all: all.and_then(over_hosts),
        chosen,
        is_composed,
    })
}

/// Of the flat schedule and those over hosts, the selected one takes little more time than the best one.
#[test]
fn schedules_over_hosts_pay_where_they_are_selected() {
    let shapes: [&[u32]; 12] = [
        &[2, 2],
        &[4, 4],
        &[8, 8],
        &[2; 3],
        &[2; 4],
        &[4; 4],
        &[2; 8],
        &[8; 8],
        &[3, 1],
        &[1, 5, 2],
        &[7, 6, 3],
        &[1, 1, 2],
    ];
    for kind in CollectiveKind::ALL {
        let (mut logarithms, mut gained, mut compared) = (0.0, 0.0, 0.0);
        for (ranks, bytes) in shapes.into_iter().flat_map(|ranks| SIZES.map(|bytes| (ranks, bytes))) {
            let hosts: Vec<u32> =
                (0..).zip(ranks).flat_map(|(host, ranks)| core::iter::repeat_n(host, *ranks as usize)).collect();
            let size = hosts.len() as u32;
            let roots = if kind.is_rooted() { vec![0, size / 2, size - 1] } else { vec![0] };
            for (root, far) in roots.into_iter().flat_map(|root| [FAST, SLOW].map(|far| (root, far))) {
                let Some(times) = compare(kind, &hosts, root, bytes, &far) else { continue };
                let Times { flat, one, in_parts, all, chosen, is_composed } = times;
                let best = [Some(flat), Some(one), in_parts, all].into_iter().flatten().min().expect("one");
                let ratio = chosen as f64 / best as f64;
                assert!(
                    ratio < 2.2,
                    "{kind:?} {ranks:?} root {root} {bytes} B, {far:?}: {ratio:.2}, composed: {is_composed}"
                );
                (logarithms, gained) = (logarithms + ratio.ln(), gained + (chosen as f64 / flat as f64).ln());
                compared += 1.0;
            }
        }
        if compared != 0.0 {
            let [regret, gain] = [logarithms, gained].map(|sum| f64::exp(sum / compared));
            println!("{kind:?}: {compared} calls, {gain:.2} of the flat time, {regret:.2} of the best one");
            assert!(regret < 1.05 && gain < 0.96, "{kind:?}");
        }
    }
}

/// The steps of subgroups of one rank of eight: two caches of two on each of two hosts, all levels with steps of their own.
fn subgroup_steps(call: Spec) -> Vec<(CollectiveKind, u32, u32, u32)> {
    let levels = Levels([1, 2].map(|shift| (0..8).map(|rank| rank >> shift).collect()).to_vec());
    let both = GroupLevels::INNERMOST.with(1).with(2);
    let plan = HierarchicalPlan::with_group_steps(call, LOWER, levels.hierarchy(), both).expect("a schedule");
    let steps = (0..plan.steps()).filter_map(|i| match plan.step(i)?.operation {
        StepOperation::Group(step) => Some((step.collective, step.level, step.number, step.each)),
        _ => None,
    });
    steps.collect()
}

/// Up and down two levels, and between the leaders of the last one; where a root leads in the stead of the lowest rank of its
/// group, the leaders of that level use messages.
#[test]
fn subgroups_of_each_level_have_steps_of_their_own() {
    use CollectiveKind::{Allgather, Allreduce, Broadcast, Gather, Reduce, Scatter};
    let gather = Spec::new(Allgather, Algorithm::Ring, 8, 1);
    assert_eq!(
        subgroup_steps(Spec { rank: Rank(6), ..gather }),
        [(Gather, 0, 0, 1), (Gather, 1, 1, 2), (Broadcast, 1, 1, 1), (Broadcast, 0, 0, 1)]
    );
    assert_eq!(subgroup_steps(Spec { rank: Rank(7), ..gather }), [(Gather, 0, 1, 1), (Broadcast, 0, 1, 1)]);
    let allreduce = Spec::new(Allreduce, Algorithm::Knomial, 8, 1);
    let of_leader =
        [(Reduce, 0, 0, 1), (Reduce, 1, 0, 1), (Allreduce, 2, 1, 1), (Broadcast, 1, 0, 1), (Broadcast, 0, 0, 1)];
    assert_eq!(subgroup_steps(Spec { rank: Rank(4), ..allreduce }), of_leader);
    let scatter = Spec { root: Rank(2), ..Spec::new(Scatter, Algorithm::Direct, 8, 1) };
    assert_eq!(subgroup_steps(Spec { rank: Rank(0), ..scatter }), [(Scatter, 1, 0, 2), (Scatter, 0, 0, 1)]);
    assert_eq!(subgroup_steps(Spec { rank: Rank(2), ..scatter }), [(Scatter, 1, 1, 2), (Scatter, 0, 0, 1)]);
    let reduce = Spec { root: Rank(3), ..Spec::new(Reduce, Algorithm::Knomial, 8, 1) };
    for (rank, number) in [(0, 0), (2, 0), (3, 1)] {
        assert_eq!(subgroup_steps(Spec { rank: Rank(rank), ..reduce }), [(Reduce, 0, number, 1)], "{rank}");
    }
    assert_eq!(subgroup_steps(Spec { rank: Rank(4), ..reduce }), [(Reduce, 0, 0, 1), (Reduce, 1, 0, 1)]);
}

/// Blocks of members that stand for different numbers of ranks go by messages.
#[test]
fn leaders_of_different_groups_exchange_blocks_by_messages() {
    let levels = Levels(vec![vec![0, 0, 1, 2], vec![0, 0, 0, 1]]);
    let both = GroupLevels::INNERMOST.with(1);
    let steps = |kind, algorithm| {
        let plan =
            HierarchicalPlan::with_group_steps(Spec::new(kind, algorithm, 4, 1), LOWER, levels.hierarchy(), both);
        let plan = plan.expect("a schedule");
        let level = |i| match plan.step(i).expect("a step").operation {
            StepOperation::Group(step) => Some((step.collective, step.level)),
            _ => None,
        };
        (0..plan.steps()).filter_map(level).collect::<Vec<_>>()
    };
    use CollectiveKind::{Allgather, Allreduce, Broadcast, Gather, Reduce};
    assert_eq!(steps(Allgather, Algorithm::Ring), [(Gather, 0), (Broadcast, 1), (Broadcast, 0)]);
    assert_eq!(steps(Allreduce, Algorithm::Knomial), [(Reduce, 0), (Reduce, 1), (Broadcast, 1), (Broadcast, 0)]);
}
