//! From boot.s to the image's program.

use core::arch::global_asm;
use core::ffi::CStr;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::{clock, exit, interrupts};

global_asm!(include_str!("boot.s"), options(att_syntax));

/// `hvm_start_info` (xen/include/public/arch-x86/hvm/start_info.h).
#[derive(FromBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
}

const MAGIC: u32 = 0x336e_c578;

/// The command line of the image: words of the form name=value.
#[derive(Clone, Copy, Debug)]
pub struct CommandLine(&'static str);

impl CommandLine {
    /// The value of the first word with this name.
    pub fn value(self, name: &str) -> Option<&'static str> {
        self.0.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// As a number, decimal.
    pub fn number(self, name: &str) -> Option<u32> {
        self.value(name)?.parse().ok()
    }
}

unsafe extern "Rust" {
    /// The image's program: it returns the exit code.
    safe fn node_main(arguments: CommandLine) -> u8;
}

/// Entered once, from boot.s.
#[unsafe(no_mangle)]
extern "C" fn enter(start: *const StartInfo) -> ! {
    interrupts::prepare();
    // SAFETY: the loader put it there, below 4 GiB, where memory is mapped and not this image's.
    let start = unsafe { start.read() };
    if start.magic != MAGIC {
        exit::exit(exit::FAILED);
    }
    let text = core::ptr::with_exposed_provenance(start.command_line as usize);
    let arguments = if start.command_line == 0 {
        c""
    } else {
        // SAFETY: the loader's, too: text that ends with a zero, which nobody writes.
        unsafe { CStr::from_ptr(text) }
    };
    clock::calibrate();
    exit::exit(node_main(CommandLine(arguments.to_str().unwrap_or_default())))
}
