//! The file of tuning tables: a table for each signature of a job.
//!
//! ```text
//! unisono tuning 3
//! for version=0.1.0 device=udp processors=2 nodes=1 ranks-per-node=4
//! # carrier  collective  ranks  bytes    choice
//! udp/2      allreduce   4      0-2895   doubling
//! for version=0.1.0 device=shm processors=2 nodes=1 ranks-per-node=4
//! rings/2    allreduce   4      2896-    knomial:k=1,segments=4
//! end
//! ```
//! Version 2 is read, too: its lines are not composed over hosts. `for any` in place of a signature: in every job for which the file has no other table.

use alloc::sync::Arc;
use core::fmt;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::path::Path;

use super::signature::{JobSignature, SignatureError, SignatureMismatch};
use super::table::{TuningLine, TuningLineError, TuningTable, TuningTableError};

/// How the first line begins; the version follows.
const BEGINNING: &str = "unisono tuning ";
/// The version of the format that is written.
const VERSION: &str = "3";
/// The version that is read, too: without lines that are composed over hosts.
const FLAT_VERSION: &str = "2";
/// The last line, without which the file is truncated.
const END: &str = "end";
/// Largest size of a file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The tables of a file, by signature. `None`: of every job.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TableFile {
    tables: Vec<(Option<JobSignature>, Arc<TuningTable>)>,
}

impl TableFile {
    /// A file of these tables.
    ///
    /// ```
    /// use unisono::environment::tuning::{TableFile, TuningTable};
    ///
    /// assert!(TableFile::new(vec![(None, TuningTable::default())]).is_ok());
    /// ```
    ///
    /// # Errors
    /// Two of them have the same signature, or a line is composed over hosts where the job has no groups of them.
    pub fn new(tables: Vec<(Option<JobSignature>, TuningTable)>) -> Result<Self, TableFileError> {
        for (n, (signature, table)) in tables.iter().enumerate() {
            if let Some(signature) = signature.as_ref().filter(|job| table.names_hosts() && job.hosts().is_none()) {
                return Err(TableFileError::NoHosts { signature: signature.to_string() });
            }
            if tables.iter().take(n).any(|(other, _)| other == signature) {
                return Err(TableFileError::Duplicate { signature: scope(signature.as_ref()) });
            }
        }
        Ok(Self { tables: tables.into_iter().map(|(signature, table)| (signature, Arc::new(table))).collect() })
    }

    /// Parses a file.
    ///
    /// ```
    /// assert!(unisono::environment::tuning::TableFile::parse("no table").is_err());
    /// ```
    ///
    /// # Errors
    /// [`TableFileError`].
    pub fn parse(text: &str) -> Result<Self, TableFileError> {
        let lines = (1..).zip(text.lines());
        let said = |line: &'_ str| line.split_once('#').map_or(line, |(said, _)| said).trim().to_owned();
        let mut lines = lines.map(|(number, line)| (number, said(line))).filter(|(_, line)| !line.is_empty());
        let (_, first) = lines.next().ok_or(TableFileError::Beginning)?;
        let is_flat = match first.strip_prefix(BEGINNING) {
            None => return Err(TableFileError::Beginning),
            Some(version @ (VERSION | FLAT_VERSION)) => version == FLAT_VERSION,
            Some(given) => return Err(TableFileError::Version { given: given.to_owned() }),
        };
        let mut tables: Vec<(Option<JobSignature>, Vec<TuningLine>)> = Vec::new();
        let mut is_complete = false;
        for (number, line) in lines {
            if is_complete {
                return Err(TableFileError::AfterEnd { number });
            }
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
            match (word == "for").then_some(rest.trim()) {
                Some("any") => tables.push((None, Vec::new())),
                Some(signature) => {
                    let signature = signature.parse().map_err(|reason| TableFileError::Signature { number, reason })?;
                    tables.push((Some(signature), Vec::new()));
                }
                None if line == END => is_complete = true,
                None => {
                    let (_, lines) = tables.last_mut().ok_or(TableFileError::NoSignature { number })?;
                    let line = TuningLine::parse(&line).map_err(|reason| TableFileError::Line { number, reason })?;
                    if is_flat && line.algorithm.hosts().is_some() {
                        return Err(TableFileError::Composed { number });
                    }
                    lines.push(line);
                }
            }
        }
        if !is_complete {
            return Err(TableFileError::Truncated);
        }
        let tables = tables.into_iter().map(|(signature, lines)| Ok((signature, TuningTable::new(lines)?)));
        Self::new(tables.collect::<Result<_, TuningTableError>>()?)
    }

