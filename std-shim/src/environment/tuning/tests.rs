use super::*;
use crate::environment::GroupMeans;
use crate::environment::RankLocation;
use proptest::prelude::*;
use unisono_core::collective::Order;
use unisono_core::ids::Rank;
use unisono_core::schedule::GroupLevels;

fn plan(verb: CollectiveKind, size: u32) -> CollectiveSpec {
    let (rank, root) = (Rank(0), Rank(0));
    CollectiveSpec {
        collective: verb,
        rank,
        size,
        root,
        bytes: 1000,
        grain: 8,
        order: Order::Any,
        in_place: false,
        reduction_id: 0,
    }
}

fn tuned(verb: CollectiveKind, text: &str) -> Tuning {
    let mut tuning = Tuning::default();
    tuning.set(Override::new(verb, text).expect("good"));
    tuning
}

#[test]
fn every_collective_and_algorithm_is_printed_as_it_is_parsed() {
    for (verb, ..) in COLLECTIVES {
        for algorithm in algorithms(verb) {
            for options in ["", ":k=2", ":segments=4096", ":k=16,segments=3"] {
                let text = format!("{}{options}", algorithm.name());
                assert_eq!(Override::new(verb, &text).expect("good").to_string(), text);
            }
        }
    }
    assert_eq!(
        COLLECTIVES.map(|(verb, ..)| tuned(verb, algorithms(verb)[0].name()).get(verb).map(|wanted| wanted.kind)),
        { COLLECTIVES.map(|(verb, ..)| Some(verb)) }
    );
}

#[test]
fn overrides_are_used_where_they_fit() {
    let tuning = tuned(CollectiveKind::Allgather, "bruck:k=2,segments=3");
    let decision = tuning.decide(&plan(CollectiveKind::Allgather, 20), false, Carrier::Udp).expect("a choice");
    let Choice { algorithm, ports, segments, .. } = decision.choice;
    assert_eq!((algorithm, ports, segments), (Algorithm::Bruck, 2, 3));
    assert_eq!((decision.selected_by, decision.override_error), (SelectedBy::Override, None));
    let other = tuning.decide(&plan(CollectiveKind::Alltoall, 20), false, Carrier::Rings).expect("a choice");
    let choice = choose(&plan(CollectiveKind::Alltoall, 20), false, &RINGS_COST);
    assert_eq!(other, Decision { choice, selected_by: SelectedBy::Model, override_error: None });
    let ring = tuned(CollectiveKind::Reduce, "ring");
    let ordered = CollectiveSpec { order: Order::Rank, ..plan(CollectiveKind::Reduce, 20) };
    let decision = ring.decide(&ordered, false, Carrier::Udp).expect("a choice");
    let choice = choose(&ordered, false, &UDP_COST);
    assert_eq!(decision, Decision { choice, selected_by: SelectedBy::Only, override_error: Some(Unsupported::Order) });
    let stranger = CollectiveSpec { rank: Rank(20), ..ordered };
    assert_eq!(ring.choose(&stranger, false, Carrier::Udp), Err(Unsupported::Rank));
}

#[test]
fn the_only_algorithm_that_can_do_a_call_is_selected_by_nothing() {
    let reason = |tuning: &Tuning, order| {
        let plan = CollectiveSpec { order, ..plan(CollectiveKind::Scan, 20) };
        tuning.decide(&plan, false, Carrier::Udp).expect("a choice").selected_by
    };
    assert_eq!(reason(&Tuning::default(), Order::Any), SelectedBy::Model);
    assert_eq!(reason(&Tuning::default(), Order::Fixed), SelectedBy::Only);
    assert_eq!(reason(&tuned(CollectiveKind::Scan, "ring"), Order::Fixed), SelectedBy::Only);
    assert_eq!(reason(&tuned(CollectiveKind::Scan, "dissemination"), Order::Fixed), SelectedBy::Override);
}

