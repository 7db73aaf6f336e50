//! The address axis: how many rows each part of a space gets.
//!
//! Parts of which no page was ever present are folded away. If little of the rest was ever accessed, the accessed parts
//! get most of the rows and the cold stretches between them are compressed, each row still standing for one run of
//! addresses in order. Every stretch knows its own scale, so that pictures can mark it.

use super::gapless::GaplessSpace;
use super::profile::Class;
use std::ops::Range;

/// Below this share of accessed bytes, cold stretches are compressed.
const SPARSE: f64 = 0.4;
/// Share of the rows that compressed cold stretches get together.
const COLD_ROWS: f64 = 0.35;
/// Most accessed stretches with a scale of their own.
const MAX_STRETCHES: usize = 24;

/// A run of rows with one scale.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch {
    /// First offset into the space.
    pub from: u64,
    /// Offset after the last.
    pub to: u64,
    /// Its rows; row 0 has the lowest addresses.
    pub rows: Range<usize>,
    /// Whether its rows stand for more bytes than those of accessed stretches.
    pub compressed: bool,
}

impl Stretch {
    /// Bytes that one row stands for.
    pub(crate) fn bytes_per_row(&self) -> f64 {
        (self.to - self.from) as f64 / self.rows.len().max(1) as f64
    }
}

/// Something that is not drawn: a gap between mappings, or memory that was never present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fold {
    /// The row boundary where it is: rows below it have lower addresses.
    pub row: usize,
    /// Unmapped bytes folded here.
    pub unmapped: u64,
    /// Mapped bytes folded here of which no page was ever found present.
    pub absent: u64,
}

/// How rows are shared out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Layout {
    /// Readable space for what was accessed; absent memory folded.
    #[default]
    Accessed,
    /// The same number of bytes in each row; absent memory folded.
    Linear,
    /// The same number of bytes in each row, nothing mapped is folded.
    Everything,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Stretches by address; their rows follow one another without holes.
    pub stretches: Vec<Stretch>,
    /// Folds by row; at most one for each row boundary.
    pub folds: Vec<Fold>,
    pub rows: usize,
}

impl Axis {
    /// Lays out `runs` (from a [`Profile`](super::profile::Profile)) on at most `rows` rows.
    pub fn new(space: &GaplessSpace, runs: &[(u64, u64, Class)], rows: usize, layout: Layout) -> Self {
        let rows = rows.max(1);
        let mut kept = keep(space, runs, layout);
        let accessed = bytes(&kept, true);
        if layout == Layout::Accessed && accessed > 0 {
            kept = join_accessed(kept, accessed / 50, (rows / 6).clamp(1, MAX_STRETCHES));
        }
        let total = bytes(&kept, true) + bytes(&kept, false);
        let sparse = accessed > 0 && (bytes(&kept, true) as f64) < SPARSE * total as f64;
        // Small mappings get enough rows for a name, but together never crowd out the large ones.
        let most = if layout == Layout::Accessed { (rows / 12).max(8) } else { rows / 3 };
        let stretches = if layout == Layout::Accessed && sparse && rows >= 2 * kept.len() {
            sparse_stretches(&limit_parts(split_at_gaps(space, &kept), most, true), rows)
        } else {
            let least = if layout == Layout::Accessed { rows / 80 } else { 1 };
            even_stretches(&limit_parts(split_at_gaps(space, &join_touching(&kept)), most, false), least.max(1), rows)
        };
        let rows = stretches.last().map_or(0, |s| s.rows.end);
        let mut axis = Self { stretches, folds: Vec::new(), rows };
        axis.folds = axis.find_folds(space);
        axis
    }

    /// The row, with a fraction, at an offset of the space. What is folded has no height.
    pub fn row(&self, offset: u64) -> f64 {
        let i = self.stretches.partition_point(|s| s.to <= offset);
        match self.stretches.get(i) {
            Some(s) if offset <= s.from => s.rows.start as f64,
            Some(s) => s.rows.start as f64 + (offset - s.from) as f64 / s.bytes_per_row(),
            None => self.rows as f64,
        }
    }

    /// The offsets `(from, to)` that a row stands for.
    pub fn offsets(&self, row: usize) -> (u64, u64) {
        let Some(s) = self.stretches.iter().find(|s| s.rows.contains(&row)) else { return (0, 0) };
        let at =
            |r: usize| s.from + ((r - s.rows.start) as u128 * (s.to - s.from) as u128 / s.rows.len() as u128) as u64;
        (at(row), at(row + 1))
    }

