//! A client of PMIx: the few functions of `libpmix.so.2` that a job needs, which is loaded when a starter asks for it.

use alloc::ffi::CString;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::time::Duration;

use libloading::{Library, Symbol};

use crate::{NodePosition, StarterError, Task};

/// The name of the library, of PMIx 3 to 5.
const LIBRARY: &str = "libpmix.so.2";
/// The key under which rank 0 publishes its text.
const KEY: &CStr = c"unisono";

const SUCCESS: c_int = 0;
/// `PMIX_ERR_TIMEOUT`.
const TIMEOUT: c_int = -24;
/// `PMIX_GLOBAL`: a value for the ranks of all nodes.
const GLOBAL: u8 = 3;
/// `PMIX_RANK_WILDCARD`: what is true of the whole job.
const WHOLE_JOB: u32 = u32::MAX - 1;
/// Types of values.
const STRING: u16 = 3;
const INT: u16 = 6;
const UINT16: u16 = 13;
const UINT32: u16 = 14;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Process {
    namespace: [c_char; 256],
    rank: u32,
}

/// What a value is; larger than the union of any version.
#[repr(C)]
union Data {
    string: *mut c_char,
    int: c_int,
    uint16: u16,
    uint32: u32,
    room: [u64; 7],
}

/// `pmix_value_t`.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

/// `pmix_info_t`, of which one is passed at a time.
#[repr(C)]
struct Information {
    key: [u8; 512],
    flags: u32,
    value: Value,
}

impl Information {
    /// `PMIX_TIMEOUT`: whole seconds.
    fn timeout(timeout: Duration) -> Self {
        let mut key = [0; 512];
        key.iter_mut().zip(b"pmix.timeout").for_each(|(into, from)| *into = *from);
        let mut data = Data { room: [0; 7] };
        data.int = timeout.as_secs().clamp(1, 1 << 30) as c_int;
        Self { key, flags: 0, value: Value { kind: INT, data } }
    }
}

type Init = unsafe extern "C" fn(*mut Process, *const c_void, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Process, *const c_char, *const c_void, usize, *mut *mut Value) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *const Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Process, usize, *const Information, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *const Process, usize) -> c_int;

/// The functions of the library, which stays loaded: it has threads.
#[derive(Clone, Copy, Debug)]
struct Functions {
    init: Init,
    get: Get,
    put: Put,
    commit: Commit,
    fence: Fence,
    finalize: Finalize,
    abort: Abort,
}

impl Functions {
    fn load() -> Result<Self, libloading::Error> {
        // SAFETY: libpmix's initializers have no preconditions.
        let library: &'static Library = Box::leak(Box::new(unsafe { Library::new(LIBRARY) }?));
        Ok(Self {
            init: function(library, c"PMIx_Init")?,
            get: function(library, c"PMIx_Get")?,
            put: function(library, c"PMIx_Put")?,
            commit: function(library, c"PMIx_Commit")?,
            fence: function(library, c"PMIx_Fence")?,
            finalize: function(library, c"PMIx_Finalize")?,
            abort: function(library, c"PMIx_Abort")?,
        })
    }
}

/// A function of the library, of the type that its field in [`Functions`] has.
fn function<F: Copy + 'static>(library: &'static Library, name: &'static CStr) -> Result<F, libloading::Error> {
    // SAFETY: the types above are those of the PMIx Standard for the names that `Functions::load` pairs them with.
    let found: Symbol<'static, F> = unsafe { library.get(name.to_bytes_with_nul()) }?;
    Ok(*found)
}

/// This process as a client of its starter.
#[derive(Debug)]
pub(crate) struct Client {
    functions: Functions,
    own: Process,
    timeout: Duration,
}

fn check(function: &'static str, status: c_int) -> Result<(), StarterError> {
    if status == SUCCESS { Ok(()) } else { Err(StarterError::Pmix { function, status }) }
}

impl Client {
    pub(crate) fn new(timeout: Duration) -> Result<Self, StarterError> {
        let functions = Functions::load().map_err(|error| StarterError::NoLibrary(error.to_string()))?;
        let mut own = Process { namespace: [0; 256], rank: 0 };
        // SAFETY: `own` is a pmix_proc_t to be written; no information is given.
        check("PMIx_Init", unsafe { (functions.init)(&raw mut own, ptr::null(), 0) })?;
        Ok(Self { functions, own, timeout })
    }

