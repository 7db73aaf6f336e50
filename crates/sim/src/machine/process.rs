//! Simulated processes: their mappings, what is populated, and what their workload touches.

use super::activity::Activity;
use crate::random::mix;
use isotherm_core::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN, is_sorted_disjoint, overlap_len, parts_in, total_len};
use isotherm_core::mapping::Mapping;
use std::ops::Range;

/// Memory that exists for some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The mapping as the monitor sees it.
    pub mapping: Mapping,
    /// When it appears, ns.
    pub from_ns: u64,
    /// When it vanishes, ns.
    pub until_ns: u64,
    /// What of it is populated: sorted, disjoint. Only populated memory can be found accessed.
    pub populated: Vec<AddrRange>,
    /// What of it cannot be observed (as shared or locked pages): sorted, disjoint.
    pub blind: Vec<AddrRange>,
}

impl Region {
    /// Fully populated memory that always exists.
    pub fn new(mapping: Mapping) -> Self {
        let populated = vec![mapping.range];
        Self { mapping, from_ns: 0, until_ns: u64::MAX, populated, blind: Vec::new() }
    }

    /// The same, in existence only during `[from_ns, until_ns)`.
    pub const fn existing(mut self, from_ns: u64, until_ns: u64) -> Self {
        (self.from_ns, self.until_ns) = (from_ns, until_ns);
        self
    }

    /// Whether it exists at `now_ns`.
    pub const fn exists(&self, now_ns: u64) -> bool {
        self.from_ns <= now_ns && now_ns < self.until_ns
    }
}

/// Why a process cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// Not whole pages, or nothing.
    #[error("the range {:#x}-{:#x} is empty or not page aligned", .0.start, .0.end)]
    BadRange(AddrRange),
    /// A part outside its mapping, or parts out of order.
    #[error("populated or unobservable parts of {:#x}-{:#x} are out of order or outside of it", .0.start, .0.end)]
    BadParts(AddrRange),
    /// Two mappings at one address at one time.
    #[error("{:#x}-{:#x} and {:#x}-{:#x} overlap while both exist", .0.start, .0.end, .1.start, .1.end)]
    Overlap(AddrRange, AddrRange),
}

#[derive(Debug, Clone)]
pub struct Process {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) starts_ns: u64,
    pub(super) exits_ns: u64,
    pub(super) execs_ns: Vec<u64>,
    /// Sorted by address; those that exist at one time do not overlap.
    pub(super) regions: Vec<Region>,
    pub(super) work: Option<Work>,
    huge_share: f64,
    /// Length of the longest region, for finding those that reach over an address.
    longest: u64,
}

/// A workload at work on an arena.
#[derive(Debug, Clone)]
pub(super) struct Work {
    activity: Activity,
    first_page: u64,
    end_page: u64,
    began_ns: u64,
}

impl Process {
    /// A process with `regions` that touches nothing.
    pub fn new(pid: u32, name: impl Into<String>, mut regions: Vec<Region>) -> Result<Self, ProcessError> {
        regions.sort_by_key(|r| r.mapping.range.start);
        for (i, r) in regions.iter().enumerate() {
            let range = r.mapping.range;
            if range.is_empty() || range.start % PAGE_SIZE != 0 || range.end % PAGE_SIZE != 0 {
                return Err(ProcessError::BadRange(range));
            }
            for parts in [&r.populated, &r.blind] {
                let aligned = parts.iter().all(|p| p.start % PAGE_SIZE == 0 && p.end % PAGE_SIZE == 0);
                if !aligned || !is_sorted_disjoint(parts) || overlap_len(parts, &[range]) != total_len(parts) {
                    return Err(ProcessError::BadParts(range));
                }
            }
            for other in regions[i + 1..].iter().take_while(|o| o.mapping.range.start < range.end) {
                if r.from_ns < other.until_ns && other.from_ns < r.until_ns {
                    return Err(ProcessError::Overlap(range, other.mapping.range));
                }
            }
        }
        let longest = regions.iter().map(|r| r.mapping.range.len()).max().unwrap_or(0);
        Ok(Self {
            pid,
            name: name.into(),
            starts_ns: 0,
            exits_ns: u64::MAX,
            execs_ns: Vec::new(),
            regions,
            work: None,
            huge_share: 0.0,
            longest,
        })
    }

    /// A process with one anonymous mapping at `arena_start` (page aligned), on which `activity` is at work from time
    /// 0.
    pub fn running(pid: u32, arena_start: u64, activity: Activity) -> Result<Self, ProcessError> {
        let end = arena_start.saturating_add(activity.workload().size());
        let name = activity.workload().name().to_owned();
        let arena = Region::new(Mapping::anon(arena_start, end));
        Ok(Self::new(pid, name, vec![arena])?.working(arena_start, 0, activity))
    }

    /// Puts a workload to work on the memory at `arena_start`, from `began_ns` on. Where its arena is not mapped or not
    /// populated, its touches have no effect.
    pub fn working(mut self, arena_start: u64, began_ns: u64, activity: Activity) -> Self {
        let first_page = arena_start / PAGE_SIZE;
        let end_page = first_page.saturating_add(activity.workload().size() / PAGE_SIZE);
        self.work = Some(Work { activity, first_page, end_page, began_ns });
        self
    }

    /// Backs a share (0 to 1) of the 2 MiB spans that are wholly populated by huge leaves.
    pub const fn with_huge_leaves(mut self, share: f64) -> Self {
        self.huge_share = share;
        self
    }

