//! Requests: what is under way, and what follows when it ends.

use alloc::sync::Arc;
use core::ffi::{c_int, c_void};
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use parking_lot::Mutex;
use unisono::raw::{RawRequest, SentMessage};
use unisono::{Failure, Status};

use crate::abi::*;
use crate::communicator::Comm;
use crate::datatype::Elements;
use crate::error::{Outcome, class_of_collective, class_of_failure};
use crate::handle::{Held, Kind, Object};

/// The handle of a request that had ended when it was made.
pub const COMPLETED: MPI_Request = MPI_Request(MPI_REQUEST_NULL.0 + 1);

/// What follows an operation.
pub type Finish = Box<dyn FnOnce() -> Outcome + Send>;
/// What starts a persistent operation.
pub type Start = Box<dyn FnMut() -> Outcome<Activity> + Send>;

/// A part of an operation.
#[derive(Debug)]
pub struct Part {
    /// The library's request.
    pub request: RawRequest,
    /// Whether it is a receive.
    pub is_receive: bool,
}

/// What is under way.
pub enum Activity {
    /// Nothing: the persistent request was not started.
    Idle,
    /// It has ended, and was not reported.
    Ended(Outcome, MPI_Status),
    /// A send, and the memory that it sends from if it is not the program's.
    Send(SentMessage, RawRequest, Option<Vec<u8>>),
    /// A send that has ended well, and was not reported.
    Sent(SentMessage),
    /// A send that is being cancelled: as [`Send`](Self::Send) until it has ended, and its result.
    Cancelling(SentMessage, Option<(RawRequest, Option<Vec<u8>>)>, Outcome),
    /// A receive, and the elements that its memory is unpacked to if it is not the program's.
    Receive(RawRequest, Option<(Vec<u8>, Elements)>),
    /// A collective of the library.
    Collective(u32, Option<Finish>),
    /// Several messages; `true`: the status is that of the receive.
    Messages(Vec<Part>, Option<Finish>, bool, Option<MPI_Status>),
    /// An operation of the program.
    General(General),
    /// What a thread of this library does.
    Thread(Arc<ThreadResult>),
}

/// The result of a thread.
#[derive(Debug, Default)]
pub struct ThreadResult(OnceLock<Outcome>);

impl ThreadResult {
    /// The thread has ended.
    pub fn set(&self, outcome: Outcome) {
        // It ends once.
        let _ = self.0.set(outcome);
    }

    /// Makes progress until the thread has ended.
    pub fn wait(&self) -> Outcome {
        loop {
            if let Some(outcome) = self.0.get() {
                return *outcome;
            }
            crate::job::progress();
        }
    }
}

/// A generalized request.
pub struct General {
    query: Callback,
    free: Callback,
    cancel: Callback,
    extra: *mut c_void,
    is_complete: bool,
}

struct State {
    comm: Option<Held<Comm>>,
    activity: Activity,
    start: Option<Start>,
}

/// A request.
pub struct Request {
    state: Mutex<State>,
    is_persistent: AtomicBool,
}

// SAFETY: the program's addresses in it are used as the standard says, by whichever thread ends the request.
unsafe impl Send for Request {}
// SAFETY: its state is guarded by a lock.
unsafe impl Sync for Request {}

impl fmt::Debug for Request {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Request").finish_non_exhaustive()
    }
}

impl Kind for Request {
    const MARK: u32 = 0x7265_7175;
    const INVALID: c_int = MPI_ERR_REQUEST;

    fn predefined(handle: usize) -> Option<&'static Object<Self>> {
        static ENDED: OnceLock<Held<Request>> = OnceLock::new();
        (handle == COMPLETED.0)
            .then(|| &**ENDED.get_or_init(|| Request::new(None, Activity::Ended(Ok(()), MPI_Status::EMPTY))))
    }
}

/// Requests whose handles were freed while they were under way.
static ORPHANS: Mutex<Vec<Held<Request>>> = Mutex::new(Vec::new());
/// Objects to be used again.
static POOL: Mutex<Vec<Held<Request>>> = Mutex::new(Vec::new());
/// Objects in the pool at most.
const POOLED: usize = 256;

/// Waits for all requests that nobody waits for.
pub fn wait_for_orphans() {
    let orphans = core::mem::take(&mut *ORPHANS.lock());
    orphans.iter().for_each(|request| _ = request.wait());
}

/// Whether none is under way any more that nobody waits for.
pub fn reap_orphans() {
    ORPHANS.lock().retain(|request| !request.is_done());
}

fn status_of(comm: &Comm, status: &Status) -> MPI_Status {
    MPI_Status::new(comm.rank_of(status.source), status.tag.0 as c_int, status.bytes as u64)
}

