//! Arbitrary frames from a network: none makes a device panic, none is accepted as a datagram that nobody sent, and
//! each is counted.

use core::net::Ipv4Addr;

use proptest::{collection::vec, prelude::*};
use unisono_core::device::{
    Device, DeviceEvent, DeviceQueue, Memory, PathRequest, Received, Slot, Token, Transmit, TxReason,
};
use unisono_core::ids::{PeerId, Rail};
use unisono_core::span::Span;
use unisono_ethernet::{
    address_table::{AddressEntry, Interface, Path, PathError},
    device::{Buffer, EthernetDevice, InterfaceError, SPARE},
    frame::LinkAddress,
    smoltcp::wire::{EthernetAddress, Ipv4Cidr},
};
use unisono_memory::memory_regions::{Address, Regions};
use unisono_tests::{
    conformance::ethernet_device,
    sim::ethernet_hub::{Hub, Port, hardware},
};
use unisono_udp::fault_injection::Faults;

const FRAME: usize = 1514;
const HOLDABLE: usize = 4;

type Wire = EthernetDevice<'static, Port, Address, 8972>;

fn pair() -> ([Wire; 2], [Port; 2]) {
    let ports = Hub::ports(2, FRAME, 64, Faults::default());
    let ports = <[Port; 2]>::try_from(ports).expect("two ports");
    let mut devices = [0, 1].map(|number| ethernet_device(ports[usize::from(number)].clone(), number, 2, HOLDABLE));
    devices[0].request_path(PathRequest::Resolve(PeerId(1)));
    assert!(devices[1].receive(DeviceQueue::Polled).is_none() && devices[0].receive(DeviceQueue::Polled).is_none());
    assert_eq!(devices[0].poll_event(), Some(DeviceEvent::Path { peer: PeerId(1), rail: Rail(0), mtu: 1468 }));
    (devices, ports)
}

fn post(device: &mut Wire, to: u32, cause: TxReason, head: &[u8], payload: Option<Address>) {
    let mut token = device.token(DeviceQueue::Polled).expect("room");
    token.header_room()[..head.len()].copy_from_slice(head);
    let transmit = Transmit {
        to: PeerId(to).into(),
        queue: DeviceQueue::Polled,
        header_bytes: head.len() as u8,
        payload: None,
        solicited: false,
        reason: cause,
    };
    token.post(&transmit, payload);
}

/// A frame with a datagram of 24 and 100 bytes, and that datagram.
fn genuine() -> (Vec<u8>, Vec<u8>) {
    let ([mut first, _], [_, there]) = pair();
    // SAFETY: this test uses one address at a time.
    let mut memory = unsafe { Regions::new() };
    let region = memory.allocate(100).expect("memory");
    let address = memory.address(Span { region, offset: 0, bytes: 100 }).expect("a region");
    let payload: Vec<u8> = (0..100).collect();
    // SAFETY: allocated above, used by nobody else.
    unsafe { address.write(&payload) };
    post(&mut first, 1, TxReason::First, &[7; 24], Some(address));
    (there.take().expect("a frame"), [vec![7; 24], payload].concat())
}

/// Damage to a frame, or a made-up frame.
#[derive(Clone, Debug)]
enum Damage {
    None,
    Cut(usize),
    Lengthen(Vec<u8>),
    Change(Vec<(usize, u8)>),
    Other(Vec<u8>),
    /// Of a right kind, to the right adapter, but otherwise anything.
    Kind(bool, Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        1 => Just(Damage::None),
        4 => (0..200_usize).prop_map(Damage::Cut),
        1 => vec(any::<u8>(), 1..2000).prop_map(Damage::Lengthen),
        8 => vec((0..170_usize, any::<u8>()), 1..4).prop_map(Damage::Change),
        2 => vec(any::<u8>(), 0..2000).prop_map(Damage::Other),
        4 => (any::<bool>(), vec(any::<u8>(), 0..100)).prop_map(|(arp, rest)| Damage::Kind(arp, rest)),
    ]
}

