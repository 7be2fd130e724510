//! Requests that are waited for together, taken back, and asked again.

mod job;

use job::{EVERY_WAY, job_over};
use unisono::rank::Rank;
use unisono::world::World;
use unisono::world::collective::{CollectiveError, SystemOperation};

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
