//! Bar 1: a transfer over UDP whose datagrams are lost, overtaken, doubled and changed, beside the same without faults.
//! Both have checksums.

use std::env::consts::EXE_SUFFIX;
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use unisono_tests::harness::report::{Limit, Report, quantile};

const FAULTS: &str = "--loss 5% --reorder 5% --dup 2% --corrupt 1%";

/// Runs `unisono bench transfer` with and without faults, in turn.
#[derive(Parser)]
struct Options {
    /// Of each transfer, as `unisono bench transfer` takes them.
    #[arg(long, default_value = "64M")]
    bytes: String,
    /// Pairs of transfers: the speeds' ratio is the median pair's, everything else the worst one's.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Of the first round's faults; the next round's is one more.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// One JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Output of one transfer.
struct Said(String);

impl Said {
    /// The value of a key.
    fn text(&self, key: &str) -> Option<&str> {
        let (_, behind) = self.0.split_once(&format!("\"{key}\":"))?;
        Some(behind.split([',', '}']).next()?.trim_matches('"'))
    }

    fn number(&self, key: &str) -> f64 {
        self.text(key).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
    }

    fn hashes_are_equal(&self) -> bool {
        self.text("hash_sent").is_some_and(|hash| self.text("hash_received") == Some(hash))
    }
}

fn transfer(bytes: &str, faults: &str) -> Result<Said, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let unisono = own.with_file_name(format!("unisono{EXE_SUFFIX}"));
    let mut command = Command::new(&unisono);
    command.args("run -n 2 --device udp --mtu 1500 --integrity crc32c".split(' ')).args(faults.split_whitespace());
    command.arg("--").arg(&unisono).args(["bench", "transfer", "--json", "--bytes", bytes]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{}: {error}", unisono.display()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(Said(said)) } else { Err(format!("{}: {said}", output.status)) }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report::new(1, options.json);
    let (mut ended, mut equal) = (0.0, 0.0);
    let (mut speeds, mut ratios) = (Vec::new(), Vec::new());
    let (mut sent, mut spurious) = (f64::NAN, f64::NAN);
    for round in 0..options.rounds {
        let faults = format!("{FAULTS} --seed {}", options.seed + round);
        let both = [faults.as_str(), ""].map(|faults| transfer(&options.bytes, faults));
        let [faulty, sound] = match both {
            [Ok(faulty), Ok(sound)] => [faulty, sound],
            both => {
                both.into_iter().filter_map(Result::err).for_each(|error| eprintln!("round {round}: {error}"));
                continue;
            }
        };
        ended += 2.0;
        equal += [&faulty, &sound].into_iter().filter(|said| said.hashes_are_equal()).count() as f64;
        sent = sent.max(faulty.number("data_sent") / faulty.number("data_minimum"));
        spurious = spurious.max(faulty.number("resent_spurious") / faulty.number("data_sent"));
        speeds.push(faulty.number("bytes_per_s"));
        ratios.push(faulty.number("bytes_per_s") / sound.number("bytes_per_s"));
    }
    speeds.sort_by(f64::total_cmp);
    ratios.sort_by(f64::total_cmp);
    let all = 2.0 * options.rounds as f64;
    let mut figure = |name: &str, of: &str, figure: f64, unit: &str, limit| {
        report.figure(name, of, figure, unit, limit);
    };
    figure("transfers", &options.bytes, ended, "jobs", Limit::Least(all));
    figure("hashes_equal", &options.bytes, equal, "jobs", Limit::Least(all));
    figure("data_sent", "worst, of the minimum", sent, "", Limit::Most(1.12));
    figure("resent_spurious", "worst, of data_sent", spurious, "", Limit::Most(0.02));
    figure("bytes_per_s", "with faults, median", quantile(&speeds, 0.5), "bytes/s", Limit::None);
    figure("bytes_per_s", "of that without faults, median", quantile(&ratios, 0.5), "", Limit::Least(0.5));
    report.end()
}
