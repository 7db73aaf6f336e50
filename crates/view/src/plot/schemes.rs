//! A scheme's course: memory, quota, and goals, one above the other over the same time.

use super::axes::{time_axis, value_axis, value_y};
use super::series::time_curve;
use super::{BRIGHT, DIM, Frame, TEXT};
use crate::draw::{Anchor, Canvas, TextSize};
use crate::schemes::SchemeHistory;
use crate::series::Point;
use isotherm_core::units::format_size;

const WIDTH: f64 = 960.0;
const TOP: f64 = 60.0;
const PANEL: f64 = 130.0;
const GAP: f64 = 40.0;
const BOTTOM: f64 = 30.0;

/// One curve with its heading.
struct Panel<'a> {
    title: String,
    points: &'a [Point],
    bytes: bool,
    /// A line to reach.
    target: Option<u64>,
}

fn panels(h: &SchemeHistory) -> Vec<Panel<'_>> {
    let bytes = |title: &str, points| Panel { title: title.into(), points, bytes: true, target: None };
    let mut all = vec![bytes("resident memory of the targets", h.rss.as_slice())];
    if h.saved.iter().any(|p| p.value > 0) {
        all.push(bytes("memory out at present", &h.saved));
    }
    let applied = if h.dry_run { "would be applied per second" } else { "applied per second" };
    all.push(bytes(applied, &h.applied_rate));
    if h.waiting.iter().any(|p| p.value > 0) {
        let title = "waiting for memory, microseconds per second".to_owned();
        all.push(Panel { title, points: &h.waiting, bytes: false, target: None });
    }
    if !h.quota.is_empty() {
        all.push(bytes("effective quota per reset interval", &h.quota));
    }
    for (i, goal) in h.goals.iter().enumerate() {
        let title = format!("goal {i}, in its unit; the line is what it aims at");
        all.push(Panel { title, points: &goal.values, bytes: false, target: Some(goal.target) });
    }
    all.retain(|p| !p.points.is_empty());
    all
}

/// Width and height of the picture.
pub fn size(h: &SchemeHistory) -> (f64, f64) {
    (WIDTH, TOP + panels(h).len().max(1) as f64 * (PANEL + GAP) + BOTTOM)
}

pub fn draw(canvas: &mut dyn Canvas, h: &SchemeHistory) {
    canvas.text(24.0, 30.0, &h.title(), TextSize::Title, Anchor::Start, BRIGHT);
    let base = h.span_ns.0;
    let span = (0.0, (h.span_ns.1 - base) as f64 / 1e9);
    let panels = panels(h);
    for (i, panel) in panels.iter().enumerate() {
        let frame = Frame { x: 86.0, y: TOP + i as f64 * (PANEL + GAP) + 12.0, width: WIDTH - 178.0, height: PANEL };
        let max = panel.points.iter().map(|p| p.value).chain(panel.target).max().unwrap_or(0).max(1);
        canvas.text(frame.x, frame.y - 8.0, &panel.title, TextSize::Normal, Anchor::Start, TEXT);
        value_axis(canvas, &frame, max, panel.bytes);
        time_curve(canvas, &frame, panel.points, span, base, max);
        let label = |value: u64| if panel.bytes { format_size(value) } else { rounded(value) };
        let mut lowest = None;
        if let Some(target) = panel.target {
            let y = value_y(&frame, target, max);
            canvas.line((frame.x, y), (frame.right() + 6.0, y), BRIGHT);
            let text = format!("aim {}", label(target));
            canvas.text(frame.right() + 10.0, y + 4.0, &text, TextSize::Small, Anchor::Start, BRIGHT);
            lowest = Some(y);
        }
        if let Some(last) = panel.points.last() {
            let y = value_y(&frame, last.value, max);
            // Labels of close values move apart.
            let y = lowest.filter(|l: &f64| (l - y).abs() < 14.0).map_or(y, |l| l + 14.0);
            canvas.text(frame.right() + 10.0, y + 4.0, &label(last.value), TextSize::Small, Anchor::Start, DIM);
        }
        if i + 1 == panels.len() {
            time_axis(canvas, &frame, span.0, span.1);
        }
    }
    if panels.is_empty() {
        canvas.text(24.0, TOP + 30.0, "nothing was measured", TextSize::Normal, Anchor::Start, DIM);
    }
}

/// A number that fits beside a curve: `950`, `12.3 k`, `629 M`.
fn rounded(value: u64) -> String {
    let scaled = |unit: f64, name: &str| {
        let v = value as f64 / unit;
        if v < 100.0 { format!("{v:.1} {name}") } else { format!("{v:.0} {name}") }
    };
    match value {
        0..10_000 => value.to_string(),
        10_000..1_000_000 => scaled(1e3, "k"),
        1_000_000..1_000_000_000 => scaled(1e6, "M"),
        _ => scaled(1e9, "G"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::svg::Svg;

    #[test]
    fn labels_stay_short() {
        for (value, text) in [(950, "950"), (12_345, "12.3 k"), (629_145_600, "629 M"), (u64::MAX, "18446744074 G")] {
            assert_eq!(rounded(value), text);
        }
    }

    #[test]
    fn what_is_not_bytes_has_decimal_ticks() {
        let second = 1_000_000_000;
        let h = SchemeHistory {
            span_ns: (0, second),
            waiting: vec![Point { time_ns: 0, value: 0 }, Point { time_ns: second, value: 65_000 }],
            before: 0,
            scheme: 0,
            action: "pageout".into(),
            dry_run: true,
            rss: Vec::new(),
            saved: Vec::new(),
            quota: Vec::new(),
            applied_rate: Vec::new(),
            goals: Vec::new(),
            totals: (0, 0, 0, 0),
            idle: Vec::new(),
            lines: 2,
        };
        let mut svg = Svg::new(size(&h).0, size(&h).1, super::super::DIM, "");
        draw(&mut svg, &h);
        let text = svg.finish();
        assert!(text.contains(">20000<") && text.contains(">60000<") && !text.contains("16384"), "{text}");
        assert!(text.contains(">scheme 0 (pageout), dry run<"), "{text}");
    }
}
