//! Pools of all ranks over messages in order and probes that get lost.

extern crate alloc;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::multicast::{GroupPool, Offer, SlotSet};
use crate::time::Nanos;

const SLOTS: usize = 4;
const RANKS: usize = 6;
const TARGET: u32 = 2;
/// Probes, and units between them.
const PROBES: (u32, u32, u32) = (200, 1, 1);

/// A communicator: its ranks, as bits, and its group.
#[derive(Clone, Copy, Debug)]
struct Communicator {
    members: u8,
    slot: Option<u8>,
}

/// A job whose messages wait until they are delivered.
struct Job {
    now: u64,
    root: PoolRoot<Nanos, SLOTS, RANKS>,
    pools: Vec<GroupPool<SLOTS>>,
    to_rank: Vec<VecDeque<PoolMessage>>,
    to_root: Vec<VecDeque<PoolMessage>>,
    probes: Vec<(usize, PoolMessage)>,
    /// Ranks that are members of each group at their devices, and ranks that its present test has reached.
    joined: [u8; SLOTS],
    reached: [u8; SLOTS],
    /// A rank whose device joins no group.
    refuses: Option<usize>,
    /// A rank that no multicast reaches.
    deaf: Option<usize>,
    /// A rank that has failed: it sends and gets nothing.
    dead: Option<usize>,
    communicators: Vec<Communicator>,
}

impl Job {
    fn new() -> Self {
        let config = PoolConfig { size: RANKS as u32, root: Rank(0), target: TARGET, probes: PROBES };
        let mut job = Self {
            now: 0,
            root: PoolRoot::new(0, config),
            pools: vec![GroupPool::new(); RANKS],
            to_rank: vec![VecDeque::new(); RANKS],
            to_root: vec![VecDeque::new(); RANKS],
            probes: Vec::new(),
            joined: [0; SLOTS],
            reached: [0; SLOTS],
            refuses: None,
            deaf: None,
            dead: None,
            communicators: Vec::new(),
        };
        job.poll();
        job
    }

    /// A rank fails, which the root learns at once.
    fn fail(&mut self, rank: usize) {
        self.dead = Some(rank);
        (self.to_rank[rank], self.to_root[rank]) = (VecDeque::new(), VecDeque::new());
        self.joined.iter_mut().for_each(|members| *members &= !(1 << rank));
        self.root.handle_failed(self.now, Rank(rank as u32));
        self.poll();
    }

    /// Carries out what the machines request.
    fn poll(&mut self) {
        while let Some(message) = self.root.poll_transmit(self.now) {
            if message.body == PoolBody::Make {
                self.reached[usize::from(message.slot)] = 0;
            }
            let dead = self.dead;
            let living = self.to_rank.iter_mut().enumerate().filter(|(rank, _)| dead != Some(*rank));
            living.for_each(|(_, queue)| queue.push_back(message));
        }
        while let Some(probe) = self.root.poll_probe() {
            let members = self.joined[usize::from(probe.slot)];
            let others = (1..RANKS).filter(|rank| members & 1 << rank != 0 && self.deaf != Some(*rank));
            self.probes.extend(others.map(|rank| (rank, probe)));
        }
        for rank in (0..RANKS).filter(|rank| self.dead != Some(*rank)).collect::<Vec<_>>() {
            let pool = &mut self.pools[rank];
            while let Some(slot) = pool.poll_join() {
                let is_joined = self.refuses != Some(rank);
                if is_joined {
                    self.joined[usize::from(slot)] |= 1 << rank;
                }
                pool.handle_joined(slot, is_joined);
            }
            while let Some(slot) = pool.poll_leave() {
                self.joined[usize::from(slot)] &= !(1 << rank);
            }
            while let Some(message) = pool.poll_transmit() {
                if message.body == PoolBody::Answered {
                    self.reached[usize::from(message.slot)] |= 1 << rank;
                }
                self.to_root[rank].push_back(message);
            }
        }
    }

    /// Delivers the next message of one queue, or loses or delivers a probe.
    fn step(&mut self, choice: u8) {
        let (rank, what) = (usize::from(choice) % RANKS, usize::from(choice) / RANKS % 4);
        match what {
            0 => {
                if let Some(message) = self.to_rank[rank].pop_front() {
                    self.pools[rank].handle_message(message);
                }
            }
            1 => {
                if let Some(message) = self.to_root[rank].pop_front() {
                    self.root.handle_message(self.now, Rank(rank as u32), message);
                }
            }
            _ if !self.probes.is_empty() => {
                let (rank, probe) = self.probes.remove(usize::from(choice) % self.probes.len());
                if what == 2 {
                    self.pools[rank].handle_message(probe);
                }
            }
            _ => {
                self.now += 64;
                self.root.handle_timeout(self.now);
            }
        }
        self.poll();
    }

