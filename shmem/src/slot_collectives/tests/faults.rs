//! Mismatched calls, failed ranks, and corrupt words.

use super::*;

#[test]
fn ranks_that_do_not_do_the_same_are_told() {
    let ground = Ground::new(2);
    let [mut root, mut leaf] = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    root.start();
    assert_eq!(root.go(), Turn::Final);
    leaf.plan.bytes = 7;
    leaf.start();
    let Turn::Failed(failure) = leaf.go() else { panic!("different lengths were not detected") };
    assert_eq!((failure.rank, failure.cause, failure.verb), (Rank(0), Cause::Disagrees, Verb::Broadcast));
    leaf.start();
    assert_eq!(leaf.go(), Turn::Failed(failure), "it stays failed");
}

#[test]
fn who_goes_elsewhere_is_seen_by_who_does_not() {
    let ground = Ground::new(3);
    let group = || [0, 1, 2].map(|rank| Flags::new(ground.segment(), ground.boards, rank, true, 0).unwrap());
    let mut ranks = group();
    // More calls than there are slots: a rank waits only when it is that many ahead.
    for sequence in 0..9 {
        for (flags, rank) in ranks.iter_mut().zip(0..) {
            flags.force(Some(Way::Elsewhere));
            flags.start(CollectiveId { context: 0, sequence }, &plan(Verb::Gather, rank, 3, 1 << 20));
            assert_eq!(flags.poll(), Turn::Final);
        }
    }
    let [here, there, _] = &mut ranks;
    assert!(!here.is_ahead(Rank(1)));
    there.start(CollectiveId { context: 0, sequence: 9 }, &plan(Verb::Broadcast, 1, 3, 1 << 20));
    assert_eq!(there.poll(), Turn::Final);
    assert!(here.is_ahead(Rank(1)) && !here.is_ahead(Rank(2)));
    here.force(None);
    here.start(CollectiveId { context: 0, sequence: 9 }, &plan(Verb::Gather, 0, 3, 1));
    let mut into = [0; 3];
    let mut own = Buffers::new(ground.segment(), &[7], &mut into, Moves, Near);
    let failed = loop {
        match here.poll() {
            Turn::Do(step, wish) => {
                own.carry_out(wish).unwrap();
                here.handle_done(step);
            }
            turn => break turn,
        }
    };
    let Turn::Failed(failure) = failed else { panic!("{failed:?}") };
    assert_eq!((failure.rank, failure.cause), (Rank(1), Cause::Disagrees));
}

#[test]
fn who_goes_elsewhere_sees_who_gave_here() {
    let ground = Ground::new(3);
    let mut ranks = [0, 1, 2].map(|rank| Flags::new(ground.segment(), ground.boards, rank, true, 0).unwrap());
    let [root, giver, other] = &mut ranks;
    for flags in [&mut *root, &mut *other] {
        flags.force(Some(Way::Elsewhere));
        flags.start(CollectiveId::default(), &plan(Verb::Gather, flags.rank, 3, 1 << 20));
        assert_eq!(flags.poll(), Turn::Final);
        flags.force(None);
    }
    let [passed, others] = [root.passed(), other.passed()];
    assert_eq!(passed, others);
    let contradicting = || passed.contradicting(ground.segment(), &ground.boards, Rank(0));
    assert_eq!(contradicting(), None, "nothing is known of who has not come");
    // It returns after it has published its block, and runs ahead until its slot is needed again: the block stays
    // visible.
    let (data, mut none) = ([7; 1], []);
    for sequence in 0..ground.boards.slots {
        let what = plan(Verb::Gather, 1, 3, 1);
        let mut buffers = Buffers::new(ground.segment(), &data, &mut none, Moves, Near);
        giver.start(CollectiveId { context: 0, sequence }, &what);
        let ended = loop {
            match giver.poll() {
                Turn::Do(step, wish) => {
                    buffers.carry_out(wish).unwrap();
                    giver.handle_done(step);
                }
                turn => break turn,
            }
        };
        assert_eq!(ended, Turn::Final, "{sequence}");
        assert_eq!(contradicting(), Some(Rank(1)), "{sequence}");
    }
    giver.start(CollectiveId::default(), &plan(Verb::Gather, 1, 3, 1));
    assert_eq!(giver.poll(), Turn::Pending, "its slot is still looked at");
    assert_eq!(contradicting(), Some(Rank(1)));
}

#[test]
fn ranks_that_each_took_themselves_for_the_root_are_told_when_they_look() {
    let ground = Ground::new(2);
    let mut sides = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    for (side, rank) in sides.iter_mut().zip(0..) {
        side.plan.root = Rank(rank);
        side.start();
        assert_eq!(side.go(), Turn::Final, "nobody looks");
    }
    let [giver, taker] = &mut sides;
    for side in [&mut *giver, &mut *taker] {
        side.plan.root = Rank(0);
        side.start();
    }
    assert_eq!(giver.go(), Turn::Final);
    let Turn::Failed(failure) = taker.go() else { panic!("two roots were not detected") };
    assert_eq!((failure.rank, failure.cause), (Rank(0), Cause::Disagrees));
}

#[test]
fn who_shows_something_of_another_generation_disagrees() {
    let ground = Ground::new(2);
    let [mut before, mut after] = [0, 1].map(|rank| {
        let mut flags = Flags::new(ground.segment(), ground.boards, rank, true, 0).unwrap();
        flags.set_generation(7 + rank);
        flags
    });
    for (flags, rank) in [(&mut before, 0), (&mut after, 1)] {
        flags.start(CollectiveId { context: 0, sequence: 0 }, &plan(Verb::Barrier, rank, 2, 0));
    }
    assert_eq!(before.poll(), Turn::Pending);
    let failed = after.poll();
    assert!(matches!(failed, Turn::Failed(Failure { rank: Rank(0), cause: Cause::Disagrees, .. })), "{failed:?}");
}

