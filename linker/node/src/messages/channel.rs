//! The rings to and from one rank.

use heapless::VecView;
use unisono_shmem::am_header::{AckState, BYE, EAGER_LIMIT};
use unisono_shmem::ring::{Consumer, Producer};

use super::MessageError;
use crate::member::Member;

/// The rings to and from one rank, and its state.
#[derive(Debug)]
pub struct Channel<'a> {
    pub(super) inward: Consumer<'a>,
    pub(super) outward: Producer<'a>,
    pub(super) acknowledged: AckState,
    /// Why the rank takes no part any more.
    pub(super) ended: Option<MessageError>,
    /// The rank failed, and no receive has reported it.
    pub(super) failure_is_unreported: bool,
}

impl<'a> Channel<'a> {
    fn new(member: &Member<'a>, rank: u32) -> Option<Self> {
        let (segment, layout, own) = (member.segment(), member.layout(), member.local());
        Some(Self {
            inward: Consumer::of(segment, &layout, rank, own)?,
            outward: Producer::of(segment, &layout, own, rank)?,
            acknowledged: AckState::default(),
            ended: None,
            failure_is_unreported: false,
        })
    }

    /// Opens the channels to all ranks, this node included. `None`: the table is too small.
    pub(super) fn open<'l>(places: &'l mut VecView<Self>, member: &Member<'a>) -> Option<&'l mut [Self]> {
        places.clear();
        for rank in 0..member.size() {
            places.push(Self::new(member, rank)?).ok()?;
        }
        Some(places)
    }

    /// Length in bytes of the longest message that is sent with its header.
    pub(super) fn eager_limit(&self) -> u32 {
        self.outward.longest().min(EAGER_LIMIT as u32)
    }

    /// Whether this node's words in the rings are intact.
    pub(super) fn is_intact(&mut self) -> bool {
        self.outward.is_intact() && self.inward.is_intact()
    }

    /// Sends Bye. Returns false if the ring has no room.
    pub(super) fn send_bye(&mut self) -> bool {
        self.outward.put([BYE, 0], &[]).is_ok()
    }
}
