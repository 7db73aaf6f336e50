//! A heatmap as text: half-block cells in colour, or one character a cell without.

use super::grid::Shown;
use super::map::{HeatMap, Measure};
use super::palette::{self, Rgb};
use crate::names;
use crate::ticks::{TimeTicks, time_ticks};
use crate::units::format_percent;
use isotherm_core::units::{format_size, format_time};
use std::fmt::Write;

/// What colours a terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// 24 bits.
    True,
    /// The fixed palette of 256.
    Indexed,
    /// None: characters tell the rate.
    None,
}

/// Characters for rates from low to high where there is no colour.
const RAMP: &[u8] = b":-=+*#%@";
const COLD_CHAR: char = '.';
const BLIND_CHAR: char = '?';

/// Where things go on a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    width: usize,
    /// Characters of a mapping's name.
    name_width: usize,
    /// Columns of the picture.
    pub cols: usize,
    /// Lines of the picture.
    lines: usize,
    /// Whether addresses are written on the right.
    addresses: bool,
    colours: Colours,
}

impl Plan {
    /// For a screen of `width` by `height` characters, or the smallest that makes sense.
    pub fn new(width: usize, height: usize, colours: Colours) -> Self {
        let width = width.max(30);
        let addresses = width >= 64;
        let name_width = (width / 6).clamp(8, 24);
        let cols = width - name_width - 2 - if addresses { 14 } else { 0 };
        Self { width, name_width, cols, lines: height.saturating_sub(7).max(4), addresses, colours }
    }

    /// Rows of cells: what to ask of the heatmap.
    pub fn rows(&self) -> usize {
        self.lines * self.rows_per_line()
    }

    fn rows_per_line(&self) -> usize {
        if self.colours == Colours::None { 1 } else { 2 }
    }
}

/// Draws `map`, which was made with the rows and columns of `plan`.
pub fn draw(map: &HeatMap, plan: &Plan) -> String {
    let mut out = Screen { text: String::new(), colours: plan.colours, fg: None, bg: None };
    title(map, plan, &mut out);
    let lines = map.axis.rows.div_ceil(plan.rows_per_line());
    let labels = labels(map, plan, lines);
    for line in (0..lines).rev() {
        picture_line(map, plan, line, labels[line].as_deref(), &mut out);
    }
    time_axis(map, plan, &mut out);
    legend(map, plan, &mut out);
    out.text
}

fn title(map: &HeatMap, plan: &Plan, out: &mut Screen) {
    let (from, to) = (map.grid.start_ns - map.base_ns, map.grid.end_ns - map.base_ns);
    let mut details = match from {
        0 => format_time(to),
        _ => format!("{} to {}", format_time(from), format_time(to)),
    };
    let _ = write!(details, ", {} mapped", format_size(map.space.total()));
    let (compressed, absent) = map.hidden();
    if compressed > 0 {
        let _ = write!(details, ", {} compressed", format_size(compressed));
    }
    if absent > 0 {
        let _ = write!(details, ", {} never present", format_size(absent));
    }
    let room = plan.width.saturating_sub(details.chars().count() + 2).max(12);
    let line = format!("{}  {details}", names::fit(&map.target.title(), room));
    let _ = writeln!(out.text, "{}", names::fit(&line, plan.width));
}

/// The name to write beside each line: in the middle of the lines that it stands for.
fn labels(map: &HeatMap, plan: &Plan, lines: usize) -> Vec<Option<String>> {
    let per_line = plan.rows_per_line();
    let name = |line: usize| {
        let last = ((line + 1) * per_line).min(map.axis.rows).saturating_sub(1);
        map.name_at(map.axis.offsets(line * per_line).0, map.axis.offsets(last).1).map(|n| n.name.as_str())
    };
    let mut labels = vec![None; lines];
    let mut start = 0;
    while start < lines {
        let current = name(start);
        let end = (start..lines).find(|&l| name(l) != current).unwrap_or(lines);
        labels[(start + end - 1) / 2] = current.map(|n| names::fit(names::short(n), plan.name_width));
        start = end;
    }
    labels
}