/// The result of a send: that a receive was too short concerns the receiver alone.
pub fn sent(result: Result<Status, Failure>) -> Outcome {
    match result {
        Ok(_) | Err(Failure::RemoteTruncated(_)) => Ok(()),
        Err(failure) => Err(class_of_failure(failure)),
    }
}

/// The result of a receive into the program's memory, or into packed bytes of elements.
pub fn received(
    comm: &Comm,
    result: Result<Status, Failure>,
    packed: Option<(Vec<u8>, Elements)>,
) -> (Outcome, MPI_Status) {
    match result {
        Ok(status) => {
            if let Some((bytes, elements)) = packed {
                // SAFETY: the program promised the elements to be writable until the receive has ended.
                unsafe { elements.unpack(bytes.get(..status.bytes).unwrap_or(&bytes)) };
            }
            (Ok(()), status_of(comm, &status))
        }
        Err(failure) => (Err(class_of_failure(failure)), MPI_Status::EMPTY),
    }
}

fn run_finish(result: Outcome, finish: Option<Finish>) -> Outcome {
    match (result, finish) {
        (Ok(()), Some(finish)) => finish(),
        (result, _) => result,
    }
}

impl State {
    /// Ends the activity if it has ended; waits for it if `waits`. Returns whether it has ended.
    fn advance(&mut self, waits: bool) -> bool {
        let State { comm, activity, .. } = self;
        let taken = core::mem::replace(activity, Activity::Idle);
        let (next, ended) = match (taken, comm.as_deref()) {
            (idle @ Activity::Idle, _) => (idle, true),
            (ended @ Activity::Ended(..), _) => (ended, true),
            (Activity::General(general), _) => {
                let ended = general.is_complete;
                (Activity::General(general), ended)
            }
            (Activity::Thread(thread), _) => match thread.0.get() {
                Some(outcome) => (Activity::Ended(*outcome, MPI_Status::EMPTY), true),
                None => (Activity::Thread(thread), false),
            },
            (Activity::Send(message, request, kept), Some(comm)) => {
                let result =
                    if waits { Some(comm.library().raw_wait(&request)) } else { comm.library().raw_test(&request) };
                match result.map(sent) {
                    Some(Ok(())) => (Activity::Sent(message), true),
                    Some(outcome) => (Activity::Ended(outcome, MPI_Status::EMPTY), true),
                    None => (Activity::Send(message, request, kept), false),
                }
            }
            (sent @ Activity::Sent(_), _) => (sent, true),
            (Activity::Cancelling(message, mut under_way, mut outcome), Some(comm)) => {
                let library = comm.library();
                if let Some((request, _)) = &under_way {
                    let result = if waits { Some(library.raw_wait(request)) } else { library.raw_test(request) };
                    if let Some(result) = result {
                        (under_way, outcome) = (None, sent(result));
                    }
                }
                let result = if under_way.is_none() { library.raw_cancel_result(message, waits) } else { None };
                match result {
                    Some(is_cancelled) => {
                        library.raw_forget_cancelled(message);
                        let outcome = if is_cancelled { Ok(()) } else { outcome };
                        (Activity::Ended(outcome, MPI_Status::cancelled(is_cancelled)), true)
                    }
                    None => (Activity::Cancelling(message, under_way, outcome), false),
                }
            }
            (Activity::Receive(request, packed), Some(comm)) => {
                let result =
                    if waits { Some(comm.library().raw_wait(&request)) } else { comm.library().raw_test(&request) };
                match result {
                    Some(result) => {
                        let (outcome, status) = received(comm, result, packed);
                        (Activity::Ended(outcome, status), true)
                    }
                    None => (Activity::Receive(request, packed), false),
                }
            }
            (Activity::Collective(begun, finish), Some(comm)) => {
                let library = comm.library();
                let result =
                    if waits { Some(library.raw_wait_collective(begun)) } else { library.raw_test_collective(begun) };
                match result {
                    Some(result) => {
                        let outcome = run_finish(result.map_err(class_of_collective), finish);
                        (Activity::Ended(outcome, MPI_Status::EMPTY), true)
                    }
                    None => (Activity::Collective(begun, finish), false),
                }
            }
            (Activity::Messages(mut parts, finish, reports, mut seen), Some(comm)) => {
                let mut failed = Ok(());
                while let Some(part) = parts.last() {
                    let library = comm.library();
                    let result =
                        if waits { Some(library.raw_wait(&part.request)) } else { library.raw_test(&part.request) };
                    let Some(result) = result else { break };
                    if part.is_receive {
                        let (outcome, status) = received(comm, result, None);
                        failed = failed.and(outcome);
                        seen = Some(status);
                    } else {
                        failed = failed.and(sent(result));
                    }
                    parts.pop();
                }
                if parts.is_empty() || failed.is_err() {
                    let status = seen.filter(|_| reports).unwrap_or(MPI_Status::EMPTY);
                    for part in &parts {
                        if !library_cancel(comm, part) {
                            let _ = comm.library().raw_wait(&part.request);
                        }
                    }
                    (Activity::Ended(run_finish(failed, finish), status), true)
                } else {
                    (Activity::Messages(parts, finish, reports, seen), false)
                }
            }
            (_, None) => (Activity::Ended(Err(MPI_ERR_INTERN), MPI_Status::EMPTY), true),
        };
        *activity = next;
        ended
    }

