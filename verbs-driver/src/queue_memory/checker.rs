//! Checks the order of accesses to queue memory.

use core::error::Error;
use core::fmt;

use super::{Barrier, QueueEvent, Record};

/// A violation of the order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Violation {
    /// A record was stored, and the adapter may see it before the entries that it covers.
    RecordBeforeEntry,
    /// A doorbell was rung, and the adapter may read before the entries are visible.
    DoorbellBeforeEntry,
    /// A doorbell was rung, and the adapter may read before the record is visible.
    DoorbellBeforeRecord,
    /// A doorbell was rung without a new record.
    DoorbellWithoutRecord,
    /// A store was made while a doorbell may still be in a write-combining buffer.
    Unflushed,
    /// An entry was loaded without a check of its owner.
    LoadUnasked,
    /// An entry was loaded, or stored to, perhaps before its owner was.
    EntryBeforeOwner,
    /// An entry was given back that perhaps is still being loaded.
    ReturnedBeforeLoad,
}

impl fmt::Display for Violation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::RecordBeforeEntry => "no barrier between entry and record",
            Self::DoorbellBeforeEntry => "no barrier between entry and doorbell",
            Self::DoorbellBeforeRecord => "no barrier between record and doorbell",
            Self::DoorbellWithoutRecord => "doorbell without a new record",
            Self::Unflushed => "no flush after a doorbell",
            Self::LoadUnasked => "entry loaded without asking for its owner",
            Self::EntryBeforeOwner => "no barrier between owner and entry",
            Self::ReturnedBeforeLoad => "no barrier between loading an entry and giving it back",
        })
    }
}

impl Error for Violation {}

/// Whether a load is known to precede the accesses that follow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
enum Loaded {
    #[default]
    Nothing,
    Unordered,
    Ordered,
}

/// The checker of one queue.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Checker {
    /// Entries that a later store may overtake.
    entries: bool,
    /// A record that a doorbell may overtake.
    recorded: bool,
    /// A record was stored since the last doorbell.
    fresh: bool,
    /// End offset of the doorbell that may still be in a write-combining buffer.
    unflushed: Option<usize>,
    owner: Loaded,
    entry: Loaded,
}

impl Checker {
    /// Checks an event. Only the first violation is meaningful: later ones may be consequences.
    pub fn check(&mut self, event: QueueEvent) -> Result<(), Violation> {
        match event {
            QueueEvent::Barrier(barrier) => {
                self.pass(barrier);
                Ok(())
            }
            QueueEvent::Store => {
                self.entries = true;
                self.flushed()?;
                if self.owner == Loaded::Unordered { Err(Violation::EntryBeforeOwner) } else { Ok(()) }
            }
            QueueEvent::Record(record) => self.record(record),
            QueueEvent::Doorbell { at, bytes } => self.doorbell(at, bytes),
            QueueEvent::Progress => {
                self.owner = Loaded::Unordered;
                Ok(())
            }
            QueueEvent::Load => {
                self.entry = Loaded::Unordered;
                match self.owner {
                    Loaded::Nothing => Err(Violation::LoadUnasked),
                    Loaded::Unordered => Err(Violation::EntryBeforeOwner),
                    Loaded::Ordered => Ok(()),
                }
            }
        }
    }

    /// Checks at the end of a call that every doorbell was flushed.
    pub const fn flushed(&self) -> Result<(), Violation> {
        if self.unflushed.is_some() { Err(Violation::Unflushed) } else { Ok(()) }
    }

    const fn pass(&mut self, barrier: Barrier) {
        match barrier {
            Barrier::FromDevice => {
                self.owner = settled(self.owner);
                self.entry = settled(self.entry);
            }
            Barrier::ToDevice => self.entries = false,
            Barrier::ToRegister => {
                self.entries = false;
                self.recorded = false;
            }
            Barrier::Flush => {
                self.entries = false;
                self.recorded = false;
                self.unflushed = None;
            }
        }
    }

