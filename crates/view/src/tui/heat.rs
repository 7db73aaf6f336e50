//! The rolling heatmap, two cells a character.

use crate::heat::grid::Shown;
use crate::heat::map::HeatMap;
use crate::heat::palette::{self, Rgb};
use crate::heat::terminal::{Colours, character};
use crate::names;
use isotherm_core::units::format_time;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};

/// Characters for names beside the heatmap.
pub(crate) const NAME_WIDTH: u16 = 15;

/// Rows and columns of cells for a heatmap that is drawn into `width` by `height` characters.
pub fn cells(width: u16, height: u16, colours: Colours) -> (usize, usize) {
    let lines = usize::from(height.saturating_sub(1).max(1));
    let rows = if colours == Colours::None { lines } else { 2 * lines };
    (rows, usize::from(width.saturating_sub(NAME_WIDTH + 1).max(1)))
}

/// A colour as the terminal can show it.
pub fn colour(c: Rgb, colours: Colours) -> Color {
    match colours {
        Colours::True => Color::Rgb(c.0, c.1, c.2),
        Colours::Indexed => Color::Indexed(c.ansi256()),
        Colours::None => Color::Reset,
    }
}

/// Draws the map with names on its left and the time below.
pub fn draw(map: &HeatMap, colours: Colours, area: Rect, buffer: &mut Buffer) {
    let per_line = if colours == Colours::None { 1 } else { 2 };
    let lines = map.axis.rows.div_ceil(per_line).min(usize::from(area.height.saturating_sub(1)));
    let mut above: Option<&str> = None;
    for line in 0..lines {
        let y = area.y + line as u16;
        let low = (lines - 1 - line) * per_line;
        let high = (low + per_line).min(map.axis.rows);
        let (from, to) = (map.axis.offsets(low).0, map.axis.offsets(high - 1).1);
        let name = map.name_at(from, to).map(|n| n.name.as_str());
        if name != above {
            let text = names::fit(names::short(name.unwrap_or("")), usize::from(NAME_WIDTH) - 1);
            buffer.set_string(area.x, y, names::right(&text, usize::from(NAME_WIDTH) - 1), Style::new());
            above = name;
        }
        for col in 0..map.grid.cols.min(usize::from(area.width.saturating_sub(NAME_WIDTH))) {
            let Some(cell) = buffer.cell_mut((area.x + NAME_WIDTH + col as u16, y)) else { continue };
            if per_line == 1 {
                cell.set_char(character(map, low, col));
                continue;
            }
            let upper = (low + 1 < high).then(|| cell_colour(map, low + 1, col, colours)).flatten();
            match (upper, cell_colour(map, low, col, colours)) {
                (None, None) => cell.set_char(' '),
                (Some(u), None) => cell.set_char('▀').set_fg(u),
                (None, Some(l)) => cell.set_char('▄').set_fg(l),
                (Some(u), Some(l)) => cell.set_char('▀').set_fg(u).set_bg(l),
            };
        }
    }
    time_line(map, area, lines as u16, buffer);
}

fn time_line(map: &HeatMap, area: Rect, line: u16, buffer: &mut Buffer) {
    let y = area.y + line;
    let span = format!("{} ago", format_time(map.grid.end_ns - map.grid.start_ns));
    let dim = Style::new().fg(Color::DarkGray);
    buffer.set_string(area.x + NAME_WIDTH, y, span, dim);
    let right = area.x + NAME_WIDTH + map.grid.cols as u16;
    buffer.set_string(right.saturating_sub(3), y, "now", dim);
}

fn cell_colour(map: &HeatMap, row: usize, col: usize, colours: Colours) -> Option<Color> {
    let c = match map.grid.cell(row, col).shown() {
        Shown::Nothing => return None,
        Shown::Blind => palette::BLIND_STRIPE,
        Shown::Rate(rate) => palette::colour(map.scale.level(rate)),
    };
    Some(colour(c, colours))
}
