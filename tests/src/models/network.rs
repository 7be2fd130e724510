//! The network of the models: holds few datagrams, in no order.

/// At most `N` datagrams. Equal whatever the order in which they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Network<D, const N: usize>([Option<D>; N]);

impl<D: Copy + Ord, const N: usize> Network<D, N> {
    /// Nothing is in flight.
    pub const EMPTY: Self = Self([None; N]);

    /// A datagram is sent; it is lost when there is no room.
    pub fn send(&mut self, datagram: D) {
        // Free entries sort first.
        if let Some(free @ None) = self.0.first_mut() {
            *free = Some(datagram);
            self.0.sort_unstable();
        }
    }

    /// The datagrams in flight and their indices; equal datagrams once.
    pub fn iter(&self) -> impl Iterator<Item = (usize, D)> + '_ {
        let distinct = self.0.iter().enumerate().filter(|(i, cell)| *i == 0 || self.0[i - 1] != **cell);
        distinct.filter_map(|(i, cell)| Some((i, (*cell)?)))
    }

    /// The datagram at an index.
    pub fn get(&self, place: usize) -> Option<D> {
        self.0.get(place).copied().flatten()
    }

    /// Removes a datagram.
    pub fn remove(&mut self, place: usize) {
        self.0[place] = None;
        self.0.sort_unstable();
    }

    /// Removes several datagrams.
    pub fn remove_all(&mut self, places: &[Option<usize>]) {
        for place in places.iter().flatten() {
            self.0[*place] = None;
        }
        self.0.sort_unstable();
    }

    /// Changes every datagram.
    pub fn change(&mut self, change: impl Fn(D) -> D) {
        self.0 = self.0.map(|cell| cell.map(&change));
        self.0.sort_unstable();
    }

    /// Drops the datagrams that do not satisfy the predicate.
    pub fn retain(&mut self, keeps: impl Fn(D) -> bool) {
        for cell in &mut self.0 {
            *cell = cell.filter(|datagram| keeps(*datagram));
        }
        self.0.sort_unstable();
    }
}
