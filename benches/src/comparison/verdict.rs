//! Verdicts on comparisons: a ratio and the bar that it has to satisfy.

use std::fs;

/// Bar of a ratio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bar {
    /// None: the ratio is only reported.
    None,
    /// A lower bound.
    Least(f64),
    /// An upper bound.
    Most(f64),
}

/// A comparison of two medians or bests, and its ratio.
#[derive(Clone, Debug)]
pub struct ComparisonVerdict {
    /// The compared quantity.
    pub name: String,
    /// Unit of both figures.
    pub unit: &'static str,
    /// Our figure.
    pub ours: f64,
    /// The other's.
    pub theirs: f64,
    /// Ours to theirs, or of times theirs to ours where it is said how many times as fast ours is: of the figures, or
    /// the median over pairs or rounds.
    pub ratio: f64,
    /// The bar.
    pub bar: Bar,
}

impl ComparisonVerdict {
    /// Whether the ratio satisfies the bar.
    pub fn is_met(&self) -> bool {
        match self.bar {
            Bar::None => true,
            Bar::Least(bar) => self.ratio >= bar,
            Bar::Most(bar) => self.ratio <= bar,
        }
    }

    /// Prints one line, or one object.
    pub fn print(&self, as_json: bool) {
        let Self { name, unit, ours, theirs, ratio, bar } = self;
        let (sign, value) = match bar {
            Bar::None => ("", None),
            Bar::Least(bar) => (">=", Some(*bar)),
            Bar::Most(bar) => ("<=", Some(*bar)),
        };
        let met = self.is_met();
        if as_json {
            let (bar, load) = (value.map(|value| format!("{sign} {value}")), load());
            let object = serde_json::json!({
                "bench": name, "unit": unit, "ours": ours, "theirs": theirs, "ratio": ratio, "bar": bar, "met": met,
                "load": load,
            });
            println!("{object}");
            return;
        }
        let wanted =
            value.map_or(String::new(), |value| format!("{sign} {value:<5} {}", if met { "met" } else { "MISSED" }));
        println!("{name:60} ours {ours:>12.0} theirs {theirs:>12.0} {unit:5} ratio {ratio:6.3}  {wanted}");
    }

    /// Prints a comparison without a figure on one side: no ratio and no verdict.
    pub fn print_lack(&self, as_json: bool) {
        let Self { name, unit, ours, theirs, .. } = self;
        if as_json {
            println!("{}", serde_json::json!({ "bench": name, "unit": unit, "ours": ours, "theirs": theirs }));
            return;
        }
        let [ours, theirs] = [*ours, *theirs].map(figure);
        println!("{name:60} ours {ours:>12} theirs {theirs:>12} {unit:5} no figure");
    }
}

/// A figure as text, or `none`.
fn figure(value: f64) -> String {
    if value.is_finite() { format!("{value:.0}") } else { "none".to_owned() }
}

/// Load average of the last minute: other work on this machine shows in the figures.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}
