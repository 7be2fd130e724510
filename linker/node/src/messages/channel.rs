//! The rings to and from one rank.

use heapless::VecView;
use unisono_shmem::am_header::{BYE, EAGER_LIMIT, Settled};
use unisono_shmem::ring::{Consumer, Producer};

use super::MessageError;
use crate::member::Member;

/// The rings to and from one rank, and what is known of it.
#[derive(Debug)]
pub struct Channel<'a> {
    pub(super) inward: Consumer<'a>,
    pub(super) outward: Producer<'a>,
    pub(super) settled: Settled,
    /// Why it takes no part any more.
    pub(super) ended: Option<MessageError>,
    /// It failed, and nobody was told.
    pub(super) is_untold: bool,
    /// Something waits for room to it, so that what follows waits too.
    pub(super) is_blocked: bool,
}

impl<'a> Channel<'a> {
    fn new(member: &Member<'a>, rank: u32) -> Option<Self> {
        let (segment, layout, own) = (member.segment(), member.layout(), member.local());
        Some(Self {
            inward: Consumer::of(segment, &layout, rank, own)?,
            outward: Producer::of(segment, &layout, own, rank)?,
            settled: Settled::default(),
            ended: None,
            is_untold: false,
            is_blocked: false,
        })
    }

    /// To everybody, this node included: its own ring is a ring like others. `None`: there is no room for so many.
    pub(super) fn open<'l>(places: &'l mut VecView<Self>, member: &Member<'a>) -> Option<&'l mut [Self]> {
        places.clear();
        for rank in 0..member.size() {
            places.push(Self::new(member, rank)?).ok()?;
        }
        Some(places)
    }

    /// Bytes of the longest message that is put with its head.
    pub(super) fn eager_limit(&self) -> u32 {
        self.outward.longest().min(EAGER_LIMIT as u32)
    }

    /// Whether what this node wrote to the rings still stands there.
    pub(super) fn is_intact(&mut self) -> bool {
        self.outward.is_intact() && self.inward.is_intact()
    }

    /// False: there is no room.
    pub(super) fn say_bye(&mut self) -> bool {
        self.outward.put([BYE, 0], &[]).is_ok()
    }
}
