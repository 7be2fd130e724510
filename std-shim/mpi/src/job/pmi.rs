//! Jobs that other starters start: PMI-1 over the socket `PMI_FD`, as `mpiexec.hydra` and `srun --mpi=pmi2` offer it.
//! The starter's key-value space carries the address and the secret of unisono's own rendezvous from rank 0 to the others
//! (Balaji et al. 2010, "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems").

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::{FromRawFd as _, RawFd};

use unisono::environment::{JobPosition, Secret};
use unisono::{Rank, Settings};

/// The key under which rank 0 publishes the rendezvous.
const KEY: &str = "unisono";
/// Longest line that is read.
const LINE_MAX: usize = 64 << 10;

/// The connection to the starter.
pub struct Starter {
    socket: File,
    pending: Vec<u8>,
}

/// Variables by which a starter names a task that it gives no way to join.
const STARTERS: [(&str, &str); 4] = [
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
];

fn number(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}

/// The starter that this process was started by, if its job is described by no variable of unisono's. Completes the
/// settings. An error: it is one of several tasks, and cannot join the others.
pub fn find(settings: &mut Settings) -> Result<Option<Starter>, String> {
    if let (Some(socket), Some(rank), Some(size)) = (number("PMI_FD"), number("PMI_RANK"), number("PMI_SIZE")) {
        if size == 0 || rank >= size {
            return Err(format!("the starter names rank {rank} of {size} (PMI_RANK, PMI_SIZE)"));
        }
        // SAFETY: the starter opened it for this process, which uses it here alone.
        let socket = unsafe { File::from_raw_fd(socket as RawFd) };
        let mut starter = Starter { socket, pending: Vec::new() };
        starter
            .join(settings, rank, size)
            .map_err(|reason| format!("the starter's PMI_FD does not answer: {reason}"))?;
        return Ok(Some(starter));
    }
    for (rank, size) in STARTERS {
        if number(rank).is_some() && number(size).is_some_and(|size| size > 1) {
            return Err(format!(
                "this is task {} of {} of another starter ({rank}), which offers no PMI-1 (PMI_FD): use `unisono run`, \
                 `mpiexec.hydra`, or `srun --mpi=pmi2`",
                number(rank).unwrap_or(0),
                number(size).unwrap_or(0)
            ));
        }
    }
    Ok(None)
}

impl Starter {
    fn join(&mut self, settings: &mut Settings, rank: u32, size: u32) -> Result<(), String> {
        let answer = self.ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init")?;
        if answer.get("rc").is_none_or(|code| code != "0") {
            return Err("it refuses version 1.1".to_owned());
        }
        settings.position = Some(JobPosition { rank: Rank(rank), size });
        if size == 1 {
            settings.position = None;
            return Ok(());
        }
        self.ask("cmd=get_maxes\n", "maxes")?;
        let space = self.ask("cmd=get_my_kvsname\n", "my_kvsname")?;
        let space = space.get("kvsname").cloned().ok_or("it names no key-value space")?;
        let mapping = self.get(&space, "PMI_process_mapping").ok().and_then(|mapping| nodes(&mapping, size));
        let is_one_node = mapping.as_ref().is_some_and(|nodes| nodes.iter().all(|node| Some(node) == nodes.first()));
        if rank == 0 {
            let secret = random_text()?;
            let place = if is_one_node { format!("@unisono-mpi-{}", random_text()?) } else { own_place()? };
            let value = format!("{place}/{secret}");
            self.ask(&format!("cmd=put kvsname={space} key={KEY} value={value}\n"), "put_result")?;
        }
        self.ask("cmd=barrier_in\n", "barrier_out")?;
        let value = self.get(&space, KEY)?;
        let (place, secret) = value.rsplit_once('/').ok_or("rank 0 published no rendezvous")?;
        settings.bootstrap = Some(place.parse().map_err(|error| format!("rank 0 published {place}: {error}"))?);
        let secret = Secret::new(secret).map_err(|error| format!("rank 0 published a wrong secret: {error}"))?;
        settings.secret = Some(secret);
        if let Some(nodes) = mapping {
            let own = nodes.get(rank as usize).copied();
            settings.locality.node = own;
            let local = |ranks: &[u32]| ranks.iter().filter(|node| Some(**node) == own).count() as u32;
            settings.locality.rank = Some(local(nodes.get(..rank as usize).unwrap_or_default()));
            settings.locality.size = Some(local(&nodes));
        }
        Ok(())
    }

