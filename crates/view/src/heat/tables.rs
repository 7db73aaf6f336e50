//! Where a frame of pages tells nothing.

use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::history::frame::PageFrame;

/// Bytes below a last-level page table.
pub(crate) const TABLE_BYTES: u64 = 2 << 20;

/// How much less a part that was not looked at weighs than one that was, where page tables are sampled: a cell that
/// holds one that was looked at shows that one.
const SAMPLED: f64 = 0.25;

/// A part of a mapping of which no page table is reported, or nothing of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Unseen {
    pub range: AddrRange,
    /// The share of it that is present and not seen.
    pub density: f64,
}

impl Unseen {
    /// The parts of a frame that hold memory which could not be observed, was not looked at, or of which nothing is
    /// known yet.
    pub fn of(frame: &PageFrame) -> Vec<Self> {
        let mut parts = Vec::new();
        for m in &frame.mappings {
            let begin = frame.tables.partition_point(|t| t.base.saturating_add(TABLE_BYTES) <= m.range.start);
            let tables = || frame.tables[begin..].iter().take_while(|t| t.base < m.range.end);
            for t in tables().filter(|t| t.present == 0) {
                let all = AddrRange::new(t.base, t.base.saturating_add(TABLE_BYTES));
                parts.extend(all.intersect(&m.range).map(|range| Self { range, density: 1.0 }));
            }
            if m.ages.unobservable == 0 && frame.one_in <= 1 {
                continue;
            }
            let first = parts.len();
            let (mut at, mut uncovered) = (m.range.start, 0);
            let mut add = |start: u64, end: u64| {
                if start < end {
                    uncovered += end - start;
                    parts.push(Self { range: AddrRange::new(start, end), density: 0.0 });
                }
            };
            for t in tables() {
                add(at, t.base);
                at = at.max(t.base.saturating_add(TABLE_BYTES));
            }
            add(at, m.range.end);
            let density = if frame.one_in > 1 {
                SAMPLED / f64::from(frame.one_in)
            } else {
                ((m.ages.unobservable * PAGE_SIZE) as f64 / uncovered.max(1) as f64).min(1.0)
            };
            parts[first..].iter_mut().for_each(|p| p.density = density);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{MIB, page_frame};

    #[test]
    fn what_has_no_table_is_not_seen() {
        let mut frame = page_frame(0, 0);
        let locked = frame.mappings[3].range;
        assert_eq!(Unseen::of(&frame), [Unseen { range: locked, density: 1.0 }]);
        frame.mappings[1].ages.unobservable = 128;
        let base = frame.mappings[1].range.start;
        frame.tables.retain(|t| t.base != base + 4 * MIB && t.base != base + 62 * MIB);
        let ranges: Vec<_> =
            Unseen::of(&frame).iter().map(|u| (u.range.start, u.range.len() / MIB, u.density)).collect();
        assert_eq!(ranges, [(base + 4 * MIB, 2, 0.125), (base + 62 * MIB, 2, 0.125), (locked.start, 1, 1.0)]);
    }

    #[test]
    fn what_was_never_cleared_is_not_idle() {
        let mut frame = page_frame(0, 0);
        let before = Unseen::of(&frame);
        let base = frame.mappings[1].range.start;
        frame.tables.iter_mut().filter(|t| t.base == base + 4 * MIB).for_each(|t| (t.present, t.accessed) = (0, 0));
        let new: Vec<Unseen> = Unseen::of(&frame).into_iter().filter(|u| !before.contains(u)).collect();
        let range = AddrRange::new(base + 4 * MIB, base + 6 * MIB);
        assert_eq!(new, [Unseen { range, density: 1.0 }]);
    }
}
