//! The whole screen.

use super::model::{Model, Total};
use super::state::Top;
use super::{heat, table};
use crate::heat::terminal::Colours;
use crate::names;
use crate::summary::cost::budget_words;
use crate::summary::idle::Cold;
use crate::summary::text::threshold;
use crate::units::{format_percent, format_percent_exactly, format_us};
use isotherm_core::event::Mode;
use isotherm_core::units::{format_size, format_time};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

/// Smallest screen that holds everything.
const LEAST: (u16, u16) = (60, 14);
const HEADER: u16 = 5;

/// They fit into the smallest screen.
const KEYS: [&str; 14] = [
    "q, Ctrl-C      leave; Ctrl-Z: to the shell, until fg",
    "p, Space       hold the picture, or go on",
    "s              order: heat, size, accessed, cold, name",
    "up, down, k, j choose a mapping; of the machine a line",
    "Enter, z       heatmap of the chosen mapping, or of all;",
    "               of the machine: open a group, a process",
    "Esc            back, from a process to the machine",
    "t, Tab         next target (Shift-Tab: the one before)",
    "?, h           this list",
    "RATE: share of sampling intervals in which a page of",
    "what was accessed was found accessed. COLD>10s: present",
    "memory without an access for ten seconds. Table: mean of",
    "the last second. not seen: not observable, or not yet",
    "looked at. ~: estimated.",
];

/// How the screen is divided.
struct Parts {
    header: Rect,
    table: Rect,
    heat: Rect,
    footer: Rect,
}

/// `several`: a line more tells of all targets together.
fn divide(area: Rect, several: bool) -> Parts {
    let header = HEADER + u16::from(several);
    let row =
        |y: u16, height: u16| Rect::new(area.x, area.y + y, area.width, height.min(area.height.saturating_sub(y)));
    let free = area.height.saturating_sub(header + 2);
    let heat = free / 2;
    let table = free - heat;
    Parts {
        header: row(0, header),
        table: row(header, table),
        heat: row(header + table + 1, heat),
        footer: row(area.height.saturating_sub(1), 1),
    }
}

impl Top {
    /// Rows and columns of cells that the heatmap has on a screen of `width` by `height` characters.
    pub fn heat_cells(&self, width: u16, height: u16) -> (usize, usize) {
        let parts = divide(Rect::new(0, 0, width, height), self.shows_total());
        heat::cells(parts.heat.width, parts.heat.height, self.colours)
    }

    fn shows_total(&self) -> bool {
        self.model.as_ref().is_some_and(|m| m.total.is_some())
    }

