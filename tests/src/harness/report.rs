//! Figures and the bars they are held against: one line each, or one JSON object per line.

use core::fmt::Write as _;
use core::time::Duration;
use std::env;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

/// The bar of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Limit {
    /// Reported only.
    None,
    /// At most this.
    Most(f64),
    /// At least this.
    Least(f64),
}

impl Limit {
    /// Whether `figure` satisfies it; NaN does not.
    pub fn is_met(self, figure: f64) -> bool {
        match self {
            Self::None => true,
            Self::Most(most) => figure <= most,
            Self::Least(least) => figure >= least,
        }
    }
}

/// Prints figures and remembers whether one missed its bar. Shows the number of figures and the elapsed time on the
/// standard error if that is a terminal.
#[derive(Debug)]
pub struct Report {
    bar: u8,
    json: bool,
    missed: bool,
    under_way: ProgressBar,
}

impl Report {
    /// For the bar of that number, as lines for people or as JSON objects.
    pub fn new(bar: u8, json: bool) -> Self {
        // A serial line that a program reads is a terminal, but a dumb one.
        let draws = io::stderr().is_terminal() && env::var_os("TERM").is_some_and(|terminal| terminal != "dumb");
        let under_way = if draws { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if !under_way.is_hidden() {
            let style = ProgressStyle::with_template("{spinner} {elapsed}, {pos} figures, after {msg}");
            under_way.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            under_way.enable_steady_tick(Duration::from_millis(250));
        }
        Self { bar, json, missed: false, under_way }
    }

    /// Begins a table: what its figures are, and where they were measured.
    pub fn table(&mut self, title: &str) {
        let bar = self.bar;
        let line = match self.json {
            true => format!("{{\"bar\":{bar},\"table\":\"{title}\"}}"),
            false => format!("bar {bar:<3} {title}"),
        };
        self.under_way.suspend(|| println!("{line}"));
    }

    /// One figure. `name` is a JSON key; `of` distinguishes figures of one name.
    pub fn figure(&mut self, name: &str, of: &str, figure: f64, unit: &str, limit: Limit) {
        let met = limit.is_met(figure);
        self.missed |= !met;
        let bar = self.bar;
        let mut line = String::new();
        if self.json {
            let bound = match limit {
                Limit::None => String::new(),
                Limit::Most(most) => format!(",\"most\":{most},\"met\":{met}"),
                Limit::Least(least) => format!(",\"least\":{least},\"met\":{met}"),
            };
            let value = if figure.is_finite() { figure.to_string() } else { "null".to_owned() };
            line = format!(
                "{{\"bar\":{bar},\"name\":\"{name}\",\"of\":\"{of}\",\"value\":{value},\"unit\":\"{unit}\"{bound}}}"
            );
        } else {
            let verdict = match limit {
                Limit::None => String::new(),
                Limit::Most(most) => format!("<= {most:<8} {}", word(met)),
                Limit::Least(least) => format!(">= {least:<8} {}", word(met)),
            };
            let shown = if figure.fract() == 0.0 { format!("{figure:.0}") } else { format!("{figure:.4}") };
            let written = write!(line, "bar {bar:<3} {name:<26} {of:<34} {shown:>14} {unit:<14} {verdict}");
            debug_assert!(written.is_ok(), "a string takes everything");
        }
        self.under_way.suspend(|| println!("{}", line.trim_end()));
        self.under_way.inc(1);
        self.under_way.set_message(format!("{name} of {of}"));
    }

    /// Whether every figure satisfied its limit.
    pub const fn is_met(&self) -> bool {
        !self.missed
    }

    /// Prints the verdict; the status is 1 when a bar was missed.
    pub fn end(self) -> ExitCode {
        let (bar, met) = (self.bar, self.is_met());
        self.under_way.finish_and_clear();
        if self.json {
            println!("{{\"bar\":{bar},\"name\":\"verdict\",\"met\":{met}}}");
        } else {
            println!("bar {bar:<3} {}", word(met));
        }
        if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

const fn word(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// The `q`-quantile of the sorted samples; NaN without samples.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * q).round() as usize).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::{Limit, quantile};

    #[test]
    fn nan_satisfies_no_limit() {
        assert!(!Limit::Most(2.0).is_met(f64::NAN) && !Limit::Least(0.0).is_met(f64::NAN));
        assert!(Limit::Most(2.0).is_met(2.0) && !Limit::Least(2.0).is_met(1.9));
    }

    #[test]
    fn quantiles_are_samples() {
        let sorted = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!([0.0, 0.5, 1.0].map(|q| quantile(&sorted, q)), [1.0, 3.0, 5.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
