//! The conformance suite of every [`Device`] and its [`Memory`](unisono_core::device::Memory): the contract with the
//! core, as cases that can fail.
//!
//! A [`Fixture`] makes connected devices; [`examine`] runs every case on fresh ones and returns the findings,
//! [`assert_conforms`] panics when a promise was broken. A case sees only the contract, so devices in virtual and in
//! real time pass the same suite. [`flaw`] breaks a device on purpose; the suite's own tests show that each flaw is
//! found.
//!
//! # Example
//! ```
//! use unisono_tests::{conformance::{SimFixture, assert_conforms}, sim::Config};
//!
//! assert_conforms(|| SimFixture::new(Config::default()));
//! ```

mod arrivals;
mod destinations;
pub mod flaw;
mod on_adapter;
mod on_ethernet;
mod on_shmem;
mod on_sim;
#[cfg(feature = "verbs")]
mod on_ud;
mod on_udp;
mod postings;
mod queues;
mod real_time;
mod slots;
mod store;
mod test_bench;
mod violation;

#[cfg(test)]
mod tests;

use unisono_core::device::{Device, DeviceQueue};

pub use self::{
    on_adapter::AdapterFixture,
    on_ethernet::{EthernetFixture, device as ethernet_device},
    on_shmem::ShmemFixture,
    on_sim::SimFixture,
    on_udp::UdpFixture,
    store::TestMemory,
    violation::ContractViolation,
};
#[cfg(feature = "verbs")]
pub use on_ud::UdFixture;
use test_bench::TestBench;

/// The devices under test and their environment.
pub trait Fixture {
    /// The device.
    type Device: Device;
    /// Its memory.
    type Memory: TestMemory<Address = <Self::Device as Device>::Address>;

    /// `count` fresh devices with at least 4 receive slots, and their memories. The peer of number n is the n-th, for
    /// all of them. Devices with groups have the numbers 0 and 1 bound to two. Called once.
    fn connect(&mut self, count: u32) -> Vec<(Self::Device, Self::Memory)>;
    /// Lets `ns` nanoseconds pass: the clock of the simulation jumps, a real device's test sleeps or spins.
    fn advance(&mut self, ns: u64);
    /// Waits at most `ns` nanoseconds for the event that the device was armed for, and returns whether it was raised.
    fn wait(&mut self, device: &mut Self::Device, lane: DeviceQueue, ns: u64) -> bool;
    /// Whether datagrams may be lost, doubled or overtaken on their way. Cases that count datagrams are skipped then.
    fn is_faulty(&self) -> bool;
}

/// Outcome of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The promise was kept.
    Kept,
    /// The case does not apply, for this reason.
    Skipped(&'static str),
    /// The promise was broken.
    Broken(ContractViolation),
}

/// A case and its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The promise, as the name of a behaviour.
    pub case: &'static str,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Preconditions of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    Nothing,
    FaultlessLink,
    Interrupts,
    Groups,
}

struct Case<F: Fixture> {
    name: &'static str,
    needs: Needs,
    run: fn(&mut TestBench<F>) -> Result<(), ContractViolation>,
}

/// Names each function as its case.
macro_rules! cases {
    ($($needs:ident $module:ident::$case:ident),* $(,)?) => {
        vec![$(Case { name: stringify!($case), needs: Needs::$needs, run: $module::$case }),*]
    };
}

fn cases<F: Fixture>() -> Vec<Case<F>> {
    cases![
        Nothing arrivals::every_length_arrives_byte_exact,
        Nothing arrivals::head_and_payload_are_gathered,
        FaultlessLink arrivals::datagrams_of_one_flush_keep_their_bounds,
        Nothing arrivals::placed_bytes_land_exactly,
        Nothing arrivals::senders_are_distinguished,
        FaultlessLink arrivals::posting_to_unknown_peer_is_lost_alone,
        Nothing postings::tickets_are_contiguous_and_complete,
        FaultlessLink postings::unused_token_posts_nothing,
        FaultlessLink postings::full_ring_loses_nothing,
        FaultlessLink postings::payload_may_change_after_its_ticket,
        Interrupts postings::queues_count_their_tickets_separately,
        Interrupts postings::queues_complete_their_own_payloads,
        FaultlessLink slots::receive_slots_fill_without_loss,
        FaultlessLink slots::released_slots_serve_again,
        FaultlessLink slots::slots_in_use_are_distinct,
        FaultlessLink slots::held_datagrams_outlive_an_overrun,
        Interrupts queues::queues_are_separate,
        FaultlessLink queues::armed_lane_raises_an_event,
        FaultlessLink queues::waiting_datagram_is_reported_or_raises_an_event,
        FaultlessLink queues::no_wake_up_is_lost,
        Nothing destinations::every_rail_delivers,
        FaultlessLink destinations::posting_to_unknown_destination_is_lost_alone,
        Nothing destinations::groups_are_joined_and_left,
        Groups destinations::members_of_a_group_receive,
        Nothing queues::path_requests_are_answered,
        Nothing queues::dead_and_foreign_spans_have_no_address,
    ]
}

/// Runs every case, each on a fixture of its own.
pub fn examine<F: Fixture>(make: impl Fn() -> F) -> Vec<Finding> {
    let examine = |case: Case<F>| {
        let mut bench = TestBench::new(make());
        let outcome = match case.needs {
            Needs::FaultlessLink | Needs::Interrupts | Needs::Groups if bench.is_faulty() => {
                Outcome::Skipped("the link is faulty")
            }
            Needs::Interrupts if !bench.limits().interrupts => Outcome::Skipped("there is no interrupt lane"),
            Needs::Groups if bench.limits().groups == 0 => Outcome::Skipped("there are no groups"),
            _ => match (case.run)(&mut bench) {
                Ok(()) => Outcome::Kept,
                Err(breach) => Outcome::Broken(breach),
            },
        };
        Finding { case: case.name, outcome }
    };
    cases().into_iter().map(examine).collect()
}

/// Examines a device.
///
/// # Panics
/// With every broken promise and how it was noticed, or when nothing was examined.
pub fn assert_conforms<F: Fixture>(make: impl Fn() -> F) {
    let findings = examine(make);
    let broken = findings.iter().filter_map(|finding| match &finding.outcome {
        Outcome::Broken(breach) => Some(format!("\n  {}: {breach}", finding.case)),
        Outcome::Kept | Outcome::Skipped(_) => None,
    });
    let broken: Vec<_> = broken.collect();
    assert!(broken.is_empty(), "{} promises were broken:{}", broken.len(), broken.concat());
    assert!(findings.iter().any(|finding| finding.outcome == Outcome::Kept), "nothing was examined");
}
