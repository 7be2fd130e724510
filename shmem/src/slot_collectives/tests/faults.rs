//! Mismatched calls, failed ranks, and corrupt words.

use super::*;

#[test]
fn mismatched_calls_are_detected() {
    let ground = TestAreas::new(2);
    let [mut root, mut leaf] = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    root.start();
    assert_eq!(root.go(), Poll::Complete);
    leaf.plan.bytes = 7;
    leaf.start();
    let Poll::Failed(failure) = leaf.go() else { panic!("different lengths were not detected") };
    assert_eq!(
        (failure.rank, failure.cause, failure.collective),
        (Rank(0), FailureCause::Disagrees, CollectiveKind::Broadcast)
    );
    leaf.start();
    assert_eq!(leaf.go(), Poll::Failed(failure), "it stays failed");
}

#[test]
fn external_call_is_detected_by_a_slot_call() {
    let ground = TestAreas::new(3);
    let group = || [0, 1, 2].map(|rank| SlotCollectives::new(ground.segment(), ground.areas, rank, true, 0).unwrap());
    let mut ranks = group();
    // More calls than there are slots: a rank waits only when it is that many ahead.
    for sequence in 0..9 {
        for (flags, rank) in ranks.iter_mut().zip(0..) {
            flags.force_algorithm(Some(SlotAlgorithm::External));
            flags.start(CollectiveId { context: 0, sequence }, &plan(CollectiveKind::Gather, rank, 3, 1 << 20));
            assert_eq!(flags.poll(), Poll::Complete);
        }
    }
    let [here, there, _] = &mut ranks;
    assert!(!here.is_ahead(Rank(1)));
    there.start(CollectiveId { context: 0, sequence: 9 }, &plan(CollectiveKind::Broadcast, 1, 3, 1 << 20));
    assert_eq!(there.poll(), Poll::Complete);
    assert!(here.is_ahead(Rank(1)) && !here.is_ahead(Rank(2)));
    here.force_algorithm(None);
    here.start(CollectiveId { context: 0, sequence: 9 }, &plan(CollectiveKind::Gather, 0, 3, 1));
    let mut into = [0; 3];
    let mut own = CollectiveBuffers::new(ground.segment(), &[7], &mut into, NoReduction, SameProcess);
    let failed = loop {
        match here.poll() {
            Poll::Request(step, op) => {
                own.execute(op).unwrap();
                here.handle_done(step);
            }
            turn => break turn,
        }
    };
    let Poll::Failed(failure) = failed else { panic!("{failed:?}") };
    assert_eq!((failure.rank, failure.cause), (Rank(1), FailureCause::Disagrees));
}

#[test]
fn slot_call_is_detected_by_an_external_call() {
    let ground = TestAreas::new(3);
    let mut ranks = [0, 1, 2].map(|rank| SlotCollectives::new(ground.segment(), ground.areas, rank, true, 0).unwrap());
    let [root, giver, other] = &mut ranks;
    for flags in [&mut *root, &mut *other] {
        flags.force_algorithm(Some(SlotAlgorithm::External));
        flags.start(CollectiveId::default(), &plan(CollectiveKind::Gather, flags.rank, 3, 1 << 20));
        assert_eq!(flags.poll(), Poll::Complete);
        flags.force_algorithm(None);
    }
    let [passed, others] = [root.call_record(), other.call_record()];
    assert_eq!(passed, others);
    let contradicting = || passed.contradicting_rank(ground.segment(), &ground.areas, Rank(0));
    assert_eq!(contradicting(), None, "nothing is known of who has not come");
    // It returns after it has published its block, and runs ahead until its slot is needed again: the block stays
    // visible.
    let (data, mut none) = ([7; 1], []);
    for sequence in 0..ground.areas.slots {
        let what = plan(CollectiveKind::Gather, 1, 3, 1);
        let mut buffers = CollectiveBuffers::new(ground.segment(), &data, &mut none, NoReduction, SameProcess);
        giver.start(CollectiveId { context: 0, sequence }, &what);
        let ended = loop {
            match giver.poll() {
                Poll::Request(step, op) => {
                    buffers.execute(op).unwrap();
                    giver.handle_done(step);
                }
                turn => break turn,
            }
        };
        assert_eq!(ended, Poll::Complete, "{sequence}");
        assert_eq!(contradicting(), Some(Rank(1)), "{sequence}");
    }
    giver.start(CollectiveId::default(), &plan(CollectiveKind::Gather, 1, 3, 1));
    assert_eq!(giver.poll(), Poll::Pending, "its slot is still looked at");
    assert_eq!(contradicting(), Some(Rank(1)));
}

