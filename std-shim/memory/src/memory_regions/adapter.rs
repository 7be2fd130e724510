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
    pub(in super::super) struct Adapter {
        pub(in super::super) domain: Option<Arc<Domain>>,
        /// Whether peers may read regions.
        pub(in super::super) is_read: bool,
    }

    /// The adapter's registration of a region; deregisters when dropped.
    #[derive(Debug, Default)]
    pub(in super::super) struct AdapterRegistration {
        registration: Option<Registration>,
        is_read: bool,
    }

    /// The adapter's local key (lkey) of a region, and its origin in multiples of [`Domain::ORIGIN`]: what the address of a
    /// byte exceeds the adapter's address of it by.
    pub(in super::super) type AdapterKey = Option<(u32, u32)>;

    impl Adapter {
        pub(in super::super) const NONE: Self = Self { domain: None, is_read: false };

        /// Registers a region with the adapter, if there is one; a long one of messages so that peers may read it, if they
        /// may and that is possible.
        pub(in super::super) fn register(
            &self,
            start: NonNull<u8>,
            bytes: usize,
            (owner, is_of_messages): (Owner, bool),
        ) -> Result<AdapterRegistration, RegisterError> {
            let is_worthwhile = owner != Owner::Caller || bytes >= REGISTER_MIN;
            let Some(domain) = self.domain.as_ref().filter(|_| is_worthwhile) else {
                return Ok(AdapterRegistration::NONE);
            };
            if is_of_messages && self.is_read && bytes >= REGISTER_MIN {
                // SAFETY: the code that registers a region keeps it mapped until it is revoked, when the registration
                // ends.
                let registration = unsafe { domain.register_to_be_read(start, bytes) };
                if let Ok(registration) = registration {
                    return Ok(AdapterRegistration { registration: Some(registration), is_read: true });
                }
            }
            // SAFETY: the code that registers a region keeps it mapped until it is revoked, when the registration ends.
            let registration = unsafe { domain.register(start, bytes) };
            registration
                .map(|registration| AdapterRegistration { registration: Some(registration), is_read: false })
                .map_err(|_| RegisterError::AdapterFailed)
        }
    }

    impl AdapterRegistration {
        pub(in super::super) const NONE: Self = Self { registration: None, is_read: false };

        pub(in super::super) fn key(&self) -> AdapterKey {
            self.registration.as_ref().map(|known| (known.key(), (known.origin() / Domain::ORIGIN) as u32))
        }

        /// The remote key (rkey), if peers may read the region.
        pub(in super::super) fn remote_key(&self) -> Option<u32> {
            self.registration.as_ref().filter(|_| self.is_read).map(Registration::remote_key)
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
            _: (Owner, bool),
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
