//! Shares of memory over idle times, and how hosts differ.

use super::{BRIGHT, CURVE, DIM, Frame, GRID, RULE, TEXT};
use crate::draw::svg::Svg;
use crate::draw::{Anchor, Canvas, TextSize};
use crate::heat::palette::{BACKGROUND, Rgb};

/// Width and height of each picture.
const SIZE: (f64, f64) = (760.0, 340.0);
const BAND: Rgb = Rgb(0x3a, 0x29, 0x30);

/// A share of memory for one idle time.
#[derive(Debug, Clone, PartialEq)]
pub struct IdleShare {
    /// The idle time, in few characters.
    pub label: String,
    /// 0 to 1; `None`: not known.
    pub share: Option<f64>,
    /// Between which most hosts lie.
    pub band: Option<(f64, f64)>,
}

/// Shares over idle times as SVG, with the band in which most hosts lie, and a `limit` if there is one. Shares that differ by
/// more than a factor of 50 have a logarithmic scale.
pub fn idle_svg(title: &str, subtitle: &str, shares: &[IdleShare], limit: Option<f64>) -> String {
    let mut svg = Svg::new(SIZE.0, SIZE.1, BACKGROUND, title);
    let frame = begin(&mut svg, title, subtitle);
    let values = shares.iter().flat_map(|s| [s.share, s.band.map(|band| band.0), s.band.map(|band| band.1)]).flatten();
    let scale = Scale::of(values.chain(limit));
    let y = |share: f64| frame.bottom() - scale.place(share) * frame.height;
    let step = frame.width / shares.len().max(1) as f64;
    let x = |i: usize| frame.x + (i as f64 + 0.5) * step;
    for run in runs(shares, |s| s.band) {
        let edge = |of: fn((f64, f64)) -> f64| run.iter().map(|&(i, band)| (x(i), y(of(band)))).collect::<Vec<_>>();
        svg.area(&edge(|band| band.1), frame.bottom(), BAND, BAND);
        svg.area(&edge(|band| band.0), frame.bottom(), BACKGROUND, BAND);
    }
    for tick in scale.ticks() {
        svg.line((frame.x, y(tick)), (frame.right(), y(tick)), GRID);
        svg.text(frame.x - 8.0, y(tick) + 4.0, &percent(tick), TextSize::Small, Anchor::End, TEXT);
    }
    svg.line((frame.x, frame.bottom() + 0.5), (frame.right(), frame.bottom() + 0.5), RULE);
    if let Some(limit) = limit {
        svg.line((frame.x, y(limit)), (frame.right(), y(limit)), TEXT);
        let text = format!("limit {}", percent(limit));
        svg.text(frame.x + 6.0, y(limit) - 5.0, &text, TextSize::Small, Anchor::Start, TEXT);
    }
    for run in runs(shares, |s| s.share) {
        for pair in run.windows(2) {
            svg.line((x(pair[0].0), y(pair[0].1)), (x(pair[1].0), y(pair[1].1)), CURVE);
        }
        for (i, share) in run {
            svg.rect(x(i) - 3.0, y(share) - 3.0, 6.0, 6.0, CURVE);
            svg.text(x(i), y(share) - 9.0, &percent(share), TextSize::Small, Anchor::Middle, BRIGHT);
        }
    }
    for (i, share) in shares.iter().enumerate() {
        svg.text(x(i), frame.bottom() + 18.0, &share.label, TextSize::Small, Anchor::Middle, TEXT);
        if share.share.is_none() {
            svg.text(x(i), frame.bottom() - 8.0, "not known", TextSize::Small, Anchor::Middle, DIM);
        }
    }
    svg.text(
        frame.x + frame.width / 2.0,
        frame.bottom() + 36.0,
        "idle for at least",
        TextSize::Small,
        Anchor::Middle,
        DIM,
    );
    svg.finish()
}

