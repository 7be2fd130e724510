//! The measurements of a run that writes a table: a file of one JSON object per line, from which an interrupted run
//! continues.

use core::error::Error;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use unisono::environment::tuning::JobSignature;

/// The version of the file and of what is measured.
const VERSION: &str = concat!("unisono ", env!("CARGO_PKG_VERSION"));

/// How every line begins.
const BEGINNING: &str = "{\"executed\":\"";

/// What a job measured.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measurement {
    /// Nanoseconds of a call.
    pub(super) time_ns: f64,
    /// Ranks that share a processor.
    pub(super) sharing: u64,
    /// The signature of the job.
    pub(super) signature: JobSignature,
    /// The executed algorithm; empty: there is no record of it.
    pub(super) executed: String,
}

/// The measurements that were made, by job, call and algorithm, and round.
#[derive(Debug, Default)]
pub(super) struct Record {
    known: HashMap<(String, String, u32), Measurement>,
    file: Option<(File, PathBuf)>,
}

impl Record {
    /// That of the table `output`, with what an earlier run has measured.
    ///
    /// # Errors
    /// The file cannot be read or written, or is no record of this version.
    pub(super) fn open(output: &Path) -> Result<Self, Box<dyn Error>> {
        let mut name = output.as_os_str().to_owned();
        name.push(".measured");
        let path = PathBuf::from(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{}: {error}", path.display()).into()),
        };
        let foreign = || format!("{} has no measurements of {VERSION}: remove it to measure anew", path.display());
        let mut known = HashMap::new();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let (lines, rest) = text.split_at(whole);
        // A run that was killed may have left part of a line.
        if !rest.starts_with(BEGINNING) && !BEGINNING.starts_with(rest) {
            return Err(foreign().into());
        }
        for line in lines.lines() {
            let (key, measured) = parse(line).ok_or_else(foreign)?;
            known.insert(key, measured);
        }
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.and_then(|file| file.set_len(whole as u64).map(|()| file));
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { known, file: Some((file, path)) })
    }

    /// What a job has measured in this round.
    pub(super) fn find(&self, job: &str, what: &str, round: u32) -> Option<Measurement> {
        self.known.get(&(job.to_owned(), what.to_owned(), round)).cloned()
    }

    /// Adds what a job has measured.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(&mut self, job: &str, what: &str, round: u32, measured: &Measurement) -> io::Result<()> {
        let Measurement { time_ns, sharing, signature, executed } = measured;
        let line = json!({
            "version": VERSION, "job": job, "what": what, "round": round, "time_ns": time_ns, "sharing": sharing,
            "signature": signature.to_string(), "executed": executed,
        });
        self.known.insert((job.to_owned(), what.to_owned(), round), measured.clone());
        self.file.as_mut().map_or(Ok(()), |(file, _)| file.write_all(format!("{line}\n").as_bytes()))
    }

    /// Removes the file: the table is complete.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(super) fn remove(self) -> io::Result<()> {
        self.file.map_or(Ok(()), |(_, path)| fs::remove_file(path))
    }
}

fn parse(line: &str) -> Option<((String, String, u32), Measurement)> {
    let facts: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| Some(facts.get(name)?.as_str()?.to_owned());
    let number = |name: &str| facts.get(name)?.as_u64();
    let key = (text("job")?, text("what")?, u32::try_from(number("round")?).ok()?);
    let (time_ns, signature) = (facts.get("time_ns")?.as_f64()?, text("signature")?.parse().ok()?);
    let (sharing, executed) = (number("sharing")?, text("executed")?);
    let measured = Measurement { time_ns, sharing, signature, executed };
    (text("version")? == VERSION).then_some((key, measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_continues_where_it_ended() {
        let directory = tempfile::tempdir().expect("a directory");
        let output = directory.path().join("my.tuning");
        let path = directory.path().join("my.tuning.measured");
        let signature = "version=1 device=udp processors=2 nodes=1 ranks-per-node=4".parse().expect("a signature");
        let executed = "barrier by knomial".to_owned();
        let measured = Measurement { time_ns: 1500.0, sharing: 2, signature, executed };
        let mut record = Record::open(&output).expect("a new record");
        record.add("-n 4", "udp barrier 0 knomial", 1, &measured).expect("written");
        record.add("-n 4", "udp barrier 0 doubling", 1, &measured).expect("written");
        assert_eq!(record.find("-n 4", "udp barrier 0 doubling", 1).as_ref(), Some(&measured));
        // Killed amid a line.
        let text = fs::read_to_string(&path).expect("text");
        fs::write(&path, &text[..text.len() - 10]).expect("written");
        let mut record = Record::open(&output).expect("a record");
        assert_eq!(record.find("-n 4", "udp barrier 0 knomial", 1).as_ref(), Some(&measured));
        for (job, what, round) in [
            ("-n 4", "udp barrier 0 doubling", 1),
            ("-n 4", "udp barrier 0 knomial", 2),
            ("-n 4 --nodes 2", "udp barrier 0 knomial", 1),
        ] {
            assert_eq!(record.find(job, what, round), None);
        }
        record.add("-n 4", "udp barrier 0 doubling", 1, &measured).expect("written");
        let record = Record::open(&output).expect("a record");
        assert_eq!(record.find("-n 4", "udp barrier 0 doubling", 1), Some(measured));
        record.remove().expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn other_files_are_refused_and_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let output = directory.path().join("my.tuning");
        let path = directory.path().join("my.tuning.measured");
        for text in
            ["my thesis", "my thesis\n", "{\"executed\":\"\"}\nmy thesis", "{}\n", "{\"version\":\"unisono 0.0.0\"}\n"]
        {
            fs::write(&path, text).expect("written");
            let error = Record::open(&output).expect_err("it is none").to_string();
            assert!(error.contains("my.tuning.measured has no measurements of unisono "), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("text"), text);
        }
    }
}
