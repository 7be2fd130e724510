use super::*;

/// Two processes that each enter a critical section once, guarded as the variant states.
struct Section {
    guard: Guard,
}

#[derive(Clone, Copy, PartialEq)]
enum Guard {
    /// A process tests and takes the free lock in one step.
    Atomic,
    /// Looks in one step, takes in another.
    LookThenTake,
    /// The first process forgets to unlock.
    Forgets,
    /// A process that finds it taken starts over and forgets what it wanted, for ever.
    GivesUp,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Outside,
    Looked,
    Inside,
    Left,
    Spinning(bool),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Two {
    locked: bool,
    at: [At; 2],
}

impl Model for Section {
    type State = Two;
    type Action = usize;

    fn initial(&self) -> Two {
        Two { locked: false, at: [At::Outside; 2] }
    }

    fn actions(&self, _: &Two, actions: &mut Vec<usize>) {
        actions.extend([0, 1]);
    }

    fn next(&self, state: &Two, &process: &usize) -> Option<Two> {
        let mut next = state.clone();
        next.at[process] = match (state.at[process], state.locked, self.guard) {
            (At::Outside, true, Guard::GivesUp) => At::Spinning(false),
            (At::Outside, true, _) | (At::Left, ..) => return None,
            (At::Outside, false, Guard::LookThenTake) => At::Looked,
            (At::Outside, false, _) | (At::Looked, ..) => At::Inside,
            (At::Inside, ..) => At::Left,
            (At::Spinning(up), ..) => At::Spinning(!up),
        };
        match next.at[process] {
            At::Inside => next.locked = true,
            At::Left => next.locked = self.guard == Guard::Forgets && process == 0,
            At::Outside | At::Looked | At::Spinning(_) => {}
        }
        Some(next)
    }

    fn violation(&self, state: &Two) -> Option<&'static str> {
        (state.at == [At::Inside; 2]).then_some("both are inside")
    }

    fn finished(&self, state: &Two) -> bool {
        state.at == [At::Left; 2]
    }
}

fn explore(guard: Guard, order: SearchOrder) -> ExplorationReport {
    Explorer { order, ..Explorer::default() }.explore(&Section { guard })
}

#[test]
fn correct_model_holds_and_all_its_states_are_counted() {
    for order in [SearchOrder::Breadth, SearchOrder::Depth] {
        let report = explore(Guard::Atomic, order);
        assert!(report.holds(), "{report}");
        // Outside, inside and left for each, without both inside.
        assert_eq!((report.states, report.transitions, report.depth), (8, 8, 4));
        assert!(report.to_string().contains("complete: yes. Safe, and every state can finish."));
    }
}

#[test]
fn violation_is_found_by_the_shortest_path() {
    let report = explore(Guard::LookThenTake, SearchOrder::Breadth);
    let Answer::Violated { rule: "both are inside", ref trace } = report.answer else { panic!("{report}") };
    assert_eq!(trace.len(), 4);
    assert_eq!(trace.steps[3].1, "Two { locked: true, at: [Inside, Inside] }");
    assert!(!report.holds() && !report.complete && report.to_string().contains("VIOLATED: both are inside\n   1. "));
}

#[test]
fn violation_is_found_depth_first_too() {
    let report = explore(Guard::LookThenTake, SearchOrder::Depth);
    assert!(matches!(report.answer, Answer::Violated { rule: "both are inside", .. }), "{report}");
}

#[test]
fn state_that_cannot_finish_is_found_before_it_is_a_deadlock() {
    let report = explore(Guard::Forgets, SearchOrder::Breadth);
    let Answer::Stuck { deadlock, ref trace } = report.answer else { panic!("{report}") };
    assert!(!deadlock && report.complete && !report.holds(), "{report}");
    assert_eq!((trace.len(), &*trace.steps[0].1), (1, "Two { locked: true, at: [Inside, Outside] }"));
}

#[test]
fn livelock_is_a_state_that_goes_on_but_cannot_finish() {
    let report = explore(Guard::GivesUp, SearchOrder::Breadth);
    let Answer::Stuck { deadlock: false, ref trace } = report.answer else { panic!("{report}") };
    assert_eq!(trace.steps[1].1, "Two { locked: true, at: [Inside, Spinning(false)] }");
    assert!(format!("{trace:#}").contains("Two { locked: true, at: [Inside, Outside] }\n   2. 1\n"));
}

/// Counts up to its bound, or for ever.
struct Counter {
    bound: Option<u32>,
}

impl Model for Counter {
    type State = u32;
    type Action = ();

    fn initial(&self) -> u32 {
        0
    }

    fn actions(&self, state: &u32, actions: &mut Vec<()>) {
        actions.extend((Some(*state) != self.bound).then_some(()));
    }

    fn next(&self, state: &u32, (): &()) -> Option<u32> {
        Some(state + 1)
    }

    fn violation(&self, _: &u32) -> Option<&'static str> {
        None
    }

    fn finished(&self, state: &u32) -> bool {
        *state == 999_999
    }
}

#[test]
fn run_with_too_many_states_fails() {
    let explorer = Explorer { most_states: 10_000, ..Explorer::default() };
    let report = explorer.explore(&Counter { bound: None });
    assert!(report.answer == Answer::Capped && !report.complete && !report.holds());
    assert!(explorer.explore(&Counter { bound: Some(9_999) }).complete, "exactly as many as allowed");
}

#[test]
fn state_without_a_future_is_a_deadlock() {
    let report = Explorer::default().explore(&Counter { bound: Some(0) });
    let Answer::Stuck { deadlock: true, ref trace } = report.answer else { panic!("{report}") };
    assert!(trace.is_empty());
}
