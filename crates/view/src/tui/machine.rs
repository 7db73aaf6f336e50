//! The machine as a tree of control groups: what `top` shows where no target is given.

use super::Command;
use crate::machine::{Order, Row, Tree, TreeLine};
use crate::names::{fit, left};
use crate::summary::text::threshold;
use crate::summary::total::Shared;
use isotherm_core::printable::printable;
use isotherm_core::units::format_size;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use std::collections::{BTreeMap, BTreeSet};

/// Characters of the columns of figures behind a name, with the blank before each; cold memory may have a mark.
const FIGURES: [usize; 5] = [9, 10, 9, 9, 9];
/// Lines above the table.
const ABOVE: u16 = 2;

/// What a line of the tree is: a group's path, or a process.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Group(String),
    Process(u32),
}

/// What the machine's screen shows and what is chosen on it.
#[derive(Debug)]
pub(super) struct MachineView {
    tree: Tree,
    /// What groups are called, by their paths, where that is not the last part of the path.
    labels: BTreeMap<String, String>,
    open: BTreeSet<String>,
    order: Order,
    /// Stays on what was chosen, wherever that moves.
    chosen: Option<Key>,
}

impl Key {
    fn of(row: &Row) -> Option<Self> {
        match (row.pid, &row.cgroup) {
            (Some(pid), _) => Some(Self::Process(pid)),
            (None, Some(path)) => Some(Self::Group(path.clone())),
            _ => None,
        }
    }
}

impl Order {
    /// The one that follows.
    const fn next(self) -> Self {
        match self {
            Self::Cold => Self::WorkingSet,
            Self::WorkingSet => Self::Rss,
            Self::Rss => Self::Name,
            Self::Name => Self::Cold,
        }
    }

    /// Its name in the footer.
    const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::WorkingSet => "used",
            Self::Rss => "rss",
            Self::Name => "name",
        }
    }
}

impl MachineView {
    pub(super) fn new() -> Self {
        Self { tree: Tree::default(), labels: BTreeMap::new(), open: BTreeSet::new(), order: Order::Cold, chosen: None }
    }

    /// Takes new figures.
    pub(super) fn set(&mut self, tree: Tree, labels: BTreeMap<String, String>) {
        (self.tree, self.labels) = (tree, labels);
    }

    fn lines(&self) -> Vec<TreeLine<'_>> {
        self.tree.lines(&self.open, self.order)
    }

    /// The line that is chosen: the first where it is not there any more.
    fn selected(&self, lines: &[TreeLine<'_>]) -> usize {
        lines.iter().position(|line| self.chosen.is_some() && Key::of(line.row) == self.chosen).unwrap_or(0)
    }

    /// Does what a key asks for. Returns the process whose heatmap is wanted.
    pub(super) fn command(&mut self, command: Command) -> Option<u32> {
        let lines = self.lines();
        let selected = self.selected(&lines);
        let key_at = |at: usize| lines.get(at.min(lines.len().saturating_sub(1))).and_then(|line| Key::of(line.row));
        let key = key_at(selected);
        match command {
            Command::Up => self.chosen = key_at(selected.saturating_sub(1)),
            Command::Down => self.chosen = key_at(selected + 1),
            Command::Sort => self.order = self.order.next(),
            Command::Zoom => match key {
                Some(Key::Process(pid)) => {
                    self.chosen = Some(Key::Process(pid));
                    return Some(pid);
                }
                Some(Key::Group(path)) => {
                    if !self.open.remove(&path) {
                        self.open.insert(path.clone());
                    }
                    self.chosen = Some(Key::Group(path));
                }
                None => {}
            },
            _ => {}
        }
        None
    }

    /// Draws everything but the cost, the help and what stands over them. `title` is the first line.
    pub(super) fn draw(&self, title: &str, area: Rect, buffer: &mut Buffer) {
        let width = usize::from(area.width);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        buffer.set_stringn(area.x, area.y, fit(title, width), width, bold);
        buffer.set_stringn(area.x, area.y + 1, fit(&self.meaning(), width), width, Style::new().fg(Color::DarkGray));
        let mark = |order: Order, text: &str| if order == self.order { format!("{text}*") } else { text.to_owned() };
        let name_width = width.saturating_sub(FIGURES.iter().sum());
        let head = [mark(Order::Rss, "RSS"), mark(Order::Cold, "COLD"), mark(Order::WorkingSet, "USED")];
        let [rss, cold, used] = &head;
        let head = columns([rss, cold, used, "UNSEEN", "SWAP"]);
        let head = format!("{:<name_width$}{head}", mark(Order::Name, "NAME"));
        let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        buffer.set_stringn(area.x, area.y + ABOVE, head, width, style);
        let lines = self.lines();
        let selected = self.selected(&lines);
        // The heading, the total and the footer stand where they are.
        let room = usize::from(area.height.saturating_sub(ABOVE + 3));
        let first = (selected + 1).saturating_sub(room);
        let mut y = area.y + ABOVE + 1;
        for (at, line) in lines.iter().enumerate().skip(first).take(room) {
            let style = if at == selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
            let text = self.text(line.row, &self.name(line), name_width);
            buffer.set_stringn(area.x, y, left(&text, width), width, style);
            y += 1;
        }
        if let Some(total) = self.tree.total() {
            buffer.set_stringn(area.x, y, self.text(total, "total", name_width), width, bold);
        }
    }

    fn name(&self, line: &TreeLine<'_>) -> String {
        let mark = match line.is_open {
            None => ' ',
            Some(true) => '-',
            Some(false) => '+',
        };
        let path = line.row.cgroup.as_deref().filter(|_| line.row.pid.is_none());
        let name = match (line.row.pid, path.and_then(|path| self.labels.get(path))) {
            (_, Some(label)) => label.clone(),
            (Some(pid), None) => format!("{pid} {}", line.row.name),
            (None, None) => line.row.name.clone(),
        };
        format!("{:indent$}{mark} {}", "", printable(&name), indent = line.depth * 2)
    }

    fn text(&self, row: &Row, name: &str, name_width: usize) -> String {
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), format_size);
        let age_ns = self.tree.longest_ns();
        let divided = age_ns.and_then(|ns| row.divided(ns));
        let mark = divided.map_or("", |divided| row.mark(divided.within_ns));
        let cold = format!("{mark}{}", size(divided.map(|d| d.cold)));
        let in_sums = age_ns.and_then(|ns| row.in_sums(ns));
        let (used, unseen) = (in_sums.map(|d| d.accessed), in_sums.map(|d| d.not_observable + d.not_resolved));
        let [rss, used, unseen, swap] = [row.rss, used, unseen, row.swap].map(size);
        let sizes = columns([&rss, &cold, &used, &unseen, &swap]);
        format!("{}{sizes}", left(&fit(name, name_width), name_width))
    }

    fn meaning(&self) -> String {
        let Some(time) = self.tree.longest_ns().map(threshold) else {
            return "cold memory is not known yet".to_owned();
        };
        let shared = match self.tree.shared() {
            Some(Shared::CountedOnce) => "shared pages once in groups",
            _ => "shared pages for each",
        };
        format!("COLD: not accessed for {time}, USED: within {time}; {shared}")
    }

    pub(super) fn footer(&self) -> String {
        format!("q quit  p pause  s sort: {}  up/down choose  Enter open, see  ? help", self.order.name())
    }
}

/// The figures of a line in their columns.
fn columns(texts: [&str; FIGURES.len()]) -> String {
    texts.iter().zip(FIGURES).map(|(text, width)| format!("{text:>width$}")).collect()
}

#[cfg(test)]
mod tests;