    /// Lets the process come at `starts_ns` and exit at `exits_ns`.
    pub const fn living(mut self, starts_ns: u64, exits_ns: u64) -> Self {
        (self.starts_ns, self.exits_ns) = (starts_ns, exits_ns);
        self
    }

    /// Lets the process execute another program at each of these times (sorted), which voids what was known of it.
    pub fn executing(mut self, execs_ns: Vec<u64>) -> Self {
        self.execs_ns = execs_ns;
        self
    }

    /// Calls `visit` with each region that exists at `now_ns` and each populated run of its pages within `pages`, in
    /// address order.
    pub(super) fn for_each_populated<'a>(
        &'a self,
        pages: Range<u64>,
        now_ns: u64,
        mut visit: impl FnMut(&'a Region, Range<u64>),
    ) {
        let asked = AddrRange::new(pages.start * PAGE_SIZE, pages.end.saturating_mul(PAGE_SIZE));
        let reach = asked.start.saturating_sub(self.longest);
        let first = self.regions.partition_point(|r| r.mapping.range.start < reach);
        for region in self.regions[first..].iter().take_while(|r| r.mapping.range.start < asked.end) {
            if !region.exists(now_ns) {
                continue;
            }
            for part in parts_in(&region.populated, asked) {
                visit(region, part.start / PAGE_SIZE..part.end / PAGE_SIZE);
            }
        }
    }

    /// Whether the 2 MiB span that holds `page` is mapped by one huge leaf at `now_ns`; then the span's pages.
    pub(super) fn huge_leaf(&self, page: u64, now_ns: u64) -> Option<Range<u64>> {
        const PAGES: u64 = TABLE_SPAN / PAGE_SIZE;
        if self.huge_share <= 0.0 {
            return None;
        }
        let table = page / PAGES;
        let draw = (mix(u64::from(self.pid), table) >> 11) as f64 / (1u64 << 53) as f64;
        if draw >= self.huge_share {
            return None;
        }
        let span = table * PAGES..(table + 1) * PAGES;
        let mut whole = false;
        self.for_each_populated(span.clone(), now_ns, |_, run| whole |= run == span);
        whole.then_some(span)
    }

    /// Calls `visit` for the runs of `pages` that were touched during `[from_ns, to_ns)`.
    pub(super) fn for_each_touched(
        &self,
        pages: Range<u64>,
        from_ns: u64,
        to_ns: u64,
        mut visit: impl FnMut(Range<u64>),
    ) {
        let Some(work) = &self.work else { return };
        let common = pages.start.max(work.first_page)..pages.end.min(work.end_page);
        if common.is_empty() || to_ns <= work.began_ns {
            return;
        }
        let offset = work.first_page;
        work.activity.for_each_touched(
            common.start - offset..common.end - offset,
            from_ns.saturating_sub(work.began_ns),
            to_ns - work.began_ns,
            |run| visit(run.start + offset..run.end + offset),
        );
    }

    /// Whether any of `pages` was touched during `[from_ns, to_ns)`.
    pub(super) fn any_touched(&self, pages: Range<u64>, from_ns: u64, to_ns: u64) -> bool {
        let Some(work) = &self.work else { return false };
        let common = pages.start.max(work.first_page)..pages.end.min(work.end_page);
        if common.is_empty() || to_ns <= work.began_ns {
            return false;
        }
        let pages = common.start - work.first_page..common.end - work.first_page;
        work.activity.any_touched(pages, from_ns.saturating_sub(work.began_ns), to_ns - work.began_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64) -> Region {
        Region::new(Mapping::anon(start * PAGE_SIZE, end * PAGE_SIZE))
    }

    #[test]
    fn mappings_at_one_address_must_follow_each_other() {
        let apart = vec![region(0, 10).existing(0, 50), region(5, 20).existing(50, 100)];
        assert!(Process::new(1, "p", apart).is_ok());
        let together = vec![region(0, 10).existing(0, 51), region(5, 20).existing(50, 100)];
        assert!(matches!(Process::new(1, "p", together), Err(ProcessError::Overlap(..))));
    }

    #[test]
    fn parts_must_lie_inside() {
        let mut outside = region(0, 10);
        outside.populated = vec![AddrRange::new(0, 11 * PAGE_SIZE)];
        assert!(matches!(Process::new(1, "p", vec![outside]), Err(ProcessError::BadParts(_))));
        let odd = Region::new(Mapping::anon(1, PAGE_SIZE));
        assert!(matches!(Process::new(1, "p", vec![odd]), Err(ProcessError::BadRange(_))));
    }

    #[test]
    fn populated_runs_come_in_order_and_only_while_they_exist() {
        let mut holey = region(10, 30).existing(5, 10);
        holey.populated =
            [(10, 12), (20, 22), (28, 30)].map(|(a, b)| AddrRange::new(a * PAGE_SIZE, b * PAGE_SIZE)).into();
        let p = Process::new(1, "p", vec![region(0, 4), holey]).unwrap();
        let runs = |now| {
            let mut out = Vec::new();
            p.for_each_populated(2..29, now, |_, run| out.push(run));
            out
        };
        assert_eq!(runs(7), [2..4, 10..12, 20..22, 28..29]);
        assert_eq!(runs(10), vec![2..4; 1]);
    }

    #[test]
    fn huge_leaves_need_a_whole_span() {
        let p = Process::new(1, "p", vec![region(100, 1536)]).unwrap().with_huge_leaves(1.0);
        assert_eq!(p.huge_leaf(200, 0), None);
        assert_eq!(p.huge_leaf(600, 0), Some(512..1024));
        assert_eq!(p.huge_leaf(1535, 0), Some(1024..1536));
    }
}
