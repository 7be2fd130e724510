//! Performance variables: whether the process is in its job, and the library's counters. A counter counts for each
//! handle from its start on; levels and states are what they are now.

use core::ffi::{c_int, c_void};
use std::sync::LazyLock;

use unisono::raw::{StatisticTopic, statistics};

use crate::abi::*;
use crate::error::Outcome;

/// A performance variable.
#[derive(Debug)]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// What it counts.
    pub description: &'static str,
    /// Its class: a state, a level or a counter.
    pub class: c_int,
    /// What it is about.
    pub topic: StatisticTopic,
    /// Its place among the statistics of the library.
    place: Option<usize>,
}

/// The states of the process in its job.
pub const STATES: [&str; 3] = ["before", "joined", "finished"];
/// The enumeration of them.
pub const STATE: MPI_T_enum = MPI_T_enum(1);

/// All performance variables.
pub fn all() -> &'static [Counter] {
    static ALL: LazyLock<Vec<Counter>> = LazyLock::new(|| {
        let state = Counter {
            name: String::from("unisono_state"),
            description: "Whether this process has joined its job, and has finished.",
            class: MPI_T_PVAR_CLASS_STATE,
            topic: StatisticTopic::Messages,
            place: None,
        };
        let counters = statistics().iter().enumerate().map(|(place, statistic)| Counter {
            name: format!("unisono_{}", statistic.name),
            description: statistic.description,
            class: if statistic.is_level { MPI_T_PVAR_CLASS_LEVEL } else { MPI_T_PVAR_CLASS_COUNTER },
            topic: statistic.topic,
            place: Some(place),
        });
        [state].into_iter().chain(counters).collect()
    });
    &ALL
}

impl Counter {
    /// Whether it is started and stopped, written and reset.
    pub const fn is_counter(&self) -> bool {
        self.class == MPI_T_PVAR_CLASS_COUNTER
    }

    fn now(&self) -> u64 {
        match self.place {
            Some(place) => crate::job::statistics().value(place).unwrap_or(0),
            None => crate::job::state() as u64,
        }
    }
}

/// A performance variable of a session.
#[derive(Debug)]
pub struct Measurement {
    counter: &'static Counter,
    /// What was counted until it was stopped.
    total: u64,
    /// What the library had counted when it was started; `None`: it is stopped.
    since: Option<u64>,
}

impl Measurement {
    /// A counter that is not started.
    pub const fn new(counter: &'static Counter) -> Self {
        Self { counter, total: 0, since: None }
    }

    /// Whether it is a counter.
    pub const fn is_counter(&self) -> bool {
        self.counter.is_counter()
    }

    fn value(&self) -> u64 {
        if !self.is_counter() {
            return self.counter.now();
        }
        self.total.wrapping_add(self.since.map_or(0, |since| self.counter.now().wrapping_sub(since)))
    }

    /// Starts it.
    pub fn start(&mut self) -> Outcome {
        if !self.is_counter() {
            return Err(MPI_T_ERR_PVAR_NO_STARTSTOP);
        }
        self.since = self.since.or_else(|| Some(self.counter.now()));
        Ok(())
    }

    /// Stops it.
    pub fn stop(&mut self) -> Outcome {
        if !self.is_counter() {
            return Err(MPI_T_ERR_PVAR_NO_STARTSTOP);
        }
        self.total = self.value();
        self.since = None;
        Ok(())
    }

    /// Sets what it has counted.
    pub fn set(&mut self, total: u64) -> Outcome {
        if !self.is_counter() {
            return Err(MPI_T_ERR_PVAR_NO_WRITE);
        }
        self.total = total;
        self.since = self.since.map(|_| self.counter.now());
        Ok(())
    }

    /// Writes its value to the program's memory; `resets`: and starts from 0 again.
    ///
    /// # Safety
    /// It is null or writable for a value of its type.
    pub unsafe fn read(&mut self, to: *mut c_void, resets: bool) -> Outcome {
        if to.is_null() {
            return Err(MPI_T_ERR_INVALID);
        }
        if resets && !self.is_counter() {
            return Err(MPI_T_ERR_PVAR_NO_ATOMIC);
        }
        let value = self.value();
        if self.counter.class == MPI_T_PVAR_CLASS_STATE {
            // SAFETY: the caller promises it.
            unsafe { to.cast::<c_int>().write_unaligned(value as c_int) };
        } else {
            // SAFETY: the caller promises it.
            unsafe { to.cast::<u64>().write_unaligned(value) };
        }
        if resets {
            // What was counted since the value was read would be lost.
            self.total = self.total.wrapping_sub(value);
        }
        Ok(())
    }
}
