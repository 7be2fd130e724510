//! Messages of a job that checks types (`--check`): the code of the elements' type precedes the payload.

use unisono_core::device::Memory as _;
use unisono_core::span::Region;
use unisono_memory::element_type::TypeCode;
use unisono_memory::memory_regions::RegionRange;
use unisono_memory::user_buffer::UserBuffer;

use super::Process;
use super::messages::{ReceiveTarget, SendArgs, SendFailure};
use crate::world::request::{Failure, Status};

/// Bytes before the payload: the code, little-endian, and zeros, so that the payload stays aligned.
pub(in crate::world) const PREFIX: usize = 16;

/// A receive into memory of the process, whose payload is copied to the user's at its end.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct CheckedReceive {
    request: u32,
    memory: RegionRange,
    user: RegionRange,
    expected: TypeCode,
}

impl Process {
    /// Sends a copy of a buffer behind the code of its type.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[cold]
    pub(super) unsafe fn send_checked(
        &mut self,
        args: &SendArgs,
        buffer: &UserBuffer,
    ) -> Result<Option<(u32, Region)>, SendFailure> {
        let mut prefix = [0; PREFIX];
        let code = buffer.element.code().0.to_le_bytes();
        prefix.iter_mut().zip(code).for_each(|(into, byte)| *into = byte);
        // SAFETY: under the same promises of the caller.
        unsafe { self.send_copy(args, &prefix, buffer) }
    }

    /// As [`receive`](Self::receive), into memory of the process first.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    #[cold]
    pub(super) unsafe fn receive_checked(
        &mut self,
        what: ReceiveTarget,
        buffer: UserBuffer,
    ) -> Result<(u32, Region), Failure> {
        let (bytes, expected) = (buffer.bytes, buffer.element.code());
        let whole = bytes.checked_add(PREFIX).ok_or(Failure::ResourceExhausted)?;
        let regions = self.transport.regions.get_mut();
        let region = regions.allocate(whole).map_err(|_| Failure::ResourceExhausted)?;
        // SAFETY: the caller promises that the memory stays valid, and nobody else's, until the request has ended and
        // its region is revoked.
        let Ok(user) = (unsafe { regions.register_buffer(buffer) }) else {
            // SAFETY: nobody knows it.
            unsafe { regions.free(region) };
            return Err(Failure::ResourceExhausted);
        };
        let memory = RegionRange { region, offset: 0, bytes: whole };
        let request = self.requests.start();
        let user_range = RegionRange { region: user, offset: 0, bytes };
        self.messages.checked.push(CheckedReceive { request, memory, user: user_range, expected });
        // Freed with the request.
        self.messages.record_packed(request, region);
        self.begin_receive(what, memory, request);
        Ok((request, user))
    }

    /// Ends a receive.
    #[inline]
    pub(super) fn end_receive(&mut self, request: u32, result: Result<Status, Failure>) {
        let result = if self.requests.checks_types { self.compare_types(request, result) } else { result };
        self.requests.finish(request, result);
    }

    /// The result of a checked receive, whose payload is copied to the user's buffer.
    #[cold]
    fn compare_types(&mut self, request: u32, result: Result<Status, Failure>) -> Result<Status, Failure> {
        let Some(place) = self.messages.checked.iter().position(|receive| receive.request == request) else {
            return result;
        };
        let CheckedReceive { memory, user, expected, .. } = self.messages.checked.swap_remove(place);
        let mut status = result.map_err(|failure| match failure {
            Failure::Truncated { bytes } => Failure::Truncated { bytes: bytes.saturating_sub(PREFIX as u64) },
            other => other,
        })?;
        let mut code = [0; 4];
        let regions = self.transport.regions.get_mut();
        let prefix = regions.address(memory.span(0, code.len())).filter(|_| status.bytes >= PREFIX);
        // Every rank of the job sends it.
        let prefix = prefix.ok_or(Failure::Corrupted(status.source))?;
        // SAFETY: the receive has ended: nobody writes its memory.
        unsafe { prefix.read(&mut code) };
        let sent = TypeCode(u32::from_le_bytes(code));
        if !sent.matches(expected, status.bytes - PREFIX == user.bytes) {
            return Err(Failure::TypeMismatch { rank: status.source, sent, expected });
        }
        status.bytes -= PREFIX;
        let payload = RegionRange { offset: PREFIX, bytes: status.bytes, ..memory };
        // SAFETY: the receive has ended, and the user's buffer is this request's until it is released.
        unsafe { regions.copy(payload, RegionRange { bytes: status.bytes, ..user }) };
        Ok(status)
    }

    /// Forgets a receive that was cancelled.
    pub(super) fn forget_checked(&mut self, request: u32) {
        self.messages.checked.retain(|receive| receive.request != request);
    }

    /// The bytes of a message's payload, of which a probe reports `bytes`.
    pub(in crate::world) fn payload_bytes(&self, bytes: u64) -> u64 {
        if self.requests.checks_types { bytes.saturating_sub(PREFIX as u64) } else { bytes }
    }
}
