//! Ethernet frames: writes datagrams and ARP packets, and parses received frames.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpProtocol,
    Ipv4Address, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};

use crate::crc::{self, TRAILER};

/// Bytes of the Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// Bytes of the headers of IPv4, without options, and UDP.
pub const HEADERS: usize = 28;
/// Bytes of a frame around those of a datagram.
pub(crate) const FRAME_OVERHEAD: usize = ETHERNET + HEADERS + TRAILER;
/// Bytes of an ARP frame.
pub(crate) const ARP: usize = ETHERNET + 28;
/// Time to live that IANA recommends.
const HOP_LIMIT: u8 = 64;

/// The addresses of a process on the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkAddress {
    /// Hardware address of the adapter.
    pub hardware: EthernetAddress,
    /// IPv4 address of the host.
    pub address: Ipv4Address,
    /// UDP port of the process.
    pub port: u16,
}

/// Content of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameContent<'f> {
    /// A UDP payload, trailer included, not checked yet.
    Datagram {
        /// Sender's address and port, as the headers state them.
        from: (Ipv4Address, u16),
        /// Payload by UDP's length field.
        payload: &'f [u8],
    },
    /// An ARP packet: the sender's addresses, and whether it requests ours.
    Arp {
        /// The sender's IPv4 address.
        address: Ipv4Address,
        /// The sender's hardware address.
        hardware: EthernetAddress,
        /// A reply is due.
        asks: bool,
    },
    /// For another address or protocol.
    Foreign,
    /// A malformed frame, packet or datagram, or an IP fragment.
    Malformed,
}

impl LinkAddress {
    /// Parses a frame. Checks every length and, as `checksums` configures, every checksum but the trailer.
    pub fn read<'f>(&self, frame: &'f [u8], checksums: &ChecksumCapabilities) -> FrameContent<'f> {
        self.parse(frame, checksums).unwrap_or(FrameContent::Malformed)
    }

    fn parse<'f>(&self, frame: &'f [u8], checksums: &ChecksumCapabilities) -> Option<FrameContent<'f>> {
        let frame = EthernetFrame::new_checked(frame).ok()?;
        let (to, kind) = (frame.dst_addr(), frame.ethertype());
        match kind {
            EthernetProtocol::Arp if to == self.hardware || to.is_broadcast() => {
                let packet = ArpPacket::new_checked(frame.payload()).ok()?;
                let ArpRepr::EthernetIpv4 {
                    operation,
                    source_hardware_addr: hardware,
                    source_protocol_addr: address,
                    target_protocol_addr: target,
                    ..
                } = ArpRepr::parse(&packet).ok()?
                else {
                    return None;
                };
                let asks = operation == ArpOperation::Request && target == self.address;
                hardware.is_unicast().then_some(FrameContent::Arp { address, hardware, asks })
            }
            EthernetProtocol::Ipv4 if to == self.hardware => {
                let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
                let ip = Ipv4Repr::parse(&packet, checksums).ok()?;
                if packet.more_frags() || packet.frag_offset() != 0 {
                    return None;
                }
                if ip.dst_addr != self.address || ip.next_header != IpProtocol::Udp {
                    return Some(FrameContent::Foreign);
                }
                let packet = UdpPacket::new_checked(packet.payload()).ok()?;
                let udp = UdpRepr::parse(&packet, &ip.src_addr.into(), &ip.dst_addr.into(), checksums).ok()?;
                if udp.dst_port != self.port {
                    return Some(FrameContent::Foreign);
                }
                Some(FrameContent::Datagram { from: (ip.src_addr, udp.src_port), payload: packet.payload() })
            }
            _ => Some(FrameContent::Foreign),
        }
    }

    /// Writes a frame with a UDP payload of `bytes` bytes, which `fill` writes. No effect when they do not fit.
    pub fn write(
        &self,
        to: &Self,
        frame: &mut [u8],
        bytes: usize,
        checksums: &ChecksumCapabilities,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let (Some(whole), Some(inner)) = (bytes.checked_add(ETHERNET + HEADERS), bytes.checked_add(HEADERS)) else {
            return;
        };
        // IPv4's length has 16 bits.
        let Some(frame) = frame.get_mut(..whole).filter(|_| u16::try_from(inner).is_ok()) else { return };
        let mut frame = self.address_to(to.hardware, EthernetProtocol::Ipv4, frame);
        let ip = Ipv4Repr {
            src_addr: self.address,
            dst_addr: to.address,
            next_header: IpProtocol::Udp,
            payload_len: inner.saturating_sub(IPV4),
            hop_limit: HOP_LIMIT,
        };
        let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
        ip.emit(&mut packet, checksums);
        let udp = UdpRepr { src_port: self.port, dst_port: to.port };
        let mut packet = UdpPacket::new_unchecked(packet.payload_mut());
        udp.emit(&mut packet, &ip.src_addr.into(), &ip.dst_addr.into(), bytes, fill, checksums);
    }

    /// Writes a broadcast ARP request for an address.
    pub(crate) fn write_arp_request(&self, address: Ipv4Address, frame: &mut [u8]) {
        self.write_arp(ArpOperation::Request, EthernetAddress::BROADCAST, EthernetAddress::default(), address, frame);
    }

    /// Writes an ARP reply with our hardware address.
    pub fn write_arp_reply(&self, address: Ipv4Address, hardware: EthernetAddress, frame: &mut [u8]) {
        self.write_arp(ArpOperation::Reply, hardware, hardware, address, frame);
    }

    fn write_arp(
        &self,
        operation: ArpOperation,
        to: EthernetAddress,
        target_hardware_addr: EthernetAddress,
        target_protocol_addr: Ipv4Address,
        frame: &mut [u8],
    ) {
        let Some(frame) = frame.get_mut(..ARP) else { return };
        let mut frame = self.address_to(to, EthernetProtocol::Arp, frame);
        let (source_hardware_addr, source_protocol_addr) = (self.hardware, self.address);
        let arp = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr,
            target_hardware_addr,
            target_protocol_addr,
        };
        arp.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    }

    /// The frame has at least an Ethernet header's bytes.
    fn address_to<'f>(
        &self,
        dst_addr: EthernetAddress,
        ethertype: EthernetProtocol,
        frame: &'f mut [u8],
    ) -> EthernetFrame<&'f mut [u8]> {
        let mut frame = EthernetFrame::new_unchecked(frame);
        EthernetRepr { src_addr: self.hardware, dst_addr, ethertype }.emit(&mut frame);
        frame
    }
}

/// Bytes of IPv4's header.
const IPV4: usize = 20;

/// Writes the CRC-32C of the payload into its last four bytes.
pub fn append_crc(payload: &mut [u8]) {
    if let Some((rest, trailer)) = payload.split_last_chunk_mut() {
        *trailer = crc::of(rest);
    }
}

/// Bytes of a datagram before its trailer, if the CRC-32C is correct.
pub fn check_crc(payload: &[u8]) -> Option<usize> {
    let (rest, trailer) = payload.split_last_chunk()?;
    (*trailer == crc::of(rest)).then_some(rest.len())
}
