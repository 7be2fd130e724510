//! The threads that use a World: each that has acquired its lock, until it ends.

use alloc::sync::{Arc, Weak};
use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, Ordering};

/// The number of threads that use a World and have not ended.
#[derive(Clone, Debug, Default)]
pub(in crate::world) struct UserThreads(Arc<AtomicU32>);

/// A thread's registration with a World, which ends with the thread.
struct Registration(Weak<AtomicU32>);

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(count) = self.0.upgrade() {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static REGISTRATIONS: RefCell<Vec<Registration>> = const { RefCell::new(Vec::new()) };
}

impl UserThreads {
    /// Registers the calling thread, unless it is registered.
    #[cold]
    pub(in crate::world) fn register(&self) {
        // A thread that is ending registers no more.
        let _ = REGISTRATIONS.try_with(|registrations| {
            let Ok(mut registrations) = registrations.try_borrow_mut() else { return };
            if registrations.iter().any(|known| core::ptr::eq(known.0.as_ptr(), Arc::as_ptr(&self.0))) {
                return;
            }
            registrations.retain(|known| known.0.strong_count() > 0);
            self.0.fetch_add(1, Ordering::Relaxed);
            registrations.push(Registration(Arc::downgrade(&self.0)));
        });
    }

    /// The number of these threads.
    pub(in crate::world) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_once_and_until_it_ends() {
        let (users, other) = (UserThreads::default(), UserThreads::default());
        (0..3).for_each(|_| users.register());
        other.register();
        assert_eq!((users.count(), other.count()), (1, 1));
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                users.register();
                users.count()
            });
            assert_eq!(thread.join().expect("it ends"), 2);
        });
        assert_eq!(users.count(), 1);
    }
}
