//! Which pages of an area are touched at all: all of them, or a few that lie scattered, as in hash tables and heaps.

use crate::random::mix;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A choice of pages. It is computed and never listed, so that it may be one of terabytes; the same choice is always
/// the same pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Members {
    /// All pages.
    All,
    /// The first page, and each `nth` after it.
    Every {
        /// 1 or more.
        nth: u64,
    },
    /// One page, at random, in each of `count` runs of pages (nearly) alike in length.
    Random {
        /// 1 to the number of pages.
        count: u64,
        /// The same seed chooses the same pages.
        seed: u64,
    },
}

impl Members {
    /// How many of `pages` pages are chosen.
    pub const fn count(&self, pages: u64) -> u64 {
        match self {
            Self::All => pages,
            Self::Every { nth } => pages.div_ceil(*nth),
            Self::Random { count, .. } => *count,
        }
    }

    /// The page with number `index` among those chosen of `pages`; the numbers follow the addresses.
    pub fn page(&self, index: u64, pages: u64) -> u64 {
        match *self {
            Self::All => index,
            Self::Every { nth } => index * nth,
            Self::Random { count, seed } => {
                let (start, end) = (run_start(index, count, pages), run_start(index + 1, count, pages));
                start + mix(seed, index) % (end - start)
            }
        }
    }

    /// The number of `page` among those chosen of `pages`; `None`: it is not chosen.
    pub(crate) fn index_of(&self, page: u64, pages: u64) -> Option<u64> {
        match *self {
            Self::All => Some(page),
            Self::Every { nth } => page.is_multiple_of(nth).then(|| page / nth),
            Self::Random { count, .. } => {
                let index = run_of(page, count, pages);
                (self.page(index, pages) == page).then_some(index)
            }
        }
    }

    /// The numbers of those that lie within `among`, chosen of `pages`.
    pub fn within(&self, among: Range<u64>, pages: u64) -> Range<u64> {
        self.first_from(among.start, pages)..self.first_from(among.end, pages)
    }

    /// The number of the first one at `page` or after it; their count if there is none.
    fn first_from(&self, page: u64, pages: u64) -> u64 {
        if page >= pages {
            return self.count(pages);
        }
        match *self {
            Self::All => page,
            Self::Every { nth } => page.div_ceil(nth),
            Self::Random { count, .. } => {
                let index = run_of(page, count, pages);
                index + u64::from(self.page(index, pages) < page)
            }
        }
    }
}

/// The first page of run `index`.
fn run_start(index: u64, count: u64, pages: u64) -> u64 {
    (u128::from(index) * u128::from(pages) / u128::from(count)) as u64
}

/// The run that holds `page`.
fn run_of(page: u64, count: u64, pages: u64) -> u64 {
    (((u128::from(page) + 1) * u128::from(count) - 1) / u128::from(pages)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arb() -> impl Strategy<Value = (u64, Members)> {
        (1u64..300).prop_flat_map(|pages| {
            let members = prop_oneof![
                Just(Members::All),
                (1u64..60).prop_map(|nth| Members::Every { nth }),
                (1..=pages, any::<u64>()).prop_map(|(count, seed)| Members::Random { count, seed }),
            ];
            (Just(pages), members)
        })
    }

    proptest! {
        #[test]
        fn numbers_and_pages_fit_together((pages, members) in arb(), from in 0u64..300, to in 0u64..300) {
            let chosen: Vec<u64> = (0..members.count(pages)).map(|i| members.page(i, pages)).collect();
            prop_assert!(chosen.windows(2).all(|w| w[0] < w[1]) && chosen.iter().all(|p| *p < pages));
            for page in 0..pages {
                let index = chosen.binary_search(&page).ok().map(|i| i as u64);
                prop_assert_eq!(members.index_of(page, pages), index);
            }
            let (from, to) = (from.min(to), from.max(to));
            let inside: Vec<u64> = members.within(from..to, pages).map(|i| members.page(i, pages)).collect();
            let expected: Vec<u64> = chosen.into_iter().filter(|p| (from..to).contains(p)).collect();
            prop_assert_eq!(inside, expected);
        }
    }

    #[test]
    fn terabytes_are_chosen_from_without_overflow() {
        let pages = (64u64 << 40) / 4096;
        let members = Members::Random { count: pages / 3, seed: u64::MAX };
        for index in [0, 1, 1_000_003, pages / 3 - 1] {
            assert_eq!(members.index_of(members.page(index, pages), pages), Some(index));
        }
    }
}
