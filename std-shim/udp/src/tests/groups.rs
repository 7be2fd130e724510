//! Datagrams to a group beside datagrams to one of its members.

use super::*;

const GROUP: GroupId = GroupId(0);
const POLLED: DeviceQueue = DeviceQueue::Polled;

impl Pair {
    /// Both are members of a group of their own.
    fn with_group(options: &Options) -> Self {
        let mut pair = Self::new(&Options { groups: 1, ..options.clone() });
        let port = pair.devices[0].local().unwrap().polled;
        let address = SocketAddr::new(IpAddr::from([239, 77, 5, 1]), port);
        for device in &mut pair.devices {
            device.set_group(GROUP, GroupAddress { address, hops: 1, interface: 0 }).unwrap();
            device.join(GROUP).unwrap();
        }
        pair
    }

    /// Peer 0 sends datagrams with these numbers.
    fn send(&mut self, to: Destination, numbers: core::ops::Range<u32>) {
        for number in numbers {
            post_number(&mut self.devices[0], to, number);
            self.devices[0].flush(POLLED);
        }
    }
}

#[test]
fn a_datagram_to_one_member_overtakes_none_to_its_group() {
    for gso in [true, false] {
        let mut pair = Pair::with_group(&Options { gso, ..options("127.0.0.1") });
        for to_all in [1, 2, 5, 64, 200] {
            let wanted = to_all + 3;
            pair.send(Destination::Group(GROUP), 0..to_all);
            pair.send(PeerId(1).into(), to_all..wanted);
            if to_all % 2 == 1 {
                assert!(pair.devices[1].poll(POLLED));
            }
            let got = pair.receive(POLLED, wanted as usize);
            let numbers = got.into_iter().map(|(slot, _)| {
                let number = number(&pair.devices[1], slot);
                pair.devices[1].release(slot);
                number
            });
            assert_eq!(numbers.collect::<Vec<_>>(), (0..wanted).collect::<Vec<_>>(), "gso {gso}");
        }
    }
}

/// Amid a batch of the group, more arrives for both.
#[test]
fn a_datagram_to_one_member_overtakes_none_that_came_amid_a_batch() {
    for gso in [true, false] {
        let mut pair = Pair::with_group(&Options { gso, ..options("127.0.0.1") });
        let receive = |pair: &mut Pair| {
            let slot = pair.devices[1].receive(POLLED)?.slot();
            let number = number(&pair.devices[1], slot);
            pair.devices[1].release(slot);
            Some(number)
        };
        let end = Instant::now() + Duration::from_secs(1);
        let mut numbers = Vec::new();
        // After many the next batch may have many, and is not full.
        pair.send(Destination::Group(GROUP), 0..40);
        while numbers.len() < 40 && Instant::now() < end {
            numbers.extend(receive(&mut pair));
        }
        pair.send(Destination::Group(GROUP), 40..43);
        while numbers.len() < 41 && Instant::now() < end {
            numbers.extend(receive(&mut pair));
        }
        pair.send(Destination::Group(GROUP), 43..44);
        pair.send(PeerId(1).into(), 44..45);
        assert!(pair.devices[1].poll(POLLED));
        while numbers.len() < 45 && Instant::now() < end {
            numbers.extend(receive(&mut pair));
        }
        assert_eq!(numbers, (0..45).collect::<Vec<_>>(), "gso {gso}");
    }
}

#[test]
fn a_stream_to_the_group_does_not_hold_up_datagrams_to_one_member() {
    let mut pair = Pair::with_group(&options("127.0.0.1"));
    pair.send(PeerId(1).into(), 1_000_000..1_000_001);
    // More arrives than is received.
    pair.send(Destination::Group(GROUP), 0..100);
    let mut received = 0;
    loop {
        pair.send(Destination::Group(GROUP), received..received + 2);
        let slot = pair.devices[1].receive(POLLED).expect("one waits").slot();
        let number = number(&pair.devices[1], slot);
        pair.devices[1].release(slot);
        if number == 1_000_000 {
            break;
        }
        received += 1;
        assert!(received <= 1024, "it waits for a stream that does not end");
    }
    assert_eq!(received, 1024, "the stream goes first for a while");
}
