//! The cells of a heatmap: what was seen in a piece of time and address space, weighted by area; of pages, by those
//! present.

use super::axis::Axis;
use super::gapless::GaplessSpace;
use super::tables::{TABLE_BYTES, Unseen};
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::history::frame::PageFrame;
use isotherm_core::snapshot::Snapshot;

/// Sums over one cell. The weights are shares of the cell's area (time x address), so that 1 means all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cell {
    /// Area that was observed.
    pub seen: f32,
    /// Access rate (fraction of one) times observed area; of pages, the share that was accessed.
    pub rate: f32,
    /// Age in seconds times observed area; pages have none.
    pub age_s: f32,
    /// Area that existed but was not seen: it could not be observed, or nobody had looked at it yet.
    pub blind: f32,
}

/// What a cell shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shown {
    /// Nothing was mapped, or nothing was recorded.
    Nothing,
    /// It was not seen: it could not be observed, or nobody had looked at it yet.
    Blind,
    /// The mean access rate, fraction of one; 0: observed and not accessed.
    Rate(f64),
}

impl Cell {
    /// What to draw. Any access wins, so that what is rare stays visible; then the larger area.
    pub fn shown(&self) -> Shown {
        if self.rate > 0.0 {
            Shown::Rate(f64::from(self.rate / self.seen))
        } else if self.seen + self.blind < 1e-6 {
            Shown::Nothing
        } else if self.blind > self.seen {
            Shown::Blind
        } else {
            Shown::Rate(0.0)
        }
    }

    /// Mean age in seconds, where anything was observed.
    pub(crate) fn age_s(&self) -> Option<f64> {
        (self.seen > 1e-6).then(|| f64::from(self.age_s / self.seen))
    }
}

/// Rows of addresses by columns of time.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Number of rows; row 0 has the lowest addresses.
    pub rows: usize,
    /// Number of columns, by time.
    pub cols: usize,
    /// Begin of the first column, ns.
    pub start_ns: u64,
    /// End of the last column, ns.
    pub end_ns: u64,
    cells: Vec<Cell>,
    /// End of the last snapshot added.
    filled_to_ns: Option<u64>,
}

impl Grid {
    /// An empty grid over `[start_ns, end_ns)`.
    pub fn new(rows: usize, cols: usize, start_ns: u64, end_ns: u64) -> Self {
        let cols = cols.max(1);
        let end_ns = end_ns.max(start_ns + 1);
        Self { rows, cols, start_ns, end_ns, cells: vec![Cell::default(); rows * cols], filled_to_ns: None }
    }

    /// The cell at a row and column.
    pub fn cell(&self, row: usize, col: usize) -> &Cell {
        &self.cells[row * self.cols + col]
    }

    /// All cells, row by row.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Length of a column in ns.
    pub(crate) fn col_ns(&self) -> f64 {
        (self.end_ns - self.start_ns) as f64 / self.cols as f64
    }

    /// Adds a snapshot; they come in order of time, and each piece of time counts once.
    ///
    /// Time between two snapshots (some sources look only now and then) is filled as far as a region's age says that
    /// its rate was the same then.
    pub fn add(&mut self, space: &GaplessSpace, axis: &Axis, snapshot: &Snapshot) {
        let end = snapshot.end_ns;
        let free_from = self.filled_to_ns.unwrap_or(snapshot.start_ns);
        let start = snapshot.start_ns.max(free_from);
        for r in &snapshot.regions {
            let known_ns = (u64::from(r.age) + 1).saturating_mul(snapshot.aggr_us.saturating_mul(1000));
            let from = end.saturating_sub(known_ns).max(free_from).min(start);
            let rows = (axis.row(space.offset(r.start)), axis.row(space.offset(r.end)));
            if rows.0 < rows.1 && from < end {
                let share = if r.is_unseen() {
                    Cell { blind: 1.0, ..Cell::default() }
                } else {
                    let age_s = r.age as f32 * snapshot.aggr_us as f32 / 1e6;
                    Cell { seen: 1.0, rate: r.access_rate(snapshot.max_nr_accesses) as f32, age_s, blind: 0.0 }
                };
                self.fill(rows, (self.col(from), self.col(end)), &share);
            }
        }
        self.filled_to_ns = Some(end.max(free_from));
    }

