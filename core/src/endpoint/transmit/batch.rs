//! The one way out of an endpoint: datagrams that are posted together.

#[cfg(not(feature = "optimize_for_size"))]
use super::tx_burst::TxBurst;
use crate::device::{DeviceQueue, HEADER_ROOM, Posting, Ticket, Transmit};
use crate::endpoint::storage::Storage;
use crate::endpoint::{Endpoint, Handler, Now};

/// Datagrams that are posted together, on one queue of the device.
#[derive(Debug)]
pub struct TransmitBatch<'e, S: Storage<W, BITS>, H, const W: usize, const BITS: u32> {
    endpoint: &'e mut Endpoint<S, W, BITS>,
    now: Now<S, W, BITS>,
    queue: DeviceQueue,
    handler: &'e mut H,
    #[cfg(not(feature = "optimize_for_size"))]
    burst: TxBurst<BITS>,
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Sends what is due: `transmit` asks the batch for datagrams while it holds a free token, and posts each with that
    /// token on `queue`.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn transmit_batch<H: Handler, R>(
        &mut self,
        now: Now<S, W, BITS>,
        queue: DeviceQueue,
        handler: &mut H,
        transmit: impl FnOnce(&mut TransmitBatch<'_, S, H, W, BITS>) -> R,
    ) -> R {
        let mut batch = TransmitBatch {
            endpoint: self,
            now,
            queue,
            handler,
            #[cfg(not(feature = "optimize_for_size"))]
            burst: TxBurst::NONE,
        };
        let result = transmit(&mut batch);
        batch.commit();
        result
    }
}

impl<S: Storage<W, BITS>, H: Handler, const W: usize, const BITS: u32> TransmitBatch<'_, S, H, W, BITS> {
    /// Builds the next datagram, to be posted with `ticket`. Its header is written to `head`. `None`: nothing is to be
    /// sent.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn poll_transmit(&mut self, ticket: Ticket, head: &mut [u8; HEADER_ROOM]) -> Option<Transmit> {
        let posting = Posting { queue: self.queue, ticket };
        #[cfg(feature = "optimize_for_size")]
        return self.endpoint.transmit_one(self.now, posting, head, self.handler);
        #[cfg(not(feature = "optimize_for_size"))]
        self.endpoint.transmit_in_burst(self.now, posting, head, self.handler, &mut self.burst)
    }

    /// Segments that may follow in the burst, and whether the latest one is not committed yet.
    #[cfg(all(test, not(feature = "optimize_for_size")))]
    pub(in crate::endpoint) const fn burst(&self) -> (u32, bool) {
        (self.burst.left(), self.burst.is_part())
    }

    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn commit(self) {
        #[cfg(not(feature = "optimize_for_size"))]
        {
            let Self { endpoint, handler, mut burst, .. } = self;
            endpoint.commit_burst(&mut burst, handler);
        }
    }
}
