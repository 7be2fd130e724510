//! Position-dependent test data, and its hash.

use crc_fast::CrcAlgorithm::Crc64Nvme;

use super::buffer::{self, NoMemory};

/// Word `i` of the data of `rank`: two positions of a job are unlikely to be equal.
const fn word(rank: u32, i: u64) -> u64 {
    // The finalizer of SplitMix64.
    let x = i.wrapping_add((rank as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `bytes` bytes of the data of `rank`.
pub(super) fn data(rank: u32, bytes: usize) -> Result<Vec<u8>, NoMemory> {
    let mut data = buffer::zeroed::<u8>(bytes)?;
    for (i, chunk) in data.chunks_mut(8).enumerate() {
        let word = word(rank, i as u64).to_le_bytes();
        chunk.copy_from_slice(word.get(..chunk.len()).unwrap_or_default());
    }
    Ok(data)
}

/// A 64-bit hash (CRC-64/NVME) of all bytes in order.
pub(super) fn hash(data: &[u8]) -> u64 {
    crc_fast::checksum(Crc64Nvme, data)
}

#[cfg(test)]
mod tests {
    use super::{data as made, hash};

    fn data(rank: u32, bytes: usize) -> Vec<u8> {
        made(rank, bytes).expect("memory")
    }

    #[test]
    fn hash_depends_on_order_and_rank() {
        let one = data(1, 1003);
        let mut swapped = one.clone();
        swapped.swap(8, 500);
        assert_ne!(hash(&one), hash(&swapped));
        assert_ne!(hash(&one), hash(&data(2, 1003)));
        assert_eq!(data(1, 20).as_slice(), &one[..20]);
    }
}
