//! What a scheme has treated lately. DAMOS resets a region's age once an action was applied to it; here the age belongs
//! to the monitor, so each scheme keeps what it treated and lets it be for the pattern's least age.

use crate::addr::{AddrRange, TABLE_SPAN};
use crate::mask::{self, NO_PAGES, PageMask};
use crate::pages::mask_of;
use std::collections::BTreeMap;

/// Treated ranges of one target, with the time; disjoint.
#[derive(Debug, Clone, Default)]
pub(super) struct Treated {
    /// start -> (end, when ns)
    ranges: BTreeMap<u64, (u64, u64)>,
}

impl Treated {
    /// Takes in that `range` was treated at `now_ns`.
    pub fn insert(&mut self, range: AddrRange, now_ns: u64) {
        self.cut(range);
        // Neighbours of the same moment are one.
        let joined = self.ranges.range(..=range.start).next_back().map(|(&s, &v)| (s, v));
        match joined {
            Some((start, (end, time))) if end == range.start && time == now_ns => {
                self.ranges.insert(start, (range.end, now_ns));
            }
            _ => {
                self.ranges.insert(range.start, (range.end, now_ns));
            }
        }
    }

    /// Takes `range` out of whatever overlaps it.
    fn cut(&mut self, range: AddrRange) {
        let first = self.ranges.range(..range.start).next_back().map_or(range.start, |(&s, _)| s);
        let hit: Vec<(u64, u64, u64)> = self
            .ranges
            .range(first..range.end)
            .filter(|&(_, &(end, _))| end > range.start)
            .map(|(&s, &(e, t))| (s, e, t))
            .collect();
        for (start, end, time) in hit {
            self.ranges.remove(&start);
            if start < range.start {
                self.ranges.insert(start, (range.start, time));
            }
            if end > range.end {
                self.ranges.insert(range.end, (end, time));
            }
        }
    }

    /// Forgets what was treated at least `keep_ns` ago.
    pub fn expire(&mut self, now_ns: u64, keep_ns: u64) {
        self.ranges.retain(|_, &mut (_, time)| now_ns < time.saturating_add(keep_ns));
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(start, (end, _))| end - start).sum()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The pages below the table at `base` that were treated.
    pub fn mask(&self, base: u64) -> PageMask {
        let table = AddrRange::new(base, base + TABLE_SPAN);
        let first = self.ranges.range(..base).next_back().map_or(base, |(&s, _)| s);
        let ranges = self.ranges.range(first..table.end).map(|(&start, &(end, _))| AddrRange::new(start, end));
        ranges.filter(|r| r.end > base).fold(NO_PAGES, |sum, r| mask::or(&sum, &mask_of(base, r)))
    }

    /// Appends the parts of `range` that were not treated.
    pub(crate) fn untreated(&self, range: AddrRange, out: &mut Vec<AddrRange>) {
        let mut at = range.start;
        let first = self.ranges.range(..range.start).next_back().map_or(range.start, |(&s, _)| s);
        for (&start, &(end, _)) in self.ranges.range(first..range.end) {
            if end <= at {
                continue;
            }
            if start > at {
                out.push(AddrRange::new(at, start));
            }
            at = end;
        }
        if at < range.end {
            out.push(AddrRange::new(at, range.end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_address_keeps_its_last_time(list in prop::collection::vec((0u64..60, 1u64..20), 1..30), keep in 1u64..20) {
            let mut treated = Treated::default();
            let mut model = vec![None; 100];
            for (now, &(start, len)) in list.iter().enumerate() {
                treated.insert(AddrRange::new(start, start + len), now as u64);
                (start..start + len).for_each(|a| model[a as usize] = Some(now as u64));
            }
            let now = list.len() as u64;
            treated.expire(now, keep);
            let mut free = Vec::new();
            treated.untreated(AddrRange::new(0, 100), &mut free);
            for a in 0..100u64 {
                let was = model[a as usize].is_some_and(|t| now < t + keep);
                prop_assert_eq!(free.iter().any(|r| r.contains(a)), !was, "{}", a);
            }
        }
    }
}
