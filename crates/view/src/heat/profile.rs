//! Where in a target's space anything was seen at all: what the address axis is laid out by.

use super::gapless::GaplessSpace;
use super::tables::{TABLE_BYTES, Unseen};
use isotherm_core::addr::PAGE_SIZE;
use isotherm_core::history::frame::PageFrame;
use isotherm_core::snapshot::{RegionInfo, Snapshot};

/// Most cells of a profile: 80 MiB each for 5 TiB.
const MAX_CELLS: u64 = 1 << 16;

/// What is known of a part of the space over the whole time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Accessed at least once.
    Accessed,
    /// Never seen accessed.
    Cold,
    /// Never seen accessed, and no page of it ever found present.
    Absent,
}

/// Sums over time for equal cells of a space.
#[derive(Debug)]
pub(crate) struct Profile {
    cell_bytes: u64,
    cells: usize,
    accessed: RangeSums,
    /// Present pages, or all where the source does not tell.
    present: RangeSums,
}

impl Profile {
    pub fn new(space: &GaplessSpace) -> Self {
        let cell_bytes = space.total().div_ceil(MAX_CELLS).next_multiple_of(PAGE_SIZE).max(PAGE_SIZE);
        let cells = space.total().div_ceil(cell_bytes) as usize;
        Self { cell_bytes, cells, accessed: RangeSums::new(cells), present: RangeSums::new(cells) }
    }

    pub fn add(&mut self, space: &GaplessSpace, snapshot: &Snapshot) {
        for r in &snapshot.regions {
            let (from, to) = (space.offset(r.start), space.offset(r.end));
            if from == to {
                continue;
            }
            if r.nr_accesses > 0 && !r.is_blind() {
                self.accessed.add(from as f64 / self.cell_bytes as f64, to as f64 / self.cell_bytes as f64);
            }
            if may_be_present(r) {
                self.present.add(from as f64 / self.cell_bytes as f64, to as f64 / self.cell_bytes as f64);
            }
        }
    }

    /// Adds a frame of pages.
    pub(crate) fn add_pages(&mut self, space: &GaplessSpace, frame: &PageFrame) {
        let add = |sums: &mut RangeSums, start: u64, end: u64| {
            let (from, to) = (space.offset(start), space.offset(end));
            if from < to {
                sums.add(from as f64 / self.cell_bytes as f64, to as f64 / self.cell_bytes as f64);
            }
        };
        for t in frame.tables.iter().filter(|t| t.present > 0) {
            let end = t.base.saturating_add(TABLE_BYTES);
            add(&mut self.present, t.base, end);
            if t.accessed > 0 {
                add(&mut self.accessed, t.base, end);
            }
        }
        for part in Unseen::of(frame) {
            add(&mut self.present, part.range.start, part.range.end);
        }
    }

    /// Runs of cells of the same class as offsets `(from, to, class)`, in order, without holes.
    pub fn runs(&self, space: &GaplessSpace) -> Vec<(u64, u64, Class)> {
        let mut runs: Vec<(u64, u64, Class)> = Vec::new();
        let (accessed, present) = (self.accessed.sums(), self.present.sums());
        for i in 0..self.cells {
            let class = match (accessed[i] > 0.0, present[i] > 0.0) {
                (true, _) => Class::Accessed,
                (false, true) => Class::Cold,
                (false, false) => Class::Absent,
            };
            let (from, to) =
                (i as u64 * self.cell_bytes, (i as u64 + 1).saturating_mul(self.cell_bytes).min(space.total()));
            match runs.last_mut() {
                Some(last) if last.2 == class => last.1 = to,
                _ => runs.push((from, to, class)),
            }
        }
        self.widen_absent(space, &mut runs);
        runs
    }

    /// A cell that lies across a gap may mix absent memory with something else. Where absent memory begins or ends near
    /// a gap, it does so at the gap.
    fn widen_absent(&self, space: &GaplessSpace, runs: &mut [(u64, u64, Class)]) {
        let gaps: Vec<u64> = space.gaps().map(|(offset, _)| offset).collect();
        let between = |from: u64, to: u64| gaps.get(gaps.partition_point(|&g| g < from)).copied().filter(|&g| g < to);
        for i in 1..runs.len() {
            let edge = runs[i].0;
            let new = match (runs[i - 1].2, runs[i].2) {
                (_, Class::Absent) => between(edge.saturating_sub(self.cell_bytes).max(runs[i - 1].0 + 1), edge),
                (Class::Absent, _) => between(edge + 1, (edge + self.cell_bytes).min(runs[i].1)),
                _ => None,
            };
            if let Some(new) = new {
                (runs[i - 1].1, runs[i].0) = (new, new);
            }
        }
    }
}