    /// Delivers everything until enough groups are ready, or no other is made.
    fn settle(&mut self) {
        for _ in 0..5000 {
            let mut queues = self.to_rank.iter().chain(&self.to_root);
            if queues.all(VecDeque::is_empty) && self.probes.is_empty() && self.root.poll_timeout().is_none() {
                return;
            }
            for rank in 0..RANKS {
                self.step(rank as u8);
                self.step((RANKS + rank) as u8);
            }
            self.step(2 * RANKS as u8);
        }
        panic!("the job does not come to rest");
    }

    /// Creates communicators by the ranks of `parent`: those of `first`, and the others. `steps` pass before the ranks
    /// take their groups, and after each.
    fn create(&mut self, parent: u8, first: u8, steps: &[u8]) {
        let ranks = || (0..RANKS).filter(move |rank| parent & 1 << rank != 0);
        let offers: Vec<Option<Offer>> = ranks().map(|rank| self.pools[rank].offer()).collect();
        for offer in offers.iter().flatten() {
            for slot in (0..SLOTS).filter(|slot| offer.slots().0 & 1 << slot != 0) {
                let all = (1 << RANKS) - 1;
                assert_eq!(self.reached[slot] | 1, all, "a group is offered only after its test has passed");
            }
        }
        let slots = |offer: &Option<Offer>| offer.as_ref().map_or(SlotSet::EMPTY, Offer::slots);
        let agreed = offers.iter().map(slots).fold(SlotSet::ALL, SlotSet::and);
        let numbers = [first & parent, parent & !first];
        let mut groups = [None, None];
        for (i, (rank, offer)) in ranks().zip(offers).enumerate() {
            steps.iter().skip(i % 2).step_by(2).for_each(|choice| self.step(*choice));
            let own = u32::from(numbers[0] & 1 << rank == 0);
            let taken = offer.and_then(|offer| self.pools[rank].take(offer, agreed, 2, Some(own)));
            self.poll();
            if let Some(slot) = taken {
                assert!(
                    self.joined[usize::from(slot)] & 1 << rank != 0,
                    "a member of the communicator is in its group"
                );
            }
            let group = groups[own as usize].get_or_insert(taken);
            assert_eq!(*group, taken, "all members get the same group");
        }
        for (members, slot) in numbers.into_iter().zip(groups) {
            let new = Communicator { members, slot: slot.flatten() };
            for other in &self.communicators {
                let is_shared = new.slot.is_some() && new.slot == other.slot;
                assert!(!is_shared || new.members & other.members == 0, "{new:?} shares its group with {other:?}");
            }
            self.communicators.push(new);
        }
    }

    fn free(&mut self, i: usize) {
        let Communicator { members, slot } = self.communicators.swap_remove(i);
        for rank in (0..RANKS).filter(|rank| members & 1 << rank != 0) {
            slot.into_iter().for_each(|slot| self.pools[rank].release(slot));
        }
        self.poll();
    }
}

