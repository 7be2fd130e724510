//! Peers that are gone, and their next incarnations.

use super::operations::ReceiveFailure;
use super::{Class, Messenger, MessengerStorage};
use crate::ids::PeerId;
use crate::message::point_to_point::Cancelled;
use crate::transport::Transport;

impl<S: MessengerStorage> Messenger<S> {
    /// A peer is gone: ends everything that needs it, sends once their payload is not read any more; if `anyone`, also
    /// receives from any source. Returns whether any receive ended. Messages that were stored can still be received.
    pub fn disconnect(&mut self, transport: &mut impl Transport, peer: PeerId, anyone: bool) -> bool {
        for class in Class::ALL {
            let (operations, outbox) = self.parts(class);
            outbox.retain_others(peer, |send| operations.release_send(send, None));
        }
        let (messages, mut any) = (&mut self.messages, false);
        self.matching.disconnect(peer, anyone, |cancelled| {
            if let Cancelled::Receive(user) = cancelled
                && messages.receive(user).is_some_and(|receive| !receive.is_from(peer))
            {
                any = true;
                messages.end_receive(user, Err(ReceiveFailure::PeerGone));
            }
        });
        self.steps.disconnect(peer, |_| {});
        for class in Class::ALL {
            let (operations, _) = self.parts(class);
            operations.disconnect_sends(peer);
            any |= operations.disconnect_receives(peer, |placement| transport.withdraw(peer, placement));
        }
        any
    }

    /// Handles a new incarnation of a [disconnected](Self::disconnect) peer.
    pub fn reconnect(&mut self, peer: PeerId) {
        self.matching.reconnect(peer);
    }
}
