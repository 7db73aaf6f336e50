//! Filters: which of the matching memory a scheme may act on.
//!
//! The first filter that matches decides; where none does, the opposite of the last one's verdict holds. Those that speak
//! of addresses, targets and mappings split regions; where one that must look at single pages comes before what decides
//! there, pages are judged one by one.
//!
//! DAMOS has two lists, of which that of addresses and targets comes first: [`core_first`] makes one of them.

use crate::addr::{AddrRange, PAGE_SIZE};
use crate::mapping::{Mapping, MappingKind};
use crate::memcg::is_below;
use crate::target::TargetId;
use regex_lite::Regex;

/// What a filter looks at.
#[derive(Debug, Clone)]
pub enum FilterType {
    /// Anonymous memory (the rest is backed by files).
    Anon,
    /// Addresses.
    Addr(AddrRange),
    /// A target.
    Target(TargetId),
    /// Mappings whose name the expression is found in; nameless anonymous memory is called `[anon]`.
    Mapping(Regex),
    /// Locked mappings.
    Locked,
    /// Targets of a control group: this path or below. Answered by the target's name.
    Cgroup(String),
    /// Pages accessed since they were last looked at.
    Young,
    /// Pages mapped by a huge page of a size within these bounds, bytes.
    HugepageSize {
        /// Least size.
        min: u64,
        /// Largest size.
        max: u64,
    },
}

/// A filter.
#[derive(Debug, Clone)]
pub struct Filter {
    /// What it looks at.
    pub what: FilterType,
    /// Whether it speaks of memory that matches (true) or of all other.
    pub matching: bool,
    /// Its verdict: act on it, or leave it alone.
    pub allow: bool,
}

impl FilterType {
    /// Whether single pages must be looked at.
    const fn is_per_page(&self) -> bool {
        matches!(self, Self::Young | Self::HugepageSize { .. })
    }

    /// The control group that it is about, if it is about one.
    pub fn group(&self) -> Option<&str> {
        match self {
            Self::Cgroup(path) => Some(path),
            _ => None,
        }
    }

    /// The same, to be written otherwise.
    pub(super) fn group_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Cgroup(path) => Some(path),
            _ => None,
        }
    }

    /// The name in scheme files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Anon => "anon",
            Self::Addr(_) => "addr",
            Self::Target(_) => "target",
            Self::Mapping(_) => "mapping",
            Self::Locked => "locked",
            Self::Cgroup(_) => "memcg",
            Self::Young => "young",
            Self::HugepageSize { .. } => "hugepage_size",
        }
    }
}

/// The verdict on a piece of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Left alone.
    Reject,
    /// Single pages must be looked at.
    Undecided {
        /// Those that look at pages among so many filters at the front of the list decide.
        first: usize,
        /// What holds for pages that none of them matches: whether they may be acted on.
        otherwise: bool,
    },
    /// Passes, whatever the filters that look at pages would say.
    Allow,
}

/// A piece of a region with its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilteredRange {
    /// Addresses.
    pub range: AddrRange,
    /// What the filters say.
    pub verdict: Verdict,
}

/// What filters need to know of a target.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Index.
    pub target: TargetId,
    /// Control group, where known.
    pub cgroup: Option<&'a str>,
    /// Mappings, sorted.
    pub mappings: &'a [Mapping],
}

/// Puts filters in the order in which DAMOS asks them: those of addresses and targets, which its core looks at, come
/// before all others. Each kind stays in its order.
pub fn core_first(filters: &mut [Filter]) {
    filters.sort_by_key(|f| !matches!(f.what, FilterType::Addr(_) | FilterType::Target(_)));
}

