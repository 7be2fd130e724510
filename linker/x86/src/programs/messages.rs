//! The self-checking message exchange, in static memory.

use static_cell::ConstStaticCell;
use unisono_node::group::Group;
use unisono_node::member::Member;
use unisono_node::messages::{MessageStorage, Messages};
use unisono_node::self_check::messages::{
    self, ExchangeBuffers, LONGEST, PATTERN_BYTES, POSTED, POSTED_LONGEST, RANKS,
};
use unisono_shmem::am_header;

use super::ProgramError;

/// Requests of a burst, and those that are received at a time.
const REQUESTS: usize = messages::BURST as usize * RANKS + POSTED;

static STORE: ConstStaticCell<
    MessageStorage<'static, RANKS, { am_header::unexpected_per_peer(1) as usize * RANKS }, REQUESTS, 64>,
> = ConstStaticCell::new(MessageStorage::new());
static QUARRY_BYTES: ConstStaticCell<[u8; PATTERN_BYTES]> = ConstStaticCell::new([0; PATTERN_BYTES]);
static INTO: ConstStaticCell<[u8; LONGEST]> = ConstStaticCell::new([0; LONGEST]);
static POSTED_BYTES: ConstStaticCell<[[u8; POSTED_LONGEST]; POSTED]> =
    ConstStaticCell::new([[0; POSTED_LONGEST]; POSTED]);

/// Exchanges `bursts` bursts of messages with all ranks, each followed by a barrier; calls `before` before each and
/// while it waits. Returns the number of received messages.
pub(crate) fn exchange(member: &Member<'static>, bursts: u32, mut before: impl FnMut()) -> Result<u64, ProgramError> {
    let mut messages =
        STORE.try_take().and_then(|store| Messages::new(*member, store.slices())).ok_or(ProgramError::NoGroup)?;
    let (quarry, into, posted) = (QUARRY_BYTES.take(), INTO.take(), POSTED_BYTES.take());
    messages::fill_pattern(quarry);
    let mut buffers =
        ExchangeBuffers { pattern: quarry, into, posted: posted.each_mut().map(|buffer| buffer.as_mut_slice()) };
    let (mut group, mut come) = (Group::new(*member).ok_or(ProgramError::NoGroup)?, 0_u64);
    for burst in 0..bursts {
        before();
        let mut idle = || {
            before();
            core::hint::spin_loop();
        };
        let received = messages::exchange(&mut messages, &mut buffers, burst, &mut idle);
        come = come.wrapping_add(received.map_err(ProgramError::Messages)?.into());
        // Meanwhile other ranks receive the replies that they wait for.
        let mut serve = || {
            if !messages.poll() {
                core::hint::spin_loop();
            }
        };
        group.barrier(&mut serve)?;
    }
    messages.leave(&mut core::hint::spin_loop);
    Ok(come)
}
