//! Raw queue pairs whose creation fails: nothing of them remains in the kernel.

use std::fs;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use unisono_verbs::ud::Domain;
use unisono_verbs::ud::uverbs::{UverbsDepth, UverbsQueuePair};

use super::{Adapter, KEY, Outcome};

/// A small queue pair: its four mappings have some dozens of pages.
const DEPTH: UverbsDepth = UverbsDepth { sends: 64, receives: 64, inline: 256 };
/// More pages than that.
const PAGES: u64 = 1024;
/// Mappings of a queue pair, each of which is refused at least once.
const MAPPINGS: u64 = 4;

/// Makes queue pairs with room in the address space for no page, for one, for two …, until there is room for all of it.
/// Returns how many pages that are.
///
/// # Errors
/// The kernel has more objects after one that could not be made, or was dropped, than before.
pub fn failed_creation(adapter: Adapter<'_>) -> Outcome<u64> {
    let domain = Domain::open(Some(adapter.name))?;
    let before = objects(adapter.name)?;
    // SAFETY: nothing is posted.
    let make = || unsafe { UverbsQueuePair::new(&domain, DEPTH, KEY, 1) };
    // All other memory that this takes is the process's afterwards.
    drop(make()?);
    let (used, room) = (address_space()?, getrlimit(Resource::As));
    for pages in 0..PAGES {
        setrlimit(Resource::As, Rlimit { current: Some(used + pages * rustix::param::page_size() as u64), ..room })?;
        let made = make().map(drop);
        setrlimit(Resource::As, room)?;
        let is_made = match made {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOMEM.raw_os_error()) => false,
            Err(error) => return Err(error.into()),
        };
        let after = objects(adapter.name)?;
        if after != before {
            return Err(format!("{pages} pages, made {is_made}: {after:?}, before {before:?}").into());
        }
        if is_made {
            return if pages < MAPPINGS { Err("memory was not scarce".into()) } else { Ok(pages) };
        }
    }
    Err(format!("none is made with {PAGES} pages").into())
}

/// Bytes of it that this process uses.
fn address_space() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split_whitespace().next().ok_or("no size")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// How many queue pairs, completion queues and so on the kernel has on an adapter, as `rdma` lists them.
fn objects(adapter: &str) -> Outcome<String> {
    let output = Command::new("rdma").args(["resource", "show"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().find(|line| line.contains(&format!(" {adapter}: ")));
    Ok(line.ok_or(format!("{adapter} is not in {text:?}"))?.to_owned())
}