    pub fn draw(&self, frame: &mut Frame) {
        let area = frame.area();
        let buffer = frame.buffer_mut();
        self.draw_on(area, buffer);
        if self.colours == Colours::None {
            for cell in &mut buffer.content {
                (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
            }
        }
    }

    fn draw_on(&self, area: Rect, buffer: &mut Buffer) {
        if area.width < LEAST.0 || area.height < LEAST.1 {
            let text = format!("{}x{} is too small: {}x{} at least", area.width, area.height, LEAST.0, LEAST.1);
            buffer.set_stringn(area.x, area.y, text, area.width.into(), Style::new());
            return;
        }
        if let Some(machine) = self.machine_shown() {
            machine.draw(&self.machine_title(), area, buffer);
            footer(&machine.footer(), Rect { y: area.bottom() - 1, height: 1, ..area }, buffer);
            if self.help {
                help(area, buffer);
            }
            return;
        }
        let parts = divide(area, self.shows_total());
        match &self.model {
            Some(model) => {
                self.header(model, parts.header, buffer);
                table::draw(&model.rows, self.order, self.selection.row(), self.colours, parts.table, buffer);
                if let Some(map) = &model.heatmap {
                    heat::draw(map, self.colours, parts.heat, buffer);
                }
            }
            None => {
                let text = "waiting for the first aggregation interval";
                buffer.set_stringn(area.x, area.y, text, area.width.into(), Style::new());
            }
        }
        self.footer(parts.footer, buffer);
        if self.help {
            help(area, buffer);
        }
    }

    /// How many processes, what watching them costs, and what happened to the picture.
    fn machine_title(&self) -> String {
        let live = self.targets.values().filter(|t| !t.has_exited()).count();
        let cost = self.cost().map_or("costs are not known yet".to_owned(), |c| {
            let budget = budget_words(c.budget);
            format!("{} of a core, {budget}", format_percent_exactly(c.total()))
        });
        let state = match (&self.ended, self.paused) {
            (Some(why), _) => format!("{why}; "),
            (None, true) => "PAUSED; ".to_owned(),
            _ => String::new(),
        };
        format!("{state}the machine: {live} processes; watching: {cost}")
    }

    fn header(&self, m: &Model, area: Rect, buffer: &mut Buffer) {
        let width = usize::from(area.width);
        let mut state = format!(" {} ", format_time(m.watched_ns / 1_000_000_000 * 1_000_000_000));
        if m.position.1 > 1 {
            state = format!(" [{} of {}]{state}", m.position.0 + 1, m.position.1);
        }
        let flag = match (&self.ended, m.exited, self.paused) {
            (Some(why), _, _) => format!(" {why} "),
            (None, true, _) => " EXITED ".to_owned(),
            (None, false, true) => " PAUSED ".to_owned(),
            _ => String::new(),
        };
        let title = names::fit(&m.title, width.saturating_sub(state.len() + flag.len()));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        buffer.set_stringn(area.x, area.y, &title, width, bold);
        let right = area.right().saturating_sub((state.len() + flag.len()) as u16);
        buffer.set_string(right, area.y, &flag, Style::new().add_modifier(Modifier::REVERSED));
        buffer.set_string(right + flag.len() as u16, area.y, &state, Style::new());

        let working_set = working_set(m);
        let used = line(buffer, area, 1, "working set", &working_set);
        curve(m, area, used, buffer);
        line(buffer, area, 2, "cold", &cold(m, usize::from(area.width.saturating_sub(12))));
        line(buffer, area, 3, "watching", &Self::cost_line(m, width));
        if let Some(total) = &m.total {
            line(buffer, area, 4, "together", &together(total));
        }
    }

    fn cost_line(m: &Model, width: usize) -> String {
        let Some(c) = m.cost else { return "costs are not known yet".to_owned() };
        let budget = budget_words(c.budget);
        let over = if c.is_above_budget() { " EXCEEDED" } else { "" };
        let mode = if c.mode == Mode::Scan { "scan" } else { "sample" };
        let text = format!(
            "{} of a core, {budget}{over}; {mode} {}, {} regions",
            format_percent_exactly(c.total()),
            format_us(c.sample_us),
            c.nr_regions,
        );
        if width < 100 { text } else { format!("{text}; {} of it is the targets'", format_percent(c.target)) }
    }

    fn footer(&self, area: Rect, buffer: &mut Buffer) {
        let zoomed = self.model.as_ref().is_some_and(|m| m.zoomed_to.is_some());
        let zoom = if zoomed { "Esc zoom out" } else { "Enter zoom in" };
        let text = format!("q quit  p pause  s sort: {}  up/down choose  t target  ? help  {zoom}", self.order.name());
        footer(&text, area, buffer);
    }
}

fn footer(text: &str, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let style = Style::new().add_modifier(Modifier::REVERSED);
    buffer.set_stringn(area.x, area.y, format!("{text:<width$}"), width, style);
}

/// A heading and a text; returns the characters used.
fn line(buffer: &mut Buffer, area: Rect, y: u16, head: &str, text: &str) -> u16 {
    let dim = Style::new().fg(Color::DarkGray);
    buffer.set_stringn(area.x, area.y + y, head, 12, dim);
    let width = usize::from(area.width.saturating_sub(12));
    buffer.set_stringn(area.x + 12, area.y + y, names::fit(text, width), width, Style::new());
    12 + names::width(text) as u16
}

fn working_set(m: &Model) -> String {
    match (m.working_set, m.rss.filter(|&rss| rss > 0)) {
        (None, None) => "not known yet".to_owned(),
        (None, Some(rss)) => format!("not known yet, of {} resident", format_size(rss)),
        (Some(w), rss) => {
            let share = rss.map_or("resident memory unknown".to_owned(), |rss| {
                format!("{} of {} resident", format_percent(w.last as f64 / rss as f64), format_size(rss))
            });
            let [last, p50, p95] = [w.last, w.p50, w.p95].map(format_size);
            format!("{last}, {share}   p50 {p50}   p95 {p95}")
        }
    }
}

/// Ages of which nothing is known yet are left out, the longest first, where there is no room for all.
fn cold(m: &Model, width: usize) -> String {
    const NOT_YET: &str = " not yet";
    let listed = m.idle.cold.iter().enumerate().filter(|(i, c)| *i < 3 || c.bytes.is_some());
    let text = |c: &Cold| c.text().map_or(NOT_YET.to_owned(), |text| format!(" {text}"));
    let mut parts: Vec<String> = listed.map(|(_, c)| format!(">{}{}", threshold(c.for_ns), text(c))).collect();
    let unseen = m.idle.not_observable + m.idle.not_visited;
    if unseen > 0 {
        parts.push(format!("not seen {}", format_size(unseen)));
    }
    let mut line = parts.join("  ");
    while line.chars().count() > width
        && let Some(last) = parts.iter().rposition(|part| part.ends_with(NOT_YET))
    {
        parts.remove(last);
        line = parts.join("  ");
    }
    line
}

fn together(t: &Total) -> String {
    let r = t.figures.resident();
    let used = t.figures.windows()[0].estimate().map_or("not known".to_owned(), |e| e.text());
    let idle = t.figures.idle();
    let cold = idle.cold[0].text().unwrap_or_else(|| "not yet".to_owned());
    let shared = if t.once { "shared once" } else { "shared for each" };
    let (targets, resident) = (t.targets, format_size(r.resident));
    format!("{targets} targets: working set {used} of {resident}  >10 s {cold}  {shared}")
}

/// The working set's last values, where there is room to the right of its figures.
fn curve(m: &Model, area: Rect, used: u16, buffer: &mut Buffer) {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let room = usize::from(area.width.saturating_sub(used + 2));
    if room < 4 {
        return;
    }
    let max = m.curve.iter().copied().max().unwrap_or(0).max(1);
    let skip = m.curve.len().saturating_sub(room);
    let text: String = m.curve.iter().skip(skip).map(|&v| BARS[(v as u128 * 7 / u128::from(max)) as usize]).collect();
    buffer.set_string(area.right().saturating_sub(text.chars().count() as u16), area.y + 1, text, Style::new());
}

fn help(area: Rect, buffer: &mut Buffer) {
    let width = KEYS.iter().map(|k| k.len()).max().unwrap_or(0) as u16 + 4;
    let lines = KEYS.len() as u16;
    // An empty line above and below, where there is room.
    let above = u16::from(area.height >= lines + 2);
    let (width, height) = (width.min(area.width), (lines + 2 * above).min(area.height));
    let frame = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    let style = Style::new().add_modifier(Modifier::REVERSED);
    for y in 0..height {
        let text = y.checked_sub(above).and_then(|line| KEYS.get(usize::from(line))).copied().unwrap_or("");
        let text = format!("  {text:<w$}", w = usize::from(width.saturating_sub(2)));
        buffer.set_stringn(frame.x, frame.y + y, text, width.into(), style);
    }
}

#[cfg(test)]
mod tests;
