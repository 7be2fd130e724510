//! Charts of lines on logarithmic axes, as an SVG or PNG file. Charts stand below each other, each with its legend.

mod bitmap;

use core::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use plotters::prelude::*;

use bitmap::Bitmap;

/// Pixels of a chart.
const WIDTH: u32 = 980;
const HEIGHT: u32 = 480;
/// Pixels of the legend at the right.
const LEGEND: i32 = 290;
/// Colours that differ for people with colour blindness, too (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// A chart of lines.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Its title: what was measured, and where.
    pub caption: String,
    /// The name of the horizontal axis, with its unit.
    pub x: String,
    /// The name of the vertical axis, with its unit.
    pub y: String,
    /// The text of a place on the horizontal axis.
    pub x_label: fn(f64) -> String,
    /// Its lines.
    pub lines: Vec<Line>,
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub label: String,
    /// The number of its colour.
    pub colour: usize,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Its points, all greater than 0, from left to right.
    pub points: Vec<(f64, f64)>,
    /// The spread of the points: the ends of a bar through each, or nothing.
    pub bars: Vec<(f64, f64)>,
}

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stroke {
    /// Without gaps.
    #[default]
    Solid,
    /// As dashes.
    Dashed,
    /// As dots.
    Dotted,
}

impl Stroke {
    /// Pixels of a dash and of a gap.
    const fn dash(self) -> Option<(u32, u32)> {
        match self {
            Self::Solid => None,
            Self::Dashed => Some((8, 4)),
            Self::Dotted => Some((2, 4)),
        }
    }
}

/// Parses the name of a file to draw into.
///
/// # Errors
/// It ends neither in `.svg` nor in `.png`.
pub fn file(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    let is_known = |extension: &OsStr| ["svg", "png"].iter().any(|known| extension.eq_ignore_ascii_case(known));
    if path.extension().is_some_and(is_known) {
        Ok(path)
    } else {
        Err("expected a file name that ends in .svg or .png")
    }
}

/// Draws charts into a PNG file, if its name ends so, else into an SVG file.
///
/// # Errors
/// The file cannot be written.
pub fn draw(path: &Path, charts: &[Chart]) -> Result<(), Box<dyn Error>> {
    let size = (WIDTH, HEIGHT * charts.len().max(1) as u32);
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png")) {
        let mut pixels = bitmap::blank(size);
        draw_charts(&Bitmap::new(size, &mut pixels).into_drawing_area(), charts)?;
        return Ok(bitmap::write(path, size, &pixels)?);
    }
    let mut text = String::new();
    draw_charts(&SVGBackend::with_string(&mut text, size).into_drawing_area(), charts)?;
    std::fs::write(path, text)?;
    Ok(())
}

fn draw_charts<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    charts: &[Chart],
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    for (area, chart) in area.split_evenly((charts.len().max(1), 1)).iter().zip(charts) {
        draw_chart(area, chart)?;
    }
    area.present()?;
    Ok(())
}

/// The range of the values, which contains more than one.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low < high { (low, high) } else { (low / 2.0, low * 2.0) }
}

fn draw_chart<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    drawn: &Chart,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let points = || drawn.lines.iter().flat_map(|line| &line.points);
    let (first, last) = range(points().map(|(x, _)| *x));
    // The end of a bar may be an outlier: the bar ends at the edge of the chart.
    let (least, most) = range(points().map(|(_, y)| *y).filter(|y| *y > 0.0));
    let (least, most) = (least / 2.0, most * 2.0);
    let mut chart = ChartBuilder::on(area)
        .caption(&drawn.caption, ("sans-serif", 22))
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(44)
        .y_label_area_size(78)
        .build_cartesian_2d((first..last * 1.1).log_scale().base(4.0), (least..most).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(&drawn.x)
        .y_desc(&drawn.y)
        .x_label_formatter(&|x| (drawn.x_label)(*x))
        .y_label_formatter(&|value| format!("{value}"))
        .light_line_style(WHITE)
        .draw()?;
    for (number, Line { label, colour, stroke, points, bars }) in (0_i32..).zip(&drawn.lines) {
        let colour = COLOURS[colour % COLOURS.len()];
        // The legend is beside the chart, where it covers no line.
        let (left, top) = (WIDTH as i32 - LEGEND + 16, 60 + 24 * number);
        let legend = |from: i32, to: i32| {
            PathElement::new([(left + from, top + 7), (left + to, top + 7)], colour.stroke_width(2))
        };
        match stroke.dash() {
            None => {
                chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)).point_size(3))?;
                area.draw(&legend(0, 24))?;
            }
            Some((long, gap)) => {
                chart.draw_series(points.iter().map(|at| Circle::new(*at, 2, colour.filled())))?;
                chart.draw_series(DashedLineSeries::new(points.clone(), long, gap, colour.stroke_width(2)))?;
                for start in (0..24).step_by((long + gap) as usize) {
                    area.draw(&legend(start, (start + long as i32).min(24)))?;
                }
            }
        }
        let bar = |((x, y), (low, high)): (&(f64, f64), &(f64, f64))| {
            let [low, y, high] = [*low, *y, *high].map(|value| value.clamp(least, most));
            ErrorBar::new_vertical(*x, low, y, high, colour.stroke_width(1), 7)
        };
        chart.draw_series(points.iter().zip(bars).map(bar))?;
        area.draw(&Text::new(label.clone(), (left + 32, top), ("sans-serif", 15)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_and_chart_is_drawn() {
        let line = |label: &str, stroke, bars| {
            let points = vec![(8.0, 1.0), (64.0, 2.0)];
            Line { label: label.to_owned(), colour: 8, stroke, points, bars }
        };
        let chart = |caption: &str, lines| Chart {
            caption: caption.to_owned(),
            x: "ranks".to_owned(),
            y: "µs".to_owned(),
            x_label: |ranks| format!("{ranks} ranks"),
            lines,
        };
        let one =
            [line("flat", Stroke::Solid, vec![(0.5, 9.0), (2.0, 2.0)]), line("nested", Stroke::Dotted, Vec::new())];
        let point = Line { points: vec![(1.0, 3.0)], ..line("one point", Stroke::Dashed, Vec::new()) };
        let charts = [chart("first", one.to_vec()), chart("second", vec![point])];
        let folder = tempfile::tempdir().expect("a folder");
        let [svg, png] = ["plot.svg", "plot.png"].map(|name| folder.path().join(name));
        draw(&svg, &charts).expect("drawn");
        let text = std::fs::read_to_string(svg).expect("written");
        for part in ["<svg", "first", "second", "flat", "nested", "one point", "64 ranks", "µs"] {
            assert!(text.contains(part), "{part}");
        }
        draw(&png, &charts).expect("drawn");
        let mut decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(png).expect("written")));
        let info = decoder.read_header_info().expect("a PNG file");
        assert_eq!((info.width, info.height), (WIDTH, 2 * HEIGHT));
    }

    #[test]
    fn the_name_of_a_plot_says_its_format() {
        assert!(["a.svg", "b.PNG"].iter().all(|name| file(name).is_ok()));
        assert!(["", "a", "a.pdf", ".svg"].iter().all(|name| file(name).is_err()));
    }
}
