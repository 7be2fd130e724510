//! Sends that are flushed together.

/// Sends that wait to be flushed together.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SendBatch {
    pub(super) sends: usize,
    /// Number of sends after which the batch is flushed: a whole number of GSO trains of the first one's length.
    pub(super) max_sends: usize,
    pub(super) bytes: usize,
}
