//! The communication pattern of a barrier: Graham, Cheng, Venkata, Ladd, Shamis (2011) §3 for dissemination and k-ary
//! trees, Graham and Shipman (2008) for the hierarchy of sockets.

/// The pattern of a barrier. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shape<'a> {
    /// Every rank publishes, every rank polls all others.
    Flat,
    /// ⌈log₂ n⌉ phases: in phase p rank r waits for rank r − 2^p.
    Dissemination,
    /// A tree of this arity, at least 1: up, then down.
    Tree(u32),
    /// The socket of every rank. A socket's lowest rank waits for the others of it, then for the lowest ranks of all
    /// other sockets, then releases its own.
    Sockets(&'a [u8]),
}

/// The next action of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Publishes that it has reached this phase.
    Publish(u32),
    /// Waits until this rank has reached this phase.
    Await(u32, u32),
    /// Nothing more.
    End,
}

impl Shape<'_> {
    /// Phases by which a word grows in one barrier.
    pub const fn phases(self, size: u32) -> u32 {
        match self {
            Self::Flat => 1,
            Self::Dissemination => rounds(size),
            Self::Tree(_) => 2,
            Self::Sockets(_) => 3,
        }
    }

    /// Number of a rank's actions in one barrier.
    pub(super) fn action_count(self, rank: u32, size: u32) -> u32 {
        match self {
            Self::Flat => 1 + size,
            Self::Dissemination => 2 * rounds(size),
            Self::Tree(arity) => children(rank, arity, size).1 + if rank == 0 { 1 } else { 3 },
            Self::Sockets(sockets) if leader(sockets, rank) == rank => 2 * size + 3,
            Self::Sockets(_) => 3,
        }
    }

    /// Action `at` of a rank, a pure function. Work O(1); over sockets O(size).
    pub(super) fn action(self, rank: u32, size: u32, at: u32) -> Action {
        match self {
            Self::Flat if at == 0 => Action::Publish(1),
            Self::Flat if at <= size => Action::Await(at - 1, 1),
            Self::Dissemination if at < 2 * rounds(size) => {
                let phase = at / 2;
                match at % 2 {
                    0 => Action::Publish(phase + 1),
                    _ => Action::Await((rank + size - (1 << phase)) % size, phase + 1),
                }
            }
            Self::Tree(arity) => {
                let (first, count) = children(rank, arity, size);
                match at.checked_sub(count) {
                    None => Action::Await(first + at, 1),
                    Some(0) if rank == 0 => Action::Publish(2),
                    Some(0) => Action::Publish(1),
                    Some(1) if rank > 0 => Action::Await((rank - 1) / arity.max(1), 2),
                    Some(2) if rank > 0 => Action::Publish(2),
                    Some(_) => Action::End,
                }
            }
            Self::Sockets(sockets) => {
                let lead = leader(sockets, rank);
                if lead != rank {
                    return match at {
                        0 => Action::Publish(1),
                        1 => Action::Await(lead, 3),
                        2 => Action::Publish(3),
                        _ => Action::End,
                    };
                }
                // Waiting for itself is no wait.
                let own = |peer| if leader(sockets, peer) == rank { peer } else { rank };
                let leads = |peer| if leader(sockets, peer) == peer { peer } else { rank };
                match at {
                    0 => Action::Publish(1),
                    _ if at <= size => Action::Await(own(at - 1), 1),
                    _ if at == size + 1 => Action::Publish(2),
                    _ if at <= 2 * size + 1 => Action::Await(leads(at - size - 2), 2),
                    _ if at == 2 * size + 2 => Action::Publish(3),
                    _ => Action::End,
                }
            }
            _ => Action::End,
        }
    }
}

/// ⌈log₂ size⌉.
const fn rounds(size: u32) -> u32 {
    size.next_power_of_two().trailing_zeros()
}

/// The first child and the number of children.
fn children(rank: u32, arity: u32, size: u32) -> (u32, u32) {
    let first = rank.saturating_mul(arity.max(1)).saturating_add(1).min(size);
    (first, arity.max(1).min(size - first))
}

/// The lowest rank of a rank's socket. Ranks beyond the table are of one socket with its first.
fn leader(sockets: &[u8], rank: u32) -> u32 {
    let socket = |rank: u32| sockets.get(rank as usize).copied().or(sockets.first().copied()).unwrap_or(0);
    (0..rank).find(|&peer| socket(peer) == socket(rank)).unwrap_or(rank)
}
