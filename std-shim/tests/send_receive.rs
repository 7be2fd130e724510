//! Combined send-receive.

mod job;

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::thread;

use job::{EVERY_WAY, Over, data, everywhere, job, job_over};
use unisono::{Failure, Rank, Tag, World};

const TAG: Tag = Tag(1);
/// Message lengths in words: in a ring entry, in the bulk area, by rendezvous, and by rendezvous in parts.
const KINDS: [usize; 5] = [0, 1, 700, 40_000, 600_000];

#[test]
fn two_ranks_exchange_messages_of_all_sizes() {
    everywhere(2, |world| {
        let (own, other) = (world.rank().0 as usize, Rank(1 - world.rank().0));
        for words in KINDS {
            // The same tag both ways; the two differ in length.
            let (sent, mut got) = (data(own, words + own), vec![7; words + 1]);
            let status = world.send_receive_into(&sent, other, TAG, &mut got, other, TAG).expect("arrives");
            let expected = data(1 - own, words + 1 - own);
            assert_eq!((status.source, status.tag, status.bytes), (other, TAG, expected.len() * 4));
            assert_eq!(got[..expected.len()], expected);
            let (mut both, tags) = (data(own, words), [Tag(own as u32), Tag(1 - own as u32)]);
            let status = world.send_receive_replace_into(&mut both, other, tags[0], other, tags[1]);
            assert_eq!(status.expect("arrives").tag, tags[1]);
            assert_eq!(both, data(1 - own, words));
        }
    });
}

#[test]
fn messages_go_round_a_ring() {
    everywhere(3, |world| {
        let (own, size) = (world.rank().0, world.size());
        let (right, left) = (Rank((own + 1) % size), Rank((own + size - 1) % size));
        for words in KINDS {
            let (mut token, mut got) = (data(own as usize, words), vec![0; words]);
            for hop in 1..=size {
                world.send_receive_into(&token, right, TAG, &mut got, left, None).expect("arrives");
                let status = world.send_receive_replace_into(&mut token, right, TAG, None, TAG).expect("arrives");
                assert_eq!((status.source, &token), (left, &got));
                assert_eq!(token, data(((own + size * hop - hop) % size) as usize, words));
            }
        }
    });
}

#[test]
fn the_other_side_may_send_and_receive_and_be_oneself() {
    everywhere(2, |world| {
        let (own, other) = (world.rank(), Rank(1 - world.rank().0));
        for words in KINDS {
            let (one, two, mut got) = (data(1, words), data(2, words), vec![0; words]);
            if own == Rank(0) {
                world.send_receive_into(&one, other, TAG, &mut got, other, TAG).expect("arrives");
                assert_eq!(got, two);
            } else {
                world.scope(|scope| {
                    let send = scope.immediate_send(&two, other, TAG).expect("started");
                    world.receive_into(&mut got, other, TAG).expect("arrives");
                    send.wait().expect("sent");
                });
                assert_eq!(got, one);
            }
            let status = world.send_receive_into(&two, own, TAG, &mut got, own, TAG).expect("arrives");
            assert_eq!((status.source, status.bytes, &got), (own, words * 4, &two));
            let mut both = one.clone();
            assert_eq!(world.send_receive_replace_into(&mut both, own, TAG, own, None), Ok(status));
            assert_eq!(both, one);
        }
    });
}

#[test]
fn what_is_shorter_leaves_the_rest_and_what_is_longer_is_an_error() {
    EVERY_WAY.into_iter().for_each(|over| {
        job_over(over, 2, &[], |world| {
            let (own, other) = (world.rank(), Rank(1 - world.rank().0));
            for words in [8, 200, 60_000] {
                let mut both = data(own.0 as usize, words + own.0 as usize);
                let ended = world.send_receive_replace_into(&mut both, other, TAG, other, TAG);
                if own == Rank(0) {
                    assert!(matches!(
                        ended,
                        Err(Failure::Truncated { bytes }) if bytes == words as u64 * 4 + 4
                    ));
                } else if words * 4 + 4 > world.eager_limit() {
                    assert_eq!(ended, Err(Failure::RemoteTruncated(other)));
                } else {
                    assert_eq!(ended.expect("arrives").bytes, words * 4);
                    assert_eq!((&both[..words], both[words]), (&*data(0, words), data(1, words + 1)[words]));
                }
            }
            world.finish().expect("all ranks finish");
        });
    });
}

