//! Broadcasts of a simulated job by the steps of a schedule.

use alloc::sync::Arc;

use unisono_core::collective::{CollectiveKind, CollectiveMachine as _, Poll};
use unisono_core::ids::CollectiveId;
use unisono_core::schedule::{Executor, HierarchicalPlan, Plan, Schedule, Step, StepOperation};

use super::{BroadcastJob, Host, Local, Message, payload};

/// One rank's schedule.
#[derive(Clone, Debug)]
pub enum BroadcastPlan {
    /// Over all ranks.
    Flat(Box<Plan>),
    /// Over the leaders of hosts, then within each.
    Composed(Box<HierarchicalPlan<Arc<[u32]>>>),
}

impl Schedule for BroadcastPlan {
    fn collective(&self) -> CollectiveKind {
        CollectiveKind::Broadcast
    }

    fn steps(&self) -> u32 {
        match self {
            Self::Flat(plan) => plan.steps(),
            Self::Composed(plan) => Schedule::steps(&**plan),
        }
    }

    fn step(&self, i: u32) -> Option<Step> {
        match self {
            Self::Flat(plan) => plan.step(i),
            Self::Composed(plan) => Schedule::step(&**plan, i),
        }
    }
}

impl BroadcastJob {
    /// Gives a rank its schedule of broadcasts.
    pub fn set_plan(&mut self, rank: usize, plan: BroadcastPlan) {
        self.ranks[rank].plan = Some(plan);
    }

    /// Begins a broadcast at the root by the schedule.
    pub fn begin_schedule(&mut self, call: u32, host: &mut impl Host) {
        let data = payload(call, self.bytes);
        let root = &mut self.ranks[0];
        root.memory.write(root.buffer, 0, &data).expect("the buffer");
        self.receive(0, call, host);
        self.execute(0, call, host);
    }

    /// Advances a rank's schedule.
    fn execute(&mut self, rank: usize, call: u32, host: &mut impl Host) {
        let of = &mut self.ranks[rank];
        if of.executor.as_ref().is_none_or(|(other, _)| *other != call) {
            let plan = of.plan.clone().expect("a schedule");
            of.executor = Some((call, Executor::new(CollectiveId::default(), plan)));
        }
        loop {
            let of = &mut self.ranks[rank];
            let Some((_, executor)) = &mut of.executor else { return };
            let Poll::Request(step, operation) = executor.poll() else { return };
            match operation {
                StepOperation::Receive { of: sender, key, .. } => {
                    match of.arrived.iter().position(|name| *name == (sender.0, key)) {
                        Some(i) => {
                            of.arrived.swap_remove(i);
                            executor.handle_done(step);
                            self.receive(rank, call, host);
                        }
                        None => {
                            of.begun.insert((sender.0, key), step);
                        }
                    }
                }
                StepOperation::Send { to, key, .. } => {
                    executor.handle_done(step);
                    let to = to.0 as usize;
                    if self.is_local(rank, to) {
                        self.send_local(to, Local::Step(rank as u32, call, key));
                    } else {
                        self.send(rank, to, rank as u32, Message::Step { call, key });
                    }
                }
                StepOperation::Copy { .. } | StepOperation::Reduce { .. } => executor.handle_done(step),
                StepOperation::Group(_) => unreachable!("groups use messages"),
            }
        }
    }

    /// The data of a step has arrived from a rank, by name: the sender and the key.
    pub(super) fn handle_step(&mut self, rank: usize, name: (u32, u32), call: u32, host: &mut impl Host) {
        let of = &mut self.ranks[rank];
        match (of.begun.remove(&name), &mut of.executor) {
            (Some(step), Some((_, executor))) => {
                executor.handle_done(step);
                self.receive(rank, call, host);
            }
            _ => of.arrived.push(name),
        }
        self.execute(rank, call, host);
    }
}
