//! A job of Worlds in one process, each on a thread of its own, over UDP on the loopback and over shared memory.

// Each test program uses a part of this module.
#![allow(dead_code)]

use core::num::NonZero;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;

use unisono::World;
use unisono::environment::Settings;
use unisono_shmem::host::file::SegmentFile;
use unisono_shmem::layout::{SegmentLayout, SegmentSizes, WaitMode};

/// The transport between the ranks of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    Udp,
    /// All in one segment.
    Memory(WaitMode),
    /// The first two ranks share a segment, the others use UDP.
    Both,
}

pub(crate) const EVERY_WAY: [Over; 4] =
    [Over::Udp, Over::Memory(WaitMode::Dedicated), Over::Memory(WaitMode::Oversubscribed), Over::Both];

/// Runs `body` on every rank of a job, then finishes, over every transport and in every progress mode.
pub(crate) fn everywhere(size: u32, body: fn(&World)) {
    for over in EVERY_WAY {
        for progress in ["engine", "thread", "hybrid"] {
            job_over(over, size, &[("PROGRESS", progress)], |world| {
                body(&world);
                world.finish().expect("all ranks finish");
            });
        }
    }
}

/// As [`job_over`], over UDP.
pub(crate) fn job(size: u32, more: &[(&str, &str)], body: impl Fn(World) + Sync) {
    job_over(Over::Udp, size, more, body);
}

/// Runs `body` on every rank of a job with these settings (without prefix); panics if a rank panics.
pub(crate) fn job_over(over: Over, size: u32, more: &[(&str, &str)], body: impl Fn(World) + Sync) {
    job_in_grants(over, None, size, more, body);
}

/// As [`job_over`], with at most `grant` bytes per clear-to-send.
pub(crate) fn job_in_grants(
    over: Over,
    grant: Option<NonZero<u32>>,
    size: u32,
    more: &[(&str, &str)],
    body: impl Fn(World) + Sync,
) {
    // The port is free: the system assigned it a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let (together, waiting) = match over {
        Over::Udp => (0, WaitMode::Oversubscribed),
        Over::Memory(waiting) => (size, waiting),
        Over::Both => (2.min(size), WaitMode::Oversubscribed),
    };
    let sizes = SegmentSizes { pool: 1 << 20, ..SegmentSizes::of_node(together.max(1), waiting) };
    let segment = SegmentFile::create(&SegmentLayout::new(sizes).expect("a layout")).expect("a segment");
    thread::scope(|scope| {
        for rank in 0..size {
            let body = &body;
            let mut variables = vec![
                ("UNISONO_RANK".into(), rank.to_string().into()),
                ("UNISONO_SIZE".into(), size.to_string().into()),
                ("UNISONO_BOOTSTRAP".into(), format!("127.0.0.1:{port}").into()),
                ("UNISONO_SECRET".into(), "0123456789abcdef0123456789abcdef".into()),
                ("UNISONO_DEVICE".into(), if over == Over::Udp { "udp" } else { "auto" }.into()),
            ];
            if rank < together {
                let number = segment.as_fd().as_raw_fd();
                variables.extend([
                    ("UNISONO_NODE".into(), "0".into()),
                    ("UNISONO_LOCAL_RANK".into(), rank.to_string().into()),
                    ("UNISONO_LOCAL_SIZE".into(), together.to_string().into()),
                    ("UNISONO_SEGMENT".into(), number.to_string().into()),
                ]);
            } else {
                variables.push(("UNISONO_NODE".into(), (1 + rank).to_string().into()));
            }
            variables.extend(more.iter().map(|(name, value)| (format!("UNISONO_{name}").into(), (*value).into())));
            scope.spawn(move || {
                let mut settings = Settings::from_variables(variables).expect("settings");
                settings.transport.grant = grant;
                let world = World::join_as(&settings).expect("a world");
                let shared = world.node().map_or(0, |node| node.size());
                assert_eq!(shared, if rank < together { together } else { 0 });
                body(world);
            });
        }
    });
}

pub(crate) fn data(seed: usize, words: usize) -> Vec<u32> {
    (0..words).map(|i| (seed * 7919 + i * 31) as u32).collect()
}
