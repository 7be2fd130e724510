//! A rank's part of a barrier in a group of two.

use super::*;
use crate::environment::Subgroups;
use crate::environment::tuning::{MulticastUse, Tuning};
use crate::world::collective::engine::active_collective::CollectiveStart;
use crate::world::collective::engine::machine::Machine;
use crate::world::collective::engine::progress_table::CollectiveTable;
use crate::world::collective::engine::schedule::{Groups, ScheduleCache, layout};
use crate::world::collective::intra_node::communicator_slots::CommunicatorSlots;
use crate::world::collective::partition::Shape;
use crate::world::group::Group;
use core::time::Duration;
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;
use std::thread;
use unisono_core::collective::Order;
use unisono_core::ids::PeerId;
use unisono_core::schedule::{GroupLevels, StepOperation};
use unisono_core::span::Region;
use unisono_shmem::layout::WaitMode;
use unisono_shmem::slot_collectives::data_executor::NoReduction;

const CONTEXT: u32 = 3;
/// Asleep on several words at a time.
const ASLEEP: u32 = u32::MAX;

/// A rank of two on the first of two nodes.
struct GroupRank {
    node: Arc<Node>,
    lane: GroupLane,
    active: Vec<Option<ActiveCollective>>,
    regions: Regions,
}

impl GroupRank {
    fn pair() -> [Self; 2] {
        Node::pair(WaitMode::Oversubscribed).map(|node| {
            let members = [0, 1].map(Rank).into();
            let lane = GroupLane::new(&node, 0, (CONTEXT, None), members, Rank(node.local())).expect("two of a node");
            // SAFETY: no region is registered.
            Self { node, lane, active: Vec::new(), regions: unsafe { Regions::new() } }
        })
    }

    /// Starts a barrier of four ranks, and parks the steps that have begun.
    fn start(&mut self) {
        let spec = CollectiveSpec {
            collective: CollectiveKind::Barrier,
            rank: Member(self.node.local()),
            size: 4,
            root: Member(0),
            bytes: 0,
            grain: 1,
            order: Order::Any,
            in_place: true,
            reduction_id: 0,
        };
        let nodes = [0, 0, 1, 1].map(From::from);
        let subgroups = Subgroups::new("host:slots".parse().expect("a choice"), &nodes).map(Arc::new);
        let groups = Groups { subgroups: subgroups.as_ref(), levels: GroupLevels::INNERMOST };
        let mut choices = ScheduleCache::new(Tuning::default(), false, MulticastUse::Unavailable);
        let schedule = choices.schedule(&spec, false, groups).expect("a schedule");
        let layout = layout(&spec, schedule.schedule(), &Shape::default()).expect("a layout");
        let first = self.lane.enter(schedule.group_steps_of(0));
        let collective = self.active.len() as u32;
        let id = CollectiveId { context: CONTEXT, sequence: collective + 1 };
        let mut running = ActiveCollective {
            executor: Machine::new(id, schedule),
            layout,
            _tables: None,
            input: Region::default(),
            output: Region::default(),
            scratch: None,
            reducer: Box::new(NoReduction),
            context: CONTEXT << 16,
            start: CollectiveStart::default(),
            is_queued: false,
            exchange: None,
            call_record: None,
            is_persistent: false,
            ended: None,
            panic: None,
        };
        while let Ok(Poll::Request(step, operation)) = running.advance(&self.regions) {
            if let StepOperation::Group(operation) = operation {
                let place = running.executor.plan().group_step(step).expect("a subgroup's step");
                self.lane.park(first.after(place.number), collective, step, operation);
            }
        }
        self.active.push(Some(running));
    }

    fn advance(&mut self) -> LaneEvent {
        self.lane.advance(&mut self.active, &self.regions)
    }
}

/// The leader sleeps on the word of its step while the member arrives. Returns how the sleep ended: `AGAIN` if it began
/// too late.
fn sleep_of_a_leader() -> Result<(), Errno> {
    let [mut leader, mut member] = GroupRank::pair();
    assert!(leader.lane.wait_word().is_none());
    leader.start();
    assert_eq!((leader.advance(), leader.lane.wait_word().is_some()), (LaneEvent::Waits(Some(Rank(1))), true));
    let (word, seen) = leader.lane.wait_word().expect("a word");
    assert_eq!(word.acquire(Site::Plain), seen);
    let asleep = leader.node.layout().sleep_words().offset;
    leader.node.segment().word(asleep).expect("a word").publish(ASLEEP, Site::Plain);
    let sleeper = thread::spawn(move || {
        let longest = Timespec { tv_sec: 20, tv_nsec: 0 };
        futex::wait(word.atomic(), futex::Flags::empty(), seen, Some(&longest))
    });
    thread::sleep(Duration::from_millis(100));
    member.start();
    member.advance();
    assert_ne!(word.acquire(Site::Plain), seen, "the member has arrived");
    let ended = sleeper.join().expect("no panic");
    assert!(matches!(leader.advance(), LaneEvent::Done(0, _)));
    assert!(leader.lane.wait_word().is_none());
    ended
}

#[test]
fn a_rank_that_sleeps_on_the_word_of_a_step_is_woken() {
    let ended = (0..50).map(|_| sleep_of_a_leader()).find(|ended| *ended != Err(Errno::AGAIN));
    assert_eq!(ended, Some(Ok(())));
}

#[test]
fn a_rank_waits_on_the_words_of_steps_and_parked_ones_name_a_rank() {
    let [mut leader, _member] = GroupRank::pair();
    [(); 3].iter().for_each(|()| leader.start());
    assert_eq!(leader.advance(), LaneEvent::Waits(Some(Rank(1))));
    let GroupRank { lane, active, .. } = leader;
    let (word, seen) = lane.wait_word().expect("a word");
    let caches =
        [false, true].map(|is_whole| ScheduleCache::new(Tuning::default(), is_whole, MulticastUse::Unavailable));
    let mut table = CollectiveTable::new(caches, CommunicatorSlots::new(None));
    table.contexts.begin((CONTEXT, 0), Group::all(4), false, None);
    table.contexts.get_mut(CONTEXT).expect("it is open").lanes.add(Some(lane));
    table.active = active;
    let mut words = Vec::new();
    table.lane_wait_words(&mut words);
    assert!(words.is_empty() && !table.has_group_steps());
    table.work.lanes.push(CONTEXT);
    table.lane_wait_words(&mut words);
    assert!(matches!(words[..], [(first, value)] if core::ptr::eq(first, word) && value == seen));
    // The steps of the second and third collective wait for that of the first one.
    let awaited: Vec<(u32, PeerId)> = table.awaited().map(|awaited| (awaited.subject.sequence, awaited.peer)).collect();
    assert_eq!(awaited, [1, 2, 3].map(|sequence| (sequence, PeerId(1))));
}