#[test]
fn a_table_selects_without_override() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = "unisono tuning 3\nfor any\nudp reduce 2- 0-999 halving\nudp reduce 2- 1000- ring:k=1\nend\n";
    std::fs::write(file.path(), text).expect("written");
    let path = file.path().to_str().expect("a path");
    let mut tuning = tuned(CollectiveKind::Reduce, "knomial:radix=3");
    tuning.load_table(path).expect("a table");
    let said = |tuning: &Tuning, plan: &CollectiveSpec, carrier| {
        let decision = tuning.decide(plan, false, carrier).expect("a choice");
        (decision.choice.algorithm, decision.selected_by)
    };
    let reduce = plan(CollectiveKind::Reduce, 20);
    assert_eq!(said(&tuning, &reduce, Carrier::Udp), (Algorithm::Knomial, SelectedBy::Override));
    let measured = Tuning { overrides: Default::default(), ..tuning.clone() };
    assert_eq!(said(&measured, &reduce, Carrier::Udp), (Algorithm::Ring, SelectedBy::Table));
    assert_eq!(
        said(&measured, &CollectiveSpec { bytes: 999, ..reduce }, Carrier::Udp),
        (Algorithm::Halving, SelectedBy::Table)
    );
    // A ring needs a commutative operation, and the table has no line for rings.
    let ordered = CollectiveSpec { order: Order::Rank, ..reduce };
    assert_eq!(said(&measured, &ordered, Carrier::Udp).1, SelectedBy::Only);
    assert_eq!(said(&measured, &reduce, Carrier::Rings).1, SelectedBy::Model);
    let variables: Vec<_> = tuning.variables().collect();
    assert_eq!(variables, [("REDUCE", "knomial:radix=3".to_owned()), ("TUNING", path.to_owned())]);
}

/// What executes a call of ranks on these nodes, and what selected it, if the groups can use shared memory.
fn composed(tuning: &Tuning, plan: &CollectiveSpec, nodes: &[u32]) -> String {
    let located: Vec<RankLocation> = nodes.iter().copied().map(RankLocation::from).collect();
    let over = Subgroups::new(tuning.hierarchy(), &located);
    let of = |rank| {
        let plan = CollectiveSpec { rank: Rank(rank), ..*plan };
        let found =
            over.as_ref().and_then(|over| tuning.compose(&plan, false, Carrier::Udp, over, 1, GroupLevels::INNERMOST));
        match found {
            Some(Composed { decision, composition, schedule }) => {
                let Choice { algorithm, ports, .. } = decision.choice;
                let slots = if composition.means.uses_slots(&plan) { "slots" } else { "messages" };
                assert_eq!((schedule.spec().algorithm, schedule.levels()), (algorithm, 2));
                let reason = decision.selected_by.name();
                format!("{slots}+{}:k={ports}: {reason}; {composition}", algorithm.name())
            }
            None => {
                let decision = tuning.decide(&plan, false, Carrier::Udp).expect("a choice");
                format!("{}: {}", decision.choice.algorithm.name(), decision.selected_by.name())
            }
        }
    };
    let all: Vec<String> = (0..plan.size).map(of).collect();
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
    all[0].clone()
}

#[test]
fn a_table_composes_over_hosts_where_the_user_lets_it() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = "unisono tuning 3\nfor any\nudp allreduce 6 0-999 host:slots+ring:k=1\n\
                udp allreduce 6 1000- host:messages+halving\nudp reduce 6 0- host+knomial:k=2\nudp scan 6 0- ring\n\
                udp scan 5 0- host+dissemination\nudp allgather 6 0- bruck\nend\n";
    std::fs::write(file.path(), text).expect("written");
    let mut tuning = Tuning::default();
    tuning.load_table(file.path().to_str().expect("a path")).expect("a table");
    tuning.set_sharing(3);
    let nodes = [0, 0, 1, 1, 2, 2];
    let of = |tuning: &Tuning, kind, bytes| composed(tuning, &CollectiveSpec { bytes, ..plan(kind, 6) }, &nodes);
    let table = |text: &str| format!("{text}: table; groups: table; means: table");
    assert_eq!(of(&tuning, CollectiveKind::Allreduce, 8), table("slots+ring:k=1"));
    assert_eq!(of(&tuning, CollectiveKind::Allreduce, 1000), table("messages+halving:k=1"));
    let by_length = "knomial:k=2: table; groups: table; means: rule";
    assert_eq!(of(&tuning, CollectiveKind::Reduce, 8), format!("slots+{by_length}"));
    assert_eq!(of(&tuning, CollectiveKind::Reduce, 1 << 20), format!("messages+{by_length}"));
    // Lines that are flat, and calls without a line.
    assert_eq!(of(&tuning, CollectiveKind::Scan, 8), "ring: table");
    assert_eq!(of(&tuning, CollectiveKind::Allgather, 8), "bruck: table");
    assert_eq!(of(&tuning, CollectiveKind::Broadcast, 8), "knomial: model");
    // A ring needs a commutative operation.
    let ordered = CollectiveSpec { order: Order::Rank, bytes: 8, ..plan(CollectiveKind::Allreduce, 6) };
    assert_eq!(composed(&tuning, &ordered, &nodes), "standard-exchange: model");
    // Scans are composed only over adjacent ranks.
    let scan = CollectiveSpec { bytes: 8, ..plan(CollectiveKind::Scan, 5) };
    assert_eq!(composed(&tuning, &scan, &[0, 1, 0, 1, 2]), "dissemination: model");
    assert!(composed(&tuning, &scan, &[0, 0, 1, 1, 2]).starts_with("messages+dissemination:k="));
    // Ranks that are alone on their hosts, or all on one.
    for nodes in [[0, 1, 2, 3, 4, 5], [0; 6]] {
        let reduce = CollectiveSpec { bytes: 8, ..plan(CollectiveKind::Reduce, 6) };
        assert_eq!(composed(&tuning, &reduce, &nodes), "knomial: model");
    }
    tuning.set_hierarchy(HierarchyChoice::OFF);
    assert_eq!(of(&tuning, CollectiveKind::Reduce, 8), "knomial: model");
    tuning.set_hierarchy("host:messages".parse().expect("a choice"));
    assert!(of(&tuning, CollectiveKind::Reduce, 8).ends_with("groups: override; means: override"));
}

