//! Info objects: texts by key, in the order in which they were set.

use core::ffi::c_int;
use std::ffi::CString;
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::abi::*;
use crate::handle::{Held, Kind, Object};

/// Keys and values.
#[derive(Debug, Default)]
pub struct Info(pub Mutex<Vec<(CString, CString)>>);

impl Kind for Info {
    const MARK: u32 = 0x696e_666f;
    const INVALID: c_int = MPI_ERR_INFO;

    fn predefined(handle: usize) -> Option<&'static Object<Self>> {
        static ENVIRONMENT: OnceLock<Held<Info>> = OnceLock::new();
        (handle == MPI_INFO_ENV.0).then(|| &**ENVIRONMENT.get_or_init(|| Object::new(Info::environment())))
    }
}

impl Info {
    /// What is known of how the program was started.
    pub fn environment() -> Self {
        let mut arguments = std::env::args_os().map(|argument| argument.into_encoded_bytes());
        let command = arguments.next().unwrap_or_default();
        let rest = arguments.collect::<Vec<_>>().join(&b' ');
        let directory = std::env::current_dir().unwrap_or_default().into_os_string().into_encoded_bytes();
        let level = b"MPI_THREAD_MULTIPLE".to_vec();
        let all = [("command", command), ("argv", rest), ("wdir", directory), ("thread_level", level)];
        let text = |(key, value): (&str, Vec<u8>)| Some((CString::new(key).ok()?, CString::new(value).ok()?));
        Self(Mutex::new(all.into_iter().filter_map(text).collect()))
    }

    /// Sets a value.
    pub fn set(&self, key: CString, value: CString) {
        let mut all = self.0.lock();
        match all.iter_mut().find(|(other, _)| *other == key) {
            Some(entry) => entry.1 = value,
            None => all.push((key, value)),
        }
    }

    /// A copy.
    pub fn duplicate(&self) -> Self {
        Self(Mutex::new(self.0.lock().clone()))
    }
}
