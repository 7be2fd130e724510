//! A point-to-point machine with boxed records.

use unisono_core::message::matching::{self, Body, Kept, Posted};
use unisono_core::message::point_to_point::{self, Admission, Config, Lent, Message, Peer, Receive, Send};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Boxes;

impl<R: Body, M: Body> matching::Storage<R, M> for Boxes {
    type Receives = Box<[Posted<R>]>;
    type Messages = Box<[Kept<M>]>;
    type Buckets = Box<[u32]>;
}

impl point_to_point::Storage for Boxes {
    type Sends = Box<[Send]>;
    type Peers = Box<[Peer]>;
    type Slots = Box<[u32]>;
}

/// Sizes of the pools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) peers: usize,
    pub(crate) receives: usize,
    pub(crate) sends: usize,
    pub(crate) slots: usize,
    /// Messages beyond headers × peers.
    pub(crate) spare: usize,
}

pub(crate) fn machine(config: Config, sizes: Sizes) -> Admission<Boxes> {
    let Sizes { peers, receives, sends, slots, spare } = sizes;
    let messages = peers * usize::from(config.headers) + spare;
    let buckets = |records: usize| vec![0; records * 4 + 8].into_boxed_slice();
    let lent = Lent {
        receives: vec![Posted::<Receive>::default(); receives].into(),
        messages: vec![Kept::<Message>::default(); messages].into(),
        sends: vec![Send::FREE; sends].into(),
        peers: vec![Peer::NEW; peers].into(),
        slots: vec![0; slots].into(),
        buckets: [buckets(receives), buckets(messages), buckets(sends)],
    };
    Admission::new(config, lent).expect("enough records")
}
