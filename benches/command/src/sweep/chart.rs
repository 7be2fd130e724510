//! The plot of a sweep: one chart per unit, one line per measure and number of ranks, on logarithmic axes.

use core::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::bitmap::{self, Bitmap};
use super::{Point, UNISONO};
use crate::bytes::Bytes;

/// Pixels of a chart.
const WIDTH: u32 = 980;
const HEIGHT: u32 = 480;
/// Pixels of the legend at the right.
const LEGEND: i32 = 290;
/// Pixels of the dashes of other libraries, and of the gaps between them.
const DASHES: [(&str, (u32, u32)); 2] = [("Open MPI", (8, 4)), ("MPICH", (2, 4))];
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

/// Draws the points into a PNG file, if its name ends so, else into an SVG file.
pub(super) fn draw(path: &Path, device: &str, points: &[Point]) -> Result<(), Box<dyn Error>> {
    let mut units: Vec<&str> = points.iter().map(|point| Point::unit(point.name).2).collect();
    units.sort_unstable();
    units.dedup();
    let size = (WIDTH, HEIGHT * units.len().max(1) as u32);
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png")) {
        let mut pixels = bitmap::blank(size);
        draw_charts(&Bitmap::new(size, &mut pixels).into_drawing_area(), device, &units, points)?;
        return Ok(bitmap::write(path, size, &pixels)?);
    }
    let mut text = String::new();
    draw_charts(&SVGBackend::with_string(&mut text, size).into_drawing_area(), device, &units, points)?;
    std::fs::write(path, text)?;
    Ok(())
}

/// Draws a chart for each unit.
fn draw_charts<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    device: &str,
    units: &[&str],
    points: &[Point],
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    for (area, unit) in area.split_evenly((units.len().max(1), 1)).iter().zip(units) {
        let of_unit: Vec<&Point> = points.iter().filter(|point| Point::unit(point.name).2 == *unit).collect();
        draw_chart(area, device, unit, &of_unit)?;
    }
    area.present()?;
    Ok(())
}

/// Draws the points of one unit. A line's colour is that of its measure and number of ranks; those of other libraries
/// are dashed.
fn draw_chart<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    device: &str,
    unit: &str,
    points: &[&Point],
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    // A barrier has no size.
    let x = |point: &Point| point.bytes.max(1) as f64;
    let range = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        if low < high { (low, high) } else { (low / 2.0, low * 2.0) }
    };
    let (first, last) = range(&mut points.iter().map(|point| x(point)));
    // A quartile may be an outlier: its bar ends at the edge of the chart.
    let (least, most) = range(&mut points.iter().map(|point| point.quartiles()[1]).filter(|value| *value > 0.0));
    let (least, most) = (least / 2.0, most * 2.0);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("unisono, device {device}"), ("sans-serif", 22))
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(44)
        .y_label_area_size(78)
        .build_cartesian_2d((first..last * 1.1).log_scale().base(4.0), (least..most).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("bytes")
        .y_desc(unit)
        .x_label_formatter(&|bytes| Bytes(bytes.round() as u64).to_string())
        .y_label_formatter(&|value| format!("{value}"))
        .light_line_style(WHITE)
        .draw()?;
    let mut lines: Vec<(&str, &str, u32)> = Vec::new();
    let mut colours: Vec<(&str, u32)> = Vec::new();
    for point in points {
        let (line, colour) = ((point.library, point.name, point.ranks), (point.name, point.ranks));
        if !lines.contains(&line) {
            lines.push(line);
        }
        if !colours.contains(&colour) {
            colours.push(colour);
        }
    }
    for (number, line) in (0_i32..).zip(lines) {
        let (library, name, ranks) = line;
        let place = colours.iter().position(|colour| *colour == (name, ranks)).unwrap_or(0);
        let colour = COLOURS[place % COLOURS.len()];
        let of_line: Vec<&&Point> =
            points.iter().filter(|point| (point.library, point.name, point.ranks) == line).collect();
        let median = |point: &&&Point| (x(point), point.quartiles()[1]);
        let dash = DASHES.into_iter().find_map(|(of, dash)| (of == library).then_some(dash));
        let (left, top) = (WIDTH as i32 - LEGEND + 16, 60 + 24 * number);
        let legend = |from: i32, to: i32| {
            PathElement::new([(left + from, top + 7), (left + to, top + 7)], colour.stroke_width(2))
        };
        match dash {
            None => {
                chart.draw_series(LineSeries::new(of_line.iter().map(median), colour.stroke_width(2)).point_size(3))?;
                area.draw(&legend(0, 24))?;
            }
            Some((long, gap)) => {
                let medians: Vec<(f64, f64)> = of_line.iter().map(median).collect();
                let dots = medians.iter().map(|at| Circle::new(*at, 2, colour.filled()));
                chart.draw_series(dots)?;
                chart.draw_series(DashedLineSeries::new(medians, long, gap, colour.stroke_width(2)))?;
                for start in (0..24).step_by((long + gap) as usize) {
                    area.draw(&legend(start, (start + long as i32).min(24)))?;
                }
            }
        }
        let bar = |point: &&Point| {
            let [low, median, high] = point.quartiles().map(|value| value.clamp(least, most));
            ErrorBar::new_vertical(x(point), low, median, high, colour.stroke_width(1), 7)
        };
        chart.draw_series(of_line.iter().map(|point| bar(point)))?;
        // The legend is beside the chart, where it covers no line.
        let whose = if library == UNISONO { String::new() } else { format!("{library}: ") };
        area.draw(&Text::new(format!("{whose}{name}, {ranks} ranks"), (left + 32, top), ("sans-serif", 15)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_and_unit_is_drawn() {
        let of =
            |library, name, bytes, value| Point { library, name, ranks: 2, bytes, values: vec![value, 2.0 * value] };
        let point = |name, bytes, value| of(UNISONO, name, bytes, value);
        let points = [
            point("latency", 8, 1.0),
            point("latency", 64, 2.0),
            point("rate", 8, 3.0),
            point("barrier", 0, 4.0),
            of("MPICH", "latency", 8, 1.5),
            of("MPICH", "latency", 64, 2.5),
        ];
        let folder = tempfile::tempdir().expect("a folder");
        let [svg, png] = ["plot.svg", "plot.png"].map(|name| folder.path().join(name));
        draw(&svg, "udp", &points).expect("drawn");
        let text = std::fs::read_to_string(svg).expect("written");
        for part in [
            "<svg",
            ">\nlatency, 2 ranks",
            "MPICH: latency, 2 ranks",
            "rate, 2 ranks",
            "barrier, 2 ranks",
            "million messages/s",
            "device udp",
        ] {
            assert!(text.contains(part), "{part}");
        }
        draw(&png, "udp", &points).expect("drawn");
        let mut decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(png).expect("written")));
        let info = decoder.read_header_info().expect("a PNG file");
        assert_eq!((info.width, info.height), (WIDTH, 2 * HEIGHT));
    }
}
