//! The shared-memory image for x86_64: it occupies its rank slot and runs the program that its command line names.
#![no_std]
#![no_main]

mod programs;

use unisono_node::member::Member;
use unisono_shmem::rank_slot::Occupant;
use unisono_x86::boot::CommandLine;
use unisono_x86::{exit, interrupts, say, segment};

/// Words: `local=` the rank slot, `rank=` the rank in the job, `incarnation=`, `process=` the proxy process of this
/// node, `program=` and its own words.
#[unsafe(no_mangle)]
fn node_main(arguments: CommandLine) -> u8 {
    let number = |name| arguments.number(name);
    let (Some(local), Some(incarnation)) = (number("local"), number("incarnation")) else {
        say!("local= and incarnation= are missing");
        return exit::FAILED;
    };
    let Some(segment) = segment::find() else {
        say!("no shared memory");
        return exit::FAILED;
    };
    let (rank, process) = (number("rank").unwrap_or(local), number("process").unwrap_or(0));
    let member = match Member::join(segment, local, Occupant { rank, incarnation, process }) {
        Ok(member) => member,
        Err(error) => {
            say!("cannot occupy the rank slot: {error:?}");
            return exit::FAILED;
        }
    };
    interrupts::start_heartbeat(member.heartbeat());
    while !member.is_complete() {
        core::hint::spin_loop();
    }
    match programs::run(&member, arguments) {
        Ok(()) => {
            member.leave();
            exit::DONE
        }
        Err(error) => {
            say!("{error:?}");
            member.fail();
            exit::FAILED
        }
    }
}
