//! The endpoint of one of two ranks, with few records, as models explore it.

use unisono_core::device::DeviceQueue;
use unisono_core::endpoint::operation::Operation;
use unisono_core::endpoint::peer::Peer;
use unisono_core::endpoint::placement::Placement;
use unisono_core::endpoint::storage::Arrays;
use unisono_core::endpoint::{Config, ControlMessage, Endpoint, Pools, Sender};
use unisono_core::ids::{Incarnation, PeerId};
use unisono_core::window::congestion::CongestionControl;
use unisono_core::window::receive_window::ReceiveWindow;

use super::clock::Abstract;

/// Records of both ranks, of a window in each direction, of `OPERATIONS` operations, `PLACEMENTS` grants and `NOTICES`
/// control messages.
pub(super) type Records<const OPERATIONS: usize, const PLACEMENTS: usize, const NOTICES: usize> =
    Arrays<Abstract<0>, 2, 2, OPERATIONS, PLACEMENTS, NOTICES>;

/// The endpoint of this incarnation of a rank, whose device can hold `holdable` datagrams back. The other rank is not
/// known yet.
pub(super) fn small_endpoint<
    const OPERATIONS: usize,
    const PLACEMENTS: usize,
    const NOTICES: usize,
    const W: usize,
    const BITS: u32,
>(
    rank: PeerId,
    incarnation: Incarnation,
    holdable: usize,
) -> Endpoint<Records<OPERATIONS, PLACEMENTS, NOTICES>, W, BITS> {
    let config = Config {
        rank,
        incarnation,
        receive_slots: 8.max(2 * W as u32),
        holdable: holdable as u32,
        granularity: 1,
        silence: 8,
        idle: 4,
        control: CongestionControl::Fixed,
        probe_queue: DeviceQueue::Polled,
    };
    let pools = Pools {
        peers: [Peer::UNKNOWN; 2],
        senders: [Sender::FREE; 2],
        rails: [],
        receivers: [ReceiveWindow::EMPTY; 2],
        operations: [Operation::FREE; OPERATIONS],
        placements: [Placement::FREE; PLACEMENTS],
        control_messages: [ControlMessage::FREE; NOTICES],
    };
    Endpoint::new((), config, pools)
}
