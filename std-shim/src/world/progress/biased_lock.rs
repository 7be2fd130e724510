//! A biased lock: next to free for the one thread that uses it alone.
//!
//! A locked instruction waits until all earlier stores have left the processor's store buffer, which is slow after a
//! copied payload, at both ends of every call. Therefore the first thread that locks becomes the *owner*. It enters
//! with a store and a load, as in Dekker's algorithm: it announces that it is inside, and checks that no other thread
//! wants the lock. The other threads pay for the fence that this needs between the two: they queue, announce that they
//! want the lock, and have the kernel execute a barrier on every processor that runs this process (`membarrier(2)`).
//! From then on the owner queues, too, until they are done.
//!
//! Where threads take turns, the barriers would cost more than they save: after [`OTHERS_MAX`] frequent acquisitions by
//! other threads, or where the kernel has no such barrier, the queue decides for all threads.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;
use rustix::thread::{MembarrierCommand, membarrier};

/// Acquisitions by other threads that end the owner's privilege.
const OTHERS_MAX: u32 = 64;
/// States of `owner`: no thread owns the lock yet; no thread does any more.
const NOBODY: usize = 0;
const DISABLED: usize = usize::MAX;
/// Iterations for which a thread spins while the owner is inside, before it yields.
const SPINS: u32 = 64;

/// A lock around a value.
pub(in crate::world) struct BiasedLock<T> {
    owner: AtomicUsize,
    /// Whether the owner is inside without having queued.
    inside: AtomicBool,
    /// Number of other threads that want the lock or have it; one more when there is no owner any more.
    wanted: AtomicU32,
    queue: RawMutex,
    /// Number of frequent acquisitions by other threads. Written by the holder of the queue.
    others: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time, through guards that the lock makes one after the other, on any
// thread.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

/// A value that the lock around another value guards, too.
#[derive(Default)]
pub(in crate::world) struct LockedCell<T>(UnsafeCell<T>);

// SAFETY: reached by one thread at a time, under the lock, whichever thread that is.
unsafe impl<T: Send> Sync for LockedCell<T> {}

/// How the lock was entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entered {
    AsOwner,
    Queued,
    /// Queued, and marked inside: a second acquisition by the same thread deadlocks, as with any other lock.
    QueuedAsOwner,
    /// Queued, while the owner is held off.
    HoldingOffOwner,
}

/// Access to the value while the guard exists.
pub(in crate::world) struct LockGuard<'a, T> {
    lock: &'a BiasedLock<T>,
    entered: Entered,
    /// The thread that locked unlocks.
    not_send: PhantomData<*const ()>,
}

impl<T> core::fmt::Debug for BiasedLock<T> {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        to.debug_struct("BiasedLock").finish_non_exhaustive()
    }
}

impl<T: Default> Default for BiasedLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> BiasedLock<T> {
    pub(in crate::world) fn new(value: T) -> Self {
        Self::with_barrier(value, has_barrier())
    }

    const fn with_barrier(value: T, barrier: bool) -> Self {
        let (owner, wanted) = if barrier { (NOBODY, 0) } else { (DISABLED, 1) };
        Self {
            owner: AtomicUsize::new(owner),
            inside: AtomicBool::new(false),
            wanted: AtomicU32::new(wanted),
            queue: RawMutex::INIT,
            others: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Acquires the lock if this thread owns it and no other thread wants it.
    #[inline(always)]
    pub(in crate::world) fn try_enter(&self) -> Option<OwnerGuard<'_, T>> {
        // Constructed only after entering, since dropping it leaves.
        self.enter_as_owner().then(|| OwnerGuard { lock: self, not_send: PhantomData })
    }

    /// Waits for the lock. Deadlocks in a thread that already holds it.
    #[inline]
    pub(in crate::world) fn lock(&self) -> LockGuard<'_, T> {
        let entered = if self.enter_as_owner() { Entered::AsOwner } else { self.queue(false) };
        LockGuard { lock: self, entered, not_send: PhantomData }
    }