    fn find_folds(&self, space: &GaplessSpace) -> Vec<Fold> {
        let mut folds: Vec<Fold> = Vec::new();
        let mut add = |row: usize, unmapped: u64, absent: u64| {
            match folds.iter_mut().find(|f| f.row == row) {
                Some(f) => (f.unmapped, f.absent) = (f.unmapped + unmapped, f.absent + absent),
                None => folds.push(Fold { row, unmapped, absent }),
            };
        };
        for (offset, size) in space.gaps() {
            add(self.row(offset).round() as usize, size, 0);
        }
        let mut end = 0;
        for s in &self.stretches {
            if s.from > end {
                add(s.rows.start, 0, s.from - end);
            }
            end = s.to;
        }
        if end < space.total() {
            add(self.rows, 0, space.total() - end);
        }
        folds.sort_by_key(|f| f.row);
        folds
    }
}

/// A part that is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    from: u64,
    to: u64,
    accessed: bool,
}

fn bytes(parts: &[Part], accessed: bool) -> u64 {
    parts.iter().filter(|p| p.accessed == accessed).map(|p| p.to - p.from).sum()
}

/// Drops what is folded and joins neighbours of a kind.
fn keep(space: &GaplessSpace, runs: &[(u64, u64, Class)], layout: Layout) -> Vec<Part> {
    let smallest_fold = (space.total() / 200).max(1 << 20);
    let folds = layout != Layout::Everything && runs.iter().any(|r| r.2 != Class::Absent);
    let mut parts: Vec<Part> = Vec::new();
    for &(from, to, class) in runs {
        if folds && class == Class::Absent && to - from >= smallest_fold {
            continue;
        }
        let accessed = class == Class::Accessed;
        match parts.last_mut() {
            Some(last) if last.to == from && last.accessed == accessed => last.to = to,
            _ => parts.push(Part { from, to, accessed }),
        }
    }
    parts
}

/// Takes cold parts between accessed ones into these: all below `small` bytes, and larger ones until at most `most`
/// accessed parts are left.
fn join_accessed(mut parts: Vec<Part>, small: u64, most: usize) -> Vec<Part> {
    let mut limit = small.max(1);
    loop {
        let mut out: Vec<Part> = Vec::with_capacity(parts.len());
        for p in parts {
            let joins = p.accessed
                && matches!(out.as_slice(), [.., a, gap] if a.accessed && !gap.accessed && gap.to - gap.from < limit
                    && a.to == gap.from && gap.to == p.from);
            if joins {
                out.pop();
            }
            match out.last_mut() {
                Some(last) if joins => last.to = p.to,
                _ => out.push(p),
            }
        }
        parts = out;
        if parts.iter().filter(|p| p.accessed).count() <= most || limit > 1 << 62 {
            return parts;
        }
        limit *= 2;
    }
}

/// Joins parts that touch, accessed or not.
fn join_touching(parts: &[Part]) -> Vec<Part> {
    let mut out: Vec<Part> = Vec::new();
    for p in parts {
        match out.last_mut() {
            Some(last) if last.to == p.from => last.to = p.to,
            _ => out.push(*p),
        }
    }
    out
}

/// Cuts parts where addresses jump, so that no row mixes memory from two sides of a gap.
fn split_at_gaps(space: &GaplessSpace, parts: &[Part]) -> Vec<Part> {
    let mut out = Vec::with_capacity(parts.len());
    let mut gaps = space.gaps().map(|(offset, _)| offset).peekable();
    for p in parts {
        let mut from = p.from;
        while let Some(gap) = gaps.next_if(|&g| g < p.to) {
            if gap > from {
                out.push(Part { from, to: gap, ..*p });
                from = gap;
            }
        }
        out.push(Part { from, ..*p });
    }
    out
}

/// Joins neighbours, small ones first, until at most `most` parts are left or none touch. With `alike`, accessed and
/// cold parts stay apart.
fn limit_parts(mut parts: Vec<Part>, most: usize, alike: bool) -> Vec<Part> {
    let mut limit = 1u64 << 12;
    while parts.len() > most.max(1) && limit < 1 << 62 {
        let mut out: Vec<Part> = Vec::with_capacity(parts.len());
        for p in parts {
            match out.last_mut() {
                Some(last)
                    if last.to == p.from && p.to - last.from <= limit && (!alike || last.accessed == p.accessed) =>
                {
                    last.to = p.to;
                    last.accessed |= p.accessed;
                }
                _ => out.push(p),
            }
        }
        parts = out;
        limit *= 2;
    }
    parts
}

