//! Errands: what messages ask for once the endpoint is free again.

use unisono_core::endpoint::GrantError;
use unisono_core::operation::SendError;
use unisono_core::placement::Key;

use super::messages::failure;
use super::{Granted, Process, Sending, Use, put};
use crate::world::matching::{Errand, grant, truncation};
use crate::world::request::Failure;

impl Process {
    pub(super) fn run(&mut self, now: u64, errand: Errand) {
        match errand {
            Errand::Grant { to, sending, into, request, tag } => {
                let key = Key(self.keys.next());
                let placement = match self.endpoint.grant(to, into, key) {
                    Ok(placement) => placement,
                    Err(GrantError::Full) => return self.matching.errands.push_back(errand),
                    Err(GrantError::UnknownPeer) => {
                        return self.requests.finish(request, Err(Failure::PeerFailed(to.into())));
                    }
                };
                match self.endpoint.send(now, to, &grant(sending, placement, key), None) {
                    Ok(operation) => self.note(operation, Use::Nothing),
                    Err(error) => {
                        self.endpoint.withdraw(placement);
                        if error == SendError::Full {
                            self.matching.errands.push_back(errand);
                        } else {
                            self.requests.finish(request, Err(failure(error, to)));
                        }
                        return;
                    }
                }
                put(&mut self.granted, placement.record() as u32, Granted { placement, to, tag, request });
            }
            Errand::Fetch { .. } => self.fetch(errand),
            Errand::Refuse { to, sending } if self.is_near(to) => self.refuse(to, sending),
            Errand::Refuse { to, sending } => {
                match self.endpoint.send(now, to, &truncation(sending), None) {
                    Ok(operation) => self.note(operation, Use::Nothing),
                    Err(SendError::Full) => self.matching.errands.push_back(errand),
                    // Who is gone need not be told.
                    Err(_) => {}
                }
            }
            Errand::Place { to, sending, placement, key } => {
                let Some(place) = self.sendings.get_mut(sending as usize) else { return };
                let Some(Sending { from, request, .. }) = place.take_if(|sending| sending.to == to) else { return };
                match self.endpoint.place(now, to, placement, key, from) {
                    Ok(operation) => self.note(operation, Use::Request(request, to)),
                    Err(SendError::Full) => {
                        *place = Some(Sending { to, from, request });
                        self.matching.errands.push_back(errand);
                    }
                    Err(error) => self.requests.finish(request, Err(failure(error, to))),
                }
            }
            Errand::Truncated { to, sending } => {
                let Some(place) = self.sendings.get_mut(sending as usize) else { return };
                if let Some(sending) = place.take_if(|sending| sending.to == to) {
                    self.requests.finish(sending.request, Err(Failure::TooLongForReceive(to.into())));
                }
            }
        }
    }
}
