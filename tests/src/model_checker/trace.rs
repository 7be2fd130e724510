//! A trace: the path from the initial state to a failure.

use core::fmt;

use super::Model;

/// The actions, and the states in between, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// The initial state.
    pub initial: String,
    /// Each action with the state after it.
    pub steps: Vec<(String, String)>,
}

impl Trace {
    /// Executes the actions with these ordinals; also gives the last state.
    pub(super) fn of<M: Model>(model: &M, ordinals: &[u16]) -> (Self, M::State) {
        let mut state = model.initial();
        let mut trace = Self { initial: format!("{state:?}"), steps: Vec::new() };
        let mut actions = Vec::new();
        for &ordinal in ordinals {
            actions.clear();
            model.actions(&state, &mut actions);
            let action = actions.get(usize::from(ordinal));
            let next = action.and_then(|action| Some((format!("{action:?}"), model.next(&state, action)?)));
            let Some((action, next)) = next else { panic!("the model is not deterministic:\n{trace}") };
            state = next;
            trace.steps.push((action, format!("{state:?}")));
        }
        (trace, state)
    }

    /// How many actions.
    pub const fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether it is only the initial state.
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl fmt::Display for Trace {
    /// The actions and the last state; with `{:#}`, all states.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if to.alternate() {
            writeln!(to, "      {}", self.initial)?;
        }
        for (number, (action, state)) in self.steps.iter().enumerate() {
            writeln!(to, "{:4}. {action}", number + 1)?;
            if to.alternate() {
                writeln!(to, "      {state}")?;
            }
        }
        let last = self.steps.last().map_or(&self.initial, |(_, state)| state);
        if to.alternate() { Ok(()) } else { writeln!(to, "   => {last}") }
    }
}