fn damaged(mut frame: Vec<u8>, damage: &Damage) -> Vec<u8> {
    match damage {
        Damage::None => {}
        Damage::Cut(bytes) => frame.truncate(*bytes),
        Damage::Lengthen(more) => frame.extend(more),
        Damage::Change(changes) => {
            for (at, with) in changes {
                if let Some(byte) = frame.get_mut(*at) {
                    *byte = *with;
                }
            }
        }
        Damage::Other(bytes) => frame.clone_from(bytes),
        Damage::Kind(arp, rest) => {
            frame.truncate(12);
            frame.extend(if *arp { [0x08, 0x06] } else { [0x08, 0x00] });
            frame.extend(rest);
        }
    }
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_frame_panics_or_passes_for_a_datagram_that_nobody_sent(damages in vec(damage(), 1..30)) {
        let ((frame, datagram), ([_, mut device], [_, port])) = (genuine(), pair());
        let (mut taken, mut held) = (0, Vec::<Slot>::new());
        for damage in &damages {
            port.inject(damaged(frame.clone(), damage));
            while let Some(arrival) = device.receive(DeviceQueue::Polled) {
                // A change that CRC-32C does not see needs more bits than four bytes have, or luck of one in 2³².
                prop_assert_eq!(arrival.prefix(), &datagram[..64]);
                prop_assert_eq!(arrival.bytes() as usize, datagram.len());
                let _ = arrival.is_from(PeerId(0));
                taken += 1;
                let slot = arrival.slot();
                if held.len() < HOLDABLE {
                    device.hold(slot);
                    held.push(slot);
                } else {
                    device.release(slot);
                }
            }
        }
        for slot in held {
            let head = device.held(slot).prefix().to_vec();
            prop_assert_eq!(&head, &datagram[..64]);
            device.release(slot);
        }
        let whole = damages.iter().filter(|damage| matches!(damage, Damage::None)).count();
        prop_assert!(taken >= whole, "{taken} of {whole}");
        let losses = device.drop_counts();
        let counted = taken + (losses.foreign + losses.malformed + losses.corrupt) as usize;
        // Uncounted frames are ARP packets.
        prop_assert!(counted <= damages.len());
        let arp = |damage: &&Damage| matches!(damage, Damage::Kind(true, _) | Damage::Change(_) | Damage::Other(_));
        prop_assert!(counted + damages.iter().filter(arp).count() >= damages.len());
    }
}

#[test]
fn every_byte_of_a_frame_matters() {
    let (frame, datagram) = genuine();
    let ([_, mut device], [_, port]) = pair();
    for at in 0..frame.len() {
        for bit in 0..8 {
            let mut other = frame.clone();
            other[at] ^= 1 << bit;
            port.inject(other);
            let arrived = device.receive(DeviceQueue::Polled).map(|arrival| {
                (arrival.slot(), arrival.bytes() as usize == datagram.len(), arrival.is_from(PeerId(0)))
            });
            // Of all there is only the sender's adapter does not matter: the address that it sends from does.
            let matters = !(6..12).contains(&at);
            assert_eq!(arrived.is_some_and(|(_, whole, known)| whole && known), !matters, "bit {bit} of byte {at}");
            if let Some((slot, ..)) = arrived {
                device.release(slot);
            }
        }
    }
}

#[test]
fn silent_peer_is_looked_for_again() {
    let ([mut first, mut second], [_, there]) = pair();
    // Frames to it are lost: a forged ARP packet has changed its address.
    let Interface { address, .. } = interface(1);
    let claim = LinkAddress { hardware: hardware(9), address: address.address(), port: 1 };
    let mut frame = vec![0; 42];
    claim.write_arp_reply(interface(0).address.address(), hardware(0), &mut frame);
    first.phy().inject(frame);
    assert!(first.receive(DeviceQueue::Polled).is_none());
    post(&mut first, 1, TxReason::First, &[1; 24], None);
    assert_eq!(there.take(), None);
    for _ in 0..4 {
        post(&mut first, 1, TxReason::Probe, &[2; 24], None);
    }
    assert!(second.receive(DeviceQueue::Polled).is_none(), "a question is no datagram");
    assert!(first.receive(DeviceQueue::Polled).is_none(), "nor is an answer");
    post(&mut first, 1, TxReason::Probe, &[3; 24], None);
    assert_eq!(second.receive(DeviceQueue::Polled).map(|arrival| arrival.prefix().to_vec()), Some(vec![3; 24]));
}

