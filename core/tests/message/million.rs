//! A backlog: 10⁶ immediate sends of tag 1, then one of tag 2 that the receiver receives first, with a pool of 64 KiB.

use alloc::collections::VecDeque;

use unisono_core::ids::{PeerId, PlacementId, RemoteKey};
use unisono_core::message::point_to_point::{
    Action, Config, Matched, Mode, Outcome, Outgoing, PayloadStore, PointToPoint, ReceiveResult, SendAction,
};
use unisono_core::message::{Context, Pattern, Tag};

use crate::storage::{Boxes, Sizes, machine};

const MESSAGES: u32 = 1_000_000;
const BYTES: u32 = 1024;
const POOL: usize = 64 << 10;
const HEADERS: u16 = 32;
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// A header, and the message whose payload follows.
type Carried = (Vec<u8>, Option<u32>);

struct Pair {
    machines: [PointToPoint<Boxes>; 2],
    towards: [VecDeque<Carried>; 2],
    /// Messages whose payload is in the pool, by slot.
    pool: Vec<Option<u32>>,
    /// The received messages, in the order of the receives.
    arrived: Vec<Option<u32>>,
    done: u32,
}

impl Pair {
    fn new() -> Self {
        let config = Config { headers: HEADERS, short: 64, slot: BYTES, seed: 1 };
        let slots = POOL / BYTES as usize;
        // The sender's own requests; the receiver has one receive at a time and one in reserve.
        let sizes = [(MESSAGES as usize + 1, 1), (1, 2)];
        Self {
            machines: sizes
                .map(|(sends, receives)| machine(config, Sizes { peers: 2, receives, sends, slots, spare: 0 })),
            towards: Default::default(),
            pool: vec![None; slots],
            arrived: Vec::new(),
            done: 0,
        }
    }

    fn send(&mut self, user: u32, tag: u32) {
        let outgoing = Outgoing {
            to: PeerId(RECEIVER as u32),
            context: Context(0),
            tag: Tag(tag),
            bytes: BYTES.into(),
            eager: BYTES,
            at: 0,
            mode: Mode::Standard,
            borrowed: true,
            user,
        };
        let carried = match self.machines[SENDER].send(&outgoing).expect("a record for each") {
            SendAction::Eager { head, done } => {
                assert!(!done, "its payload may come back");
                (head.as_ref().to_vec(), Some(user))
            }
            SendAction::Header(head) => (head.as_ref().to_vec(), None),
        };
        self.towards[RECEIVER].push_back(carried);
    }

    /// Runs both machines until no action is left.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for rank in [SENDER, RECEIVER] {
                while let Some((head, payload)) = self.towards[rank].pop_front() {
                    self.deliver(rank, &head, payload);
                    moved = true;
                }
                while let Some(action) = self.machines[rank].poll_action() {
                    self.act(rank, action);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn deliver(&mut self, to: usize, head: &[u8], payload: Option<u32>) {
        let bytes = head.len() as u32 + payload.map_or(0, |_| BYTES);
        match self.machines[to].handle(PeerId(1 - to as u32), head, bytes) {
            Outcome::Nothing | Outcome::Pending { .. } => {}
            Outcome::Into { user, .. } => self.arrived[user as usize] = payload,
            Outcome::Store { place: PayloadStore::Slot(slot), .. } => {
                assert_eq!(self.pool[slot as usize], None, "stored over another payload");
                self.pool[slot as usize] = payload;
            }
            Outcome::Place { user, placement, more: false, .. } => {
                self.arrived[placement.0 as usize] = Some(user);
                self.done += 1;
            }
            other => panic!("{other:?}"),
        }
    }

    fn act(&mut self, rank: usize, action: Action) {
        let other = 1 - rank;
        match action {
            Action::Header { head, .. } => self.towards[other].push_back((head.as_ref().to_vec(), None)),
            Action::Eager { user, head, done, .. } => {
                assert!(!done);
                self.towards[other].push_back((head.as_ref().to_vec(), Some(user)));
            }
            Action::Sent { .. } => self.done += 1,
            Action::Pull { receive, user, .. } => {
                let (_, head) =
                    self.machines[rank].grant(receive, PlacementId(user), RemoteKey(0)).expect("it is pulled");
                self.towards[other].push_back((head.as_ref().to_vec(), None));
            }
        }
    }

    fn receive(&mut self, tag: u32) -> u32 {
        let pattern = Pattern { context: Context(0), source: Some(PeerId(SENDER as u32)), tag: Some(Tag(tag)) };
        let user = self.arrived.len();
        self.arrived.push(None);
        match self.machines[RECEIVER].receive(pattern, BYTES.into(), user as u32).expect("there is a record") {
            ReceiveResult::Matched(Matched::Unexpected { message, place: PayloadStore::Slot(slot), .. }) => {
                self.arrived[user] = self.pool[slot as usize].take();
                self.machines[RECEIVER].release(message);
            }
            ReceiveResult::Matched(Matched::Unexpected { .. } | Matched::Truncated(_)) => {
                panic!("none is short or too long")
            }
            ReceiveResult::Posted(_) | ReceiveResult::Matched(Matched::Pending(_)) => {}
        }
        self.settle();
        self.arrived[user].expect("it has come")
    }
}

#[test]
fn a_million_sends_of_tag_1_do_not_block_tag_2() {
    let mut pair = Pair::new();
    for message in 0..MESSAGES {
        pair.send(message, 1);
        // The receiver makes progress while its application does not.
        if message % 1024 == 0 {
            pair.settle();
        }
    }
    pair.send(MESSAGES, 2);
    pair.settle();
    assert_eq!(pair.done, u32::from(HEADERS).min(POOL as u32 / BYTES), "those that are kept, and no others");
    assert_eq!(pair.receive(2), MESSAGES);
    for message in 0..MESSAGES {
        assert_eq!(pair.receive(1), message);
    }
    assert_eq!(pair.done, MESSAGES + 1);
}
