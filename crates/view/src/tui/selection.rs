//! Which mapping is chosen in the table, and whether the heatmap shows only that.

use super::model::Row;
use isotherm_core::addr::AddrRange;

/// Stays on what was chosen, wherever that moves. Until something is chosen it is the first row, whatever is there.
#[derive(Debug, Default)]
pub(super) struct Selection {
    chosen: Option<Chosen>,
    row: usize,
    zoomed: bool,
}

#[derive(Debug)]
struct Chosen {
    name: String,
    /// Where it was last. A nameless mapping goes by its addresses, which change when it grows.
    pieces: Vec<AddrRange>,
}

impl Selection {
    /// Its row in the table.
    pub(super) const fn row(&self) -> usize {
        self.row
    }

    /// Whether the heatmap shows nothing else.
    pub(super) const fn is_zoomed(&self) -> bool {
        self.zoomed
    }

    /// Chooses what is in this row now; the last one, where there are fewer.
    pub(super) fn choose(&mut self, row: usize, rows: &[Row]) {
        self.row = row.min(rows.len().saturating_sub(1));
        self.chosen = rows.get(self.row).map(Chosen::of);
    }

    pub(super) const fn toggle_zoom(&mut self) {
        self.zoomed = !self.zoomed;
    }

    /// Finds what was chosen in new rows. If it is gone, nothing is chosen any more, and the heatmap shows everything.
    pub(super) fn follow(&mut self, rows: &[Row]) {
        let Some(chosen) = &self.chosen else {
            *self = Self::default();
            return;
        };
        let by_name = || rows.iter().position(|row| row.heat.name == chosen.name);
        let by_place = || {
            let common = rows.iter().map(|row| common_bytes(&row.pieces, &chosen.pieces)).enumerate();
            common.filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes).map(|(at, _)| at)
        };
        match by_name().or_else(by_place) {
            Some(at) => self.choose(at, rows),
            None => *self = Self::default(),
        }
    }
}

impl Chosen {
    fn of(row: &Row) -> Self {
        Self { name: row.heat.name.clone(), pieces: row.pieces.clone() }
    }
}

fn common_bytes(some: &[AddrRange], others: &[AddrRange]) -> u64 {
    some.iter().flat_map(|a| others.iter().filter_map(|b| a.intersect(b))).map(|common| common.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::mappings::MappingHeat;

    fn row(name: &str, start: u64, end: u64) -> Row {
        let heat = MappingHeat {
            name: name.into(),
            bytes: end - start,
            accessed: 0,
            rate: 0.0,
            not_observable: 0,
            not_visited: 0,
        };
        Row { heat, cold: 0, pieces: vec![AddrRange::new(start, end)] }
    }

    #[test]
    fn it_stays_on_the_mapping() {
        let rows = [row("libc", 100, 200), row("10-20", 10, 20), row("[stack]", 900, 950)];
        let mut selection = Selection::default();
        selection.choose(1, &rows);
        selection.toggle_zoom();
        let [libc, anon, stack] = rows;
        selection.follow(&[anon.clone(), stack.clone(), libc.clone()]);
        assert_eq!((selection.row(), selection.is_zoomed()), (0, true));
        // It has grown downwards.
        selection.follow(&[stack.clone(), libc.clone(), row("5-20", 5, 20)]);
        assert_eq!((selection.row(), selection.is_zoomed()), (2, true));
        selection.follow(&[stack.clone(), row("2-8", 2, 8), libc.clone()]);
        assert_eq!(selection.row(), 1, "and is known by what it was last");
        // It is gone: another one is not looked at in its place.
        selection.follow(&[stack, libc]);
        assert_eq!((selection.row(), selection.is_zoomed()), (0, false));
    }

    #[test]
    fn until_something_is_chosen_it_is_the_first() {
        let mut selection = Selection::default();
        selection.follow(&[row("a", 0, 1), row("b", 1, 2)]);
        assert_eq!(selection.row(), 0);
        selection.choose(7, &[row("a", 0, 1), row("b", 1, 2)]);
        assert_eq!(selection.row(), 1, "the last one");
        selection.choose(7, &[]);
        assert_eq!(selection.row(), 0);
    }
}