fn picture_line(map: &HeatMap, plan: &Plan, line: usize, label: Option<&str>, out: &mut Screen) {
    let per_line = plan.rows_per_line();
    let (low, high) = (line * per_line, ((line + 1) * per_line).min(map.axis.rows));
    let fold_below = map.axis.folds.iter().any(|f| f.row >= low && f.row < high && f.row > 0);
    let compressed = map.axis.stretches.iter().any(|s| s.compressed && s.rows.start < high && low < s.rows.end);
    let axis = match (fold_below, compressed) {
        (true, _) => '≈',
        (false, true) => '┊',
        (false, false) => '│',
    };
    let _ = write!(out.text, "{} {axis}", names::right(label.unwrap_or(""), plan.name_width));
    for col in 0..map.grid.cols {
        if per_line == 1 {
            out.text.push(character(map, low, col));
        } else {
            let upper = (low + 1 < high).then(|| colour(map, low + 1, col)).flatten();
            out.half_blocks(upper, colour(map, low, col));
        }
    }
    out.reset();
    let begins =
        line == 0 || fold_below || map.axis.stretches.iter().any(|s| s.rows.start >= low && s.rows.start < high);
    if plan.addresses && begins {
        let row = map.axis.folds.iter().map(|f| f.row).find(|&r| r > low && r < high).unwrap_or(low);
        let _ = write!(out.text, " {:x}", map.space.page_addr(map.axis.offsets(row).0));
    }
    out.text.push('\n');
}

/// A cell's colour; `None` where nothing is mapped.
fn colour(map: &HeatMap, row: usize, col: usize) -> Option<Rgb> {
    match map.grid.cell(row, col).shown() {
        Shown::Nothing => None,
        Shown::Blind => Some(palette::BLIND_STRIPE),
        Shown::Rate(rate) => Some(palette::colour(map.scale.level(rate))),
    }
}

/// The character of a cell where there is no colour.
pub(crate) fn character(map: &HeatMap, row: usize, col: usize) -> char {
    match map.grid.cell(row, col).shown() {
        Shown::Nothing => ' ',
        Shown::Blind => BLIND_CHAR,
        Shown::Rate(0.0) => COLD_CHAR,
        Shown::Rate(rate) => ramp(map.scale.position(rate)),
    }
}

fn ramp(position: f64) -> char {
    char::from(RAMP[((position * RAMP.len() as f64) as usize).min(RAMP.len() - 1)])
}

fn time_axis(map: &HeatMap, plan: &Plan, out: &mut Screen) {
    let (from, to) = (map.seconds(map.grid.start_ns), map.seconds(map.grid.end_ns));
    let ticks = time_ticks(from, to, plan.cols / 10);
    let (rule, labels) = time_labels(&ticks, (from, to), plan);
    let _ = writeln!(out.text, "{:>width$} └{rule}", "", width = plan.name_width);
    let _ = writeln!(out.text, "{}", labels.trim_end());
}

/// The rule with its ticks, and the labels below it.
fn time_labels(ticks: &TimeTicks, (from, to): (f64, f64), plan: &Plan) -> (String, String) {
    let column = |seconds: f64| ((seconds - from) / (to - from).max(1e-9) * (plan.cols - 1) as f64).round() as usize;
    let columns: Vec<usize> = ticks.ticks.iter().map(|(seconds, _)| column(*seconds).min(plan.cols - 1)).collect();
    let mut rule: Vec<char> = vec!['─'; plan.cols];
    columns.iter().for_each(|&col| rule[col] = '┬');
    let centred = |(label, col): (&String, &usize)| (label.clone(), plan.name_width + 2 + col);
    let mut labels: Vec<(String, usize)> =
        ticks.ticks.iter().map(|(_, label)| label).zip(&columns).map(centred).collect();
    let width = plan.cols + plan.name_width + 2;
    // The last label has the unit. Where there is no room for both, the one before has it.
    let labels = loop {
        let Some((last, centre)) = labels.pop() else { break String::new() };
        let text = format!("{last} {}", ticks.unit);
        // In the middle below its tick, or at least with its number there.
        let [middle, right] = [0, ticks.unit.len().div_ceil(2)].map(|more| {
            let with_unit = (text.clone(), centre + more);
            label_line(labels.iter().chain([&with_unit]), width)
        });
        if middle.1 {
            break middle.0;
        } else if right.1 || labels.is_empty() {
            break right.0;
        }
    };
    (rule.into_iter().collect(), labels)
}

