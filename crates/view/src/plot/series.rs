//! A series over time or as percentiles.

use super::axes::{time_axis, value_axis, value_y};
use super::{BRIGHT, CURVE, CURVE_FILL, DIM, Frame, GRID, RULE, TEXT};
use crate::draw::{Anchor, Canvas, TextSize};
use crate::names;
use crate::series::distribution::Distribution;
use crate::series::{Point, envelope};
use isotherm_core::units::format_size;

/// Width and height of a picture of a series.
pub const SIZE: (f64, f64) = (960.0, 360.0);

/// What to write around a curve.
#[derive(Debug, Clone, Copy)]
pub struct SeriesPicture<'a> {
    /// Heading: what is measured.
    pub title: &'a str,
    pub subtitle: &'a str,
    /// Time zero, ns.
    pub base_ns: u64,
    /// Whether values are bytes.
    pub bytes: bool,
    /// Sorted by size instead of by time.
    pub by_size: bool,
}

/// Draws a whole picture of [`SIZE`].
pub fn draw(canvas: &mut dyn Canvas, points: &[Point], picture: &SeriesPicture) {
    let distribution = Distribution::of(points);
    let marks: Vec<(u64, String)> = [50.0, 95.0]
        .into_iter()
        .filter_map(|percent| {
            let value = distribution.percentile(percent)?;
            let text = if picture.bytes { format_size(value) } else { value.to_string() };
            Some((value, format!("p{percent} {text}")))
        })
        .collect();
    // Right of the curve there is room for what marks are called.
    let longest = marks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
    let margin = 18.0 + longest as f64 * canvas.char_width(TextSize::Small);
    let frame = Frame { x: 86.0, y: 70.0, width: SIZE.0 - 86.0 - margin, height: SIZE.1 - 70.0 - 52.0 };
    canvas.text(24.0, 32.0, picture.title, TextSize::Title, Anchor::Start, BRIGHT);
    let room = ((SIZE.0 - 48.0) / canvas.char_width(TextSize::Normal)) as usize;
    canvas.text(24.0, 52.0, &names::fit(picture.subtitle, room), TextSize::Normal, Anchor::Start, DIM);
    let max = distribution.max().unwrap_or(0).max(1);
    value_axis(canvas, &frame, max, picture.bytes);
    if picture.by_size {
        percentile_curve(canvas, &frame, &distribution, max);
    } else {
        let (from, to) = time_span(points, picture.base_ns);
        time_curve(canvas, &frame, points, (from, to), picture.base_ns, max);
        time_axis(canvas, &frame, from, to);
    }
    let mut lowest = f64::INFINITY;
    for (value, label) in marks {
        let y = value_y(&frame, value, max);
        canvas.line((frame.x, y), (frame.right() + 6.0, y), DIM);
        // Labels of close values move apart.
        let label_y = (y + 4.0).min(lowest - 14.0);
        lowest = label_y;
        canvas.text(frame.right() + 10.0, label_y, &label, TextSize::Small, Anchor::Start, TEXT);
    }
}

/// The curve of points over seconds `span` (from `base_ns`), without axes.
pub(crate) fn time_curve(
    canvas: &mut dyn Canvas,
    frame: &Frame,
    points: &[Point],
    span: (f64, f64),
    base_ns: u64,
    max: u64,
) {
    let x = |ns: u64| {
        let seconds = ns.saturating_sub(base_ns) as f64 / 1e9;
        frame.x + ((seconds - span.0) / (span.1 - span.0).max(1e-9)).clamp(0.0, 1.0) * frame.width
    };
    let curve: Vec<(f64, f64)> =
        envelope(points, frame.width as usize).map(|p| (x(p.time_ns), value_y(frame, p.value, max))).collect();
    canvas.area(&curve, frame.bottom(), CURVE_FILL, CURVE);
}

fn percentile_curve(canvas: &mut dyn Canvas, frame: &Frame, distribution: &Distribution, max: u64) {
    let steps = frame.width as usize;
    let curve: Vec<(f64, f64)> = (0..=steps)
        .filter_map(|i| {
            let value = distribution.percentile(i as f64 * 100.0 / steps as f64)?;
            Some((frame.x + i as f64, value_y(frame, value, max)))
        })
        .collect();
    canvas.area(&curve, frame.bottom(), CURVE_FILL, CURVE);
    canvas.line((frame.x, frame.bottom() + 0.5), (frame.right(), frame.bottom() + 0.5), RULE);
    for percent in (0..=100).step_by(10) {
        let x = frame.x + f64::from(percent) / 100.0 * frame.width;
        canvas.line((x, frame.y), (x, frame.bottom()), GRID);
        canvas.line((x, frame.bottom() + 0.5), (x, frame.bottom() + 5.5), RULE);
        canvas.text(x, frame.bottom() + 19.0, &percent.to_string(), TextSize::Small, Anchor::Middle, TEXT);
    }
    let x = frame.x + frame.width / 2.0;
    canvas.text(x, frame.bottom() + 37.0, "percentile", TextSize::Small, Anchor::Middle, DIM);
}

fn time_span(points: &[Point], base_ns: u64) -> (f64, f64) {
    let seconds = |p: Option<&Point>| p.map_or(0.0, |p| p.time_ns.saturating_sub(base_ns) as f64 / 1e9);
    (seconds(points.first()), seconds(points.last()))
}
