//! A point-to-point machine with boxed records.

use unisono_core::message::matching::{self, PostedReceive, RecordData, Unexpected};
use unisono_core::message::point_to_point::{
    self, Config, MessageBody, MessagePeer, PointToPoint, Pools, ReceiveBody, SendRecord,
};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Boxes;

impl<R: RecordData, M: RecordData> matching::MatchingStorage<R, M> for Boxes {
    type Receives = Box<[PostedReceive<R>]>;
    type Messages = Box<[Unexpected<M>]>;
    type Buckets = Box<[u32]>;
}

impl point_to_point::MessageStorage for Boxes {
    type Sends = Box<[SendRecord]>;
    type Peers = Box<[MessagePeer]>;
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

pub(crate) fn machine(config: Config, sizes: Sizes) -> PointToPoint<Boxes> {
    let Sizes { peers, receives, sends, slots, spare } = sizes;
    let messages = peers * usize::from(config.headers) + spare;
    let buckets = |records: usize| vec![0; records * 4 + 8].into_boxed_slice();
    let pools = Pools {
        receives: vec![PostedReceive::<ReceiveBody>::default(); receives].into(),
        messages: vec![Unexpected::<MessageBody>::default(); messages].into(),
        sends: vec![SendRecord::FREE; sends].into(),
        peers: vec![MessagePeer::NEW; peers].into(),
        slots: vec![0; slots].into(),
        buckets: [buckets(receives), buckets(messages), buckets(sends)],
    };
    PointToPoint::new(config, pools).expect("enough records")
}

/// A machine of two peers that runs out of everything soon: two headers to a peer, one slot, one spare message.
pub(crate) fn small_machine(records: usize) -> PointToPoint<Boxes> {
    let config = Config { headers: 2, short: 4, slot: 8, seed: 3 };
    machine(config, Sizes { peers: 2, receives: records, sends: records, slots: 1, spare: 1 })
}
