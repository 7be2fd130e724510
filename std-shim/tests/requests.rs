//! Requests that are waited for together, taken back, and asked again.

mod job;

use job::{EVERY_WAY, data, job_over};
use unisono::rank::Rank;
use unisono::world::collective::{CollectiveError, SystemOperation};
use unisono::world::{Status, Tag, World};

/// Words of a message in the entry, in the bulk, announced.
const KINDS: [usize; 3] = [1, 700, 40_000];
const GO: Tag = Tag(99);

fn everywhere(size: u32, body: fn(&World)) {
    for over in EVERY_WAY {
        for progress in ["engine", "thread", "hybrid"] {
            job_over(over, size, &[("PROGRESS", progress)], |world| {
                body(&world);
                world.finish().expect("everybody finishes");
            });
        }
    }
}

fn of_rank_0(tag: usize, words: usize) -> Status {
    Status { source: Rank(0), tag: Tag(tag as u32), bytes: words * 4 }
}

#[test]
fn a_loan_is_taken_back_and_its_buffer_lent_again() {
    everywhere(2, |world| {
        let other = Rank(1 - world.rank().0);
        for words in KINDS {
            if world.rank() == Rank(0) {
                world.receive_into(&mut [0_u8], other, GO).expect("arrives");
                world.synchronous_send(&data(3, words), other, Tag(1)).expect("met");
                continue;
            }
            let mut memory = vec![7; words];
            world.scope(|scope| {
                let loan = scope.lend(&mut memory, other, Tag(1)).expect("started");
                assert!(!loan.is_done() && loan.test().is_none());
                assert!(loan.cancel() && !loan.cancel() && loan.is_done());
                let (ended, buffer) = loan.wait();
                assert!(ended == Ok(None) && buffer.iter().all(|word| *word == 7), "as it was");
                let loan = scope.lend(buffer, other, Tag(1)).expect("started");
                world.send(&[1_u8], other, GO).expect("sent");
                while !loan.is_done() {}
                assert!(!loan.cancel(), "it has met its message");
                assert_eq!(loan.test(), Some(Ok(Some(of_rank_0(1, words)))));
                assert_eq!(loan.test(), Some(Ok(None)), "it was told");
                let (ended, buffer) = loan.wait();
                assert!(ended == Ok(None) && buffer == data(3, words));
            });
        }
    });
}

#[test]
fn a_collective_tells_once_how_it_has_ended() {
    everywhere(2, |world| {
        let team = world.duplicate().expect("another communicator");
        let (own, mut sums) = ([1_u64; 3], [[0; 3]; 2]);
        let [sum, never] = &mut sums;
        world.scope(|scope| {
            let request = scope.immediate_all_reduce_into(&own, sum, SystemOperation::sum()).expect("begun");
            let ended = loop {
                if let Some(ended) = request.test() {
                    break ended;
                }
            };
            assert_eq!((ended, request.test(), request.test()), (Ok(()), Some(Ok(())), Some(Ok(()))));
            assert!(request.is_done());
            assert_eq!(request.wait(), Ok(()));
            if world.rank() == Rank(0) {
                let scope = scope.on(&team);
                let request = scope.immediate_all_reduce_into(&own, never, SystemOperation::sum()).expect("begun");
                assert_eq!(request.test(), None, "the other has not begun it");
                team.revoke();
                assert_eq!(request.test(), Some(Err(CollectiveError::Revoked)));
                assert_eq!((request.test(), request.wait()), (Some(Ok(())), Ok(())), "it was told");
            }
        });
        assert_eq!(sums[0], [2; 3]);
    });
}
