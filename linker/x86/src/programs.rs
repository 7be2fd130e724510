//! Programs of the shared-memory image, which the proofs run.

mod fault_injection;
mod messages;
mod remote_access;

use unisono_node::group::{Group, GroupError};
use unisono_node::member::Member;
use unisono_node::raw_ring::{RawRing, ReceiveError};
use unisono_node::self_check::collectives;
use unisono_node::self_check::messages::ExchangeError as ExchangeTrouble;
use unisono_shmem::reduction_ops::ReduceOperation;
use unisono_shmem::ring::PutError;
use unisono_x86::boot::CommandLine;
use unisono_x86::{clock, say};

/// Why a program failed.
#[derive(Debug)]
pub(crate) enum ProgramError {
    /// No program has this name.
    NoProgram,
    /// The segment is too short, or there is no such rank.
    NoGroup,
    /// A collective failed.
    #[expect(dead_code, reason = "read by Debug")]
    Group(GroupError),
    /// A ring refused a message.
    #[expect(dead_code, reason = "read by Debug")]
    Put(PutError),
    /// A ring delivered no valid message.
    #[expect(dead_code, reason = "read by Debug")]
    Receive(ReceiveError),
    /// A message failed, or was unexpected.
    #[expect(dead_code, reason = "read by Debug")]
    Messages(ExchangeTrouble),
    /// A wrong result in this round.
    #[expect(dead_code, reason = "read by Debug")]
    Wrong(&'static str, u32),
}

impl From<GroupError> for ProgramError {
    fn from(error: GroupError) -> Self {
        Self::Group(error)
    }
}

/// Runs the program that the command line names, to its end.
pub(crate) fn run(member: &Member<'static>, arguments: CommandLine) -> Result<(), ProgramError> {
    let rounds = arguments.number("rounds").unwrap_or(1000);
    match arguments.value("program") {
        Some("collectives") => {
            let began = clock::ticks();
            collectives(member, rounds, || {})?;
            say!("{rounds} rounds, {} us", clock::nanoseconds(clock::ticks().wrapping_sub(began)).wrapping_div(1000));
            Ok(())
        }
        Some("messages") => {
            let (began, bursts) = (clock::ticks(), arguments.number("bursts").unwrap_or(100));
            let come = messages::exchange(member, bursts, || {})?;
            say!("{come} messages, {} us", clock::nanoseconds(clock::ticks().wrapping_sub(began)).wrapping_div(1000));
            Ok(())
        }
        Some("remote-access") => {
            let began = clock::ticks();
            let counted = remote_access::serve(member, rounds)?;
            say!("{counted} updates, {} us", clock::nanoseconds(clock::ticks().wrapping_sub(began)).wrapping_div(1000));
            Ok(())
        }
        Some("barriers") => barriers(member, rounds),
        Some("echo") => echo(member, rounds),
        Some("trouble") => {
            let (kind, delay) = (arguments.value("kind").unwrap_or_default(), arguments.number("delay").unwrap_or(0));
            let (began, mut due) = (clock::ticks(), true);
            let strike = || {
                let passed = clock::nanoseconds(clock::ticks().wrapping_sub(began)).wrapping_div(1000);
                if due && passed >= u64::from(delay) {
                    due = false;
                    fault_injection::inject(member, kind, arguments.number("seed").unwrap_or(1));
                }
            };
            match arguments.value("amid") {
                Some("messages") => messages::exchange(member, u32::MAX, strike).map(drop),
                _ => collectives(member, u32::MAX, strike),
            }
        }
        _ => Err(ProgramError::NoProgram),
    }
}

/// Barrier, broadcast, allreduce of integers and of floats; compares every result. Calls `before` before each round.
fn collectives(member: &Member<'static>, rounds: u32, mut before: impl FnMut()) -> Result<(), ProgramError> {
    let (mut group, mut idle) = (Group::new(*member).ok_or(ProgramError::NoGroup)?, core::hint::spin_loop);
    let (rank, ranks) = (member.local(), member.size());
    for round in 0..rounds {
        before();
        group.barrier(&mut idle)?;
        let root = round.checked_rem(ranks).unwrap_or(0);
        let mut data = if rank == root { collectives::contribution(round, root) } else { [0; collectives::COUNT] };
        group.broadcast(&mut data, root, &mut idle)?;
        if data != collectives::contribution(round, root) {
            return Err(ProgramError::Wrong("broadcast", round));
        }
        let mut data = collectives::contribution(round, rank);
        group.all_reduce(&mut data, ReduceOperation::Sum, &mut idle)?;
        if data != collectives::sum(round, ranks) {
            return Err(ProgramError::Wrong("allreduce of integers", round));
        }
        let mut data = collectives::contribution(round, rank).map(|number| number as f32);
        group.all_reduce(&mut data, ReduceOperation::Sum, &mut idle)?;
        if data != collectives::sum(round, ranks).map(|number| number as f32) {
            return Err(ProgramError::Wrong("allreduce of floats", round));
        }
    }
    Ok(())
}

fn barriers(member: &Member<'static>, rounds: u32) -> Result<(), ProgramError> {
    let (mut group, mut idle) = (Group::new(*member).ok_or(ProgramError::NoGroup)?, core::hint::spin_loop);
    for _ in 0..rounds {
        group.barrier(&mut idle)?;
    }
    Ok(())
}

/// Echoes the messages of rank 0.
fn echo(member: &Member<'static>, rounds: u32) -> Result<(), ProgramError> {
    let mut ring = RawRing::new(member, 0).ok_or(ProgramError::NoGroup)?;
    let mut buffer = [0; 1024];
    for _ in 0..rounds {
        let (tag, bytes) = loop {
            if let Some(message) = ring.receive(&mut buffer).map_err(ProgramError::Receive)? {
                break message;
            }
            core::hint::spin_loop();
        };
        let message = buffer.get(..bytes).unwrap_or_default();
        while let Err(error) = ring.send(tag, message) {
            if error != PutError::Full {
                return Err(ProgramError::Put(error));
            }
            core::hint::spin_loop();
        }
    }
    Ok(())
}
