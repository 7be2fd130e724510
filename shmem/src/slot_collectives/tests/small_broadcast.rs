//! Small broadcasts: the fast path against the ordinary one.

use super::*;

/// The words that a group has published, and the state of its ranks.
fn shown_by(ground: &Ground, sides: &[Side<'_>]) -> Vec<u32> {
    let words = ground.boards.words(ground.segment()).unwrap().iter().map(Word::own);
    words
        .chain(
            sides.iter().flat_map(|Side { flags, .. }| [flags.next, flags.history, flags.done, flags.base, flags.sign]),
        )
        .collect()
}

#[test]
fn a_short_broadcast_leaves_what_an_ordinary_one_does() {
    let grounds = [(); 2].map(|()| Ground::new(3));
    let first = REFRESH - 40;
    grounds.iter().for_each(|ground| ground.boards.write_first(ground.segment(), first).unwrap());
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
                side.plan = Plan { bytes, root: Rank(root), ..side.plan };
                side.memory = if side.flags.rank == root { data.clone() } else { vec![0; bytes] };
                if takes_short && side.look_short() {
                    short[usize::from(side.flags.rank == root)] += 1;
                } else {
                    side.start();
                }
            }
            while group.iter_mut().map(Side::go).filter(|turn| *turn == Turn::Pending).count() > 0 {}
            assert!(
                group.iter_mut().all(|side| side.go() == Turn::Final && side.memory == data),
                "{bytes} from {root}"
            );
        }
        let [ordinary, short] = [0, 1].map(|at| shown_by(&grounds[at], &groups[at]));
        assert!(ordinary == short, "broadcast {number}, {bytes} from {root}");
    }
    let [leaves, roots] = short;
    assert!(leaves > 50 && roots > 30, "{short:?}");
}

#[test]
fn the_root_of_short_broadcasts_does_not_overtake_a_sleeper() {
    let ground = Ground::new(2);
    let mut root = Side::new(&ground, 0, 0);
    for sent in 0..ground.boards.slots {
        let is_short = root.look_short();
        assert_eq!(is_short, sent > 0);
        if !is_short {
            root.start();
        }
        assert_eq!(root.go(), Turn::Final, "{sent}");
    }
    assert!(!root.look_short());
    root.start();
    assert_eq!(root.go(), Turn::Pending);
}

#[test]
fn who_calls_something_else_than_a_short_broadcast_is_told() {
    let ground = Ground::new(2);
    let [mut root, mut leaf] = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    for side in [&mut root, &mut leaf] {
        side.start();
        assert_eq!(side.go(), Turn::Final);
    }
    root.plan.kind = 1;
    root.start();
    assert_eq!(root.go(), Turn::Final);
    assert!(!leaf.look_short());
    leaf.start();
    let Turn::Failed(failure) = leaf.go() else { panic!("another kind") };
    assert_eq!((failure.rank, failure.cause, failure.id.sequence), (Rank(0), Cause::Disagrees, 2));
    // And garbage.
    let [mut root, mut leaf] = [0, 1].map(|rank| Side::new(&ground, rank, 10));
    ground.boards.write_first(ground.segment(), 10).unwrap();
    for side in [&mut root, &mut leaf] {
        side.start();
        assert_eq!(side.go(), Turn::Final);
    }
    ground.segment().word(ground.boards.stamp(0, 11)).unwrap().publish(13, Site::Plain);
    assert!(!leaf.look_short());
    leaf.start();
    let Turn::Failed(failure) = leaf.go() else { panic!("garbage") };
    assert_eq!((failure.rank, failure.cause), (Rank(0), Cause::Corrupt));
    assert!(!leaf.look_short(), "it failed");
}

#[test]
fn a_broadcast_that_follows_when_all_have_read_takes_the_same_chunk() {
    let ground = Ground::new(2);
    let [mut root, mut leaf] = [0, 1].map(|rank| Side::new(&ground, rank, 5));
    ground.boards.write_first(ground.segment(), 5).unwrap();
    for side in [&mut root, &mut leaf] {
        (side.plan.bytes, side.memory) = (200, vec![7; 200]);
    }
    let go = |side: &mut Side<'_>| {
        if !side.look_short() {
            side.start();
        }
        side.go()
    };
    let is_first = |root: &Side<'_>| {
        let [_, sign] = ground.segment().words(ground.boards.stamp(0, root.flags.base), 2).unwrap() else { panic!() };
        assert!([root.flags.sign, !root.flags.sign].contains(&sign.own()));
        sign.own() != root.flags.sign
    };
    for number in 0..20 {
        root.memory.fill(number);
        assert_eq!([go(&mut root), go(&mut leaf)], [Turn::Final; 2]);
        assert_eq!((is_first(&root), &leaf.memory), (true, &root.memory), "{number}");
    }
    // A root that runs ahead uses the chunks of its slots, and waits for the one that was used out of turn.
    assert_eq!((go(&mut root), is_first(&root), root.flags.base), (Turn::Final, true, 25));
    let turn = 26_u32.next_multiple_of(ground.boards.slots);
    for step in 26..turn {
        root.memory.fill(step as u8);
        assert_eq!((go(&mut root), is_first(&root)), (Turn::Final, false));
    }
    assert_eq!((go(&mut root), root.flags.base), (Turn::Pending, turn));
    assert_eq!((go(&mut leaf), root.go()), (Turn::Final, Turn::Final));
    // Without and with a schedule.
    for step in 26..turn {
        let came = if step % 2 == 0 {
            leaf.start();
            leaf.go()
        } else {
            go(&mut leaf)
        };
        assert_eq!((came, leaf.flags.base, &leaf.memory), (Turn::Final, step, &vec![step as u8; 200]));
    }
}
