//! The point-to-point machine of a rank, stored in arrays.

use unisono_core::message::matching::{self, PostedReceive, RecordData, Unexpected};
use unisono_core::message::point_to_point::{
    self, Config, MessageBody, MessagePeer, PointToPoint, Pools, ReceiveBody, SendRecord,
};

/// Headers per peer.
pub const HEADERS: u16 = 1;
/// Slots of the pool.
pub const SLOTS: usize = 1;
/// Bytes of the longest eager message.
pub(super) const EAGER: u32 = 2;
const RECORDS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Arrays;

impl<R: RecordData, M: RecordData> matching::MatchingStorage<R, M> for Arrays {
    type Receives = [PostedReceive<R>; RECORDS];
    type Messages = [Unexpected<M>; RECORDS];
    type Buckets = [u32; 6];
}

impl point_to_point::MessageStorage for Arrays {
    type Sends = [SendRecord; RECORDS];
    type Peers = [MessagePeer; 3];
    type Slots = [u32; SLOTS];
}

pub(super) type Machine = PointToPoint<Arrays>;

/// Of one of `ranks` ranks, at most three.
pub(super) fn machine(ranks: usize) -> Machine {
    assert!(ranks <= 3, "a record per rank");
    let storage = Pools {
        receives: [PostedReceive::<ReceiveBody>::default(); RECORDS],
        messages: [Unexpected::<MessageBody>::default(); RECORDS],
        sends: [SendRecord::FREE; RECORDS],
        peers: [MessagePeer::NEW; 3],
        slots: [0; SLOTS],
        buckets: [[0; 6]; 3],
    };
    let config = Config { headers: HEADERS, short: 1, slot: EAGER, seed: 0 };
    PointToPoint::new(config, storage).expect("the storage is large enough")
}
