//! The algorithms that are measured for a call, and which of them are measured a second time.

use unisono::environment::Override;
use unisono::environment::tuning::Carrier;
use unisono_core::collective::CollectiveKind;

/// The algorithms of a call, the fastest first, that are measured a second time beside the selected one, and how many times
/// as long as the fastest they may take: the least of many times is less than what its algorithm takes.
const FINALISTS: usize = 3;
pub(super) const CLOSE: f64 = 1.25;

/// An algorithm of a collective, and its measured time.
pub(super) struct Candidate {
    pub(super) carrier: Carrier,
    pub(super) verb: CollectiveKind,
    pub(super) bytes: u64,
    /// `None`: the selected one.
    pub(super) wanted: Option<Override>,
    pub(super) time_ns: f64,
    /// The algorithm that was executed, as the record of the call names it; empty: there is no record.
    pub(super) executed: String,
    /// Whether it is measured a second time, and only that counts.
    pub(super) is_finalist: bool,
}

impl Candidate {
    pub(super) fn choice(&self) -> String {
        self.wanted.map_or_else(|| "selected".to_owned(), |wanted| wanted.to_string())
    }
}

/// What a record says of the executed algorithm, without what selected it.
pub(super) fn executed(record: &str) -> String {
    record.split_once(": ").map_or_else(String::new, |(algorithm, _)| algorithm.to_owned())
}

/// Candidates that executed the same algorithm share their shortest time: the selected one is one of the others.
pub(super) fn share_times(measured: &mut [Candidate]) {
    let call = |one: &Candidate| (one.carrier, one.verb, one.bytes, one.is_finalist);
    for place in 0..measured.len() {
        let Some(of) = measured.get(place).filter(|one| !one.executed.is_empty()) else { continue };
        let is_same = |one: &&Candidate| call(one) == call(of) && one.executed == of.executed;
        let least = measured.iter().filter(is_same).map(|one| one.time_ns).fold(f64::INFINITY, f64::min);
        if let Some(candidate) = measured.get_mut(place) {
            candidate.time_ns = least;
        }
    }
}

/// The selected and the fastest algorithm of each call that was measured, in the order of the calls; of finalists if there are
/// any.
pub(super) fn calls(measured: &[Candidate]) -> impl Iterator<Item = (&Candidate, &Candidate)> {
    measured.iter().filter(|one| one.wanted.is_none()).filter_map(move |selected| {
        let is_same = |one: &&Candidate| {
            let of = |one: &Candidate| (one.carrier, one.verb, one.bytes, one.is_finalist);
            of(one) == of(selected)
        };
        let fastest = measured.iter().filter(is_same).min_by(|one, other| one.time_ns.total_cmp(&other.time_ns))?;
        Some((selected, fastest))
    })
}

/// Marks the candidates that are measured a second time, of each call for which another one may be faster than the selected
/// one.
pub(super) fn mark_finalists(measured: &mut [Candidate]) {
    for place in 0..measured.len() {
        let Some(Candidate { carrier, verb, bytes, wanted: None, .. }) = measured.get(place) else { continue };
        let call = (*carrier, *verb, *bytes);
        let mut times: Vec<(f64, usize)> = (0..)
            .zip(&*measured)
            .filter(|(_, one)| (one.carrier, one.verb, one.bytes) == call)
            .map(|(number, one)| (one.time_ns, number))
            .collect();
        times.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let most = times.first().map_or(0.0, |(fastest, _)| fastest * CLOSE);
        let fastest = times.iter().take(FINALISTS).filter(|(time, _)| *time <= most).map(|(_, number)| *number);
        let others: Vec<usize> = fastest.filter(|number| *number != place).collect();
        let all = if others.is_empty() { None } else { Some(place) };
        for number in others.into_iter().chain(all) {
            if let Some(candidate) = measured.get_mut(number) {
                (candidate.is_finalist, candidate.time_ns) = (true, f64::INFINITY);
            }
        }
    }
}
