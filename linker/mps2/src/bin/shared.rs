//! The image that shares memory with processes: messages with rank 0, then barriers with everybody, all checked.
#![no_std]
#![no_main]

use unisono_mps2::{clock::Clock, heartbeat::Heartbeat, semihosting, shared};
use unisono_node::Idle as _;
use unisono_node::group::{Group, GroupError};
use unisono_node::member::{JoinError, Member};
use unisono_node::raw_ring::{RawRing, ReceiveError};
use unisono_node::self_check::collectives;
use unisono_shmem::rank_slot::Occupant;
use unisono_shmem::reduction_ops::ReduceOperation;
use unisono_shmem::ring::PutError;

/// The occupant of this rank's slot. Static: the board's rank is fixed.
const OCCUPANT: Occupant = Occupant { rank: 2, incarnation: 0x4d32, process: 0 };
/// Bytes of the longest message.
const LONGEST: usize = 200;

/// Why the run failed.
#[derive(Clone, Copy, Debug)]
enum RunError {
    Join(JoinError),
    Ring,
    Group(GroupError),
    Wrong,
}

impl From<GroupError> for RunError {
    fn from(error: GroupError) -> Self {
        Self::Group(error)
    }
}

impl RunError {
    const fn name(self) -> &'static [u8] {
        match self {
            RunError::Join(JoinError::Taken) => b"the rank slot is occupied\n",
            RunError::Join(_) => b"no segment\n",
            RunError::Ring => b"a peer violated the protocol of its ring\n",
            RunError::Group(GroupError::Rank(_)) => b"a rank failed\n",
            RunError::Group(_) => b"the segment was overwritten\n",
            RunError::Wrong => b"a result is wrong\n",
        }
    }
}

/// Entered once, from `reset`.
#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    let mut clock = Clock::start();
    semihosting::end(run(&mut clock).map_err(RunError::name))
}

fn run(clock: &mut Clock) -> Result<(), RunError> {
    let member = Member::join(shared::segment(), OCCUPANT.rank, OCCUPANT).map_err(RunError::Join)?;
    let mut idle = Heartbeat::new(clock, &member);
    while !member.is_complete() {
        idle.idle();
    }
    let messages = messages(&member, &mut idle)?;
    let (mut group, ranks) = (Group::new(member).ok_or(RunError::Wrong)?, member.size());
    // Rank 0 sends the number of rounds.
    let mut count = [0_i32];
    group.broadcast(&mut count, 0, &mut idle)?;
    let [count] = count;
    for round in 0..count.unsigned_abs() {
        group.barrier(&mut idle)?;
        if round % 64 == 0 {
            let mut data = collectives::contribution(round, member.local());
            group.all_reduce(&mut data, ReduceOperation::Sum, &mut idle)?;
            let mut floats = collectives::contribution(round, member.local()).map(|number| number as f32);
            group.all_reduce(&mut floats, ReduceOperation::Sum, &mut idle)?;
            let sum = collectives::sum(round, ranks);
            if data != sum || floats != sum.map(|number| number as f32) {
                return Err(RunError::Wrong);
            }
        }
    }
    semihosting::write_value(b"messages", messages);
    semihosting::write_value(b"barriers", count.unsigned_abs());
    member.leave();
    Ok(())
}

/// Returns the messages of rank 0, every byte changed, until an empty message comes. Numbers are tags, in order.
fn messages(member: &Member<'static>, idle: &mut Heartbeat<'_>) -> Result<u32, RunError> {
    let mut ring = RawRing::new(member, 0).ok_or(RunError::Ring)?;
    let (mut buffer, mut expected) = ([0; LONGEST], 0_u32);
    loop {
        let (tag, bytes) = match ring.receive(&mut buffer) {
            Ok(Some(message)) => message,
            Ok(None) => {
                idle.idle();
                continue;
            }
            Err(ReceiveError::Corrupted | ReceiveError::Truncated) => return Err(RunError::Ring),
        };
        if tag != expected {
            return Err(RunError::Wrong);
        }
        expected = expected.wrapping_add(1);
        let message = buffer.get_mut(..bytes).unwrap_or_default();
        message.iter_mut().for_each(|byte| *byte = !*byte);
        loop {
            match ring.send(tag, message) {
                Ok(()) => break,
                Err(PutError::Full) => idle.idle(),
                Err(_) => return Err(RunError::Ring),
            }
        }
        if bytes == 0 {
            return Ok(tag);
        }
    }
}
