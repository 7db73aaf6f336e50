//! The table of mappings.

use super::heat::colour;
use super::model::{Order, Row};
use crate::heat::palette;
use crate::heat::scale::RateScale;
use crate::heat::terminal::Colours;
use crate::names;
use crate::units::format_percent;
use isotherm_core::units::format_size;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

/// Rates in the table are drawn on one scale, whatever is hot at present.
const SCALE: RateScale = RateScale { top: 1.0, decades: 3 };
/// Characters of the columns behind the name.
const FIGURES: usize = 52;
/// Characters of the longest bar.
const MAX_BAR: u16 = 4;

/// Draws the header and as many rows as fit, so that the selected one is among them.
pub fn draw(rows: &[Row], order: Order, selected: usize, colours: Colours, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let name_width = width.saturating_sub(FIGURES).max(8);
    let mark = |o: Order, text: &str| if o == order { format!("{text}*") } else { text.to_owned() };
    let header = format!(
        "{:<name_width$} {:>10} {:>10} {:>9} {:>12}  {}",
        mark(Order::Name, "MAPPING"),
        mark(Order::Size, "SIZE"),
        mark(Order::Accessed, "ACCESSED"),
        "RATE",
        mark(Order::Cold, "COLD>10s"),
        mark(Order::Heat, "HEAT")
    );
    let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    buffer.set_stringn(area.x, area.y, format!("{header:<width$}"), width, style);
    let lines = usize::from(area.height.saturating_sub(1));
    let first = (selected + 1).saturating_sub(lines);
    for (line, (i, row)) in rows.iter().enumerate().skip(first).take(lines).enumerate() {
        let y = area.y + 1 + line as u16;
        let style = if i == selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let text = row_text(row, name_width);
        buffer.set_stringn(area.x, y, names::left(&text, width), width, style);
        heat_mark(row, colours, area.x + names::width(&text) as u16 + 2, y, area, buffer);
    }
}

fn row_text(row: &Row, name_width: usize) -> String {
    let h = &row.heat;
    let name = names::left(&names::fit(names::short(&h.name), name_width), name_width);
    if let Some((bytes, why)) = h.unseen() {
        return format!("{name} {:>10} {why:>33}", format_size(bytes));
    }
    let rate = if h.accessed == 0 || h.rate == 0.0 { "-".to_owned() } else { format_percent(h.rate) };
    let cold = if row.cold == 0 { "-".to_owned() } else { format_size(row.cold) };
    format!(
        "{name} {:>10} {:>10} {rate:>9} {cold:>12}",
        format_size(h.bytes),
        if h.accessed == 0 { "-".to_owned() } else { format_size(h.accessed) }
    )
}

/// A bar as long as the mapping is hot, in the colour of its rate.
fn heat_mark(row: &Row, colours: Colours, x: u16, y: u16, area: Rect, buffer: &mut Buffer) {
    if row.heat.accessed == 0 || x + MAX_BAR > area.right() {
        return;
    }
    let c = colour(palette::colour(SCALE.level(row.heat.rate)), colours);
    let length = 1 + (SCALE.position(row.heat.rate) * f64::from(MAX_BAR - 1)).round() as u16;
    for x in x..x + length {
        if let Some(cell) = buffer.cell_mut((x, y)) {
            cell.set_char(if colours == Colours::None { '#' } else { '█' }).set_fg(c);
        }
    }
}