fn may_be_present(r: &RegionInfo) -> bool {
    r.evidence.is_none_or(|e| e.present > 0 || e.pages == 0)
}

/// Adds one over fractional ranges in constant time; the sums come at the end.
#[derive(Debug)]
struct RangeSums {
    /// Differences for whole cells: whole numbers, so that their sums are exact.
    steps: Vec<f64>,
    /// What falls on part of a cell.
    parts: Vec<f64>,
}

impl RangeSums {
    fn new(cells: usize) -> Self {
        Self { steps: vec![0.0; cells + 1], parts: vec![0.0; cells + 1] }
    }

    fn add(&mut self, from: f64, to: f64) {
        let last = self.steps.len() - 1;
        let (first, end) = ((from as usize).min(last), (to as usize).min(last));
        if first == end {
            self.parts[first] += to - from;
            return;
        }
        self.parts[first] += first as f64 + 1.0 - from;
        self.steps[first + 1] += 1.0;
        self.steps[end] -= 1.0;
        self.parts[end] += to - end as f64;
    }

    fn sums(&self) -> Vec<f64> {
        let mut running = 0.0;
        self.steps
            .iter()
            .zip(&self.parts)
            .map(|(step, part)| {
                running += step;
                running + part
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, region, seen, snapshot};
    use isotherm_core::addr::AddrRange;
    use proptest::prelude::*;

    #[test]
    fn classes_in_order() {
        let space = GaplessSpace::new(vec![AddrRange::new(0, 4 * MIB)]);
        let mut p = Profile::new(&space);
        p.add(
            &space,
            &snapshot(
                0,
                0,
                vec![
                    seen(region(0, MIB, 3, 0), 10, 0),
                    seen(region(MIB, 2 * MIB, 0, 0), 10, 0),
                    seen(region(2 * MIB, 4 * MIB, 0, 0), 0, 0),
                ],
            ),
        );
        assert_eq!(
            p.runs(&space),
            [(0, MIB, Class::Accessed), (MIB, 2 * MIB, Class::Cold), (2 * MIB, 4 * MIB, Class::Absent)]
        );
    }

    #[test]
    fn absent_memory_ends_at_a_gap() {
        let used = 3 * 4096;
        let space = GaplessSpace::new(vec![AddrRange::new(0, used), AddrRange::new(1 << 40, (1 << 40) + (1 << 34))]);
        let mut p = Profile::new(&space);
        let reserved = seen(region(1 << 40, (1 << 40) + (1 << 34), 0, 0), 0, 0);
        p.add(&space, &snapshot(0, 0, vec![seen(region(0, used, 3, 0), 10, 0), reserved]));
        assert_eq!(p.runs(&space), [(0, used, Class::Accessed), (used, used + (1 << 34), Class::Absent)]);
    }

    #[test]
    fn a_single_page_in_terabytes_shows() {
        let space = GaplessSpace::new(vec![AddrRange::new(0, 5 << 40)]);
        let mut p = Profile::new(&space);
        p.add(&space, &snapshot(0, 0, vec![region(0, 1 << 40, 0, 0), region(1 << 40, (1 << 40) + 4096, 1, 0)]));
        assert!(p.runs(&space).iter().any(|&(from, to, c)| c == Class::Accessed && from <= 1 << 40 && to > 1 << 40));
    }

    proptest! {
        #[test]
        fn range_sums_are_what_adding_one_by_one_gives(ranges in prop::collection::vec((0u32..160, 0u32..60), 0..20)) {
            let mut sums = RangeSums::new(20);
            let mut plain = [0.0f64; 20];
            for &(start, len) in &ranges {
                let (from, to) = (f64::from(start) / 8.0, (f64::from(start + len) / 8.0).min(20.0));
                if from >= to { continue }
                sums.add(from, to);
                for (i, p) in plain.iter_mut().enumerate() {
                    *p += (to.min(i as f64 + 1.0) - from.max(i as f64)).max(0.0);
                }
            }
            for (a, b) in sums.sums().iter().zip(&plain) {
                prop_assert!((a - b).abs() < 1e-9);
            }
        }
    }
}
