//! A heatmap as a picture.

use super::axes::time_axis;
use super::{BRIGHT, DIM, Frame, RULE, TEXT};
use crate::draw::{Anchor, Canvas, Image, TextSize};
use crate::heat::grid::Shown;
use crate::heat::map::{HeatMap, Measure};
use crate::heat::palette::{self, BACKGROUND, BLIND, BLIND_STRIPE, COLD, Rgb};
use crate::names;
use crate::units::format_percent;
use isotherm_core::units::{format_size, format_time};

/// Width and height of the picture.
pub const SIZE: (f64, f64) = (1280.0, 760.0);

const LEFT: f64 = 178.0;
const RIGHT: f64 = 128.0;
const TOP: f64 = 78.0;
const BOTTOM: f64 = 128.0;
/// Shades of the bars that mark mappings, in turn.
const BARS: [Rgb; 2] = [Rgb(0x5d, 0x66, 0x7a), Rgb(0x39, 0x40, 0x4f)];

/// Rows and columns of cells that fit the picture: one a pixel.
pub fn resolution() -> (usize, usize) {
    ((SIZE.1 - TOP - BOTTOM) as usize, (SIZE.0 - LEFT - RIGHT) as usize)
}

/// Draws `map`, which has at most the rows and columns of [`resolution`].
pub fn draw(canvas: &mut dyn Canvas, map: &HeatMap) {
    let frame = Frame { x: LEFT, y: TOP, width: SIZE.0 - LEFT - RIGHT, height: SIZE.1 - TOP - BOTTOM };
    heading(canvas, map);
    canvas.image(frame.x, frame.y, frame.width, frame.height, &image(map));
    let names_drawn = mapping_names(canvas, map, &frame);
    folds(canvas, map, &frame, &names_drawn);
    addresses(canvas, map, &frame);
    time_axis(canvas, &frame, map.seconds(map.grid.start_ns), map.seconds(map.grid.end_ns));
    legend(canvas, map, &frame);
}

fn heading(canvas: &mut dyn Canvas, map: &HeatMap) {
    let room = ((SIZE.0 - 48.0) / canvas.char_width(TextSize::Title)) as usize;
    canvas.text(24.0, 34.0, &names::fit(&map.target.title(), room), TextSize::Title, Anchor::Start, BRIGHT);
    let (compressed, absent) = map.hidden();
    let mut parts = vec![
        format!("{} recorded", format_time(map.grid.end_ns - map.grid.start_ns)),
        format!("{} mapped", format_size(map.space.total())),
    ];
    if absent > 0 {
        parts.push(format!("{} never present, folded", format_size(absent)));
    }
    if compressed > 0 {
        parts.push(format!("{} drawn compressed", format_size(compressed)));
    }
    canvas.text(24.0, 56.0, &parts.join("  ·  "), TextSize::Normal, Anchor::Start, DIM);
}

/// The cells as pixels; high addresses at the top.
pub fn image(map: &HeatMap) -> Image {
    let (rows, cols) = (map.grid.rows, map.grid.cols);
    let pixel = |y: usize, x: usize| match map.grid.cell(rows - 1 - y, x).shown() {
        Shown::Nothing => BACKGROUND,
        Shown::Blind if (x + y) % 6 < 2 => BLIND_STRIPE,
        Shown::Blind => BLIND,
        Shown::Rate(rate) => palette::colour(map.scale.level(rate)),
    };
    let pixels = (0..rows).flat_map(|y| (0..cols).map(move |x| (y, x))).map(|(y, x)| pixel(y, x)).collect();
    Image { width: cols, height: rows, pixels }
}

fn y_of(map: &HeatMap, frame: &Frame, row: f64) -> f64 {
    frame.bottom() - row / map.axis.rows.max(1) as f64 * frame.height
}

/// A bar for each mapping and its name where there is room; larger ones first. Returns the rows of the bars drawn.
fn mapping_names(canvas: &mut dyn Canvas, map: &HeatMap, frame: &Frame) -> Vec<(f64, f64)> {
    let mut bars: Vec<(f64, f64, &str)> = map
        .names
        .iter()
        .map(|n| (map.axis.row(n.from), map.axis.row(n.to), n.name.as_str()))
        .filter(|(low, high, _)| high - low > 0.2)
        .collect();
    // Neighbours of the same name (the parts of a library) share a bar.
    bars.dedup_by(|next, last| {
        let same = next.2 == last.2 && next.0 - last.1 < 0.5;
        if same {
            last.1 = next.1;
        }
        same
    });
    for (i, (low, high, _)) in bars.iter().enumerate() {
        let (top, bottom) = (y_of(map, frame, *high), y_of(map, frame, *low));
        canvas.rect(frame.x - 9.0, top, 5.0, (bottom - top).max(1.0), BARS[i % 2]);
    }
    let mut order: Vec<usize> = (0..bars.len()).collect();
    order.sort_by(|&a, &b| (bars[b].1 - bars[b].0).total_cmp(&(bars[a].1 - bars[a].0)));
    let mut taken: Vec<f64> = Vec::new();
    let room = ((LEFT - 40.0) / canvas.char_width(TextSize::Normal)) as usize;
    for i in order {
        let (low, high, name) = bars[i];
        let y = y_of(map, frame, (low + high) / 2.0);
        if taken.iter().all(|t| (t - y).abs() >= 14.0) {
            taken.push(y);
            let text = names::fit(names::short(name), room);
            canvas.text(frame.x - 16.0, y + 4.0, &text, TextSize::Normal, Anchor::End, TEXT);
        }
    }
    bars.into_iter().map(|(low, high, _)| (low, high)).collect()
}

