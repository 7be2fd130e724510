//! Tables of collectives: ours against others, by ranks and sizes.

use crate::{
    comparison::record::{Better, Record, middle, ratio},
    intra_node::{self, OURS},
};

/// Of one collective, number of ranks and size: medians in nanoseconds, and of the ratio.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The collective's name.
    pub name: &'static str,
    /// Ranks.
    pub ranks: u32,
    /// Bytes.
    pub bytes: u32,
    /// Of unisono.
    pub ours: f64,
    /// Of the best of the others.
    pub theirs: f64,
    /// How many times as fast ours is.
    pub ratio: f64,
}

impl Cell {
    /// The medians of the recorded figures.
    pub fn of(record: &Record, name: &'static str, ranks: u32, bytes: u32, others: &[&'static str]) -> Self {
        let what = intra_node::collective(name, ranks, bytes);
        let [ours, theirs] = [&[OURS][..], others].map(|who| record.best(&what, who, Better::Less));
        let times = ratio(&ours, &theirs, Better::Less);
        Self { name, ranks, bytes, ours: middle(&ours), theirs: middle(&theirs), ratio: times }
    }

    fn print(&self) {
        let Self { name, ranks, bytes, ours, theirs, ratio } = self;
        let object = serde_json::json!({
            "bench": name, "ranks": ranks, "bytes": bytes, "unit": "ns", "ours": ours, "theirs": theirs, "ratio": ratio,
        });
        println!("{object}");
    }
}

/// Prints cells, `sizes` in a row: ratios and times, or objects.
pub fn print(cells: &[Cell], sizes: &[u32], others: &str, as_json: bool) {
    if as_json {
        return cells.iter().for_each(Cell::print);
    }
    one(&format!("{others} ÷ unisono"), cells, sizes, |cell| cell.ratio, 2);
    one("unisono, ns", cells, sizes, |cell| cell.ours, 0);
    one(&format!("{others}, ns"), cells, sizes, |cell| cell.theirs, 0);
}

fn one(title: &str, cells: &[Cell], sizes: &[u32], figure: impl Fn(&Cell) -> f64, digits: usize) {
    println!("{title}");
    print!("{:15} {:>5}", "", "ranks");
    sizes.iter().for_each(|bytes| print!(" {:>10}", intra_node::size(*bytes)));
    println!();
    for row in cells.chunks(sizes.len()) {
        let Some(Cell { name, ranks, .. }) = row.first() else { continue };
        print!("{name:15} {ranks:>5}");
        for cell in row {
            match figure(cell) {
                figure if figure.is_finite() => print!(" {figure:>10.digits$}"),
                _ => print!(" {:>10}", "none"),
            }
        }
        println!();
    }
    println!();
}
