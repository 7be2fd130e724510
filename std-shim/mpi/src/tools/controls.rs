//! Control variables: the settings, by the names of their variables. They are texts, and an empty text is the default. A
//! program writes them until it joins its job.

use alloc::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::sync::LazyLock;

use parking_lot::Mutex;
use unisono::environment::PREFIX;
use unisono::environment::catalogue::{Topic, VARIABLES, Variable};
use unisono::{Settings, SettingsError};

use crate::abi::*;
use crate::error::Outcome;

/// Bytes of the longest value, with its zero.
pub const LONGEST: usize = 1024;

/// The values that the program has written, by name, and those of the job that it has joined.
#[derive(Debug)]
struct Values {
    written: BTreeMap<&'static str, String>,
    joined: Option<Vec<(&'static str, String)>>,
}

static VALUES: Mutex<Values> = Mutex::new(Values { written: BTreeMap::new(), joined: None });

/// All control variables: secrets are none.
pub fn all() -> &'static [Variable] {
    static ALL: LazyLock<Vec<Variable>> = LazyLock::new(|| {
        let is_secret = |variable: &&Variable| variable.name.starts_with("SECRET");
        VARIABLES.iter().filter(|variable| !is_secret(variable)).copied().collect()
    });
    &ALL
}

/// The name of a control variable.
pub fn name(variable: &Variable) -> String {
    format!("{PREFIX}{}", variable.name)
}

/// Whether a program may write it.
const fn is_writable(variable: &Variable) -> bool {
    !matches!(variable.topic, Topic::Job | Topic::Launcher)
}

/// Whether its value is local, equal on all ranks, or what the starter gave.
pub const fn scope(variable: &Variable) -> i32 {
    match variable.is_common {
        _ if !is_writable(variable) => MPI_T_SCOPE_CONSTANT,
        true => MPI_T_SCOPE_ALL_EQ,
        false => MPI_T_SCOPE_LOCAL,
    }
}

impl Values {
    /// The settings: of the environment, except for those that the program has written.
    fn settings(&self) -> Result<Settings, SettingsError> {
        let written = |name: &str| name.strip_prefix(PREFIX).is_some_and(|name| self.written.contains_key(name));
        let inherited = env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(written));
        let own = self.written.iter().filter(|(_, value)| !value.is_empty());
        let own = own.map(|(name, value)| (OsString::from(format!("{PREFIX}{name}")), OsString::from(value)));
        Settings::from_variables(inherited.chain(own))
    }
}

/// The settings to join a job with.
///
/// # Errors
/// As of [`Settings::from_environment`].
pub fn settings() -> Result<Settings, SettingsError> {
    VALUES.lock().settings()
}

/// The process has joined a job with these settings.
pub fn set_joined(settings: &Settings) {
    VALUES.lock().joined = Some(settings.variables());
}

/// The value of a control variable.
pub fn read(variable: &Variable) -> String {
    let values = VALUES.lock();
    let read = match &values.joined {
        Some(joined) => joined.clone(),
        None => values.settings().map(|settings| settings.variables()).unwrap_or_default(),
    };
    let found = read.into_iter().find(|(name, _)| *name == variable.name).map(|(_, value)| value);
    // What only the launcher reads.
    let inherited = || Some(env::var_os(name(variable))?.to_string_lossy().into_owned());
    found.or_else(|| inherited().filter(|_| !is_writable(variable))).unwrap_or_default()
}

/// Writes a control variable.
///
/// # Errors
/// It cannot be set, or not any more; or the value is wrong.
pub fn write(variable: &Variable, value: &str) -> Outcome {
    if !is_writable(variable) {
        return Err(MPI_T_ERR_CVAR_SET_NEVER);
    }
    let mut values = VALUES.lock();
    if values.joined.is_some() {
        return Err(MPI_T_ERR_CVAR_SET_NOT_NOW);
    }
    if value.len() >= LONGEST {
        return Err(MPI_T_ERR_INVALID);
    }
    let former = values.written.insert(variable.name, value.to_owned());
    if values.settings().is_ok() {
        return Ok(());
    }
    match former {
        Some(former) => values.written.insert(variable.name, former),
        None => values.written.remove(variable.name),
    };
    Err(MPI_T_ERR_INVALID)
}
