//! The one way into an endpoint: datagrams that arrived together.

#[cfg(not(feature = "optimize_for_size"))]
use super::header_prediction::PredictedBatch;
use crate::device::{Received, Slot};
use crate::endpoint::storage::Storage;
use crate::endpoint::{Endpoint, Handler, Now, Verdict};

/// Datagrams that arrived together.
#[derive(Debug)]
pub struct ReceiveBatch<'e, S: Storage<W, BITS>, H, const W: usize, const BITS: u32> {
    endpoint: &'e mut Endpoint<S, W, BITS>,
    now: Now<S, W, BITS>,
    handler: &'e mut H,
    verdict: Verdict,
    #[cfg(not(feature = "optimize_for_size"))]
    predicted: PredictedBatch<BITS>,
}

impl<S: Storage<W, BITS>, const W: usize, const BITS: u32> Endpoint<S, W, BITS> {
    /// Handles what has arrived: `receive` shows the batch each datagram, carries out the verdict, and then handles the
    /// held datagrams that it [names](ReceiveBatch::poll_deferred). A batch without arrivals is of use, too: a peer that
    /// ended leaves held datagrams.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn receive_batch<H: Handler, R>(
        &mut self,
        now: Now<S, W, BITS>,
        handler: &mut H,
        receive: impl FnOnce(&mut ReceiveBatch<'_, S, H, W, BITS>) -> R,
    ) -> R {
        let mut batch = ReceiveBatch {
            endpoint: self,
            now,
            handler,
            verdict: Verdict::Release,
            #[cfg(not(feature = "optimize_for_size"))]
            predicted: PredictedBatch::NONE,
        };
        let result = receive(&mut batch);
        batch.commit();
        result
    }
}

impl<S: Storage<W, BITS>, H: Handler, const W: usize, const BITS: u32> ReceiveBatch<'_, S, H, W, BITS> {
    /// Handles a datagram. The verdict is to be carried out before the next call.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn handle_datagram(&mut self, datagram: &impl Received) -> &Verdict {
        #[cfg(feature = "optimize_for_size")]
        self.endpoint.handle_one(self.now, datagram, self.handler, &mut self.verdict);
        #[cfg(not(feature = "optimize_for_size"))]
        self.endpoint.handle_in_batch(self.now, datagram, self.handler, &mut self.verdict, &mut self.predicted);
        &self.verdict
    }

    /// The verdict on the latest datagram.
    #[inline]
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// The next held datagram that is in order now, or that is not needed any more. It stays first until
    /// [`handle_held`](Self::handle_held).
    #[inline]
    pub fn poll_deferred(&mut self) -> Option<Slot> {
        self.endpoint.poll_deferred()
    }

    /// Delivers the held datagram that [`poll_deferred`](Self::poll_deferred) returned.
    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    pub fn handle_held(&mut self, datagram: &impl Received) -> &Verdict {
        self.commit_predicted();
        self.endpoint.handle_held(datagram, self.handler, &mut self.verdict);
        &self.verdict
    }

    #[cfg(all(test, not(feature = "optimize_for_size")))]
    pub(in crate::endpoint) const fn predicted(&self) -> u32 {
        self.predicted.taken()
    }

    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn commit(mut self) {
        self.commit_predicted();
    }

    #[cfg_attr(not(feature = "optimize_for_size"), inline(always))]
    fn commit_predicted(&mut self) {
        #[cfg(not(feature = "optimize_for_size"))]
        self.endpoint.commit_batch(self.now, self.handler, &mut self.predicted);
    }
}
