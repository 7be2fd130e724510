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
        self.disconnect_messages(transport, peer, anyone) | self.disconnect_steps(transport, peer)
    }

    /// As [`disconnect`](Self::disconnect), for point-to-point messages.
    pub fn disconnect_messages(&mut self, transport: &mut impl Transport, peer: PeerId, anyone: bool) -> bool {
        let mut any = false;
        let messages = &mut self.messages;
        self.matching.disconnect(peer, anyone, |cancelled| {
            if let Cancelled::Receive(user) = cancelled
                && messages.receive(user).is_some_and(|receive| !receive.is_from(peer))
            {
                any = true;
                messages.end_receive(user, Err(ReceiveFailure::PeerGone));
            }
        });
        any | self.disconnect_class(transport, peer, Class::PointToPoint)
    }

    /// As [`disconnect`](Self::disconnect), for the messages of collectives; those that were stored are discarded.
    pub fn disconnect_steps(&mut self, transport: &mut impl Transport, peer: PeerId) -> bool {
        self.steps.disconnect(peer, |_| {});
        self.disconnect_class(transport, peer, Class::Collective)
    }

    fn disconnect_class(&mut self, transport: &mut impl Transport, peer: PeerId, class: Class) -> bool {
        let (operations, outbox) = self.parts(class);
        outbox.retain_others(peer, |send| operations.release_send(send, None));
        operations.disconnect_sends(peer);
        operations.disconnect_receives(transport, peer)
    }

    /// Handles a new incarnation of a [disconnected](Self::disconnect) peer.
    pub fn reconnect(&mut self, peer: PeerId) {
        self.matching.reconnect(peer);
    }
}
