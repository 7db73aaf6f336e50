//! The rule by which single pages are judged where whole mappings do not decide.

use super::filter::{Filter, FilterType, Verdict};

/// What is known of a page when filters that look at pages speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageFacts {
    /// Accessed since it was last looked at.
    pub young: bool,
    /// Size of what maps it, bytes.
    pub leaf: u64,
}

/// What the filters say of the pages of a piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageRule<'a> {
    /// Those that look at pages among them decide, the first that matches.
    filters: &'a [Filter],
    /// What holds where none matches.
    otherwise: bool,
}

impl<'a> PageRule<'a> {
    /// The rule of a piece on which `filters` have given that verdict.
    pub(super) fn of(filters: &'a [Filter], verdict: Verdict) -> Self {
        match verdict {
            Verdict::Reject => Self { filters: &[], otherwise: false },
            Verdict::Undecided { first, otherwise } => {
                Self { filters: &filters[..first.min(filters.len())], otherwise }
            }
            Verdict::Allow => Self { filters: &[], otherwise: true },
        }
    }

    /// Whether it matters if a page is young.
    pub(super) fn asks_young(&self) -> bool {
        self.filters.iter().any(|f| matches!(f.what, FilterType::Young))
    }

    /// Whether a page may be acted on.
    pub(super) fn passes(&self, facts: PageFacts) -> bool {
        let first = self.filters.iter().find(|f| matches(&f.what, facts) == Some(f.matching));
        first.map_or(self.otherwise, |f| f.allow)
    }
}