#[test]
fn a_rank_that_died_is_named_with_what_it_is_missing_from() {
    let ground = Ground::new(3);
    let mut sides = [0, 1, 2].map(|rank| Side::new(&ground, rank, 0));
    sides[0].start();
    assert_eq!(sides[0].go(), Turn::Final);
    sides[1].start();
    assert_eq!(sides[1].go(), Turn::Final);
    assert!(!sides[1].flags.is_behind(Rank(0)) && sides[1].flags.is_behind(Rank(2)));
    sides[1].flags.handle_failed(Rank(2));
    assert_eq!(sides[1].go(), Turn::Final, "what is complete stays complete");
    sides[1].plan.root = Rank(2);
    sides[1].start();
    assert_eq!(sides[1].go(), Turn::Pending);
    sides[1].flags.handle_failed(Rank(2));
    let Turn::Failed(failure) = sides[1].go() else { panic!("not failed") };
    assert_eq!(failure.to_string(), "rank 2 died and is missing from broadcast 2");
}

#[test]
fn what_a_failed_rank_had_lent_is_not_taken() {
    let ground = Ground::new(3);
    let mut sides = [0, 1, 2].map(|rank| Side::new(&ground, rank, 0));
    for side in &mut sides {
        side.flags.set_pulls(true);
        side.flags.force(Some(Way::Pull));
        side.start();
    }
    assert_eq!(sides[0].go(), Turn::Pending, "it waits until its buffer was pulled");
    let Turn::Do(step, wish @ Wish::Pull { .. }) = sides[1].flags.poll() else { panic!("nothing was exposed") };
    sides[0].flags.handle_failed(Rank(2));
    sides[0].flags.withdraw();
    sides[0].memory.fill(0xff);
    let segment = sides[1].flags.segment;
    Buffers::in_place(segment, &mut sides[1].memory, Moves, Near).carry_out(wish).unwrap();
    sides[1].flags.handle_done(step);
    assert_eq!(sides[1].go(), Turn::Pending, "what was read may have been anything");
    assert!(sides[1].flags.is_behind(Rank(2)));
}

#[test]
fn every_changed_word_of_a_rank_is_noticed_by_it() {
    let ground = Ground::new(2);
    let [mut root, mut leaf] = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    for round in 0..40 {
        start_both([&mut root, &mut leaf], round % 2);
        let _ = [root.go(), leaf.go(), root.go()];
        let slots = (0..ground.boards.slots).map(|slot| ground.boards.stamp(0, slot));
        for word in slots.chain([ground.boards.done(0)]).map(|at| ground.segment().word(at).unwrap()) {
            assert!(root.flags.is_intact());
            let before = word.own();
            word.publish(before ^ 1, Site::Plain);
            assert!(!root.flags.is_intact() && leaf.flags.is_intact());
            word.publish(before, Site::Plain);
        }
    }
}

#[test]
fn a_stamp_that_was_lost_is_noticed_by_whoever_waits_for_it() {
    let ground = Ground::new(3);
    let mut sides = [0, 1, 2].map(|rank| Side::new(&ground, rank, 0));
    sides.iter_mut().for_each(|side| side.plan.root = Rank(0));
    for round in 0..40 {
        for side in &mut sides {
            side.start();
        }
        assert_eq!(sides[2].go(), Turn::Pending);
        assert_eq!(sides[2].flags.contradicting(), None, "the root has not come");
        assert_eq!([sides[0].go(), sides[1].go()], [Turn::Final; 2]);
        if round == 39 {
            break;
        }
        assert_eq!(sides[2].go(), Turn::Final);
    }
    let step = sides[0].flags.base;
    ground.segment().word(ground.boards.stamp(0, step)).unwrap().publish(step, Site::Plain);
    assert_eq!(sides[2].go(), Turn::Pending);
    assert_eq!(sides[2].flags.contradicting(), Some(Rank(0)));
    sides[2].flags.handle_corrupt(Rank(0));
    assert!(matches!(sides[2].go(), Turn::Failed(Failure { rank: Rank(0), cause: Cause::Corrupt, .. })));
}

#[test]
fn garbage_from_one_rank_ends_in_failures_that_name_others_than_oneself() {
    let failed = AtomicU64::new(0);
    for seed in 0..300 {
        let ground = Ground::new(3);
        let mut sides = [0, 1, 2].map(|rank| Side::new(&ground, rank, 0));
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut turns = [Turn::Final; 3];
        for round in 0..200 {
            for (rank, side) in sides.iter_mut().enumerate() {
                if turns[rank] == Turn::Final {
                    side.plan.root = Rank(round % 3);
                    side.start();
                }
                turns[rank] = side.go();
                assert!(!matches!(turns[rank], Turn::Failed(failure) if failure.rank.0 as usize == rank));
            }
            if round > 20 {
                // Rank 2 writes anything anywhere.
                for _ in 0..2 {
                    let at = rng.usize(..ground.boards.end() / 4) * 4;
                    ground.segment().word(at).unwrap().publish(rng.u32(..), Site::Plain);
                }
            }
        }
        failed.fetch_add(u64::from(turns.iter().any(|turn| matches!(turn, Turn::Failed(_)))), Ordering::Relaxed);
    }
    assert!(failed.into_inner() > 100);
}