#[test]
fn two_roots_are_detected_at_the_next_read() {
    let ground = TestAreas::new(2);
    let mut sides = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    for (side, rank) in sides.iter_mut().zip(0..) {
        side.plan.root = Rank(rank);
        side.start();
        assert_eq!(side.go(), Poll::Complete, "nobody looks");
    }
    let [giver, taker] = &mut sides;
    for side in [&mut *giver, &mut *taker] {
        side.plan.root = Rank(0);
        side.start();
    }
    assert_eq!(giver.go(), Poll::Complete);
    let Poll::Failed(failure) = taker.go() else { panic!("two roots were not detected") };
    assert_eq!((failure.rank, failure.cause), (Rank(0), FailureCause::Disagrees));
}

#[test]
fn slot_of_another_generation_disagrees() {
    let ground = TestAreas::new(2);
    let [mut before, mut after] = [0, 1].map(|rank| {
        let mut flags = SlotCollectives::new(ground.segment(), ground.areas, rank, true, 0).unwrap();
        flags.set_generation(7 + rank);
        flags
    });
    for (flags, rank) in [(&mut before, 0), (&mut after, 1)] {
        flags.start(CollectiveId { context: 0, sequence: 0 }, &plan(CollectiveKind::Barrier, rank, 2, 0));
    }
    assert_eq!(before.poll(), Poll::Pending);
    let failed = after.poll();
    assert!(
        matches!(failed, Poll::Failed(Failure { rank: Rank(0), cause: FailureCause::Disagrees, .. })),
        "{failed:?}"
    );
}

#[test]
fn failed_rank_is_named_with_its_collective() {
    let ground = TestAreas::new(3);
    let mut sides = [0, 1, 2].map(|rank| Side::new(&ground, rank, 0));
    sides[0].start();
    assert_eq!(sides[0].go(), Poll::Complete);
    sides[1].start();
    assert_eq!(sides[1].go(), Poll::Complete);
    assert!(!sides[1].flags.is_behind(Rank(0)) && sides[1].flags.is_behind(Rank(2)));
    sides[1].flags.handle_failed(Rank(2));
    assert_eq!(sides[1].go(), Poll::Complete, "what is complete stays complete");
    sides[1].plan.root = Rank(2);
    sides[1].start();
    assert_eq!(sides[1].go(), Poll::Pending);
    sides[1].flags.handle_failed(Rank(2));
    let Poll::Failed(failure) = sides[1].go() else { panic!("not failed") };
    assert_eq!(failure.to_string(), "rank 2 died and is missing from broadcast 2");
}

