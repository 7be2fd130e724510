//! The image that exchanges matched messages with processes: it returns each message with every byte changed, until
//! every rank has sent an empty one. It links, which shows that no panic is reachable from the messages of a node.
#![no_std]
#![no_main]

use static_cell::ConstStaticCell;
use unisono_mps2::{clock::Clock, heartbeat::Heart, semihosting, shared};
use unisono_node::Idle as _;
use unisono_node::member::{JoinError, Member};
use unisono_node::messages::{MessageError, Messages, Mode, Store};
use unisono_shmem::am_header;
use unisono_shmem::rank_slot::Sitter;

/// Ranks of the node: two processes and this board, which is the last rank.
const RANKS: usize = 3;
/// The occupant of this rank's slot. Static: the board's rank is fixed.
const SITTER: Sitter = Sitter { rank: 2, incarnation: 0x4d33, process: 0 };
/// Bytes of the longest message.
const LONGEST: usize = 40_000;

/// All but 500 KB of the board's memory.
static STORE: ConstStaticCell<Store<'static, RANKS, { am_header::headers(3) as usize * RANKS }, 4, 4>> =
    ConstStaticCell::new(Store::new());
static BUFFER: ConstStaticCell<[u8; LONGEST]> = ConstStaticCell::new([0; LONGEST]);

/// Why the run failed.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Join(JoinError),
    Memory,
    Message(MessageError),
}

impl From<MessageError> for Trouble {
    fn from(error: MessageError) -> Self {
        Self::Message(error)
    }
}

impl Trouble {
    const fn name(self) -> &'static [u8] {
        match self {
            Trouble::Join(JoinError::Taken) => b"the rank slot is occupied\n",
            Trouble::Join(_) => b"no segment\n",
            Trouble::Memory => b"too little memory for this many ranks\n",
            Trouble::Message(MessageError::Failed(_) | MessageError::Parted(_)) => b"a rank is gone\n",
            Trouble::Message(MessageError::Corrupted(_) | MessageError::Overwritten) => {
                b"a peer violated the protocol of its ring\n"
            }
            Trouble::Message(_) => b"a message is too long\n",
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
    let (store, buffer) = STORE.try_take().zip(BUFFER.try_take()).ok_or(Trouble::Memory)?;
    let mut messages = Messages::new(member, store.lend()).ok_or(Trouble::Memory)?;
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