    /// Rank, size and the place on the node.
    pub(crate) fn task(&self) -> Result<Task, StarterError> {
        let size = self.number(WHOLE_JOB, c"pmix.job.size").ok_or(StarterError::Value("pmix.job.size"))?;
        let position = || {
            Some(NodePosition {
                node: self.number(self.own.rank, c"pmix.nodeid")?,
                rank: self.number(self.own.rank, c"pmix.lrank")?,
                size: self.number(WHOLE_JOB, c"pmix.local.size")?,
            })
        };
        Task::new(self.own.rank, size, position())
    }

    pub(crate) fn broadcast(&self, text: Option<&str>) -> Result<String, StarterError> {
        if let Some(text) = text {
            let text = CString::new(text).map_err(|_| StarterError::Value("unisono"))?;
            let mut data = Data { room: [0; 7] };
            data.string = text.as_ptr().cast_mut();
            let value = Value { kind: STRING, data };
            // SAFETY: key and value are read, and copied, during the call.
            check("PMIx_Put", unsafe { (self.functions.put)(GLOBAL, KEY.as_ptr(), &raw const value) })?;
            // SAFETY: has no preconditions.
            check("PMIx_Commit", unsafe { (self.functions.commit)() })?;
        }
        let timeout = Information::timeout(self.timeout);
        // SAFETY: no processes: all of the job. One piece of information, which is read during the call.
        let status = unsafe { (self.functions.fence)(ptr::null(), 0, &raw const timeout, 1) };
        if status == TIMEOUT {
            return Err(StarterError::Late(self.timeout));
        }
        check("PMIx_Fence", status)?;
        self.get(0, KEY, text_of)?.ok_or(StarterError::Value("unisono"))
    }

    /// A number that the starter knows of a rank or the job. `None` if it does not know it.
    fn number(&self, rank: u32, key: &CStr) -> Option<u32> {
        self.get(rank, key, number_of).ok().flatten()
    }

    /// A value of a rank, read by `read` before it is freed.
    fn get<T>(&self, rank: u32, key: &CStr, read: unsafe fn(&Value) -> Option<T>) -> Result<Option<T>, StarterError> {
        let of = Process { rank, ..self.own };
        let mut value: *mut Value = ptr::null_mut();
        // SAFETY: process and key are read during the call; `value` is written.
        let status = unsafe { (self.functions.get)(&raw const of, key.as_ptr(), ptr::null(), 0, &raw mut value) };
        check("PMIx_Get", status)?;
        // SAFETY: after success the library has allocated a pmix_value_t, and only its first word and the part of the
        // union that its type names are read.
        let Some(found) = (unsafe { value.as_ref() }) else { return Ok(None) };
        // SAFETY: it is a value of the library.
        let result = unsafe { read(found) };
        if found.kind == STRING {
            // SAFETY: of this type, the union is a text.
            let text = unsafe { found.data.string };
            // SAFETY: values of the library are of malloc (PMIX_VALUE_RELEASE), and this one is not used any more.
            unsafe { libc::free(text.cast()) };
        }
        // SAFETY: the library allocated the value with malloc and gave it away; no part of it is used any more.
        unsafe { libc::free(value.cast()) };
        Ok(result)
    }

    pub(crate) fn finalize(self) {
        // SAFETY: no information. A starter that is gone needs no notification.
        unsafe { (self.functions.finalize)(ptr::null(), 0) };
    }

    pub(crate) fn abort(&self, code: i32) {
        let text = c"the program ended the job".as_ptr();
        // SAFETY: the text is read during the call; no processes: all of the job.
        unsafe { (self.functions.abort)(code, text, ptr::null(), 0) };
    }
}

/// # Safety
/// The value is the library's.
unsafe fn number_of(value: &Value) -> Option<u32> {
    match value.kind {
        // SAFETY: of this type, the union is such a number.
        UINT16 => Some(unsafe { value.data.uint16 }.into()),
        // SAFETY: a value of this type holds a number of 32 bits.
        UINT32 => Some(unsafe { value.data.uint32 }),
        _ => None,
    }
}

/// # Safety
/// The value is the library's.
unsafe fn text_of(value: &Value) -> Option<String> {
    if value.kind != STRING {
        return None;
    }
    // SAFETY: of this type, the union is a text or NULL.
    let text = unsafe { value.data.string };
    if text.is_null() {
        return None;
    }
    // SAFETY: it ends with a zero byte.
    unsafe { CStr::from_ptr(text) }.to_str().ok().map(str::to_owned)
}