fn even_stretches(parts: &[Part], least: usize, rows: usize) -> Vec<Stretch> {
    let mut parts = parts.to_vec();
    if parts.len() > rows {
        // More folds than rows: draw what lies between them instead.
        let (from, to) = (parts[0].from, parts[parts.len() - 1].to);
        parts = vec![Part { from, to, accessed: true }];
    }
    let weights: Vec<f64> = parts.iter().map(|p| (p.to - p.from) as f64).collect();
    stretches(&parts, &share(&weights, least, rows), false)
}

fn sparse_stretches(parts: &[Part], rows: usize) -> Vec<Stretch> {
    let weights_of = |accessed: bool, f: fn(f64) -> f64| -> Vec<f64> {
        parts.iter().filter(|p| p.accessed == accessed).map(|p| f((p.to - p.from) as f64)).collect()
    };
    let (hot, cold) = (weights_of(true, |b| b), weights_of(false, f64::sqrt));
    let hot_min = (rows / 40).clamp(1, (rows / 2 / hot.len().max(1)).max(1));
    let cold_rows = ((rows as f64 * COLD_ROWS) as usize).clamp(cold.len(), rows - hot.len() * hot_min);
    let mut hot_rows = share(&hot, hot_min, rows - cold_rows).into_iter();
    let mut cold_rows = share(&cold, 1, cold_rows).into_iter();
    let counts: Vec<usize> =
        parts.iter().filter_map(|p| if p.accessed { hot_rows.next() } else { cold_rows.next() }).collect();
    stretches(parts, &counts, true)
}

fn stretches(parts: &[Part], rows: &[usize], compress: bool) -> Vec<Stretch> {
    let mut at = 0;
    let mut out: Vec<Stretch> = Vec::with_capacity(parts.len());
    for (p, &n) in parts.iter().zip(rows) {
        out.push(Stretch { from: p.from, to: p.to, rows: at..at + n, compressed: false });
        at += n;
    }
    if compress {
        let accessed = || out.iter().zip(parts).filter(|(_, p)| p.accessed).map(|(s, _)| s.bytes_per_row());
        let coarsest = accessed().fold(0.0, f64::max);
        for (s, p) in out.iter_mut().zip(parts) {
            s.compressed = !p.accessed && s.bytes_per_row() > 1.5 * coarsest;
        }
    }
    out
}

