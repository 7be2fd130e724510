//! Messages of nodes without an operating system, on the host: several in one process, a thread each; and what others may put into their
//! rings.

use core::ptr::NonNull;
use std::thread::{Builder, JoinHandle};

use unisono_node::group::Group;
use unisono_node::letters::{self, Desk};
use unisono_node::member::Member;
use unisono_node::messages::{Messages, Store};
use unisono_shmem::layout::{Layout, PAGE, Sizes, Waiting};
use unisono_shmem::seat::Sitter;
use unisono_shmem::segment::Segment;

type Memory = Store<'static, 4, 4200, 64, 8>;

/// A segment that lives as long as the tests.
fn segment(ranks: u32) -> (Segment<'static>, Layout) {
    let sizes = Sizes { board: PAGE as u32, pool: PAGE as u32, ..Sizes::of_node(ranks, Waiting::Dedicated) };
    let layout = Layout::new(sizes).expect("sizes that fit");
    let memory = Vec::leak(vec![0_u64; layout.bytes() / 8]);
    // SAFETY: it is never freed, and used through segments alone.
    let segment = unsafe { Segment::new(NonNull::from(memory).cast(), layout.bytes()) };
    layout.write_header(segment).expect("as long as the layout");
    (segment, layout)
}

fn join(segment: Segment<'static>, local: u32) -> Member<'static> {
    Member::join(segment, local, Sitter { rank: local, incarnation: 77 + local, process: 0 }).expect("a free seat")
}

/// A thread with room for a store, which is built on the stack here.
fn roomy<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().stack_size(1 << 26).spawn(body).expect("a thread")
}

fn node(member: Member<'static>) -> Messages<'static> {
    let lent = Box::leak(Box::<Memory>::default()).lend();
    Messages::new(member, lent).expect("enough is lent")
}

fn desk(quarry: &'static [u8]) -> Desk<'static> {
    let memory = |bytes: usize| -> &'static mut [u8] { Vec::leak(vec![0; bytes]) };
    Desk {
        quarry,
        into: memory(letters::LONGEST),
        posted: [(); letters::POSTED].map(|()| memory(letters::POSTED_LONGEST)),
    }
}

#[test]
fn letters_among_three_nodes_come_as_sent() {
    let (segment, _) = segment(3);
    let quarry = Vec::leak(vec![0; letters::QUARRY]);
    letters::dig(quarry);
    let quarry: &'static [u8] = quarry;
    let members = [0, 1, 2].map(|local| join(segment, local));
    let ends = members.map(|member| {
        roomy(move || {
            let (mut messages, mut desk) = (node(member), desk(quarry));
            let mut group = Group::new(member).expect("a board");
            let come: Result<u32, _> = (0..130)
                .map(|burst| {
                    let come = letters::exchange(&mut messages, &mut desk, burst, &mut std::thread::yield_now);
                    let serve = || {
                        if !messages.poll() {
                            std::thread::yield_now();
                        }
                    };
                    group.barrier(&mut { serve }).expect("all take part");
                    come
                })
                .sum();
            messages.leave(&mut std::thread::yield_now);
            come
        })
    });
    for end in ends {
        assert_eq!(end.join().expect("no panic"), Ok(130 * 2 * letters::BURST));
    }
}
