//! The buffers of a measurement: an error instead of an abort where there is no memory.

use zerocopy::FromZeros;

use super::bytes::Bytes;

/// The system has no memory for a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no memory for a buffer of {bytes} bytes ({0}): choose a smaller --bytes", bytes = .0.0)]
pub(super) struct NoMemory(Bytes);

/// `count` elements, all bytes zero.
pub(super) fn zeroed<T: FromZeros>(count: usize) -> Result<Vec<T>, NoMemory> {
    let bytes = count.saturating_mul(size_of::<T>()) as u64;
    T::new_vec_zeroed(count).map_err(|_| NoMemory(Bytes(bytes)))
}

/// `count` bytes of this value, which are written: the system maps their pages now.
pub(super) fn filled(count: usize, value: u8) -> Result<Vec<u8>, NoMemory> {
    let mut bytes = zeroed::<u8>(count)?;
    bytes.fill(value);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_a_buffer_is_an_error() {
        let refused = zeroed::<u64>(1 << 59).expect_err("more than any system has");
        assert_eq!(
            refused.to_string(),
            "there is no memory for a buffer of 4611686018427387904 bytes (4194304T): choose a smaller --bytes"
        );
        assert!(zeroed::<u64>(usize::MAX).is_err() && filled(3, 7) == Ok(vec![7; 3]));
    }
}
