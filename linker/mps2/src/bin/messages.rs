//! The image that takes part in messages as World's processes do: it sends back whatever comes, every byte changed, until everybody has sent
//! an empty message. That it links shows that no panic can be reached from there.
#![no_std]
#![no_main]

use static_cell::ConstStaticCell;
use unisono_mps2::{clock::Clock, heartbeat::Heart, semihosting, shared};
use unisono_node::Idle as _;
use unisono_node::member::{JoinError, Member};
use unisono_node::messages::{MessageError, Messages, Mode, Store};
use unisono_shmem::am_header;
use unisono_shmem::rank_slot::Sitter;

/// Of the node: two processes and this board, which comes last.
const RANKS: usize = 3;
/// The seat of this rank. Static: a board knows its place.
const SITTER: Sitter = Sitter { rank: 2, incarnation: 0x4d33, process: 0 };
/// Bytes of the longest message.
const LONGEST: usize = 40_000;

/// All but 500 KB of the board's memory.
static STORE: ConstStaticCell<Store<'static, RANKS, { am_header::headers(3) as usize * RANKS }, 4, 4>> =
    ConstStaticCell::new(Store::new());
static BUFFER: ConstStaticCell<[u8; LONGEST]> = ConstStaticCell::new([0; LONGEST]);

/// What went wrong, as the status of the run says it.
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
            Trouble::Join(JoinError::Taken) => b"the seat is taken\n",
            Trouble::Join(_) => b"no segment\n",
            Trouble::Memory => b"too little is lent\n",
            Trouble::Message(MessageError::Failed(_) | MessageError::Parted(_)) => b"a rank is gone\n",
            Trouble::Message(MessageError::Corrupted(_) | MessageError::Overwritten) => b"a ring holds nonsense\n",
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
        // Who sends has its receive posted, so that this waits for nobody who waits for it.
        messages.send(message, status.source, status.tag, Mode::Standard, &mut idle)?;
        come = come.wrapping_add(1);
        ended = if status.bytes == 0 { ended.wrapping_add(1) } else { ended };
    }
    messages.leave(&mut idle);
    semihosting::write_value(b"messages", come);
    Ok(())
}
