//! The kernel's own list of areas (VMAs) of a process: only their borders, and which of them cannot be cleared.

use crate::clock::thread_cpu_ns;
use crate::proc::ProcessDir;
use crate::proc::maps::mapped_ranges;
use isotherm_core::addr::{AddrRange, TABLE_SPAN, normalize, parts_in, subtract};
use isotherm_core::mapping::{Mapping, MappingKind};
use isotherm_core::mask::{self, PageMask};
use isotherm_core::pages::pages_in;
use std::time::{Duration, Instant};

/// How long the list is taken for current. Areas change while we look anyway; at worst a folio that was cut by a new
/// border is split.
const LIFE: Duration = Duration::from_secs(1);
/// Where reading it takes long (tens of thousands of areas), it is current for so many times as long.
const LIFE_PER_READ: u32 = 500;

/// Areas of one address space.
#[derive(Debug, Default)]
pub struct Areas {
    list: Vec<AddrRange>,
    read_at: Option<Instant>,
    /// CPU time that reading it took.
    took: Duration,
    /// Ranges whose bits cannot be cleared, as their kind tells (locked, hugetlb, special). Sorted.
    barred: Vec<AddrRange>,
    /// Those of them that not even `clear_refs` clears (hugetlb, special). Sorted.
    unreachable: Vec<AddrRange>,
    /// All others. Sorted.
    reachable: Vec<AddrRange>,
    /// Private anonymous memory. Sorted.
    anon: Vec<AddrRange>,
    /// Areas for which the kernel refused to clear.
    refused: Vec<AddrRange>,
}

impl Areas {
    /// Takes over what `mappings` tell, and forgets which areas were refused: they may have been unlocked.
    pub fn update(&mut self, mappings: &[Mapping]) {
        self.barred.clear();
        self.barred.extend(mappings.iter().filter(|m| is_barred(m)).map(|m| m.range));
        for (list, wanted) in [(&mut self.unreachable, true), (&mut self.reachable, false)] {
            list.clear();
            list.extend(mappings.iter().filter(|m| is_unreachable(m.kind) == wanted).map(|m| m.range));
        }
        self.anon.clear();
        self.anon.extend(mappings.iter().filter(|m| m.kind == MappingKind::Anon).map(|m| m.range));
        self.refused.clear();
        self.read_at = None;
    }

    /// Reads the list if it is not current. A failure leaves it empty: then nothing is known to lie inside one area.
    pub fn refresh(&mut self, dir: &ProcessDir, now: Instant) {
        if self.read_at.is_some_and(|t| now.duration_since(t) < LIFE.max(self.took * LIFE_PER_READ)) {
            return;
        }
        let begin_ns = thread_cpu_ns();
        self.list = mapped_ranges(dir).unwrap_or_default();
        self.took = Duration::from_nanos(thread_cpu_ns().saturating_sub(begin_ns));
        self.read_at = Some(now);
    }

    /// The area around `addr`. Call [`refresh`](Self::refresh) before.
    pub fn around(&self, addr: u64) -> Option<AddrRange> {
        find(&self.list, addr)
    }

    /// Whether the table at `base` lies in one area of private anonymous memory all of which can be cleared: large
    /// folios lie in it as a whole. (Not where memory was moved to an address that is not a multiple of their size;
    /// those are split.) Call [`refresh`](Self::refresh) before.
    pub(crate) fn holds_anon_table(&self, base: u64) -> bool {
        let end = base + TABLE_SPAN;
        let in_one = |list: &[AddrRange]| find(list, base).is_some_and(|a| end <= a.end);
        in_one(&self.anon) && in_one(&self.list) && !self.any_blind(base)
    }

    /// Whether [`holds_anon_table`](Self::holds_anon_table) can be true, by what mappings were seen last.
    pub(crate) fn may_hold_anon_table(&self, base: u64) -> bool {
        find(&self.anon, base).is_some_and(|a| base + TABLE_SPAN <= a.end) && !self.any_blind(base)
    }

    /// Whether an area begins at `addr`, as far as the list was ever read. (Reading it takes long for processes with
    /// many areas, so nothing that must be right depends on this.)
    pub(crate) fn begins_at(&self, addr: u64) -> bool {
        self.list.binary_search_by_key(&addr, |a| a.start).is_ok()
    }

    /// Whether [`blind`](Self::blind) holds any page.
    pub(crate) fn any_blind(&self, base: u64) -> bool {
        [&self.barred, &self.refused]
            .iter()
            .any(|list| list.get(list.partition_point(|r| r.end <= base)).is_some_and(|r| r.start < base + TABLE_SPAN))
    }

    /// Pages of the 2 MiB span at `base` whose bits cannot be cleared because of where they lie.
    pub fn blind(&self, base: u64) -> PageMask {
        mask::or(&pages_in(base, &self.barred), &pages_in(base, &self.refused))
    }