    fn record(&mut self, record: Record) -> Result<(), Violation> {
        (self.recorded, self.fresh) = (true, true);
        self.flushed()?;
        if self.entries {
            return Err(Violation::RecordBeforeEntry);
        }
        if record == Record::Index && self.entry == Loaded::Unordered {
            return Err(Violation::ReturnedBeforeLoad);
        }
        Ok(())
    }

    fn doorbell(&mut self, at: usize, bytes: usize) -> Result<(), Violation> {
        let continues = self.unflushed == Some(at);
        let was_flushed = self.unflushed.is_none();
        self.unflushed = at.checked_add(bytes);
        if continues {
            return Ok(());
        }
        if !was_flushed {
            return Err(Violation::Unflushed);
        }
        if self.entries {
            return Err(Violation::DoorbellBeforeEntry);
        }
        if self.recorded {
            return Err(Violation::DoorbellBeforeRecord);
        }
        if !core::mem::take(&mut self.fresh) {
            return Err(Violation::DoorbellWithoutRecord);
        }
        Ok(())
    }
}

const fn settled(loaded: Loaded) -> Loaded {
    match loaded {
        Loaded::Nothing => Loaded::Nothing,
        Loaded::Unordered | Loaded::Ordered => Loaded::Ordered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BELL: QueueEvent = QueueEvent::Doorbell { at: 0, bytes: 8 };
    const SENT: [QueueEvent; 6] = [
        QueueEvent::Store,
        QueueEvent::Barrier(Barrier::ToDevice),
        QueueEvent::Record(Record::Index),
        QueueEvent::Barrier(Barrier::ToRegister),
        BELL,
        QueueEvent::Barrier(Barrier::Flush),
    ];
    const TAKEN: [QueueEvent; 5] = [
        QueueEvent::Progress,
        QueueEvent::Barrier(Barrier::FromDevice),
        QueueEvent::Load,
        QueueEvent::Barrier(Barrier::FromDevice),
        QueueEvent::Record(Record::Index),
    ];

    fn first(events: impl IntoIterator<Item = QueueEvent>) -> Option<Violation> {
        let mut checker = Checker::default();
        let found = events.into_iter().find_map(|event| checker.check(event).err());
        found.or_else(|| checker.flushed().err())
    }

    #[test]
    fn order_is_accepted_again_and_again() {
        assert_eq!(first([SENT, SENT, SENT].concat()), None);
        assert_eq!(first([TAKEN, TAKEN].concat()), None);
        let flame = |at| QueueEvent::Doorbell { at, bytes: 64 };
        let flames = [&SENT[..4], &[flame(0), flame(64), flame(128)], &SENT[5..]].concat();
        assert_eq!(first([flames.clone(), flames].concat()), None);
    }

    #[test]
    fn each_missing_event_is_named() {
        let without = |events: &[QueueEvent], left_out: usize| {
            let once: alloc::vec::Vec<_> =
                (0..).zip(events).filter(|(at, _)| *at != left_out).map(|(_, e)| *e).collect();
            first([once.clone(), once].concat())
        };
        assert_eq!(without(&SENT, 1), Some(Violation::RecordBeforeEntry));
        assert_eq!(without(&SENT, 2), Some(Violation::DoorbellWithoutRecord));
        assert_eq!(without(&SENT, 3), Some(Violation::DoorbellBeforeRecord));
        assert_eq!(without(&SENT, 5), Some(Violation::Unflushed));
        assert_eq!(without(&TAKEN, 0), Some(Violation::LoadUnasked));
        assert_eq!(without(&TAKEN, 1), Some(Violation::EntryBeforeOwner));
        assert_eq!(without(&TAKEN, 3), Some(Violation::ReturnedBeforeLoad));
    }

    #[test]
    fn exchanged_adjacent_events_are_noticed() {
        for at in 0..SENT.len() - 1 {
            let mut events = SENT;
            events.swap(at, at + 1);
            assert!(first([events, events].concat()).is_some(), "{at}");
        }
    }

    #[test]
    fn block_at_another_offset_is_another_doorbell() {
        let flame = |at| QueueEvent::Doorbell { at, bytes: 64 };
        assert_eq!(first([&SENT[..4], &[flame(0), flame(128)]].concat()), Some(Violation::Unflushed));
    }
}
