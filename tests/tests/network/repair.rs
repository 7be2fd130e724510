//! Repair in the simulated network takes the round trips that it must (`--bin repair` measures thousands).

use unisono_core::device::TxReason;
use unisono_tests::scenarios::repair::{ROUND_TRIP_NS, Repairs, stream, tail, udp};

const LOSSES: usize = 60;

fn median(repairs: &Repairs) -> u64 {
    let mut times = repairs.times_ns.clone();
    times.sort_unstable();
    assert_eq!((times.len(), repairs.unrepaired), (LOSSES, 0), "{:?}", repairs.counters);
    times[LOSSES / 2]
}

#[test]
fn single_losses_are_repaired_in_two_round_trips_without_a_timer() {
    let repairs = stream(3, LOSSES);
    assert!(median(&repairs) <= 2 * ROUND_TRIP_NS, "{:?}", repairs.times_ns);
    assert_eq!(repairs.counters.sent_for(TxReason::Probe) + repairs.counters.sent_for(TxReason::ResentProbe), 0);
    assert_eq!(repairs.counters.sent_for(TxReason::ResentNack), LOSSES as u64);
}

#[test]
fn lost_tails_are_repaired_in_four_round_trips() {
    let repairs = tail(3, LOSSES);
    assert!(median(&repairs) <= 4 * ROUND_TRIP_NS, "{:?}", repairs.times_ns);
    assert!(repairs.times_ns.iter().all(|ns| *ns <= 4 * ROUND_TRIP_NS), "{:?}", repairs.times_ns);
}

#[test]
fn losses_over_udp_are_repaired_and_classified() -> Result<(), Box<dyn core::error::Error>> {
    let (single, tails) = (udp::stream(3, LOSSES)?, udp::tail(3, LOSSES)?);
    for repairs in [&single, &tails] {
        assert!(repairs.repairs.len() > LOSSES / 2 && repairs.unrepaired == 0, "{repairs:?}");
        let resent = |(_, cause): &(u64, TxReason)| matches!(cause, TxReason::ResentNack | TxReason::ResentProbe);
        assert!(repairs.repairs.iter().all(resent), "{repairs:?}");
    }
    let by_probe =
        |repairs: &udp::UdpRepairs| repairs.repairs.iter().filter(|(_, cause)| *cause == TxReason::ResentProbe).count();
    assert!(by_probe(&tails) > 0, "nothing follows a lost tail but a probe: {tails:?}");
    Ok(())
}
