//! The image that exchanges matched messages with processes: it returns each message with every byte changed, until
//! every rank has sent an empty one. It links, which shows that no panic is reachable from the messages of a node.
#![no_std]
#![no_main]

use static_cell::ConstStaticCell;
use unisono_mps2::{clock::Clock, heartbeat::Heartbeat, semihosting, shared};
use unisono_node::Idle as _;
use unisono_node::member::{JoinError, Member};
use unisono_node::messages::{MessageError, MessageStorage, Messages, Mode};
use unisono_shmem::am_header;
use unisono_shmem::rank_slot::Occupant;

/// Ranks of the node: two processes and this board, which is the last rank.
const RANKS: usize = 3;
/// The occupant of this rank's slot. Static: the board's rank is fixed.
const OCCUPANT: Occupant = Occupant { rank: 2, incarnation: 0x4d33, process: 0 };
/// Bytes of the longest message.
const LONGEST: usize = 40_000;

/// All but 500 KB of the board's memory.
static STORE: ConstStaticCell<
    MessageStorage<'static, RANKS, { am_header::unexpected_per_peer(3) as usize * RANKS }, 4, 4>,
> = ConstStaticCell::new(MessageStorage::new());
static BUFFER: ConstStaticCell<[u8; LONGEST]> = ConstStaticCell::new([0; LONGEST]);

/// Why the run failed.
#[derive(Clone, Copy, Debug)]
enum RunError {
    Join(JoinError),
    Memory,
    Message(MessageError),
}

impl From<MessageError> for RunError {
    fn from(error: MessageError) -> Self {
        Self::Message(error)
    }
}

impl RunError {
    const fn name(self) -> &'static [u8] {
        match self {
            RunError::Join(JoinError::Taken) => b"the rank slot is occupied\n",
            RunError::Join(_) => b"no segment\n",
            RunError::Memory => b"too little memory for this many ranks\n",
            RunError::Message(MessageError::Failed(_) | MessageError::PeerFinished(_)) => b"a rank is gone\n",
            RunError::Message(MessageError::ProtocolViolation(_) | MessageError::Overwritten) => {
                b"a peer violated the protocol of its ring\n"
            }
            RunError::Message(_) => b"a message is too long\n",
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
    let (store, buffer) = STORE.try_take().zip(BUFFER.try_take()).ok_or(RunError::Memory)?;
    let mut messages = Messages::new(member, store.slices()).ok_or(RunError::Memory)?;
    let (mut come, mut ended) = (0_u32, 0);
    while ended < RANKS.wrapping_sub(1) {
        let status = messages.receive(buffer, None, None, &mut idle)?;
        let message = buffer.get_mut(..status.bytes).unwrap_or_default();
        message.iter_mut().for_each(|byte| *byte = !*byte);
        // Each sender has its receive posted, so that no two ranks wait for each other.
        messages.send(message, status.source, status.tag, Mode::Standard, &mut idle)?;
        come = come.wrapping_add(1);
        ended = if status.bytes == 0 { ended.wrapping_add(1) } else { ended };
    }
    messages.leave(&mut idle);
    semihosting::write_value(b"messages", come);
    Ok(())
}
