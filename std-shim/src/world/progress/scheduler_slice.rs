//! Scheduler slices: a thread that wakes rarely and runs briefly asks for a short slice, so that it may preempt one
//! that computes (Linux 6.12 and later: EEVDF with requested slices; no privilege needed).

/// Nanoseconds of the slice: the least that Linux accepts.
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` of `sched_setattr(2)`, first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Requests a short slice for the calling thread. Other and older systems are left unchanged.
pub(in crate::world) fn shorten() {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: SLICE_NS,
        deadline: 0,
        period: 0,
    };
    // SAFETY: thread 0 is the calling one; a live structure of the size that it states; no flags.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    tracing::debug!(granted = answer == 0, "short slice");
}
