//! The differential program: messages and collectives on random communicators, drawn from a seed by every rank alike
//! and compared with what a serial execution of the same program gives.
//!
//! A program can end in one way only: every blocking call is answered by a call that does not depend on it, and
//! wildcard receives are separated from later messages by a barrier.

mod message_round;
pub mod mpi;
mod program;

use unisono::{Communicator, World};

use crate::collectives::Rounds;
use message_round::MessageRound;
pub use program::{Program, Step};

/// Compares one run of a program on this rank. Returns the number of compared results.
///
/// # Errors
/// The step and what is wrong with it, or the error that it returned.
pub fn run(world: &World, program: &Program) -> Result<u64, String> {
    let own = world.rank().0;
    let mut made: Vec<Option<Communicator>> = vec![None];
    let mut compared = 0;
    for (number, step) in (0..).zip(&program.steps) {
        let wrong = |reason: String| format!("step {number}, {}: {reason}", step.name());
        let on = |of: usize| if of == 0 { Some(&**world) } else { made[of].as_ref() };
        match step {
            Step::Split { of, colors, keys, into } => {
                let child = match on(*of) {
                    None => None,
                    Some(parent) => {
                        let (color, key) = (colors[parent.rank().0 as usize], keys[parent.rank().0 as usize]);
                        parent.split_by_color_with_key(color, key).map_err(|error| wrong(error.to_string()))?
                    }
                };
                made.resize_with(into.end, || None);
                let expected = into.clone().find(|child| program.members[*child].contains(&own));
                match (expected, child) {
                    (Some(id), Some(child)) => {
                        let members: Vec<u32> = child.group().iter().map(|rank| rank.0).collect();
                        if members != program.members[id] {
                            return Err(wrong(format!("the members are {members:?}")));
                        }
                        made[id] = Some(child);
                    }
                    (None, None) => {}
                    (expected, child) => {
                        let found = child.map(|child| child.group());
                        return Err(wrong(format!("expected communicator {expected:?}, found {found:?}")));
                    }
                }
                compared += 1;
            }
            Step::Collective { on: of, what, bytes } => {
                if let Some(communicator) = on(*of) {
                    let done = Rounds::new(communicator, *bytes).round(*what, number);
                    done.map_err(|error| wrong(error.to_string()))?;
                    compared += 1;
                }
            }
            Step::Messages(drawn) => {
                compared += MessageRound::new(drawn, number, &on).run(world).map_err(wrong)?;
            }
        }
    }
    Ok(compared)
}
