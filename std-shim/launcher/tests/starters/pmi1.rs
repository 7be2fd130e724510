//! A double of a starter that speaks PMI-1: a thread per task answers its lines.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output};
use std::sync::{Barrier, Mutex};
use std::thread;

/// What became of the tasks.
pub(crate) struct Ended {
    pub(crate) outputs: Vec<Output>,
    /// Tasks that have finalized.
    pub(crate) finalized: u32,
}

/// The state of a job.
struct Job {
    values: Mutex<BTreeMap<String, String>>,
    barrier: Barrier,
    finalized: Mutex<u32>,
    /// Answered for the key of unisono instead of what was put.
    instead: Option<String>,
}

impl Job {
    /// The answer to a line.
    fn answer(&self, line: &str) -> String {
        let words: BTreeMap<&str, &str> = line.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let word = |key| words.get(key).copied().unwrap_or_default();
        match word("cmd") {
            "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".to_owned(),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=double".to_owned(),
            "put" => {
                self.values.lock().expect("no thread panics").insert(word("key").to_owned(), word("value").to_owned());
                "cmd=put_result rc=0".to_owned()
            }
            "get" => {
                let values = self.values.lock().expect("no thread panics");
                let instead = self.instead.as_ref().filter(|_| word("key") == "unisono");
                match instead.or_else(|| values.get(word("key"))) {
                    Some(value) => format!("cmd=get_result rc=0 value={value}"),
                    None => "cmd=get_result rc=1".to_owned(),
                }
            }
            "barrier_in" => {
                self.barrier.wait();
                "cmd=barrier_out".to_owned()
            }
            "finalize" => {
                *self.finalized.lock().expect("no thread panics") += 1;
                "cmd=finalize_ack".to_owned()
            }
            command => panic!("the tasks do not ask for {command:?}"),
        }
    }

    fn serve(&self, socket: &UnixStream) {
        let mut to = socket;
        for line in BufReader::new(socket).lines().map_while(Result::ok) {
            // A task that has given up does not read the answer.
            let _ = to.write_all(format!("{}\n", self.answer(&line)).as_bytes());
        }
    }
}

/// Runs the tasks, whose socket is their standard input.
pub(crate) fn run(tasks: impl IntoIterator<Item = Command>, mapping: &str, instead: Option<&str>) -> Ended {
    let mut tasks: Vec<Command> = tasks.into_iter().collect();
    let size = tasks.len();
    let job = Arc::new(Job {
        values: Mutex::new(BTreeMap::from([("PMI_process_mapping".to_owned(), mapping.to_owned())])),
        barrier: Barrier::new(size),
        finalized: Mutex::new(0),
        instead: instead.map(str::to_owned),
    });
    let start = |(rank, task): (usize, &mut Command)| {
        let (own, its) = UnixStream::pair().expect("a pair of sockets");
        task.env("PMI_FD", "0").env("PMI_RANK", rank.to_string()).env("PMI_SIZE", size.to_string());
        (task.stdin(OwnedFd::from(its)).spawn().expect("it starts"), own)
    };
    let (started, sockets): (Vec<Child>, Vec<UnixStream>) = tasks.iter_mut().enumerate().map(start).unzip();
    for socket in sockets {
        let job = Arc::clone(&job);
        // Not joined: where a task never joins, the others' threads stay in the barrier.
        thread::spawn(move || job.serve(&socket));
    }
    let outputs = started.into_iter().map(|task| task.wait_with_output().expect("it ends")).collect();
    let finalized = *job.finalized.lock().expect("no thread panics");
    Ended { outputs, finalized }
}