/// Splits `region` where verdicts change; pieces are sorted and cover all of it.
pub fn split(filters: &[Filter], subject: &Subject, region: AddrRange, out: &mut Vec<FilteredRange>) {
    if filters.iter().all(|f| f.what.is_per_page()) {
        return out.push(FilteredRange { range: region, verdict: verdict(filters, subject, region) });
    }
    let mut cuts = vec![region.start, region.end];
    for f in filters {
        if let FilterType::Addr(r) = &f.what {
            let pages = pages_of(r);
            cuts.extend([pages.start, pages.end]);
        }
    }
    let first = subject.mappings.partition_point(|m| m.range.end <= region.start);
    for m in subject.mappings[first..].iter().take_while(|m| m.range.start < region.end) {
        cuts.extend([m.range.start, m.range.end]);
    }
    cuts.retain(|&c| region.start <= c && c <= region.end);
    cuts.sort_unstable();
    cuts.dedup();
    for pair in cuts.windows(2) {
        let range = AddrRange::new(pair[0], pair[1]);
        let verdict = verdict(filters, subject, range);
        match out.last_mut() {
            Some(last) if last.range.end == range.start && last.verdict == verdict && range.start != region.start => {
                last.range.end = range.end;
            }
            _ => out.push(FilteredRange { range, verdict }),
        }
    }
}

/// The verdict on addresses that lie in one mapping (or none) and on one side of every address filter.
fn verdict(filters: &[Filter], subject: &Subject, range: AddrRange) -> Verdict {
    let at = subject.mappings.partition_point(|m| m.range.end <= range.start);
    let mapping = subject.mappings.get(at).filter(|m| m.range.contains(range.start));
    // Never one that looks at pages: of those nothing is known here.
    let decides = filters.iter().position(|f| matches(&f.what, subject, range, mapping) == Some(f.matching));
    let otherwise = match decides {
        Some(at) => filters[at].allow,
        None => filters.last().is_none_or(|last| !last.allow),
    };
    let before = &filters[..decides.unwrap_or(filters.len())];
    match before.iter().rposition(|f| f.what.is_per_page()) {
        Some(last) => Verdict::Undecided { first: last + 1, otherwise },
        None if otherwise => Verdict::Allow,
        None => Verdict::Reject,
    }
}

/// Whether `what` is true of the piece; `None` where that cannot be known, so that the filter does not match.
fn matches(what: &FilterType, subject: &Subject, range: AddrRange, mapping: Option<&Mapping>) -> Option<bool> {
    match what {
        FilterType::Addr(r) => Some(pages_of(r).contains(range.start)),
        FilterType::Target(t) => Some(*t == subject.target),
        FilterType::Anon => mapping.map(|m| m.kind == MappingKind::Anon),
        FilterType::Locked => mapping.map(|m| m.locked),
        FilterType::Mapping(re) => mapping.map(|m| re.is_match(shown_name(m))),
        FilterType::Cgroup(path) => subject.cgroup.map(|c| is_below(c, path)),
        FilterType::Young | FilterType::HugepageSize { .. } => None,
    }
}

/// The pages that a filter on addresses is about: both ends rounded down, as DAMOS does.
pub const fn pages_of(addresses: &AddrRange) -> AddrRange {
    AddrRange { start: addresses.start / PAGE_SIZE * PAGE_SIZE, end: addresses.end / PAGE_SIZE * PAGE_SIZE }
}

