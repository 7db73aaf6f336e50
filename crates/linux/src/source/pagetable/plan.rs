//! Turns sets of pages into ranges that are cheap to clear.

use super::prices::Rates;
use isotherm_core::addr::{AddrRange, PAGE_SIZE};
use isotherm_core::mask::{self, PageMask};

/// Pages of one table that are to be cleared.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The 2 MiB span.
    pub base: u64,
    /// The pages.
    pub pages: PageMask,
    /// Pages that may be covered, too.
    pub allowed: PageMask,
    /// Pages whose bit is set.
    pub set: PageMask,
}

impl Wanted {
    /// Appends the ranges that cover all its pages, joining two runs if the pages between them are all allowed and cost
    /// no more than a further range. Joins with the last range of `out` if that ends where the first begins and
    /// `border` does not lie there.
    pub fn cover(&self, rates: Rates, border: impl Fn(u64) -> bool, out: &mut Vec<AddrRange>) {
        let address = |page: usize| self.base + page as u64 * PAGE_SIZE;
        let mut emit = |first: usize, end: usize| {
            let r = AddrRange::new(address(first), address(end));
            match out.last_mut() {
                Some(last) if last.end == r.start && !border(r.start) => last.end = r.end,
                _ => out.push(r),
            }
        };
        let mut run: Option<(usize, usize)> = None;
        for page in mask::iter(&self.pages) {
            run = Some(match run {
                Some((first, end)) if self.joins(end, page, rates) && !(end..=page).any(|p| border(address(p))) => {
                    (first, page + 1)
                }
                Some((first, end)) => {
                    emit(first, end);
                    (page, page + 1)
                }
                None => (page, page + 1),
            });
        }
        if let Some((first, end)) = run {
            emit(first, end);
        }
    }

    fn joins(&self, end: usize, next: usize, rates: Rates) -> bool {
        let mut left = rates.range;
        (end..next).all(|page| {
            left -= if mask::has(&self.set, page) { rates.young_page } else { rates.old_page };
            left >= 0.0 && mask::has(&self.allowed, page)
        })
    }
}

/// `pages`, and those between any two of them that lie at most `gap` pages apart.
pub fn with_gaps(pages: &PageMask, gap: usize) -> PageMask {
    let mut all = *pages;
    let mut last = None;
    for page in mask::iter(pages) {
        if let Some(end) = last.map(|last: usize| last + 1).filter(|&end| end < page && page - end <= gap) {
            all = mask::or(&all, &mask::span_mask(end, page));
        }
        last = Some(page);
    }
    all
}

/// Runs of numbers in a sorted list, two of them joined if at most `gap` numbers are missing between them, none longer
/// than `max`: pairs of (index of the first, number of the list's members), the run itself reaching from the first to
/// the last member.
pub fn runs(sorted: &[u64], gap: u64, max: u64) -> impl Iterator<Item = &[u64]> {
    let mut rest = sorted;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let n =
            (1..rest.len()).find(|&i| rest[i] - rest[i - 1] > gap + 1 || rest[i] - first >= max).unwrap_or(rest.len());
        let (run, more) = rest.split_at(n);
        rest = more;
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::mask::NO_PAGES;
    use proptest::prelude::*;

    const BASE: u64 = 0x7f00_0020_0000;

    fn rates(range: f64) -> Rates {
        Rates { range, old_page: 37.0, young_page: 357.0 }
    }

    fn arb_mask() -> impl Strategy<Value = PageMask> {
        // Sparse, dense and mixed words.
        prop::array::uniform8(prop_oneof![Just(0), any::<u64>(), Just(u64::MAX), (0u32..64).prop_map(|b| 1 << b)])
    }

    proptest! {
        #[test]
        fn cover_holds_wanted_and_nothing_forbidden(
            wanted in arb_mask(), allowed in arb_mask(), set in arb_mask(), border in 0usize..512, price in 0.0..10_000.0
        ) {
            let mut out = Vec::new();
            let cut = BASE + border as u64 * PAGE_SIZE;
            Wanted { base: BASE, pages: wanted, allowed, set }.cover(rates(price), |a| a == cut, &mut out);
            prop_assert!(isotherm_core::addr::is_sorted_disjoint(&out));
            let mut covered = NO_PAGES;
            for r in &out {
                prop_assert!(!(r.start < cut && cut < r.end));
                for p in ((r.start - BASE) / PAGE_SIZE)..((r.end - BASE) / PAGE_SIZE) {
                    mask::put(&mut covered, p as usize);
                }
            }
            prop_assert_eq!(mask::and_not(&wanted, &covered), NO_PAGES);
            prop_assert_eq!(mask::and_not(&mask::and_not(&covered, &wanted), &allowed), NO_PAGES);
        }

        #[test]
        fn gaps_are_filled_up_to_their_length(pages in arb_mask(), gap in 0usize..100) {
            let all = with_gaps(&pages, gap);
            for i in 0..512 {
                let before = (0..=i).rev().find(|&p| mask::has(&pages, p));
                let after = (i..512).find(|&p| mask::has(&pages, p));
                let within = before.zip(after).is_some_and(|(b, a)| a <= b + gap + 1);
                prop_assert_eq!(mask::has(&all, i), within);
            }
        }

        #[test]
        fn runs_split_only_where_they_must(mut list in prop::collection::vec(0u64..2000, 0..200), gap in 0u64..20) {
            list.sort_unstable();
            list.dedup();
            let parts: Vec<&[u64]> = runs(&list, gap, 100).collect();
            prop_assert_eq!(&parts.concat(), &list);
            for p in &parts {
                prop_assert!(p[p.len() - 1] - p[0] < 100);
                prop_assert!(p.windows(2).all(|w| w[1] - w[0] <= gap + 1));
            }
            for w in parts.windows(2) {
                let (last, next) = (w[0][w[0].len() - 1], w[1][0]);
                prop_assert!(next - last > gap + 1 || next - w[0][0] >= 100);
            }
        }
    }

    #[test]
    fn whole_tables_become_one_range() {
        let mut out = Vec::new();
        for t in 0..4 {
            let base = BASE + t * 512 * PAGE_SIZE;
            let all = [u64::MAX; 8];
            Wanted { base, pages: all, allowed: NO_PAGES, set: all }.cover(rates(230.0), |_| false, &mut out);
        }
        assert_eq!(out, [AddrRange::new(BASE, BASE + 4 * 512 * PAGE_SIZE)]);
    }

    #[test]
    fn gaps_are_bridged_while_they_cost_less_than_a_range() {
        let mut pages = NO_PAGES;
        [0, 10, 21].iter().for_each(|&p| mask::put(&mut pages, p));
        let mut set = pages;
        let ends = |set, price: f64| {
            let mut out = Vec::new();
            Wanted { base: BASE, pages, allowed: [u64::MAX; 8], set }.cover(rates(price), |_| false, &mut out);
            out.iter().map(|r| ((r.start - BASE) / PAGE_SIZE, (r.end - BASE) / PAGE_SIZE)).collect::<Vec<_>>()
        };
        assert_eq!(ends(set, 9.0 * 37.0), [(0, 11), (21, 22)]);
        assert_eq!(ends(set, 4000.0), [(0, 22)]);
        // Bits that are to stay set make a gap expensive.
        (11..21).for_each(|p| mask::put(&mut set, p));
        assert_eq!(ends(set, 3000.0), [(0, 11), (21, 22)]);
    }
}