#[test]
fn an_override_composes_over_hosts() {
    let mut tuning = tuned(CollectiveKind::Reduce, "host:messages+knomial:k=2");
    tuning.set_sharing(3);
    let reduce = CollectiveSpec { bytes: 8, ..plan(CollectiveKind::Reduce, 6) };
    let said = composed(&tuning, &reduce, &[0, 0, 1, 1, 2, 2]);
    assert_eq!(said, "messages+knomial:k=2: override; groups: override; means: override");
    let flat = tuning.decide(&reduce, false, Carrier::Udp).expect("a choice");
    assert_eq!((flat.selected_by, flat.override_error), (SelectedBy::Model, Some(Unsupported::Groups)));
    assert_eq!(composed(&tuning, &reduce, &[0; 6]), "knomial: model");
    assert_ne!(tuning.hierarchy_in_use().innermost(), GroupMeans::Messages, "it may use slots");
    assert_eq!(tuned(CollectiveKind::Reduce, "ring").hierarchy_in_use(), HierarchyChoice::default());
}

#[test]
fn the_built_in_table_precedes_the_model() {
    let parsed = TableFile::parse(BUILT_IN).expect("tables").table_for_any_job().expect("a table");
    assert!(*parsed != TuningTable::default() && *parsed == *built_in());
    let mut oversubscribed = Tuning::default();
    oversubscribed.set_default_sharing(4, 2);
    let said = |tuning: &Tuning, plan: &CollectiveSpec, carrier| {
        let decision = tuning.decide(plan, false, carrier).expect("a choice");
        (decision.choice.algorithm, decision.selected_by)
    };
    let long = CollectiveSpec { bytes: 1 << 16, ..plan(CollectiveKind::Allreduce, 4) };
    assert_eq!(said(&oversubscribed, &long, Carrier::Udp), (Algorithm::Ring, SelectedBy::BuiltIn));
    // The table has no line for rings, for a processor per rank, or for rank order.
    assert_eq!(said(&oversubscribed, &long, Carrier::Rings).1, SelectedBy::Model);
    assert_eq!(said(&Tuning::default(), &long, Carrier::Udp).1, SelectedBy::Model);
    assert_eq!(
        said(&oversubscribed, &CollectiveSpec { order: Order::Rank, ..long }, Carrier::Udp).1,
        SelectedBy::Model
    );
    oversubscribed.set(Override::new(CollectiveKind::Allreduce, "halving").expect("good"));
    assert_eq!(said(&oversubscribed, &long, Carrier::Udp), (Algorithm::Halving, SelectedBy::Override));
}

#[test]
fn other_selections_have_another_digest() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut digests = Vec::new();
    for algorithm in ["ring", "halving"] {
        let text = format!("unisono tuning 3\nfor any\nudp reduce 4 0- {algorithm}\nend\n");
        std::fs::write(file.path(), text).expect("written");
        let mut tuning = Tuning::default();
        tuning.load_table(file.path().to_str().expect("a path")).expect("a table");
        let mut again = tuning.clone();
        assert_eq!(again.digest(), tuning.digest());
        again.set(Override::new(CollectiveKind::Scan, "ring").expect("good"));
        digests.extend([tuning.digest(), again.digest()]);
    }
    digests.extend([Tuning::default().digest(), tuned(CollectiveKind::Scan, "ring").digest()]);
    let mut oversubscribed = Tuning::default();
    oversubscribed.set_default_sharing(5, 2);
    assert_eq!(oversubscribed.sharing(), 3);
    digests.push(oversubscribed.digest());
    digests.extend([tuned(CollectiveKind::Exscan, "ring").digest(), tuned(CollectiveKind::Scan, "ring:k=2").digest()]);
    let count = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), count);
}

