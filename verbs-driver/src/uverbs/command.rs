//! Commands: the command's number, its length and that of the response in words, the address of the response, then its
//! fields (`ib_user_verbs.h`). They are written to the device's file.

use std::io;
use std::os::fd::RawFd;

/// `IB_USER_VERBS_CMD_*`.
pub(crate) const CREATE_CHANNEL: u32 = 17;
pub(crate) const CREATE_COMPLETIONS: u32 = 18;
pub(crate) const DESTROY_COMPLETIONS: u32 = 20;
pub(crate) const NOTIFY: u32 = 23;
pub(crate) const CREATE_PAIR: u32 = 24;
pub(crate) const MODIFY_PAIR: u32 = 26;
pub(crate) const DESTROY_PAIR: u32 = 27;
pub(crate) const POST_SEND: u32 = 28;
pub(crate) const ATTACH_GROUP: u32 = 30;
pub(crate) const DETACH_GROUP: u32 = 31;
pub(crate) const CREATE_RECEIVES: u32 = 32;
pub(crate) const DESTROY_RECEIVES: u32 = 35;
/// Bytes of a send request in the interface (`ib_uverbs_send_wr`), which is not used: the kernel requires at least
/// this, and clears as many bytes for each doorbell.
const UNUSED_ENTRY: u32 = 56;
/// Words of the longest command, including its own two and the address of the response.
const COMMAND_MAX: usize = 32;

pub(crate) const fn wide(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// A command with a response.
pub(crate) fn send_command_with_answer(
    file: RawFd,
    command: u32,
    fields: &[u32],
    answer: &mut [u32],
) -> io::Result<()> {
    let at = answer.as_mut_ptr().expose_provenance() as u64;
    send(file, command, [&[at as u32, (at >> 32) as u32], fields], answer.len())
}

/// A command without a response.
pub(crate) fn send_command(file: RawFd, command: u32, fields: &[u32]) -> io::Result<()> {
    send(file, command, [&[], fields], 0)
}

/// Rings the doorbell of a queue pair's send queue: a command without requests, whose response is ignored.
#[inline]
pub(crate) fn ring(file: RawFd, pair: u32) -> io::Result<()> {
    let mut answer = 0_u32;
    let at = (&raw mut answer).expose_provenance() as u64;
    write(file, &[POST_SEND, 8 | 1 << 16, at as u32, (at >> 32) as u32, pair, 0, 0, UNUSED_ENTRY])
}

/// Builds the command on the stack: no allocation.
fn send(file: RawFd, command: u32, parts: [&[u32]; 2], answer: usize) -> io::Result<()> {
    let words = 2 + parts.map(<[u32]>::len).iter().sum::<usize>();
    let mut whole = [0; COMMAND_MAX];
    let front = [command, words as u32 | (answer as u32) << 16];
    let filled = front.iter().chain(parts.into_iter().flatten());
    whole.iter_mut().zip(filled).for_each(|(to, word)| *to = *word);
    write(file, whole.get(..words).unwrap_or(&whole))
}

/// Hands a command to the kernel.
#[inline]
fn write(file: RawFd, whole: &[u32]) -> io::Result<()> {
    let bytes = size_of_val(whole);
    // SAFETY: the stated length is that of the buffer; where the answer goes is exclusively borrowed by the caller.
    let written = unsafe { call(file, whole.as_ptr().cast(), bytes) };
    match usize::try_from(written) {
        Ok(written) if written == bytes => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::from_raw_os_error(-written as i32)),
    }
}

/// `write(2)`. Returns the kernel's result: bytes, or a negated error number. The instruction is inlined, since each
/// message rings a doorbell: a call through libc would cost another jump.
///
/// # Safety
/// `bytes` bytes can be read, and what the command names may be written.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
#[inline(always)]
unsafe fn call(file: RawFd, from: *const u8, bytes: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention. It may write memory: its answer goes where the command says.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_write as isize => result,
            in("rdi") file as isize,
            in("rsi") from,
            in("rdx") bytes,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// As above. Not `libc::write`, which is a cancellation point and executes twice the instructions in a threaded
/// program.
///
/// # Safety
/// As above.
#[cfg(not(all(target_arch = "x86_64", target_pointer_width = "64")))]
#[inline]
unsafe fn call(file: RawFd, from: *const u8, bytes: usize) -> isize {
    // SAFETY: the caller promises that `bytes` bytes can be read, and that the kernel may write where the command says.
    let written = unsafe { libc::syscall(libc::SYS_write, libc::c_long::from(file), from, bytes) };
    if written < 0 {
        -(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize)
    } else {
        written as isize
    }
}

// The interface is read as 32-bit words, 64-bit fields low word first.
const _: () = assert!(cfg!(target_endian = "little"));

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_command_is_written_or_refused() {
        let (mut reader, writer) = io::pipe().unwrap();
        write(writer.as_raw_fd(), &[0x0403_0201, 7]).unwrap();
        let mut read = [0; 8];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(read, [1, 2, 3, 4, 7, 0, 0, 0]);
        assert_eq!(write(-1, &[0]).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