/// Shares `total` out in proportion to the weights by largest remainders, but to each at least `least` (if `total`
/// suffices).
fn share(weights: &[f64], least: usize, total: usize) -> Vec<usize> {
    if weights.is_empty() {
        return Vec::new();
    }
    let least = least.min(total / weights.len());
    let mut small = vec![false; weights.len()];
    // Whoever would get less than `least` gets it; that leaves less for the others, so look again.
    let exact: Vec<f64> = loop {
        let free = total - least * small.iter().filter(|&&s| s).count();
        let sum: f64 = weights.iter().zip(&small).filter(|(_, s)| !**s).map(|(w, _)| w).sum();
        let exact = |i: usize| if sum > 0.0 { weights[i] / sum * free as f64 } else { 0.0 };
        let fresh: Vec<usize> = (0..weights.len()).filter(|&i| !small[i] && exact(i) < least as f64).collect();
        if fresh.is_empty() {
            break (0..weights.len()).map(|i| if small[i] { least as f64 } else { exact(i) }).collect();
        }
        fresh.into_iter().for_each(|i| small[i] = true);
    };
    let mut out: Vec<usize> = exact.iter().map(|e| *e as usize).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
    let mut rest = total.saturating_sub(out.iter().sum());
    for i in order.into_iter().cycle() {
        if rest == 0 {
            break;
        }
        out[i] += 1;
        rest -= 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::addr::AddrRange;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn space(total: u64) -> GaplessSpace {
        GaplessSpace::new(vec![AddrRange::new(0, total)])
    }

    #[test]
    fn a_small_hot_set_in_terabytes_gets_most_rows() {
        let runs = [
            (0, 2048 * GIB, Class::Cold),
            (2048 * GIB, 2053 * GIB, Class::Accessed),
            (2053 * GIB, 5120 * GIB, Class::Cold),
        ];
        let axis = Axis::new(&space(5120 * GIB), &runs, 100, Layout::Accessed);
        assert_eq!(axis.rows, 100);
        assert_eq!(axis.stretches.iter().map(|s| s.rows.len()).collect::<Vec<_>>(), [16, 65, 19]);
        assert_eq!(axis.stretches.iter().map(|s| s.compressed).collect::<Vec<_>>(), [true, false, true]);
        let linear = Axis::new(&space(5120 * GIB), &runs, 100, Layout::Linear);
        assert_eq!(linear.stretches.len(), 1);
    }

    #[test]
    fn absent_memory_is_folded_and_told() {
        let runs = [(0, GIB, Class::Accessed), (GIB, 9 * GIB, Class::Absent), (9 * GIB, 10 * GIB, Class::Cold)];
        let s = GaplessSpace::new(vec![AddrRange::new(0, 9 * GIB), AddrRange::new(20 * GIB, 21 * GIB)]);
        let axis = Axis::new(&s, &runs, 20, Layout::Accessed);
        assert_eq!(axis.folds, [Fold { row: 10, unmapped: 11 * GIB, absent: 8 * GIB }]);
        assert_eq!(axis.row(5 * GIB), 10.0);
        let all = Axis::new(&s, &runs, 20, Layout::Everything);
        assert_eq!(all.row(5 * GIB), 10.0);
        assert_eq!(all.folds, [Fold { row: 18, unmapped: 11 * GIB, absent: 0 }]);
        assert_eq!(all.stretches.len(), 2, "cut at the gap");
    }

    #[test]
    fn many_small_parts_are_joined_quickly() {
        let class = |i: u64| if i.is_multiple_of(2) { Class::Accessed } else { Class::Cold };
        let runs: Vec<_> = (0..60_000).map(|i| (i * 100_000, (i + 1) * 100_000, class(i))).collect();
        let ranges = (0..20_000).map(|i| AddrRange::new(i * 1_000_000, i * 1_000_000 + 300_000)).collect();
        let axis = Axis::new(&GaplessSpace::new(ranges), &runs, 40, Layout::Accessed);
        assert_eq!(axis.rows, 40);
        assert!(axis.stretches.len() <= 13, "{}", axis.stretches.len());
    }

    fn arb_runs() -> impl Strategy<Value = Vec<(u64, u64, Class)>> {
        let class = prop_oneof![Just(Class::Accessed), Just(Class::Cold), Just(Class::Absent)];
        prop::collection::vec((1u64..1 << 34, class), 1..60).prop_map(|v| {
            let mut at = 0;
            v.into_iter()
                .map(|(len, c)| {
                    at += len;
                    (at - len, at, c)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn rows_cover_stretches_in_order(runs in arb_runs(), rows in 1usize..200, layout in 0..3) {
            let layout = [Layout::Accessed, Layout::Linear, Layout::Everything][layout as usize];
            let total = runs.last().map_or(0, |r| r.1);
            let axis = Axis::new(&space(total), &runs, rows, layout);
            prop_assert!(axis.rows <= rows);
            let mut row = 0;
            let mut offset = 0;
            for s in &axis.stretches {
                prop_assert_eq!(s.rows.start, row);
                prop_assert!(s.rows.end > row && s.from >= offset && s.to > s.from);
                (row, offset) = (s.rows.end, s.to);
            }
            prop_assert_eq!(row, axis.rows);
            // Every accessed byte is on the axis.
            for &(from, to, class) in &runs {
                if class == Class::Accessed {
                    prop_assert!(axis.stretches.iter().any(|s| s.from <= from && to <= s.to));
                }
            }
            for r in 0..axis.rows {
                let (from, to) = axis.offsets(r);
                prop_assert!(from <= to);
                prop_assert!((axis.row(from) - r as f64).abs() < 1.0);
            }
        }

        #[test]
        fn shares_add_up(weights in prop::collection::vec(0.0f64..1e12, 1..40), least in 0usize..4, total in 0usize..500) {
            let out = share(&weights, least, total);
            prop_assert_eq!(out.iter().sum::<usize>(), total);
            if total >= least * weights.len() {
                prop_assert!(out.iter().all(|&n| n >= least));
            }
        }
    }
}