/// Labels around their columns, those left out that others leave no room for; and whether the last one is there.
fn label_line<'a>(labels: impl Iterator<Item = &'a (String, usize)>, width: usize) -> (String, bool) {
    let (mut line, mut free_from, mut fits) = (vec![' '; width], 0, false);
    for (label, centre) in labels {
        let at = centre.saturating_sub(label.len() / 2).min(width.saturating_sub(label.len()));
        fits = at >= free_from;
        if fits {
            line[at..].iter_mut().zip(label.chars()).for_each(|(l, c)| *l = c);
            free_from = at + label.len() + 1;
        }
    }
    (line.into_iter().collect(), fits)
}

fn legend(map: &HeatMap, plan: &Plan, out: &mut Screen) {
    const STEPS: usize = 16;
    let (bottom, top) = (map.scale.bottom(), map.scale.top);
    let _ = write!(out.text, "rate {} ", format_percent(bottom));
    for i in 0..STEPS {
        let position = (i as f64 + 0.5) / STEPS as f64;
        if plan.colours == Colours::None {
            if i % 2 == 0 {
                out.text.push(ramp(position));
            }
        } else {
            out.swatch(palette::colour((1.0 + position * 254.0) as u8));
        }
    }
    out.reset();
    let hz = match (map.hz_text(bottom), map.hz_text(top)) {
        (Some(low), Some(high)) => format!("  = {} … {high}", low.trim_end_matches(" Hz")),
        _ => String::new(),
    };
    let _ = writeln!(out.text, " {}{hz}, log scale", format_percent(top));
    let meaning = format!("rate: {}", map.rate_text());
    let _ = writeln!(out.text, "{}", names::fit(&meaning, plan.width));
    if plan.colours == Colours::None {
        let _ = write!(out.text, "{COLD_CHAR} not accessed  {BLIND_CHAR} not seen");
    } else {
        out.swatch(palette::COLD);
        out.reset();
        out.text.push_str(" not accessed  ");
        out.swatch(palette::BLIND_STRIPE);
        out.reset();
        out.text.push_str(" not seen");
    }
    let blank = if matches!(map.measure, Measure::Pages(_)) { "no pages" } else { "not mapped" };
    let _ = write!(out.text, "  blank: {blank}  ≈ gap folded");
    if map.hidden().0 > 0 {
        out.text.push_str("  ┊ compressed");
    }
    out.text.push('\n');
}

/// Text under way, with the colours in force, so that they are set only when they change.
struct Screen {
    text: String,
    colours: Colours,
    fg: Option<Rgb>,
    bg: Option<Rgb>,
}

impl Screen {
    fn half_blocks(&mut self, upper: Option<Rgb>, lower: Option<Rgb>) {
        let (character, fg, bg) = match (upper, lower) {
            (None, None) => (' ', self.fg, None),
            (Some(u), None) => ('▀', Some(u), None),
            (None, Some(l)) => ('▄', Some(l), None),
            (Some(u), Some(l)) if u == l => ('█', Some(u), self.bg),
            (Some(u), Some(l)) => ('▀', Some(u), Some(l)),
        };
        self.set(fg, bg);
        self.text.push(character);
    }

    fn swatch(&mut self, colour: Rgb) {
        self.set(Some(colour), self.bg);
        self.text.push('█');
    }

    fn set(&mut self, fg: Option<Rgb>, bg: Option<Rgb>) {
        if fg != self.fg {
            self.code(fg, "38", "39");
            self.fg = fg;
        }
        if bg != self.bg {
            self.code(bg, "48", "49");
            self.bg = bg;
        }
    }

    fn code(&mut self, colour: Option<Rgb>, set: &str, unset: &str) {
        let _ = match (colour, self.colours) {
            (_, Colours::None) => Ok(()),
            (None, _) => write!(self.text, "\x1b[{unset}m"),
            (Some(c), Colours::True) => write!(self.text, "\x1b[{set};2;{};{};{}m", c.0, c.1, c.2),
            (Some(c), Colours::Indexed) => write!(self.text, "\x1b[{set};5;{}m", c.ansi256()),
        };
    }

