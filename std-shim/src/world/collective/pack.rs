//! The layouts of a call's buffers, and copies between them.

use alloc::sync::Arc;

use unisono_datatype::Datatype;

use super::error::CollectiveError;

/// Bytes that are copied at a time between two buffers with layouts.
const COPY_CHUNK: usize = 4096;

/// The layouts of a call's buffers; `None` for contiguous ones.
#[derive(Clone, Default, Debug)]
pub(in crate::world) struct Layouts {
    pub(in crate::world) input: Option<Arc<Datatype>>,
    pub(in crate::world) output: Option<Arc<Datatype>>,
}

impl Layouts {
    /// The layout of an in-place call.
    pub(super) fn both(both: Option<Arc<Datatype>>) -> Self {
        Self { input: both.clone(), output: both }
    }

    /// Copies the first `bytes` bytes of the input to the output. The buffers are as long as their layouts.
    pub(super) fn copy(&self, from: &[u8], into: &mut [u8], bytes: usize) {
        match (self.input.as_deref(), self.output.as_deref()) {
            (None, None) => {
                let bytes = bytes.min(from.len()).min(into.len());
                if let (Some(into), Some(from)) = (into.get_mut(..bytes), from.get(..bytes)) {
                    into.copy_from_slice(from);
                }
            }
            (Some(layout), None) => {
                let bytes = bytes.min(into.len());
                let _ = layout.pack(from, 0, into.get_mut(..bytes).unwrap_or_default());
            }
            (None, Some(layout)) => {
                let bytes = bytes.min(from.len());
                let _ = layout.unpack(from.get(..bytes).unwrap_or_default(), into, 0);
            }
            (Some(input), Some(output)) => {
                let mut chunk = [0; COPY_CHUNK];
                for at in (0..bytes).step_by(COPY_CHUNK) {
                    let chunk = chunk.get_mut(..COPY_CHUNK.min(bytes - at)).unwrap_or_default();
                    let packed = input.pack(from, at, chunk).unwrap_or(0);
                    let _ = output.unpack(chunk.get(..packed).unwrap_or_default(), into, at);
                }
            }
        }
    }
}

/// The bytes of a layout, packed. An input may name the same bytes so often that memory does not suffice.
pub(super) fn packed(layout: &Datatype, from: &[u8]) -> Result<Vec<u8>, CollectiveError> {
    let (mut packed, bytes) = (Vec::new(), layout.size());
    packed.try_reserve_exact(bytes).map_err(|_| CollectiveError::TooLong)?;
    packed.resize(bytes, 0);
    let _ = layout.pack(from, 0, &mut packed);
    Ok(packed)
}
