//! Small broadcasts: the fast path against the ordinary one.

use super::*;

/// The words that a group has published, and the state of its ranks.
fn published_by(ground: &TestAreas, sides: &[Side<'_>]) -> Vec<u32> {
    let words = ground.areas.words(ground.segment()).unwrap().iter().map(Word::own);
    words
        .chain(sides.iter().flat_map(|Side { flags, .. }| {
            [flags.steps.next, flags.history, flags.steps.done, flags.call.base, flags.call.signature]
        }))
        .collect()
}

#[test]
fn small_broadcast_leaves_the_same_state_as_an_ordinary_one() {
    let grounds = [(); 2].map(|()| TestAreas::new(3));
    let first = REFRESH - 40;
    grounds.iter().for_each(|ground| ground.areas.initialize(ground.segment(), first).unwrap());
    let mut groups = grounds.each_ref().map(|ground| [0, 1, 2].map(|rank| Side::new(ground, rank, first)));
    let mut random = fastrand::Rng::with_seed(4);
    // In the slot, in a chunk, in several rounds, empty; repeated, across the step at which stamps are rewritten.
    let calls: Vec<_> =
        (0..40).flat_map(|_| [([0, 7, 56, 57, 256, 900][random.usize(..6)], random.u32(..3)); 4]).collect();
    let mut short = [0; 2];
    for (number, (bytes, root)) in calls.into_iter().enumerate() {
        let data: Vec<u8> = (0..bytes).map(|at| (number + at) as u8).collect();
        for (group, takes_short) in groups.iter_mut().zip([false, true]) {
            for side in &mut *group {
                side.plan = CollectiveSpec { bytes, root: Rank(root), ..side.plan };
                side.memory = if side.flags.rank == root { data.clone() } else { vec![0; bytes] };
                if takes_short && side.poll_small_broadcast() {
                    short[usize::from(side.flags.rank == root)] += 1;
                } else {
                    side.start();
                }
            }
            while group.iter_mut().map(Side::go).filter(|turn| *turn == Poll::Pending).count() > 0 {}
            assert!(
                group.iter_mut().all(|side| side.go() == Poll::Complete && side.memory == data),
                "{bytes} from {root}"
            );
        }
        let [ordinary, short] = [0, 1].map(|at| published_by(&grounds[at], &groups[at]));
        assert!(ordinary == short, "broadcast {number}, {bytes} from {root}");
    }
    let [leaves, roots] = short;
    assert!(leaves > 50 && roots > 30, "{short:?}");
}

#[test]
fn root_of_small_broadcasts_does_not_overtake_a_sleeper() {
    let ground = TestAreas::new(2);
    let mut root = Side::new(&ground, 0, 0);
    for sent in 0..ground.areas.slots {
        let is_short = root.poll_small_broadcast();
        assert_eq!(is_short, sent > 0);
        if !is_short {
            root.start();
        }
        assert_eq!(root.go(), Poll::Complete, "{sent}");
    }
    assert!(!root.poll_small_broadcast());
    root.start();
    assert_eq!(root.go(), Poll::Pending);
}

#[test]
fn mismatched_small_broadcast_is_detected() {
    let ground = TestAreas::new(2);
    let [mut root, mut leaf] = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    for side in [&mut root, &mut leaf] {
        side.start();
        assert_eq!(side.go(), Poll::Complete);
    }
    root.plan.reduction_id = 1;
    root.start();
    assert_eq!(root.go(), Poll::Complete);
    assert!(!leaf.poll_small_broadcast());
    leaf.start();
    let Poll::Failed(failure) = leaf.go() else { panic!("another kind") };
    assert_eq!((failure.rank, failure.cause, failure.id.sequence), (Rank(0), FailureCause::Disagrees, 2));
    // And garbage.
    let [mut root, mut leaf] = [0, 1].map(|rank| Side::new(&ground, rank, 10));
    ground.areas.initialize(ground.segment(), 10).unwrap();
    for side in [&mut root, &mut leaf] {
        side.start();
        assert_eq!(side.go(), Poll::Complete);
    }
    ground.segment().word(ground.areas.stamp(0, 11)).unwrap().publish(13, Site::Plain);
    assert!(!leaf.poll_small_broadcast());
    leaf.start();
    let Poll::Failed(failure) = leaf.go() else { panic!("garbage") };
    assert_eq!((failure.rank, failure.cause), (Rank(0), FailureCause::Corrupt));
    assert!(!leaf.poll_small_broadcast(), "it failed");
}

#[test]
fn a_broadcast_that_follows_when_all_have_read_takes_the_same_chunk() {
    let ground = TestAreas::new(2);
    let [mut root, mut leaf] = [0, 1].map(|rank| Side::new(&ground, rank, 5));
    ground.areas.initialize(ground.segment(), 5).unwrap();
    for side in [&mut root, &mut leaf] {
        (side.plan.bytes, side.memory) = (200, vec![7; 200]);
    }
    let go = |side: &mut Side<'_>| {
        if !side.poll_small_broadcast() {
            side.start();
        }
        side.go()
    };
    let is_first = |root: &Side<'_>| {
        let [_, sign] = ground.segment().words(ground.areas.stamp(0, root.flags.call.base), 2).unwrap() else {
            panic!()
        };
        assert!([root.flags.call.signature, !root.flags.call.signature].contains(&sign.own()));
        sign.own() != root.flags.call.signature
    };
    for number in 0..20 {
        root.memory.fill(number);
        assert_eq!([go(&mut root), go(&mut leaf)], [Poll::Complete; 2]);
        assert_eq!((is_first(&root), &leaf.memory), (true, &root.memory), "{number}");
    }
    // A root that runs ahead uses the chunks of its slots, and waits for the one that was used out of turn.
    assert_eq!((go(&mut root), is_first(&root), root.flags.call.base), (Poll::Complete, true, 25));
    let turn = 26_u32.next_multiple_of(ground.areas.slots);
    for step in 26..turn {
        root.memory.fill(step as u8);
        assert_eq!((go(&mut root), is_first(&root)), (Poll::Complete, false));
    }
    assert_eq!((go(&mut root), root.flags.call.base), (Poll::Pending, turn));
    assert_eq!((go(&mut leaf), root.go()), (Poll::Complete, Poll::Complete));
    // Without and with a schedule.
    for step in 26..turn {
        let came = if step % 2 == 0 {
            leaf.start();
            leaf.go()
        } else {
            go(&mut leaf)
        };
        assert_eq!((came, leaf.flags.call.base, &leaf.memory), (Poll::Complete, step, &vec![step as u8; 200]));
    }
}
