//! The trailer of every frame: CRC-32C over header and payload, least significant byte first.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

/// Length of the trailer in bytes.
pub(super) const TRAILER: usize = 4;

/// The trailer of a frame without checksum.
pub(super) const NONE: [u8; TRAILER] = [0; TRAILER];

/// The checksum of contiguous bytes.
pub(super) fn of(bytes: &[u8]) -> [u8; TRAILER] {
    crc32_iscsi(bytes).to_le_bytes()
}

/// The checksum of a header with its payload elsewhere.
pub(super) fn of_parts(head: &[u8], payload: &[u8]) -> [u8; TRAILER] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(payload);
    (digest.finalize() as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_of_rfc_3720() {
        assert_eq!(u32::from_le_bytes(of(b"123456789")), 0xe306_9283);
        assert_eq!(of_parts(b"1234", b"56789"), of(b"123456789"));
        assert_eq!(of(b""), [0; 4]);
    }
}