    /// Pages of the 2 MiB span at `base` that not even `clear_refs` clears, because of where they lie.
    pub fn unreachable(&self, base: u64) -> PageMask {
        pages_in(base, &self.unreachable)
    }

    /// The memory that `clear_refs` would clear besides `ranges` (sorted, disjoint), by what mappings were seen last.
    pub(super) fn cleared_besides(&self, ranges: &[AddrRange]) -> Vec<AddrRange> {
        subtract(&self.reachable, ranges)
    }

    /// Makes the next [`refresh`](Self::refresh) read the list.
    pub fn expire(&mut self) {
        self.read_at = None;
    }

    /// The parts of `range` that lie in different areas.
    pub fn parts(&self, range: AddrRange) -> Vec<AddrRange> {
        parts_in(&self.list, range).collect()
    }

    /// Notes that the kernel refused `range`. Nothing in the area around it, which this returns, is tried again until
    /// the next [`update`](Self::update).
    pub fn refuse(&mut self, range: AddrRange) -> AddrRange {
        // If the list is not current, only the range itself is known to be bad.
        let bad = self.around(range.start).filter(|a| range.end <= a.end).unwrap_or(range);
        self.refused.push(bad);
        normalize(&mut self.refused);
        bad
    }
}

fn is_barred(m: &Mapping) -> bool {
    m.locked || is_unreachable(m.kind)
}

fn is_unreachable(kind: MappingKind) -> bool {
    matches!(kind, MappingKind::Hugetlb | MappingKind::Special)
}

fn find(sorted: &[AddrRange], addr: u64) -> Option<AddrRange> {
    let at = sorted.partition_point(|r| r.end <= addr);
    sorted.get(at).filter(|r| r.contains(addr)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::mask::NO_PAGES;
    fn areas(list: &[(u64, u64)]) -> Areas {
        Areas { list: list.iter().map(|&(s, e)| AddrRange::new(s, e)).collect(), ..Areas::default() }
    }

    #[test]
    fn areas_are_found_by_address() {
        let a = areas(&[(0x1000, 0x3000), (0x3000, 0x4000), (0x9000, 0xa000)]);
        assert_eq!(a.around(0x2fff), Some(AddrRange::new(0x1000, 0x3000)));
        assert_eq!(a.around(0x3000), Some(AddrRange::new(0x3000, 0x4000)));
        assert_eq!(a.around(0x4000), None);
        assert!(a.begins_at(0x9000) && !a.begins_at(0x2000));
    }

    #[test]
    fn locked_special_and_refused_places_are_blind() {
        let mut a = areas(&[(0x1000, 0x3000), (0x3000, 0x4000)]);
        let mut locked = Mapping::anon(0x9000, 0xa000);
        locked.locked = true;
        let special = Mapping { kind: MappingKind::Special, ..Mapping::anon(0xb000, 0xc000) };
        a.update(&[Mapping::anon(0x1000, 0x4000), locked, special]);
        assert_eq!(a.blind(0)[0], 1 << 9 | 1 << 0xb);
        assert_eq!(a.unreachable(0)[0], 1 << 0xb, "locked pages can be cleared all at once");
        let besides = |ranges: &[(u64, u64)]| {
            let ranges: Vec<_> = ranges.iter().map(|&(s, e)| AddrRange::new(s, e)).collect();
            a.cleared_besides(&ranges).iter().map(|r| (r.start, r.end)).collect::<Vec<_>>()
        };
        assert_eq!(besides(&[(0x1000, 0x3000), (0x8000, 0x9000)]), [(0x3000, 0x4000), (0x9000, 0xa000)]);
        assert!(besides(&[(0, 0xa000)]).is_empty());
        assert_eq!(a.refuse(AddrRange::new(0x1000, 0x2000)), AddrRange::new(0x1000, 0x3000));
        assert_eq!(a.blind(0)[0], 1 << 1 | 1 << 2 | 1 << 9 | 1 << 0xb);
        let unlisted = AddrRange::new(0x3f_f000, 0x40_1000);
        assert_eq!(a.refuse(unlisted), unlisted);
        assert_eq!((a.blind(0x20_0000)[7], a.blind(0x40_0000)[0]), (1 << 63, 1));
        assert!(a.any_blind(0) && a.any_blind(0x20_0000) && !a.any_blind(0x60_0000));
        a.update(&[]);
        assert_eq!(a.blind(0), NO_PAGES);
        assert!(!a.any_blind(0));
        let parts = a.parts(AddrRange::new(0x2000, 0x9000));
        assert_eq!(parts, [AddrRange::new(0x2000, 0x3000), AddrRange::new(0x3000, 0x4000)]);
    }

    #[test]
    fn the_real_list_has_our_own_areas() {
        let mut a = Areas::default();
        a.refresh(&crate::proc::ProcessDir::live(std::process::id()), Instant::now());
        let here = &a as *const Areas as u64;
        assert!(a.around(here).is_some());
        assert_eq!(a.around(0), None);
    }
}
