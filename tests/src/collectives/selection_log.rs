//! Records the schedule selections of this process's collectives from the library's log.

use alloc::collections::BTreeSet;
use core::fmt::{self, Debug};
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The schedule of a collective over messages.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct LoggedSelection {
    /// Name of the collective, as in errors.
    pub collective: String,
    /// Name of the algorithm, as in overrides.
    pub algorithm: String,
    /// Messages at a time.
    pub ports: u64,
    /// Segments.
    pub segments: u64,
    /// Levels of subgroups, that of the leaders included.
    pub levels: u64,
}

impl fmt::Display for LoggedSelection {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, algorithm, ports, segments, levels } = self;
        write!(to, "{collective}/{algorithm}/{ports}/{segments}/{levels}")
    }
}

impl LoggedSelection {
    /// Parses the displayed form.
    pub fn read(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split('/').collect();
        let [collective, algorithm, ref numbers @ ..] = words[..] else { return None };
        let [collective, algorithm] = [collective, algorithm].map(str::to_owned);
        let numbers: Vec<u64> = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>().ok()?;
        let [ports, segments, levels] = numbers[..] else { return None };
        Some(Self { collective, algorithm, ports, segments, levels })
    }
}

/// All selections of a process since the log was installed.
#[derive(Debug, Default)]
pub struct SelectionLog(Mutex<BTreeSet<LoggedSelection>>);

impl SelectionLog {
    /// Installs the log until the process ends.
    ///
    /// # Errors
    /// Another subscriber is installed.
    pub fn listen() -> Result<&'static Self, tracing::subscriber::SetGlobalDefaultError> {
        let chosen: &'static Self = Box::leak(Box::default());
        tracing::subscriber::set_global_default(chosen)?;
        Ok(chosen)
    }

    /// The selections up to now.
    pub fn all(&self) -> Vec<LoggedSelection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Visit for LoggedSelection {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "collective" => value.clone_into(&mut self.collective),
            "algorithm" => value.clone_into(&mut self.algorithm),
            _ => {}
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "ports" => self.ports = value,
            "segments" => self.segments = value,
            "levels" => self.levels = value,
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for &'static SelectionLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.fields().field("algorithm").is_some()
    }

    fn event(&self, event: &Event<'_>) {
        let mut choice = LoggedSelection::default();
        event.record(&mut choice);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(choice);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