    /// Reads a file.
    ///
    /// ```
    /// use std::path::Path;
    ///
    /// assert!(unisono::environment::tuning::TableFile::load(Path::new("/nowhere/table")).is_err());
    /// ```
    ///
    /// # Errors
    /// [`TableFileError`].
    pub fn load(path: &Path) -> Result<Self, TableFileError> {
        let unread = |error: io::Error| TableFileError::Unreadable { reason: error.to_string() };
        let mut text = String::new();
        File::open(path).map_err(unread)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unread)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(TableFileError::Unreadable { reason: format!("it has more than {FILE_BYTES_MAX} bytes") });
        }
        Self::parse(&text)
    }

    /// The table of a job with this signature.
    ///
    /// ```
    /// use unisono::environment::DeviceChoice;
    /// use unisono::environment::tuning::{JobSignature, TableFile, TuningTable};
    ///
    /// let [one, other] = [1, 2].map(|ranks| JobSignature::here(&vec![0; ranks], |_| true, DeviceChoice::Udp));
    /// let file = TableFile::new(vec![(Some(one.clone()), TuningTable::default())])?;
    /// assert!(file.table_for(&one).is_ok() && file.table_for(&other).is_err());
    /// # Ok::<(), unisono::environment::tuning::TableFileError>(())
    /// ```
    ///
    /// # Errors
    /// The file has none, and none of every job.
    pub fn table_for(&self, here: &JobSignature) -> Result<Arc<TuningTable>, SignatureMismatch> {
        let of = |wanted: Option<&JobSignature>| {
            self.tables.iter().find(|(signature, _)| signature.as_ref() == wanted).map(|(_, table)| table.clone())
        };
        of(Some(here)).or_else(|| of(None)).ok_or_else(|| {
            let others = self.tables.iter().filter_map(|(signature, _)| Some(signature.as_ref()?.differences(here)));
            SignatureMismatch { differences: others.min_by_key(Vec::len).unwrap_or_default() }
        })
    }

    /// The table of every job, if there is one.
    pub(super) fn table_for_any_job(&self) -> Option<Arc<TuningTable>> {
        self.tables.iter().find(|(signature, _)| signature.is_none()).map(|(_, table)| table.clone())
    }
}

fn scope(signature: Option<&JobSignature>) -> String {
    signature.map_or_else(|| "any".to_owned(), ToString::to_string)
}

impl fmt::Display for TableFile {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(to, "{BEGINNING}{VERSION}")?;
        let mut tables = self.tables.iter();
        tables.try_for_each(|(signature, table)| write!(to, "for {}\n{table}", scope(signature.as_ref())))?;
        writeln!(to, "{END}")
    }
}

