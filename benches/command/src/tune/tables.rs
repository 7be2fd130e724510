//! The tables of the algorithms that are faster than the selected ones.

use core::error::Error;

use unisono::environment::Override;
use unisono::environment::tuning::{
    COLLECTIVES, Carrier, JobSignature, NumberRange, TableFile, TuningLine, TuningTable, lines_from_fastest,
};

use super::candidate::{CLOSE, Candidate};
use super::crossover::{Times, fastest_between};

/// The part of the selected algorithm's time that another one may take to be preferred: less is noise.
const FASTER: f64 = 0.9;

/// The tables of the algorithms that are faster than the selected ones, by the signature of the jobs, where `sharing` ranks
/// share a processor.
pub(super) fn tables(
    ranks: u32,
    sharing: u64,
    signatures: &[(Carrier, JobSignature)],
    measured: &[Candidate],
) -> Result<TableFile, Box<dyn Error>> {
    let ranks = NumberRange::new(ranks.into(), ranks.into()).ok_or("no range of ranks")?;
    let mut tables: Vec<(Option<JobSignature>, Vec<TuningLine>)> = Vec::new();
    for (carrier, (verb, ..)) in Carrier::ALL.into_iter().flat_map(|carrier| COLLECTIVES.map(|verb| (carrier, verb))) {
        let of_verb: Vec<&Candidate> =
            measured.iter().filter(|one| (one.carrier, one.verb) == (carrier, verb)).collect();
        let fastest = fastest_by_size(&of_verb);
        let lines = lines_from_fastest((carrier, NumberRange::new(sharing, sharing)), ranks, &fastest);
        let Some((_, signature)) = signatures.iter().find(|(known, _)| *known == carrier) else { continue };
        match tables.iter_mut().find(|(known, _)| known.as_ref() == Some(signature)) {
            Some((_, known)) => known.extend(lines),
            None => tables.push((Some(signature.clone()), lines)),
        }
    }
    let tables = tables.into_iter().map(|(signature, lines)| Ok((signature, TuningTable::new(lines)?)));
    Ok(TableFile::new(tables.collect::<Result<_, Box<dyn Error>>>()?)?)
}

/// The fastest algorithms of a collective with the sizes from which on they are, between the measured ones too; `None`: the
/// selected one, which has to be clearly slower than another one.
fn fastest_by_size(measured: &[&Candidate]) -> Vec<(u64, Option<Override>)> {
    let mut sizes: Vec<u64> = measured.iter().map(|one| one.bytes).collect();
    sizes.dedup();
    let time = |wanted: Option<Override>, bytes: u64| {
        let here = measured.iter().filter(|one| one.bytes == bytes);
        let least =
            here.clone().filter(|one| one.is_finalist).map(|one| comparable(one)).reduce(f64::min).unwrap_or(0.0);
        let own = here.clone().find(|one| one.wanted == wanted).map(|one| {
            // The others were measured once, and were not close to the fastest.
            if one.is_finalist { comparable(one) } else { comparable(one).max(least * CLOSE) }
        });
        own.unwrap_or(f64::INFINITY)
    };
    let mut algorithms: Vec<Option<Override>> = Vec::new();
    for one in measured {
        if !algorithms.contains(&one.wanted) {
            algorithms.push(one.wanted);
        }
    }
    let times = |at: [u64; 2]| -> Vec<Times<Option<Override>>> {
        algorithms.iter().map(|wanted| Times { algorithm: *wanted, at: at.map(|bytes| time(*wanted, bytes)) }).collect()
    };
    match sizes[..] {
        [] => Vec::new(),
        [only] => fastest_between([only, only], &times([only, only])),
        _ => sizes
            .windows(2)
            .filter_map(|pair| <[u64; 2]>::try_from(pair).ok())
            .flat_map(|pair| fastest_between(pair, &times(pair)))
            .collect(),
    }
}

/// A candidate's time, as it is compared: that of the selected one counts less, by what may be noise.
fn comparable(candidate: &Candidate) -> f64 {
    candidate.time_ns * if candidate.wanted.is_none() { FASTER } else { 1.0 }
}
