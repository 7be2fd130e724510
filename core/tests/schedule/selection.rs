//! Selection: always a valid schedule, the same on all ranks, and the fastest by the model.

use crate::group::orders;
use unisono_core::collective::{CollectiveKind, CollectiveSpec, Order};
use unisono_core::ids::Rank;
use unisono_core::schedule::{
    self, Algorithm, Choice, Constraints, GroupModel, Hierarchy, Leaders, LinkModel, LowerTrees, SlotModel,
    Unsupported, choose, choose_with, multicast_pays,
};

/// 10 µs and 3 GB/s; one where a message costs only its bytes; one where ranks share processors; one where only
/// messages cost; two that four ranks of a host share, and all.
const LINKS: [LinkModel; 6] = [
    LinkModel {
        latency_ns: 10_000,
        overhead_ns: 1500,
        ps_per_byte: 330,
        sharing: 1,
        per_host: 1,
        ps_per_byte_within: 330,
    },
    LinkModel {
        latency_ns: 0,
        overhead_ns: 0,
        ps_per_byte: 100_000,
        sharing: 0,
        per_host: 1,
        ps_per_byte_within: 100_000,
    },
    LinkModel {
        latency_ns: 10_000,
        overhead_ns: 5000,
        ps_per_byte: 500,
        sharing: 2,
        per_host: 1,
        ps_per_byte_within: 500,
    },
    LinkModel {
        latency_ns: u32::MAX,
        overhead_ns: u32::MAX,
        ps_per_byte: 0,
        sharing: u16::MAX,
        per_host: 1,
        ps_per_byte_within: 0,
    },
    LinkModel {
        latency_ns: 10_000,
        overhead_ns: 2300,
        ps_per_byte: 500,
        sharing: 1,
        per_host: 4,
        ps_per_byte_within: 200,
    },
    LinkModel {
        latency_ns: 10_000,
        overhead_ns: 2300,
        ps_per_byte: 8000,
        sharing: 1,
        per_host: u16::MAX,
        ps_per_byte_within: 200,
    },
];

fn plan(verb: CollectiveKind, size: u32, bytes: usize) -> CollectiveSpec {
    CollectiveSpec {
        collective: verb,
        rank: Rank(0),
        size,
        root: Rank(0),
        bytes,
        grain: 8,
        order: Order::Any,
        in_place: false,
        reduction_id: 0,
    }
}

fn chosen(verb: CollectiveKind, size: u32, bytes: usize) -> Choice {
    choose(&plan(verb, size, bytes), false, &LINKS[0])
}

