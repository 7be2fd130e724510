//! Handles: numbers that name an entry of a table, its kind and its generation, so that a wrong or freed one is an
//! error, and never memory that is gone.

use alloc::sync::Arc;

use parking_lot::RwLock;

use crate::result::Error;
use crate::result::unisono_result::UNISONO_ERROR_HANDLE;

/// What a handle names: its highest byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Communicator = 1,
    Request = 2,
    Message = 3,
    Datatype = 4,
    Operation = 5,
    Memory = 6,
    Window = 7,
    AttributeKey = 8,
    Region = 9,
    RemoteRegion = 10,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Communicator => "communicator",
            Self::Request => "request",
            Self::Message => "message",
            Self::Datatype => "datatype",
            Self::Operation => "operation",
            Self::Memory => "memory",
            Self::Window => "window",
            Self::AttributeKey => "key of attributes",
            Self::Region => "region",
            Self::RemoteRegion => "remote region",
        }
    }
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Entries by handle.
#[derive(Debug)]
pub(crate) struct Table<T> {
    kind: Kind,
    entries: RwLock<(Vec<Entry<T>>, Vec<u32>)>,
}

/// Generations are 24 bits wide.
const GENERATIONS: u32 = 1 << 24;

impl<T> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, entries: RwLock::new((Vec::new(), Vec::new())) }
    }

    const fn handle(&self, index: u32, generation: u32) -> u64 {
        (self.kind as u64) << 56 | (generation as u64) << 32 | index as u64
    }

    /// Inserts a value.
    pub(crate) fn insert(&self, value: T) -> u64 {
        let (entries, free) = &mut *self.entries.write();
        if let Some((index, entry)) = free.pop().and_then(|index| Some((index, entries.get_mut(index as usize)?))) {
            entry.value = Some(value);
            return self.handle(index, entry.generation);
        }
        entries.push(Entry { generation: 0, value: Some(value) });
        self.handle((entries.len() - 1) as u32, 0)
    }

    fn parse(&self, handle: u64) -> Result<(usize, u32), Error> {
        if handle >> 56 != self.kind as u64 {
            return Err(self.wrong(handle, "is not"));
        }
        Ok((handle as u32 as usize, (handle >> 32) as u32 % GENERATIONS))
    }

    fn wrong(&self, handle: u64, why: &str) -> Error {
        Error::new(UNISONO_ERROR_HANDLE, format!("the handle {handle:#x} {why} a {}", self.kind.name()))
    }

    /// A copy of a value.
    pub(crate) fn get(&self, handle: u64) -> Result<T, Error>
    where
        T: Clone,
    {
        let (index, generation) = self.parse(handle)?;
        let entries = self.entries.read();
        let entry = entries.0.get(index).filter(|entry| entry.generation == generation);
        entry.and_then(|entry| entry.value.clone()).ok_or_else(|| self.wrong(handle, "does not name (any more)"))
    }

    /// Removes a value. Its handle is not used again for 2²⁴ values.
    pub(crate) fn remove(&self, handle: u64) -> Result<T, Error> {
        let (index, generation) = self.parse(handle)?;
        let (entries, free) = &mut *self.entries.write();
        let entry = entries.get_mut(index).filter(|entry| entry.generation == generation);
        let value = entry.and_then(|entry| {
            let value = entry.value.take()?;
            entry.generation = (generation + 1) % GENERATIONS;
            Some(value)
        });
        let value = value.ok_or_else(|| self.wrong(handle, "does not name (any more)"))?;
        free.push(index as u32);
        Ok(value)
    }
}

impl<T> Table<Arc<T>> {
    /// Removes a value that nothing else uses. `None`: something does, and its handle stays valid.
    pub(crate) fn remove_unused(&self, handle: u64) -> Result<Option<T>, Error> {
        let (index, generation) = self.parse(handle)?;
        let (entries, free) = &mut *self.entries.write();
        let entry = entries.get_mut(index).filter(|entry| entry.generation == generation);
        let entry = entry.filter(|entry| entry.value.is_some());
        let entry = entry.ok_or_else(|| self.wrong(handle, "does not name (any more)"))?;
        match entry.value.take().map(Arc::try_unwrap) {
            Some(Ok(value)) => {
                entry.generation = (generation + 1) % GENERATIONS;
                free.push(index as u32);
                Ok(Some(value))
            }
            used => {
                entry.value = used.and_then(Result::err);
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_another_kind_and_freed_ones_are_errors() {
        let (table, other) = (Table::new(Kind::Request), Table::new(Kind::Datatype));
        let (first, second) = (table.insert(1), table.insert(2));
        assert_eq!((table.get(first).ok(), table.get(second).ok()), (Some(1), Some(2)));
        assert!(table.get(other.insert(3)).is_err() && table.get(0).is_err() && table.get(u64::MAX).is_err());
        assert_eq!(table.remove(first).ok(), Some(1));
        assert!(table.get(first).is_err() && table.remove(first).is_err());
        let third = table.insert(4);
        assert!(third != first && table.get(first).is_err());
        assert_eq!(table.get(third).ok(), Some(4));
    }

    #[test]
    fn used_values_keep_their_handles() {
        let table = Table::new(Kind::Window);
        let handle = table.insert(Arc::new(1));
        let used = table.get(handle);
        assert!(matches!(table.remove_unused(handle), Ok(None)) && table.get(handle).is_ok());
        drop(used);
        assert!(matches!(table.remove_unused(handle), Ok(Some(1))) && table.remove_unused(handle).is_err());
    }
}