fn interface(number: u8) -> Interface {
    Interface {
        hardware: hardware(number),
        address: Ipv4Cidr::new(Ipv4Addr::new(10, 0, 0, number + 1), 24),
        gateway: None,
        port: 7000,
    }
}

fn make(frame: usize, own: Interface) -> Result<Wire, InterfaceError> {
    let port = Hub::ports(1, frame, 4, Faults::default()).pop().expect("a port");
    EthernetDevice::new(port, own, vec![AddressEntry::UNKNOWN; 3].leak(), vec![Buffer::FREE; SPARE].leak())
}

#[test]
fn peers_beyond_the_link_are_reached_by_the_gateway() {
    let [first, there] = <[Port; 2]>::try_from(Hub::ports(2, FRAME, 4, Faults::default())).expect("two ports");
    let gateway = interface(1);
    let own = Interface { gateway: Some(gateway.address.address()), ..interface(0) };
    let buffers = vec![Buffer::FREE; SPARE].leak();
    let mut device: Wire =
        EthernetDevice::new(first, own, vec![AddressEntry::UNKNOWN; 3].leak(), buffers).expect("a device");
    for peer in [1, 2] {
        let path = Path { address: Ipv4Addr::new(172, 16, 0, peer), ports: [7000; 2], mtu: 1472 };
        device.set_path(PeerId(peer.into()), path).expect("a path");
        device.request_path(PathRequest::Resolve(PeerId(peer.into())));
        let question = there.take().expect("a question");
        assert_eq!(question[38..42], gateway.address.address().octets());
        assert_eq!(device.poll_event(), None);
    }
    let name = LinkAddress { hardware: gateway.hardware, address: gateway.address.address(), port: 1 };
    let mut answer = vec![0; 42];
    name.write_arp_reply(own.address.address(), own.hardware, &mut answer);
    device.phy().inject(answer);
    assert!(device.receive(DeviceQueue::Polled).is_none(), "an answer is no datagram");
    for peer in [1, 2] {
        assert_eq!(device.poll_event(), Some(DeviceEvent::Path { peer: PeerId(peer), rail: Rail(0), mtu: 1468 }));
        post(&mut device, peer, TxReason::First, &[1; 24], None);
        let frame = there.take().expect("a frame");
        assert_eq!((&frame[..6], &frame[30..34]), (gateway.hardware.as_bytes(), &[172, 16, 0, peer as u8][..]));
    }
}

#[test]
fn invalid_configurations_are_refused() {
    assert_eq!(make(617, interface(0)).err(), Some(InterfaceError::TooNarrow));
    assert_eq!(make(618, interface(0)).map(|device| device.limits().mtu), Ok(572));
    let nobody = Ipv4Cidr::new(Ipv4Addr::UNSPECIFIED, 24);
    let many = EthernetAddress::BROADCAST;
    for wrong in [
        Interface { address: nobody, ..interface(0) },
        Interface { hardware: many, ..interface(0) },
        Interface { port: 0, ..interface(0) },
    ] {
        assert_eq!(make(FRAME, wrong).err(), Some(InterfaceError::NotAnAddress), "{wrong:?}");
    }
    let mut device = make(FRAME, interface(0)).expect("a device");
    let path = |last| Path { address: Ipv4Addr::new(10, 0, 0, last), ports: [7000; 2], mtu: 1472 };
    let second = Path { address: Ipv4Addr::new(10, 0, 1, 1), ..path(1) };
    let everybody = Path { address: Ipv4Addr::BROADCAST, ..path(1) };
    assert_eq!(device.set_path(PeerId(3), path(2)), Err(PathError::UnknownPeer));
    assert_eq!(device.set_path(PeerId(1), Path { mtu: 575, ..path(2) }), Err(PathError::TooNarrow));
    assert_eq!(device.set_path(PeerId(1), Path { ports: [7, 0], ..path(2) }), Err(PathError::NotAnAddress));
    assert_eq!(device.set_path(PeerId(1), everybody), Err(PathError::NotAnAddress));
    assert_eq!(device.set_path(PeerId(1), second), Err(PathError::Unreachable));
    let gateway = Interface { gateway: Some(Ipv4Addr::new(10, 0, 0, 254)), ..interface(0) };
    let mut device = make(FRAME, gateway).expect("a device");
    assert_eq!(device.set_path(PeerId(1), second), Ok(()));
}