/// Whether `what` is true of the page; `None` of what is no filter on pages.
fn matches(what: &FilterType, facts: PageFacts) -> Option<bool> {
    match what {
        FilterType::Young => Some(facts.young),
        FilterType::HugepageSize { min, max } => Some(facts.leaf > 4096 && (*min..=*max).contains(&facts.leaf)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{AddrRange, PAGE_SIZE, TABLE_SPAN};
    use crate::mapping::{Mapping, MappingKind};
    use crate::memcg::is_below;
    use crate::scheme::filter::{Subject, core_first, split};
    use proptest::prelude::*;

    const GROUP: &str = "/a/b";

    fn filter(what: FilterType, matching: bool, allow: bool) -> Filter {
        Filter { what, matching, allow }
    }

    /// Four pages of anonymous memory, and four of a file.
    fn mappings() -> [Mapping; 2] {
        let mut file = Mapping::anon(4 * PAGE_SIZE, 8 * PAGE_SIZE);
        file.kind = MappingKind::File;
        [Mapping::anon(0, 4 * PAGE_SIZE), file]
    }

    /// Whether a page of target 0 may be acted on.
    fn passes(filters: &[Filter], page: u64, facts: PageFacts) -> bool {
        let mappings = mappings();
        let subject = Subject { target: 0, cgroup: Some(GROUP), mappings: &mappings };
        let mut pieces = Vec::new();
        split(filters, &subject, AddrRange::new(0, 8 * PAGE_SIZE), &mut pieces);
        let piece = pieces.iter().find(|piece| piece.range.contains(page * PAGE_SIZE)).unwrap();
        PageRule::of(filters, piece.verdict).passes(facts)
    }

    #[test]
    fn young_pages_are_kept() {
        let f = [filter(FilterType::Young, true, false)];
        let page = |young, leaf| PageFacts { young, leaf };
        assert!(!passes(&f, 0, page(true, 4096)));
        assert!(passes(&f, 0, page(false, 4096)));
        assert!(passes(&[], 0, page(true, 4096)));
        let huge = [filter(FilterType::HugepageSize { min: 0, max: u64::MAX }, true, true)];
        assert!(passes(&huge, 0, page(true, 2 << 20)));
        assert!(!passes(&huge, 0, page(true, 4096)));
    }

    #[test]
    fn filters_on_pages_and_on_mappings_take_turns() {
        let f = [filter(FilterType::Young, true, false), filter(FilterType::Anon, true, true)];
        let of = |page| [true, false].map(|young| passes(&f, page, PageFacts { young, leaf: PAGE_SIZE }));
        assert_eq!(of(0), [false, true], "anonymous: kept while young");
        assert_eq!(of(5), [false, false], "of a file: none matches, and the last one allows");
        let f = [f[1].clone(), f[0].clone()];
        let of = |page| [true, false].map(|young| passes(&f, page, PageFacts { young, leaf: PAGE_SIZE }));
        assert_eq!(of(0), [true, true], "allowed before anybody asks whether it is young");
        assert_eq!(of(5), [false, true]);
    }

    /// A page as the reference below sees it.
    #[derive(Debug, Clone, Copy)]
    struct Page {
        number: u64,
        facts: PageFacts,
    }

    /// All that pages can be.
    fn all_pages() -> impl Iterator<Item = Page> {
        let leaves = |young| [PAGE_SIZE, TABLE_SPAN].map(|leaf| PageFacts { young, leaf });
        let facts = move || [true, false].into_iter().flat_map(leaves);
        (0..8).flat_map(move |number| facts().map(move |facts| Page { number, facts }))
    }

    fn is(what: &FilterType, page: Page) -> bool {
        match what {
            FilterType::Anon => page.number < 4,
            FilterType::Addr(r) => r.contains(page.number * PAGE_SIZE),
            FilterType::Target(target) => *target == 0,
            FilterType::Cgroup(path) => is_below(GROUP, path),
            FilterType::Young => page.facts.young,
            FilterType::HugepageSize { min, max } => (*min..=*max).contains(&page.facts.leaf),
            FilterType::Mapping(_) | FilterType::Locked => unreachable!("the kernel has none"),
        }
    }

    /// DAMOS's rule: the core's filters (addresses, targets) by themselves, and then, where none of them matched, those
    /// that look at pages.
    fn kernel_passes(filters: &[Filter], page: Page) -> bool {
        let is_core = |f: &&Filter| matches!(f.what, FilterType::Addr(_) | FilterType::Target(_));
        let (core, ops): (Vec<&Filter>, Vec<&Filter>) = filters.iter().partition(is_core);
        let decided = |layer: &[&Filter]| layer.iter().find(|f| is(&f.what, page) == f.matching).map(|f| f.allow);
        let default = |layer: &[&Filter]| layer.last().is_none_or(|last| !last.allow);
        match decided(&core) {
            Some(allow) => allow,
            None if ops.is_empty() => default(&core),
            None => decided(&ops).unwrap_or_else(|| default(&ops)),
        }
    }

    fn any_filter() -> impl Strategy<Value = Filter> {
        let what = prop_oneof![
            Just(FilterType::Anon),
            Just(FilterType::Young),
            Just(FilterType::HugepageSize { min: TABLE_SPAN, max: u64::MAX }),
            (0u64..8, 1u64..5).prop_map(|(from, pages)| FilterType::Addr(AddrRange::new(
                from * PAGE_SIZE,
                (from + pages) * PAGE_SIZE
            ))),
            (0u32..2).prop_map(FilterType::Target),
            prop::sample::select(vec!["/a", "/b"]).prop_map(|path| FilterType::Cgroup(path.into())),
        ];
        (what, any::<bool>(), any::<bool>()).prop_map(|(what, matching, allow)| filter(what, matching, allow))
    }

    proptest! {
        #[test]
        fn pages_pass_as_in_the_kernel(mut filters in prop::collection::vec(any_filter(), 0..6)) {
            let as_given = filters.clone();
            core_first(&mut filters);
            for page in all_pages() {
                prop_assert_eq!(passes(&filters, page.number, page.facts), kernel_passes(&as_given, page), "{:?}", page);
            }
        }

        #[test]
        fn the_first_match_decides_in_any_order(filters in prop::collection::vec(any_filter(), 0..6)) {
            for page in all_pages() {
                let first = filters.iter().find(|f| is(&f.what, page) == f.matching).map(|f| f.allow);
                let expected = first.unwrap_or_else(|| filters.last().is_none_or(|last| !last.allow));
                prop_assert_eq!(passes(&filters, page.number, page.facts), expected, "{:?}", page);
            }
        }
    }
}
