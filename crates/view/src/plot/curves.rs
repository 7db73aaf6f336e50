//! Curves of a share over a size: miss ratios.

use super::{BRIGHT, DIM, Frame, GRID, RULE, TEXT};
use crate::draw::svg::Svg;
use crate::draw::{Anchor, Canvas, TextSize};
use crate::heat::palette::{BACKGROUND, Rgb};
use crate::names;

/// Width and height of the picture.
pub const SIZE: (f64, f64) = (960.0, 520.0);

/// Colours that can be distinguished on a dark ground; they begin anew after the last.
const COLOURS: [Rgb; 12] = [
    Rgb(0xf0, 0x8a, 0x5d),
    Rgb(0x5b, 0xc0, 0xeb),
    Rgb(0x9b, 0xd7, 0x70),
    Rgb(0xf9, 0xd4, 0x5c),
    Rgb(0xc7, 0x8d, 0xf0),
    Rgb(0xff, 0x6f, 0x91),
    Rgb(0x4f, 0xd1, 0xb5),
    Rgb(0xb0, 0xa3, 0x88),
    Rgb(0x7a, 0x9b, 0xff),
    Rgb(0xe0, 0xe0, 0xe0),
    Rgb(0xd9, 0x5f, 0x3b),
    Rgb(0x8f, 0x9a, 0x3f),
];

#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Size and share (0 to 1), by size; sizes above 0.
    pub points: Vec<(f64, f64)>,
}

/// Miss ratios over cache sizes as SVG. Sizes have a logarithmic scale where they span more than a factor of 20.
pub fn miss_ratio_svg(title: &str, subtitle: &str, curves: &[Curve]) -> String {
    let mut svg = Svg::new(SIZE.0, SIZE.1, BACKGROUND, title);
    draw(&mut svg, title, subtitle, curves);
    svg.finish()
}

fn draw(canvas: &mut dyn Canvas, title: &str, subtitle: &str, curves: &[Curve]) {
    let frame = Frame { x: 70.0, y: 70.0, width: SIZE.0 - 70.0 - 130.0, height: SIZE.1 - 70.0 - 56.0 };
    canvas.text(24.0, 32.0, title, TextSize::Title, Anchor::Start, BRIGHT);
    let room = ((SIZE.0 - 48.0) / canvas.char_width(TextSize::Normal)) as usize;
    canvas.text(24.0, 52.0, &names::fit(subtitle, room), TextSize::Normal, Anchor::Start, DIM);
    let sizes = || curves.iter().flat_map(|c| c.points.iter().map(|p| p.0));
    let (from, to) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    if !(from.is_finite() && from > 0.0) {
        return;
    }
    let log = to > 20.0 * from;
    let from = if log { from } else { 0.0 };
    let x = |size: f64| {
        let share = if log { (size / from).ln() / (to / from).ln() } else { size / to };
        frame.x + share * frame.width
    };
    let most = curves.iter().flat_map(|c| c.points.iter().map(|p| p.1)).fold(0.0, f64::max);
    let step = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1].into_iter().find(|s| most / s <= 10.0).unwrap_or(0.2);
    let steps = (most / step).ceil().max(1.0);
    let y = |share: f64| frame.bottom() - share / (steps * step) * frame.height;
    for i in 0..=steps as u32 {
        let share = f64::from(i) * step;
        canvas.line((frame.x, y(share)), (frame.right(), y(share)), GRID);
        let decimals = usize::from(step < 0.01);
        let label = format!("{:.decimals$} %", share * 100.0);
        canvas.text(frame.x - 8.0, y(share) + 4.0, &label, TextSize::Small, Anchor::End, TEXT);
    }
    canvas.line((frame.x, frame.bottom() + 0.5), (frame.right(), frame.bottom() + 0.5), RULE);
    for size in ticks(from, to, log) {
        canvas.line((x(size), frame.y), (x(size), frame.bottom()), GRID);
        canvas.line((x(size), frame.bottom() + 0.5), (x(size), frame.bottom() + 5.5), RULE);
        canvas.text(x(size), frame.bottom() + 19.0, &short(size), TextSize::Small, Anchor::Middle, TEXT);
    }
    let middle = frame.x + frame.width / 2.0;
    canvas.text(middle, frame.bottom() + 38.0, "pages that fit", TextSize::Small, Anchor::Middle, DIM);
    for (i, curve) in curves.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        for pair in curve.points.windows(2) {
            canvas.line((x(pair[0].0), y(pair[0].1)), (x(pair[1].0), y(pair[1].1)), colour);
        }
        for &(size, share) in &curve.points {
            canvas.rect(x(size) - 2.0, y(share) - 2.0, 4.0, 4.0, colour);
        }
        let at = frame.y + 8.0 + i as f64 * 20.0;
        canvas.rect(frame.right() + 16.0, at - 4.0, 14.0, 4.0, colour);
        canvas.text(frame.right() + 38.0, at + 2.0, &curve.name, TextSize::Normal, Anchor::Start, TEXT);
    }
}

/// Round sizes along the axis.
fn ticks(from: f64, to: f64, log: bool) -> Vec<f64> {
    if log {
        let decades = (to / from).log10();
        let all = |factors: &[f64]| -> Vec<f64> {
            let powers = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
            let sizes = powers.flat_map(|p| factors.iter().map(move |f| f * 10f64.powi(p)));
            sizes.filter(|s| (from..=to).contains(s)).collect()
        };
        return if decades > 4.0 { all(&[1.0]) } else { all(&[1.0, 2.0, 5.0]) };
    }
    let rough = to / 8.0;
    let power = 10f64.powi(rough.log10().floor() as i32);
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|f| f * power).find(|s| *s >= rough).unwrap_or(rough);
    (0..).map(|i| f64::from(i) * step).take_while(|s| *s <= to).collect()
}

/// A number of pages in few characters.
fn short(size: f64) -> String {
    match size {
        s if s >= 1e6 => format!("{} M", trim(s / 1e6)),
        s if s >= 1e4 => format!("{} k", trim(s / 1e3)),
        s => trim(s),
    }
}

fn trim(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.0, 1000.0, false), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
        assert_eq!(ticks(30.0, 1500.0, true), [50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(ticks(10.0, 1e6, true).len(), 6);
        assert_eq!((short(5.0), short(20_000.0), short(1.5e6)), ("5".into(), "20 k".into(), "1.5 M".into()));
    }

    #[test]
    fn every_curve_is_named_and_drawn() {
        let curve = |name: &str| Curve { name: name.into(), points: vec![(10.0, 0.9), (100.0, 0.4), (1000.0, 0.1)] };
        let svg = miss_ratio_svg("t", "s", &[curve("lru"), curve("<opt>")]);
        assert!(svg.contains("lru") && svg.contains("&lt;opt&gt;"));
        assert_eq!(svg.matches(COLOURS[1].hex().as_str()).count(), 2 + 3 + 1, "two strokes, three points, one legend");
        assert!(miss_ratio_svg("t", "s", &[]).contains("</svg>"), "nothing to draw");
    }
}
