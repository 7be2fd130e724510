//! The trailer of every datagram: CRC-32C over header and payload, least significant byte first.

use crc::{CRC_32_ISCSI, Crc};

/// Bytes of the trailer.
pub(crate) const TRAILER: usize = 4;

/// 16 KiB of table where memory is plentiful, 1 KiB elsewhere.
#[cfg(target_pointer_width = "64")]
type Table = crc::Table<16>;
#[cfg(not(target_pointer_width = "64"))]
type Table = crc::Table<1>;

static CASTAGNOLI: Crc<u32, Table> = Crc::<u32, Table>::new(&CRC_32_ISCSI);

pub(crate) fn of(bytes: &[u8]) -> [u8; TRAILER] {
    CASTAGNOLI.checksum(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn check_value_of_rfc_3720() {
        assert_eq!(u32::from_le_bytes(of(b"123456789")), 0xe306_9283);
        assert_eq!(of(b""), [0; 4]);
    }
}
