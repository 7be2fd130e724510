//! Lists linked through records by index: they cannot overflow and need no memory of their own.

/// No record.
pub(crate) const NONE: u32 = u32::MAX;

/// A first-in first-out list. A record's link belongs to at most one list at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    /// A list of all records, in order.
    pub(crate) fn of_all<R>(records: &mut [R], link: impl Fn(&mut R) -> &mut u32) -> Self {
        let mut list = Self::EMPTY;
        for i in 0..records.len() {
            list.push(records, i as u32, &link);
        }
        list
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// The only record, if there is exactly one.
    pub(crate) const fn only(&self) -> Option<u32> {
        if self.first == self.last { self.first() } else { None }
    }

    pub(crate) const fn first(&self) -> Option<u32> {
        if self.first == NONE { None } else { Some(self.first) }
    }

    /// The records' indices, in order; the walk is bounded by the number of records.
    pub(crate) fn iter<R>(self, records: &[R], link: impl Fn(&R) -> u32) -> impl Iterator<Item = u32> {
        let next = move |i: &u32| records.get(*i as usize).map(&link).filter(|next| *next != NONE);
        core::iter::successors(self.first(), next).take(records.len())
    }

    /// Appends record `i`.
    pub(crate) fn push<R>(&mut self, records: &mut [R], i: u32, link: impl Fn(&mut R) -> &mut u32) {
        let Some(record) = records.get_mut(i as usize) else { return };
        *link(record) = NONE;
        match records.get_mut(self.last as usize) {
            Some(last) => *link(last) = i,
            None => self.first = i,
        }
        self.last = i;
    }

    /// Prepends record `i`.
    pub(crate) fn push_front<R>(&mut self, records: &mut [R], i: u32, link: impl Fn(&mut R) -> &mut u32) {
        let Some(record) = records.get_mut(i as usize) else { return };
        *link(record) = self.first;
        if self.first == NONE {
            self.last = i;
        }
        self.first = i;
    }

    /// Removes the first record.
    pub(crate) fn pop<R>(&mut self, records: &mut [R], link: impl Fn(&mut R) -> &mut u32) -> Option<u32> {
        let i = self.first;
        let next = core::mem::replace(link(records.get_mut(i as usize)?), NONE);
        self.first = next;
        if next == NONE {
            self.last = NONE;
        }
        Some(i)
    }

    /// Appends all of `other`, which is empty afterwards.
    pub(crate) fn append<R>(&mut self, other: &mut Self, records: &mut [R], link: impl Fn(&mut R) -> &mut u32) {
        if other.is_empty() {
            return;
        }
        match records.get_mut(self.last as usize) {
            Some(last) => *link(last) = other.first,
            None => self.first = other.first,
        }
        self.last = other.last;
        *other = Self::EMPTY;
    }
}
