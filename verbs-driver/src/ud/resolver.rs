//! Creates address handles on a thread of its own: the kernel may resolve the neighbour's link address (ARP, ND) first,
//! which takes up to a second.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::gid::Gid;

/// Requests that can be queued.
pub(super) const WAITING: usize = 64;

/// The result of a request.
#[derive(Debug)]
pub(super) struct Answer<T> {
    pub(super) peer: u32,
    pub(super) gid: Gid,
    /// `None`: it is unreachable.
    pub(super) made: Option<T>,
}

#[derive(Debug)]
struct ResolverQueues<T> {
    questions: VecDeque<(u32, Gid)>,
    answers: Vec<Answer<T>>,
    stopped: bool,
}

impl<T> ResolverQueues<T> {
    /// This GID is unreachable: answers all queued requests for it, too.
    fn refuse(&mut self, gid: Gid) {
        let answers = &mut self.answers;
        self.questions.retain(|&(peer, of)| {
            if of == gid {
                answers.push(Answer { peer, gid, made: None });
            }
            of != gid
        });
    }
}

#[derive(Debug)]
struct Shared<T> {
    queues: Mutex<ResolverQueues<T>>,
    asked: Condvar,
    answered: AtomicBool,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, ResolverQueues<T>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread and its two queues.
#[derive(Debug)]
pub(super) struct Resolver<T> {
    shared: Arc<Shared<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Resolver<T> {
    /// Starts the thread; `make` may block.
    pub(super) fn start(make: impl Fn(Gid) -> Option<T> + Send + 'static) -> io::Result<Self> {
        let queues =
            ResolverQueues { questions: VecDeque::with_capacity(WAITING), answers: Vec::new(), stopped: false };
        let shared =
            Arc::new(Shared { queues: Mutex::new(queues), asked: Condvar::new(), answered: AtomicBool::new(false) });
        let ours = Arc::clone(&shared);
        let run = move || {
            let mut queues = ours.lock();
            while !queues.stopped {
                let Some((peer, gid)) = queues.questions.pop_front() else {
                    queues = ours.asked.wait(queues).unwrap_or_else(PoisonError::into_inner);
                    continue;
                };
                drop(queues);
                let made = make(gid);
                queues = ours.lock();
                if made.is_none() {
                    queues.refuse(gid);
                }
                queues.answers.push(Answer { peer, gid, made });
                ours.answered.store(true, Ordering::Release);
            }
        };
        let thread = thread::Builder::new().name("unisono-resolve".into()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Requests a handle. `false`: too many requests are queued.
    pub(super) fn ask(&self, peer: u32, gid: Gid) -> bool {
        let mut queues = self.shared.lock();
        let room = queues.questions.len() < WAITING;
        if room {
            queues.questions.push_back((peer, gid));
            self.shared.asked.notify_one();
        }
        room
    }

    /// Whether there are answers. One load.
    pub(super) fn has_answered(&self) -> bool {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// The answers since the last call.
    pub(super) fn answers(&self) -> Vec<Answer<T>> {
        if !self.shared.answered.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        mem::take(&mut self.shared.lock().answers)
    }

    /// Ends the thread after its current request. Returns the results that were not taken.
    pub(super) fn stop(&mut self) -> Vec<Answer<T>> {
        self.shared.lock().stopped = true;
        self.shared.asked.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        mem::take(&mut self.shared.lock().answers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn gid(last: u8) -> Gid {
        Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
    }

    #[test]
    fn asking_does_not_wait_for_a_neighbour_that_is_slow() {
        let (found_to, found) = mpsc::channel::<Option<u8>>();
        let mut resolver = Resolver::start(move |_| found.recv().unwrap_or(None)).expect("a thread");
        assert!(resolver.ask(1, gid(1)) && resolver.ask(2, gid(2)));
        // No result yet: the caller continues without waiting.
        assert!(!resolver.has_answered());
        assert!(resolver.answers().is_empty());
        found_to.send(Some(7)).expect("the thread waits");
        found_to.send(None).expect("the thread waits");
        let mut answers = Vec::new();
        while answers.len() < 2 {
            thread::yield_now();
            answers.extend(resolver.answers());
        }
        let answers: Vec<_> = answers.iter().map(|answer| (answer.peer, answer.gid, answer.made)).collect();
        assert_eq!(answers, [(1, gid(1), Some(7)), (2, gid(2), None)]);
        drop(found_to);
        assert!(resolver.stop().is_empty());
    }

    #[test]
    fn a_host_that_is_gone_is_looked_for_once() {
        let (found_to, found) = mpsc::channel::<Option<u8>>();
        let resolver = Resolver::start(move |_| found.recv().unwrap_or(None)).expect("a thread");
        for (peer, last) in [(1, 1), (2, 1), (3, 2), (4, 1)] {
            assert!(resolver.ask(peer, gid(last)));
        }
        found_to.send(None).expect("the thread waits");
        found_to.send(Some(7)).expect("the thread waits");
        let mut answers = Vec::new();
        while answers.len() < 4 {
            thread::yield_now();
            answers.extend(resolver.answers());
        }
        answers.sort_by_key(|answer| answer.peer);
        let made: Vec<_> = answers.iter().map(|answer| answer.made).collect();
        assert_eq!(made, [None, None, Some(7), None]);
    }

    #[test]
    fn questions_are_bounded_and_what_nobody_took_is_given_back() {
        let (go, gone) = mpsc::channel::<()>();
        let (at_work_to, at_work) = mpsc::channel::<()>();
        let make = move |gid: Gid| {
            let _ = at_work_to.send(());
            let _ = gone.recv();
            Some(gid.0[15])
        };
        let mut resolver = Resolver::start(make).expect("a thread");
        assert!(resolver.ask(0, gid(9)));
        at_work.recv().expect("the thread is at the first question");
        assert_eq!((0..2 * WAITING as u32).filter(|peer| resolver.ask(*peer, gid(1))).count(), WAITING);
        go.send(()).expect("the thread waits");
        drop(go);
        let untaken = resolver.stop();
        assert!(untaken.iter().any(|answer| answer.made == Some(9)));
    }
}