    /// For a thread that locks at most a thousand times a second: does not count against the owner.
    pub(in crate::world) fn lock_rarely(&self) -> LockGuard<'_, T> {
        LockGuard { lock: self, entered: self.queue(true), not_send: PhantomData }
    }

    /// Access to a cell that this lock guards, for the holder of the value.
    ///
    /// # Safety
    /// It is always reached by this, and beside this lock.
    ///
    /// # Panics
    /// When `value` is another lock's.
    #[inline]
    pub(in crate::world) unsafe fn locked_cell<'a, U>(&self, value: &'a mut T, beside: &'a LockedCell<U>) -> &'a mut U {
        assert!(core::ptr::eq(value, self.value.get()), "the value of this lock");
        // SAFETY: the one value is borrowed exclusively for as long, which only who has the lock can do; the caller
        // says that all others need the same value.
        unsafe { &mut *beside.0.get() }
    }

    #[inline(always)]
    fn enter_as_owner(&self) -> bool {
        // Acquire: an owner that has ended may have left its address to this thread.
        if self.owner.load(Ordering::Relaxed) != this_thread() || self.inside.load(Ordering::Acquire) {
            return false;
        }
        self.inside.store(true, Ordering::Relaxed);
        // The barrier of the other thread orders both: either it sees this store, or this thread sees its request.
        compiler_fence(Ordering::SeqCst);
        if self.wanted.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.inside.store(false, Ordering::Release);
        false
    }

    #[cold]
    fn queue(&self, rarely: bool) -> Entered {
        self.queue.lock();
        match self.owner.load(Ordering::Relaxed) {
            DISABLED => Entered::Queued,
            NOBODY if rarely => Entered::Queued,
            NOBODY => {
                self.owner.store(this_thread(), Ordering::Relaxed);
                self.inside.store(true, Ordering::Relaxed);
                Entered::QueuedAsOwner
            }
            owner => {
                if owner == this_thread() && !self.inside.load(Ordering::Relaxed) {
                    self.inside.store(true, Ordering::Relaxed);
                    return Entered::QueuedAsOwner;
                }
                self.hold_off_owner();
                let others = self.others.load(Ordering::Relaxed) + u32::from(!rarely);
                self.others.store(others, Ordering::Relaxed);
                if others < OTHERS_MAX {
                    return Entered::HoldingOffOwner;
                }
                // The request stays set: the former owner queues for good.
                self.owner.store(DISABLED, Ordering::Relaxed);
                Entered::Queued
            }
        }
    }

    /// Makes the owner queue from now on, and waits until it is not inside.
    fn hold_off_owner(&self) {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        run_barrier();
        let mut spins = 0;
        while self.inside.load(Ordering::Acquire) {
            spins += 1;
            if spins < SPINS { core::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

/// Access by the owner, which did not queue.
pub(in crate::world) struct OwnerGuard<'a, T> {
    lock: &'a BiasedLock<T>,
    not_send: PhantomData<*const ()>,
}

impl<T> Deref for OwnerGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: while this lives the owner is inside: no other thread has a guard (see the module's text), and this
        // thread entered once, since `inside` was not set then.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for OwnerGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: while this lives the owner is inside: no other thread has a guard (see the module's text), and this
        // thread entered once, since `inside` was not set then. The borrow is exclusive.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for OwnerGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.inside.store(false, Ordering::Release);
    }
}

impl<T> LockGuard<'_, T> {
    /// Whether the thread did not enter as the owner.
    #[inline]
    pub(in crate::world) fn has_queued(&self) -> bool {
        self.entered != Entered::AsOwner
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: as long as the guard lives, no other thread has one (see the module's text), and no other guard of
        // this thread exists: the owner does not enter twice.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as long as the guard lives, no other thread has one (see the module's text), and no other guard of
        // this thread exists: the owner does not enter twice. The borrow is exclusive.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match self.entered {
            Entered::AsOwner => return self.lock.inside.store(false, Ordering::Release),
            Entered::QueuedAsOwner => self.lock.inside.store(false, Ordering::Release),
            Entered::HoldingOffOwner => _ = self.lock.wanted.fetch_sub(1, Ordering::Release),
            Entered::Queued => {}
        }
        // SAFETY: this guard has the queue since it was made.
        unsafe { self.lock.queue.unlock() };
    }
}

/// An id of the calling thread, unique among the threads that exist at the same time.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn this_thread() -> usize {
    let thread;
    // SAFETY: the first word of a thread's control block is the block's address (ELF Handling For Thread-Local Storage,
    // variant II). To look up a variable of the thread from a shared library takes a call.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) thread, options(pure, readonly, nostack, preserves_flags)) };
    thread
}

/// An id of the calling thread, where the processor has no instruction for it.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn this_thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    PLACE.with(|place| core::ptr::from_ref(place).addr())
}

/// Registers this process for the kernel's barrier. Returns whether there is one.
fn has_barrier() -> bool {
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}