proptest! {
    /// For any override, the selected algorithm has a schedule, the same on every rank.
    #[test]
    fn selected_algorithms_have_a_schedule(
        verb in 0..COLLECTIVES.len(), algorithm in 0_usize..5, k in 1_u32..=16, segments in 1..=SEGMENTS_MAX,
        size in 1_u32..100, rank in 0_u32..100, root in 0_u32..100, bytes in 0_usize..1 << 24,
        ordered: bool, varying: bool,
    ) {
        let verb = COLLECTIVES[verb].0;
        let algorithm = algorithms(verb)[algorithm % algorithms(verb).len()];
        let tuning = tuned(verb, &format!("{}:k={k},segments={segments}", algorithm.name()));
        let order = if ordered { Order::Rank } else { Order::Any };
        let plan = CollectiveSpec { bytes, order, root: Rank(root % size), ..plan(verb, size) };
        let choice = tuning.choose(&plan, varying, Carrier::Udp).expect("a choice");
        let other = CollectiveSpec { rank: Rank(rank % size), ..plan };
        prop_assert_eq!(tuning.choose(&other, varying, Carrier::Udp), Ok(choice));
        prop_assert!(Schedule::new(choice.spec(&other, varying)).is_ok());
    }

    #[test]
    fn no_text_panics(verb in 0..COLLECTIVES.len(), text in "[a-z-]{0,17}(:[a-z=,0-9]{0,20})?") {
        if let Ok(wanted) = Override::new(COLLECTIVES[verb].0, &text) {
            prop_assert_eq!(Override::new(COLLECTIVES[verb].0, &wanted.to_string()), Ok(wanted));
        }
    }
}

#[test]
fn means_of_leaders_are_for_the_collectives_that_can_use_them() {
    let by = |hierarchy: &str| {
        let mut tuning = Tuning::default();
        tuning.set_hierarchy(hierarchy.parse().expect("a hierarchy"));
        tuning
    };
    let short = |kind| CollectiveSpec { bytes: 8, ..plan(kind, 8) };
    let tree = |tuning: &Tuning, spec: &CollectiveSpec| tuning.tree(spec, false, Carrier::Udp).is_some();
    let trees = by("host:slots,net:token-tree");
    assert!(tree(&trees, &short(CollectiveKind::Barrier)) && tree(&trees, &short(CollectiveKind::Allreduce)));
    assert!(!tree(&trees, &short(CollectiveKind::Reduce)) && !tree(&by("host:slots"), &short(CollectiveKind::Barrier)));
    let long = CollectiveSpec { bytes: 1 << 20, ..plan(CollectiveKind::Allreduce, 8) };
    let decision = trees.decide(&long, false, Carrier::Udp).expect("a schedule");
    assert!(!tree(&trees, &long) && decision.override_error.is_none(), "nobody asked for a tree of this call");
    let mut ring = trees.clone();
    ring.set(Override::new(CollectiveKind::Allreduce, "ring").expect("an algorithm"));
    assert!(!tree(&ring, &short(CollectiveKind::Allreduce)), "an option says more");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, "unisono tuning 3\nfor any\nudp allreduce 8 0- knomial\nend\n").expect("written");
    let mut table = trees.clone();
    table.load_table(file.path().to_str().expect("a path")).expect("a table");
    assert!(!tree(&table, &short(CollectiveKind::Allreduce)), "a table says more");
    assert!(tree(&table, &short(CollectiveKind::Barrier)));
    let rdma = by("net:rdma,host");
    assert!(rdma.rdma(&plan(CollectiveKind::Alltoall, 8), false, Carrier::Udp).is_some());
    let multicast = |hierarchy: &str, use_| {
        let mut tuning = by(hierarchy);
        tuning.set_link_speed("1G".parse().expect("a speed"));
        let spec = CollectiveSpec { bytes: 4096, ..plan(CollectiveKind::Broadcast, 8) };
        tuning.multicast(&spec, false, Carrier::Udp, None, use_)
    };
    assert_eq!(multicast("off", MulticastUse::Automatic), Some(SelectedBy::Model));
    assert_eq!(multicast("off,net:messages", MulticastUse::Automatic), None);
    assert_eq!(multicast("off,net:multicast", MulticastUse::OnRequest), Some(SelectedBy::Override));
}
