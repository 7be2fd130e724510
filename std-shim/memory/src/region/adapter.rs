//! What an adapter knows of regions. Without the feature `verbs` there is no adapter, and all of this takes no room.

#[cfg(feature = "verbs")]
mod present {
    use alloc::sync::Arc;
    use core::ptr::NonNull;

    use unisono_verbs::ud::{Domain, Registration};

    use super::super::{Owner, RegisterError};

    /// Bytes from which memory of a caller is registered: below, the device copies faster than that is done.
    const REGISTERED: usize = 32 << 10;

    /// The adapter that regions are registered with.
    #[derive(Clone, Debug, Default)]
    pub(in super::super) struct Adapter(pub(in super::super) Option<Arc<Domain>>);

    /// A region's registration; ends with it.
    #[derive(Debug, Default)]
    pub(in super::super) struct Known(Option<Registration>);

    /// What the adapter calls a region.
    pub(in super::super) type Key = Option<u32>;

    impl Adapter {
        pub(in super::super) const NONE: Self = Self(None);

        /// Tells the adapter of a region.
        pub(in super::super) fn meet(
            &self,
            start: NonNull<u8>,
            bytes: usize,
            owner: Owner,
        ) -> Result<Known, RegisterError> {
            let Some(domain) = self.0.as_ref().filter(|_| owner != Owner::Caller || bytes >= REGISTERED) else {
                return Ok(Known(None));
            };
            // SAFETY: whoever registers a region keeps it mapped until it is revoked, when the registration ends.
            let registration = unsafe { domain.register(start, bytes) };
            registration.map(|registration| Known(Some(registration))).map_err(|_| RegisterError::Refused)
        }
    }

    impl Known {
        pub(in super::super) const NONE: Self = Self(None);

        pub(in super::super) fn key(&self) -> Key {
            self.0.as_ref().map(Registration::key)
        }
    }
}

#[cfg(not(feature = "verbs"))]
mod present {
    use core::ptr::NonNull;

    use super::super::{Owner, RegisterError};

    #[derive(Clone, Debug, Default)]
    pub(in super::super) struct Adapter;

    #[derive(Debug, Default)]
    pub(in super::super) struct Known;

    pub(in super::super) type Key = ();

    impl Adapter {
        pub(in super::super) const NONE: Self = Self;

        pub(in super::super) const fn meet(&self, _: NonNull<u8>, _: usize, _: Owner) -> Result<Known, RegisterError> {
            Ok(Known)
        }
    }

    impl Known {
        pub(in super::super) const NONE: Self = Self;

        pub(in super::super) const fn key(&self) -> Key {}
    }
}

pub(super) use present::{Adapter, Key, Known};