    /// Adds a frame of pages; they come in order of time, and each piece of time counts once. What a page table tells
    /// is spread evenly over the memory that is mapped below it.
    pub(crate) fn add_pages(&mut self, space: &GaplessSpace, axis: &Axis, frame: &PageFrame) {
        let start = frame.since_ns.max(self.filled_to_ns.unwrap_or(frame.since_ns));
        if start >= frame.time_ns {
            return;
        }
        let cols = (self.col(start), self.col(frame.time_ns));
        for t in frame.tables.iter().filter(|t| t.present > 0) {
            let (from, to) = (space.offset(t.base), space.offset(t.base.saturating_add(TABLE_BYTES)));
            let seen = (f64::from(t.present) * PAGE_SIZE as f64 / (to - from).max(1) as f64).min(1.0);
            let rate = seen * f64::from(t.accessed) / f64::from(t.present);
            let share = Cell { seen: seen as f32, rate: rate as f32, ..Cell::default() };
            self.fill((axis.row(from), axis.row(to)), cols, &share);
        }
        for part in Unseen::of(frame) {
            let rows = (axis.row(space.offset(part.range.start)), axis.row(space.offset(part.range.end)));
            self.fill(rows, cols, &Cell { blind: part.density as f32, ..Cell::default() });
        }
        self.filled_to_ns = Some(frame.time_ns);
    }

    /// What was there at the last frame was not looked at again until `until_ns`: the record ended in the midst of a walk.
    pub(crate) fn end_unseen(&mut self, space: &GaplessSpace, axis: &Axis, last: &PageFrame, until_ns: u64) {
        let cols = (self.col(last.time_ns), self.col(until_ns));
        if cols.0 >= cols.1 {
            return;
        }
        let tables = last.tables.iter().filter(|t| t.present > 0).map(|t| {
            let (from, to) = (space.offset(t.base), space.offset(t.base.saturating_add(TABLE_BYTES)));
            (from, to, f64::from(t.present) * PAGE_SIZE as f64 / (to - from).max(1) as f64)
        });
        let others = Unseen::of(last)
            .into_iter()
            .map(|part| (space.offset(part.range.start), space.offset(part.range.end), part.density));
        for (from, to, density) in tables.chain(others) {
            let blind = density.min(1.0) as f32;
            self.fill((axis.row(from), axis.row(to)), cols, &Cell { blind, ..Cell::default() });
        }
    }

    fn col(&self, ns: u64) -> f64 {
        let ns = ns.clamp(self.start_ns, self.end_ns);
        (ns - self.start_ns) as f64 / self.col_ns()
    }

    /// Adds `share` over an area, which is as much as a whole cell gets.
    fn fill(&mut self, rows: (f64, f64), cols: (f64, f64), share: &Cell) {
        for row in rows.0 as usize..(rows.1.ceil() as usize).min(self.rows) {
            let height = overlap(rows, row);
            for col in cols.0 as usize..(cols.1.ceil() as usize).min(self.cols) {
                let area = (height * overlap(cols, col)) as f32;
                let cell = &mut self.cells[row * self.cols + col];
                cell.seen += area * share.seen;
                cell.rate += area * share.rate;
                cell.age_s += area * share.age_s;
                cell.blind += area * share.blind;
            }
        }
    }

    /// The rates of all cells that show one.
    pub fn rates(&self) -> impl Iterator<Item = f64> + Clone {
        self.cells.iter().filter_map(|c| match c.shown() {
            Shown::Rate(rate) => Some(rate),
            _ => None,
        })
    }
}

