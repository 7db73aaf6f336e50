//! Which addresses a monitor spends its samples on.

use crate::addr::{AddrRange, normalize};
use crate::mapping::{Mapping, MappingKind};

/// How mappings become monitored ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpaceRule {
    /// The real mappings; gaps are never sampled.
    #[default]
    Mappings,
    /// DAMON's rule: the whole span of the mappings without its two widest gaps, so three ranges.
    ThreeRegions,
}

/// How long ranges that somebody gives for a target are monitored instead of what its mappings say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// As long as the target does.
    Always,
    /// An update interval: until its mappings are read anew.
    UntilUpdate,
}

/// Ranges that somebody gave.
#[derive(Debug)]
pub(crate) struct GivenSpace {
    pub ranges: Vec<AddrRange>,
    pub lasting: Lasting,
    /// When they end, ns; `None`: they have not begun, or never end.
    pub until_ns: Option<u64>,
}

impl GivenSpace {
    /// The ranges at `now_ns`, where they last an update interval of `update_us`; `None`: they are over.
    pub fn at(&mut self, now_ns: u64, update_us: u64) -> Option<Vec<AddrRange>> {
        let begins = self.lasting == Lasting::UntilUpdate && self.until_ns.is_none();
        if begins {
            self.until_ns = Some(now_ns.saturating_add(update_us.saturating_mul(1000)));
        }
        self.until_ns.is_none_or(|until_ns| now_ns < until_ns).then(|| self.ranges.clone())
    }
}

/// The addresses that can hold pages, kernel-made areas left out: sorted, disjoint, touching ones joined.
pub(crate) fn pageable_ranges(mappings: &[Mapping]) -> Vec<AddrRange> {
    let mut ranges: Vec<AddrRange> =
        mappings.iter().filter(|m| m.kind != MappingKind::Special).map(|m| m.range).collect();
    normalize(&mut ranges);
    ranges
}

/// The monitored ranges of `mappings` (sorted): sorted, disjoint, touching ones joined, kernel-made areas left out.
///
/// With [`SpaceRule::Mappings`] and more than `max_ranges` ranges, those with the narrowest gaps between them are
/// joined until that many are left, so that a process with tens of thousands of mappings stays affordable.
pub(crate) fn monitored_ranges(mappings: &[Mapping], rule: SpaceRule, max_ranges: usize) -> Vec<AddrRange> {
    let mut ranges = pageable_ranges(mappings);
    let limit = match rule {
        SpaceRule::Mappings => max_ranges.max(1),
        SpaceRule::ThreeRegions => 3,
    };
    if ranges.len() > limit {
        join_narrowest_gaps(&mut ranges, limit);
    }
    ranges
}

/// Closes the holes in `ranges` that are narrower than `least_hole`, then the narrowest ones until at most `max_ranges`
/// are left. Holes between mappings (where `mapped`, sorted, has one, too) are never closed by the first rule.
pub(crate) fn close_narrow_holes(
    ranges: &mut Vec<AddrRange>,
    mapped: &[AddrRange],
    least_hole: u64,
    max_ranges: usize,
) {
    let mut out: Vec<AddrRange> = Vec::with_capacity(ranges.len());
    let mut m = 0;
    for r in ranges.drain(..) {
        while m < mapped.len() && mapped[m].end <= r.start {
            m += 1;
        }
        match out.last_mut() {
            Some(last) if r.start - last.end < least_hole && mapped.get(m).is_some_and(|m| m.start < last.end) => {
                last.end = r.end;
            }
            _ => out.push(r),
        }
    }
    if out.len() > max_ranges.max(1) {
        join_narrowest_gaps(&mut out, max_ranges.max(1));
    }
    *ranges = out;
}

fn join_narrowest_gaps(ranges: &mut Vec<AddrRange>, limit: usize) {
    let mut gaps: Vec<(u64, usize)> = ranges.windows(2).enumerate().map(|(i, w)| (w[1].start - w[0].end, i)).collect();
    // The widest `limit - 1` gaps stay; among equal ones those at lower addresses.
    gaps.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut kept: Vec<usize> = gaps[..limit - 1].iter().map(|g| g.1).collect();
    kept.sort_unstable();
    let mut out = Vec::with_capacity(limit);
    let mut first = 0;
    for last in kept.into_iter().chain([ranges.len() - 1]) {
        out.push(AddrRange::new(ranges[first].start, ranges[last].end));
        first = last + 1;
    }
    *ranges = out;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{is_sorted_disjoint, total_len};
    use proptest::prelude::*;

    fn maps(list: &[(u64, u64)]) -> Vec<Mapping> {
        list.iter().map(|&(s, e)| Mapping::anon(s * 4096, e * 4096)).collect()
    }

    #[test]
    fn three_regions_leave_the_two_widest_gaps_out() {
        let m = maps(&[(10, 20), (21, 25), (200, 220), (221, 230), (305, 307)]);
        let r = monitored_ranges(&m, SpaceRule::ThreeRegions, 1000);
        let pages: Vec<_> = r.iter().map(|r| (r.start / 4096, r.end / 4096)).collect();
        assert_eq!(pages, [(10, 25), (200, 230), (305, 307)]);
    }

    #[test]
    fn given_ranges_last_an_update_interval_or_always() {
        let given = |lasting| GivenSpace { ranges: vec![AddrRange::new(0, 4096)], lasting, until_ns: None };
        let mut first = given(Lasting::UntilUpdate);
        assert_eq!(first.at(5_000, 1_000).unwrap(), [AddrRange::new(0, 4096)]);
        assert!(first.at(1_004_999, 1_000).is_some(), "the interval began when they were first asked for");
        assert!(first.at(1_005_000, 1_000).is_none());
        let mut fixed = given(Lasting::Always);
        assert!(fixed.at(0, 1).is_some() && fixed.at(u64::MAX, 1).is_some());
    }

    #[test]
    fn touching_mappings_are_one_range() {
        let m = maps(&[(1, 2), (2, 5), (9, 10)]);
        assert_eq!(monitored_ranges(&m, SpaceRule::Mappings, 1000).len(), 2);
    }

    #[test]
    fn narrow_holes_close_but_not_those_between_mappings() {
        let p = |list: &[(u64, u64)]| list.iter().map(|&(s, e)| AddrRange::new(s, e)).collect::<Vec<_>>();
        let mapped = p(&[(0, 100), (102, 500)]);
        let mut ranges = p(&[(10, 40), (45, 100), (102, 200), (205, 210), (400, 450)]);
        close_narrow_holes(&mut ranges, &mapped, 10, 100);
        assert_eq!(ranges, p(&[(10, 100), (102, 210), (400, 450)]));
        close_narrow_holes(&mut ranges, &mapped, 10, 2);
        assert_eq!(ranges, p(&[(10, 210), (400, 450)]));
    }

    proptest! {
        #[test]
        fn joined_ranges_cover_every_mapping(list in prop::collection::vec((1u64..50, 1u64..50), 1..60), limit in 1usize..20) {
            let mut at = 0;
            let m: Vec<_> = list.iter().map(|&(gap, len)| { let s = at + gap; at = s + len; Mapping::anon(s * 4096, at * 4096) }).collect();
            let r = monitored_ranges(&m, SpaceRule::Mappings, limit);
            prop_assert!(r.len() <= limit && is_sorted_disjoint(&r));
            prop_assert!(m.iter().all(|m| r.iter().any(|r| r.start <= m.range.start && m.range.end <= r.end)));
            prop_assert!(total_len(&r) >= m.iter().map(|m| m.range.len()).sum());
        }
    }
}