#[test]
fn withdrawn_buffer_is_not_used() {
    let ground = TestAreas::new(3);
    let mut sides = [0, 1, 2].map(|rank| Side::new(&ground, rank, 0));
    for side in &mut sides {
        side.flags.set_pulls(true);
        side.flags.force_algorithm(Some(SlotAlgorithm::Pull));
        side.start();
    }
    assert_eq!(sides[0].go(), Poll::Pending, "it waits until its buffer was pulled");
    let Poll::Request(step, op @ DataOp::Pull { .. }) = sides[1].flags.poll() else { panic!("nothing was exposed") };
    sides[0].flags.handle_failed(Rank(2));
    sides[0].flags.withdraw_buffers();
    sides[0].memory.fill(0xff);
    let segment = sides[1].flags.segment;
    CollectiveBuffers::in_place(segment, &mut sides[1].memory, NoReduction, SameProcess).execute(op).unwrap();
    sides[1].flags.handle_done(step);
    assert_eq!(sides[1].go(), Poll::Pending, "what was read may have been anything");
    assert!(sides[1].flags.is_behind(Rank(2)));
}

#[test]
fn every_changed_word_of_a_rank_is_noticed_by_it() {
    let ground = TestAreas::new(2);
    let [mut root, mut leaf] = [0, 1].map(|rank| Side::new(&ground, rank, 0));
    for round in 0..40 {
        start_both([&mut root, &mut leaf], round % 2);
        let _ = [root.go(), leaf.go(), root.go()];
        let slots = (0..ground.areas.slots).map(|slot| ground.areas.stamp(0, slot));
        for word in slots.chain([ground.areas.done(0)]).map(|at| ground.segment().word(at).unwrap()) {
            assert!(root.flags.is_intact());
            let before = word.own();
            word.publish(before ^ 1, Site::Plain);
            assert!(!root.flags.is_intact() && leaf.flags.is_intact());
            word.publish(before, Site::Plain);
        }
    }
}

#[test]
fn lost_stamp_is_noticed_by_the_waiting_rank() {
    let ground = TestAreas::new(3);
    let mut sides = [0, 1, 2].map(|rank| Side::new(&ground, rank, 0));
    sides.iter_mut().for_each(|side| side.plan.root = Rank(0));
    for round in 0..40 {
        for side in &mut sides {
            side.start();
        }
        assert_eq!(sides[2].go(), Poll::Pending);
        assert_eq!(sides[2].flags.contradicting_rank(), None, "the root has not come");
        assert_eq!([sides[0].go(), sides[1].go()], [Poll::Complete; 2]);
        if round == 39 {
            break;
        }
        assert_eq!(sides[2].go(), Poll::Complete);
    }
    let step = sides[0].flags.call.base;
    ground.segment().word(ground.areas.stamp(0, step)).unwrap().publish(step, Site::Plain);
    assert_eq!(sides[2].go(), Poll::Pending);
    assert_eq!(sides[2].flags.contradicting_rank(), Some(Rank(0)));
    sides[2].flags.handle_corrupt(Rank(0));
    assert!(matches!(sides[2].go(), Poll::Failed(Failure { rank: Rank(0), cause: FailureCause::Corrupt, .. })));
}

#[test]
fn garbage_from_one_rank_ends_in_failures_that_name_others_than_oneself() {
    let failed = AtomicU64::new(0);
    for seed in 0..300 {
        let ground = TestAreas::new(3);
        let mut sides = [0, 1, 2].map(|rank| Side::new(&ground, rank, 0));
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut turns = [Poll::Complete; 3];
        for round in 0..200 {
            for (rank, side) in sides.iter_mut().enumerate() {
                if turns[rank] == Poll::Complete {
                    side.plan.root = Rank(round % 3);
                    side.start();
                }
                turns[rank] = side.go();
                assert!(!matches!(turns[rank], Poll::Failed(failure) if failure.rank.0 as usize == rank));
            }
            if round > 20 {
                // Rank 2 writes anything anywhere.
                for _ in 0..2 {
                    let at = rng.usize(..ground.areas.end() / 4) * 4;
                    ground.segment().word(at).unwrap().publish(rng.u32(..), Site::Plain);
                }
            }
        }
        failed.fetch_add(u64::from(turns.iter().any(|turn| matches!(turn, Poll::Failed(_)))), Ordering::Relaxed);
    }
    assert!(failed.into_inner() > 100);
}
