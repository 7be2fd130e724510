//! The image that shares memory with processes: messages with rank 0, then barriers with everybody, all checked.
#![no_std]
#![no_main]

use unisono_mps2::{clock::Clock, heartbeat::Heart, semihosting, shared};
use unisono_node::Idle as _;
use unisono_node::group::{Group, GroupError};
use unisono_node::member::{JoinError, Member};
use unisono_node::raw_ring::{Mailbox, ReceiveError};
use unisono_node::self_check::collectives;
use unisono_shmem::rank_slot::Sitter;
use unisono_shmem::reduction_ops::Operation;
use unisono_shmem::ring::PutError;

/// The occupant of this rank's slot. Static: the board's rank is fixed.
const SITTER: Sitter = Sitter { rank: 2, incarnation: 0x4d32, process: 0 };
/// Bytes of the longest message.
const LONGEST: usize = 200;

/// Why the run failed.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Join(JoinError),
    Ring,
    Group(GroupError),
    Wrong,
}

impl From<GroupError> for Trouble {
    fn from(error: GroupError) -> Self {
        Self::Group(error)
    }
}

impl Trouble {
    const fn name(self) -> &'static [u8] {
        match self {
            Trouble::Join(JoinError::Taken) => b"the rank slot is occupied\n",
            Trouble::Join(_) => b"no segment\n",
            Trouble::Ring => b"a peer violated the protocol of its ring\n",
            Trouble::Group(GroupError::Rank(_)) => b"a rank failed\n",
            Trouble::Group(_) => b"the segment was overwritten\n",
            Trouble::Wrong => b"a result is wrong\n",
        }
    }
}

/// Entered once, from `reset`.
#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    let mut clock = Clock::start();
    semihosting::end(run(&mut clock).map_err(Trouble::name))
}

fn run(clock: &mut Clock) -> Result<(), Trouble> {
    let member = Member::join(shared::segment(), SITTER.rank, SITTER).map_err(Trouble::Join)?;
    let mut idle = Heart::new(clock, &member);
    while !member.is_complete() {
        idle.idle();
    }
    let messages = messages(&member, &mut idle)?;
    let (mut group, ranks) = (Group::new(member).ok_or(Trouble::Wrong)?, member.size());
    // Rank 0 sends the number of rounds.
    let mut count = [0_i32];
    group.broadcast(&mut count, 0, &mut idle)?;
    let [count] = count;
    for round in 0..count.unsigned_abs() {
        group.barrier(&mut idle)?;
        if round % 64 == 0 {
            let mut data = collectives::contribution(round, member.local());
            group.all_reduce(&mut data, Operation::Sum, &mut idle)?;
            let mut floats = collectives::contribution(round, member.local()).map(|number| number as f32);
            group.all_reduce(&mut floats, Operation::Sum, &mut idle)?;
            let sum = collectives::sum(round, ranks);
            if data != sum || floats != sum.map(|number| number as f32) {
                return Err(Trouble::Wrong);
            }
        }
    }
    semihosting::write_value(b"messages", messages);
    semihosting::write_value(b"barriers", count.unsigned_abs());
    member.leave();
    Ok(())
}

/// Returns the messages of rank 0, every byte changed, until an empty message comes. Numbers are tags, in order.
fn messages(member: &Member<'static>, idle: &mut Heart<'_>) -> Result<u32, Trouble> {
    let mut mailbox = Mailbox::new(member, 0).ok_or(Trouble::Ring)?;
    let (mut buffer, mut expected) = ([0; LONGEST], 0_u32);
    loop {
        let (tag, bytes) = match mailbox.receive(&mut buffer) {
            Ok(Some(message)) => message,
            Ok(None) => {
                idle.idle();
                continue;
            }
            Err(ReceiveError::Corrupted | ReceiveError::Truncated) => return Err(Trouble::Ring),
        };
        if tag != expected {
            return Err(Trouble::Wrong);
        }
        expected = expected.wrapping_add(1);
        let message = buffer.get_mut(..bytes).unwrap_or_default();
        message.iter_mut().for_each(|byte| *byte = !*byte);
        loop {
            match mailbox.send(tag, message) {
                Ok(()) => break,
                Err(PutError::Full) => idle.idle(),
                Err(_) => return Err(Trouble::Ring),
            }
        }
        if bytes == 0 {
            return Ok(tag);
        }
    }
}
