//! Files of parameters: a line `name = value` for each, whole numbers of at most 2^40, so that sums of times do not
//! overflow. Empty lines and lines that begin with `#` are comments.

use alloc::collections::BTreeMap;
use core::error::Error;
use core::fmt;
use std::path::{Path, PathBuf};

/// The largest value.
const MAX: u64 = 1 << 40;

/// The parameters of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameters {
    file: PathBuf,
    /// Value and line by name.
    values: BTreeMap<String, (u64, usize)>,
}

/// Why a file was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParameterError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0: the whole file.
    pub line: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// It cannot be read.
    Unreadable(String),
    /// The line is not `name = value`.
    NoAssignment,
    /// The value of this name is no number.
    NoNumber(String),
    /// The name was assigned before.
    Repeated(String),
    /// No parameter has this name.
    Unknown(String),
    /// The parameter of this name has no value.
    Missing(String),
    /// The parameter of this name must not be 0.
    Zero(String),
    /// The parameters contradict each other.
    Conflict(&'static str),
}

impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => to.write_str(why),
            Self::NoAssignment => to.write_str("expected name = value"),
            Self::NoNumber(name) => write!(to, "the value of {name} is not a number from 0 to 2^40"),
            Self::Repeated(name) => write!(to, "{name} has a value already"),
            Self::Unknown(name) => write!(to, "there is no parameter {name}"),
            Self::Missing(name) => write!(to, "{name} has no value"),
            Self::Zero(name) => write!(to, "{name} must be greater than 0"),
            Self::Conflict(what) => to.write_str(what),
        }
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, problem } = self;
        match line {
            0 => write!(to, "{}: {problem}", file.display()),
            _ => write!(to, "{}:{line}: {problem}", file.display()),
        }
    }
}

impl Error for ParameterError {}

impl Parameters {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or a line is malformed.
    pub fn read(file: &Path) -> Result<Self, ParameterError> {
        let unreadable = |error: std::io::Error| {
            let problem = Problem::Unreadable(error.to_string());
            ParameterError { file: file.to_owned(), line: 0, problem }
        };
        Self::parse(file, &std::fs::read_to_string(file).map_err(unreadable)?)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// A line is malformed.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ParameterError> {
        let mut values = BTreeMap::new();
        for (line, content) in (1..).zip(text.lines().map(str::trim)) {
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let refused = |problem| ParameterError { file: file.to_owned(), line, problem };
            let (name, value) = content.split_once('=').ok_or_else(|| refused(Problem::NoAssignment))?;
            let name = name.trim().to_owned();
            let number = value.trim().parse().ok().filter(|value| *value <= MAX);
            let value = number.ok_or_else(|| refused(Problem::NoNumber(name.clone())))?;
            if values.insert(name.clone(), (value, line)).is_some() {
                return Err(refused(Problem::Repeated(name)));
            }
        }
        Ok(Self { file: file.to_owned(), values })
    }

    fn refused(&self, line: usize, problem: Problem) -> ParameterError {
        ParameterError { file: self.file.clone(), line, problem }
    }

    /// The error of parameters that contradict each other.
    pub fn conflict(&self, what: &'static str) -> ParameterError {
        self.refused(0, Problem::Conflict(what))
    }

    /// Takes the value of a parameter.
    ///
    /// # Errors
    /// It has none.
    pub fn take(&mut self, name: &str) -> Result<u64, ParameterError> {
        let found = self.values.remove(name);
        found.map(|(value, _)| value).ok_or_else(|| self.refused(0, Problem::Missing(name.to_owned())))
    }

    /// Takes the value of a parameter that is not 0.
    ///
    /// # Errors
    /// It has none, or 0.
    pub fn take_positive(&mut self, name: &str) -> Result<u64, ParameterError> {
        let line = self.values.get(name).map_or(0, |(_, line)| *line);
        match self.take(name)? {
            0 => Err(self.refused(line, Problem::Zero(name.to_owned()))),
            value => Ok(value),
        }
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// A parameter was not taken: no such one exists.
    pub fn end(self) -> Result<(), ParameterError> {
        let first = self.values.iter().min_by_key(|(_, (_, line))| *line);
        first.map_or(Ok(()), |(name, (_, line))| Err(self.refused(*line, Problem::Unknown(name.clone()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(u64, u64), ParameterError> {
        let mut parameters = Parameters::parse(Path::new("some/file"), text)?;
        let values = (parameters.take("one")?, parameters.take_positive("two")?);
        parameters.end().map(|()| values)
    }

    #[test]
    fn values_are_taken_by_name() {
        assert_eq!(parsed("# comment\n\n one = 0\ntwo=7 "), Ok((0, 7)));
    }

    #[test]
    fn errors_name_file_line_and_problem() {
        for (text, error) in [
            ("one", "some/file:1: expected name = value"),
            ("one = 1\n\ntwo = x", "some/file:3: the value of two is not a number from 0 to 2^40"),
            ("one = 1099511627777", "some/file:1: the value of one is not a number from 0 to 2^40"),
            ("one = -1", "some/file:1: the value of one is not a number from 0 to 2^40"),
            ("one = 1\ntwo = 2\none = 3", "some/file:3: one has a value already"),
            ("one = 1", "some/file: two has no value"),
            ("one = 1\ntwo = 0", "some/file:2: two must be greater than 0"),
            ("one = 1\nfour = 4\ntwo = 2\nthree = 3", "some/file:2: there is no parameter four"),
        ] {
            assert_eq!(parsed(text).unwrap_err().to_string(), error);
        }
        let missing = Parameters::read(Path::new("no such file")).unwrap_err();
        assert!(missing.to_string().starts_with("no such file: "), "{missing}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(lines in proptest::collection::vec("(one|two|x)? ?=? ?[0-9-]{0,20}(#.*)?", 0..12)) {
            let _ = parsed(&lines.join("\n"));
        }
    }
}