#[test]
fn schedule_choices_are_never_refused_and_equal_on_all_ranks() {
    for (verb, size) in CollectiveKind::ALL.into_iter().flat_map(|verb| (1..=64).map(move |size| (verb, size))) {
        for (link, bytes) in LINKS.iter().flat_map(|link| [0, 1000, 1 << 20].map(|bytes| (link, bytes))) {
            for &order in orders(verb) {
                for varying in [false, true] {
                    for root in if verb.is_rooted() { vec![0, size - 1] } else { vec![0] } {
                        let plan = CollectiveSpec { order, root: Rank(root), ..plan(verb, size, bytes) };
                        let first = choose(&plan, varying, link);
                        for rank in [size / 2, size - 1] {
                            assert_eq!(
                                first,
                                choose(&CollectiveSpec { rank: Rank(rank), ..plan }, varying, link),
                                "{plan:?}"
                            );
                        }
                        for rank in 0..size {
                            let call = first.spec(&CollectiveSpec { rank: Rank(rank), ..plan }, varying);
                            if let Err(refused) = schedule::Plan::new(call) {
                                panic!("{call:?}: {refused}");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn schedule_choices_of_any_numbers_are_made() {
    for verb in CollectiveKind::ALL {
        for size in [0, 65, 1000, 4096, 999_983, schedule::Plan::RANKS, u32::MAX] {
            for bytes in [0, 1, usize::MAX] {
                for grain in [0, 1, usize::MAX] {
                    let plan = CollectiveSpec { grain, ..plan(verb, size, bytes) };
                    for link in LINKS {
                        let choice = choose(&plan, false, &link);
                        let made = schedule::Plan::new(choice.spec(&plan, false));
                        assert_eq!(made.is_ok(), (1..=schedule::Plan::RANKS).contains(&size), "{plan:?}: {choice:?}");
                    }
                }
            }
        }
    }
}

/// Block sizes that only their owners know do not affect the choice.
#[test]
fn schedule_choices_of_varying_blocks_use_common_values_only() {
    for verb in [CollectiveKind::Gather, CollectiveKind::Scatter, CollectiveKind::Alltoall] {
        let choices = [1, 100_000].map(|bytes| choose(&plan(verb, 24, bytes), true, &LINKS[0]));
        assert_eq!(choices[0], choices[1], "{verb:?}");
        assert_eq!(choices[0].segments, 1);
    }
}

/// The findings of Thakur et al. (2005), §4, and Qian & Afsahi (2008), §5.1: few rounds for short data, few bytes for
/// long data.
#[test]
fn schedules_of_short_data_have_few_rounds_and_of_long_data_few_bytes() {
    for size in [20, 32, 48, 64] {
        assert_eq!(chosen(CollectiveKind::Broadcast, size, 8).algorithm, Algorithm::Knomial);
        assert_eq!(chosen(CollectiveKind::Broadcast, size, 1 << 22).algorithm, Algorithm::Bruck);
        assert_eq!(chosen(CollectiveKind::Reduce, size, 8).algorithm, Algorithm::Knomial);
        assert_ne!(chosen(CollectiveKind::Reduce, size, 1 << 22).algorithm, Algorithm::Knomial);
        assert_eq!(chosen(CollectiveKind::Alltoall, size, 8).algorithm, Algorithm::Bruck);
        assert_eq!(chosen(CollectiveKind::Alltoall, size, 1 << 20).algorithm, Algorithm::Direct);
        assert!(matches!(
            chosen(CollectiveKind::Allreduce, size, 1 << 22).algorithm,
            Algorithm::Halving | Algorithm::Ring
        ));
        assert!(!matches!(chosen(CollectiveKind::Allreduce, size, 8).algorithm, Algorithm::Halving | Algorithm::Ring));
        assert!(matches!(chosen(CollectiveKind::Gather, size, 8).algorithm, Algorithm::Knomial));
    }
}

/// Long data along a chain are segmented; collectives bound by their root's messages are not.
#[test]
fn schedules_run_in_segments_where_that_is_quicker() {
    let prefix = CollectiveSpec { order: Order::Rank, ..plan(CollectiveKind::Scan, 4, 1 << 22) };
    let scan = choose(&prefix, false, &LINKS[0]);
    assert!(scan.algorithm == Algorithm::Ring && scan.segments > 8, "{scan:?}");
    let whole = Choice { segments: 1, ..scan };
    let time = |choice: Choice| choice.time_ps(&prefix, false, &LINKS[0]).expect("not refused");
    assert!(time(whole) > time(scan) + time(scan) / 4);
    let along_a_tree =
        choose(&CollectiveSpec { order: Order::Rank, ..plan(CollectiveKind::Reduce, 20, 1 << 22) }, false, &LINKS[0]);
    assert_eq!((along_a_tree.algorithm, along_a_tree.segments), (Algorithm::Knomial, 1));
    assert_eq!(
        choose(&CollectiveSpec { grain: 1 << 22, ..prefix }, false, &LINKS[0]).segments,
        1,
        "no segment without an element"
    );
}

/// No choice is slower than another of the same specification.
#[test]
fn schedule_choices_are_the_quickest_by_the_model() {
    for verb in CollectiveKind::ALL {
        for (size, bytes) in [(4, 8), (7, 4096), (16, 65_536), (33, 1 << 20)] {
            let plan = plan(verb, size, bytes);
            let best = choose(&plan, false, &LINKS[0]);
            let took = best.time_ps(&plan, false, &LINKS[0]).expect("not refused");
            for &algorithm in schedule::algorithms(verb) {
                for (ports, segments) in (1..=16).flat_map(|ports| [1, 2, 16].map(|segments| (ports, segments))) {
                    let other = Choice { algorithm, ports, radix: ports + 1, segments, order: Order::Any };
                    if let Ok(takes) = other.time_ps(&plan, false, &LINKS[0]) {
                        assert!(took <= takes, "{plan:?}: {other:?} takes {takes} ps, {best:?} {took} ps");
                    }
                }
            }
        }
    }
}

#[test]
fn schedules_exist_for_the_algorithms_that_a_verb_names_and_no_others() {
    for (verb, algorithm) in
        CollectiveKind::ALL.into_iter().flat_map(|verb| Algorithm::ALL.map(|algorithm| (verb, algorithm)))
    {
        let choice = Choice { algorithm, ports: 1, radix: 2, segments: 1, order: Order::Any };
        let made = schedule::Plan::new(choice.spec(&plan(verb, 8, 64), false));
        assert_eq!(made.is_ok(), schedule::algorithms(verb).contains(&algorithm), "{verb:?} {algorithm:?}");
    }
}

#[test]
fn schedule_choices_keep_their_constraints() {
    let plan = plan(CollectiveKind::Allgather, 20, 1000);
    let given = Constraints { ports: Some(2), ..Constraints::only(Algorithm::Bruck) };
    let choice = choose_with(&plan, false, &LINKS[0], &given).expect("not refused");
    assert_eq!((choice.algorithm, choice.ports, choice.radix), (Algorithm::Bruck, 2, 3));
    let cut = Constraints { segments: Some(7), ..given };
    assert_eq!(choose_with(&plan, false, &LINKS[0], &cut), Ok(Choice { segments: 7, ..choice }));
    let tree = Constraints { radix: Some(5), ..Constraints::only(Algorithm::Knomial) };
    let gather = CollectiveSpec { collective: CollectiveKind::Gather, ..plan };
    let made = choose_with(&gather, false, &LINKS[0], &tree).expect("not refused");
    assert_eq!((made.ports, made.radix), (4, 5));
    for (given, refused) in [
        (Constraints::only(Algorithm::Knomial), Unsupported::Unavailable),
        (Constraints { ports: Some(0), ..given }, Unsupported::Ports),
        (Constraints { ports: Some(17), ..given }, Unsupported::Ports),
        (Constraints { segments: Some(0), ..given }, Unsupported::Segments),
        (Constraints { segments: Some(u32::MAX), ..given }, Unsupported::TooLong),
    ] {
        assert_eq!(choose_with(&plan, false, &LINKS[0], &given), Err(refused), "{given:?}");
    }
    let ring = Constraints::only(Algorithm::Ring);
    let reduce = CollectiveSpec { collective: CollectiveKind::Reduce, order: Order::Rank, ..plan };
    assert_eq!(choose_with(&reduce, false, &LINKS[0], &ring), Err(Unsupported::Order));
}

/// A call of rank 0, with root 0.
fn call(collective: CollectiveKind, size: u32, bytes: usize) -> CollectiveSpec {
    let (rank, root, order) = (Rank(0), Rank(0), Order::Any);
    CollectiveSpec { collective, rank, size, root, bytes, grain: 1, order, in_place: false, reduction_id: 0 }
}

/// By the model multicast replaces a broadcast's schedule where the root's link would carry the data several times.
#[test]
fn multicast_pays_for_bytes_that_a_link_would_carry_several_times() {
    let link = LinkModel { ps_per_byte: 8000, per_host: 1, ..LINKS[4] };
    let pays = |size, bytes| multicast_pays(&call(CollectiveKind::Broadcast, size, bytes), &link);
    for size in 2..=64 {
        let bytes = [8, 64, 1 << 10, 16 << 10, 1 << 20, 1 << 30].map(|bytes| pays(size, bytes));
        assert!(bytes.is_sorted(), "{size} ranks: from some length on");
        assert_eq!(bytes[3], size > 2, "{size} ranks: one receiver needs no group");
    }
    assert!(!pays(4, 8) && !pays(64, 8), "the acknowledgements take longer");
    let fast = LinkModel { ps_per_byte: 320, ..link };
    let broadcast = call(CollectiveKind::Broadcast, 64, 1 << 20);
    assert!(!multicast_pays(&broadcast, &fast), "a link that is faster than a root handles acknowledgements");
    assert!(!pays(4, usize::MAX), "both forms saturate");
    assert!(!multicast_pays(&call(CollectiveKind::Allgather, 8, 1 << 20), &link));
}

/// One level of groups: the group of each rank.
fn groups_of(ranks: &[u32]) -> Hierarchy<Vec<u32>> {
    Hierarchy::new(&[ranks], vec![0; Hierarchy::<Vec<u32>>::table_len(ranks.len(), 1)]).expect("groups")
}

/// So does it between the leaders of hosts, which forward the data in their hosts.
#[test]
fn multicast_between_hosts_pays_if_there_are_three() {
    let far = LinkModel { ps_per_byte: 8000, per_host: 1, ..LINKS[4] };
    let near = LinkModel { latency_ns: 1000, overhead_ns: 400, ps_per_byte: 200, ..far };
    for (hosts, bytes, expected) in
        [(2, 1 << 20, false), (3, 1 << 20, true), (4, 16 << 10, true), (8, 64 << 10, true), (4, 8, false)]
    {
        let inner: Vec<u32> = (0..hosts * 4).map(|rank| rank / 4).collect();
        let groups = groups_of(&inner);
        let plan = call(CollectiveKind::Broadcast, hosts * 4, bytes);
        let lower = LowerTrees { ports: 1, radix: 2 };
        assert_eq!(groups.multicast_pays(&plan, lower, &near, &far), expected, "{hosts} hosts, {bytes} bytes");
    }
}

/// In slots all ranks lead where that divides much work, unless they share a processor or groups are divided further; no
/// choice depends on slots that a collective does not use.
#[test]
fn all_ranks_lead_in_slots_where_they_divide_the_work() {
    let lower = LowerTrees { ports: 1, radix: 2 };
    let far = LinkModel { per_host: 1, ..LINKS[4] };
    let near = LinkModel { latency_ns: 1000, overhead_ns: 400, ps_per_byte: 200, ..far };
    let slots = |sharing| SlotModel { latency_ns: 300, overhead_ns: 100, ps_per_byte: 100, sharing };
    let groups = |sizes: &[u32]| {
        let groupings: Vec<Vec<u32>> = sizes.iter().map(|size| (0..32).map(|rank| rank / size).collect()).collect();
        let table = vec![0; Hierarchy::<Vec<u32>>::table_len(32, sizes.len())];
        Hierarchy::new(&groupings.iter().map(Vec::as_slice).collect::<Vec<_>>(), table).expect("groups")
    };
    let in_slots = GroupModel { messages: near, slots: Some(slots(1)) };
    let leaders = |sizes: &[u32], kind, bytes, intra: &GroupModel, inter: &LinkModel| {
        groups(sizes).options(&call(kind, 32, bytes), lower, intra, inter).leaders
    };
    for kind in [CollectiveKind::Allreduce, CollectiveKind::Reduce] {
        let of = |bytes| leaders(&[8], kind, bytes, &in_slots, &far);
        assert_eq!([8, 64, 256].map(of), [Leaders::One; 3], "{kind:?}");
        assert_eq!([64 << 10, 256 << 10].map(of), [Leaders::All; 2], "{kind:?}");
    }
    let shared = GroupModel { messages: LinkModel { sharing: 8, ..near }, slots: Some(slots(8)) };
    let far_shared = LinkModel { sharing: 8, overhead_ns: 3000, ..far };
    for bytes in [4 << 10, 16 << 10, 64 << 10] {
        assert_eq!(leaders(&[8], CollectiveKind::Allreduce, bytes, &shared, &far_shared), Leaders::One, "{bytes}");
    }
    // Messages join the parts of groups that are divided further, and segments.
    let nested = |intra: &GroupModel| leaders(&[2, 8], CollectiveKind::Allreduce, 64 << 10, intra, &far);
    assert_eq!([nested(&in_slots), nested(&near.into())], [Leaders::All; 2]);
    let scan = |intra: &GroupModel| groups(&[8]).options(&call(CollectiveKind::Scan, 32, 4096), lower, intra, &far);
    assert_eq!(scan(&in_slots), scan(&near.into()));
}

/// A long vector goes through groups in segments where that lets their phases overlap. Of a reduce the ranks that do not
/// lead are done with their group: it stays whole.
#[test]
fn vectors_are_cut_into_segments_that_overlap_between_groups() {
    let lower = LowerTrees { ports: 1, radix: 2 };
    let far = LinkModel { ps_per_byte: 8000, per_host: 1, ..LINKS[4] };
    let near = GroupModel::from(LinkModel { latency_ns: 1000, overhead_ns: 400, ps_per_byte: 2000, ..far });
    let groups = groups_of(&[0, 0, 0, 0, 1, 1, 1, 1]);
    let segments = |kind, bytes, least| {
        let plan = call(kind, 8, bytes);
        let choice = Choice { segments: least, ..choose(&groups.leaders(&plan), false, &far) };
        groups.segments(&plan, lower, (&near, &far), &choice)
    };
    let long = |kind| segments(kind, 1 << 20, 1);
    assert!(long(CollectiveKind::Broadcast) >= 8 && long(CollectiveKind::Allreduce) > 1);
    assert_eq!([CollectiveKind::Reduce, CollectiveKind::Allgather].map(long), [1; 2]);
    assert_eq!(segments(CollectiveKind::Broadcast, 8, 1), 1, "its latency counts, not its bytes");
    assert!(segments(CollectiveKind::Broadcast, 1 << 20, 64) >= 64, "no fewer than the choice has");
}

/// The ranks of a host that lead nothing are done with a reduce early: composing pays although the root is done no sooner.
#[test]
fn composing_a_reduce_pays_for_those_that_do_not_lead() {
    let lower = LowerTrees { ports: 1, radix: 2 };
    let far = LinkModel { ps_per_byte: 8000, per_host: 1, ..LINKS[4] };
    let near = GroupModel::from(LinkModel { latency_ns: 1000, overhead_ns: 400, ps_per_byte: 500, ..far });
    let groups = groups_of(&[0, 0, 1, 1, 2, 2, 3, 3]);
    let pays = |kind| groups.pays(&call(kind, 8, 1 << 20), lower, (&near, &far), Some(Leaders::One));
    assert_eq!([CollectiveKind::Reduce, CollectiveKind::Allreduce].map(pays), [true, false]);
}

/// Whether a composed schedule pays depends on the leaders that it will have.
#[test]
fn a_choice_of_leaders_counts_in_whether_composing_pays() {
    let lower = LowerTrees { ports: 1, radix: 2 };
    let far = LinkModel { per_host: 1, ..LINKS[4] };
    let near = LinkModel { latency_ns: 1000, overhead_ns: 400, ps_per_byte: 200, ..far };
    let groups = groups_of(&(0..32).map(|rank| rank / 8).collect::<Vec<_>>());
    let pays = |bytes: usize, leaders| {
        groups.pays(&call(CollectiveKind::Allreduce, 32, bytes), lower, (&near.into(), &far), leaders)
    };
    let sizes = (11..22).map(|shift| 1 << shift);
    let by = |leaders| sizes.clone().filter(|bytes| pays(*bytes, leaders)).collect::<Vec<_>>();
    let [any, one, all] = [None, Some(Leaders::One), Some(Leaders::All)].map(by);
    assert!(one.len() < all.len() && any == all, "{one:?} {all:?} {any:?}");
}
