//! The plot of a sweep: one chart per unit, one line per measure and number of ranks, on logarithmic axes.

use core::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::Point;
use crate::bytes::Bytes;

/// Pixels of a chart.
const WIDTH: u32 = 900;
const HEIGHT: u32 = 480;
/// Pixels of the legend at the right.
const LEGEND: i32 = 210;
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

/// Draws the points into an SVG file.
pub(super) fn draw(path: &Path, device: &str, points: &[Point]) -> Result<(), Box<dyn Error>> {
    let mut units: Vec<&str> = points.iter().map(|point| Point::unit(point.name).2).collect();
    units.sort_unstable();
    units.dedup();
    let mut text = String::new();
    {
        let size = (WIDTH, HEIGHT * units.len().max(1) as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE)?;
        for (area, unit) in area.split_evenly((units.len().max(1), 1)).iter().zip(&units) {
            let of_unit: Vec<&Point> = points.iter().filter(|point| Point::unit(point.name).2 == *unit).collect();
            draw_chart(area, device, unit, &of_unit)?;
        }
        area.present()?;
    }
    std::fs::write(path, text)?;
    Ok(())
}

/// Draws the points of one unit.
fn draw_chart<'a>(
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    device: &str,
    unit: &str,
    points: &[&Point],
) -> Result<(), Box<dyn Error>> {
    // A barrier has no size.
    let x = |point: &Point| point.bytes.max(1) as f64;
    let range = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        if low < high { (low, high) } else { (low / 2.0, low * 2.0) }
    };
    let (first, last) = range(&mut points.iter().map(|point| x(point)));
    let (least, most) = range(&mut points.iter().flat_map(|point| point.quartiles()).filter(|value| *value > 0.0));
    let mut chart = ChartBuilder::on(area)
        .caption(format!("unisono, device {device}"), ("sans-serif", 22))
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(44)
        .y_label_area_size(78)
        .build_cartesian_2d((first..last * 1.1).log_scale().base(4.0), (least * 0.8..most * 1.25).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("bytes")
        .y_desc(unit)
        .x_label_formatter(&|bytes| Bytes(bytes.round() as u64).to_string())
        .y_label_formatter(&|value| format!("{value}"))
        .light_line_style(WHITE)
        .draw()?;
    let mut lines: Vec<(&str, u32)> = points.iter().map(|point| (point.name, point.ranks)).collect();
    lines.dedup();
    for (number, ((name, ranks), colour)) in (0_i32..).zip(lines.into_iter().zip(COLOURS.into_iter().cycle())) {
        let of_line: Vec<&&Point> = points.iter().filter(|point| (point.name, point.ranks) == (name, ranks)).collect();
        let median = |point: &&&Point| (x(point), point.quartiles()[1]);
        chart.draw_series(LineSeries::new(of_line.iter().map(median), colour.stroke_width(2)).point_size(3))?;
        let bar = |point: &&Point| {
            let [low, median, high] = point.quartiles();
            ErrorBar::new_vertical(x(point), low, median, high, colour.stroke_width(1), 7)
        };
        chart.draw_series(of_line.iter().map(|point| bar(point)))?;
        // The legend is beside the chart, where it covers no line.
        let (left, top) = (WIDTH as i32 - LEGEND + 16, 60 + 24 * number);
        area.draw(&PathElement::new([(left, top + 7), (left + 24, top + 7)], colour.stroke_width(2)))?;
        area.draw(&Text::new(format!("{name}, {ranks} ranks"), (left + 32, top), ("sans-serif", 15)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_and_unit_is_drawn() {
        let point = |name, bytes, value| Point { name, ranks: 2, bytes, values: vec![value, 2.0 * value] };
        let points =
            [point("latency", 8, 1.0), point("latency", 64, 2.0), point("rate", 8, 3.0), point("barrier", 0, 4.0)];
        let file = tempfile::NamedTempFile::new().expect("a file");
        draw(file.path(), "udp", &points).expect("drawn");
        let text = std::fs::read_to_string(file.path()).expect("written");
        for part in
            ["<svg", "latency, 2 ranks", "rate, 2 ranks", "barrier, 2 ranks", "million messages/s", "device udp"]
        {
            assert!(text.contains(part), "{part}");
        }
    }
}