    /// The result of a request that has ended.
    fn report(&mut self) -> (Outcome, MPI_Status) {
        match core::mem::replace(&mut self.activity, Activity::Idle) {
            Activity::Ended(outcome, status) => (outcome, status),
            Activity::General(general) => {
                let mut status = MPI_Status::EMPTY;
                let outcome = general.query(&mut status);
                (outcome.and(general.freed()), status)
            }
            _ => (Ok(()), MPI_Status::EMPTY),
        }
    }
}

fn library_cancel(comm: &Comm, part: &Part) -> bool {
    part.is_receive && comm.library().raw_cancel(&part.request)
}

impl General {
    /// A request whose functions the program gives.
    pub const fn new(query: Callback, free: Callback, cancel: Callback, extra: *mut c_void) -> Self {
        Self { query, free, cancel, extra, is_complete: false }
    }

    fn query(&self, status: &mut MPI_Status) -> Outcome {
        type Query = unsafe extern "C" fn(*mut c_void, *mut MPI_Status) -> c_int;
        if self.query.is_null() {
            return Ok(());
        }
        // SAFETY: the program gave a function of this type.
        let query = unsafe { core::mem::transmute::<Callback, Query>(self.query) };
        // SAFETY: its own function, called as the standard says.
        match unsafe { query(self.extra, status) } {
            MPI_SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    fn freed(&self) -> Outcome {
        type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
        if self.free.is_null() {
            return Ok(());
        }
        // SAFETY: the program gave a function of this type.
        let free = unsafe { core::mem::transmute::<Callback, Free>(self.free) };
        // SAFETY: its own function, called as the standard says.
        match unsafe { free(self.extra) } {
            MPI_SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    fn cancelled(&self) -> Outcome {
        type Cancel = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
        if self.cancel.is_null() {
            return Ok(());
        }
        // SAFETY: the program gave a function of this type.
        let cancel = unsafe { core::mem::transmute::<Callback, Cancel>(self.cancel) };
        // SAFETY: its own function, called as the standard says.
        match unsafe { cancel(self.extra, self.is_complete.into()) } {
            MPI_SUCCESS => Ok(()),
            code => Err(code),
        }
    }
}

/// How a request is reported.
pub struct Report {
    /// Its result.
    pub outcome: Outcome,
    /// Its status.
    pub status: MPI_Status,
    /// The communicator whose error handler gets its error.
    pub comm: Option<Held<Comm>>,
}

impl Request {
    /// A request under way.
    pub fn new(comm: Option<Held<Comm>>, activity: Activity) -> Held<Self> {
        let pooled = POOL.lock().pop();
        match pooled {
            Some(object) => {
                *object.state.lock() = State { comm, activity, start: None };
                object.is_persistent.store(false, Ordering::Relaxed);
                object
            }
            None => Object::new(Self {
                state: Mutex::new(State { comm, activity, start: None }),
                is_persistent: AtomicBool::new(false),
            }),
        }
    }

    /// A persistent request.
    pub fn persistent(comm: Held<Comm>, start: Start) -> Held<Self> {
        Object::new(Self {
            state: Mutex::new(State { comm: Some(comm), activity: Activity::Idle, start: Some(start) }),
            is_persistent: AtomicBool::new(true),
        })
    }

    /// The handle of what is under way; a constant where it has ended well already.
    pub fn handle(comm: &Object<Comm>, activity: Activity) -> MPI_Request {
        match activity {
            Activity::Ended(Ok(()), status) if status.source == MPI_ANY_SOURCE => COMPLETED,
            Activity::Sent(message) => crate::sent::handle_of(message),
            activity => MPI_Request(Object::into_handle(Self::new(Some(comm.hold()), activity))),
        }
    }

    /// Whether it is persistent.
    pub fn is_persistent(&self) -> bool {
        self.is_persistent.load(Ordering::Relaxed)
    }

    /// Whether it is under way, or was not reported.
    pub fn is_active(&self) -> bool {
        !matches!(self.state.lock().activity, Activity::Idle)
    }

    /// The communicator.
    pub fn communicator(&self) -> Option<Held<Comm>> {
        self.state.lock().comm.as_ref().map(|comm| comm.hold())
    }

    /// Makes progress; returns whether it has ended.
    pub fn is_done(&self) -> bool {
        self.state.lock().advance(false)
    }

    /// Returns its result if it has ended.
    pub fn test(&self) -> Option<Report> {
        let mut state = self.state.lock();
        if !state.advance(false) {
            let is_elsewhere = matches!(state.activity, Activity::General(_) | Activity::Thread(_));
            drop(state);
            if is_elsewhere {
                crate::job::progress();
            }
            return None;
        }
        let (outcome, status) = state.report();
        Some(Report { outcome, status, comm: state.comm.as_ref().map(|comm| comm.hold()) })
    }

    /// Returns its status if it has ended, and leaves it as it is.
    pub fn peek(&self) -> Option<MPI_Status> {
        let mut state = self.state.lock();
        if !state.advance(false) {
            return None;
        }
        let mut queried = MPI_Status::EMPTY;
        Some(match &state.activity {
            Activity::Ended(_, status) => *status,
            Activity::General(general) => {
                let _ = general.query(&mut queried);
                queried
            }
            _ => queried,
        })
    }

    /// Waits for its end.
    pub fn wait(&self) -> Report {
        loop {
            let mut state = self.state.lock();
            // Another thread may end the operation, and need the lock for it.
            if !matches!(state.activity, Activity::General(_) | Activity::Thread(_)) || state.advance(false) {
                state.advance(true);
                let (outcome, status) = state.report();
                return Report { outcome, status, comm: state.comm.as_ref().map(|comm| comm.hold()) };
            }
            drop(state);
            crate::job::progress();
        }
    }

    /// Adds what a thread can wait for to the lists; returns false if there is something else.
    pub fn add_to(&self, requests: &mut Vec<RawRequest>, collectives: &mut Vec<u32>) -> bool {
        match &self.state.lock().activity {
            Activity::Send(_, request, _) | Activity::Receive(request, _) => requests.push(*request),
            Activity::Collective(begun, _) => collectives.push(*begun),
            Activity::Messages(parts, ..) => requests.extend(parts.last().map(|part| part.request)),
            Activity::Idle => {}
            Activity::Ended(..)
            | Activity::Sent(_)
            | Activity::Cancelling(..)
            | Activity::General(_)
            | Activity::Thread(_) => return false,
        }
        true
    }

    /// Starts a persistent operation.
    pub fn start(&self) -> Outcome {
        let mut state = self.state.lock();
        if !matches!(state.activity, Activity::Idle) {
            return Err(MPI_ERR_REQUEST);
        }
        let Some(start) = state.start.as_mut() else { return Err(MPI_ERR_REQUEST) };
        state.activity = start()?;
        Ok(())
    }

    /// Withdraws a receive that has matched nothing, or starts to cancel a send.
    pub fn cancel(&self) -> Outcome {
        let mut state = self.state.lock();
        let State { comm, activity, .. } = &mut *state;
        match activity {
            Activity::Receive(request, _) => {
                if comm.as_ref().is_some_and(|comm| comm.library().raw_cancel(request)) {
                    *activity = Activity::Ended(Ok(()), MPI_Status::cancelled(true));
                }
                Ok(())
            }
            Activity::Send(message, ..) | Activity::Sent(message) => {
                let message = *message;
                if let Some(comm) = comm {
                    comm.library().raw_cancel_send(message);
                    let under_way = match core::mem::replace(activity, Activity::Idle) {
                        Activity::Send(_, request, kept) => Some((request, kept)),
                        _ => None,
                    };
                    *activity = Activity::Cancelling(message, under_way, Ok(()));
                }
                Ok(())
            }
            Activity::General(general) => general.cancelled(),
            Activity::Idle => Err(MPI_ERR_REQUEST),
            _ => Ok(()),
        }
    }

    /// The operation of the program has ended.
    pub fn complete(&self) -> Outcome {
        match &mut self.state.lock().activity {
            Activity::General(general) => {
                general.is_complete = true;
                Ok(())
            }
            _ => Err(MPI_ERR_REQUEST),
        }
    }

    /// Frees the handle's object; what is under way ends by itself.
    pub fn discard(this: Held<Self>) -> Outcome {
        let mut state = this.state.lock();
        match &state.activity {
            Activity::General(general) if general.is_complete => return state.report().0,
            Activity::General(_) | Activity::Idle | Activity::Ended(..) | Activity::Sent(_) => return Ok(()),
            _ => {}
        }
        drop(state);
        reap_orphans();
        ORPHANS.lock().push(this);
        Ok(())
    }

    /// Keeps the object of a freed handle for another request.
    pub fn recycle(mut this: Held<Self>) {
        if this.is_persistent() {
            return;
        }
        if Arc::get_mut(&mut this).is_some() {
            let mut state = this.state.lock();
            (state.comm, state.activity) = (None, Activity::Idle);
            drop(state);
            let mut pool = POOL.lock();
            if pool.len() < POOLED {
                pool.push(this);
            }
        }
    }
}