/// Why a text is not a file of tuning tables.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableFileError {
    /// The file cannot be read.
    #[error("the table cannot be read: {reason}")]
    Unreadable {
        /// The error.
        reason: String,
    },
    /// Its first line is not that of a table.
    #[error("a table must begin with the line \"{BEGINNING}{VERSION}\"")]
    Beginning,
    /// It is of another version.
    #[error(
        "the table has version {given:?}, and this program reads {FLAT_VERSION} and {VERSION}: measure anew with `unisono tune`"
    )]
    Version {
        /// The version.
        given: String,
    },
    /// Its last line is missing.
    #[error("the table is truncated: it has no line \"{END}\"")]
    Truncated,
    /// A line is composed over hosts, which this version does not have.
    #[error("line {number}: a table of version {FLAT_VERSION} has no line that is composed over hosts")]
    Composed {
        /// The line number, from 1 on.
        number: u32,
    },
    /// Lines follow the last one.
    #[error("line {number}: nothing may follow \"{END}\"")]
    AfterEnd {
        /// The line number, from 1 on.
        number: u32,
    },
    /// A line precedes all signatures.
    #[error("line {number}: expected the job that the table is for: \"for any\", or \"for \" and a signature")]
    NoSignature {
        /// The line number, from 1 on.
        number: u32,
    },
    /// A signature is not valid.
    #[error("line {number}: {reason}")]
    Signature {
        /// The line number, from 1 on.
        number: u32,
        /// The error.
        reason: SignatureError,
    },
    /// Two tables are for the same jobs.
    #[error("two tables are for {signature}")]
    Duplicate {
        /// Their signature.
        signature: String,
    },
    /// A line is composed over hosts, in a table for jobs that have no groups of them.
    #[error("a job of {signature} has not several ranks on each of several hosts, over which a line is composed")]
    NoHosts {
        /// Their signature.
        signature: String,
    },
    /// A line is not valid.
    #[error("line {number}: {reason}")]
    Line {
        /// The line number, from 1 on.
        number: u32,
        /// The error.
        reason: TuningLineError,
    },
    /// The lines of a table contradict each other.
    #[error(transparent)]
    Table(#[from] TuningTableError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FOUR: &str = "version=1 device=udp processors=2 nodes=1 ranks-per-node=4";
    const TEXT: &str = "unisono tuning 3\n\
                        for version=1 device=udp processors=2 nodes=1 ranks-per-node=4\nudp allreduce 4 0-2895 doubling\n\
                        for version=1 device=shm processors=2 nodes=1 ranks-per-node=4\nrings allreduce 4 0- ring\n\
                        end\n";

    fn refused(text: &str) -> String {
        TableFile::parse(text).expect_err("refused").to_string()
    }

    fn fitted(text: &str, here: &str) -> Result<String, String> {
        let fit = TableFile::parse(text).expect("tables").table_for(&here.parse().expect("a signature"));
        fit.map(|table| table.to_string()).map_err(|mismatch| mismatch.to_string())
    }

    #[test]
    fn a_job_finds_the_table_of_its_signature() {
        let commented = TEXT.replace('\n', "  # said\n\n");
        assert_eq!(TableFile::parse(&commented).expect("tables").to_string(), TEXT);
        assert_eq!(fitted(TEXT, FOUR).as_deref(), Ok("udp allreduce 4 0-2895 doubling\n"));
        let shm = FOUR.replace("udp", "shm");
        assert_eq!(fitted(TEXT, &shm).as_deref(), Ok("rings allreduce 4 0- ring\n"));
        // That of every job is for the others, wherever it is in the file.
        let any = TEXT.replacen("for", "for any\nudp scan 2- 0- ring\nfor", 1);
        assert_eq!(fitted(&any, FOUR).as_deref(), Ok("udp allreduce 4 0-2895 doubling\n"));
        let other = FOUR.replace("nodes=1", "nodes=2");
        assert_eq!(fitted(&any, &other).as_deref(), Ok("udp scan 2- 0- ring\n"));
    }

    #[test]
    fn a_table_of_another_machine_or_job_is_refused_with_what_differs() {
        for (from, to) in [
            ("version=1", "version=1.1"),
            ("device=udp", "device=verbs"),
            ("processors=2", "processors=64"),
            ("nodes=1", "nodes=3"),
            ("ranks-per-node=4", "ranks-per-node=5"),
        ] {
            let said = fitted(TEXT, &FOUR.replace(from, to)).expect_err("refused");
            let expected = format!(
                "the table was measured in another job or on another machine: {from} there, {to} here: measure this job \
                 with `unisono tune`"
            );
            assert_eq!(said, expected);
        }
        let two = FOUR.replace("processors=2 nodes=1", "processors=8 nodes=2");
        let said = fitted(TEXT, &two).expect_err("refused");
        assert!(said.contains("processors=2 there, processors=8 here; nodes=1 there, nodes=2 here: "), "{said}");
        assert!(fitted("unisono tuning 3\nend\n", FOUR).is_err(), "no table");
    }

    #[test]
    fn other_versions_are_refused() {
        let beginning = "a table must begin with the line \"unisono tuning 3\"";
        for text in
            ["", "\n", "unisono", "unisono tuning", "udp barrier 2- 0- knomial\n", "{}", "\u{feff}unisono tuning 3\n"]
        {
            assert_eq!(refused(text), beginning, "{text:?}");
        }
        for version in ["1", "4", "03", "3 ?", "three"] {
            let said = refused(&TEXT.replacen('3', version, 1));
            assert!(
                said.starts_with(&format!("the table has version {version:?}, and this program reads 2 and 3:")),
                "{said}"
            );
        }
    }

    #[test]
    fn tables_of_the_version_before_are_flat() {
        let flat = TEXT.replacen('3', "2", 1);
        assert_eq!(TableFile::parse(&flat).expect("tables").to_string(), TEXT);
        let composed = "unisono tuning 3\nfor any\nudp scan 4 0-8 host:slots+ring\nudp scan 4 9- host+ring\nend\n";
        assert_eq!(TableFile::parse(composed).expect("tables").to_string(), composed);
        let said = refused(&composed.replacen('3', "2", 1));
        assert_eq!(said, "line 3: a table of version 2 has no line that is composed over hosts");
    }

    #[test]
    fn lines_over_hosts_that_a_job_does_not_have_are_refused() {
        let table = |job: &str| format!("unisono tuning 3\nfor {job}\nudp scan 4 0- host+ring\nend\n");
        for (nodes, ranks) in [(1, 4), (4, 1)] {
            let job = format!("version=1 device=shm+udp processors=2 nodes={nodes} ranks-per-node={ranks}");
            let said = refused(&table(&job));
            assert!(
                said.starts_with(&format!("a job of {job} has not several ranks on each of several hosts")),
                "{said}"
            );
        }
        assert!(TableFile::parse(&table(&FOUR.replace("nodes=1", "nodes=2"))).is_ok());
    }

    #[test]
    fn truncated_tables_are_refused() {
        let whole = TEXT.trim_end().len();
        for (length, _) in TEXT.char_indices().take_while(|(at, _)| *at < whole) {
            let part = TEXT.get(..length).expect("a part");
            assert!(TableFile::parse(part).is_err(), "{part:?}");
        }
        let (part, _) = TEXT.split_once("end").expect("an end");
        assert_eq!(refused(part), "the table is truncated: it has no line \"end\"");
    }

    #[test]
    fn invalid_lines_are_refused_with_their_number() {
        let at_two = |line: &str| refused(&format!("unisono tuning 3\n{line}\nend\n"));
        assert!(at_two("udp scan 4 0- ring").starts_with("line 2: expected the job that the table is for"));
        assert!(at_two("for version=1").starts_with("line 2: a signature has one valid value for device="));
        let in_table = |line: &str| refused(&TEXT.replacen("end", &format!("{line}\nend"), 1));
        let words = "line 6: expected carrier, collective, ranks, bytes and choice, not 4 words";
        assert_eq!(in_table("udp allreduce 4 0-"), words);
        assert!(in_table("rings allreduce 4 8 ring").contains("overlaps with"));
        assert_eq!(in_table(&format!("for {FOUR}")), format!("two tables are for {FOUR}"));
        assert_eq!(in_table("for any\nfor any"), "two tables are for any");
        assert_eq!(refused(&format!("{TEXT}end\n")), "line 7: nothing may follow \"end\"");
    }

    #[test]
    fn unreadable_files_are_refused() {
        let load = |path: &Path| TableFile::load(path).expect_err("refused").to_string();
        assert!(load(Path::new("/nonexistent/table")).starts_with("the table cannot be read: "));
        assert!(load(Path::new("/dev/zero")).contains("it has more than 1048576 bytes"), "an endless file");
        assert!(load(Path::new("/")).starts_with("the table cannot be read: "), "a directory");
        let garbage = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(garbage.path(), [0xff, 0xfe, 0, 1]).expect("written");
        assert!(load(garbage.path()).starts_with("the table cannot be read: "), "not UTF-8");
    }

    proptest! {
        #[test]
        fn no_text_panics(
            text in "(unisono tuning [123]\n)?(for any\n)?((udp|udp/2-?|rings|x) (allreduce|barrier) [0-9-]{0,4} [0-9-]{0,4} (host(:slots)?[+])?(ring|knomial)\n){0,3}.{0,20}(end\n)?",
        ) {
            if let Ok(file) = TableFile::parse(&text) {
                prop_assert_eq!(TableFile::parse(&file.to_string()), Ok(file));
            }
        }

        /// A changed byte is refused, or leaves tables that are printed as they are parsed.
        #[test]
        fn no_changed_byte_panics(at in 0..TEXT.len(), byte: u8) {
            let mut text = TEXT.as_bytes().to_vec();
            text[at] = byte;
            if let Ok(file) = TableFile::parse(&String::from_utf8_lossy(&text)) {
                prop_assert_eq!(TableFile::parse(&file.to_string()), Ok(file));
            }
        }
    }
}