/// Executes a full barrier on every running thread of this process.
fn run_barrier() {
    // It cannot fail once registered (membarrier(2)); without it, mutual exclusion is lost.
    assert!(membarrier(MembarrierCommand::PrivateExpedited).is_ok(), "membarrier(2) failed although it is registered");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two words that only the lock keeps equal.
    type Pair = [u64; 2];

    fn turn(pair: &mut Pair) {
        assert_eq!(pair[0], pair[1], "two threads are inside");
        pair[0] += 1;
        core::hint::black_box(&mut *pair);
        pair[1] += 1;
    }

    #[test]
    #[should_panic(expected = "the value of this lock")]
    fn what_is_beside_one_lock_is_not_reached_by_another() {
        let (lock, other, beside) = (BiasedLock::new(1), BiasedLock::new(1), LockedCell::<u32>::default());
        let mut guard = lock.lock();
        // SAFETY: reached by this alone.
        *unsafe { lock.locked_cell(&mut guard, &beside) } += 1;
        // SAFETY: it panics before it reaches anything.
        *unsafe { other.locked_cell(&mut guard, &beside) } += 1;
    }

    fn contend(lock: &BiasedLock<Pair>, rarely: bool) {
        const TURNS: u64 = 100_000;
        const OTHER_TURNS: u64 = 500;
        let started = AtomicBool::new(false);
        let enter_or_lock = |rarely| match lock.try_enter() {
            Some(mut inside) => turn(&mut inside),
            None if rarely => turn(&mut lock.lock_rarely()),
            None => turn(&mut lock.lock()),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                turn(&mut lock.lock());
                started.store(true, Ordering::Release);
                for i in 1..TURNS {
                    if i % 2 == 0 { enter_or_lock(false) } else { turn(&mut lock.lock()) }
                }
            });
            while !started.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    (0..OTHER_TURNS).for_each(|_| enter_or_lock(rarely));
                });
            }
            scope.spawn(|| {
                while lock.lock_rarely()[0] < TURNS / 2 {
                    std::thread::yield_now();
                }
            });
        });
        assert_eq!(*lock.lock(), [TURNS + 2 * OTHER_TURNS; 2]);
    }

    #[test]
    fn one_thread_at_a_time_is_inside() {
        let lock = BiasedLock::new([0; 2]);
        contend(&lock, true);
        assert_ne!(lock.owner.load(Ordering::Relaxed), DISABLED, "rare locks do not count");
        assert_eq!(lock.wanted.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_that_take_turns_end_the_privilege() {
        let lock = BiasedLock::new([0; 2]);
        contend(&lock, false);
        assert_eq!((lock.owner.load(Ordering::Relaxed), lock.wanted.load(Ordering::Relaxed)), (DISABLED, 1));
    }

    #[test]
    fn without_a_barrier_everyone_queues() {
        let lock = BiasedLock::with_barrier([0; 2], false);
        contend(&lock, false);
        assert_eq!(lock.lock().entered, Entered::Queued);
    }

    #[test]
    fn the_first_that_locks_is_the_owner() {
        let lock = BiasedLock::new([0; 2]);
        drop(lock.lock_rarely());
        assert_eq!(lock.lock().entered, Entered::QueuedAsOwner);
        assert_eq!(lock.lock().entered, Entered::AsOwner);
        let other = |lock: &BiasedLock<Pair>| lock.lock().entered;
        assert_eq!(
            std::thread::scope(|scope| scope.spawn(|| other(&lock)).join().ok()),
            Some(Entered::HoldingOffOwner)
        );
        assert_eq!(lock.lock().entered, Entered::AsOwner);
    }

    #[test]
    fn only_the_owner_enters_and_not_while_others_want_the_lock() {
        let lock = BiasedLock::new([0; 2]);
        assert!(lock.try_enter().is_none(), "no thread owns it yet");
        drop(lock.lock());
        for _ in 0..2 {
            let inside = lock.try_enter().expect("the first that locked");
            assert!(lock.inside.load(Ordering::Relaxed));
            drop(inside);
            assert!(!lock.inside.load(Ordering::Relaxed));
        }
        let inside = lock.try_enter().expect("the owner");
        assert!(lock.try_enter().is_none(), "it is inside");
        assert!(std::thread::scope(|scope| scope.spawn(|| lock.try_enter().is_none()).join().unwrap_or(false)));
        assert!(lock.inside.load(Ordering::Relaxed), "a thread that did not enter must not leave for the owner");
        drop(inside);
        lock.wanted.fetch_add(1, Ordering::Relaxed);
        assert!(lock.try_enter().is_none());
        assert!(!lock.inside.load(Ordering::Relaxed));
    }
}