/// Length of the common part of a range and the unit that begins at `unit`.
fn overlap(range: (f64, f64), unit: usize) -> f64 {
    (range.1.min(unit as f64 + 1.0) - range.0.max(unit as f64)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heat::axis::Layout;
    use crate::heat::profile::Class;
    use crate::testdata::{AGGR_NS, BASE_NS, page_frame, region, seen, snapshot, unvisited};
    use isotherm_core::addr::AddrRange;
    use proptest::prelude::*;

    fn plane(bytes: u64, rows: usize) -> (GaplessSpace, Axis) {
        let space = GaplessSpace::new(vec![AddrRange::new(0, bytes)]);
        let axis = Axis::new(&space, &[(0, bytes, Class::Cold)], rows, Layout::Linear);
        (space, axis)
    }

    #[test]
    fn each_piece_of_time_counts_once() {
        let (space, axis) = plane(100, 1);
        let mut g = Grid::new(1, 1, BASE_NS, BASE_NS + 2 * AGGR_NS);
        // An old region: its age reaches back over what the first snapshot already reported.
        g.add(&space, &axis, &snapshot(0, 0, vec![region(0, 100, 10, 500)]));
        g.add(&space, &axis, &snapshot(0, 1, vec![region(0, 100, 20, 500)]));
        assert_eq!(g.cell(0, 0).seen, 1.0);
        assert_eq!(g.cell(0, 0).shown(), Shown::Rate(0.75));
    }

    #[test]
    fn age_fills_gaps_between_snapshots_only() {
        let (space, axis) = plane(200, 2);
        let mut g = Grid::new(2, 10, BASE_NS, BASE_NS + 10 * AGGR_NS);
        g.add(&space, &axis, &snapshot(0, 2, vec![region(0, 200, 1, 900)]));
        g.add(&space, &axis, &snapshot(0, 8, vec![region(0, 100, 1, 3), region(100, 200, 0, 900)]));
        let seen = |row: usize| (0..10).map(|c| g.cell(row, c).seen.round() as u8).collect::<Vec<_>>();
        assert_eq!(seen(0), [0, 0, 1, 0, 0, 1, 1, 1, 1, 0]);
        assert_eq!(seen(1), [0, 0, 1, 1, 1, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn what_was_not_seen_is_not_cold() {
        let (space, axis) = plane(400, 4);
        let mut g = Grid::new(5, 1, BASE_NS, BASE_NS + AGGR_NS);
        let regions =
            vec![seen(region(0, 100, 0, 0), 10, 10), region(100, 200, 0, 0), unvisited(region(300, 400, 0, 0))];
        g.add(&space, &axis, &snapshot(0, 0, regions));
        assert_eq!(g.cell(0, 0).shown(), Shown::Blind);
        assert_eq!(g.cell(1, 0).shown(), Shown::Rate(0.0));
        assert_eq!(g.cell(2, 0).shown(), Shown::Nothing);
        assert_eq!(g.cell(3, 0).shown(), Shown::Blind);
    }

    #[test]
    fn scattered_heat_is_the_share_of_pages() {
        let frame = page_frame(0, 0);
        let ranges: Vec<AddrRange> = frame.mappings.iter().map(|m| m.range).collect();
        let space = GaplessSpace::new(ranges);
        let total = space.total();
        let axis = Axis::new(&space, &[(0, total, Class::Cold)], 83, Layout::Linear);
        let mut g = Grid::new(axis.rows, 4, BASE_NS, BASE_NS + 4_000_000_000);
        g.add_pages(&space, &axis, &frame);
        g.add_pages(&space, &axis, &page_frame(0, 1));
        g.add_pages(&space, &axis, &page_frame(0, 1));
        let shown = |g: &Grid, row: usize, col: usize| match g.cell(row, col).shown() {
            Shown::Rate(rate) => (rate * 512.0).round() as i64,
            Shown::Blind => -1,
            Shown::Nothing => -2,
        };
        let rate = |row, col| shown(&g, row, col);
        assert_eq!([0, 3, 4, 15].map(|row| rate(row, 0)), [512, 512, 0, 0], "the heap's first 4 MiB are hot");
        assert_eq!([16, 40, 79].map(|row| rate(row, 1)), [10; 3], "10 of 512 pages, wherever one looks");
        assert_eq!([0, 1, 2].map(|col| rate(80, col)), [0, 256, -2], "nothing is known of the third second");
        assert_eq!(rate(82, 0), -1, "locked memory cannot be observed");
        assert_eq!(g.cell(40, 1).seen, 1.0, "what is reported twice counts once");
        // The record ends in the midst of the third second.
        g.end_unseen(&space, &axis, &page_frame(0, 1), BASE_NS + 2_700_000_000);
        assert_eq!([0, 40, 80, 82].map(|row| shown(&g, row, 2)), [-1; 4]);
        assert_eq!([0, 80].map(|row| (shown(&g, row, 1), shown(&g, row, 3))), [(512, -2), (256, -2)]);
    }

    proptest! {
        #[test]
        fn area_is_conserved(cuts in prop::collection::btree_set(1u64..10_000, 1..30), rows in 1usize..50, cols in 1usize..20,
                             snapshots in 1u64..8, nrs in prop::collection::vec(0u32..=20, 31)) {
            let (space, axis) = plane(10_000, rows);
            let mut edges: Vec<u64> = cuts.into_iter().collect();
            edges.insert(0, 0);
            let regions: Vec<_> =
                edges.windows(2).zip(&nrs).map(|(w, &nr)| region(w[0], w[1], nr, 0)).collect();
            let mut g = Grid::new(rows, cols, BASE_NS, BASE_NS + snapshots * AGGR_NS);
            for i in 0..snapshots {
                g.add(&space, &axis, &snapshot(0, i, regions.clone()));
            }
            let unit = 10_000.0 / rows as f64 * g.col_ns();
            let seen: f64 = g.cells().iter().map(|c| f64::from(c.seen) * unit).sum();
            let rate: f64 = g.cells().iter().map(|c| f64::from(c.rate) * unit).sum();
            let time = (snapshots * AGGR_NS) as f64;
            let expected_seen = *edges.last().unwrap_or(&0) as f64 * time;
            let expected_rate: f64 = regions.iter().map(|r| r.len() as f64 * f64::from(r.nr_accesses) / 20.0 * time).sum();
            prop_assert!((seen - expected_seen).abs() <= 1e-4 * expected_seen);
            prop_assert!((rate - expected_rate).abs() <= 1e-4 * expected_seen);
        }
    }
}
