//! Runtime against memory: one point for each set of parameters.

use super::{BRIGHT, CURVE, DIM, Frame, GRID, RULE, TEXT};
use crate::draw::{Anchor, Canvas, TextSize};

/// Size of the picture in pixels.
pub const SIZE: (f64, f64) = (960.0, 540.0);

/// A set of parameters with what it costs and needs, each compared with a run without it (1).
#[derive(Debug, Clone, PartialEq)]
pub struct TradeoffPoint {
    pub runtime: f64,
    pub memory: f64,
    pub label: String,
    /// Whether it was chosen.
    pub best: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tradeoff {
    pub title: String,
    /// The points.
    pub points: Vec<TradeoffPoint>,
    /// The longest runtime allowed, if there is a limit.
    pub limit: Option<f64>,
}

/// A closed range of ratios, with some room around what is in it.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|v| v.is_finite());
    let (low, high) = finite.fold((1.0f64, 1.0f64), |(l, h), v| (l.min(v), h.max(v)));
    let room = ((high - low) * 0.08).max(0.01);
    (low - room, high + room)
}

/// Round values within a span: at most about ten.
fn ratio_ticks(span: (f64, f64)) -> Vec<f64> {
    let steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|s| (span.1 - span.0) / s <= 10.0).unwrap_or((span.1 - span.0) / 10.0);
    let (first, last) = ((span.0 / step).ceil() as i64, (span.1 / step).floor() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

pub fn draw(canvas: &mut dyn Canvas, t: &Tradeoff) {
    let frame = Frame { x: 86.0, y: 56.0, width: SIZE.0 - 130.0, height: SIZE.1 - 120.0 };
    let across = span(t.points.iter().map(|p| p.runtime).chain(t.limit));
    let up = span(t.points.iter().map(|p| p.memory));
    let x_of = |v: f64| frame.x + (v - across.0) / (across.1 - across.0) * frame.width;
    let y_of = |v: f64| frame.bottom() - (v - up.0) / (up.1 - up.0) * frame.height;
    canvas.text(24.0, 30.0, &t.title, TextSize::Title, Anchor::Start, BRIGHT);
    for value in ratio_ticks(up) {
        let y = y_of(value);
        canvas.line((frame.x, y), (frame.right(), y), GRID);
        canvas.text(frame.x - 8.0, y + 4.0, &tick(value), TextSize::Small, Anchor::End, TEXT);
    }
    for value in ratio_ticks(across) {
        let x = x_of(value);
        canvas.line((x, frame.y), (x, frame.bottom()), GRID);
        canvas.text(x, frame.bottom() + 19.0, &tick(value), TextSize::Small, Anchor::Middle, TEXT);
    }
    canvas.line((frame.x, frame.bottom() + 0.5), (frame.right(), frame.bottom() + 0.5), RULE);
    let middle = frame.x + frame.width / 2.0;
    let below = "runtime, compared with the command alone";
    canvas.text(middle, frame.bottom() + 40.0, below, TextSize::Small, Anchor::Middle, DIM);
    canvas.text(24.0, frame.y - 8.0, "memory, compared with the command alone", TextSize::Small, Anchor::Start, DIM);
    if let Some(limit) = t.limit.map(x_of) {
        canvas.line((limit, frame.y), (limit, frame.bottom()), BRIGHT);
        canvas.text(limit + 5.0, frame.y + 12.0, "limit", TextSize::Small, Anchor::Start, BRIGHT);
    }
    for p in t.points.iter().filter(|p| p.runtime.is_finite() && p.memory.is_finite()) {
        let (x, y, half) = (x_of(p.runtime), y_of(p.memory), if p.best { 6.0 } else { 3.5 });
        let colour = if p.best { BRIGHT } else { CURVE };
        canvas.rect(x - half, y - half, 2.0 * half, 2.0 * half, colour);
        let name = if p.best { format!("{} (best)", p.label) } else { p.label.clone() };
        // Names of points at the right edge stand left of them.
        let fits = x + 12.0 + name.chars().count() as f64 * canvas.char_width(TextSize::Small) < SIZE.0;
        let (at, anchor) = if fits { (x + 9.0, Anchor::Start) } else { (x - 9.0, Anchor::End) };
        canvas.text(at, y + 4.0, &name, TextSize::Small, anchor, if p.best { BRIGHT } else { TEXT });
    }
    if t.points.is_empty() {
        canvas.text(middle, frame.y + 40.0, "nothing was measured", TextSize::Normal, Anchor::Middle, DIM);
    }
}

/// A ratio with as few digits as it needs, three at most.
fn tick(value: f64) -> String {
    let text = format!("{value:.3}");
    let short = text.trim_end_matches('0');
    short.strip_suffix('.').map_or_else(|| short.to_owned(), |whole| format!("{whole}.0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_lie_inside_and_are_few() {
        for span in [(0.99, 1.01), (0.2, 1.1), (1.0, 37.0), (0.0, 1e4)] {
            let ticks = ratio_ticks(span);
            assert!((2..=11).contains(&ticks.len()), "{span:?}: {ticks:?}");
            assert!(ticks.iter().all(|t| span.0 <= *t && *t <= span.1));
        }
        assert_eq!((tick(1.0), tick(0.25), tick(0.105)), ("1.0".into(), "0.25".into(), "0.105".into()));
    }

    #[test]
    fn a_span_holds_its_values_and_one() {
        let (low, high) = span([0.5, 0.7, f64::NAN].into_iter());
        assert!(low < 0.5 && high > 1.0);
    }
}
