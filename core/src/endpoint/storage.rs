//! The memory of an endpoint's records: arrays in models and on microcontrollers, boxed slices elsewhere.

use core::fmt::Debug;

use crate::endpoint::operation::Operation;
use crate::endpoint::peer::Peer;
use crate::endpoint::placement::Placement;
use crate::endpoint::{ControlMessage, Sender};
use crate::pool::Pool;
use crate::time::Time;
use crate::window::rails::RailState;
use crate::window::receive_window::ReceiveWindow;

/// The records of an endpoint. Each pool's length is its capacity: at most 2³² − 1, of windows and placements at most
/// 65 535.
pub trait Storage<const W: usize, const BITS: u32>: Debug {
    /// The clock's time type.
    type Time: Time;
    /// One record per rank of the job.
    type Peers: Pool<Peer<Self::Time, BITS>>;
    /// Send windows, for peers with unacknowledged segments.
    type Senders: Pool<Sender<Self::Time, W, BITS>>;
    /// For each send window as many as there are rails to a peer; none if there is one rail.
    type Rails: Pool<RailState<Self::Time>>;
    /// Receive windows, for peers with a gap.
    type Receivers: Pool<ReceiveWindow<W>>;
    /// Operations that are not completed.
    type Operations: Pool<Operation>;
    /// Grants and placements.
    type Placements: Pool<Placement>;
    /// Control messages that wait for a token: 16 or more.
    type ControlMessages: Pool<ControlMessage>;
}

/// Records in arrays, for one rail: `PEERS` peers, `WINDOWS` windows in each direction, `OPERATIONS` operations,
/// `PLACEMENTS` grants, `NOTICES` control messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Arrays<
    T: Time,
    const PEERS: usize,
    const WINDOWS: usize,
    const OPERATIONS: usize,
    const PLACEMENTS: usize,
    const NOTICES: usize,
>(core::marker::PhantomData<T>);

impl<
    T: Time,
    const PEERS: usize,
    const WINDOWS: usize,
    const OPERATIONS: usize,
    const PLACEMENTS: usize,
    const NOTICES: usize,
    const W: usize,
    const BITS: u32,
> Storage<W, BITS> for Arrays<T, PEERS, WINDOWS, OPERATIONS, PLACEMENTS, NOTICES>
{
    type Time = T;
    type Peers = [Peer<T, BITS>; PEERS];
    type Senders = [Sender<T, W, BITS>; WINDOWS];
    type Rails = [RailState<T>; 0];
    type Receivers = [ReceiveWindow<W>; WINDOWS];
    type Operations = [Operation; OPERATIONS];
    type Placements = [Placement; PLACEMENTS];
    type ControlMessages = [ControlMessage; NOTICES];
}