    fn reset(&mut self) {
        if self.fg.is_some() || self.bg.is_some() {
            self.text.push_str("\x1b[0m");
        }
        (self.fg, self.bg) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heat::axis::Layout;
    use crate::heat::map::HeatOptions;
    use crate::overview::Overview;
    use crate::testdata::small_record;

    fn drawn(width: usize, height: usize, colours: Colours) -> String {
        let plan = Plan::new(width, height, colours);
        let events = small_record(20);
        let overview = Overview::read(&events).expect("has snapshots");
        let options = HeatOptions {
            rows: plan.rows(),
            cols: plan.cols,
            time_range: None,
            address_range: None,
            layout: Layout::Accessed,
        };
        let map = HeatMap::build(&events, &overview, &overview.targets[0], &options).expect("has snapshots");
        draw(&map, &plan)
    }

    #[test]
    fn without_colour() {
        let expected = "\
server --port 1 (pid 4242)  2.00 s, 83.0 MiB mapped
[anon:loc… ≈?????????????????????????????????????? 7f9000000000
libdemo.s… ≈.:*+.-*+.=*=.+*-.+*.:*+.-*+.=*=.+*-.+* 7f8000000000
           │......................................
           │......................................
           │......................................
      anon │......................................
           │......................................
           ≈...................................... 7f0000000000
    [heap] │%%%%%@@@%%%%%@@%%%%%%@@%%%%%@@@%%%%%@@ 550000000000
           └┬──────────────────┬─────────────────┬
            0                  1               2 s
rate 0.5 % :-=+*#%@ 50 %  = 1 … 100 Hz, log scale
rate: share of 5.00 ms intervals in which a page was accessed
. not accessed  ? not seen  blank: not mapped  ≈ gap folded
";
        assert_eq!(drawn(64, 16, Colours::None), expected);
    }

    #[test]
    fn the_time_axis_always_has_its_unit() {
        let axis = |seconds: u64, width: usize| {
            let plan = Plan::new(width, 24, Colours::None);
            let ticks = time_ticks(0.0, seconds as f64, plan.cols / 10);
            time_labels(&ticks, (0.0, seconds as f64), &plan).1.trim().to_owned()
        };
        let words = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(words(axis(60 * 3600, 80)), "0:00 12:00 24:00 36:00 48:00 h:min", "60:00 h:min has no room");
        for width in 30..140 {
            for (seconds, unit) in
                [(60 * 3600, "h:min"), (100 * 3600, "h:min"), (600, "min:s"), (6000, "min:s"), (100, "s")]
            {
                let axis = axis(seconds, width);
                assert!(axis.ends_with(&format!(" {unit}")), "{width}: {axis}");
            }
        }
    }

    #[test]
    fn labels_with_seconds_stand_beside_each_other() {
        let plan = Plan::new(80, 24, Colours::None);
        let axis = time_labels(&time_ticks(8000.0, 8100.0, plan.cols / 10), (8000.0, 8100.0), &plan).1;
        let words: Vec<&str> = axis.split_whitespace().collect();
        assert_eq!(words, ["2:13:20", "2:13:40", "2:14:00", "2:14:20", "2:14:40", "h:min:s"]);
    }

    #[test]
    fn fits_the_screen() {
        for (width, height) in [(80, 24), (100, 40), (200, 60)] {
            for colours in [Colours::None, Colours::Indexed, Colours::True] {
                let text = drawn(width, height, colours);
                assert!(text.lines().count() <= height, "{} lines", text.lines().count());
                for line in text.lines() {
                    let len = visible(line);
                    assert!(len <= width, "{len} > {width}: {line}");
                }
                assert_eq!(text.contains('\x1b'), colours != Colours::None);
            }
        }
    }

    /// Characters of a line without its colour codes.
    fn visible(line: &str) -> usize {
        let mut inside = false;
        line.chars()
            .filter(|&c| {
                let shown = !inside && c != '\x1b';
                inside = if inside { c != 'm' } else { c == '\x1b' };
                shown
            })
            .count()
    }
}
