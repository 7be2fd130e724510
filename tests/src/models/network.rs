//! A network that holds few datagrams, in no order.

/// A datagram in flight, and its age: how many messages were delivered since it was sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InFlight<D> {
    /// What was sent.
    pub datagram: D,
    /// Its age.
    pub age: u8,
}

/// At most `N` datagrams. Equal whatever the order in which they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Network<D, const N: usize>([Option<InFlight<D>>; N]);

impl<D: Copy + Ord, const N: usize> Network<D, N> {
    /// Nothing is in flight.
    pub const EMPTY: Self = Self([None; N]);

    /// A datagram is sent; it is lost when there is no room.
    pub fn send(&mut self, datagram: D) {
        if let [free @ None, ..] = &mut self.0 {
            *free = Some(InFlight { datagram, age: 0 });
            self.0.sort_unstable();
        }
    }

    /// What is in flight, with its places; equal datagrams once.
    pub fn iter(&self) -> impl Iterator<Item = (usize, D)> + '_ {
        let distinct = self.0.iter().enumerate().filter(|(i, cell)| *i == 0 || self.0[i - 1] != **cell);
        distinct.filter_map(|(i, cell)| Some((i, (*cell)?.datagram)))
    }

    /// What is in flight at a place.
    pub fn get(&self, place: usize) -> Option<D> {
        self.0.get(place).copied().flatten().map(|in_flight| in_flight.datagram)
    }

    /// Takes a datagram out.
    pub fn remove(&mut self, place: usize) {
        self.0[place] = None;
        self.0.sort_unstable();
    }

    /// A message was delivered: everything ages, and what is older than `lifetime` is gone.
    pub fn age(&mut self, lifetime: u8) {
        for cell in &mut self.0 {
            *cell = cell
                .map(|in_flight| InFlight { age: in_flight.age + 1, ..in_flight })
                .filter(|in_flight| in_flight.age <= lifetime);
        }
        self.0.sort_unstable();
    }
}