#[derive(Clone, Debug)]
enum Action {
    Steps(Vec<u8>),
    Settle,
    Create { parent: u8, first: u8, steps: Vec<u8> },
    Free(usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let steps = || prop::collection::vec(any::<u8>(), 0..60);
    let mask = || 1_u8..1 << RANKS;
    let action = prop_oneof![
        steps().prop_map(Action::Steps),
        Just(Action::Settle),
        (mask(), mask(), steps()).prop_map(|(parent, first, steps)| Action::Create { parent, first, steps }),
        (mask(), steps()).prop_map(|(first, steps)| Action::Create { parent: (1 << RANKS) - 1, first, steps }),
        any::<usize>().prop_map(Action::Free),
    ];
    prop::collection::vec(action, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Whatever is created in whatever order, with messages under way: [`Job::create`] checks each communicator. At the
    /// end the pool is as full as at the beginning.
    #[test]
    fn communicators_share_no_ranks_with_others_of_their_group(actions in actions()) {
        let mut job = Job::new();
        for action in actions {
            match action {
                Action::Steps(steps) => steps.iter().for_each(|choice| job.step(*choice)),
                Action::Settle => job.settle(),
                Action::Create { parent, first, steps } => job.create(parent, first, &steps),
                Action::Free(which) if !job.communicators.is_empty() => job.free(which % job.communicators.len()),
                Action::Free(_) => {}
            }
        }
        while !job.communicators.is_empty() {
            job.free(0);
        }
        job.settle();
        prop_assert!(!job.root.is_closed());
        prop_assert_eq!(job.root.ready(), TARGET);
        let ready = job.pools[0].ready();
        prop_assert_eq!(ready.0.count_ones(), TARGET);
        prop_assert!(job.pools.iter().all(|pool| pool.ready() == ready && pool.taken() == SlotSet::EMPTY));
        // A rank that has left is no member at its device either.
        for slot in 0..SLOTS {
            let members = if ready.0 & 1 << slot != 0 { (1 << RANKS) - 1 } else { 0 };
            prop_assert_eq!(job.joined[slot], members);
        }
    }
}

fn settled() -> Job {
    let mut job = Job::new();
    job.settle();
    job
}

const ALL: u8 = (1 << RANKS) - 1;

#[test]
fn pool_is_filled_to_its_target_and_refilled_while_groups_are_in_use() {
    let mut job = settled();
    assert_eq!((job.root.ready(), job.pools[5].ready()), (2, SlotSet(0b11)));
    job.create(ALL, 0b00_0111, &[]);
    assert!(job.communicators.iter().map(|one| one.slot).eq([Some(0), Some(1)]));
    assert_eq!((job.joined[0], job.joined[1]), (0b00_0111, 0b11_1000), "the others leave");
    job.settle();
    assert_eq!(job.pools[3].ready(), SlotSet(0b1100));
}

#[test]
fn exhausted_pool_gives_no_group_and_recovers() {
    let mut job = settled();
    for _ in 0..3 {
        job.create(ALL, 0b00_0111, &[]);
    }
    assert_eq!(job.communicators[2].slot, None, "nothing is ready");
    job.settle();
    job.create(ALL, 0b00_1111, &[]);
    assert_eq!(job.communicators[6].slot, Some(2));
    job.settle();
    job.create(ALL, 0b00_1111, &[]);
    assert_eq!(job.communicators[8].slot, None, "every slot is in use");
    for _ in 0..job.communicators.len() {
        job.free(0);
    }
    job.settle();
    assert_eq!(job.root.ready(), TARGET);
}

#[test]
fn ranks_that_were_no_part_of_a_creation_leave_when_the_root_withdraws_the_group() {
    let mut job = settled();
    job.create(0b00_0111, 0b00_0011, &[]);
    assert_eq!(job.joined[0], 0b11_1011, "ranks 3 to 5 have not learned of it");
    job.settle();
    assert_eq!((job.joined[0], job.joined[1]), (0b00_0011, 0b00_0100));
}

#[test]
fn second_creation_gets_no_offer_until_the_first_ends() {
    let mut job = settled();
    let pool = &mut job.pools[1];
    let offer = pool.offer().unwrap();
    assert_eq!((offer.slots(), pool.offer()), (SlotSet(0b11), None));
    pool.decline(offer);
    assert!(pool.offer().is_some_and(|offer| offer.slots() == SlotSet(0b11)));
}

#[test]
fn group_that_a_rank_cannot_join_or_receive_from_closes_the_pool() {
    for rank in 0..RANKS {
        for is_deaf in [false, true] {
            let mut job = Job::new();
            *(if is_deaf { &mut job.deaf } else { &mut job.refuses }) = Some(rank);
            job.settle();
            // No datagram of the root goes to itself.
            let is_closed = rank != 0 || !is_deaf;
            assert_eq!((job.root.is_closed(), job.root.ready() == 0), (is_closed, is_closed), "{rank} {is_deaf}");
            assert_eq!(job.joined.iter().all(|members| *members == 0), is_closed, "all have left");
            job.create(ALL, 1, &[]);
            assert_eq!(job.communicators[0].slot.is_none(), is_closed);
        }
    }
}

#[test]
fn group_that_all_ranks_take_is_replaced() {
    let mut job = settled();
    for slot in [0, 1, 2, 3] {
        job.create(ALL, ALL, &[]);
        job.settle();
        assert_eq!((job.communicators[2 * slot].slot, job.joined[slot]), (Some(slot as u8), ALL));
        assert_eq!(job.root.ready(), TARGET.min(3 - slot as u32), "as long as there are slots");
    }
}

#[test]
fn failed_ranks_are_not_awaited() {
    let mut job = settled();
    job.create(ALL, 0b00_0111, &[]);
    let (dead, slot) = (5, 1);
    job.settle();
    job.fail(dead);
    job.communicators[1].members &= !(1 << dead);
    job.free(1);
    job.settle();
    job.create(ALL & !(1 << dead), 0b00_0001, &[]);
    job.settle();
    let reused = job.pools[4].ready().0 & 1 << slot;
    assert!(reused != 0, "its slot is filled again without it");
}

#[test]
fn pool_that_a_rank_has_closed_is_open_without_it() {
    for is_deaf in [false, true] {
        let mut job = Job::new();
        *(if is_deaf { &mut job.deaf } else { &mut job.refuses }) = Some(4);
        job.settle();
        assert!(job.root.is_closed());
        job.fail(4);
        job.settle();
        assert_eq!((job.root.is_closed(), job.root.ready()), (false, TARGET));
    }
}

#[test]
fn pools_of_too_many_ranks_have_no_groups() {
    let config = PoolConfig { size: 9, root: Rank(0), target: 1, probes: PROBES };
    let mut root = PoolRoot::<Nanos, 1, 8>::new(0, config);
    assert!(root.is_closed() && root.poll_transmit(0).is_none() && root.poll_probe().is_none());
}