    fn get(&mut self, space: &str, key: &str) -> Result<String, String> {
        let answer = self.ask(&format!("cmd=get kvsname={space} key={key}\n"), "get_result")?;
        match (answer.get("rc").map(String::as_str), answer.get("value")) {
            (Some("0") | None, Some(value)) => Ok(value.clone()),
            _ => Err(format!("it has no value for {key}")),
        }
    }

    /// Sends a line, and returns the words of the answer.
    fn ask(&mut self, line: &str, expected: &str) -> Result<BTreeMap<String, String>, String> {
        self.socket.write_all(line.as_bytes()).map_err(|error| error.to_string())?;
        let answer = self.line()?;
        let words: BTreeMap<String, String> = answer
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        if words.get("cmd").is_some_and(|command| command == expected) {
            Ok(words)
        } else {
            Err(format!("it answers {answer:?} to {line:?}"))
        }
    }

    fn line(&mut self) -> Result<String, String> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(end + 1);
                let line = core::mem::replace(&mut self.pending, rest);
                return String::from_utf8(line).map(|line| line.trim_end().to_owned()).map_err(|e| e.to_string());
            }
            let mut arrived = [0; 1024];
            match self.socket.read(&mut arrived) {
                Ok(0) => return Err("it has closed the connection".to_owned()),
                Ok(bytes) => self.pending.extend_from_slice(arrived.get(..bytes).unwrap_or_default()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
            if self.pending.len() > LINE_MAX {
                return Err("its answer is too long".to_owned());
            }
        }
    }

    /// Notifies the starter that this process has finished.
    pub fn finalize(mut self) {
        // A starter that is gone needs no notification.
        let _ = self.ask("cmd=finalize\n", "finalize_ack");
    }

    /// Asks the starter to end the job.
    pub fn abort(&mut self, code: c_int) {
        let _ = self.socket.write_all(format!("cmd=abort exitcode={code}\n").as_bytes());
    }
}

fn random_text() -> Result<String, String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).map_err(|error| error.to_string())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A host and a port where this process can serve the rendezvous.
fn own_place() -> Result<String, String> {
    let any = TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)).map_err(|error| error.to_string())?;
    let port = any.local_addr().map_err(|error| error.to_string())?.port();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").map_err(|error| error.to_string())?;
    Ok(format!("{}:{port}", host.trim()))
}

/// The node of each rank, from `(vector,(first,nodes,ranks),…)`: `nodes` nodes from `first` on have `ranks`
/// ranks each; the list repeats.
fn nodes(mapping: &str, size: u32) -> Option<Vec<u32>> {
    let inner = mapping.trim().strip_prefix("(vector,")?.strip_suffix(')')?;
    let blocks: Vec<[u32; 3]> = inner
        .split("),")
        .map(|block| {
            let mut numbers = block.trim_matches(['(', ')', ' ']).split(',').map(|number| number.trim().parse().ok());
            Some([numbers.next()??, numbers.next()??, numbers.next()??])
        })
        .collect::<Option<_>>()?;
    if blocks.iter().all(|[_, nodes, ranks]| *nodes == 0 || *ranks == 0) {
        return None;
    }
    let ranks = |[first, nodes, ranks]: [u32; 3]| {
        (0..nodes).flat_map(move |node| core::iter::repeat_n(first.wrapping_add(node), ranks as usize))
    };
    Some(blocks.iter().cycle().flat_map(|block| ranks(*block)).take(size as usize).collect())
}
