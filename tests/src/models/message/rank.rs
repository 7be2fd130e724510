//! The point-to-point machine of a rank, stored in arrays.

use unisono_core::message::matching::{self, Body, Kept, Posted};
use unisono_core::message::point_to_point::{self, Admission, Config, Lent, Message, Peer, Receive, Send};

/// Headers per peer.
pub const HEADERS: u16 = 1;
/// Slots of the pool.
pub const SLOTS: usize = 1;
/// Bytes of the longest eager message.
pub(super) const EAGER: u32 = 2;
const RECORDS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Arrays;

impl<R: Body, M: Body> matching::Storage<R, M> for Arrays {
    type Receives = [Posted<R>; RECORDS];
    type Messages = [Kept<M>; RECORDS];
    type Buckets = [u32; 6];
}

impl point_to_point::Storage for Arrays {
    type Sends = [Send; RECORDS];
    type Peers = [Peer; 3];
    type Slots = [u32; SLOTS];
}

pub(super) type Machine = Admission<Arrays>;

/// Of one of `ranks` ranks, at most three.
pub(super) fn machine(ranks: usize) -> Machine {
    assert!(ranks <= 3, "a record per rank");
    let lent = Lent {
        receives: [Posted::<Receive>::default(); RECORDS],
        messages: [Kept::<Message>::default(); RECORDS],
        sends: [Send::FREE; RECORDS],
        peers: [Peer::NEW; 3],
        slots: [0; SLOTS],
        buckets: [[0; 6]; 3],
    };
    let config = Config { headers: HEADERS, short: 1, slot: EAGER, seed: 0 };
    Admission::new(config, lent).expect("the storage is large enough")
}
