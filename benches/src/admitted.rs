//! Messages between two ranks' machines of admission, as in a World: of so many of a peer a head is kept, the rest is found at the sender.

use alloc::collections::VecDeque;

use unisono_core::ids::PeerId;
use unisono_core::message::matching::{Kept, Posted};
use unisono_core::message::point_to_point::{
    Action, Config, Head, Leaves, Lent, Message, Met, Mode, Outcome, Outgoing, Peer, Receive, Received, Send,
};
use unisono_core::message::{Context, Pattern, Tag};
use unisono_memory::records::{ProcessMessages, buckets};

/// Bytes of a message, and what is kept with its head.
const BYTES: u32 = 8;
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// A sender and a receiver, joined by channels that keep order.
#[derive(Debug)]
pub struct Pair {
    machines: [ProcessMessages; 2],
    /// Heads to each, and whether a payload follows.
    towards: [VecDeque<(Head, bool)>; 2],
    /// Sum of the tags that have met.
    met: u64,
    /// Messages that the receiver has found at the sender.
    found: u64,
    /// A rank has said what none may.
    is_broken: bool,
}

impl Pair {
    /// For so many messages at a time, of which so many heads are kept.
    pub fn new(most: u32, headers: u16) -> Option<Self> {
        let machine = |seed| {
            let (records, messages) = (most as usize, 2 * usize::from(headers));
            let lent = Lent {
                receives: vec![Posted::<Receive>::default(); records].into(),
                messages: vec![Kept::<Message>::default(); messages].into(),
                sends: vec![Send::FREE; records].into(),
                peers: vec![Peer::NEW; 2].into(),
                slots: vec![0; 1].into(),
                buckets: [buckets(records), buckets(messages), buckets(records)],
            };
            ProcessMessages::new(Config { headers, short: BYTES, slot: BYTES, seed }, lent)
        };
        let machines = [machine(7)?, machine(8)?];
        Some(Self { machines, towards: Default::default(), met: 0, found: 0, is_broken: false })
    }

    /// Sum of the tags that have met, and how many messages had to be found at their sender. `None`: the machines contradict each other.
    pub const fn met(&self) -> Option<(u64, u64)> {
        if self.is_broken { None } else { Some((self.met, self.found)) }
    }

    /// So many receives, then their messages in the order of `turn`.
    pub fn post_then_send(&mut self, n: u32, turn: impl Fn(u32) -> u32) {
        (0..n).for_each(|tag| self.receive(tag));
        for i in 0..n {
            self.send(turn(i));
            self.settle();
        }
    }

    /// So many messages, then their receives in the order of `turn`.
    pub fn send_then_receive(&mut self, n: u32, turn: impl Fn(u32) -> u32) {
        (0..n).for_each(|tag| self.send(tag));
        self.settle();
        for i in 0..n {
            self.receive(turn(i));
            self.settle();
        }
    }

    fn send(&mut self, tag: u32) {
        let outgoing = Outgoing {
            to: PeerId(RECEIVER as u32),
            context: Context(0),
            tag: Tag(tag),
            bytes: BYTES.into(),
            eager: BYTES,
            at: tag.into(),
            mode: Mode::Standard,
            lent: false,
            user: tag,
        };
        match self.machines[SENDER].send(&outgoing) {
            Ok(Leaves::Eager { head, .. }) => self.towards[RECEIVER].push_back((head, true)),
            Ok(Leaves::Head(head)) => self.towards[RECEIVER].push_back((head, false)),
            Err(_) => self.is_broken = true,
        }
    }

    fn receive(&mut self, tag: u32) {
        let pattern = Pattern { context: Context(0), source: Some(PeerId(SENDER as u32)), tag: Some(Tag(tag)) };
        let machine = &mut self.machines[RECEIVER];
        match machine.receive(pattern, BYTES.into(), tag) {
            Ok(Received::Met(Met::Kept { message, status, .. })) => {
                machine.release(message);
                self.met += u64::from(status.envelope.tag.0);
            }
            Ok(Received::Waits(_) | Received::Met(Met::Coming(_))) => {}
            Ok(Received::Met(Met::Truncated(_))) | Err(_) => self.is_broken = true,
        }
    }

    /// Everything that goes on without the users.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for rank in [SENDER, RECEIVER] {
                while let Some((head, payload)) = self.towards[rank].pop_front() {
                    self.deliver(rank, head.as_ref(), payload);
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

    fn deliver(&mut self, to: usize, head: &[u8], payload: bool) {
        let bytes = head.len() as u32 + if payload { BYTES } else { 0 };
        match self.machines[to].handle(PeerId(1 - to as u32), head, bytes) {
            Outcome::Nothing | Outcome::Keep { .. } | Outcome::Sent { truncated: false, .. } => {}
            Outcome::Coming { .. } => self.found += 1,
            Outcome::Into { user, status, .. } => {
                self.is_broken |= user != status.envelope.tag.0;
                self.met += u64::from(user);
            }
            Outcome::Place { .. } | Outcome::Truncated { .. } | Outcome::Sent { .. } | Outcome::Nonsense => {
                self.is_broken = true;
            }
        }
    }

    fn act(&mut self, rank: usize, action: Action) {
        match action {
            Action::Head { head, .. } => self.towards[1 - rank].push_back((head, false)),
            Action::Eager { head, .. } => self.towards[1 - rank].push_back((head, true)),
            Action::Sent { .. } => {}
            Action::Pull { receive, user, at, .. } => {
                // The rim copies the payload from there.
                self.is_broken |= at != Some(user.into());
                self.met += u64::from(user);
                self.machines[rank].fetched(receive);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pair;

    #[test]
    fn what_is_not_kept_is_found_in_any_order() {
        for headers in [1, 3, 16] {
            let mut pair = Pair::new(10, headers).expect("enough is lent");
            pair.send_then_receive(10, |i| 9 - i);
            let (met, found) = pair.met().expect("they agree");
            assert_eq!(met, 45);
            assert_eq!(found == 0, headers == 16, "{found} found with {headers} headers");
            pair.post_then_send(10, |i| i * 7 % 10);
            assert_eq!(pair.met(), Some((90, found)), "what has a receive is not kept");
        }
    }
}
