//! Registration of regions with an RDMA adapter. Without the feature `verbs` there is no adapter, and all types here
//! are empty.

#[cfg(feature = "verbs")]
mod present {
    use alloc::sync::Arc;
    use core::ptr::NonNull;

    use unisono_verbs::ud::{Domain, Registration};

    use super::super::{Owner, RegisterError};

    /// Smallest user memory that is registered, in bytes: below, the device copies faster than the adapter registers.
    const REGISTER_MIN: usize = 32 << 10;

    /// The adapter that regions are registered with.
    #[derive(Clone, Debug, Default)]
    pub(in super::super) struct Adapter(pub(in super::super) Option<Arc<Domain>>);

    /// The adapter's registration of a region; deregisters when dropped.
    #[derive(Debug, Default)]
    pub(in super::super) struct AdapterRegistration(Option<Registration>);

    /// The adapter's local key (lkey) of a region.
    pub(in super::super) type AdapterKey = Option<u32>;

    impl Adapter {
        pub(in super::super) const NONE: Self = Self(None);

        /// Registers a region with the adapter, if there is one.
        pub(in super::super) fn register(
            &self,
            start: NonNull<u8>,
            bytes: usize,
            owner: Owner,
        ) -> Result<AdapterRegistration, RegisterError> {
            let Some(domain) = self.0.as_ref().filter(|_| owner != Owner::Caller || bytes >= REGISTER_MIN) else {
                return Ok(AdapterRegistration(None));
            };
            // SAFETY: the code that registers a region keeps it mapped until it is revoked, when the registration ends.
            let registration = unsafe { domain.register(start, bytes) };
            registration
                .map(|registration| AdapterRegistration(Some(registration)))
                .map_err(|_| RegisterError::AdapterFailed)
        }
    }

    impl AdapterRegistration {
        pub(in super::super) const NONE: Self = Self(None);

        pub(in super::super) fn key(&self) -> AdapterKey {
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
    pub(in super::super) struct AdapterRegistration;

    pub(in super::super) type AdapterKey = ();

    impl Adapter {
        pub(in super::super) const NONE: Self = Self;

        pub(in super::super) const fn register(
            &self,
            _: NonNull<u8>,
            _: usize,
            _: Owner,
        ) -> Result<AdapterRegistration, RegisterError> {
            Ok(AdapterRegistration)
        }
    }

    impl AdapterRegistration {
        pub(in super::super) const NONE: Self = Self;

        pub(in super::super) const fn key(&self) -> AdapterKey {}
    }
}

pub(super) use present::{Adapter, AdapterKey, AdapterRegistration};
