//! After a death: give a communicator up, agree, go on with those that live. Names and meaning are ULFM's (Bland, Bouteiller,
//! Herault, Bosilca, Dongarra 2013, "Post-failure recovery of MPI communication capability").

use super::Communicator;

impl Communicator {
    /// Gives this communicator up, for all members: what is under way on it at any of them ends with `Revoked`, and so does what is
    /// called later. Not collective. Who hears of it tells all members once, so that all that live do if one does; what has met its
    /// message already ends by itself.
    pub fn revoke(&self) {
        self.shared.lock().give_up_context(self.context);
    }

    /// Whether a member has given this communicator up, as far as this one has heard.
    pub fn is_revoked(&self) -> bool {
        self.shared.lock().expect_open(self.context).is_err()
    }
}
