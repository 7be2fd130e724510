//! A node whose memory processes read, write and update.

use static_cell::ConstStaticCell;
use unisono_node::member::Member;
use unisono_node::messages::remote_access::Rights;
use unisono_node::messages::{MessageStorage, Messages, Mode};
use unisono_node::self_check::messages::ExchangeError;
use unisono_node::self_check::remote_access::{self as check, COUNTER, MEMORY, TAG};
use unisono_shmem::am_header;

use super::ProgramError;

/// Ranks of the node at most.
const RANKS: usize = 4;

static STORE: ConstStaticCell<
    MessageStorage<'static, RANKS, { am_header::unexpected_per_peer(1) as usize * RANKS }, 8, 8>,
> = ConstStaticCell::new(MessageStorage::new());
static EXPOSED: ConstStaticCell<[u8; MEMORY]> = ConstStaticCell::new([0; MEMORY]);

/// Gives the processes a key, and checks what they have written once all of them say that they are done. Then it revokes
/// the key, and waits until all have been refused. Returns the number of updates.
pub(crate) fn serve(member: &Member<'static>, rounds: u32) -> Result<u64, ProgramError> {
    let mut messages =
        STORE.try_take().and_then(|store| Messages::new(*member, store.slices())).ok_or(ProgramError::NoGroup)?;
    let rights = Rights::READ | Rights::WRITE | Rights::ATOMIC;
    // A secret of the job alone: nobody else reads this image.
    let key = messages.expose(EXPOSED.take(), rights, 0x9e37_79b9_7f4a_7c15).map_err(|_| ProgramError::NoGroup)?;
    let (own, mut idle) = (member.local(), core::hint::spin_loop);
    let others = || (0..member.size()).filter(|rank| *rank != own);
    let trouble = |error| ProgramError::Messages(ExchangeError::Message(error));
    let mut synchronize = |messages: &mut Messages<'static>, said: &[u8]| {
        for rank in others() {
            messages.send(said, rank, TAG, Mode::Standard, &mut idle).map_err(trouble)?;
        }
        for rank in others() {
            messages.receive(&mut [], Some(rank), Some(TAG), &mut idle).map_err(trouble)?;
        }
        Ok::<(), ProgramError>(())
    };
    synchronize(&mut messages, &key.to_bytes())?;
    let counted = messages.exposed(&key).and_then(|memory| memory.first_chunk::<8>()).copied();
    let counted = u64::from_le_bytes(counted.unwrap_or_default());
    let memory = messages.revoke(&key, &mut core::hint::spin_loop).ok_or(ProgramError::Wrong("revocation", 0))?;
    let last = rounds.wrapping_sub(1);
    for rank in others() {
        let slot = memory.get(check::slot(rank)).unwrap_or_default();
        if !slot.iter().copied().eq(check::pattern(rank, last)) {
            return Err(ProgramError::Wrong("write", rank));
        }
    }
    if counted != u64::from(rounds).wrapping_mul(others().count() as u64) {
        return Err(ProgramError::Wrong("update", u32::try_from(counted).unwrap_or(u32::MAX)));
    }
    // Nothing else was touched.
    let between = memory.get(COUNTER.end..check::slot(0).start).unwrap_or_default();
    let own_slot = memory.get(check::slot(own)).unwrap_or_default();
    if between.iter().chain(own_slot).any(|byte| *byte != 0) {
        return Err(ProgramError::Wrong("bounds", 0));
    }
    synchronize(&mut messages, &[])?;
    messages.leave(&mut core::hint::spin_loop);
    Ok(counted)
}
