//! Axes that pictures share.

use super::{DIM, Frame, GRID, RULE, TEXT};
use crate::draw::{Anchor, Canvas, TextSize};
use crate::ticks::{number_ticks, size_ticks, time_ticks};
use isotherm_core::units::format_size;

/// A time axis below `frame`, for seconds `from` to `to`.
pub(crate) fn time_axis(canvas: &mut dyn Canvas, frame: &Frame, from: f64, to: f64) {
    let ticks = time_ticks(from, to, (frame.width / 90.0) as usize);
    canvas.line((frame.x, frame.bottom() + 0.5), (frame.right(), frame.bottom() + 0.5), RULE);
    for (seconds, label) in &ticks.ticks {
        let x = frame.x + (seconds - from) / (to - from).max(1e-9) * frame.width;
        canvas.line((x, frame.bottom() + 0.5), (x, frame.bottom() + 5.5), RULE);
        canvas.text(x, frame.bottom() + 19.0, label, TextSize::Small, Anchor::Middle, TEXT);
    }
    let unit = match ticks.unit {
        "s" => "time since the begin of the record, s".to_owned(),
        unit => format!("time since the begin of the record ({unit})"),
    };
    canvas.text(frame.x + frame.width / 2.0, frame.bottom() + 37.0, &unit, TextSize::Small, Anchor::Middle, DIM);
}

/// An axis of values from 0 to `max` left of `frame`, with lines behind the curve. Bytes, or plain numbers.
pub(crate) fn value_axis(canvas: &mut dyn Canvas, frame: &Frame, max: u64, bytes: bool) {
    let most = (frame.height / 28.0).max(1.0) as u64;
    for value in if bytes { size_ticks(max, most) } else { number_ticks(max, most) } {
        let y = value_y(frame, value, max);
        canvas.line((frame.x, y), (frame.right(), y), GRID);
        let label = if bytes { format_size(value) } else { value.to_string() };
        canvas.text(frame.x - 8.0, y + 4.0, &label, TextSize::Small, Anchor::End, TEXT);
    }
}

/// Where a value lies in `frame`.
pub(crate) fn value_y(frame: &Frame, value: u64, max: u64) -> f64 {
    frame.bottom() - value as f64 / max.max(1) as f64 * frame.height
}
