//! Mutants: builds the core with rules that can be broken, breaks one, and checks that its model detects it.

use core::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs, io};

use super::catalogue::MUTANTS;

/// Result of a model for a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A rule was violated, or a state cannot finish, `steps` steps from the initial state.
    Killed {
        /// Which rule.
        rule: String,
        /// Steps.
        steps: usize,
    },
    /// The model did not detect it, or was not explored completely.
    Survived(String),
}

/// A mutant, the model that had to kill it, and the verdict.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The rule that was broken.
    pub mutant: &'static str,
    /// The model.
    pub model: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// Wall clock.
    pub seconds: f64,
}

/// Why a mutant could not be tried.
#[derive(Debug)]
pub enum Error {
    /// A file could not be read or a program not be started.
    Io(io::Error),
    /// A mutant is in the list but nowhere in the core, or the other way round.
    Unlisted(String),
    /// The mutants do not build.
    Build(String),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(to),
            Self::Unlisted(name) => write!(to, "mutant {name} is missing in the core's sources or in the list"),
            Self::Build(errors) => write!(to, "the mutants do not build:\n{errors}"),
        }
    }
}

/// First word of the line with the verdict that a run of one model prints for its parent process.
pub const VERDICT: &str = "verdict:";

/// Checks that the list of mutants equals that of the core's sources.
///
/// # Errors
/// [`Error::Unlisted`] names a mutant that is missing in one of both.
pub fn check_list() -> Result<(), Error> {
    let mut sources = String::new();
    read_all(&workspace().join("core/src"), &mut sources)?;
    let found: Vec<&str> =
        sources.split("mutant!(\"").skip(1).filter_map(|rest| rest.split_once('"').map(|(name, _)| name)).collect();
    let listed = |name: &str| MUTANTS.iter().any(|(mutant, _)| *mutant == name);
    let missing = found.iter().copied().find(|name| !listed(name));
    let unknown = MUTANTS.iter().map(|(mutant, _)| *mutant).find(|mutant| !found.contains(mutant));
    missing.or(unknown).map_or(Ok(()), |name| Err(Error::Unlisted(name.to_owned())))
}

fn read_all(folder: &Path, into: &mut String) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_all(&path, into)?;
        } else {
            into.push_str(&fs::read_to_string(path)?);
        }
    }
    Ok(())
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The program `models`, built with `--cfg mutants`.
#[derive(Clone, Debug)]
pub struct Mutants {
    program: PathBuf,
}

impl Mutants {
    /// Builds it, in a target folder of its own. With `--target`, flags do not reach build scripts and macros.
    ///
    /// # Errors
    /// When it does not build, or `rustc` names no platform.
    pub fn build() -> Result<Self, Error> {
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
        let folder = target.join("mutants");
        let about = Command::new("rustc").arg("-vV").output()?;
        let about = String::from_utf8_lossy(&about.stdout);
        let platform = about.lines().find_map(|line| line.strip_prefix("host: "));
        let platform = platform.ok_or_else(|| Error::Build("rustc names no host".to_owned()))?;
        let build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(workspace())
            .args(["build", "--release", "--package", "unisono-tests", "--no-default-features", "--bin", "models"])
            .args(["--target", platform])
            .env("CARGO_TARGET_DIR", &folder)
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("RUSTFLAGS", "--cfg mutants")
            .stdin(Stdio::null())
            .output()?;
        if !build.status.success() {
            return Err(Error::Build(String::from_utf8_lossy(&build.stderr).into_owned()));
        }
        Ok(Self { program: folder.join(platform).join("release/models") })
    }

    /// Explores the model of a mutant.
    ///
    /// # Errors
    /// When the program does not start.
    pub fn try_mutant(&self, mutant: &'static str, model: &'static str) -> io::Result<Outcome> {
        let start = Instant::now();
        let run =
            Command::new(&self.program).args(["--broken", mutant, "--only", model]).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&run.stdout);
        let line = said.lines().find_map(|line| line.strip_prefix(VERDICT)).unwrap_or("nothing");
        let verdict = match (run.status.success(), parse(line.trim())) {
            (false, Some((rule, steps))) => Verdict::Killed { rule, steps },
            _ => Verdict::Survived(line.trim().to_owned()),
        };
        Ok(Outcome { mutant, model, verdict, seconds: start.elapsed().as_secs_f64() })
    }
}

/// Breaks a rule of the core in this process. Returns whether it was built for that.
#[cfg(mutants)]
pub fn break_rule(name: &str) -> bool {
    unisono_core::mutant::break_rule(name);
    true
}

/// Returns false: rules can be broken in a build with `--cfg mutants` only.
#[cfg(not(mutants))]
pub const fn break_rule(_: &str) -> bool {
    false
}

/// `violated 12 rule` and `stuck 12 rule`.
fn parse(line: &str) -> Option<(String, usize)> {
    let rest = line.strip_prefix("violated ").or_else(|| line.strip_prefix("stuck "))?;
    let (steps, rule) = rest.split_once(' ')?;
    Some((rule.to_owned(), steps.parse().ok()?))
}
