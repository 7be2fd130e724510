//! Info objects: texts by key, in the order in which they were set.

use alloc::ffi::CString;
use core::ffi::c_int;
use std::sync::OnceLock;

use parking_lot::Mutex;
use unisono::Settings;
use unisono::environment::own_location;

use crate::abi::*;
use crate::handle::{Held, Kind, Object};
use crate::hardware::Resource;

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

    /// The hardware resources, and whether this process is restricted to one of each.
    pub fn hardware() -> Self {
        let given = Settings::from_environment().map(|settings| settings.locality.location).unwrap_or_default();
        let at = given.or(own_location());
        let is_restricted = |resource: &Resource| if resource.unit(&at).is_some() { c"true" } else { c"false" };
        let entry = |resource: Resource| (resource.name().to_owned(), is_restricted(&resource).to_owned());
        Self(Mutex::new(Resource::ALL.into_iter().map(entry).collect()))
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