/// Of how many hosts which share is cold, as SVG: `counts` are of equal parts of 0 to 100 %.
pub fn hosts_svg(title: &str, subtitle: &str, counts: &[u64]) -> String {
    let mut svg = Svg::new(SIZE.0, SIZE.1, BACKGROUND, title);
    let frame = begin(&mut svg, title, subtitle);
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let step = frame.width / counts.len().max(1) as f64;
    for (i, count) in counts.iter().enumerate() {
        let height = *count as f64 / most as f64 * frame.height;
        let x = frame.x + i as f64 * step;
        svg.rect(x + 1.0, frame.bottom() - height, step - 2.0, height, CURVE);
        if *count > 0 {
            let at = frame.bottom() - height - 5.0;
            svg.text(x + step / 2.0, at, &count.to_string(), TextSize::Small, Anchor::Middle, BRIGHT);
        }
    }
    svg.line((frame.x, frame.bottom() + 0.5), (frame.right(), frame.bottom() + 0.5), RULE);
    for tick in 0..=5 {
        let x = frame.x + f64::from(tick) / 5.0 * frame.width;
        svg.text(x, frame.bottom() + 18.0, &format!("{} %", tick * 20), TextSize::Small, Anchor::Middle, TEXT);
    }
    svg.finish()
}

fn begin(svg: &mut Svg, title: &str, subtitle: &str) -> Frame {
    svg.text(24.0, 30.0, title, TextSize::Title, Anchor::Start, BRIGHT);
    svg.text(24.0, 50.0, subtitle, TextSize::Normal, Anchor::Start, DIM);
    Frame { x: 70.0, y: 78.0, width: SIZE.0 - 100.0, height: SIZE.1 - 78.0 - 52.0 }
}

/// Where shares lie from bottom (0) to top (1).
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    Linear {
        step: f64,
        steps: u32,
    },
    /// Powers of ten.
    Logarithmic {
        from: i32,
        to: i32,
    },
}

impl Scale {
    fn of(shares: impl Iterator<Item = f64> + Clone) -> Self {
        let most = shares.clone().fold(0.0, f64::max);
        let least = shares.filter(|share| *share > 0.0).fold(f64::INFINITY, f64::min);
        if most > 50.0 * least {
            return Self::Logarithmic { from: least.log10().floor() as i32, to: most.log10().ceil() as i32 };
        }
        let steps = [1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1];
        let step = steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(0.2);
        Self::Linear { step, steps: (most / step).ceil().max(1.0) as u32 }
    }

    /// A share too small for the scale lies at its bottom.
    fn place(self, share: f64) -> f64 {
        match self {
            Self::Linear { step, steps } => share / (step * f64::from(steps)),
            Self::Logarithmic { from, to } => ((share.log10() - f64::from(from)) / f64::from(to - from)).max(0.0),
        }
    }

    fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { step, steps } => (0..=steps).map(|i| f64::from(i) * step).collect(),
            Self::Logarithmic { from, to } => (from..=to).map(|power| 10f64.powi(power)).collect(),
        }
    }
}

/// Neighbours that have a value, with their places.
fn runs<T: Copy>(shares: &[IdleShare], value: impl Fn(&IdleShare) -> Option<T>) -> Vec<Vec<(usize, T)>> {
    let mut all = vec![Vec::new()];
    for (i, share) in shares.iter().enumerate() {
        match value(share) {
            Some(value) => all.last_mut().into_iter().for_each(|run| run.push((i, value))),
            None => all.push(Vec::new()),
        }
    }
    all.retain(|run| !run.is_empty());
    all
}

/// With as many digits as tell something.
fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        p if p < 0.1 => format!("{p:.3} %"),
        p if p < 1.0 => format!("{p:.2} %"),
        p if p < 10.0 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_gap_and_not_a_zero() {
        let share =
            |share: Option<f64>| IdleShare { label: "<2m>".to_owned(), share, band: share.map(|s| (s / 2.0, s)) };
        let svg = idle_svg("t", "s", &[share(Some(0.5)), share(None), share(Some(0.25)), share(Some(0.0))], Some(0.4));
        assert_eq!(svg.matches("not known").count(), 1);
        assert!(svg.contains("&lt;2m&gt;") && svg.contains(">50 %<") && svg.contains(">limit 40 %<"));
        assert_eq!(runs(&[share(Some(0.1)), share(None), share(Some(0.2)), share(Some(0.3))], |s| s.share).len(), 2);
        assert_eq!(
            (percent(0.002), percent(0.00042), percent(0.42)),
            ("0.20 %".into(), "0.042 %".into(), "42 %".into())
        );
        let log = Scale::of([0.13, 0.0004].into_iter());
        assert_eq!((log, log.place(0.01), log.place(0.0)), (Scale::Logarithmic { from: -4, to: 0 }, 0.5, 0.0));
        assert_eq!(Scale::of([0.55, 0.2].into_iter()), Scale::Linear { step: 0.1, steps: 6 });
        assert!(hosts_svg("t", "s", &[0, 7, 3]).contains(">7<"));
    }
}
