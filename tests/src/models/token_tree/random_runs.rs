//! Random runs of the model: larger trees, more calls and more faults than can be explored.

use fastrand::Rng;
use unisono_core::collective::token_tree::{Body, Epoch, ReleasePath, Request};

use super::{Action, MOST_REQUESTS, ReleasePaths, State, TokenTrees, TreeOptions, TreeSizes, number};
use crate::model_checker::Model;

/// Records of a run's machines: releases of an epoch, epochs.
const RELEASES: usize = 4;
const EPOCHS: usize = 4;

/// Steps after which a run is given up: it does not end.
const MOST_STEPS: u32 = 100_000;

/// A run that ended badly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadRun {
    /// Which rule it broke.
    pub rule: &'static str,
    /// The tree and what may happen.
    pub setting: String,
    /// Its actions.
    pub actions: Vec<String>,
}

/// One run: a tree of 2 to 12 ranks, 1 to 3 calls, up to 3 losses and doubles, perhaps a death. Returns its steps.
///
/// # Errors
/// The first rule that it broke, with all its actions.
pub fn random_run(seed: u64) -> Result<u32, Box<BadRun>> {
    let mut rng = Rng::with_seed(seed);
    let sizes = TreeSizes {
        ranks: &[[2, 3, 4, 5, 6, 7, 8, 9, 10, 12][rng.usize(..10)]],
        degrees: &[rng.u32(1..=4)],
        units: &[rng.u8(0..=RELEASES as u8)],
    };
    let has_multicast = rng.u8(..8) != 0;
    let options = TreeOptions {
        epochs: rng.u8(1..=3),
        has_values: true,
        paths: ReleasePaths::Same(if has_multicast { ReleasePath::Multicast } else { ReleasePath::Tree }),
        losses: if has_multicast { rng.u8(..4) } else { 0 },
        doubles: rng.u8(..4),
        crash: rng.u8(..4) == 0,
        ends: false,
        asks: true,
        early_asks: rng.u8(..4),
        polls_late: rng.u8(..4) == 0,
    };
    // How reluctant ranks are to enter, in 16ths: the skew.
    let reluctance = [0, 8, 15][rng.usize(..3)];
    let model = TokenTrees::<RELEASES, EPOCHS>::new(sizes, options);
    let mut state = model.start(0);
    let (mut actions, mut taken) = (Vec::new(), Vec::new());
    let bad = |rule, taken: &[Action]| {
        let setting = format!("{sizes:?} {options:?}");
        Err(Box::new(BadRun { rule, setting, actions: taken.iter().map(|action| format!("{action:?}")).collect() }))
    };
    for step in 0..MOST_STEPS {
        if model.finished(&state) {
            return Ok(step);
        }
        actions.clear();
        model.actions(&state, &mut actions);
        if actions.is_empty() {
            return bad("nothing can happen any more", &taken);
        }
        let action = choose(&actions, reluctance, &mut rng);
        taken.push(action);
        if let Action::Timeout(rank, epoch) = action
            && is_refused(&model, &state, rank, epoch)
        {
            continue;
        }
        if !model.apply(&mut state, &action) && matches!(action, Action::Timeout(..)) {
            return bad("this harness foresees which timeouts are refused", &taken);
        }
        if let Some(rule) = model.violation(&state) {
            return bad(rule, &taken);
        }
    }
    bad("it does not end", &taken)
}

/// Whether a timeout would be too early, so that [`TokenTrees::apply`] would refuse it: decided without a copy of the
/// state, which costs more than all else.
fn is_refused(
    model: &TokenTrees<RELEASES, EPOCHS>,
    state: &State<RELEASES, EPOCHS>,
    rank: usize,
    epoch: Epoch,
) -> bool {
    if state.is_asking(rank) {
        return true;
    }
    let may_be_early = state.early_asks < model.options.early_asks;
    if may_be_early || state.lost[usize::from(number(epoch))] & 1 << rank != 0 {
        return false;
    }
    let mut machine = state.ranks[rank].machine;
    machine.handle_timeout((), epoch);
    core::iter::from_fn(|| machine.poll(())).take(MOST_REQUESTS as usize).any(|request| match request {
        Request::Send { to, message, .. } => {
            matches!(message.body, Body::Ask { .. }) && state.dead.map(u32::from) != Some(to.0)
        }
        _ => false,
    })
}

fn choose(actions: &[Action], reluctance: u8, rng: &mut Rng) -> Action {
    for _ in 0..32 {
        let action = actions[rng.usize(..actions.len())];
        let is_reluctant = match action {
            Action::Enter(_) => reluctance,
            // Faults are rare.
            Action::Crash(_) | Action::Lose { .. } => 14,
            _ => 0,
        };
        if rng.u8(..16) >= is_reluctant {
            return action;
        }
    }
    actions[rng.usize(..actions.len())]
}

#[cfg(test)]
mod tests {
    use super::random_run;

    #[test]
    fn random_runs_break_no_rule() {
        for seed in 0..500 {
            random_run(seed).unwrap_or_else(|bad| panic!("seed {seed}: {bad:#?}"));
        }
    }
}
