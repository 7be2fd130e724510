//! Datagrams in flight, and the parsing of send entries.

use super::Fabric;
use super::memory::Registrations;

/// Address of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) lid: u16,
    pub(super) gid: [u8; 16],
    pub(super) mac: [u8; 6],
}

/// A datagram.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) from: u32,
    pub(super) from_port: u32,
    pub(super) to: u32,
    pub(super) to_port: u32,
    pub(super) qkey: u32,
    pub(super) solicited: bool,
    pub(super) immediate: Option<[u8; 4]>,
    pub(super) payload: Vec<u8>,
}

/// A parsed send entry.
#[derive(Clone, Debug)]
pub(super) struct SendRequest {
    pub(super) signalled: bool,
    pub(super) solicited: bool,
    pub(super) immediate: Option<[u8; 4]>,
    pub(super) to: u32,
    pub(super) qkey: u32,
    pub(super) address: Address,
    pub(super) payload: Vec<u8>,
}

/// Why an entry cannot be carried out.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// It is malformed, for this reason.
    Malformed(String),
    /// A key does not cover the addressed memory.
    Protection,
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Parses an entry whose first block has this index, of a queue pair.
pub(super) fn read(entry: &[u8], qpn: u32, index: u16, memory: &Registrations) -> Result<SendRequest, Fault> {
    let malformed = |why: String| Err(Fault::Malformed(why));
    let (modifier, found, opcode) = (entry[0], number(&entry[1..3]), entry[3]);
    if modifier != 0 || !matches!(opcode, 0x0a | 0x0b) {
        return malformed(format!("opcode {opcode:#x} with modifier {modifier}"));
    }
    if found != u32::from(index) || number(&entry[4..7]) != qpn {
        return malformed(format!("entry {found} of queue pair {:#x} at {index} of {qpn:#x}", number(&entry[4..7])));
    }
    let flags = entry[11];
    if flags & !0b1010 != 0 || entry[8..11] != [0; 3] || number(&entry[24..28]) >> 31 == 0 {
        return malformed(format!("control {:?}, datagram {:?}", &entry[..16], &entry[16..64]));
    }
    let mut payload = Vec::new();
    let mut rest = &entry[64..];
    while let Some((segment, _)) = rest.split_first_chunk::<16>() {
        let (length, bytes) = (number(&segment[..4]), (number(&segment[..4]) & 0x3ff) as usize);
        if length >> 31 == 1 {
            let taken = (4 + bytes).next_multiple_of(16);
            let Some(inline) = rest.get(4..4 + bytes) else { return malformed("inline beyond the entry".into()) };
            payload.extend(inline);
            rest = rest.get(taken..).unwrap_or_default();
        } else {
            let address = u64::from(number(&segment[8..12])) << 32 | u64::from(number(&segment[12..]));
            let read = memory.read(number(&segment[4..8]), address, length as usize);
            payload.extend(read.ok_or(Fault::Protection)?);
            rest = &rest[16..];
        }
    }
    let mut address = Address { lid: number(&entry[30..32]) as u16, gid: [0; 16], mac: [0; 6] };
    address.mac.copy_from_slice(&entry[36..42]);
    address.gid.copy_from_slice(&entry[48..64]);
    Ok(SendRequest {
        signalled: flags & 0b1000 != 0,
        solicited: flags & 0b10 != 0,
        immediate: (opcode == 0x0b).then(|| [entry[12], entry[13], entry[14], entry[15]]),
        to: number(&entry[25..28]),
        qkey: number(&entry[16..20]),
        address,
        payload,
    })
}

/// The 40 bytes before a datagram: a global route header, or an IPv4 header after 20 undefined bytes.
pub(super) fn route_header(fabric: Fabric, from: &Address, to: &Address, bytes: usize) -> [u8; 40] {
    let mut front = [0xee; 40];
    match fabric {
        // Nothing is written there.
        Fabric::InfiniBand => {}
        Fabric::Ethernet6 => {
            front[..8].copy_from_slice(&[0x60, 0, 0, 0, (bytes >> 8) as u8, bytes as u8, 0x11, 64]);
            front[8..24].copy_from_slice(&from.gid);
            front[24..].copy_from_slice(&to.gid);
        }
        Fabric::Ethernet4 => {
            front[20] = 0x45;
            front[32..36].copy_from_slice(&from.gid[12..]);
            front[36..].copy_from_slice(&to.gid[12..]);
        }
    }
    front
}