/// A notch through the bars and a thin line where addresses jump.
fn folds(canvas: &mut dyn Canvas, map: &HeatMap, frame: &Frame, bars: &[(f64, f64)]) {
    for fold in map.axis.folds.iter().filter(|f| f.row > 0 && f.row < map.axis.rows) {
        let row = fold.row as f64;
        let y = y_of(map, frame, row);
        // Among bars that are hardly a pixel high the line would hide what it separates.
        let room = |low: f64, high: f64| (high - low) / map.axis.rows as f64 * frame.height >= 5.0;
        let roomy =
            bars.iter().all(|&(low, high)| (high - row).abs() > 0.6 && (low - row).abs() > 0.6 || room(low, high));
        if roomy {
            canvas.rect(frame.x - 9.0, y - 1.0, frame.width + 9.0, 2.0, BACKGROUND);
            canvas.line((frame.x - 12.0, y + 2.0), (frame.x - 1.0, y - 2.0), DIM);
        }
    }
}

/// Addresses where stretches begin, and how much memory compressed ones stand for.
fn addresses(canvas: &mut dyn Canvas, map: &HeatMap, frame: &Frame) {
    let x = frame.right();
    let mut last = f64::INFINITY;
    for s in &map.axis.stretches {
        let (low, high) = (y_of(map, frame, s.rows.start as f64), y_of(map, frame, s.rows.end as f64));
        if s.compressed {
            let mut y = high;
            while y < low {
                canvas.rect(x + 4.0, y, 3.0, 2.0_f64.min(low - y), DIM);
                y += 5.0;
            }
            if low - high >= 44.0 {
                let middle = (low + high) / 2.0;
                for (y, label) in [(middle - 3.0, format_size(s.to - s.from).as_str()), (middle + 11.0, "compressed")] {
                    canvas.text(x + 14.0, y, label, TextSize::Small, Anchor::Start, DIM);
                }
            }
        }
        if last - low >= 14.0 {
            last = low;
            canvas.line((x, low - 0.5), (x + 8.0, low - 0.5), RULE);
            let address = format!("{:x}", map.space.page_addr(s.from));
            canvas.text(x + 14.0, low + 3.0, &address, TextSize::Small, Anchor::Start, DIM);
        }
    }
}

fn legend(canvas: &mut dyn Canvas, map: &HeatMap, frame: &Frame) {
    let (width, height) = (420.0, 12.0);
    let (x, y) = (frame.x, SIZE.1 - 58.0);
    let pixels: Vec<Rgb> = (1..=255u8).map(palette::colour).collect();
    canvas.image(x, y, width, height, &Image { width: pixels.len(), height: 1, pixels });
    for rate in map.scale.ticks() {
        let tick = x + map.scale.position(rate) * width;
        canvas.line((tick, y + height), (tick, y + height + 4.0), RULE);
        canvas.text(tick, y + height + 16.0, &format_percent(rate), TextSize::Small, Anchor::Middle, TEXT);
        if let Some(hz) = map.hz_text(rate) {
            canvas.text(tick, y + height + 31.0, &hz, TextSize::Small, Anchor::Middle, DIM);
        }
    }
    let of_pages = matches!(map.measure, Measure::Pages(_));
    let head = if of_pages { "" } else { "access rate: " };
    let text = format!("{head}{}; log scale", map.rate_text());
    canvas.text(x, y - 8.0, &text, TextSize::Small, Anchor::Start, DIM);
    let nothing = if of_pages { "no pages" } else { "not mapped" };
    let mut at = x + width + 56.0;
    for (name, colour) in [("not accessed", COLD), ("not seen", BLIND), (nothing, BACKGROUND)] {
        canvas.rect(at - 1.0, y - 1.0, 20.0, 14.0, RULE);
        let pixels = (0..12 * 18).map(|i| match (i / 18, i % 18) {
            (r, c) if colour == BLIND && (r + c) % 6 < 2 => BLIND_STRIPE,
            _ => colour,
        });
        canvas.image(at, y, 18.0, 12.0, &Image { width: 18, height: 12, pixels: pixels.collect() });
        canvas.text(at + 26.0, y + 10.0, name, TextSize::Small, Anchor::Start, TEXT);
        at += 34.0 + 14.0 + name.len() as f64 * canvas.char_width(TextSize::Small);
    }
}