#[test]
fn what_cannot_be_sent_takes_no_message() {
    EVERY_WAY.into_iter().for_each(|over| {
        job_over(over, 2, &[], |world| {
            let (other, nobody) = (Rank(1 - world.rank().0), Rank(9));
            let (mut got, unknown) = ([0_u32], Err(Failure::UnknownRank(nobody)));
            assert_eq!(world.send_receive_into(&[1_u32], nobody, TAG, &mut got, other, TAG), unknown);
            assert_eq!(world.send_receive_into(&[1_u32], other, TAG, &mut got, nobody, TAG), unknown);
            assert_eq!(world.send_receive_replace_into(&mut got, other, TAG, nobody, TAG), unknown);
            assert_eq!(world.send_receive_replace_into(&mut got, nobody, TAG, other, TAG), unknown);
            world.send_receive_into(&[2_u32], other, TAG, &mut got, other, TAG).expect("arrives");
            assert_eq!(got, [2]);
            world.finish().expect("all ranks finish");
        });
    });
}

/// Runs `survive` on ranks 0 and 1 while rank 2 fails, which has received from both.
fn beside_a_death(over: Over, progress: &str, survive: impl Fn(&World) + Sync) {
    let survivors = AtomicU32::new(0);
    let outcome = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        job_over(over, 3, &[("PROGRESS", progress), ("ON_DEATH", "tell")], |world| {
            if world.rank() == Rank(2) {
                world.receive_into(&mut [0_u8], Rank(0), Tag(9)).expect("arrives");
                world.receive_into(&mut [0_u8], Rank(1), Tag(9)).expect("arrives");
                // Give the others time to wait.
                thread::sleep(Duration::from_millis(30));
                std::panic::resume_unwind(Box::new("failed"));
            }
            world.send(&[1_u8], Rank(2), Tag(9)).expect("sent");
            survive(&world);
            world.finish().expect("the others finish");
            survivors.fetch_add(1, Ordering::Relaxed);
        });
    }));
    assert!(outcome.is_err(), "rank 2 panics");
    assert_eq!(survivors.into_inner(), 2, "the others do not panic; {over:?}, {progress}");
}

#[test]
fn death_of_either_side_ends_it() {
    let (long, dead) = (data(3, 60_000), Rank(2));
    for over in EVERY_WAY {
        for progress in ["engine", "hybrid"] {
            beside_a_death(over, progress, |world| {
                let (other, mut got) = (Rank(1 - world.rank().0), vec![0; long.len()]);
                if world.rank() == Rank(0) {
                    // Its receive is not matched before this message.
                    let failed = world.send_receive_into(&long, dead, TAG, &mut got, other, TAG);
                    assert_eq!(failed, Err(Failure::PeerFailed(dead)), "{over:?}");
                    world.send(&[1_u8], other, Tag(2)).expect("sent");
                    // A later message matches another receive.
                    world.receive_into(&mut got, other, TAG).expect("arrives");
                    assert_eq!(got, long);
                } else {
                    let failed = world.send_receive_into(&[1_u8], other, Tag(3), &mut got, dead, TAG);
                    assert_eq!(failed, Err(Failure::PeerFailed(dead)), "{over:?}");
                    world.receive_into(&mut [0_u8], other, Tag(2)).expect("arrives");
                    world.send(&long, other, TAG).expect("sent");
                }
                let mut both = long.clone();
                let failed = world.send_receive_replace_into(&mut both, dead, TAG, dead, TAG);
                assert_eq!(failed, Err(Failure::PeerFailed(dead)), "{over:?}");
                // The copy is free.
                world.send_receive_replace_into(&mut both, other, TAG, other, TAG).expect("arrives");
            });
        }
    }
}

#[test]
fn revocation_ends_it() {
    EVERY_WAY.into_iter().for_each(|over| {
        job_over(over, 2, &[("PROGRESS", "hybrid")], |world| {
            let (team, other) = (world.duplicate().expect("another communicator"), Rank(1 - world.rank().0));
            let (long, mut got) = (data(3, 60_000), vec![0_u32; 60_000]);
            if world.rank() == Rank(0) {
                let failed = team.send_receive_into(&long, other, TAG, &mut got, other, TAG);
                assert_eq!(failed, Err(Failure::Revoked), "{over:?}");
            } else {
                thread::sleep(Duration::from_millis(30));
                team.revoke();
            }
            let failed = team.send_receive_replace_into(&mut got, other, TAG, other, TAG);
            assert_eq!(failed, Err(Failure::Revoked), "{over:?}");
            world.finish().expect("all ranks finish");
        });
    });
}

#[test]
fn a_rank_at_its_end_ends_it() {
    job(2, &[], |world| {
        if world.rank() == Rank(0) {
            let (long, mut got, other) = (data(3, 60_000), [0_u32], Rank(1));
            let failed = world.send_receive_into(&long, other, TAG, &mut got, other, TAG);
            assert_eq!(failed, Err(Failure::PeerFinished(other)));
        }
        world.finish().expect("all ranks finish");
    });
}