/// The name that filters see.
pub(crate) fn shown_name(mapping: &Mapping) -> &str {
    if mapping.name.is_empty() { "[anon]" } else { &mapping.name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mappings() -> Vec<Mapping> {
        let mut heap = Mapping::anon(0x1000, 0x5000);
        heap.name = "[heap]".into();
        let mut file = Mapping::anon(0x8000, 0xa000);
        file.name = "/usr/lib/libc.so".into();
        file.kind = MappingKind::File;
        vec![heap, file]
    }

    fn pieces(filters: &[Filter], range: (u64, u64)) -> Vec<(u64, u64, Verdict)> {
        let m = mappings();
        let mut out = Vec::new();
        let subject = Subject { target: 0, cgroup: Some("/a/b"), mappings: &m };
        split(filters, &subject, AddrRange::new(range.0, range.1), &mut out);
        out.iter().map(|p| (p.range.start, p.range.end, p.verdict)).collect()
    }

    fn filter(what: FilterType, matching: bool, allow: bool) -> Filter {
        Filter { what, matching, allow }
    }

    use Verdict::{Allow, Reject};

    #[test]
    fn regions_split_at_mappings_and_addresses() {
        let heap = filter(FilterType::Mapping(Regex::new("heap").unwrap()), true, true);
        assert_eq!(pieces(&[heap], (0x1000, 0x9000)), [(0x1000, 0x5000, Allow), (0x5000, 0x9000, Reject)]);
        let addr = filter(FilterType::Addr(AddrRange::new(0x2000, 0x3000)), true, false);
        assert_eq!(
            pieces(&[addr], (0x1000, 0x5000)),
            [(0x1000, 0x2000, Allow), (0x2000, 0x3000, Reject), (0x3000, 0x5000, Allow)]
        );
        // In the midst of pages.
        for allow in [true, false] {
            let of = |start, end| [filter(FilterType::Addr(AddrRange::new(start, end)), true, allow)];
            assert_eq!(pieces(&of(0x2800, 0x3801), (0x1000, 0x5000)), pieces(&of(0x2000, 0x3000), (0x1000, 0x5000)));
        }
    }

    #[test]
    fn the_first_match_decides() {
        let not_files = filter(FilterType::Anon, false, false);
        let all = filter(FilterType::Target(0), true, true);
        assert_eq!(
            pieces(&[not_files.clone(), all.clone()], (0x1000, 0xa000)),
            [(0x1000, 0x8000, Allow), (0x8000, 0xa000, Reject)]
        );
        assert_eq!(pieces(&[all, not_files], (0x1000, 0xa000)), [(0x1000, 0xa000, Allow)]);
    }

    #[test]
    fn without_a_match_the_opposite_of_the_last_holds() {
        let other_target = |allow| [filter(FilterType::Target(1), true, allow)];
        assert_eq!(pieces(&other_target(true), (0x1000, 0x2000)), [(0x1000, 0x2000, Reject)]);
        assert_eq!(pieces(&other_target(false), (0x1000, 0x2000)), [(0x1000, 0x2000, Allow)]);
        let mut with_young = other_target(true).to_vec();
        with_young.push(filter(FilterType::Young, true, false));
        let undecided = Verdict::Undecided { first: 2, otherwise: true };
        assert_eq!(pieces(&with_young, (0x1000, 0x2000)), [(0x1000, 0x2000, undecided)]);
    }

    #[test]
    fn groups_contain_those_below() {
        for (path, inside) in [("/a", true), ("/a/b", true), ("/a/b/", true), ("/a/bc", false), ("/", true)] {
            let f = filter(FilterType::Cgroup(path.into()), true, true);
            assert_eq!(pieces(&[f], (0x1000, 0x2000))[0].2, if inside { Allow } else { Reject }, "{path}");
        }
    }

    #[test]
    fn pages_are_looked_at_only_where_that_can_matter() {
        let filters = [
            filter(FilterType::Anon, true, true),
            filter(FilterType::Young, true, false),
            filter(FilterType::Locked, false, false),
        ];
        let undecided = Verdict::Undecided { first: 2, otherwise: false };
        assert_eq!(pieces(&filters, (0x1000, 0xa000))[0], (0x1000, 0x5000, Allow), "allowed before the question comes");
        assert_eq!(pieces(&filters, (0x8000, 0xa000)), [(0x8000, 0xa000, undecided)]);
    }

    proptest! {
        #[test]
        fn pieces_tile_the_region(start in 0u64..16, len in 1u64..16, cut in 0u64..16, matching: bool, allow: bool) {
            let f = [
                filter(FilterType::Addr(AddrRange::new(cut << 12, (cut + 3) << 12)), matching, allow),
                filter(FilterType::Anon, true, !allow),
            ];
            let got = pieces(&f, (start << 12, (start + len) << 12));
            prop_assert_eq!(got[0].0, start << 12);
            prop_assert_eq!(got.last().unwrap().1, (start + len) << 12);
            prop_assert!(got.windows(2).all(|w| w[0].1 == w[1].0));
        }
    }
}
